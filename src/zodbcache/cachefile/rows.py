"""Rows in bulk: checksums, batches, insertion and deletion.

Guarantees: a batch of hundreds of rows is one SQLite step (each step drops
the GIL and may wait 5 ms for it); a row is replaced by a newer one only (I6);
what each change does to the number of rows and to their bytes is told.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final
from typing import NamedTuple

from zodbcache.cachefile.connection import Connection

Row = tuple[int, int, int, bytes]  # oid, tid, frequency, state
Name = tuple[int, int]  # oid, tid

BATCH_ROWS: Final = 400
BATCH_BYTES: Final = 4 * 1024 * 1024

_IDS: Final = Struct(">qq")


class Change(NamedTuple):
    """How many rows came or went, and what that does to the totals."""

    changed: int
    row_count: int
    state_bytes: int


def checksum(oid: int, tid: int, state: bytes) -> int:
    """CRC-32 over oid and tid, 8 signed big-endian bytes each, then the state.

    The frequency is a hint, and not covered.
    """
    return zlib.crc32(state, zlib.crc32(_IDS.pack(oid, tid)))


def row_batches(rows: Iterable[Row], *, through: int) -> Iterator[list[Row]]:
    """Cut *rows* into lists of at most BATCH_ROWS rows and about BATCH_BYTES.

    The oids must ascend and no tid be above *through*.
    """
    batch: list[Row] = []
    batch_bytes = 0
    for row in rows:
        oid, tid, _, state = row
        assert tid <= through, f"I1: {tid:#x} is not proven through {through:#x}"
        assert not batch or batch[-1][0] < oid, "oids ascend"
        batch.append(row)
        batch_bytes += len(state)
        if len(batch) == BATCH_ROWS or batch_bytes >= BATCH_BYTES:
            yield batch
            batch = []
            batch_bytes = 0
    if batch:
        yield batch


def insert(connection: Connection, batch: Sequence[Row], *, age: int) -> Change:
    """Write those of *batch* that the file lacks or has older.

    *age*: see :class:`zodbcache.cachefile.tier.Tier`.
    """
    present, replaced, replaced_bytes = _compare(connection, [row[:2] for row in batch])
    new = [row for row in batch if row[0] not in present]
    if not new:
        return Change(0, 0, 0)
    bindings: list[int | bytes] = []
    for oid, tid, frequency, state in new:
        bindings += (oid, tid, frequency + age, checksum(oid, tid, state), state)
    connection.run(_insert_sql(len(new)), tuple(bindings))
    new_bytes = sum(len(row[3]) for row in new)
    return Change(len(new), len(new) - replaced, new_bytes - replaced_bytes)


def delete_older(connection: Connection, names: Sequence[Name]) -> Change:
    """Delete each row whose oid is in *names* with a greater tid."""
    deleted = deleted_bytes = 0
    for batch in _name_batches(names):
        found = connection.rows(_select_older_sql(len(batch)), _flat(batch))
        count, size_bytes = found[0]
        if count:
            connection.run(_delete_older_sql("record", len(batch)), _flat(batch))
            deleted += count
            deleted_bytes += size_bytes
    return Change(deleted, -deleted, -deleted_bytes)


def delete_older_witnesses(connection: Connection, names: Sequence[Name]) -> int:
    """Delete each witness whose oid is in *names* with a greater tid; return how many."""
    return sum(
        connection.run(_delete_older_sql("witness", len(batch)), _flat(batch))
        for batch in _name_batches(names)
    )


def _compare(connection: Connection, batch: Sequence[Name]) -> tuple[frozenset[int], int, int]:
    """What the file has of *batch*: the oids not older there; number and bytes of the older."""
    sql = _compare_sql(len(batch))
    present, older, older_bytes = connection.rows(sql, _flat(batch))[0]
    return frozenset(map(int, present.split(","))) if present else frozenset(), older, older_bytes


def _name_batches(names: Sequence[Name]) -> Iterator[list[Name]]:
    """The newest name of each oid, by oid, in lists of at most BATCH_ROWS."""
    newest: dict[int, int] = {}
    for oid, tid in names:
        newest[oid] = max(tid, newest.get(oid, tid))
    ordered = sorted(newest.items())
    for start in range(0, len(ordered), BATCH_ROWS):
        yield ordered[start : start + BATCH_ROWS]


def _flat(names: Sequence[Name]) -> tuple[int, ...]:
    return tuple(number for name in names for number in name)


def _values(columns: int, count: int) -> str:
    row = "(" + ",".join("?" * columns) + ")"
    return "VALUES " + ",".join([row] * count)


@lru_cache(maxsize=64)
def _compare_sql(count: int) -> str:
    return f"""\
WITH given(oid, tid) AS ({_values(2, count)})
SELECT group_concat(given.oid) FILTER (WHERE record.tid >= given.tid),
       count(*) FILTER (WHERE record.tid < given.tid),
       coalesce(sum(octet_length(record.state)) FILTER (WHERE record.tid < given.tid), 0)
FROM given CROSS JOIN record ON record.oid = given.oid"""


@lru_cache(maxsize=64)
def _select_older_sql(count: int) -> str:
    return f"""\
WITH given(oid, tid) AS ({_values(2, count)})
SELECT count(*), coalesce(sum(octet_length(record.state)), 0)
FROM given CROSS JOIN record ON record.oid = given.oid WHERE record.tid < given.tid"""


@lru_cache(maxsize=64)
def _delete_older_sql(table: str, count: int) -> str:
    return f"""\
WITH given(oid, tid) AS ({_values(2, count)})
DELETE FROM {table} WHERE oid IN (
    SELECT kept.oid FROM given CROSS JOIN {table} AS kept ON kept.oid = given.oid
    WHERE kept.tid < given.tid)"""


@lru_cache(maxsize=64)
def _insert_sql(count: int) -> str:
    return f"""\
INSERT INTO record(oid, tid, frequency, checksum, state) {_values(5, count)}
ON CONFLICT(oid) DO UPDATE SET
    tid = excluded.tid, frequency = excluded.frequency,
    checksum = excluded.checksum, state = excluded.state
WHERE excluded.tid > record.tid"""
