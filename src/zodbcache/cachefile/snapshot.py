"""The file as of one moment.

Guarantees: checkpoint, witnesses and rows come from one SQLite read
transaction, so they fit each other (I1); a row that does not fit its checksum
is left out; nothing read is ever unpickled (I8).

While a snapshot is open, SQLite cannot reuse what was appended to the WAL
after it began: one that stays open long lets the ``-wal`` file grow.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from zope.interface import implementer

from zodbcache._core._store import Batch
from zodbcache.cachefile.connection import Connection
from zodbcache.cachefile.merge import read_witnesses
from zodbcache.cachefile.rows import Name
from zodbcache.cachefile.rows import Row
from zodbcache.cachefile.tier import Tier
from zodbcache.cachefile.tier import read_tier
from zodbcache.cachefile.trim import classes
from zodbcache.interfaces import IFileSnapshot

logger = logging.getLogger(__name__)

_BATCH_ROWS: Final = 500
_BATCH_BYTES: Final = 512 * 1024

_LAST_CLASS: Final = 1023


@implementer(IFileSnapshot)
class Snapshot:
    """See IFileSnapshot.  Usable inside the ``with`` block that gave it.

    *row_count*, *state_bytes*: of all rows.  *skipped*: how many rows
    ``rows()`` has left out so far because they are damaged.
    """

    def __init__(self, connection: Connection, tier: Tier, witnesses: list[Name]) -> None:
        self._connection = connection
        self._tier = tier
        self._is_open = True
        self.checkpoint = tier.checkpoint
        self.generation = tier.generation
        self.age = tier.age
        self.identity = tier.identity
        self.row_count = tier.row_count
        self.state_bytes = tier.state_bytes
        self.size_bytes = tier.size_bytes
        self.witnesses = witnesses
        self.skipped = 0

    def rows(self, through: int, limit_bytes: int) -> Iterator[Row]:
        """As batches(), one by one: ``(oid, tid, frequency, state)``."""
        for batch in self.batches(through, limit_bytes):
            for row in batch.rows():
                yield row
                self._require_open()

    def batches(self, through: int, limit_bytes: int) -> Iterator[Batch]:
        """Yield the sound rows with ``tid <= through``.

        When not all fit *limit_bytes*, the most valuable come, those of the
        last class that fits last; either way by oid within what fits, since
        sorting them would cost more than reading them.  Raises CacheFileError.
        """
        self._require_open()
        left_bytes = limit_bytes
        for lowest, highest in self._ranges(limit_bytes):
            for batch in self._scan(through, lowest, highest):
                left_bytes -= batch.state_bytes
                if left_bytes < 0:
                    yield _first(batch, batch.state_bytes + left_bytes)
                    return
                yield batch

    def newest(self, count: int) -> list[Name]:
        """``(oid, tid)`` of the newest rows, newest first.  Reads the whole file."""
        self._require_open()
        return self._connection.rows(
            "SELECT oid, CAST(tid AS INTEGER) FROM record ORDER BY tid DESC, oid LIMIT ?", (count,)
        )

    def close(self) -> None:
        """Say once what was left out; ``rows()`` must not be used any more."""
        self._is_open = False
        with self._connection.bulk() as rows:
            rows.scan_end()
        if self.skipped:
            logger.warning(
                "Left out %d damaged rows of cache file %s; they are read from the database",
                self.skipped,
                self._connection.path,
            )

    def _ranges(self, limit_bytes: int) -> Iterator[tuple[int, int]]:
        """What to read: all that is worth more than some class, then some rows of it."""
        if self.state_bytes <= limit_bytes:
            yield 0, _LAST_CLASS
            return
        last = self._last_class(limit_bytes)
        yield last + 1, _LAST_CLASS
        yield last, last

    def _last_class(self, limit_bytes: int) -> int:
        """The class with which the states, from the most valuable on, pass *limit_bytes*."""
        total_bytes = 0
        for one in reversed(classes(self._connection, self._tier)):
            total_bytes += one.state_bytes
            if total_bytes > limit_bytes:
                return one.value
        return 0

    def _scan(self, through: int, lowest: int, highest: int) -> Iterator[Batch]:
        """A column of the wrong type becomes some number or some bytes, and does not fit."""
        age = self._tier.age
        with self._connection.bulk() as rows:
            rows.scan(through)
        done = False
        while not done:
            self._require_open()
            with self._connection.bulk() as rows:
                batch, damaged, done = rows.scan_next(
                    _BATCH_ROWS, _BATCH_BYTES, age, lowest, highest
                )
            self.skipped += damaged
            yield batch

    def _require_open(self) -> None:
        assert self._is_open, "rows() was used after its snapshot"


def _first(batch: Batch, limit_bytes: int) -> Batch:
    """The rows of *batch* from the beginning whose states have so many bytes."""
    kept: list[Row] = []
    for row in batch.rows():
        limit_bytes -= len(row[3])
        if limit_bytes < 0:
            break
        kept.append(row)
    return Batch(kept)


@contextmanager
def take_snapshot(connection: Connection) -> Iterator[Snapshot]:
    """One read transaction.  Raises CacheFileError."""
    with connection.transaction("read", write=False):
        snapshot = Snapshot(connection, read_tier(connection), read_witnesses(connection))
        try:
            yield snapshot
        finally:
            snapshot.close()
