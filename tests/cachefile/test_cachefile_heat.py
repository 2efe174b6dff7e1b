"""How often rows are asked for: told by several processes, added up, ageing, never in the way."""

from __future__ import annotations

import os

import pytest
from cachefile_helpers import advance
from cachefile_helpers import check_totals
from cachefile_helpers import execute
from cachefile_helpers import frequencies
from cachefile_helpers import generation_of
from cachefile_helpers import log_of
from cachefile_helpers import query
from cachefile_helpers import row
from cachefile_helpers import tids

from zodbcache._core._store import Batch
from zodbcache.cachefile import Outcome

X, Y, Z = 7, 8, 9


def heat_of(cache_file):
    return dict(query(cache_file.path, "SELECT oid, frequency FROM heat"))


def grow_older(open_file, cache_file, years=1):
    """Trims in which only rows of no value went, each of which raised the age by one."""
    small = open_file(limit_bytes=5000)
    with cache_file.snapshot() as snapshot:
        through = snapshot.checkpoint
    for year in range(years):
        rows = (row(10_000 + number, 1, bytes(200), 0) for number in range(40))
        advance(cache_file, through, *rows)
        assert small.trim() > 0
        with cache_file.snapshot() as snapshot:
            assert snapshot.age >= year + 1


@pytest.fixture
def warmed(cache_file):
    """x@5 asked for 3 times, y@5 asked for 9 times, 4 of them after it was written; z@5 never."""
    advance(cache_file, 10, row(X, 5, frequency=3), row(Y, 5, frequency=5), row(Z, 5))
    assert cache_file.warm(1, [(Y, 5, 4)]) == 0
    assert frequencies(cache_file) == {X: 3, Y: 9, Z: 0}
    assert heat_of(cache_file).keys() == {Y}
    return cache_file


class TestAdding:
    def test_over_processes_and_saves(self, open_file):
        a, b = open_file(), open_file()
        advance(a, 10, row(X, 5, frequency=1))
        for times, process in enumerate((b, a, b), start=2):
            advance(process, 10, row(X, 5, frequency=2))
            assert frequencies(a) == {X: 2 * times - 1}

    def test_of_the_same_row_only(self, cache_file):
        advance(cache_file, 10, row(X, 5, frequency=3))
        advance(cache_file, 10, row(X, 4, frequency=9))
        assert frequencies(cache_file) == {X: 3}
        advance(cache_file, 10, row(X, 6, frequency=2))
        assert frequencies(cache_file) == {X: 2}

    def test_never_beyond_what_memory_counts(self, warmed):
        for _ in range(3):
            advance(warmed, 10, row(X, 5, frequency=15))
            warmed.warm(1, [(Y, 5, 15), (Z, 5, 100)])
        assert frequencies(warmed) == {X: 15, Y: 15, Z: 15}
        assert max(heat_of(warmed).values()) == 15

    def test_warming(self, warmed):
        warmed.warm(1, [(X, 5, 2), (Y, 5, 1), (Z, 5, 1)])
        assert frequencies(warmed) == {X: 5, Y: 10, Z: 1}
        warmed.warm(1, [(X, 5, 2)])
        assert frequencies(warmed)[X] == 7

    def test_warming_does_not_rewrite_the_row(self, warmed):
        record = query(warmed.path, "SELECT * FROM record")
        warmed.warm(1, [(X, 5, 2), (Y, 5, 2)])
        advance(warmed, 10, row(X, 5, frequency=1))
        assert query(warmed.path, "SELECT * FROM record") == record

    def test_warming_what_is_another_revision_or_gone(self, warmed):
        warmed.warm(1, [(X, 4, 5), (Y, 6, 5), (99, 5, 5)])
        assert frequencies(warmed) == {X: 3, Y: 9, Z: 0}
        assert heat_of(warmed).keys() == {Y}

    def test_warming_in_another_generation(self, warmed):
        warmed.warm(2, [(X, 5, 5)])
        assert frequencies(warmed)[X] == 3
        warmed.reset(1)
        advance(warmed, 10, row(X, 5))
        warmed.warm(1, [(X, 5, 5)])
        assert frequencies(warmed) == {X: 0}

    def test_nothing_to_add_writes_nothing(self, warmed):
        size_bytes = os.path.getsize(warmed.path + "-wal")
        assert advance(warmed, 10, row(X, 5), row(Y, 5)).outcome is Outcome.UNCHANGED
        warmed.warm(1, [(X, 5, 0), (Y, 4, 9)])
        warmed.warm(1, [])
        assert os.path.getsize(warmed.path + "-wal") == size_bytes

    def test_in_a_batch(self, warmed):
        given = Batch([row(X, 5, frequency=1), row(Y, 6, frequency=2), row(99, 3, frequency=4)])
        result = warmed.advance(10, 1, lambda since: [(Y, 6)], [given], [])
        assert (result.inserted, result.deleted) == (2, 1)
        assert frequencies(warmed) == {X: 4, Y: 2, Z: 0, 99: 4}
        check_totals(warmed.path)

    def test_what_was_warmed_is_read_first(self, warmed):
        warmed.warm(1, [(Z, 5, 15)])
        with warmed.snapshot() as snapshot:
            size_bytes = len(row(Z, 5)[3])
            assert {one[0] for one in snapshot.rows(10, size_bytes)} == {Z}
            assert {one[0] for one in snapshot.rows(10, 2 * size_bytes)} == {Y, Z}


