"""Schedule 9 of the design: loads and polls around a commit, on each plain base.

A read is judged as ZODB makes it: a connection polls ``lastTransaction()``,
and asks for what is visible just after that tid.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from processes.children import Server
from ZEO.ClientStorage import ClientStorage
from ZODB.Connection import TransactionMetaData
from ZODB.DemoStorage import DemoStorage
from ZODB.FileStorage import FileStorage
from ZODB.MappingStorage import MappingStorage
from ZODB.utils import maxtid
from ZODB.utils import p64
from ZODB.utils import u64

import zodbcache

from .stepping import commit
from .stepping import no_step

X, Y = p64(1), p64(2)
WAIT_SECONDS = 20


@contextmanager
def zeo(directory: Path) -> Iterator[Any]:
    server = Server(directory / "Data.fs")
    try:
        yield ClientStorage(("127.0.0.1", server.port), wait_timeout=WAIT_SECONDS)
    finally:
        server.kill()


@contextmanager
def demo(directory: Path) -> Iterator[Any]:
    """The objects are in the base below, the changes above."""
    below = FileStorage(str(directory / "Data.fs"))
    commit(below, [1, 2], b"below")
    yield DemoStorage(base=below)


BASES: dict[str, Callable[[Path], Any]] = {
    "FileStorage": lambda directory: _plainly(FileStorage(str(directory / "Data.fs"))),
    "MappingStorage": lambda directory: _plainly(MappingStorage()),
    "DemoStorage": demo,
    "DemoStorage of nothing": lambda directory: _plainly(DemoStorage()),
    "ZEO": zeo,
}

LOCKS_OUT = {"FileStorage", "ZEO"}
"""Whose load would wait for the end of the callback, in which it is made."""


@contextmanager
def _plainly(base: Any) -> Iterator[Any]:
    yield base


class Steps:
    """A base storage whose calls the test steps between.

    *before_load*, *after_load*: around the base's loadBefore, in the thread
    that loads.  *finished*: in the committing thread, when the base is done
    and the wrapper is not.
    """

    def __init__(self, base: Any) -> None:
        self.before_load = self.after_load = self.finished = no_step
        self.load = load = base.loadBefore
        finish = base.tpc_finish

        def stepped_load(oid: bytes, tid: bytes) -> Any:
            self.before_load()
            answer = load(oid, tid)
            self.after_load()
            return answer

        def stepped_finish(*arguments: Any) -> Any:
            tid = finish(*arguments)
            self.finished()
            return tid

        base.loadBefore = stepped_load
        base.tpc_finish = stepped_finish


class Case:
    """A cached base with x and y, each changed a few times."""

    def __init__(self, base: Any, name: str) -> None:
        self.name = name
        self.steps = Steps(base)
        self.storage = zodbcache.wrap(base, cache_local_mb=1)
        self.tids = [commit(self.storage, [1, 2], b"%d" % number) for number in range(2)]
        self.read(X)

    def read(self, oid: bytes, at: int | None = None) -> Any:
        """As a connection that polls now, or has polled at *at*."""
        at = u64(self.storage.lastTransaction()) if at is None else at
        return self.storage.loadBefore(oid, p64(at + 1))

    def change(self, callback: Callable[[int], object] = lambda tid: None) -> int:
        """Commit x, calling back from inside tpc_finish; return the tid."""
        transaction = TransactionMetaData()
        self.storage.tpc_begin(transaction)
        serial = self.steps.load(X, maxtid)[1]
        self.storage.store(X, serial, b"%d" % len(self.tids), "", transaction)
        self.storage.tpc_vote(transaction)
        tid = u64(self.storage.tpc_finish(transaction, lambda tid: callback(u64(tid))))
        self.tids.append(tid)
        return tid

    def expected(self, at: int) -> bytes:
        """The state of x that is visible at *at*."""
        return b"%d" % max(number for number, tid in enumerate(self.tids) if tid <= at)

    def check(self) -> None:
        """Every read, missed and hit, is what the base says without a cache."""
        self.steps.before_load = self.steps.after_load = self.steps.finished = no_step
        for oid in (X, Y):
            for tid in self.tids:
                for before in (tid, tid + 1):
                    uncached = self.steps.load(oid, p64(before))
                    for _ in range(2):
                        assert self.storage.loadBefore(oid, p64(before)) == uncached
        for tid in self.tids:
            assert self.read(X, tid)[0] == self.expected(tid)
        self.storage._store.check()


@pytest.fixture(params=[True, False], ids=["own states kept", "own states not kept"])
def own_states(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process has written itself may be in memory, or not, as if it were evicted."""
    if not request.param:
        monkeypatch.setattr("zodbcache.storage.written.OWN_STATES_SHARE", 10**12)


@pytest.fixture(params=BASES)
def case(request: pytest.FixtureRequest, own_states: None, tmp_path: Path) -> Iterator[Case]:
    with BASES[request.param](tmp_path) as base:
        case = Case(base, request.param)
        yield case
        case.storage.close()


