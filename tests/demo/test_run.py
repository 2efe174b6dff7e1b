"""The demo as a user runs it, on a small part of the library, to its end or to Ctrl-C."""

from __future__ import annotations

import contextlib
import itertools
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
from zodbcache.demo.bases import BASES

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

    def __init__(self, directory, temporary):
        self.directory = directory
        self.temporary = temporary
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

    def start_and_wait_for(self, part, base="zeo"):
        process = self.start("-c", ANNOUNCING, "demo", "--quick", "--base", base)
        for line in process.stdout:
            if line.startswith(part):
                return process
        raise AssertionError(process.communicate(timeout=TIMEOUT_S)[1])


@pytest.fixture
def demo(tmp_path, enterable_path):
    enterable_path.chmod(0o711)  # the demo makes its own directory in it
    return Demo(tmp_path, enterable_path)


def base_that_can_run(name):
    for module in BASES[name].modules:
        pytest.importorskip(module)
    return name


# Over RelStorage, what changed since the file was left is asked in the background: until the
# answer is there, reads are misses.  On a busy machine these are many of the few of a quick run.
RESTARTED_HIT_RATIOS = {"zeo": 0.999, "postgresql": 0.5, "relstorage-sqlite": 0.5}


@needs_proc
@pytest.mark.parametrize("base", BASES)
def test_a_quick_run(demo, base):
    base_that_can_run(base)
    command = ("-m", "zodbcache", "demo", "--quick", "--json", "demo.json", "--base", base)
    process = demo.start(*command)
    output, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    result = json.loads((demo.directory / "demo.json").read_text())
    phases = {phase["phase"]: phase for phase in result["phases"]}
    assert result["base"] == base
    assert result["own_cache_mb"] == BASES[base].own_cache_mb
    assert list(phases) == ["uncached", "empty", "warm", "restarted", "shared"]
    assert phases["uncached"]["hit_ratio"] == 0.0
    assert phases["empty"]["hit_ratio"] < 0.1
    assert phases["warm"]["hit_ratio"] >= 0.999
    for name in ("restarted", "shared"):
        assert phases[name]["hit_ratio"] >= RESTARTED_HIT_RATIOS[base], name
    assert phases["shared"]["processes"] == 4
    assert len({phase["checksum"] for phase in result["phases"]}) == 1
    assert {phase["objects"] for phase in result["phases"]} == {result["objects"]}
    assert result["changed"]["objects_changed"] == result["objects"] // 2
    assert result["changed"]["wrong"] == 0
    assert 0.4 * RESTARTED_HIT_RATIOS[base] < result["changed"]["hit_ratio"] < 0.6
    assert "4 processes at once" in output
    assert BASES[base].own_cache_remark in output
    assert (demo.directory / "zodbcache-demo.png").stat().st_size > 0
    assert demo.processes() == []
    assert list(demo.temporary.iterdir()) == []


INTERRUPTIONS = [
    *itertools.product(
        ["zeo"],
        ["Parse", "Store", "Read: without", "Read: 4 processes"],
        [signal.SIGINT, signal.SIGTERM],
    ),
    ("postgresql", "Store", signal.SIGTERM),
    ("postgresql", "Read: 4 processes", signal.SIGINT),
    ("relstorage-sqlite", "Store", signal.SIGINT),
]
STATUSES = {signal.SIGINT: 130, signal.SIGTERM: 128 + signal.SIGTERM}


@needs_proc
@pytest.mark.parametrize(("base", "part", "number"), INTERRUPTIONS)
def test_an_interrupted_run_leaves_nothing(demo, base, part, number):
    process = demo.start_and_wait_for(part, base_that_can_run(base))
    if part != "Parse":  # its own processes may have yet to start, or be done
        assert len(demo.processes()) > 1
    process.send_signal(number)
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == STATUSES[number], errors
    assert errors.strip().count("\n") == 0
    assert demo.processes() == []
    assert list(demo.temporary.iterdir()) == []


@needs_proc
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for processes not its own")
@pytest.mark.parametrize("base", ["zeo", "postgresql"])
def test_no_process_outlives_a_demo_that_is_killed(demo, base):
    process = demo.start_and_wait_for("Read: without", base_that_can_run(base))
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
    (demo.directory / "mine").touch()
    process = demo.start("-m", "zodbcache", "demo", "--quick", "--keep", ".")
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert "is not empty" in errors