class TestAgeing:
    def test_with_every_trim(self, open_file, warmed):
        before = frequencies(warmed)
        for year in range(1, 5):
            grow_older(open_file, warmed)
            found = frequencies(warmed)
            assert (found[X], found[Y]) == (max(before[X] - year, 0), before[Y] - year)

    def test_what_is_added_later_counts_from_then(self, open_file, warmed):
        grow_older(open_file, warmed, years=2)
        assert warmed.warm(1, [(X, 5, 5), (Y, 5, 15)]) == 2
        advance(warmed, 10, row(99, 5, frequency=6))
        found = frequencies(warmed)
        assert (found[X], found[Y], found[99]) == (3 - 2 + 5, 15, 6)

    def test_what_has_cooled_starts_from_nothing(self, open_file, warmed):
        grow_older(open_file, warmed, years=6)
        assert frequencies(warmed)[X] == 0
        warmed.warm(1, [(X, 5, 2)])
        assert frequencies(warmed)[X] == 2

    def test_a_reader_of_single_rows_ages_them_too(self, open_file, warmed):
        grow_older(open_file, warmed, years=2)
        reader = warmed.reader()
        try:
            assert reader.read(X).rows[0][2] == 1
        finally:
            reader.close()


class TestVanishing:
    """No frequency outlives its row."""

    @pytest.fixture(autouse=True)
    def nothing_is_left(self, warmed):
        yield
        assert Y not in heat_of(warmed)
        check_totals(warmed.path)

    def test_replaced(self, warmed):
        advance(warmed, 20, row(Y, 15, frequency=1))
        assert frequencies(warmed)[Y] == 1

    def test_deleted(self, warmed):
        advance(warmed, 20, names=log_of((Y, 15)))
        advance(warmed, 20, row(Y, 15, frequency=1))
        assert frequencies(warmed)[Y] == 1

    def test_trimmed(self, open_file, warmed):
        with warmed.snapshot() as snapshot:
            limit_bytes = snapshot.size_bytes // 2
        advance(warmed, 10, *(row(100 + oid, 5, b"small", 15) for oid in range(20)))
        open_file(limit_bytes=limit_bytes).trim()
        assert Y not in tids(warmed)
        advance(warmed, 10, row(Y, 5, frequency=2))
        assert frequencies(warmed)[Y] == 2

    def test_reset(self, warmed):
        warmed.reset(generation_of(warmed))
        assert heat_of(warmed) == {}
        advance(warmed, 20, row(Y, 5, frequency=1))
        assert frequencies(warmed) == {Y: 1}

    def test_started_over(self, warmed):
        """By somebody whose log does not reach back."""
        advance(warmed, 20, row(Y, 5, frequency=1), names=lambda since: None)
        assert frequencies(warmed) == {Y: 1}


@pytest.mark.parametrize("frequency", [-(2**63), -1, 16, 2**63 - 1])
def test_any_number_may_stand_there(warmed, frequency):
    """It has no checksum."""
    execute(warmed.path, f"UPDATE heat SET frequency = {frequency}")
    assert frequencies(warmed)[Y] == (15 if frequency > 0 else 0)
    warmed.warm(1, [(Y, 5, 1)])
    assert frequencies(warmed)[Y] == (15 if frequency > 0 else 1)
    assert heat_of(warmed)[Y] in range(16)
