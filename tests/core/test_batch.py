"""Batches, checksums and the file's rows in bulk, as the C core has them."""

from __future__ import annotations

import gc
import os
import random
import struct
import subprocess
import sys
import weakref
import zlib
from itertools import pairwise

import apsw
import pytest

from zodbcache._core import _store
from zodbcache._core._store import Batch
from zodbcache._core._store import Rows
from zodbcache._core._store import SQLiteError
from zodbcache._core._store import checksum
from zodbcache.cachefile.schema import TABLES

EVERY_ROW = "SELECT oid, tid, frequency, checksum, state FROM record ORDER BY oid"
MANY = 10**9
LATEST = 2**63 - 1
LAST_CLASS = 1023
EDGES = [-(2**63), -1, 0, 1, 2**63 - 1]

#: oid, tid, frequency, state
ROWS = [(-5, 1, 0, b""), (0, 2**63 - 1, 15, b"root"), (7, 3, 4, bytes(range(256)) * 20)]


class TestChecksum:
    """zlib has the same one."""

    def expected(self, oid, tid, state):
        return zlib.crc32(struct.pack(">qq", oid, tid) + state)

    @pytest.mark.parametrize("length", range(101))
    def test_of_every_short_length(self, length):
        chance = random.Random(length)
        oid, tid = chance.randrange(-(2**63), 2**63), chance.randrange(2**63)
        state = chance.randbytes(length)
        assert checksum(oid, tid, state) == self.expected(oid, tid, state)

    @pytest.mark.parametrize("length", [1000, 4095, 65_536, 1_000_003])
    def test_of_a_long_state(self, length):
        state = random.Random(length).randbytes(length)
        assert checksum(1, 2, state) == self.expected(1, 2, state)

    @pytest.mark.parametrize("oid", EDGES)
    @pytest.mark.parametrize("tid", EDGES)
    def test_of_every_kind_of_id(self, oid, tid):
        assert checksum(oid, tid, b"state") == self.expected(oid, tid, b"state")

    def test_depends_on_each_byte(self):
        state = random.Random(0).randbytes(64)
        flipped = [
            checksum(1, 2, bytes([*state[:at], state[at] ^ 1, *state[at + 1 :]]))
            for at in range(len(state))
        ]
        assert len({checksum(1, 2, state), *flipped}) == len(state) + 1

    @pytest.mark.parametrize(
        "arguments",
        [(1, 2), (1, 2, b"", 3), (b"1", 2, b""), (1, None, b""), (1, 2, "text"), (1, 2, None)],
    )
    def test_bad_arguments(self, arguments):
        with pytest.raises(TypeError):
            checksum(*arguments)

    def test_an_id_that_is_too_large(self):
        with pytest.raises(OverflowError):
            checksum(2**63, 1, b"")


class TestBatch:
    def test_gives_its_rows_back(self):
        batch = Batch(ROWS)
        assert batch.rows() == ROWS
        assert len(batch) == 3
        assert batch.state_bytes == 4 + 256 * 20

    def test_empty(self):
        batch = Batch([])
        assert (batch.rows(), len(batch), batch.state_bytes) == ([], 0, 0)

    def test_grows(self):
        rows = [(oid, oid + 1, oid % 16, b"%d" % oid * (oid % 7)) for oid in range(1000)]
        assert Batch(rows).rows() == rows

    def test_keeps_nothing_of_what_it_was_given(self):
        rows = [(1, 2, 3, b"state")]
        batch = Batch(rows)
        rows.append((2, 2, 3, b"more"))
        rows[0] = None
        assert batch.rows() == [(1, 2, 3, b"state")]

    @pytest.mark.parametrize("rows", [((1, 2, 3, b"x"),), iter([(1, 2, 3, b"x")])])
    def test_any_iterable_will_do(self, rows):
        assert Batch(rows).rows() == [(1, 2, 3, b"x")]

    @pytest.mark.parametrize(
        ("rows", "error"),
        [
            (7, TypeError),
            (None, TypeError),
            ([None], TypeError),
            ([[1, 2, 3, b"x"]], TypeError),
            ([(1, 2, 3)], TypeError),
            ([(1, 2, 3, b"x", 4)], TypeError),
            ([(1, 2, 3, "text")], TypeError),
            ([(1, 2, 3, None)], TypeError),
            ([(b"1", 2, 3, b"x")], TypeError),
            ([(1, 2.5, 3, b"x")], TypeError),
            ([(2**63, 2, 3, b"x")], OverflowError),
            ([(1, 2, 3, b"good"), (1, 2, 3)], TypeError),
        ],
    )
    def test_bad_rows(self, rows, error):
        with pytest.raises(error):
            Batch(rows)

    def test_bad_arguments(self):
        with pytest.raises(TypeError):
            Batch()
        with pytest.raises(TypeError):
            Batch([], [])


