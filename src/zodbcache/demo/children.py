"""Processes of the demo's own: started, listened to, and stopped without fail.

A child is stopped by closing its input; one that does not react is killed,
with what it has started itself.
Each has a session of its own, so that Ctrl-C reaches the demo alone, which
then stops its children in order.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from typing import TypeVar

from zodbcache.demo.errors import DemoError

_STOP_TIMEOUT_S = 10.0
_Message = TypeVar("_Message")


class Child:
    """One process running the ``main()`` of a module of this package."""

    def __init__(self, module: str, job: object, log_path: Path) -> None:
        self.module = module
        self._log_path = log_path
        with open(log_path, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self.send(job)

    def send(self, message: object) -> None:
        """Send *message*; a child that has died is noticed when it is listened to."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()

    def listen(self) -> Iterator[Any]:
        """Yield its messages until it ends.  Blocks."""
        assert self._process.stdout is not None
        with contextlib.suppress(EOFError, pickle.UnpicklingError):
            while True:
                yield pickle.load(self._process.stdout)

    def check(self) -> None:
        """Wait for a child whose messages have ended; raise DemoError if it failed."""
        if self._process.wait(_STOP_TIMEOUT_S):
            lines = self._log_path.read_text(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else f"exit status {self._process.returncode}"
            raise DemoError(f"A process of the demo ({self.module}) failed: {reason}")

    def request_stop(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def stop(self) -> None:
        """Return when the process has ended, by its own doing or ours."""
        self.request_stop()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._kill_with_its_children()

    def _kill_with_its_children(self) -> None:
        """Its session has one process group, and we have not yet heard that it ended."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Group:
    """Children that are listened to together."""

    def __init__(self, children: Sequence[Child]) -> None:
        self._children = children
        self._running = len(children)
        self._received: dict[type, list[Any]] = defaultdict(list)
        self._inbox: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        for number, child in enumerate(children):
            threading.Thread(target=self._collect, args=(number, child), daemon=True).start()

    def send(self, message: object) -> None:
        for child in self._children:
            child.send(message)

    def messages(self) -> Iterator[Any]:
        """Yield their messages, mixed as they come, until all have ended well.

        Raises DemoError when one has not.
        """
        while self._running:
            number, message = self._inbox.get()
            if message is None:
                self._children[number].check()
                self._running -= 1
            else:
                yield message

    def wait_for(
        self,
        kind: type[_Message],
        count: int = 1,
        on_other: Callable[[object], object] = lambda message: None,
    ) -> list[_Message]:
        """Return all messages of *kind* so far, once there are *count*.

        Those of other kinds go to *on_other* and are kept for when they are
        waited for.
        """
        found: list[_Message] = self._received[kind]
        for message in self.messages() if len(found) < count else ():
            self._received[type(message)].append(message)
            if len(found) == count:
                return found
            on_other(message)
        if len(found) < count:
            raise DemoError(f"A process of the demo ended without sending {kind.__name__}")
        return found

    def wait(self) -> None:
        """Return when all have ended well."""
        for _ in self.messages():
            pass

    def _collect(self, number: int, child: Child) -> None:
        for message in child.listen():
            self._inbox.put((number, message))
        self._inbox.put((number, None))


class Children:
    """All processes the demo has started; leaving the ``with`` block stops them.

    *log_directory*: gets one file for each, with what it printed.
    """

    def __init__(self, log_directory: Path) -> None:
        self._log_directory = log_directory
        self._children: list[Child] = []

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *exc_info: object) -> None:
        # All at once first, then one by one: the server is stopped last, as it came first.
        for child in self._children:
            child.request_stop()
        for child in reversed(self._children):
            child.stop()

    def start(self, module: str, jobs: Sequence[object]) -> Group:
        """One process of *module* for each of *jobs*."""
        started = []
        for job in jobs:
            log_path = self._log_directory / f"{module}-{len(self._children)}.log"
            child = Child(module, job, log_path)
            self._children.append(child)
            started.append(child)
        return Group(started)
