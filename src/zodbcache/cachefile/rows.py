"""Rows in bulk: batches, checksums, insertion and deletion.

Guarantees: a batch is one call into the C core, which lets other threads run
once and not once a row (to get the GIL back may take 5 ms); a row is replaced
by a newer one only (I6); what each change does to the number of rows and to
their bytes is told.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Final
from typing import NamedTuple

from zodbcache._core._store import Batch
from zodbcache._core._store import checksum as checksum
from zodbcache.cachefile.connection import Connection

Row = tuple[int, int, int, bytes]  # oid, tid, frequency, state
Name = tuple[int, int]  # oid, tid
Gain = tuple[int, int, int]  # oid, tid, requests

BATCH_ROWS: Final = 1000
BATCH_BYTES: Final = 4 * 1024 * 1024


class Change(NamedTuple):
    """How many rows came or went, and what that does to the totals."""

    changed: int
    row_count: int
    state_bytes: int


def batches(rows: Iterable[Batch] | Iterable[Row], *, through: int) -> Iterator[Batch]:
    """*rows* in batches of at most BATCH_ROWS rows and about BATCH_BYTES.

    The oids must ascend and no tid be above *through*.
    """
    batch: list[Row] = []
    batch_bytes = 0
    for row in rows:
        if isinstance(row, Batch):
            yield row
            continue
        assert row[1] <= through, f"I1: {row[1]:#x} is not proven through {through:#x}"
        assert not batch or batch[-1][0] < row[0], "oids ascend"
        batch.append(row)
        batch_bytes += len(row[3])
        if len(batch) == BATCH_ROWS or batch_bytes >= BATCH_BYTES:
            yield Batch(batch)
            batch = []
            batch_bytes = 0
    if batch:
        yield Batch(batch)


def insert(connection: Connection, batch: Batch, *, age: int) -> Change:
    """Write those of *batch* that the file lacks or has older.

    Of the others the frequencies are added to those in the file.  *age*: see
    :class:`zodbcache.cachefile.tier.Tier`.
    """
    with connection.bulk() as rows:
        return Change(*rows.insert(batch, age))


def delete_older(connection: Connection, names: Sequence[Name]) -> Change:
    """Delete each row and witness whose oid is in *names* with a greater tid."""
    newest: dict[int, int] = {}
    for oid, tid in names:
        newest[oid] = max(tid, newest.get(oid, tid))
    with connection.bulk() as rows:
        return Change(*rows.delete_older(sorted(newest.items())))


def warm(connection: Connection, gains: Sequence[Gain], *, age: int) -> int:
    """Add to the frequencies of rows; return how many were there still."""
    with connection.bulk() as rows:
        return rows.warm(gains, age)
