"""The outcomes of an advance, one by one (I1, I6)."""

from __future__ import annotations

import os

import pytest
from cachefile_helpers import LATEST
from cachefile_helpers import advance
from cachefile_helpers import generation_of
from cachefile_helpers import log_of
from cachefile_helpers import log_too_short
from cachefile_helpers import read
from cachefile_helpers import row
from cachefile_helpers import tids
from zope.interface.verify import verifyObject

from zodbcache.cachefile import Outcome
from zodbcache.cachefile.merge import WITNESSES_KEPT
from zodbcache.cachefile.rows import BATCH_ROWS
from zodbcache.interfaces import ICacheFile
from zodbcache.interfaces import IFileSnapshot


def test_interfaces(cache_file):
    assert verifyObject(ICacheFile, cache_file)
    with cache_file.snapshot() as snapshot:
        assert verifyObject(IFileSnapshot, snapshot)


def test_new_file_is_empty(cache_file):
    with cache_file.snapshot() as snapshot:
        assert (snapshot.checkpoint, snapshot.generation, snapshot.witnesses) == (0, 1, [])
        assert list(snapshot.rows(LATEST, 1000)) == []


def test_rows_survive_reopening(open_file):
    first = open_file()
    result = advance(first, 8, row(-3, 2), row(1, 5, b""), row(2, 8), witnesses=[(9, 8)])
    assert (result.outcome, result.inserted, result.checkpoint) == (Outcome.ADVANCED, 3, 8)
    first.close()
    second = open_file()
    assert read(second) == (8, {-3: (2, row(-3, 2)[3]), 1: (5, b""), 2: (8, row(2, 8)[3])})
    with second.snapshot() as snapshot:
        assert snapshot.witnesses == [(9, 8)]


def test_many_rows_of_any_bytes(open_file):
    rows = [(oid, oid, oid % 16, os.urandom(oid % 900)) for oid in range(3 * BATCH_ROWS + 7)]
    rows[5] = (5, 5, 5, os.urandom(3_000_000))
    cache_file = open_file(limit_bytes=100_000_000)
    assert advance(cache_file, 9999, *rows).inserted == len(rows)
    with cache_file.snapshot() as snapshot:
        assert list(snapshot.rows(LATEST, 100_000_000)) == rows
        assert snapshot.row_count == len(rows)
        assert snapshot.state_bytes == sum(len(one[3]) for one in rows)


def test_ahead_deletes_what_its_log_names(cache_file):
    advance(cache_file, 5, row(1, 2), row(2, 3), row(3, 5), witnesses=[(1, 2), (3, 5)])
    result = advance(cache_file, 9, row(1, 8), names=log_of((1, 8), (2, 9), (7, 6)))
    assert (result.outcome, result.deleted, result.inserted) == (Outcome.ADVANCED, 2, 1)
    assert read(cache_file)[0] == 9
    assert tids(cache_file) == {1: 8, 3: 5}
    with cache_file.snapshot() as snapshot:
        assert snapshot.witnesses == [(3, 5)]
        assert (snapshot.row_count, snapshot.state_bytes) == (2, len(row(1, 8)[3]) * 2)


def test_oid_named_twice_counts_by_its_newest_name(cache_file):
    advance(cache_file, 5, row(1, 4))
    advance(cache_file, 9, names=lambda since: [(1, 7), (1, 3)])
    assert tids(cache_file) == {}


def test_many_names(cache_file):
    count = 2 * BATCH_ROWS + 1
    advance(cache_file, 5, *(row(oid, 5) for oid in range(count + 1)))
    result = advance(cache_file, 6, names=log_of(*((oid, 6) for oid in range(count))))
    assert result.deleted == count
    assert tids(cache_file) == {count: 5}


def test_behind_writes_nothing(cache_file):
    advance(cache_file, 8, row(1, 8))
    result = advance(cache_file, 7, row(1, 5), row(2, 6), witnesses=[(2, 6)])
    assert (result.outcome, result.checkpoint) == (Outcome.BEHIND, 8)
    assert tids(cache_file) == {1: 8}
    with cache_file.snapshot() as snapshot:
        assert snapshot.witnesses == []


def test_equal_inserts_what_the_file_lacks(cache_file):
    advance(cache_file, 8, row(1, 8))
    result = advance(cache_file, 8, row(1, 8, b"must stay out"), row(2, 6))
    assert (result.outcome, result.inserted) == (Outcome.ADVANCED, 1)
    assert read(cache_file)[1] == {1: (8, row(1, 8)[3]), 2: (6, row(2, 6)[3])}


def test_nothing_new_writes_nothing(cache_file):
    advance(cache_file, 8, row(1, 8), witnesses=[(1, 8)])
    size_bytes = os.path.getsize(cache_file.path + "-wal")
    result = advance(cache_file, 8, row(1, 8), witnesses=[(1, 8)])
    assert result.outcome is Outcome.UNCHANGED
    assert os.path.getsize(cache_file.path + "-wal") == size_bytes
    assert advance(cache_file, 9).outcome is Outcome.ADVANCED
    assert os.path.getsize(cache_file.path + "-wal") > size_bytes


def test_newer_row_replaces_an_older_one_that_nobody_named(cache_file):
    advance(cache_file, 8, row(1, 4, b"four"))
    assert advance(cache_file, 9, row(1, 9, b"number nine")).inserted == 1
    assert read(cache_file)[1] == {1: (9, b"number nine")}
    with cache_file.snapshot() as snapshot:
        assert (snapshot.row_count, snapshot.state_bytes) == (1, 11)


def test_older_row_never_replaces_a_newer_one(cache_file):
    advance(cache_file, 8, row(1, 7))
    assert advance(cache_file, 9, row(1, 4)).inserted == 0
    assert tids(cache_file) == {1: 7}


