"""Schedules of the background writer: what may happen in the middle of what it does.

The writer's own thread runs here, in rounds that a test asks for: it is held
at some moment of a round while the test's thread goes on as requests would.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from threading import Thread
from typing import Any

import apsw
import pytest

from zodbcache.cachefile import Outcome
from zodbcache.errors import CacheFileError
from zodbcache.ids import to_bytes
from zodbcache.persistence import Persistence

from .stepping import LOCKED
from .stepping import MOMENTS
from .stepping import Database
from .stepping import Worker
from .stepping import at_moment
from .stepping import check_file
from .stepping import check_reads
from .stepping import file_rows

X, Y, Z = 1, 2, 3
WAIT_SECONDS = 20
ALL = {X: 5, Y: 8, Z: 3}

BETWEEN = "between"
"""A moment between the first and the second transaction of a save."""


class Turns(Event):
    """What wakes the writer; *ended*: it has done its work and waits again."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = Event()
        self._is_at_work = False

    def wait(self, timeout: float | None = None) -> bool:
        if self._is_at_work:
            self._is_at_work = False
            self.ended.set()
        return super().wait()

    def clear(self) -> None:
        self._is_at_work = True
        super().clear()


class Writer(Worker):
    """A process with the thread, which does nothing by itself."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "write_seconds": 3600})
        writer = self.cache.writer
        writer._threshold = 2**40  # until a test says so
        self.turns = writer._woken = Turns()
        run = writer._run

        def run_and_tell() -> None:
            run()
            self.turns.ended.set()

        writer._run = run_and_tell  # type: ignore[method-assign]

    def begin_round(self) -> None:
        self.turns.ended.clear()
        self.cache.writer.heed()
        if self.cache.writer._thread is None:  # there was never anything to write
            self.turns.ended.set()
        self.turns.set()

    def end_round(self) -> None:
        assert self.turns.ended.wait(WAIT_SECONDS)

    def write(self) -> None:
        """One round, with nothing in between."""
        self.begin_round()
        self.end_round()

    @contextmanager
    def writing(self, moment: str) -> Iterator[None]:
        """One round, held at this moment."""
        reached, left = Event(), Event()

        def hold() -> None:
            reached.set()
            left.wait(WAIT_SECONDS)

        if moment == BETWEEN:
            self._hold_between(hold)
        else:
            at_moment(self, moment, hold)
        self.begin_round()
        assert reached.wait(WAIT_SECONDS)
        try:
            yield
        finally:
            left.set()
            self.end_round()

    def _hold_between(self, hold: Callable[[], None]) -> None:
        """Once, after a transaction."""
        save = self.persistence.save

        def held_save(pause: Callable[[], bool]) -> int:
            self.persistence.save = save  # type: ignore[method-assign]
            holds = iter([hold])

            def held_pause() -> bool:
                next(holds, lambda: None)()
                return pause()

            return save(held_pause)

        self.persistence.save = held_save  # type: ignore[method-assign]


Open = Callable[..., Any]


@pytest.fixture
def database() -> Database:
    return Database({3: [Z], 5: [X], 8: [Y]})


@pytest.fixture
def opened(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """``opened(Writer)``: a process of its own over the file; readers see at once what is new."""
    monkeypatch.setattr("zodbcache.cachefile.reader.RENEW_SECONDS", 0.0)
    workers: list[Worker] = []

    def open_one(kind: type[Worker] = Worker) -> Worker:
        workers.append(kind(database, tmp_path, starts_at=database.last_tid))
        assert workers[-1].persistence.restore(quickly=False)
        return workers[-1]

    yield open_one
    for worker in workers:
        worker.close()


@pytest.fixture
def a(opened: Open) -> Writer:
    """Has everything in memory, and nothing in the file."""
    worker: Writer = opened(Writer)
    worker.read_all()
    assert worker.cache.writer._thread is not None, "started by the first miss"
    return worker


def write_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row has a transaction of its own."""
    assert Persistence.save.__kwdefaults__ is not None
    monkeypatch.setitem(Persistence.save.__kwdefaults__, "bytes_at_once", 1)


one_by_one = pytest.fixture(write_one_by_one)


def unsaved(worker: Worker) -> int:
    return worker.store.unsaved_bytes


