"""An SQLite VFS whose calls somebody can be stopped inside of."""

from __future__ import annotations

import threading
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from .forks import PATIENCE_SECONDS
from .forks import WAIT_SECONDS


class Halt:
    """One thread stops at its first call of *method*, until go_on().

    If the fork waits for it instead, it goes on after a while.
    """

    def __init__(self, method: str) -> None:
        self._method = method
        self._thread = 0
        self._inside = threading.Event()
        self._go = threading.Event()

    def run(self, task: Callable[[], object]) -> None:
        """Do *task* in this thread, which is the one to stop."""
        self._thread = threading.get_ident()
        task()

    def wait(self) -> None:
        """Until the thread is inside the call."""
        assert self._inside.wait(WAIT_SECONDS)

    def go_on(self) -> None:
        self._go.set()

    def at(self, method: str) -> None:
        if method == self._method and threading.get_ident() == self._thread:
            self._thread = 0
            self._inside.set()
            self._go.wait(PATIENCE_SECONDS)


class _File(apsw.VFSFile):
    def __init__(self, halt: Halt, name: Any, flags: list[int]) -> None:
        self._halt = halt
        super().__init__("unix", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:
        self._halt.at("xRead")
        return super().xRead(amount, offset)

    def xWrite(self, data: Any, offset: int) -> None:
        self._halt.at("xWrite")
        super().xWrite(data, offset)


class _VFS(apsw.VFS):
    def __init__(self, halt: Halt) -> None:
        self._halt = halt
        super().__init__("halting", "unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        return _File(self._halt, name, flags)


@contextmanager
def halting(method: str) -> Iterator[Halt]:
    """Every connection that APSW opens meanwhile goes through it."""
    halt = Halt(method)
    vfs = _VFS(halt)
    try:
        yield halt
    finally:
        apsw.set_default_vfs("unix")
        vfs.unregister()
