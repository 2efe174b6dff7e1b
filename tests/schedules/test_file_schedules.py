"""Schedules of processes that share one file: 1, 2, 3, 4 and 5 of the design."""

from __future__ import annotations

import threading
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from zodbcache._core._store import Batch
from zodbcache.cachefile import Outcome
from zodbcache.ids import to_bytes

from .stepping import LOCKED
from .stepping import MOMENTS
from .stepping import Database
from .stepping import Worker
from .stepping import at_moment
from .stepping import check_file
from .stepping import check_reads
from .stepping import file_rows
from .stepping import no_step
from .stepping import state_of

X, Y, Z = 1, 2, 3
WAIT_SECONDS = 20


@pytest.fixture
def database() -> Database:
    return Database({3: [Z], 5: [X], 8: [Y]})


def saved(database: Database, directory: Path) -> Worker:
    """A process that has read everything and written it to the file."""
    worker = Worker.opened(database, directory)
    worker.read_all()
    worker.persistence.save()
    return worker


# Schedule 1


def test_row_that_changed_unseen_by_its_writer_is_not_restored(
    database: Database, tmp_path: Path
) -> None:
    """A writes x@5 at checkpoint 8; x changes at 9, unseen by A; B starts at 10."""
    a = saved(database, tmp_path)
    assert check_file(a) == (8, {X: 5, Y: 8, Z: 3})
    database.commit(9, [X])
    database.commit(10, [Z])

    b = Worker.opened(database, tmp_path)
    assert not b.is_held(X, 10)
    assert b.is_held(Y, 10), "what did not change is warm"
    check_reads(b)
    assert check_file(b) == (10, {Y: 8})

    a.store.mark_unsaved()
    a.persistence.save()  # still at 8
    assert check_file(b) == (10, {Y: 8})
    check_reads(a)
    a.close()
    b.close()


def test_nothing_is_restored_before_it_is_known_what_changed(
    database: Database, tmp_path: Path
) -> None:
    """As before, but B cannot be told at once; it reads meanwhile, and writes nothing."""
    saved(database, tmp_path).close()
    database.commit(9, [X])
    database.commit(10, [Z])

    b = Worker(database, tmp_path, starts_at=10)
    b.ask.is_slow = True
    assert not b.persistence.restore(quickly=True)
    check_reads(b)
    b.persistence.save()
    assert file_rows(b.file)[0] == 8

    assert b.persistence.restore(quickly=False)
    check_reads(b)
    assert b.is_held(Y, 10)
    b.close()


def test_change_pushed_while_catching_up_is_not_undone_by_restoring(
    database: Database, tmp_path: Path
) -> None:
    """B starts at 8 and asks; while it is answered, x changes at 9 and B hears so."""
    saved(database, tmp_path).close()
    b = Worker(database, tmp_path, starts_at=8)
    through_8 = b.ask.changes(8)

    def answer_of_before(since: int) -> Any:
        database.commit(9, [X])
        b.hear(9)
        return through_8

    b.ask.changes = answer_of_before  # type: ignore[method-assign]
    assert b.persistence.restore(quickly=False)
    assert not b.is_held(X, 9)
    check_reads(b)
    assert check_file(b) == (9, {Y: 8, Z: 3})
    b.close()


# Schedule 2


@pytest.mark.parametrize("rows_read", [0, 1])
def test_snapshot_shows_the_checkpoint_that_its_rows_had(
    database: Database, tmp_path: Path, rows_read: int
) -> None:
    """B holds a snapshot with x; A advances past x's change; B still sees 8 beside x@5."""
    a = saved(database, tmp_path)
    b = Worker(database, tmp_path, starts_at=8)
    with b.file.snapshot() as snapshot:
        rows = snapshot.rows(2**62, 2**40)
        first = list(islice(rows, rows_read))
        database.commit(9, [X, Z])
        a.hear(9)
        a.persistence.save()
        assert file_rows(a.file) == (9, {Y: 8})
        assert snapshot.checkpoint == 8
        seen = {oid: tid for oid, tid, _, _ in [*first, *rows]}
        assert seen == {X: 5, Y: 8, Z: 3}
    assert file_rows(b.file) == (9, {Y: 8})
    a.close()
    b.close()


@pytest.mark.parametrize("rereads", [False, True])
def test_file_advanced_between_checkpoint_and_rows_is_a_miss(
    database: Database, tmp_path: Path, rereads: bool
) -> None:
    """B reads checkpoint 8; A moves the file to 9, with or without x@9 in it; B reads the rows."""
    a = saved(database, tmp_path)
    b = Worker(database, tmp_path, starts_at=8)

    def a_advances() -> None:
        database.commit(9, [X])
        a.hear(9)
        if rereads:
            a.read_all()
        a.persistence.save()

    through_8 = b.ask.changes(8)
    b.ask.changes = lambda since: (a_advances(), through_8)[1]  # type: ignore[method-assign]
    assert b.persistence.restore(quickly=False)
    assert not b.is_held(X, 8)  # B's log ends at 8, and 9 is not for it to know
    check_reads(b)
    b.hear(9)
    check_reads(b)
    check_file(b)
    a.close()
    b.close()