def loads(worker: Worker, oids: dict[int, int], before: int) -> int:
    """Read these; how often the database was asked."""
    asked = worker.database.loads
    for oid, tid in oids.items():
        found = worker.load(oid, before)
        assert found is not None and found[0] == tid
    return worker.database.loads - asked


# A change


def hear(worker: Worker) -> None:
    """Somebody else changes two of three objects."""
    worker.database.commit(9, [X, Y])
    worker.hear(9)


def commit(worker: Worker) -> None:
    """The process does."""
    worker.database.commit(9, [X, Y])
    worker.finish(9)


@pytest.mark.parametrize("change", [hear, commit])
@pytest.mark.parametrize("moment", MOMENTS)
def test_change(a: Writer, opened: Open, moment: str, change: Callable[[Worker], None]) -> None:
    """The batch is what was current when the writer began; the rest waits for the next round."""
    b = opened()
    with a.writing(moment):
        change(a)
        check_reads(a)
        b.hear(9)
        check_reads(b)
    packed = {} if moment in ("begun", "locked", "packing") else {X: 5, Y: 8}
    assert check_file(a) == (8, {**packed, Z: 3})
    check_reads(a)
    check_reads(b)
    assert unsaved(a) > 0
    a.write()
    assert check_file(a) == (9, {X: 9, Y: 9, Z: 3})
    assert unsaved(a) == 0
    assert loads(opened(), {X: 9, Y: 9, Z: 3}, 10) == 0


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("change", [hear, commit])
def test_change_between_two_transactions(
    a: Writer, opened: Open, change: Callable[[Worker], None]
) -> None:
    """What the first one wrote is deleted by the second, before its own rows come."""
    with a.writing(BETWEEN):
        (first,) = check_file(a)[1]
        assert check_file(a)[0] == 8
        change(a)
        if change is hear:
            a.load(Y, 10)
    now = {X: 9, Y: 9, Z: 3} if change is commit else {Y: 9, Z: 3}
    checkpoint, rows = check_file(a)
    assert checkpoint == 9
    assert first in rows or first not in now or now[first] == 9
    assert rows[Z] == 3, "did not change, whichever was first"
    a.write()
    assert check_file(a) == (9, now)
    assert unsaved(a) == 0
    check_reads(a)
    assert loads(opened(), now, 10) == 0


@pytest.mark.usefixtures("one_by_one")
def test_object_that_changed_twice_between_two_transactions(a: Writer) -> None:
    """A later save has the newest only."""
    with a.writing(BETWEEN):
        for tid in (9, 11):
            a.database.commit(tid, [X, Y])
            a.finish(tid)
    a.write()
    assert check_file(a) == (11, {X: 11, Y: 11, Z: 3})
    check_reads(a)


# Another process writes


def test_file_goes_ahead(a: Writer, opened: Open) -> None:
    """The batch is refused, stays unsaved, and is written once its process has caught up."""
    c = opened()
    c.read_all()
    outcomes: list[Outcome] = []
    advance = a.file.advance

    def noted(*arguments: Any) -> Any:
        result = advance(*arguments)
        outcomes.append(result.outcome)
        return result

    a.file.advance = noted  # type: ignore[assignment, method-assign]
    before = unsaved(a)
    with a.writing("begun"):
        a.database.commit(9, [X])
        c.hear(9)
        c.store.clear()
        assert c.load(Z, 10) == (3, None)
        assert c.persistence.save() == 9
        assert check_file(c) == (9, {Z: 3})
    assert outcomes == [Outcome.BEHIND]
    assert check_file(c) == (9, {Z: 3}), "x@5 did not come back"
    assert unsaved(a) == before
    check_reads(a)
    a.hear(9)
    a.write()
    assert check_file(a) == (9, {X: 9, Y: 8, Z: 3})
    assert unsaved(a) == 0


@pytest.mark.usefixtures("one_by_one")
def test_file_goes_ahead_between_two_transactions(a: Writer, opened: Open) -> None:
    """One row is in the file already; it is not lost, and the others come later."""
    c = opened()
    before = unsaved(a)
    with a.writing(BETWEEN):
        first = check_file(a)[1]
        assert len(first) == 1
        a.database.commit(9, [99])
        c.hear(9)
        assert c.persistence.save() == 9
    assert check_file(a) == (9, first)
    assert 0 < unsaved(a) < before
    a.write()
    assert check_file(a) == (9, first), "still behind"
    assert 0 < unsaved(a) < before
    a.hear(9)
    a.write()
    assert check_file(a) == (9, ALL)
    assert unsaved(a) == 0
    check_reads(a)