class Reader(threading.Thread):
    """Polls (or has polled at *at*) and reads x in a thread of its own."""

    def __init__(self, case: Case, at: int | None = None) -> None:
        super().__init__(daemon=True)
        self._case = case
        self.at = at

    def run(self) -> None:
        if self.at is None:
            self.at = u64(self._case.storage.lastTransaction())
        self.answer = self._case.read(X, self.at)

    def check(self) -> None:
        self.join(WAIT_SECONDS)
        assert not self.is_alive()
        assert self.at is not None
        assert self.answer[0] == self._case.expected(self.at)


def test_load_that_starts_inside_the_callback(case: Case) -> None:
    """Inside tpc_finish's callback a load reaches the base; it is answered there, or after."""
    readers: list[Reader] = []
    reached = threading.Event()
    case.steps.before_load = reached.set
    old = case.tids[-1]
    case.storage._store.forget(1)  # so that it must ask the base

    def callback(tid: int) -> None:
        for at in (old, tid):
            reached.clear()
            readers.append(Reader(case, at))
            readers[-1].start()
            assert reached.wait(WAIT_SECONDS)
        case.steps.before_load = no_step

    case.change(callback)
    readers[0].check()
    readers[1].join(WAIT_SECONDS)  # at a tid that no poll tells yet, so only its trace matters
    case.check()


def test_load_that_ends_inside_the_callback(case: Case) -> None:
    """In the callback's own thread a load is answered, and kept, before the commit is visible."""
    if case.name in LOCKS_OUT:
        pytest.skip("its load waits for the end of the callback")
    case.storage._store.forget(1)
    old = case.tids[-1]

    def callback(tid: int) -> None:
        for _ in range(2):
            assert case.read(X, old)[0] == b"1"

    case.change(callback)
    assert case.read(X)[0] == b"2"
    case.check()


def test_poll_inside_the_callback(case: Case) -> None:
    """A connection polls in the callback, and reads once it can where it then is."""
    polled: list[int] = []
    readers: list[Reader] = []

    def callback(tid: int) -> None:
        polled.append(u64(case.storage.lastTransaction()))
        readers.append(Reader(case, polled[0]))
        readers.append(Reader(case))
        for reader in readers:
            reader.start()

    tid = case.change(callback)
    assert polled[0] in (case.tids[-2], tid)
    for reader in readers:
        reader.check()
    case.check()


def test_load_just_after_the_callback(case: Case) -> None:
    """The base has finished, the wrapper has not: a connection polls and reads, twice."""
    seen = []

    def finished() -> None:
        for _ in range(2):
            seen.append((u64(case.storage.lastTransaction()), case.read(X)[0]))
            case.read(X, case.tids[-1])

    case.steps.finished = finished
    tid = case.change()
    assert seen == [(tid, b"2")] * 2
    case.check()


def test_later_commit_is_done_before_an_earlier_one(case: Case) -> None:
    """The base has finished with x, the wrapper has not; another commit, of y, is done first."""
    later: list[int] = []

    def finished() -> None:
        case.steps.finished = no_step
        later.append(commit(case.storage, [2], b"later"))
        assert case.read(X, later[0])[0] == b"2"

    case.steps.finished = finished
    tid = case.change()
    assert later[0] > tid
    assert case.read(X)[0] == b"2"
    assert case.read(Y)[0] == b"later"
    case.check()


@pytest.mark.usefixtures("own_states")
def test_push_of_a_later_commit_comes_before_the_end_of_an_earlier_one(tmp_path: Path) -> None:
    """ZEO has finished with x, the wrapper has not; another client's commit of y is pushed."""
    with zeo(tmp_path) as base:
        case = Case(base, "ZEO")
        other = ClientStorage(base._addr, wait_timeout=WAIT_SECONDS)
        pushed = threading.Event()
        later: list[int] = []
        advance = case.storage._log.advance

        def noticed_advance(tid: int) -> None:
            advance(tid)
            pushed.set()

        def finished() -> None:
            case.storage._log.advance = noticed_advance
            later.append(commit(other, [2], b"later"))
            assert pushed.wait(WAIT_SECONDS)
            assert case.read(X, later[0])[0] == b"2"

        case.steps.finished = finished
        assert later > [case.change()]
        assert case.read(X)[0] == b"2"
        case.check()
        other.close()
        case.storage.close()


def test_load_that_is_answered_before_and_kept_after(case: Case) -> None:
    """A load has the old x from the base; x changes, the commit ends; then it is kept."""
    case.storage._store.forget(1)
    answered, go_on = threading.Event(), threading.Event()

    def after_load() -> None:
        answered.set()
        assert go_on.wait(WAIT_SECONDS)

    case.steps.after_load = after_load
    reader = Reader(case)
    reader.start()
    assert answered.wait(WAIT_SECONDS)
    case.steps.after_load = no_step
    case.change()
    go_on.set()
    reader.check()
    case.check()


def test_load_that_is_answered_before_and_kept_inside_the_callback(case: Case) -> None:
    """As before, but it is kept between the callback's start and its end."""
    case.storage._store.forget(1)
    answered, go_on = threading.Event(), threading.Event()

    def after_load() -> None:
        answered.set()
        assert go_on.wait(WAIT_SECONDS)

    case.steps.after_load = after_load
    reader = Reader(case)
    reader.start()
    assert answered.wait(WAIT_SECONDS)
    case.steps.after_load = no_step

    def callback(tid: int) -> None:
        go_on.set()
        reader.join(WAIT_SECONDS)

    case.change(callback)
    reader.check()
    case.check()
