"""The temporary database where the disk fails: empty at worst, and never wrong."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EIO
from errno import EMFILE
from errno import ENOSPC

import pytest

from zodbcache.ids import to_bytes
from zodbcache.tempstore import TempStore

from . import system_calls
from .injector import Injector
from .injector import Way
from .system_calls import faulty_system_calls
from .vfs import SHORT
from .vfs import faulty_vfs

MB = 1 << 20
LIMIT_BYTES = 16 * MB
TID = 0x03D0000000000000
OBJECTS = 600

SQLITE_IOERR, SQLITE_CORRUPT, SQLITE_FULL, SQLITE_CANTOPEN = 10, 11, 13, 14

Fails = Callable[[str, int], bool]
"""Whether this call fails, by its name and how many there have been."""

EVERY = int(os.environ.get("TEMPSTORE_FAULTS_EVERY", "151"))
"""Of so many calls one is made to fail."""


def never(name: str, number: int) -> bool:
    return False


class Disk:
    """An injector: *fails* of each call, with this error."""

    def __init__(self) -> None:
        self.fails: Fails = never
        self.error = EIO
        self.calls = self.failed = 0

    def pass_(self, name: str, path: str) -> Way | None:
        self.calls += 1
        if not self.fails(name, self.calls):
            return None
        self.failed += 1
        return next(way for way, error in system_calls.WAYS.items() if error == self.error)

    @contextmanager
    def failing(self, fails: Fails, error: int = EIO) -> Iterator[None]:
        self.calls = self.failed = 0
        self.fails, self.error = fails, error
        try:
            yield
        finally:
            self.fails = never


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    with faulty_system_calls(disk):  # type: ignore[arg-type]
        yield disk


def state_of(oid: int, tid: int) -> bytes:
    """Of 1 to 60 KB, any part of it different from others."""
    return (b"%d,%d;" % (oid, tid)) * (70 + oid * 7 % 4000)


def work(store: TempStore, seed: int, steps: int = 500) -> int:
    """Use every method; whatever is returned must be right.  How many hits there were."""
    chance = random.Random(seed)
    hits = 0
    for _ in range(steps):
        oid = chance.randrange(OBJECTS)
        what = chance.randrange(20)
        state = state_of(oid, TID)
        if what < 8:
            store.insert(oid, TID, 0, state)
        elif what < 13:
            found = store.load_at(to_bytes(oid), TID)
            assert found is None or found == (state, to_bytes(TID))
            hits += found is not None
        elif what == 13:
            before = store.load_before(to_bytes(oid), to_bytes(TID + 1))
            assert before is None or before[:2] == (state, to_bytes(TID))
        elif what == 14:
            peeked = store.peek(oid)
            assert peeked is None or (peeked[0], peeked[2]) == (TID, state)
            assert store.recall(to_bytes(oid), to_bytes(TID)) in (None, state)
        elif what == 15:
            batch, _ = store.pack(store.take_unsaved(), 0, TID, 500_000)
            for row, tid, _, packed in batch.rows():
                assert (tid, packed) == (TID, state_of(row, TID))
        elif what == 16:
            store.promote(oid, TID, state, 5)
            store.restore(oid + OBJECTS, TID, state_of(oid + OBJECTS, TID), 5)
        elif what == 17:
            store.advance([([to_bytes(oid)], TID + 1, bool(oid % 2))], TID)
        elif what == 18:
            store.forget(oid)
            store.holds(to_bytes(oid), TID)
        else:
            store.heated(0, 20, 0)
            store.return_unsaved(oid.to_bytes(8, "little"), 0)
    return hits


def make() -> TempStore:
    store = TempStore(LIMIT_BYTES, MB)
    store.restart(TID)
    return store


def filled() -> TempStore:
    """More than SQLite keeps in memory."""
    store = make()
    work(store, 0, 1000)
    assert store.stats()["used_bytes"] > 0.9 * LIMIT_BYTES
    return store


def check_it_goes_on(store: TempStore, share: float) -> None:
    """And keeps so much of its limit, be it that some of the damage is found later."""
    for seed in range(10):
        work(store, 100 + seed, 700)
        if store.stats()["used_bytes"] > share * LIMIT_BYTES:
            break
    store.check()
    assert store.stats()["used_bytes"] > share * LIMIT_BYTES
    assert work(store, 200) > 0


def count_calls(disk: Disk, name: str) -> int:
    counted = 0

    def count(called: str, number: int) -> bool:
        nonlocal counted
        counted += called == name
        return False

    store = filled()
    with disk.failing(count):
        work(store, 1)
    assert store.faults == 0
    return counted


@pytest.mark.parametrize("name", ["pread64", "pwrite64"])
def test_one_call_fails(disk: Disk, name: str) -> None:
    """Whichever it is, only what was kept is lost."""
    calls = count_calls(disk, name)
    assert calls > 500
    for at in range(1, calls, EVERY):
        seen = 0

        def fails(called: str, number: int, at: int = at) -> bool:
            nonlocal seen
            seen += called == name
            return called == name and seen == at

        store = filled()
        with disk.failing(fails):
            work(store, 1)
        assert disk.failed == 1
        assert store.faults == 1
        assert store.last_fault & 0xFF in (SQLITE_IOERR, SQLITE_CORRUPT)
        check_it_goes_on(store, 0.6)


def test_an_error_where_an_object_changes_does_not_stop_it_for_good(disk: Disk) -> None:
    for seed in range(150):
        store = filled()
        chance = random.Random(seed)
        left = chance.randrange(1, 30)

        def fails(called: str, number: int) -> bool:
            nonlocal left
            left -= called == "pwrite64"
            return left == 0

        with disk.failing(fails):
            while not store.faults:
                oid = chance.randrange(OBJECTS)
                store.insert(oid, TID, 0, state_of(oid, TID))
                for _ in range(5):
                    store.advance([([to_bytes(chance.randrange(OBJECTS))], TID + 1, True)], TID)
        assert store.insert(1, TID, 0, b"state")


def test_a_full_disk(disk: Disk) -> None:
    """From then on there is less than there was room for."""
    for pages in range(100, 1200, 10 * EVERY):

        def fails(called: str, number: int, pages: int = pages) -> bool:
            return called == "pwrite64" and number > pages

        store = make()
        with disk.failing(fails, ENOSPC):
            work(store, 1, 1500)
        assert disk.failed
        assert store.faults
        store.check()
        faults = store.faults
        work(store, 2)
        assert store.faults == faults


def test_a_disk_that_stays_full(disk: Disk) -> None:
    """It settles below what there is room for, and does not fail again and again."""
    store = make()
    with disk.failing(lambda called, number: called == "pwrite64", ENOSPC):
        for seed in range(6):
            work(store, seed, 700)
        faults = store.faults
        assert 0 < faults < 10
        assert store.last_fault & 0xFF == SQLITE_FULL
        work(store, 10, 2000)
        assert store.faults == faults
        store.check()
        assert work(store, 11) > 0
        assert store.stats()["used_bytes"] < 8 * MB, "SQLite's page cache, and no file"


def test_a_file_that_cannot_be_opened(disk: Disk) -> None:
    """What SQLite keeps in memory is all there is; it is not lost again and again."""
    store = make()
    with disk.failing(lambda called, number: called == "open", EMFILE):
        for seed in range(6):
            work(store, seed, 700)
        faults = store.faults
        assert 0 < faults < 10
        assert store.last_fault & 0xFF == SQLITE_CANTOPEN
        work(store, 10, 2000)
        assert store.faults == faults
        store.check()


@pytest.mark.parametrize("name", ["pread64", "pwrite64", "fstat", "ftruncate"])
def test_a_dead_disk(disk: Disk, name: str) -> None:
    store = filled()
    with disk.failing(lambda called, number: called == name):
        for seed in range(4):
            work(store, seed, 700)
        store.check()
    check_it_goes_on(store, 0.2)


def test_a_short_read() -> None:
    """SQLite goes on with zeros: what they are part of is found when it is used."""
    injector = Injector()
    with faulty_vfs(injector):
        store = filled()
        with injector.count() as calls:
            work(store, 1)
        reads = sum(call.method == "xRead" for call in calls)
        assert reads > 500
        del store
        for at in range(1, reads, EVERY):
            store = filled()
            with injector.fail(at, SHORT) as failed:
                work(store, 1)
            assert len(failed) == 1
            for seed in range(3):
                work(store, 100 + seed, 700)
            del store
