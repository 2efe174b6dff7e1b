"""Start, ask and end the processes of these tests."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from signal import SIGKILL
from typing import Any

ROOT = Path(__file__).parents[2]
"""Of the source tree: the processes are started here."""

WAIT_SECONDS = 30


class Child:
    """A process that answers line by line."""

    def __init__(self, module: str, *arguments: str, pass_fds: Sequence[int] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"tests.processes.{module}", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=pass_fds,
            bufsize=0,
        )

    def hear(self) -> Any:
        """Its next answer."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], WAIT_SECONDS)
        assert ready, "no answer in time"
        line = self._process.stdout.readline()
        assert line, f"ended with status {self._process.wait(WAIT_SECONDS)}"
        return json.loads(line)

    def say(self, message: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    def kill(self) -> None:
        """kill -9, unless it has ended."""
        self.signal(SIGKILL)
        self.end()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """Close its input; its exit status."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        return self._process.wait(WAIT_SECONDS)


class Server:
    """A ZEO server of one FileStorage, on one port however often it is started."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.port = 0
        self.start()

    def start(self) -> None:
        self._child = Child("serve", str(self.path), str(self.port))
        self.port = self._child.hear()

    def kill(self) -> None:
        """At once; what was committed is on the disk."""
        self._child.kill()


class Application:
    """One database, its server if it has one, a cache directory, and the processes using them."""

    def __init__(self, directory: Path, *, is_zeo: bool) -> None:
        self.path = directory / "Data.fs"
        self.cache = directory / "cache"
        self.server = Server(self.path) if is_zeo else None
        self._children: list[Child] = []

    def start(
        self, *, is_cached: bool = True, pass_fds: Sequence[int] = (), **options: Any
    ) -> Child:
        """A process; it may not be open yet.  *options*: of the cache."""
        job: dict[str, Any] = {
            "cache": str(self.cache) if is_cached else None,
            "options": options,
        }
        if self.server is not None:
            job["zeo"] = self.server.port
        else:
            job["file"] = str(self.path)
        child = Child("worker", json.dumps(job), pass_fds=pass_fds)
        self._children.append(child)
        return child

    def open(self, **options: Any) -> Child:
        """A process that is ready."""
        child = self.start(**options)
        assert child.hear() == "open"
        return child

    def commit(self, words: dict[int, str]) -> None:
        """By a process without a cache, which is gone then."""
        child = self.open(is_cached=False)
        ask(child, "commit", words)
        close(child)

    @property
    def cache_file(self) -> Path:
        (path,) = self.cache.glob("*.sqlite3")
        return path

    def stop(self) -> None:
        for child in self._children:
            child.kill()
        if self.server is not None:
            self.server.kill()


def ask(child: Child, command: str, argument: object = None) -> Any:
    child.say([command, argument])
    return child.hear()


def close(child: Child) -> None:
    """Close the storage, and see the process end well."""
    ask(child, "close")
    assert child.end() == 0


def gate() -> tuple[int, int]:
    """A pipe: who reads from the first waits until the second is closed everywhere."""
    reader, writer = os.pipe()
    os.set_inheritable(writer, False)
    return reader, writer
