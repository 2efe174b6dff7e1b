"""What the schedules are made of: one database, several processes' caches, one step at a time.

``Database`` is the naive model: every revision, and what loadBefore must say.
``Worker`` is one process's log, memory and file over it; it hears of a commit
only when the test says so.  ``at_moment`` lets something happen in the middle
of its next save.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

from ZODB.Connection import TransactionMetaData
from ZODB.POSException import POSKeyError
from ZODB.utils import p64

from zodbcache.cache import ProcessCache
from zodbcache.cachefile import CacheFile
from zodbcache.cachefile import rows as bulk
from zodbcache.config import CacheOptions
from zodbcache.feeds import CatchUp
from zodbcache.feeds import Changes
from zodbcache.ids import to_bytes
from zodbcache.ids import to_int
from zodbcache.view import View

Revision = tuple[int, int | None]

NAME = "the database of the schedules"


def state_of(oid: int, tid: int) -> bytes:
    """A record that tells which revision it is."""
    return b"%d@%d" % (oid, tid)


def no_step() -> None:
    """Where a test lets nothing happen."""


class Database:
    """Every revision of a database; asked as a plain storage is asked.

    *on_load*: called with the oid once loadBefore knows its answer.
    *filler*: what every state ends with.  *loads*: how often it was asked.
    """

    def __init__(self, commits: dict[int, Iterable[int]], *, filler: bytes = b"") -> None:
        self.commits: dict[int, list[int]] = {}
        self.filler = filler
        self.loads = 0
        self.on_load: Callable[[int], object] = lambda oid: None
        for tid, oids in commits.items():
            self.commit(tid, oids)

    def commit(self, tid: int, oids: Iterable[int]) -> None:
        assert tid > self.last_tid
        self.commits[tid] = list(oids)

    @property
    def last_tid(self) -> int:
        return max(self.commits, default=0)

    def changes(self, since: int) -> list[int]:
        """The oids that changed after *since*."""
        return sorted({oid for tid, oids in self.commits.items() if tid > since for oid in oids})

    def revision(self, oid: int, before: int) -> Revision | None:
        """``(tid, end)`` of what is visible just before *before*."""
        tids = sorted(tid for tid, oids in self.commits.items() if oid in oids)
        if not tids:
            raise POSKeyError(to_bytes(oid))
        visible = [tid for tid in tids if tid < before]
        if not visible:
            return None
        later = tids[len(visible) :]
        return visible[-1], (later[0] if later else None)

    def loadBefore(self, oid: bytes, before: bytes) -> tuple[bytes, bytes, bytes | None] | None:
        """IStorage."""
        self.loads += 1
        number = to_int(oid)
        found = self.revision(number, to_int(before))
        self.on_load(number)
        if found is None:
            return None
        tid, end = found
        return self.state(number, tid), to_bytes(tid), None if end is None else to_bytes(end)

    def state(self, oid: int, tid: int) -> bytes:
        return state_of(oid, tid) + self.filler


class AskDatabase(CatchUp):
    """ICatchUp over a Database.

    *before_answer*: called when changes() has been asked, before it looks.
    *is_slow*: nothing can be told at once.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.database = database
        self.before_answer: Callable[[], object] = no_step
        self.is_slow = False

    def identity(self) -> str:
        return NAME

    def is_ready(self) -> bool:
        return True

    def last_tid(self) -> int:
        return self.database.last_tid

    def quick_changes(self, since: int) -> Changes | None:
        return None if self.is_slow else self.changes(since)

    def changes(self, since: int) -> Changes:
        self.before_answer()
        through = self.last_tid()
        oids = [to_bytes(oid) for oid in self.database.changes(since)]
        return Changes(through, [(oids, through)] if oids else [])

    def has_transaction(self, tid: int) -> bool:
        return tid in self.database.commits

    def current_tid(self, oid: int) -> int | None:
        try:
            found = self.database.revision(oid, self.database.last_tid + 1)
        except POSKeyError:
            return None
        return None if found is None else found[0]


