"""Trimming: the least value a byte goes first, in small steps, and the file shrinks."""

from __future__ import annotations

import os
import random
from itertools import pairwise

import apsw
import pytest
from cachefile_helpers import LATEST
from cachefile_helpers import advance
from cachefile_helpers import check_totals
from cachefile_helpers import execute
from cachefile_helpers import frequencies
from cachefile_helpers import generation_of
from cachefile_helpers import log_of
from cachefile_helpers import make_version_1
from cachefile_helpers import query
from cachefile_helpers import read
from cachefile_helpers import row
from cachefile_helpers import tids

from zodbcache.cachefile import ROW_OVERHEAD_BYTES
from zodbcache.cachefile import Outcome
from zodbcache.cachefile import trim as trimming

SIZE_BYTES = 1000
ROW_BYTES = SIZE_BYTES + ROW_OVERHEAD_BYTES
LIMIT_ROWS = 100

#: Rows whose values differ by less count as of one value: eight classes double it.
ONE_CLASS = 9 / 8


@pytest.fixture
def full(open_file):
    """A file that may have a hundred rows of 1000 bytes."""
    return open_file(limit_bytes=LIMIT_ROWS * ROW_BYTES)


def fill(cache_file, frequencies, *, first_oid=0, through=5):
    rows = (row(first_oid + i, 1, bytes(SIZE_BYTES), f) for i, f in enumerate(frequencies))
    return advance(cache_file, through, *rows)


def age_of(cache_file):
    with cache_file.snapshot() as snapshot:
        return snapshot.age


def size_of(cache_file):
    with cache_file.snapshot() as snapshot:
        return snapshot.size_bytes


def pages_of(cache_file):
    """How many pages it has, and how many of them are free."""
    ((pages,),) = query(cache_file.path, "PRAGMA page_count")
    ((free,),) = query(cache_file.path, "PRAGMA freelist_count")
    return pages, free


