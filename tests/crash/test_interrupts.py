"""Ctrl-C in the middle of opening, saving and closing, wherever it may strike.

What was written is whole, no lock stays behind, and the next attempt does what
the interrupted one did not.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import apsw
import pytest
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

import zodbcache

from .interrupts import Place
from .interrupts import interrupt
from .interrupts import places

OIDS = range(1, 31)
SAVED = OIDS[:20]
CHANGED = OIDS[::3]


class Application:
    """A database, and a cache file that has some of it and some of what it was before."""

    def __init__(self, directory: Path) -> None:
        self._data = str(directory / "Data.fs")
        self._cache = directory / "cache"
        self._before = directory / "cache-before"
        self._bases: list[FileStorage] = []
        base = FileStorage(self._data)
        _commit(base, dict.fromkeys(OIDS, b"first"))
        self._tid = _commit(base, dict.fromkeys(CHANGED, b"second"))
        base.close()
        storage = self.open(stop=self._tid)
        for oid in SAVED:
            storage.loadBefore(p64(oid), self._tid)
        storage.close()
        self._cache.rename(self._before)

    def begin(self) -> None:
        """The cache file is as it was, and nobody uses it."""
        while self._bases:
            self._bases.pop().close()
        shutil.rmtree(self._cache, ignore_errors=True)
        shutil.copytree(self._before, self._cache)

    def open(self, **options: Any) -> Any:
        self._bases.append(FileStorage(self._data, read_only=True, **options))
        return zodbcache.wrap(
            self._bases[-1],
            cache_local_dir=self._cache,
            cache_local_mb=1,
            cache_write_seconds=0,
        )

    def read(self, storage: Any) -> None:
        """All of it, by which it comes into memory."""
        for oid in OIDS:
            found = storage.loadBefore(p64(oid), p64(u64(self._tid) + 1))
            assert found[0] == (b"second" if oid in CHANGED else b"first")

    def filled(self) -> Any:
        """A storage that has more than the file."""
        storage = self.open()
        self.read(storage)
        return storage

    def file_is_free(self) -> bool:
        """Nobody holds its lock."""
        connection = self._connect()
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return False
        finally:
            connection.close()
        return True

    def file_rows(self) -> int:
        """How many rows the file has; all of them are right."""
        connection = self._connect()
        rows = connection.execute("SELECT oid, state FROM record").fetchall()
        ((checkpoint,),) = connection.execute("SELECT checkpoint FROM tier").fetchall()
        connection.close()
        changed = CHANGED if checkpoint == u64(self._tid) else ()
        for oid, state in rows:
            assert state == (b"second" if oid in changed else b"first")
        return len(rows)

    def _connect(self) -> apsw.Connection:
        (path,) = self._cache.glob("*.sqlite3")
        return apsw.Connection(str(path))


def _commit(storage: Any, states: dict[int, bytes]) -> bytes:
    transaction = TransactionMetaData()
    storage.tpc_begin(transaction)
    for oid, state in states.items():
        serial = storage.load(p64(oid))[1] if state == b"second" else z64
        storage.store(p64(oid), serial, state, "", transaction)
    storage.tpc_vote(transaction)
    tid: bytes = storage.tpc_finish(transaction)
    return tid


class Opening:
    """wrap(), and once more."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._storage: Any = None

    def once(self) -> None:
        self._storage = self._application.open()

    def again(self) -> None:
        self.once()
        self._application.read(self._storage)
        self._storage.close()


class Saving:
    """save(), and once more."""

    def __init__(self, application: Application) -> None:
        self._storage = application.filled()

    def once(self) -> None:
        self._storage._cache.persistence.save()

    def again(self) -> None:
        self.once()
        self._storage.close()


class Closing:
    """close(), and once more."""

    def __init__(self, application: Application) -> None:
        self._storage = application.filled()

    def once(self) -> None:
        self._storage.close()

    def again(self) -> None:
        self.once()


@pytest.mark.parametrize("kind", [Opening, Saving, Closing])
def test_interrupted(tmp_path: Path, kind: Callable[[Application], Any]) -> None:
    """In a process of its own: what was interrupted while being made is left lying about."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        count, wrong = pool.submit(_interrupt_everywhere, tmp_path, kind).result()
    assert count > 50
    assert wrong == []


def _interrupt_everywhere(
    directory: Path, kind: Callable[[Application], Any]
) -> tuple[int, list[str]]:
    """At how many places, and what was wrong then."""
    application = Application(directory)
    application.begin()
    attempt = kind(application)
    passed = places(attempt.once)
    attempt.again()
    return len(passed), [
        f"{what} after {place}" for place in passed for what in _wrong(application, kind, place)
    ]


def _wrong(
    application: Application, kind: Callable[[Application], Any], place: Place
) -> Iterator[str]:
    """What is not as it should be after an interrupt at *place*."""
    application.begin()
    attempt = kind(application)
    interrupt(attempt.once, place)
    if not application.file_is_free():
        yield "the lock was kept"
    application.file_rows()
    try:
        attempt.again()
    except Exception as error:
        yield f"the next attempt fails: {error!r}"
    if application.file_rows() != len(OIDS):
        yield f"it has {application.file_rows()} of {len(OIDS)} rows in the end"