def test_another_generation_writes_nothing(cache_file):
    advance(cache_file, 8, row(1, 8))
    cache_file.reset(1)
    result = advance(cache_file, 9, row(2, 9), generation=1)
    assert (result.outcome, result.generation) == (Outcome.STALE_GENERATION, 2)
    assert read(cache_file) == (0, {})


def test_reset_of_another_generation_does_nothing(cache_file):
    cache_file.reset(1)
    advance(cache_file, 8, row(1, 8), witnesses=[(1, 8)])
    cache_file.reset(1)
    assert tids(cache_file) == {1: 8}
    cache_file.reset(2)
    assert read(cache_file) == (0, {})
    assert generation_of(cache_file) == 3


def test_log_too_short_starts_over(cache_file):
    advance(cache_file, 5, row(1, 2), row(2, 3), witnesses=[(2, 3)])
    result = advance(cache_file, 9, row(3, 4), names=log_too_short, witnesses=[(3, 4)])
    assert (result.outcome, result.deleted, result.inserted) == (Outcome.ADVANCED, 2, 1)
    assert read(cache_file)[0] == 9
    assert tids(cache_file) == {3: 4}
    with cache_file.snapshot() as snapshot:
        assert snapshot.witnesses == [(3, 4)]


def test_names_are_asked_for_from_the_checkpoint_found_in_the_file(open_file):
    behind, ahead = open_file(), open_file()
    advance(behind, 4, row(1, 2))
    advance(ahead, 7)
    asked = []
    advance(behind, 9, names=lambda since: asked.append(since) or [])
    assert asked == [7]


@pytest.mark.parametrize("when", ["names", "rows"])
def test_callers_exception_rolls_back_and_passes(cache_file, when):
    advance(cache_file, 5, row(1, 2))

    def names(since):
        if when == "names":
            raise KeyError("the caller's")
        return [(1, 7)]

    def rows():
        yield row(2, 6)
        raise KeyError("the caller's")

    with pytest.raises(KeyError, match="the caller's"):
        cache_file.advance(9, 1, names, rows(), [])
    assert read(cache_file) == (5, {1: (2, row(1, 2)[3])})
    assert advance(cache_file, 9).outcome is Outcome.ADVANCED


def test_unproven_row_is_our_bug(cache_file):
    with pytest.raises(AssertionError, match="I1"):
        advance(cache_file, 8, row(1, 9))
    assert read(cache_file) == (0, {})


def test_newest_witnesses_are_kept(cache_file):
    names = [(oid, oid + 1) for oid in range(WITNESSES_KEPT + 10)]
    advance(cache_file, 1000, witnesses=names[:40])
    advance(cache_file, 1001, witnesses=[*names[30:], (5000, 1002)])
    with cache_file.snapshot() as snapshot:
        assert snapshot.witnesses == names[: -WITNESSES_KEPT - 1 : -1]


class TestReading:
    """Which rows come when not all fit."""

    def fill(self, cache_file, frequencies):
        rows = (row(oid, 1, bytes(1000), f) for oid, f in enumerate(frequencies))
        return advance(cache_file, 5, *rows)

    def test_reading_prefers_the_hottest(self, cache_file):
        self.fill(cache_file, [oid % 10 for oid in range(200)])
        with cache_file.snapshot() as snapshot:
            found = list(snapshot.rows(LATEST, 50_500))
        assert len(found) == 50
        assert sorted(row[2] for row in found) == [7] * 10 + [8] * 20 + [9] * 20

    def test_reading_leaves_out_later_rows(self, cache_file):
        advance(cache_file, 8, row(1, 3), row(2, 8), row(3, 5))
        with cache_file.snapshot() as snapshot:
            assert [row[0] for row in snapshot.rows(5, 10**9)] == [1, 3]
            assert [row[0] for row in snapshot.rows(5, 20)] == [1]
            assert list(snapshot.rows(5, 0)) == []


class TestSchedules:
    """Those of the design that the file alone decides."""

    def test_3_queued_row_is_not_current_any_more(self, open_file):
        a, c = open_file(), open_file()
        advance(a, 6, row(1, 5))
        queued = row(1, 5)
        advance(c, 9, row(1, 9), names=log_of((1, 9)))
        assert advance(a, 6, queued).outcome is Outcome.BEHIND
        assert tids(a) == {1: 9}

    def test_3_also_when_the_deleted_row_was_not_replaced(self, open_file):
        a, c = open_file(), open_file()
        advance(a, 6, row(1, 5))
        advance(c, 9, names=log_of((1, 9)))
        assert advance(a, 6, row(1, 5)).outcome is Outcome.BEHIND
        assert read(a) == (9, {})

    def test_4_overtaken_between_deciding_and_writing(self, open_file):
        a, b = open_file(), open_file()
        generation = generation_of(a)
        advance(b, 12, row(1, 11))
        result = a.advance(7, generation, log_of(), iter([row(1, 3), row(2, 3)]), [])
        assert (result.outcome, result.checkpoint) == (Outcome.BEHIND, 12)
        assert read(a) == (12, {1: (11, row(1, 11)[3])})

    def test_2_snapshot_keeps_row_and_checkpoint_together(self, open_file):
        a, b = open_file(), open_file()
        advance(a, 6, row(1, 5))
        with b.snapshot() as before:
            advance(a, 9, names=log_of((1, 9)))
            assert before.checkpoint == 6
            assert [one[:2] for one in before.rows(LATEST, 1000)] == [(1, 5)]
        with b.snapshot() as after:
            assert after.checkpoint == 9
            assert list(after.rows(LATEST, 1000)) == []