class TestValue:
    """How often, a byte."""

    def test_least_frequent_go_first(self, full):
        fill(full, [oid % 10 for oid in range(200)])
        trimmed = full.trim()
        kept = tids(full).keys()
        assert trimmed == 200 - len(kept)
        assert size_of(full) == len(kept) * ROW_BYTES
        assert 80 <= len(kept) <= 90
        gone = set(range(200)) - kept
        assert max(oid % 10 for oid in gone) <= min(oid % 10 for oid in kept)

    def test_of_rows_of_all_sizes(self, open_file):
        cache_file = open_file(limit_bytes=300_000)
        chance = random.Random(0)
        rows = {
            oid: row(oid, 1, bytes(int(20 * 200 ** chance.random())), chance.randrange(16))
            for oid in range(1000)
        }
        advance(cache_file, 5, *rows.values())
        cache_file.trim()
        value = {oid: (f + 1) / (len(state) + 40) for oid, _, f, state in rows.values()}
        kept = tids(cache_file).keys()
        gone = rows.keys() - kept
        assert kept and gone
        assert max(value[oid] for oid in gone) <= min(value[oid] for oid in kept) * ONE_CLASS
        assert 0.85 * 300_000 <= size_of(cache_file) <= 0.9 * 300_000
        check_totals(cache_file.path)

    def test_a_large_row_that_is_wanted_outlives_small_ones_that_are_not(self, open_file):
        cache_file = open_file(limit_bytes=30_000)
        large = [row(oid, 1, bytes(1000), 15) for oid in range(20)]
        small = [row(100 + oid, 1, bytes(100), 0) for oid in range(100)]
        advance(cache_file, 5, *large, *small)
        assert cache_file.trim() > 0
        assert set(range(20)) < tids(cache_file).keys()

    def test_a_small_row_outlives_large_ones_wanted_a_little_more(self, open_file):
        cache_file = open_file(limit_bytes=30_000)
        small = [row(oid, 1, bytes(100), 1) for oid in range(100)]
        large = [row(100 + oid, 1, bytes(1000), 3) for oid in range(20)]
        advance(cache_file, 5, *small, *large)
        assert cache_file.trim() > 0
        assert set(range(100)) < tids(cache_file).keys()

    def test_within_the_limit_nothing_goes(self, full):
        paused = []
        fill(full, [0] * LIMIT_ROWS)
        assert full.trim(lambda: paused.append(1)) == 0
        assert (len(tids(full)), age_of(full), paused) == (LIMIT_ROWS, 0, [])
        fill(full, [0], first_oid=LIMIT_ROWS)
        assert full.trim() > 0

    def test_within_the_limit_nothing_is_written(self, full):
        fill(full, [0] * LIMIT_ROWS)
        size_bytes = os.path.getsize(full.path + "-wal")
        full.trim()
        assert os.path.getsize(full.path + "-wal") == size_bytes

    def test_an_advance_tells_when_it_is_too_large(self, full):
        assert fill(full, [0] * LIMIT_ROWS).size_bytes == full.limit_bytes
        result = fill(full, [0], first_oid=LIMIT_ROWS)
        assert result.size_bytes == full.limit_bytes + ROW_BYTES
        full.trim()
        assert advance(full, 5).size_bytes == size_of(full)

    @pytest.mark.parametrize("seed", range(10))
    def test_few_large_rows_of_one_value(self, open_file, seed):
        """An even choice among three may choose none."""
        cache_file = open_file(limit_bytes=20_000)
        chance = random.Random(seed)
        advance(cache_file, 5, *(row(oid, 1, chance.randbytes(8000), 3) for oid in range(3)))
        assert cache_file.trim() > 0
        assert size_of(cache_file) <= cache_file.limit_bytes

    def test_row_above_the_limit_goes(self, open_file):
        cache_file = open_file(limit_bytes=500)
        fill(cache_file, [3])
        assert cache_file.trim() == 1
        assert tids(cache_file) == {}

    @pytest.mark.parametrize("frequency", [0, 7])
    def test_rows_of_one_value_go_by_no_order(self, full, frequency):
        """What was written together does not go together."""
        fill(full, [frequency] * 200)
        full.trim()
        kept = tids(full).keys()
        assert 70 <= len(kept) <= 90
        assert all(20 <= len(kept & set(range(n, n + 100))) <= 60 for n in (0, 50, 100))

    def test_frequency_out_of_range_is_clamped(self, full):
        """It has no checksum: any number may stand there."""
        fill(full, [4] * 200)
        execute(full.path, "UPDATE record SET frequency = 1000000 * (oid - 50) - 500000")
        assert set(frequencies(full).values()) == {0, 15}
        execute(full.path, "UPDATE record SET frequency = (oid % 4 - 2) << 62")
        full.trim()
        assert len(tids(full)) <= 90
        assert {oid for oid in range(200) if oid % 4 == 3} <= tids(full).keys()