@pytest.fixture
def connection():
    """A database of our tables, in memory."""
    connection = apsw.Connection(":memory:")
    connection.enable_load_extension(True)
    connection.load_extension(_store.__file__, "sqlite3_zodbcache_init")
    for statement in TABLES.values():
        connection.execute(statement)
    yield connection
    connection.close()


@pytest.fixture
def rows(connection):
    rows = Rows(connection)
    yield rows
    rows.close()


def scan(rows, *, age=0, lowest=0, highest=LAST_CLASS, through=LATEST):
    """All at once, and how many were damaged."""
    rows.scan(through)
    batch, damaged, done = rows.scan_next(MANY, MANY, age, lowest, highest)
    assert done
    return batch.rows(), damaged


def frequencies(rows, age=0):
    return {oid: frequency for oid, _, frequency, _ in scan(rows, age=age)[0]}


class TestRows:
    def test_inserts_what_is_not_there(self, connection, rows):
        assert rows.insert(Batch(ROWS), 0) == (3, 3, 4 + 256 * 20)
        assert list(connection.execute(EVERY_ROW)) == [
            (oid, tid, frequency, checksum(oid, tid, state), state)
            for oid, tid, frequency, state in ROWS
        ]

    def test_inserts_nothing(self, rows):
        assert rows.insert(Batch([]), 0) == (0, 0, 0)

    def test_replaces_what_is_older(self, rows):
        rows.insert(Batch([(1, 5, 3, b"five"), (2, 5, 3, b"five")]), 0)
        assert rows.insert(Batch([(1, 6, 1, b"number six"), (2, 4, 1, b"four")]), 0) == (1, 0, 6)
        assert rows.read(1, 0, 0) == ([(1, 6, 1, b"number six")], 0)
        assert rows.read(2, 0, 0) == ([(2, 5, 3, b"five")], 0)

    def test_adds_the_frequency_of_what_is_there(self, rows):
        rows.insert(Batch([(1, 5, 3, b"x"), (2, 5, 9, b"x")]), 0)
        assert rows.insert(Batch([(1, 5, 4, b"x"), (2, 5, 9, b"x")]), 0) == (0, 0, 0)
        assert frequencies(rows) == {1: 7, 2: 15}

    def test_stores_frequencies_with_the_age_and_gives_them_without(self, connection, rows):
        rows.insert(Batch([(1, 5, 3, b"x")]), 100)
        assert connection.execute("SELECT frequency FROM record").get == 103
        assert [rows.read(1, 0, age)[0][0][2] for age in (0, 99, 100, 102, 103, 1000)] == [
            15,
            4,
            3,
            1,
            0,
            0,
        ]

    def test_deletes_what_is_older_than_its_name(self, connection, rows):
        rows.insert(Batch([(oid, 5, 0, b"%d" % oid) for oid in (-1, 1, 2, 3)]), 0)
        connection.execute("INSERT INTO witness VALUES (1, 5), (2, 5), (9, 5)")
        assert rows.delete_older([(-1, 6), (1, 6), (2, 5), (9, 7), (10, 7)]) == (2, -2, -3)
        assert [row[0] for row in connection.execute(EVERY_ROW)] == [2, 3]
        assert list(connection.execute("SELECT oid FROM witness")) == [(2,)]

    def test_warms_rows_of_just_these_revisions(self, rows):
        rows.insert(Batch([(1, 5, 3, b"x"), (2, 5, 3, b"x"), (3, 5, 3, b"x")]), 10)
        assert rows.warm([(1, 5, 4), (2, 4, 4), (3, 5, 100), (9, 5, 4)], 10) == 2
        assert frequencies(rows, 10) == {1: 7, 2: 3, 3: 15}
        assert rows.warm([(1, 5, 1), [1, 5, 1]], 12) == 2
        assert frequencies(rows, 12) == {1: 7, 2: 1, 3: 13}

    def test_reads_ahead(self, rows):
        rows.insert(Batch([(oid, 5, 0, b"x") for oid in (*EDGES, 7, 9)]), 0)

        def read(oid, ahead):
            return [row[0] for row in rows.read(oid, ahead, 0)[0]]

        assert read(0, 0) == [0]
        assert read(5, 0) == []
        assert read(0, 9) == [0, 1, 7, 9]
        assert read(0, 8) == [0, 1, 7]
        assert read(-(2**63), 1) == [-(2**63)]
        assert read(2**63 - 1, 2**63 - 1) == [2**63 - 1]
        assert read(-(2**63), 2**63 - 1) == [-(2**63), -1]

    def test_scans_in_pieces(self, rows):
        rows.insert(Batch([(oid, 5, 0, bytes(10)) for oid in range(10)]), 0)
        rows.scan(LATEST)
        found = []
        done = False
        while not done:
            batch, damaged, done = rows.scan_next(3, MANY, 0, 0, LAST_CLASS)
            assert len(batch) <= 3 and damaged == 0
            found += [row[0] for row in batch.rows()]
        assert found == list(range(10))
        nothing = rows.scan_next(3, MANY, 0, 0, LAST_CLASS)
        assert nothing[1:] == (0, True), "nothing is being read any more"

    def test_scans_by_bytes(self, rows):
        rows.insert(Batch([(oid, 5, 0, bytes(10)) for oid in range(10)]), 0)
        rows.scan(LATEST)
        found = [rows.scan_next(MANY, 25, 0, 0, LAST_CLASS)[0] for _ in range(4)]
        assert [len(batch) for batch in found] == [3, 3, 3, 1]

    def test_scans_up_to_a_tid(self, rows):
        rows.insert(Batch([(oid, oid, 0, b"x") for oid in range(10)]), 0)
        assert [row[0] for row in scan(rows, through=4)[0]] == [0, 1, 2, 3, 4]
        assert scan(rows, through=-1) == ([], 0)

    def test_another_scan_takes_the_place_of_the_one_before(self, rows):
        rows.insert(Batch([(oid, oid, 0, b"x") for oid in range(10)]), 0)
        rows.scan(LATEST)
        rows.scan_next(3, MANY, 0, 0, LAST_CLASS)
        assert [row[0] for row in scan(rows, through=2)[0]] == [0, 1, 2]
        rows.scan(LATEST)
        rows.scan_end()
        rows.scan_end()
        assert rows.scan_next(3, MANY, 0, 0, LAST_CLASS)[2]

    @pytest.mark.parametrize(
        "damage",
        [
            "state = x'00'",
            "checksum = checksum + 1",
            "checksum = checksum + (1 << 32)",
            "checksum = -checksum",
            "tid = 4",
            "tid = -5",
        ],
    )
    def test_what_does_not_fit_its_checksum_is_counted_and_left_out(self, connection, rows, damage):
        rows.insert(Batch([(oid, 5, 0, b"x") for oid in range(1, 4)]), 0)
        connection.execute(f"UPDATE record SET {damage} WHERE oid = 2")
        assert rows.read(2, 0, 0) == ([], 1)
        found, damaged = rows.read(1, 5, 0)
        assert ([row[0] for row in found], damaged) == ([1, 3], 1)
        found, damaged = scan(rows)
        assert ([row[0] for row in found], damaged) == ([1, 3], 1)

    @pytest.mark.parametrize("value", ["NULL", "'text'", "1.5", "x'00'", "zeroblob(100)"])
    @pytest.mark.parametrize("column", ["tid", "frequency", "checksum", "state"])
    def test_a_value_of_any_type_is_no_fault(self, connection, rows, column, value):
        """A flipped byte may make one out of another, whatever STRICT says."""
        connection.execute("DROP TABLE record")
        connection.execute(TABLES["record"].replace(" NOT NULL", "").replace(" STRICT", ""))
        rows.insert(Batch([(1, 5, 0, b"x"), (2, 5, 0, b"x")]), 0)
        connection.execute(f"UPDATE record SET {column} = {value} WHERE oid = 2")
        is_sound = column == "frequency"
        assert [row[0] for row in rows.read(2, 0, 0)[0]] == [2] * is_sound
        found, damaged = scan(rows)
        assert [row[0] for row in found] == [1, 2][: 1 + is_sound]
        assert damaged <= 1
        assert sum(count for _, count, _ in rows.weigh(0)) == 2
        victims = rows.choose(0, LAST_CLASS, 1024)
        assert rows.delete_exactly(victims, 0, MANY)[:2] == (2, -2)

    @pytest.mark.parametrize("frequency", [-(2**63), -1, 2**63 - 1])
    @pytest.mark.parametrize("age", [0, 7, 2**62])
    def test_any_frequency_comes_back_within_its_range(self, connection, rows, frequency, age):
        rows.insert(Batch([(1, 5, 0, b"x")]), 0)
        connection.execute("UPDATE record SET frequency = ?", (frequency,))
        assert rows.read(1, 0, age)[0][0][2] == (15 if frequency > 0 else 0)

    def test_the_errors_of_sqlite(self, connection, rows):
        rows.insert(Batch([(1, 5, 0, b"x")]), 0)
        connection.execute("DROP TABLE heat")
        for call in (
            lambda: rows.delete_older([(2, 5)]),
            lambda: rows.delete_exactly(bytes(16), 0, 1),
            lambda: rows.warm([(1, 5, 1)], 0),
            lambda: rows.weigh(0),
            lambda: rows.choose(0, LAST_CLASS, 1024),
            lambda: rows.scan(LATEST),
        ):
            with pytest.raises(SQLiteError) as raised:
                call()
            code, message = raised.value.args
            assert code == apsw.SQLITE_ERROR
            assert "heat" in message
        assert rows.insert(Batch([(2, 5, 0, b"x")]), 0) == (1, 1, 1)
        assert rows.read(1, 0, 0) == ([(1, 5, 0, b"x")], 0), "the others go on"

    def test_an_error_in_the_middle_of_a_batch(self, connection, rows):
        """Whoever calls rolls back."""
        connection.execute("BEGIN")
        connection.execute(
            "CREATE TEMP TRIGGER refuse BEFORE INSERT ON record WHEN new.oid = 2"
            " BEGIN SELECT raise(ABORT, 'refused'); END"
        )
        with pytest.raises(SQLiteError, match="refused") as raised:
            rows.insert(Batch([(oid, 5, 0, b"x") for oid in range(4)]), 0)
        assert raised.value.args[0] & 0xFF == apsw.SQLITE_CONSTRAINT
        connection.execute("ROLLBACK")
        assert rows.insert(Batch([(oid, 5, 0, b"x") for oid in range(4)]), 0) == (4, 4, 4)

    @pytest.mark.parametrize(
        ("call", "error"),
        [
            (lambda rows: rows.read(1, 0), TypeError),
            (lambda rows: rows.read(b"1", 0, 0), TypeError),
            (lambda rows: rows.read(2**63, 0, 0), OverflowError),
            (lambda rows: rows.read(1, -1, 0), ValueError),
            (lambda rows: rows.read(1, 0, -1), ValueError),
            (lambda rows: rows.insert([], 0), TypeError),
            (lambda rows: rows.insert(Batch([])), TypeError),
            (lambda rows: rows.insert(Batch([]), None), TypeError),
            (lambda rows: rows.insert(Batch([]), -1), ValueError),
            (lambda rows: rows.delete_older(None), TypeError),
            (lambda rows: rows.delete_older([1]), TypeError),
            (lambda rows: rows.delete_older([(1,)]), TypeError),
            (lambda rows: rows.delete_older([(1, -1)]), ValueError),
            (lambda rows: rows.warm(None, 0), TypeError),
            (lambda rows: rows.warm([(1, 2)], 0), TypeError),
            (lambda rows: rows.warm([(1, 2, b"3")], 0), TypeError),
            (lambda rows: rows.warm([(1, 2, 3), 4], 0), TypeError),
            (lambda rows: rows.warm([], -1), ValueError),
            (lambda rows: rows.weigh(None), TypeError),
            (lambda rows: rows.weigh(-1), ValueError),
            (lambda rows: rows.choose(0, 1), TypeError),
            (lambda rows: rows.choose(0, None, 1), TypeError),
            (lambda rows: rows.choose(-1, 1, 1), ValueError),
            (lambda rows: rows.choose(0, -1, 1), ValueError),
            (lambda rows: rows.choose(0, 1, -1), ValueError),
            (lambda rows: rows.delete_exactly(b"", 0), TypeError),
            (lambda rows: rows.delete_exactly([(1, 5)], 0, 1), TypeError),
            (lambda rows: rows.delete_exactly(b"", -1, 1), ValueError),
            (lambda rows: rows.delete_exactly(b"", 0, -1), ValueError),
            (lambda rows: rows.scan(None), TypeError),
            (lambda rows: rows.scan(2**63), OverflowError),
            (lambda rows: rows.scan_next(1, 1, 0, 0), TypeError),
            (lambda rows: rows.scan_next(-1, 1, 0, 0, 1), ValueError),
            (lambda rows: rows.scan_next(1, 1, -1, 0, 1), ValueError),
            (lambda rows: rows.scan_next(1, 1, 0, -1, 1), ValueError),
            (lambda rows: rows.scan_next(1, 1, 0, 0, -1), ValueError),
        ],
    )
    def test_bad_arguments(self, rows, call, error):
        rows.insert(Batch(ROWS), 0)
        with pytest.raises(error):
            call(rows)
        assert rows.read(7, 0, 0) == ([ROWS[2]], 0)

    @pytest.mark.parametrize(
        "call",
        [
            lambda rows: rows.read(1, 0, 0),
            lambda rows: rows.insert(Batch([]), 0),
            lambda rows: rows.delete_older([]),
            lambda rows: rows.warm([], 0),
            lambda rows: rows.weigh(0),
            lambda rows: rows.choose(0, 0, 0),
            lambda rows: rows.delete_exactly(b"", 0, 0),
            lambda rows: rows.scan(LATEST),
            lambda rows: rows.scan_next(1, 1, 0, 0, 1),
        ],
    )
    def test_closed(self, connection, call):
        rows = Rows(connection)
        rows.scan(LATEST)
        rows.close()
        with pytest.raises(ValueError, match="closed"):
            call(rows)
        rows.scan_end()
        rows.close()

    def test_closing_lets_go_of_the_connection(self, connection):
        rows = Rows(connection)
        rows.scan(LATEST)
        rows.close()
        connection.close(True)
        with pytest.raises(apsw.ConnectionClosedError):
            Rows(connection)

    @pytest.mark.parametrize("connection", [None, object(), 7])
    def test_no_connection(self, connection):
        with pytest.raises(AttributeError):
            Rows(connection)


