"""Counts input and output calls, and says which of them fail and how.

One injector serves all layers that can be made to fail: SQLite's VFS, the
system calls below it, and the calls of Python's ``os``.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field
from threading import Lock
from typing import NamedTuple


class Call(NamedTuple):
    """One call: what was asked of which file."""

    method: str
    name: str


def any_call(call: Call) -> bool:
    return True


def calls_of(*methods: str) -> Callable[[Call], bool]:
    return lambda call: call.method in methods


@dataclass(frozen=True)
class Way:
    """How a call fails.

    *applies*: the calls that can fail so.  *begins*: those of them that are
    worth being the first.  *lasting*: so do all such calls after it.
    *is_fatal*: so does closing.  *loses*: what was not synced is gone
    afterwards, all of it or some.  *damages*: what is wrong may get into the
    file unseen.  *seed*: varies what is chosen by chance.  *place*: what is
    chosen instead, of a page's structure.  *every*: of so many calls one is
    made to fail first, where another way shows much the same.
    """

    name: str
    applies: Callable[[Call], bool] = any_call
    begins: Callable[[Call], bool] = any_call
    lasting: bool = False
    is_fatal: bool = False
    loses: str = "nothing"
    damages: bool = False
    seed: int = 0
    place: int | None = None
    every: int = 1

    def __str__(self) -> str:
        return self.name

    def can_begin_at(self, call: Call) -> bool:
        return self.applies(call) and self.begins(call)


@dataclass
class Injector:
    """Where all calls pass.  Between ``count()`` or ``fail()`` and its end they are counted."""

    calls: list[Call] = field(default_factory=list)
    failed: list[Call] = field(default_factory=list)
    disk: Disk | None = None
    _way: Way | None = None
    _left: int = 0
    _is_counting: bool = False
    _lock: Lock = field(default_factory=Lock)

    @contextmanager
    def count(self) -> Iterator[list[Call]]:
        """Let all calls succeed; the list holds them at the end."""
        with self._counting():
            yield self.calls

    @contextmanager
    def fail(self, at: int, way: Way) -> Iterator[list[Call]]:
        """Let call number *at*, from 1, fail in this *way*; the list holds what failed.

        Counted are the calls that the way can begin at.
        """
        self._left, self._way = at, way
        try:
            with self._counting():
                yield self.failed
        finally:
            self._way = None

    @contextmanager
    def _counting(self) -> Iterator[None]:
        self.calls, self.failed = [], []
        self._is_counting = True
        try:
            yield
        finally:
            self._is_counting = False

    def pass_(self, method: str, name: str) -> Way | None:
        """Called for every call: how it is to fail, or None."""
        with self._lock:
            if not self._is_counting:
                return None
            call = Call(method, name)
            self.calls.append(call)
            way = self._way
            if way is None or not self._is_to_fail(way, call):
                return None
            self.failed.append(call)
            return way

    def _is_to_fail(self, way: Way, call: Call) -> bool:
        if self._left == 0:
            return way.lasting and way.applies(call)
        self._left -= way.can_begin_at(call)
        return self._left == 0


class Disk:
    """What the files would hold after the power has failed.

    Knows the contents of each file as last synced, and the changes since.
    """

    def __init__(self) -> None:
        self._synced: dict[str, bytes] = {}
        self._changes: dict[str, list[tuple[int, bytes | None]]] = {}
        self._deleted: set[str] = set()

    def knows(self, path: str) -> bool:
        return path in self._synced and path not in self._deleted

    def opened(self, path: str, content: bytes) -> None:
        self._synced[path] = content
        self._changes[path] = []
        self._deleted.discard(path)

    def deleted(self, path: str) -> None:
        self._deleted.add(path)

    def changed(self, path: str, offset: int, data: bytes | None) -> None:
        """*data* was written at *offset*; None: the file ends at *offset*."""
        self._changes[path].append((offset, data))

    def synced(self, path: str) -> None:
        self._synced[path] = self._replay(path, lambda position: True)
        self._changes[path] = []

    def lose(self, is_kept: Callable[[int], bool]) -> None:
        """Write each file as it was when last synced, and the changes since that are kept.

        A file that was deleted is there again.  No file may be open.
        """
        for path in self._synced:
            with open(path, "wb") as stream:
                stream.write(self._replay(path, is_kept))

    def _replay(self, path: str, is_kept: Callable[[int], bool]) -> bytes:
        content = bytearray(self._synced[path])
        for position, (offset, data) in enumerate(self._changes[path]):
            if not is_kept(position):
                continue
            if data is None:
                del content[offset:]
            else:
                content.extend(bytes(max(0, offset - len(content))))
                content[offset : offset + len(data)] = data
        return bytes(content)