class TestAgeing:
    def test_a_trim_is_a_year(self, full):
        fill(full, [4] * 101)
        full.trim()
        assert age_of(full) == 1
        full.trim()
        assert age_of(full) == 1, "nothing had to go"
        assert set(frequencies(full).values()) == {3}

    def test_what_comes_later_is_as_young_as_what_came_first_was(self, full):
        fill(full, [4] * 101)
        full.trim()
        fill(full, [4], first_oid=500)
        assert frequencies(full)[500] == 4

    def test_what_was_hot_long_ago_goes(self, full):
        fill(full, [15] * 50)
        for first_oid in range(100, 3000, 100):
            fill(full, [8] * 100, first_oid=first_oid)
            full.trim()
        assert min(tids(full)) >= 100

    def test_what_is_hot_still_stays(self, full):
        fill(full, [15] * 50)
        for first_oid in range(100, 3000, 100):
            full.warm(1, [(oid, 1, 2) for oid in range(50)])
            fill(full, [8] * 100, first_oid=first_oid)
            full.trim()
        assert set(range(50)) < tids(full).keys()

    def test_heat_raises_the_value(self, full):
        fill(full, [0] * 200)
        hot = set(range(0, 200, 3))
        full.warm(1, [(oid, 1, 3) for oid in sorted(hot)])
        full.trim()
        assert hot < tids(full).keys()
        check_totals(full.path)

    def test_a_frequency_far_below_the_age_weighs_less_and_less(self, full):
        fill(full, [0] * 60)
        execute(full.path, "UPDATE record SET frequency = -100 - oid % 2 * 1000")
        fill(full, [0] * 60, first_oid=100)
        full.trim()
        gone = set(range(60)) - tids(full).keys()
        assert gone == {oid for oid in range(60) if oid % 2}

    def test_the_hottest_tenth_survives_a_flood(self, full):
        """Filling far over the limit, again and again, and reading back what fits."""
        hot = range(10_000, 10_000 + LIMIT_ROWS // 10)
        chance = random.Random(0)
        fill(full, [15] * len(hot), first_oid=hot.start)
        for flood in range(12):
            full.warm(1, [(oid, 1, 15) for oid in hot])
            fill(full, [chance.randrange(4) for _ in range(300)], first_oid=flood * 300)
            full.trim()
            check_totals(full.path)
        assert set(hot) < tids(full).keys()
        with full.snapshot() as snapshot:
            found = snapshot.rows(LATEST, len(hot) * SIZE_BYTES)
            assert {oid for oid, *_ in found} == set(hot)


class TestSteps:
    """Small transactions, between which others read and write."""

    STEP_ROWS = 20

    @pytest.fixture(autouse=True)
    def small_steps(self, monkeypatch):
        monkeypatch.setattr(trimming, "STEP_ROWS", self.STEP_ROWS)

    @pytest.fixture
    def other(self, open_file, full):
        """Of another process; it does not wait for locks."""
        fill(full, [oid % 10 for oid in range(3 * LIMIT_ROWS)])
        return open_file(busy_timeout_ms=0)

    def test_no_transaction_deletes_more(self, full, other):
        counts = [3 * LIMIT_ROWS]

        def pause():
            check_totals(full.path)
            counts.append(len(tids(other)))

        trimmed = full.trim(pause)
        assert trimmed >= 2 * LIMIT_ROWS
        assert max(a - b for a, b in pairwise(counts)) == self.STEP_ROWS
        assert len([1 for a, b in pairwise(counts) if a > b]) >= 10

    def test_others_write_between_two_steps(self, full, other):
        written = []

        def pause():
            oid = 1000 + len(written)
            result = advance(other, 6 + len(written), row(oid, 6, b"written meanwhile"))
            assert result.outcome is Outcome.ADVANCED
            written.append(oid)

        full.trim(pause)
        assert len(written) >= 10
        assert set(written) < tids(full).keys()
        check_totals(full.path)

    def test_a_reader_goes_on_with_what_it_sees(self, full, other):
        with other.snapshot() as snapshot:
            full.trim()
            assert len(list(snapshot.rows(LATEST, 10**9))) == 3 * LIMIT_ROWS
        assert len(tids(other)) < LIMIT_ROWS

    def test_what_was_replaced_meanwhile_stays(self, full, other):
        """Rows that were to be deleted are asked for often all of a sudden."""
        changed = []

        def pause():
            if not changed:
                changed.extend(oid for oid in tids(other) if oid % 10 in (1, 3))
                rows = (row(oid, 9, bytes(SIZE_BYTES), 15) for oid in changed)
                advance(other, 9, *rows, names=log_of(*((oid, 9) for oid in changed)))

        full.trim(pause)
        assert len(changed) > 2 * self.STEP_ROWS
        found = tids(full)
        assert {oid: found.get(oid) for oid in changed} == dict.fromkeys(changed, 9)
        check_totals(full.path)

    def test_what_was_warmed_meanwhile_goes_with_its_heat(self, full, other):
        full.trim(lambda: other.warm(1, [(oid, 1, 3) for oid in sorted(tids(other))]))
        assert len(tids(full)) < LIMIT_ROWS
        check_totals(full.path)

    def test_what_was_deleted_meanwhile_is_gone(self, full, other):
        def pause():
            if tids(other):
                advance(other, 9, names=lambda since: [(oid, 9) for oid in range(3 * LIMIT_ROWS)])

        assert full.trim(pause) == self.STEP_ROWS
        assert tids(full) == {}
        check_totals(full.path)

    def test_a_reset_meanwhile_stops_it(self, full, other):
        """The same rows, written anew, are of another generation."""
        after = []

        def pause():
            if not after:
                other.reset(1)
                fill(other, [0] * LIMIT_ROWS)
            after.append(len(tids(other)))

        assert full.trim(pause) == self.STEP_ROWS
        assert set(after) == {LIMIT_ROWS}
        assert (age_of(full), generation_of(full)) == (0, 2)
        check_totals(full.path)

    def test_two_at_once_do_not_delete_twice_as_much(self, full, open_file):
        fill(full, [oid % 10 for oid in range(3 * LIMIT_ROWS)])
        second = open_file(limit_bytes=full.limit_bytes)
        trimmed = []

        def pause():
            if not trimmed:
                trimmed.append(second.trim())

        trimmed.append(full.trim(pause))
        assert len(tids(full)) == 3 * LIMIT_ROWS - sum(trimmed) >= 80
        assert age_of(full) == 1, "the two are one year"
        check_totals(full.path)

    def test_one_that_was_broken_off_is_taken_up(self, full, other):
        def interrupt():
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            full.trim(interrupt)
        assert len(tids(full)) == 3 * LIMIT_ROWS - self.STEP_ROWS
        check_totals(full.path)
        assert advance(full, 6, row(1000, 6)).outcome is Outcome.ADVANCED
        full.trim()
        assert 80 * ROW_BYTES < size_of(full) <= full.limit_bytes
        check_totals(full.path)

    def test_the_checkpoint_stays(self, full, other):
        seen = set()
        full.trim(lambda: seen.add(read(other)[0]))
        assert seen == {5}


class TestFile:
    """The file on disk."""

    def disk_bytes(self, cache_file):
        """After the last process has closed it."""
        cache_file.close()
        return os.path.getsize(cache_file.path)

    def lower(self, open_file, *, version_1=False):
        """A file of 3000 rows whose limit became that of a hundred; its pages before."""
        cache_file = open_file()
        fill(cache_file, [oid % 10 for oid in range(3000)])
        cache_file.close()
        if version_1:
            make_version_1(cache_file.path)
        pages = query(cache_file.path, "PRAGMA page_count")[0][0]
        return open_file(limit_bytes=LIMIT_ROWS * ROW_BYTES), pages

    @pytest.mark.parametrize("version_1", [False, True])
    def test_shrinks_when_the_limit_is_lowered(self, open_file, version_1):
        cache_file, before = self.lower(open_file, version_1=version_1)
        page_bytes = query(cache_file.path, "PRAGMA page_size")[0][0]
        assert before * page_bytes > 3000 * SIZE_BYTES
        assert page_bytes == (16384 if version_1 else 8192), "which a live file keeps"
        cache_file.trim()
        pages, free = pages_of(cache_file)
        assert free <= 0.15 * pages
        assert pages * 10 < before
        assert self.disk_bytes(cache_file) == pages * page_bytes
        assert query(cache_file.path, "PRAGMA integrity_check") == [("ok",)]

    def test_shrinks_in_small_steps(self, open_file, monkeypatch):
        monkeypatch.setattr(trimming, "_STEP_PAGES", 50)
        cache_file, before = self.lower(open_file)
        counts = [before]
        cache_file.trim(lambda: counts.append(pages_of(cache_file)[0]))
        steps = [a - b for a, b in pairwise(counts) if a > b]
        assert len(steps) >= 5
        assert max(steps) == 50

    def test_others_write_while_it_shrinks(self, open_file, monkeypatch):
        monkeypatch.setattr(trimming, "_STEP_PAGES", 50)
        cache_file, before = self.lower(open_file)
        other = open_file(busy_timeout_ms=0)
        written = []

        def pause():
            if pages_of(cache_file)[0] < before:
                written.append(advance(other, 6 + len(written), row(-1 - len(written), 6)))

        cache_file.trim(pause)
        assert len(written) >= 5
        assert {result.outcome for result in written} == {Outcome.ADVANCED}
        assert {-1 - number for number in range(len(written))} < tids(cache_file).keys()
        check_totals(cache_file.path)

    def test_what_is_free_but_little_is_left_for_what_comes(self, cache_file):
        fill(cache_file, [0] * 1000)
        advance(cache_file, 9, names=lambda since: [(oid, 9) for oid in range(100)])
        before = pages_of(cache_file)
        assert 0 < before[1] <= 0.15 * before[0]
        assert cache_file.trim() == 0
        assert pages_of(cache_file) == before

    def test_also_what_nobody_trimmed_shrinks(self, open_file):
        """Deleted by whoever advanced it."""
        cache_file = open_file()
        fill(cache_file, [0] * 3000)
        advance(cache_file, 9, names=lambda since: [(oid, 9) for oid in range(2900)])
        assert pages_of(cache_file)[1] > 300
        assert cache_file.trim() == 0
        pages, free = pages_of(cache_file)
        assert free <= 0.15 * pages
        assert len(tids(cache_file)) == 100

    def test_a_file_whose_creation_was_interrupted(self, open_file):
        """Somebody died after the header: it was fixed then that no page is given back."""
        cache_file = open_file()
        cache_file.close()
        os.remove(cache_file.path)
        execute(cache_file.path, "PRAGMA journal_mode = wal")
        cache_file, before = self.lower(open_file)
        pauses = []

        def pause():
            pauses.append(1)
            assert len(pauses) < 1000, "endless"

        cache_file.trim(pause)
        assert pages_of(cache_file)[0] * 10 < before

    @pytest.mark.parametrize(
        ("column", "damaged"),
        [
            ("state", [50]),
            ("tid", [50]),
            ("checksum", [50]),
            ("frequency", [50]),
            ("frequency", range(180)),
        ],
    )
    def test_damage_in_a_row_is_no_fault(self, full, column, damaged):
        """A flipped byte in a row's header may make any value NULL."""
        fill(full, [oid % 10 for oid in range(200)])
        make_null(full.path, column, damaged)
        full.trim()
        with full.snapshot() as snapshot:
            assert snapshot.size_bytes <= full.limit_bytes
            found = {oid for oid, *_ in snapshot.rows(LATEST, 50 * SIZE_BYTES)}
        assert found
        assert column == "frequency" or not found & set(damaged)


def make_null(path, column, oids):
    """What STRICT and NOT NULL forbid to everybody but a damaged disk."""
    connection = apsw.Connection(path)
    name = "SELECT sql FROM sqlite_schema WHERE name = 'record'"
    strict = connection.execute(name).get
    for sql in (strict.replace(" NOT NULL", ""), strict):
        connection.close()
        connection = apsw.Connection(path)
        connection.pragma("writable_schema", True)
        connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'record'", (sql,))
        connection.close()
        connection = apsw.Connection(path)
        if sql != strict:
            for oid in oids:
                connection.execute(f"UPDATE record SET {column} = NULL WHERE oid = ?", (oid,))
    connection.close()
