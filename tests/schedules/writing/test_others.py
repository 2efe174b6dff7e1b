"""What others change, write and read in the middle of a round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from zodbcache.cachefile import Outcome
from zodbcache.ids import to_bytes

from ..stepping import LOCKED
from ..stepping import MOMENTS
from ..stepping import Worker
from ..stepping import check_file
from ..stepping import check_reads
from ..stepping import file_rows
from .writer import ALL
from .writer import BETWEEN
from .writer import Open
from .writer import Writer
from .writer import X
from .writer import Y
from .writer import Z
from .writer import commit
from .writer import hear
from .writer import loads
from .writer import unsaved
from .writer import write_one_by_one


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