def test_change_heard_between_two_chunks_of_rows(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B streams x@5 from its snapshot while A advances the file past x, and B hears of it."""
    monkeypatch.setattr("zodbcache.cachefile.snapshot._BATCH_ROWS", 1)
    a = saved(database, tmp_path)
    b = Worker(database, tmp_path, starts_at=8)
    restore = b.log.restore
    steps = iter([lambda: None, lambda: (database.commit(9, [X, Y]), a.hear(9), b.hear(9))])

    def stepped(batch: Batch, known: int, *since: int | None) -> bool:
        assert len(batch) <= 1
        next(steps, a.persistence.save)()
        return restore(batch, known, *since)

    b.log.restore = stepped  # type: ignore[method-assign]
    assert b.persistence.restore(quickly=False)
    assert not b.is_held(X, 9)
    assert not b.is_held(Y, 9)
    assert b.is_held(Z, 9)
    check_reads(b)
    assert check_file(b) == (9, {Z: 3})
    a.close()
    b.close()


# Schedule 3


def test_history_that_changes_while_rows_come_back(database: Database, tmp_path: Path) -> None:
    """Rows were confirmed; before they are in memory a reader sees another history."""
    saved(database, tmp_path).close()
    b = Worker(database, tmp_path, starts_at=8)
    restore = b.log.restore

    def late_restore(*arguments: Any, **options: Any) -> Any:
        b.persistence.distrust()
        b.log.restart(b.log.breaks, 8)
        return restore(*arguments, **options)

    b.log.restore = late_restore  # type: ignore[method-assign]
    assert not b.persistence.restore(quickly=False)
    assert not b.persistence.is_settled
    assert b.persistence.find(to_bytes(X), 8) is None
    assert not b.is_held(X, 8)
    assert b.log.witnesses() == [], "the file's are of the other history"
    b.log.restore = restore  # type: ignore[method-assign]
    assert b.persistence.restore(quickly=False)
    assert b.is_held(X, 8)
    b.close()


@pytest.mark.parametrize("is_waited_for", [False, True])
def test_history_that_changes_while_rows_are_preloaded(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_waited_for: bool
) -> None:
    """As before, but many rows: they come when the file has been settled."""
    monkeypatch.setattr("zodbcache.persistence.FEW_ROWS", 0)
    saved(database, tmp_path).close()
    b = Worker(database, tmp_path, starts_at=8)
    assert b.persistence.restore(quickly=False)
    assert b.persistence.wants_preload
    restore = b.log.restore

    def late_restore(*arguments: Any, **options: Any) -> Any:
        b.persistence.distrust()
        b.log.restart(b.log.breaks, 8)
        return restore(*arguments, **options)

    b.log.restore = late_restore  # type: ignore[method-assign]
    b.persistence.preload(None if is_waited_for else no_step)
    assert not b.persistence.is_settled
    assert b.persistence.find(to_bytes(X), 8) is None
    assert not b.is_held(X, 8)
    b.log.restore = restore  # type: ignore[method-assign]
    assert b.persistence.restore(quickly=False)
    assert b.persistence.wants_preload
    b.persistence.preload(None if is_waited_for else no_step)
    assert b.is_held(X, 8)
    b.close()


def test_history_that_changes_when_all_rows_are_back(database: Database, tmp_path: Path) -> None:
    """The last moment: the file would be settled next."""
    saved(database, tmp_path).close()
    b = Worker(database, tmp_path, starts_at=8)
    trim = b.log.trim

    def late_trim() -> None:
        trim()
        b.persistence.distrust()
        b.log.restart(b.log.breaks, 8)

    b.log.trim = late_trim  # type: ignore[method-assign]
    assert not b.persistence.restore(quickly=False)
    assert not b.persistence.is_settled
    assert b.persistence.find(to_bytes(X), 8) is None
    b.close()


@pytest.mark.parametrize("moment", ["begun", "locked", "packing", "packed"])
@pytest.mark.parametrize("has_rows", [False, True])
def test_history_that_changes_while_the_batch_is_written(
    database: Database, tmp_path: Path, moment: str, has_rows: bool
) -> None:
    """What memory holds afterwards was not proven through the checkpoint to be set."""
    a = Worker.opened(database, tmp_path)
    a.read_all()
    if has_rows:
        a.persistence.save()
        a.store.mark_unsaved()
    before = file_rows(a.file)

    def another_history() -> None:
        a.log.restart(a.log.breaks, 5)
        assert a.log.restore(Batch([(X, 5, 1, state_of(X, 5))]), 9)
        a.store.mark_unsaved()

    at_moment(a, moment, another_history)
    assert a.persistence.save() == 0
    assert a.log.end == 5, "it did happen"
    assert file_rows(a.file) == before
    a.close()


def test_history_that_changes_while_there_is_nothing_to_write(
    database: Database, tmp_path: Path
) -> None:
    """An empty file does not vouch for the other history either."""
    a = Worker.opened(database, tmp_path)
    at_moment(a, "begun", lambda: a.log.restart(a.log.breaks, 5))
    assert a.persistence.save() == 0
    assert a.log.end == 5, "it did happen"
    assert file_rows(a.file) == (0, {})
    a.close()


def test_batch_queued_before_a_change_does_not_come_back_as_current(
    database: Database, tmp_path: Path
) -> None:
    """A has x@5 ready for the file; C moves the file to 9, deleting x; then A's batch arrives."""
    c = saved(database, tmp_path)
    a = Worker.opened(database, tmp_path)
    a.store.mark_unsaved()
    advance = a.file.advance
    outcomes = []

    def late_advance(*arguments: Any) -> Any:
        database.commit(9, [X])
        c.hear(9)
        c.persistence.save()
        assert file_rows(c.file) == (9, {Y: 8, Z: 3})
        result = advance(*arguments)
        outcomes.append(result.outcome)
        return result

    a.file.advance = late_advance  # type: ignore[assignment, method-assign]
    a.persistence.save()
    assert outcomes == [Outcome.BEHIND]
    assert check_file(c) == (9, {Y: 8, Z: 3})
    d = Worker.opened(database, tmp_path)
    assert not d.is_held(X, 9)
    check_reads(d)
    for worker in (a, c, d):
        worker.close()


@pytest.mark.parametrize("moment", MOMENTS)
def test_change_heard_while_the_batch_is_written(
    database: Database, tmp_path: Path, moment: str
) -> None:
    """A has begun to write x@5 through 8 when it hears that x changed at 9."""
    a = Worker.opened(database, tmp_path)
    a.read_all()

    def change() -> None:
        database.commit(9, [X, Y])
        a.hear(9)
        a.read_all()  # y@9 is what memory has now, and too new for this batch

    at_moment(a, moment, change)
    a.persistence.save()
    assert a.log.end == 9, "it did happen"
    packed = {} if moment in ("begun", "locked", "packing") else {X: 5, Y: 8}
    assert check_file(a) == (8, {**packed, Z: 3})
    check_reads(a)
    b = Worker.opened(database, tmp_path)
    check_reads(b)
    assert check_file(b) == (9, {Z: 3})
    a.persistence.save()
    assert check_file(a) == (9, {X: 9, Y: 9, Z: 3}), "nothing was forgotten"
    a.close()
    b.close()


# Schedule 4


@pytest.mark.parametrize("moment", LOCKED)
def test_process_behind_the_file_neither_lowers_nor_inserts(tmp_path: Path, moment: str) -> None:
    """A, whose log ends at 7, waits for the file's lock while B is setting 12."""
    database = Database({3: [Z], 5: [X], 7: [Y]})
    a = saved(database, tmp_path)
    a.store.mark_unsaved()
    b = Worker.opened(database, tmp_path)
    database.commit(12, [X])
    b.hear(12)
    b.read_all()

    asked = threading.Event()
    advance = a.file.advance
    outcomes = []

    def noticed_advance(*arguments: Any) -> Any:
        asked.set()
        result = advance(*arguments)
        outcomes.append(result.outcome)
        return result

    a.file.advance = noticed_advance  # type: ignore[assignment, method-assign]
    thread = threading.Thread(target=a.persistence.save)

    def a_comes() -> None:
        assert b.file._connection._sqlite.in_transaction
        thread.start()
        assert asked.wait(WAIT_SECONDS)

    at_moment(b, moment, a_comes)
    b.persistence.save()
    thread.join(WAIT_SECONDS)
    assert outcomes == [Outcome.BEHIND]
    assert check_file(b) == (12, {X: 12, Y: 7, Z: 3})
    check_reads(a)
    a.close()
    b.close()


def test_process_ahead_of_the_file_takes_it_along(tmp_path: Path) -> None:
    """The other way round: A sets 7 first, then B, which knows of 12, removes what changed."""
    database = Database({3: [Z], 5: [X], 7: [Y]})
    b = Worker.opened(database, tmp_path)
    a = saved(database, tmp_path)
    database.commit(12, [X])
    b.hear(12)
    assert check_file(b) == (7, {X: 5, Y: 7, Z: 3})
    b.persistence.save()
    assert check_file(b) == (12, {Y: 7, Z: 3})
    a.close()
    b.close()


def forgetful(database: Database, directory: Path) -> tuple[Worker, Worker]:
    """B has forgotten what changed before 12, and would advance a file that A left at 7."""
    b = Worker.opened(database, directory)
    a = saved(database, directory)
    database.commit(12, [X])
    assert b.log.restart(b.log.breaks, 12)
    b.load(Z, 13)
    b.load(X, 13)
    return a, b


def test_log_that_starts_after_the_checkpoint_writes_nothing(tmp_path: Path) -> None:
    """It asks first what changed, and then what did not change is there still."""
    a, b = forgetful(Database({3: [Z], 5: [X], 7: [Y]}), tmp_path)
    assert b.persistence.save() == 0
    assert check_file(a) == (7, {X: 5, Y: 7, Z: 3}), "nothing written, nothing deleted"
    assert not b.persistence.is_settled
    reads = b.persistence.file_reads
    assert b.persistence.find(to_bytes(Y), 12) is None
    assert b.persistence.save() == 0
    assert check_file(a) == (7, {X: 5, Y: 7, Z: 3})
    wakes = b.wakes
    check_reads(b)
    assert b.wakes > wakes, "a miss calls the caretaker"
    assert b.persistence.file_reads == reads

    assert b.persistence.restore(quickly=False)
    assert check_file(b) == (12, {Y: 7, Z: 3})
    b.store.mark_unsaved()
    assert b.persistence.save() == 12
    assert check_file(b) == (12, {X: 12, Y: 7, Z: 3})
    check_reads(b)
    a.close()
    b.close()


def test_log_that_starts_after_the_checkpoint_is_given_up_at_close(tmp_path: Path) -> None:
    """Nobody asks any more: the next process does, and finds what did not change."""
    database = Database({3: [Z], 5: [X], 7: [Y]})
    a, b = forgetful(database, tmp_path)
    b.cache.close()
    assert check_file(a) == (7, {X: 5, Y: 7, Z: 3})
    c = Worker.opened(database, tmp_path)
    assert check_file(c) == (12, {Y: 7, Z: 3})
    assert c.is_held(Y, 12)
    check_reads(c)
    a.close()
    c.close()


# Schedule 5


@pytest.mark.parametrize("is_heard_at_once", [False, True])
def test_revision_is_not_shown_after_a_change_that_the_log_forgot(
    tmp_path: Path, is_heard_at_once: bool
) -> None:
    """A reader pinned at 6 has x; x changes at 7 and 9, and only 9 is kept of that."""
    database = Database({5: [X]})
    worker = Worker.opened(database, tmp_path)
    database.commit(6, [Y])
    worker.hear(6)
    assert worker.load(X, 7) == (5, None)
    database.commit(7, [X])
    database.commit(9, [X])
    if is_heard_at_once:  # as after a reconnection: one tid for all that was missed
        worker.log.break_()
        assert worker.log.bridge(worker.log.breaks, [([to_bytes(X)], 9)], 9)
    else:
        worker.hear(7)
        worker.hear(9)
    assert worker.load(X, 9) == (7, 9)  # at 8
    assert worker.load(X, 7) == (5, 7)  # the pinned reader
    check_reads(worker)
    worker.close()


def test_own_commit_over_a_missed_one_ends_nothing_exactly(tmp_path: Path) -> None:
    """x changed at 7 while the log was broken; the own commit at 9 does not end x@5."""
    database = Database({5: [X]})
    worker = Worker.opened(database, tmp_path)
    assert worker.load(X, 6) == (5, None)
    worker.log.break_()
    database.commit(7, [X])
    database.commit(9, [X])
    own = worker.log.name(9, [to_bytes(X)])
    own.exact = True
    worker.log.advance(9)
    assert not worker.is_held(X, 8)
    assert worker.log.bridge(worker.log.breaks, [([to_bytes(X)], 9)], 9)
    check_reads(worker)
    worker.close()


def test_late_reader_inserts_nothing_that_changed_meanwhile(tmp_path: Path) -> None:
    """A reader pinned at 6 is answered x@5, open; x changes at 7 and 9 before it is kept."""
    database = Database({5: [X]})
    worker = Worker.opened(database, tmp_path)

    def changes(oid: int) -> None:
        database.on_load = lambda oid: None
        for tid in (7, 9):
            database.commit(tid, [X])
            worker.hear(tid)

    database.on_load = changes
    found = worker.view.load_before(to_bytes(X), to_bytes(7))
    assert found == (state_of(X, 5), to_bytes(5), None)
    assert not worker.is_held(X, 6)
    check_reads(worker)
    worker.close()
