"""The judge, on a few commits and one instance: what it accepts and what it finds."""

from __future__ import annotations

from typing import Any

import pytest

from .judge import Bounds
from .judge import Judge
from .record import Record
from .record import Revision

X, Y = 1, 2

COMMITS = [
    Revision(X, 10, 110),
    Revision(Y, 10, 210),
    Revision(X, 20, 120),
    Revision(Y, 30, 230),
    Revision(X, 40, None),
]
"""X changes at 20 and is gone at 40; Y changes at 30."""

TIMES = [(1, 2, 10), (3, 4, 20), (5, 6, 30), (7, 8, 40)]
"""Before and after each commit, and its tid."""


def view(number: int, *, polled: int, changed: list[int] | None = None) -> dict[str, Any]:
    """A view that was asked for and got at the time *polled*."""
    return {
        "event": "view",
        "instance": "i",
        "view": number,
        "began": polled,
        "polled": polled,
        "changed": changed,
    }


def reads(*found: tuple[int, int], may_move: bool = False, floor: int = 0) -> dict[str, Any]:
    """Each ``(oid, tid)``, with the right bytes."""
    return {
        "event": "reads",
        "instance": "i",
        "may_move": may_move,
        "floor": floor,
        "reads": [[oid, tid, oid * 100 + tid if tid else 0] for oid, tid in found],
    }


def judged(*entries: dict[str, Any], collected: tuple[int, ...] = ()) -> list[str]:
    """The kinds of what was wrong."""
    judge = Judge(Record(COMMITS), Bounds(TIMES), collected)
    judge.judge(entries)
    return [wrong.kind for wrong in judge.wrong]


@pytest.mark.parametrize(
    ("polled", "found"),
    [
        (2, [(X, 10), (Y, 10)]),
        (4, [(X, 20), (Y, 10)]),
        (5, [(X, 20), (Y, 10)]),
        (6, [(X, 20), (Y, 30)]),
        (8, [(X, 0), (Y, 30)]),
    ],
)
def test_right(polled: int, found: list[tuple[int, int]]) -> None:
    assert judged(view(1, polled=polled), reads(*found)) == []


@pytest.mark.parametrize(
    ("polled", "found", "kind"),
    [
        (5, [(X, 10), (Y, 30)], "revision"),  # no read point has both
        (7, [(X, 20), (Y, 10)], "view"),  # Y's change had finished before
        (2, [(X, 20), (Y, 10)], "view"),  # X's change was made later
        (6, [(X, 15)], "revision"),  # never committed
        (6, [(X, 0), (Y, 30)], "view"),  # not gone yet
    ],
)
def test_wrong(polled: int, found: list[tuple[int, int]], kind: str) -> None:
    assert set(judged(view(1, polled=polled), reads(*found))) == {kind}


def test_other_bytes() -> None:
    entry = reads((X, 20))
    entry["reads"][0][2] = 110
    assert judged(view(1, polled=4), entry) == ["bytes"]


def test_view_that_may_move() -> None:
    before, after = reads((X, 10), (Y, 10)), [(X, 20), (Y, 30)]
    assert judged(view(1, polled=2), before, reads(*after, may_move=True)) == []
    assert judged(view(1, polled=2), before, reads(*after)) != []
    back = [reads(*after), reads((X, 10), (Y, 10), may_move=True)]
    assert judged(view(1, polled=6), *back) != [], "it may not move back"


def test_own_commit_is_seen() -> None:
    entries = [view(1, polled=2), reads((X, 10))]
    assert judged(*entries, reads((X, 20), may_move=True, floor=20)) == []
    assert judged(*entries, reads((X, 10), may_move=True, floor=20)) != []


def test_view_before_the_one_before() -> None:
    first = [view(1, polled=5), reads((Y, 30))]
    assert judged(*first, view(2, polled=5, changed=[]), reads((Y, 10))) == ["view"]


@pytest.mark.parametrize(
    ("changed", "own_tid", "kinds"),
    [
        ([Y], None, []),
        (None, None, []),
        ([], None, ["invalidation"]),
        ([X], None, ["invalidation"]),
        ([], 30, []),
    ],
)
def test_invalidations(changed: list[int] | None, own_tid: int | None, kinds: list[str]) -> None:
    """From a view at 20 to one at 30."""
    entries = [view(1, polled=4), reads((X, 20), (Y, 10))]
    if own_tid is not None:
        entries.append({"event": "committed", "instance": "i", "number": 1, "tid": own_tid})
    entries += [view(2, polled=6, changed=changed), reads((Y, 30))]
    assert judged(*entries) == kinds


def test_commit_that_nobody_has() -> None:
    entry = {"event": "committed", "instance": "i", "number": 1, "tid": 25}
    assert judged(entry) == ["commit"]


def test_collected_objects() -> None:
    """A pack removes them at any time, and nobody is told of it or of their last changes."""
    assert judged(view(1, polled=6), reads((X, 0), (Y, 30)), collected=(X,)) == []
    assert judged(view(1, polled=6), reads((X, 10), (Y, 30)), collected=(X,)) == []
    assert judged(view(1, polled=6), reads((X, 15), (Y, 30)), collected=(X,)) == ["revision"]


def test_record_that_contradicts_itself() -> None:
    with pytest.raises(ValueError, match="the record has two"):
        Record([Revision(X, 10, 1), Revision(X, 10, 2)])
