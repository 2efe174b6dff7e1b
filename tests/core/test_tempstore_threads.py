"""The temporary database's store between threads, collections of garbage, and processes."""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.system_calls import faulty_system_calls
from zodbcache._core._store import Batch
from zodbcache._core._store import Deltas
from zodbcache.ids import to_bytes
from zodbcache.ids import to_int
from zodbcache.tempstore import TempStore

MB = 1 << 20
TID = 0x03D0000000000000
OBJECTS = 8_000
GUARD_SECONDS = 120

THREADS = 8
STEPS = 250
SLOW_SECONDS = 0.0012
"""More than what the core takes for slow: the reads after it let others run."""


@pytest.fixture(autouse=True)
def guard() -> Iterator[None]:
    """Threads that wait for each other end the run, and say where."""
    faulthandler.dump_traceback_later(GUARD_SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


class SlowDisk:
    """Stands for an injector: reads are slow, or wait."""

    def __init__(self) -> None:
        self.is_slow = False
        self.reads = 0
        self.holds: threading.Thread | None = None
        self.is_held = threading.Event()
        self.goes_on = threading.Event()

    def pass_(self, name: str, path: str) -> None:
        if name != "pread64":
            return
        self.reads += 1
        if self.is_slow and self.reads % 8 == 0:
            time.sleep(SLOW_SECONDS)
        if self.holds is threading.current_thread():
            self.holds = None
            self.is_held.set()
            self.goes_on.wait(GUARD_SECONDS)


@pytest.fixture
def disk() -> Iterator[SlowDisk]:
    disk = SlowDisk()
    with faulty_system_calls(disk):  # type: ignore[arg-type]
        yield disk


def state_of(oid: int) -> bytes:
    return b"%d;" % oid * (1 + oid % 700)


def make(limit_bytes: int = 16 * MB) -> TempStore:
    store = TempStore(limit_bytes, MB)
    store.restart(TID)
    return store


def fill(store: TempStore) -> None:
    """With more than SQLite keeps in memory."""
    for oid in range(OBJECTS):
        store.insert(oid, TID, 0, state_of(oid))


def use(store: TempStore, chance: random.Random) -> None:
    """Anything, its answer checked."""
    oid = chance.randrange(OBJECTS)
    state = state_of(oid)
    what = chance.randrange(20)
    if what < 9:
        found = store.load_at(to_bytes(oid), TID)
        assert found is None or found == (state, to_bytes(TID))
    elif what < 12:
        store.insert(oid, TID, 0, state)
    elif what == 12:
        before = store.load_before(to_bytes(oid), to_bytes(TID + 1))
        assert before is None or before[:2] == (state, to_bytes(TID))
    elif what == 13:
        peeked = store.peek(oid)
        assert peeked is None or (peeked[0], peeked[2]) == (TID, state)
    elif what == 14:
        assert store.recall(to_bytes(oid), to_bytes(TID)) in (None, state)
    elif what == 15:
        taken = store.take_unsaved()
        for packed, tid, _, packed_state in store.pack(taken, 0, TID, 100_000)[0].rows():
            assert (tid, packed_state) == (TID, state_of(packed))
        store.return_unsaved(taken, 0)
    elif what == 16:
        store.forget(oid)
    elif what == 17:
        store.promote(oid, TID, state, 3)
        store.restore(oid, TID, state, 3)
    elif what == 18:
        store.heated(chance.randrange(10_000), 20, 0)
        store.reserve(chance.randrange(MB))
    else:
        stats = store.stats()
        assert stats["used_bytes"] <= stats["limit_bytes"]
        store.insert_own({to_bytes(oid): state}, TID)
        store.holds(to_bytes(oid), TID)


def test_threads_on_a_slow_disk(disk: SlowDisk) -> None:
    store = make()
    fill(store)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(STEPS):
                use(store, chance)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(THREADS)]
    disk.is_slow = True
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    disk.is_slow = False
    assert failures == []
    assert disk.reads > 1000
    assert store.faults == 0
    store.check()


def test_garbage_is_collected_while_every_method_runs() -> None:
    """And what is called then calls into the store again."""
    store = make(2 * MB)
    chance = random.Random(1)
    is_inside = False
    calls = 0
    failures: list[BaseException] = []

    def call(phase: str, info: object) -> None:
        nonlocal is_inside, calls
        if is_inside:
            return
        is_inside = True
        calls += 1
        try:
            use(store, chance)
        except BaseException as error:
            failures.append(error)
        finally:
            is_inside = False

    threshold = gc.get_threshold()
    gc.callbacks.append(call)
    gc.set_threshold(1, 1, 1)
    try:
        for number in range(1500):
            junk: list[Any] = [[], []]
            junk[0].append(junk)
            use(store, chance)
            oid = number % 300
            rows = [(other, TID, 1, state_of(other)) for other in range(oid, oid + 3)]
            store.restore_batch(Batch(rows), Deltas(), TID)
            store.follow([(oid, TID + 1)], TID)
            store.advance([([to_bytes(oid + 1)], TID + 1, bool(oid % 2))], TID)
            store.search_unsaved()
            if number % 300 == 0:
                store.mark_unsaved()
                store.clear()
                store.check()
    finally:
        gc.callbacks.remove(call)
        gc.set_threshold(*threshold)
    assert failures == []
    assert calls > 100
    store.check()


def in_child(work: Any) -> None:
    """Do *work* in a forked process; raises AssertionError if it failed there."""
    process = os.fork()
    if process == 0:
        failed = 1
        try:
            signal.alarm(GUARD_SECONDS)  # the guard is a thread of the parent's
            work()
            failed = 0
        finally:
            os._exit(failed)
    assert os.waitpid(process, 0)[1] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
class TestFork:
    @staticmethod
    def check_child(store: TempStore) -> None:
        assert store.stats()["entries"] == 0
        assert store.checkpoint == TID
        assert store.load_at(to_bytes(1), TID) is None
        store.check()
        fill(store)
        for seed in range(300):
            use(store, random.Random(seed))
        store.check()
        assert store.stats()["used_bytes"] > 10 * MB

    @staticmethod
    def held(store: TempStore) -> list[int]:
        return [oid for oid in range(OBJECTS) if store.holds(to_bytes(oid), TID)]

    def test_a_child_begins_empty(self) -> None:
        store = make()
        fill(store)
        held = self.held(store)
        in_child(lambda: self.check_child(store))
        store.check()
        assert self.held(store) == held
        for oid in held:
            assert store.load_at(to_bytes(oid), TID) == (state_of(oid), to_bytes(TID))

    def test_another_thread_is_waiting_for_the_disk(self, disk: SlowDisk) -> None:
        store = make()
        fill(store)
        held = self.held(store)
        disk.is_slow = True
        for oid in held[:400]:
            store.load_at(to_bytes(oid), TID)
        disk.is_slow = False
        wrong: list[int] = []

        def read() -> None:
            for oid in held[::7]:
                if store.load_at(to_bytes(oid), TID) != (state_of(oid), to_bytes(TID)):
                    wrong.append(oid)

        reader = threading.Thread(target=read)
        disk.holds = reader
        reader.start()
        assert disk.is_held.wait(GUARD_SECONDS / 2)
        in_child(lambda: self.check_child(store))
        disk.goes_on.set()
        reader.join()
        assert wrong == []
        store.check()
        assert to_int(store.load_at(to_bytes(held[0]), TID)[1]) == TID

    def test_a_child_of_a_child(self) -> None:
        store = make()
        fill(store)

        def grandchild() -> None:
            fill(store)
            in_child(lambda: self.check_child(store))
            store.check()

        in_child(grandchild)
        store.check()
