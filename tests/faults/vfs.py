"""An SQLite VFS over the usual one, whose calls fail as an injector says.

While ``faulty_vfs()`` lasts, every connection that APSW opens goes through it,
whatever code uses the connection.  Shared memory is not seen here: APSW passes
it on by itself (:mod:`.system_calls`).
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from zodbcache.cachefile.connection import PAGE_SIZE_BYTES as PAGE_BYTES

from .injector import Injector
from .injector import Way
from .injector import calls_of
from .pages import structure

#: What a crash before one of these leaves is another thing than what a crash after it does.
_changes = calls_of("xOpen", "xWrite", "xSync", "xTruncate", "xDelete", "os.open", "os.mkdir")

ERROR = Way("I/O error", every=2)
TORN = Way("torn write", calls_of("xWrite"), every=2)
FULL = Way("full disk", calls_of("xWrite", "size hint"), lasting=True, every=2)
BUSY = Way("locked", calls_of("xLock"))
SHORT = Way("short read", calls_of("xRead"), damages=True, every=2)
DEAD = Way("dead disk", lasting=True, is_fatal=True, every=5)
CRASH = Way("crash", begins=_changes, lasting=True, is_fatal=True, loses="all", every=2)
CRASH_TORN = Way("torn crash", begins=_changes, lasting=True, is_fatal=True, loses="some", every=3)
FLIPS = [
    Way(f"flipped bit, choice {seed}", calls_of("xRead"), damages=True, seed=seed, every=4)
    for seed in range(2)
]


def flip_of_place(place: int) -> Way:
    """The bits flip that are in one place of each page's structure."""
    name = f"flipped bit, place {place}"
    return Way(name, calls_of("xRead"), damages=True, seed=place, place=place)


_ERRORS = {
    "xOpen": apsw.SQLITE_CANTOPEN,
    "xAccess": apsw.SQLITE_IOERR_ACCESS,
    "xDelete": apsw.SQLITE_IOERR_DELETE,
    "xRead": apsw.SQLITE_IOERR_READ,
    "xWrite": apsw.SQLITE_IOERR_WRITE,
    "xSync": apsw.SQLITE_IOERR_FSYNC,
    "xTruncate": apsw.SQLITE_IOERR_TRUNCATE,
    "xFileSize": apsw.SQLITE_IOERR_FSTAT,
    "xLock": apsw.SQLITE_IOERR_LOCK,
    "xUnlock": apsw.SQLITE_IOERR_UNLOCK,
    "size hint": apsw.SQLITE_IOERR_WRITE,
}


def _error(method: str, way: Way) -> apsw.Error:
    if way is FULL:
        return apsw.exception_for(apsw.SQLITE_FULL)
    if way is BUSY:
        return apsw.exception_for(apsw.SQLITE_BUSY)
    return apsw.exception_for(_ERRORS[method])


class FaultyFile(apsw.VFSFile):
    """An open file: the database, its ``-wal`` or its ``-journal``."""

    def __init__(self, injector: Injector, base: str, name: Any, flags: list[int]) -> None:
        self._injector = injector
        self._path = str(name.filename() if isinstance(name, apsw.URIFilename) else name)
        super().__init__(base, name, flags)
        disk = injector.disk
        if disk is not None and not disk.knows(self._path):
            disk.opened(self._path, super().xRead(super().xFileSize(), 0))

    def _pass(self, method: str) -> Way | None:
        return self._injector.pass_(method, os.path.basename(self._path))

    def _pass_or_fail(self, method: str) -> None:
        way = self._pass(method)
        if way is not None:
            raise _error(method, way)

    def xRead(self, amount: int, offset: int) -> bytes:
        way = self._pass("xRead")
        if way is None:
            return super().xRead(amount, offset)
        if way is SHORT:
            return super().xRead(amount, offset)[: amount // 2]
        if way.name.startswith("flipped"):
            return flip(super().xRead(amount, offset), way)
        raise _error("xRead", way)

    def xWrite(self, data: Any, offset: int) -> None:
        way = self._pass("xWrite")
        if way is TORN or way is FULL:
            self._write(bytes(data)[: len(data) // 2], offset)
        if way is not None:
            raise _error("xWrite", way)
        self._write(bytes(data), offset)

    def _write(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        if self._injector.disk is not None:
            self._injector.disk.changed(self._path, offset, data)

    def xTruncate(self, newsize: int) -> None:
        self._pass_or_fail("xTruncate")
        super().xTruncate(newsize)
        if self._injector.disk is not None:
            self._injector.disk.changed(self._path, newsize, None)

    def xSync(self, flags: int) -> None:
        # The disk itself need not be troubled: nobody pulls its plug.
        self._pass_or_fail("xSync")
        if self._injector.disk is not None:
            self._injector.disk.synced(self._path)

    def xFileSize(self) -> int:
        self._pass_or_fail("xFileSize")
        return super().xFileSize()

    def xLock(self, level: int) -> None:
        self._pass_or_fail("xLock")
        super().xLock(level)

    def xUnlock(self, level: int) -> None:
        # What SQLite does not check, APSW reports: the lock is gone all the same.
        super().xUnlock(level)
        self._pass_or_fail("xUnlock")

    def xFileControl(self, op: int, ptr: int) -> bool:
        if op == apsw.SQLITE_FCNTL_SIZE_HINT:
            self._pass_or_fail("size hint")
        return super().xFileControl(op, ptr)


class FaultyVFS(apsw.VFS):
    """Opens and deletes files as the usual VFS does, or fails to."""

    name = "faulty"

    def __init__(self, injector: Injector) -> None:
        self._injector = injector
        self._base = apsw.vfs_names()[0]
        super().__init__(self.name, base=self._base, makedefault=True)

    def _pass_or_fail(self, method: str, path: Any) -> None:
        name = path.filename() if isinstance(path, apsw.URIFilename) else path
        way = self._injector.pass_(method, os.path.basename(str(name)))
        if way is not None:
            raise _error(method, way)

    def xOpen(self, name: Any, flags: list[int]) -> FaultyFile:
        self._pass_or_fail("xOpen", name)
        return FaultyFile(self._injector, self._base, name, flags)

    def xSleep(self, microseconds: int) -> int:
        """Whoever waits for a lock need not: nobody else is there."""
        return microseconds

    def xAccess(self, pathname: str, flags: int) -> bool:
        self._pass_or_fail("xAccess", pathname)
        return super().xAccess(pathname, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self._pass_or_fail("xDelete", filename)
        super().xDelete(filename, syncdir)
        if self._injector.disk is not None:
            self._injector.disk.deleted(filename)


#: A connection that a failing test left open calls its VFS whenever it is collected.
_registered: list[FaultyVFS] = []


@contextmanager
def faulty_vfs(injector: Injector) -> Iterator[None]:
    """All connections that APSW opens meanwhile go through *injector*."""
    vfs = FaultyVFS(injector)
    _registered.append(vfs)
    try:
        yield
    finally:
        vfs.unregister()


def flip(data: bytes, way: Way) -> bytes:
    """*data* with one bit flipped; of a page, for an odd seed, where it does most."""
    choice = random.Random(way.seed * 1_000_003 + len(data))
    if (way.seed % 2 or way.place is not None) and len(data) == PAGE_BYTES:
        positions = list(structure(data, is_first=data.startswith(b"SQLite format")))
    else:
        positions = [position for position, byte in enumerate(data) if byte]
    if not positions:
        return data
    place = choice.choice(positions) if way.place is None else positions[way.place % len(positions)]
    flipped = bytearray(data)
    flipped[place] ^= 1 << choice.randrange(8)
    return bytes(flipped)