@pytest.mark.parametrize("moment", ["begun", BETWEEN])
def test_another_writes_the_same(
    a: Writer, opened: Open, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there is not written again."""
    if moment == BETWEEN:
        write_one_by_one(monkeypatch)
    b = opened(Writer)
    b.read_all()
    with a.writing(moment):
        b.write()
        assert check_file(b) == (8, ALL)
    assert check_file(a) == (8, ALL)
    assert unsaved(a) == unsaved(b) == 0
    written = a.persistence.file_writes + b.persistence.file_writes
    assert written == len(ALL)
    check_reads(a)
    check_reads(b)


@pytest.mark.parametrize("moment", MOMENTS)
def test_two_writers_at_once(a: Writer, opened: Open, moment: str) -> None:
    """The second waits where the first has the file locked; neither fails."""
    b = opened(Writer)
    b.read_all()
    with a.writing(moment):
        b.begin_round()
        if moment not in LOCKED:
            b.end_round()
    b.end_round()
    assert check_file(a) == (8, ALL)
    assert unsaved(a) == unsaved(b) == 0
    assert a.persistence.is_settled and b.persistence.is_settled


# The file is emptied


@pytest.mark.parametrize("moment", ["begun", BETWEEN])
def test_file_is_emptied(
    a: Writer, opened: Open, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has another generation: confirmed anew, then everything is saved again."""
    if moment == BETWEEN:
        write_one_by_one(monkeypatch)
    c = opened()
    with a.writing(moment):
        c.persistence.forget()
        assert file_rows(c.file) == (0, {})
    assert file_rows(a.file) == (0, {}), "nothing written over it"
    assert not a.persistence.is_settled
    assert a.persistence.find(to_bytes(X), 8) is None
    left = unsaved(a)
    assert left > 0
    a.write()
    assert file_rows(a.file) == (0, {})
    assert unsaved(a) == left

    wakes = a.wakes
    assert a.load(X, 5) is None, "a miss"
    assert a.wakes > wakes, "calls the caretaker"
    assert a.persistence.restore(quickly=False)
    assert a.persistence.is_settled
    a.write()
    checkpoint, rows = check_file(a)
    assert checkpoint == 8
    assert rows.items() <= ALL.items()
    assert len(rows) >= len(ALL) - (moment == BETWEEN), "but for what was saved in the other"
    assert unsaved(a) == 0
    check_reads(a)


# Another history


@pytest.mark.parametrize("moment", ["begun", "locked", "packing", "packed"])
@pytest.mark.parametrize("has_rows", [False, True])
def test_history_begins_anew(a: Writer, opened: Open, moment: str, has_rows: bool) -> None:
    """Nothing proven in the one is written in the other."""
    if has_rows:
        a.write()
        a.store.mark_unsaved()
    before = file_rows(a.file)
    a.database.commit(9, [X])
    with a.writing(moment):
        assert a.log.restart(a.log.breaks, 9)
    assert file_rows(a.file) == before
    assert unsaved(a) == 0, "memory is empty"
    check_reads(a)
    a.write()
    if has_rows:
        assert file_rows(a.file) == before, "it cannot tell what changed since that"
        assert not a.persistence.is_settled
        assert a.persistence.restore(quickly=False)
        a.write()
    assert check_file(a) == (9, {X: 9, Y: 8, Z: 3})
    check_reads(a)
    assert loads(opened(), {X: 9, Y: 8, Z: 3}, 10) == 0


@pytest.mark.usefixtures("one_by_one")
def test_history_begins_anew_between_two_transactions(a: Writer) -> None:
    """The file has a row of before: what changed since is asked for, then it goes on."""
    with a.writing(BETWEEN):
        before = check_file(a)
        a.database.commit(9, [X, Y, Z])
        assert a.log.restart(a.log.breaks, 9)
    assert file_rows(a.file) == before
    check_reads(a)
    a.write()
    assert not a.persistence.is_settled
    assert a.persistence.restore(quickly=False)
    a.write()
    assert check_file(a) == (9, {X: 9, Y: 9, Z: 9})


# Others read while all run


@pytest.mark.parametrize("moment", MOMENTS)
def test_others_read_what_was_written(a: Writer, opened: Open, moment: str) -> None:
    """Nothing of a transaction before it has ended, then all of it; and they save nothing again."""
    b, c = opened(Writer), opened()
    with a.writing(moment):
        is_written = moment == "committed"
        assert loads(b, ALL, 9) == (0 if is_written else len(ALL))
        assert bool(b.persistence.file_reads) == is_written
    assert loads(c, ALL, 9) == 0
    assert all(c.is_held(oid, 8) for oid in ALL), "promoted"
    assert unsaved(c) == 0
    b.write()
    assert unsaved(b) == 0
    assert b.persistence.file_writes == 0
    check_reads(b)
    check_reads(c)


@pytest.mark.usefixtures("one_by_one")
def test_others_read_between_two_transactions(a: Writer, opened: Open) -> None:
    b = opened()
    with a.writing(BETWEEN):
        assert loads(b, ALL, 9) == len(ALL) - 1
        assert b.persistence.file_reads == 1
    check_reads(b)


def test_reader_behind_the_writer(a: Writer, opened: Open) -> None:
    """It reads where it is, from a file that knows more."""
    b = opened()
    a.database.commit(9, [X])
    a.hear(9)
    a.read_all()
    a.write()
    assert check_file(a) == (9, {X: 9, Y: 8, Z: 3})
    assert loads(b, {Y: 8, Z: 3}, 9) == 0
    assert loads(b, {X: 5}, 9) == 1, "x@9 is not for it to see"
    check_reads(b)
    b.hear(9)
    assert loads(b, {X: 9, Y: 8, Z: 3}, 10) <= 1
    check_reads(b)


def test_reader_ahead_of_the_writer(a: Writer, opened: Open) -> None:
    """It judges each row by its own log, and takes the file along when it writes."""
    b = opened(Writer)
    a.write()
    a.database.commit(9, [X])
    b.hear(9)
    assert loads(b, {Y: 8, Z: 3}, 10) == 0
    assert loads(b, {X: 9}, 10) == 1
    check_reads(b)
    b.write()
    assert check_file(b) == (9, {X: 9, Y: 8, Z: 3})
    assert a.load(X, 9) == (5, None)
    check_reads(a)


@pytest.mark.parametrize("moment", MOMENTS)
def test_reader_hears_of_a_change_while_the_old_revision_is_written(
    a: Writer, opened: Open, moment: str
) -> None:
    b = opened()
    with a.writing(moment):
        a.database.commit(9, [X])
        b.hear(9)
        assert b.load(X, 10) == (9, None)
        b.store.clear()
    assert check_file(a) == (8, ALL)
    assert b.load(X, 10) == (9, None)
    b.store.clear()
    assert loads(b, {Y: 8, Z: 3}, 10) == 0
    check_reads(b)


# The file is busy, or cannot be written


@pytest.fixture
def stranger(a: Writer) -> Iterator[apsw.Connection]:
    """Somebody else's connection; nobody waits long for what it holds."""
    a.file._connection._sqlite.set_busy_timeout(1)
    connection = apsw.Connection(a.file.path)
    yield connection
    connection.close()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


@pytest.mark.parametrize("is_long", [False, True])
def test_file_is_busy(
    a: Writer,
    opened: Open,
    stranger: apsw.Connection,
    is_long: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A warning if it lasts, however often it is tried; all is saved once it is free."""
    if is_long:
        monkeypatch.setattr("zodbcache.attachment.LOCKED_SECONDS", 0)
    file, before = a.file, unsaved(a)
    with a.writing("begun"):
        stranger.execute("BEGIN IMMEDIATE")
    for _ in range(3):
        a.write()
        assert unsaved(a) == before
        check_reads(a)
    assert len(warnings(caplog)) == is_long
    assert a.file is file, "not let go"
    assert a.persistence.is_settled
    stranger.execute("COMMIT")
    a.write()
    assert check_file(a) == (8, ALL)
    assert unsaved(a) == 0
    assert len(warnings(caplog)) == is_long
    assert loads(opened(), ALL, 9) == 0


@pytest.mark.usefixtures("one_by_one")
def test_file_is_busy_between_two_transactions(
    a: Writer, stranger: apsw.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """What changes while nothing can be written is not written as current later."""
    with a.writing(BETWEEN):
        stranger.execute("BEGIN IMMEDIATE")
    before = file_rows(a.file)
    assert len(before[1]) == 1
    a.database.commit(9, [X, Y])
    a.hear(9)
    a.load(X, 10)
    a.write()
    assert file_rows(a.file) == before
    stranger.execute("COMMIT")
    a.write()
    assert check_file(a) == (9, {X: 9, Z: 3})
    assert unsaved(a) == 0
    assert warnings(caplog) == []
    check_reads(a)


@pytest.mark.parametrize("moment", ["packing", "packed", "inserted"])
@pytest.mark.parametrize("is_recoverable", [False, True])
def test_file_fails(
    a: Writer,
    opened: Open,
    moment: str,
    is_recoverable: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As on a full disk, or a broken one: what was packed is unsaved again."""
    file, before = a.file, unsaved(a)

    def fail() -> None:
        raise CacheFileError(
            file.path, "advance", cause="a fault", remedy="Wait.", recoverable=is_recoverable
        )

    at_moment(a, moment, fail)
    a.write()
    assert len(warnings(caplog)) == 1
    assert unsaved(a) == before
    assert a.persistence.is_settled == is_recoverable
    if is_recoverable:
        assert a.file is file, "not let go"
    else:
        a.persistence.retry_now()
        assert a.persistence.restore(quickly=False)
        assert a.file is not file
    a.write()
    assert check_file(a) == (8, ALL)
    assert unsaved(a) == 0
    assert len(warnings(caplog)) == 1
    assert loads(opened(), ALL, 9) == 0


# Memory goes


@pytest.mark.parametrize("moment", ["packed", "inserted"])
def test_memory_is_emptied_while_its_rows_are_written(a: Writer, moment: str) -> None:
    """The writer has a copy of what it writes."""
    with a.writing(moment):
        a.store.clear()
        a.store.check()
    assert check_file(a) == (8, ALL)
    assert loads(a, ALL, 9) == 0
    assert unsaved(a) == 0
    check_reads(a)


@pytest.mark.usefixtures("one_by_one")
def test_memory_is_emptied_between_two_transactions(a: Writer) -> None:
    with a.writing(BETWEEN):
        a.store.clear()
    assert len(check_file(a)[1]) == 1
    assert unsaved(a) == 0
    a.read_all()
    a.write()
    assert check_file(a) == (8, ALL)


def test_memory_goes_while_the_file_is_ahead(a: Writer, opened: Open) -> None:
    """A batch that is refused leaves nothing unsaved of what is in memory no more."""
    c = opened()
    with a.writing("begun"):
        a.database.commit(9, [X])
        c.hear(9)
        assert c.persistence.save() == 9
        a.store.clear()
        a.load(Z, 9)
    assert unsaved(a) == len(a.database.state(Z, 3))
    a.hear(9)
    a.write()
    assert check_file(a) == (9, {Z: 3})


class TestTinyMemory:
    """Much more is read than memory holds: the file has it, for all processes."""

    OIDS = range(1, 61)

    @pytest.fixture
    def database(self) -> Database:
        return Database({5: self.OIDS}, filler=b"." * 50_000)

    def read_and_write(self, worker: Writer) -> None:
        """Each object where the process is; before the next one can take its place."""
        before = worker.log.end + 1
        for oid in self.OIDS:
            found, expected = worker.load(oid, before), worker.database.revision(oid, before)
            assert found is not None and expected is not None
            assert found[0] == expected[0]
            worker.write()

    def test_what_was_evicted_is_in_the_file(self, opened: Open) -> None:
        a, b = opened(Writer), opened(Writer)
        self.read_and_write(a)
        assert a.cache.stats()["evictions"] > 0
        assert sum(a.is_held(oid, 5) for oid in self.OIDS) < len(self.OIDS) / 2
        assert check_file(a) == (5, dict.fromkeys(self.OIDS, 5))
        for worker in (a, b):
            assert loads(worker, dict.fromkeys(self.OIDS, 5), 6) == 0
            worker.store.check()
        assert unsaved(a) == unsaved(b) == 0
        assert b.cache.stats()["evictions"] > 0

    def test_much_does_not_wait(self, opened: Open) -> None:
        """The thread is woken before it is evicted."""
        a = opened(Writer)
        a.cache.writer._threshold = 220_000
        a.load(1, 6)
        assert a.cache.writer._thread is not None
        a.turns.ended.clear()
        for oid in (2, 3, 4):
            a.load(oid, 6)
        assert not a.cache.writer._woken.is_set()
        a.load(5, 6)
        a.end_round()
        assert check_file(a) == (5, dict.fromkeys(range(1, 6), 5))
        assert unsaved(a) == 0

    def test_changes_go_on(self, opened: Open) -> None:
        """Each writes what it read, and deletes what it knows to have changed."""
        a, b = opened(Writer), opened(Writer)
        current = dict.fromkeys(self.OIDS, 5)
        for number, worker in enumerate((a, b, a, b)):
            self.read_and_write(worker)
            tid, oids = 10 + number, list(self.OIDS)[number::4]
            a.database.commit(tid, oids)
            a.hear(tid)
            if number % 2:  # the other hears of two at once
                b.hear(tid - 1)
                b.hear(tid)
            current.update(dict.fromkeys(oids, tid))
            check_file(a)
        for worker in (a, b):
            self.read_and_write(worker)
            worker.store.check()
        assert check_file(a) == (13, current)
        assert loads(a, current, 14) == loads(b, current, 14) == 0

    @pytest.mark.parametrize("moment", MOMENTS)
    def test_eviction_while_rows_are_written(self, opened: Open, moment: str) -> None:
        """Other objects take the place of those that are on their way to the file."""
        a = opened(Writer)
        first = dict.fromkeys(list(self.OIDS)[:10], 5)
        loads(a, first, 6)
        with a.writing(moment):
            for _ in range(3):
                for oid in list(self.OIDS)[10:]:
                    a.load(oid, 6)
            a.store.check()
        rows = check_file(a)[1]
        if moment in ("packed", "inserted", "committed"):
            assert rows.keys() >= first.keys()
            assert loads(a, first, 6) == 0
        a.write()
        a.store.check()
        for oid in self.OIDS:
            assert oid in check_file(a)[1] or not a.is_held(oid, 5), "held, and not saved"
        assert unsaved(a) == 0


# The application packs, or closes


@pytest.mark.parametrize("moment", MOMENTS)
def test_everything_is_forgotten(a: Writer, opened: Open, moment: str) -> None:
    """As at an own pack: what the writer has in hand is gone with the rest."""
    forgetting = Thread(target=a.cache.forget)
    with a.writing(moment):
        forgetting.start()
    forgetting.join(WAIT_SECONDS)
    assert not forgetting.is_alive()
    assert file_rows(a.file) == (0, {})
    assert not any(a.is_held(oid, 8) for oid in ALL)
    a.write()
    assert file_rows(a.file) == (0, {})
    assert loads(opened(), ALL, 9) == len(ALL)
    assert loads(a, ALL, 9) == len(ALL)


def test_written_while_everything_is_forgotten(a: Writer) -> None:
    """The writer comes between the file and the memory."""
    forget_all = a.log.forget_all

    def late() -> None:
        a.write()
        forget_all()

    a.log.forget_all = late  # type: ignore[method-assign]
    a.cache.forget()
    a.log.forget_all = forget_all  # type: ignore[method-assign]
    a.write()
    assert not any(a.is_held(oid, 8) for oid in ALL)
    assert file_rows(a.file)[1] == {}


@pytest.fixture
def row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows come back by preload() only, one after the other."""
    monkeypatch.setattr("zodbcache.persistence.FEW_ROWS", 0)
    monkeypatch.setattr("zodbcache.cachefile.snapshot._BATCH_ROWS", 1)


@pytest.mark.usefixtures("row_by_row")
def test_rows_are_preloaded_while_everything_is_forgotten(a: Writer, opened: Open) -> None:
    """What is on its way back from the file is forgotten, too."""
    a.write()
    b = opened()
    assert b.persistence.wants_preload
    pauses = iter([b.cache.forget])
    b.persistence.preload(lambda: next(pauses, lambda: None)())
    assert next(pauses, None) is None, "it did happen"
    assert not any(b.is_held(oid, 8) for oid in ALL)


@pytest.mark.usefixtures("row_by_row")
def test_rows_are_preloaded_while_the_file_goes_ahead(a: Writer, opened: Open) -> None:
    """Each is judged by what is known when it comes."""
    a.write()
    b = opened()

    def change() -> None:
        a.database.commit(9, [X, Z])
        a.hear(9)
        a.write()
        b.hear(9)

    pauses = iter([change])
    b.persistence.preload(lambda: next(pauses, lambda: None)())
    assert b.is_held(Y, 9)
    assert not b.is_held(X, 9)
    assert not b.is_held(Z, 9)
    check_reads(b)


@pytest.mark.parametrize("moment", MOMENTS)
def test_closing_while_rows_are_written(a: Writer, opened: Open, moment: str) -> None:
    """It waits for the transaction, and saves what came meanwhile."""
    b = opened()
    closing = Thread(target=a.cache.close)
    with a.writing(moment):
        a.database.commit(9, [X, Y])
        a.finish(9)
        closing.start()
    closing.join(WAIT_SECONDS)
    assert not closing.is_alive()
    assert check_file(b) == (9, {X: 9, Y: 9, Z: 3})


@pytest.mark.usefixtures("one_by_one")
def test_closing_between_two_transactions(a: Writer, opened: Open) -> None:
    """The writer stops there; what is left is saved by who closes."""
    b = opened()
    closing = Thread(target=a.cache.close)
    with a.writing(BETWEEN):
        closing.start()
        assert a.cache.writer._stopping.wait(WAIT_SECONDS)
        assert len(check_file(b)[1]) == 1
    closing.join(WAIT_SECONDS)
    assert check_file(b) == (8, ALL)


@pytest.mark.parametrize("moment", [*MOMENTS, BETWEEN])
def test_interrupted_while_rows_are_written(
    database: Database, opened: Open, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal in the middle of a save loses nothing: the next one writes all."""
    if moment == BETWEEN:
        write_one_by_one(monkeypatch)
    a = opened()
    a.read_all()

    def interrupt() -> bool:
        raise KeyboardInterrupt

    if moment == BETWEEN:
        with pytest.raises(KeyboardInterrupt):
            a.persistence.save(interrupt)
        assert len(check_file(a)[1]) == 1
    else:
        at_moment(a, moment, interrupt)
        with pytest.raises(KeyboardInterrupt):
            a.persistence.save()
        assert check_file(a) == ((8, ALL) if moment == "committed" else (0, {}))
    assert a.persistence.save() == 8
    assert check_file(a) == (8, ALL)
    assert unsaved(a) == 0


def test_everything_is_forgotten_while_there_is_no_file(a: Writer) -> None:
    """Its rows do not come back when it does: the database may have forgotten them."""
    a.write()
    a.persistence._give_up(
        CacheFileError(a.file.path, "read", cause="a fault", remedy="Wait.", recoverable=False)
    )
    assert a.persistence._file is None
    a.cache.forget()
    a.persistence.retry_now()
    assert a.persistence.restore(quickly=False)
    assert not any(a.is_held(oid, 8) for oid in ALL)
    assert loads(a, ALL, 9) == len(ALL)


def test_log_forgets_while_it_takes_the_file_along(a: Writer, opened: Open) -> None:
    """More changes than it can name come while the file is confirmed: it asks again."""
    a.write()
    a.database.commit(9, [X])
    b = Worker(a.database, Path(a.file.path).parent, starts_at=9)
    advance = b.file.advance

    def late_advance(*arguments: Any) -> Any:
        b.file.advance = advance  # type: ignore[method-assign]
        b.log._deltas_max = 1
        a.database.commit(10, [Y, 98, 99])
        b.hear(10)
        return advance(*arguments)

    b.file.advance = late_advance  # type: ignore[assignment, method-assign]
    try:
        if not b.persistence.restore(quickly=False):
            assert b.persistence.wants_care or b.persistence.wants_restore
            assert b.persistence.restore(quickly=False)
        assert b.persistence.is_settled
        assert b.log.start == 10, "it did happen"
        check_reads(b)
        check_file(b)
    finally:
        b.close()