class Worker:
    """One process: it has heard of everything up to where its log ends.

    It has no threads of its own, but for the writer where *write_seconds* is
    not 0.  *wakes*: how often the caretaker was woken.
    """

    def __init__(
        self, database: Database, directory: Path, *, starts_at: int, write_seconds: float = 0
    ) -> None:
        options = CacheOptions(
            cache_local_mb=1, cache_local_dir=str(directory), cache_write_seconds=write_seconds
        )
        self.database = database
        self.ask = AskDatabase(database)
        self.wakes = 0
        self.cache = cache = ProcessCache(database, options, catch_up=self.ask)
        cache.caretaker.wake = self._wake  # type: ignore[method-assign]
        self.store, self.log, self.persistence = cache.store, cache.log, cache.persistence
        self.view = View(database, cache)
        assert self.log.restart(self.log.breaks, starts_at)

    def _wake(self) -> None:
        """The steps of the caretaker are taken by the test."""
        self.wakes += 1

    @classmethod
    def opened(cls, database: Database, directory: Path, *, write_seconds: float = 0) -> Worker:
        """A process that starts now and has had its rows back."""
        worker = cls(database, directory, starts_at=database.last_tid, write_seconds=write_seconds)
        assert worker.persistence.restore(quickly=False)
        return worker

    @property
    def file(self) -> CacheFile:
        file = self.persistence._file
        assert file is not None, "went on without the file"
        return file

    def hear(self, tid: int) -> None:
        """The push of one commit arrives."""
        self.log.name(tid, [to_bytes(oid) for oid in self.database.commits[tid]])
        self.log.advance(tid)

    def finish(self, tid: int) -> None:
        """The commit was this process's own."""
        oids = self.database.commits[tid]
        self.log.name(tid, [to_bytes(oid) for oid in oids]).exact = True
        self.log.advance(tid)
        self.log.admit_own(tid, {to_bytes(oid): self.database.state(oid, tid) for oid in oids})

    def load(self, oid: int, before: int) -> Revision | None:
        """What a connection gets; its state must be that of its tid."""
        found = self.view.load_before(to_bytes(oid), to_bytes(before))
        if found is None:
            return None
        state, tid, end = found
        assert state == self.database.state(oid, to_int(tid))
        return to_int(tid), None if end is None else to_int(end)

    def is_held(self, oid: int, at: int) -> bool:
        """Whether memory alone answers a read at *at*."""
        return self.store.load_before(to_bytes(oid), to_bytes(at + 1)) is not None

    def read_all(self) -> None:
        """Every object, where the log ends, into memory."""
        for oid in self.database.changes(0):
            self.load(oid, self.log.end + 1)

    def close(self) -> None:
        """Give the file back; what should be in it has been saved before."""
        self.cache.writer.stop()
        self.persistence.close()


LOCKED = ("locked", "packing", "packed", "inserted")
"""The moments of a save's transaction in which nobody else can write the file."""

MOMENTS = ("begun", *LOCKED, "committed")
"""All of them, in their order."""


def at_moment(worker: Worker, moment: str, step: Callable[[], object]) -> None:
    """Let *step* happen once, at this moment of *worker*'s next transaction.

    - begun: it is known through what the rows are to be proven
    - locked: the file is locked, and its checkpoint known
    - packing: what changed is gone from the file
    - packed: the rows are chosen, and count as saved
    - inserted: they are in the file; its checkpoint is as it was
    - committed: done, but what became of it is not known to the worker
    """
    owner, name = {
        "begun": (worker.file, "advance"),
        "locked": (worker.log, "names_since"),
        "packing": (worker.store, "pack"),
        "packed": (worker.store, "pack"),
        "inserted": (bulk, "insert"),
        "committed": (worker.file, "advance"),
    }[moment]
    comes_first = moment in ("begun", "locked", "packing")
    act = getattr(owner, name)
    patch = mock.patch.object(owner, name)

    def stepped(*arguments: Any, **options: Any) -> Any:
        patch.stop()
        if comes_first:
            step()
            return act(*arguments, **options)
        found = act(*arguments, **options)
        step()
        return found

    patch.start().side_effect = stepped


def check_reads(worker: Worker) -> None:
    """I1: every read that a connection can make is what the database has.

    A connection may be at any tid; an open end may be told by one that is not
    past the log's end, for ZODB asks no later.
    """
    database = worker.database
    for oid in database.changes(0):
        for before in range(1, database.last_tid + 2):
            expected = database.revision(oid, before)
            for _ in range(2):  # the second read may be a hit
                found = worker.load(oid, before)
                assert (found and found[0]) == (expected and expected[0]), (oid, before)
                if expected is not None and found is not None and found[1] is not None:
                    assert found[1] == expected[1], (oid, before)
    worker.store.check()


def file_rows(file: CacheFile) -> tuple[int, dict[int, int]]:
    """The file's checkpoint and ``{oid: tid}``, of one snapshot."""
    with file.snapshot() as snapshot:
        rows = snapshot.rows(2**62, 2**40)
        return snapshot.checkpoint, {oid: tid for oid, tid, _, _ in rows}


def check_file(worker: Worker) -> tuple[int, dict[int, int]]:
    """I1, I6: every row is what the database has at the file's checkpoint."""
    checkpoint, rows = file_rows(worker.file)
    for oid, tid in rows.items():
        found = worker.database.revision(oid, checkpoint + 1)
        assert found is not None and found[0] == tid, (oid, checkpoint)
    return checkpoint, rows


def commit(storage: Any, oids: Iterable[int], word: bytes) -> int:
    """Store *word* in each; return the tid."""
    transaction = TransactionMetaData()
    storage.tpc_begin(transaction)
    for oid in oids:
        try:
            serial = storage.load(p64(oid), "")[1]
        except POSKeyError:
            serial = p64(0)
        storage.store(p64(oid), serial, word, "", transaction)
    storage.tpc_vote(transaction)
    return to_int(storage.tpc_finish(transaction))
