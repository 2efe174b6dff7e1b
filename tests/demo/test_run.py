"""The demo as a user runs it, on a small part of the library, to its end or to Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

import zodbcache

TIMEOUT_S = 120
MARK = "ZODBCACHE_TEST_RUN"

# Says which part it has come to, so that a test can wait for one.
ANNOUNCING = """
import sys
from zodbcache import cli
from zodbcache.demo.progress import ProgressBars
part = ProgressBars.part
def announce(self, description, total):
    print(description, flush=True)
    return part(self, description, total)
ProgressBars.part = announce
sys.exit(cli.main())
"""

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="finds processes by their environment"
)


class Demo:
    """A place to run the demo in, and its processes found by a mark in their environment."""

    def __init__(self, directory):
        self.directory = directory
        self.temporary = directory / "temporary"
        self.temporary.mkdir()
        self._mark = uuid.uuid4().hex
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(Path(zodbcache.__file__).parent.parent),
            "TMPDIR": str(self.temporary),
            MARK: self._mark,
        }

    def start(self, *command):
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=self.directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def processes(self):
        """The ids of its living processes."""
        mark = f"{MARK}={self._mark}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):  # ended in between, or another user's
                if mark in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
        return found

    def start_and_wait_for(self, part):
        process = self.start("-c", ANNOUNCING, "demo", "--quick")
        for line in process.stdout:
            if line.startswith(part):
                return process
        raise AssertionError(process.communicate(timeout=TIMEOUT_S)[1])


@pytest.fixture
def demo(tmp_path):
    return Demo(tmp_path)


@needs_proc
def test_a_quick_run(demo):
    process = demo.start("-m", "zodbcache", "demo", "--quick", "--json", "demo.json")
    output, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    result = json.loads((demo.directory / "demo.json").read_text())
    phases = {phase["phase"]: phase for phase in result["phases"]}
    assert list(phases) == ["uncached", "empty", "warm", "restarted", "shared"]
    assert phases["uncached"]["hit_ratio"] == 0.0
    assert phases["empty"]["hit_ratio"] < 0.1
    for name in ("warm", "restarted", "shared"):
        assert phases[name]["hit_ratio"] >= 0.999, name
    assert phases["shared"]["processes"] == 4
    assert len({phase["checksum"] for phase in result["phases"]}) == 1
    assert {phase["objects"] for phase in result["phases"]} == {result["objects"]}
    assert result["changed"]["objects_changed"] == result["objects"] // 2
    assert result["changed"]["wrong"] == 0
    assert 0.4 < result["changed"]["hit_ratio"] < 0.6
    assert "4 processes at once" in output
    assert (demo.directory / "zodbcache-demo.png").stat().st_size > 0
    assert demo.processes() == []
    assert list(demo.temporary.iterdir()) == []


@needs_proc
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
@pytest.mark.parametrize("part", ["Parse", "Store", "Read: without", "Read: 4 processes"])
def test_an_interrupted_run_leaves_nothing(demo, part, number, status):
    process = demo.start_and_wait_for(part)
    if part != "Parse":  # its own processes may have yet to start, or be done
        assert len(demo.processes()) > 1
    process.send_signal(number)
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == status, errors
    assert errors.strip().count("\n") == 0
    assert demo.processes() == []
    assert list(demo.temporary.iterdir()) == []


@needs_proc
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for processes not its own")
def test_no_process_outlives_a_demo_that_is_killed(demo):
    process = demo.start_and_wait_for("Read: without")
    started = [pid for pid in demo.processes() if pid != process.pid]
    assert started
    watches = [os.pidfd_open(pid) for pid in started]
    process.kill()
    process.communicate(timeout=TIMEOUT_S)
    for watch in watches:
        ended, _, _ = select.select([watch], [], [], TIMEOUT_S)
        os.close(watch)
        assert ended


def test_a_directory_to_keep_is_left_with_the_database_and_the_file(demo):
    process = demo.start("-m", "zodbcache", "demo", "--quick", "--keep", "kept")
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    assert (demo.directory / "kept" / "Data.fs").stat().st_size > 0
    assert list((demo.directory / "kept" / "cache").iterdir())


def test_a_directory_in_use_is_refused(demo):
    process = demo.start("-m", "zodbcache", "demo", "--quick", "--keep", ".")
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert "is not empty" in errors