class TestWeighing:
    """Of value are requests, a byte."""

    def value(self, frequency, size):
        """As the page on the format has it."""
        return (frequency + 1 if frequency >= 0 else 1 / (1 - frequency)) / (size + 40)

    def weigh_each(self, connection, rows, frequencies_and_sizes, age=0):
        """``{class: values}``"""
        found = {}
        for frequency, size in frequencies_and_sizes:
            connection.execute("DELETE FROM record")
            connection.execute(
                "INSERT INTO record VALUES (1, 5, ?, 0, zeroblob(?))", (frequency + age, size)
            )
            ((value_class, count, state_bytes),) = rows.weigh(age)
            assert (count, state_bytes) == (1, size)
            found.setdefault(value_class, []).append(self.value(frequency, size))
        return found

    @pytest.mark.parametrize("age", [0, 1000])
    def test_classes_are_in_the_order_of_the_values(self, connection, rows, age):
        chance = random.Random(age)
        given = [(chance.randrange(-20, 16), int(2 ** chance.uniform(0, 17))) for _ in range(500)]
        found = self.weigh_each(connection, rows, given, age)
        assert len(found) > 50
        values = [sorted(found[one]) for one in sorted(found)]
        assert all(before[-1] < after[0] for before, after in pairwise(values))
        assert all(one[-1] / one[0] <= 9 / 8 for one in values), "eight double it"

    def test_no_value_is_out_of_range(self, connection, rows):
        frequencies = (-(2**63), -(2**62), 2**63 - 1)
        found = self.weigh_each(connection, rows, [(one, 1000) for one in frequencies])
        assert 0 <= min(found) <= max(found) <= LAST_CLASS
        assert self.weigh_each(connection, rows, [(15, 1000)]).keys() == {max(found)}

    def test_all_rows_by_class(self, rows):
        rows.insert(Batch([(oid, 5, 0, bytes(24)) for oid in range(10)]), 7)
        rows.insert(Batch([(oid, 5, 15, bytes(24)) for oid in range(10, 13)]), 7)
        rows.warm([(0, 5, 15)], 7)
        (least, *of_least), (most, *of_most) = rows.weigh(7)
        assert (of_least, of_most) == ([9, 9 * 24], [4, 4 * 24])
        assert most - least == 4 * 8, "sixteen times as much"
        assert [row[0] for row in scan(rows, age=7, lowest=most)[0]] == [0, 10, 11, 12]
        assert [row[0] for row in scan(rows, age=7, highest=least)[0]] == list(range(1, 10))
        assert scan(rows, age=7, lowest=least + 1, highest=most - 1) == ([], 0)

    def test_nothing(self, rows):
        assert rows.weigh(0) == []
        assert rows.choose(0, LAST_CLASS, 1024) == b""

    def names(self, packed):
        return [tuple(name) for name in struct.iter_unpack("=qq", packed)]

    def test_chooses_all_below_a_class(self, rows):
        rows.insert(Batch([(oid, 5 + oid, oid % 2 * 15, bytes(24)) for oid in range(10)]), 0)
        least, most = (one[0] for one in rows.weigh(0))
        cold = [(oid, 5 + oid) for oid in range(0, 10, 2)]
        assert self.names(rows.choose(0, least, 0)) == []
        assert self.names(rows.choose(0, least, 1024)) == cold
        assert self.names(rows.choose(0, most, 0)) == cold
        assert len(self.names(rows.choose(0, most, 1024))) == 10

    def test_chooses_a_share_of_a_class_evenly(self, rows):
        chance = random.Random(0)
        rows.insert(Batch([(oid, 5, 0, chance.randbytes(24)) for oid in range(4096)]), 0)
        ((value_class, _, _),) = rows.weigh(0)
        for share in (128, 512, 896):
            chosen = self.names(rows.choose(0, value_class, share))
            assert abs(len(chosen) - 4 * share) < 200
            assert abs(sum(oid < 2048 for oid, _ in chosen) - 2 * share) < 150

    def test_deletes_exactly_these_revisions(self, connection, rows):
        rows.insert(Batch([(oid, 5, 0, bytes(24)) for oid in range(10)]), 0)
        rows.warm([(2, 5, 3), (3, 5, 3)], 0)
        chosen = rows.choose(0, LAST_CLASS, 0)
        rows.insert(Batch([(3, 6, 1, b"newer")]), 0)
        rows.delete_older([(4, 6)])
        assert rows.delete_exactly(chosen, 0, 2) == (2, -2, -48)
        assert rows.delete_exactly(chosen, 2, 3) == (1, -1, -24), "one is newer, one gone"
        assert [row[0] for row in connection.execute(EVERY_ROW)] == [3, 5, 6, 7, 8, 9]
        assert list(connection.execute("SELECT * FROM heat")) == []
        assert rows.delete_exactly(chosen, 10, 5) == (0, 0, 0)
        assert rows.delete_exactly(chosen, 2**62, 2**62) == (0, 0, 0)
        assert rows.delete_exactly(chosen[:-1], 0, 2**62) == (4, -4, -96), "half a name is none"


def test_what_is_kept_is_never_freed():
    class Kept:
        pass

    kept = Kept()
    reference = weakref.ref(kept)
    _store.keep(kept)
    del kept
    gc.collect()
    assert reference() is not None


def test_rows_want_the_module_to_be_an_extension_first():
    script = (
        "import apsw; from zodbcache._core._store import Rows\n"
        "try: Rows(apsw.Connection(':memory:'))\n"
        "except RuntimeError as exc: print(exc)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert "as an extension" in process.stdout, process.stderr
