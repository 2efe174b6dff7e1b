"""Children of this process, and what they and everybody do with one cache file."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from contextlib import suppress
from pathlib import Path
from typing import Any

WAIT_SECONDS = 30
LOCKS = Path("/proc/locks")
"""The system's account of who has locked what."""

PATIENCE_SECONDS = 0.5
"""How long who is in the middle of something stays there, if the fork waits for the end of it."""


class Pipe:
    """Lines of JSON in one direction."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()

    def say(self, message: object) -> None:
        os.write(self._writing, json.dumps(message).encode() + b"\n")

    def hear(self) -> Any:
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._reading], [], [], WAIT_SECONDS)
            assert ready, "no answer in time"
            read = os.read(self._reading, 1)
            assert read, "ended without an answer"
            line += read
        return json.loads(line)

    def only_read(self) -> None:
        os.close(self._writing)
        self._writing = -1

    def close(self) -> None:
        if self._writing >= 0:
            os.close(self._writing)
        os.close(self._reading)


class Child:
    """A fork that does *task*, a function of the child as it sees itself, and answers with it.

    It ends by ``os._exit``.
    """

    def __init__(self, task: Callable[[Child], Any]) -> None:
        self._up, self._down = Pipe(), Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                self.pid = os.getpid()
                self._up.say({"answer": task(self)})
                status = 0
            except BaseException as error:
                self._up.say({"error": repr(error)})
            finally:
                os._exit(status)
        self._up.only_read()

    # In the child

    def show(self, message: object) -> None:
        """Tell the parent how far it is, and wait until that says go_on()."""
        self._up.say({"answer": message})
        self._down.hear()

    # In the parent

    def hear(self) -> Any:
        """What it shows, or answers at last."""
        said = self._up.hear()
        assert "error" not in said, said["error"]
        return said["answer"]

    def go_on(self) -> Any:
        """What it shows or answers next."""
        self._down.say(None)
        return self.hear()

    def end(self) -> None:
        """Collect it, by force if need be."""
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0
        self._up.close()
        self._down.close()


@contextmanager
def child(task: Callable[[Child], Any]) -> Iterator[Child]:
    forked = Child(task)
    try:
        yield forked
    finally:
        forked.end()


def answer(task: Callable[[], Any]) -> Any:
    """What *task* returns in a child."""
    with child(lambda _: task()) as forked:
        return forked.hear()


@contextmanager
def thread(run: Callable[[], object]) -> Iterator[threading.Thread]:
    """Another thread does *run*, and has ended when this does."""
    running = threading.Thread(target=run, daemon=True)
    running.start()
    yield running
    running.join(WAIT_SECONDS)
    assert not running.is_alive()


def wait_until(is_true: Callable[[], bool]) -> None:
    """For what another process's background thread does at its own time."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_true():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)


# The file


def cache_file(directory: Path) -> Path:
    (path,) = directory.glob("*.sqlite3")
    return path


_LIST = """
import json, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=30)
(found,), = connection.execute("PRAGMA integrity_check")
assert found == "ok", found
rows = [(oid, state.decode()) for oid, state in connection.execute("SELECT oid, state FROM record")]
connection.close()
print(json.dumps(rows))
"""


def saved(directory: Path) -> dict[int, str]:
    """The rows; the file is sound.

    Another process looks: closing the file in this one would take all locks away that
    this one has on it.
    """
    command = [sys.executable, "-I", "-c", _LIST, str(cache_file(directory))]
    return dict(json.loads(subprocess.check_output(command)))


def lock_holders(path: Path) -> set[int]:
    """The processes that hold POSIX locks on the file, by the system's own account."""
    inode = str(path.stat().st_ino)
    with LOCKS.open() as locks:
        fields = [line.split() for line in locks]
    return {
        int(field[4])
        for field in fields
        if "->" not in field and field[1] == "POSIX" and field[5].rpartition(":")[2] == inode
    }


def handles(directory: Path) -> int:
    """How many files in *directory* this process has open."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found += os.readlink(link).startswith(str(directory))
    return found
