"""The file as of one moment.

Guarantees: checkpoint, witnesses and rows come from one SQLite read
transaction, so they fit each other (I1); a row that does not fit its checksum
is left out; nothing read is ever unpickled (I8).

While a snapshot is open, SQLite cannot reuse what was appended to the WAL
after it began: one that stays open long lets the ``-wal`` file grow.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from typing import Final
from typing import NamedTuple

from zope.interface import implementer

from zodbcache.cachefile.connection import Connection
from zodbcache.cachefile.merge import read_witnesses
from zodbcache.cachefile.rows import Name
from zodbcache.cachefile.rows import Row
from zodbcache.cachefile.rows import checksum
from zodbcache.cachefile.tier import MAX_FREQUENCY
from zodbcache.cachefile.tier import Tier
from zodbcache.cachefile.tier import read_tier
from zodbcache.cachefile.trim import histogram
from zodbcache.interfaces import IFileSnapshot

logger = logging.getLogger(__name__)

_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**63 - 1


class _Filter(NamedTuple):
    """Which rows: tid up to *through*, stored frequency within the bounds."""

    through: int
    lowest: int = _SMALLEST
    highest: int = _LARGEST


@implementer(IFileSnapshot)
class Snapshot:
    """See IFileSnapshot.  Usable inside the ``with`` block that gave it.

    *row_count*, *state_bytes*: of all rows.  *skipped*: how many rows
    ``rows()`` has left out so far because they are damaged.
    """

    def __init__(self, connection: Connection, tier: Tier, witnesses: list[Name]) -> None:
        self._connection = connection
        self._age = tier.age
        self._is_open = True
        self._streams: list[Generator[tuple[Any, ...], None, None]] = []
        self.checkpoint = tier.checkpoint
        self.generation = tier.generation
        self.identity = tier.identity
        self.row_count = tier.row_count
        self.state_bytes = tier.state_bytes
        self.size_bytes = tier.size_bytes
        self.witnesses = witnesses
        self.skipped = 0

    def rows(self, through: int, limit_bytes: int) -> Iterator[Row]:
        """Yield ``(oid, tid, frequency, state)`` with ``tid <= through``.

        When not all fit *limit_bytes*, the hottest do; either way they come
        by oid within what fits, since sorting them would cost more than
        reading them.  Raises CacheFileError.
        """
        self._require_open()
        left_bytes = limit_bytes
        for chosen in self._hottest(through, limit_bytes):
            for row in self._sound_rows(chosen):
                left_bytes -= len(row[3])
                if left_bytes < 0:
                    return
                yield row

    def newest(self, count: int) -> list[Name]:
        """``(oid, tid)`` of the newest rows, newest first.  Reads the whole file."""
        self._require_open()
        return self._connection.rows(
            "SELECT oid, CAST(tid AS INTEGER) FROM record ORDER BY tid DESC, oid LIMIT ?", (count,)
        )

    def close(self) -> None:
        """Say once what was left out; ``rows()`` must not be used any more."""
        self._is_open = False
        for stream in self._streams:
            stream.close()
        if self.skipped:
            logger.warning(
                "Left out %d damaged rows of cache file %s; they are read from the database",
                self.skipped,
                self._connection.path,
            )

    def _hottest(self, through: int, limit_bytes: int) -> list[_Filter]:
        """What to read: all that is hotter than some frequency, then some rows at it."""
        if self.state_bytes <= limit_bytes:
            return [_Filter(through)]
        total_bytes = 0
        for frequency, _, state_bytes in reversed(histogram(self._connection, through=through)):
            total_bytes += state_bytes
            if total_bytes > limit_bytes:
                return [
                    _Filter(through, lowest=frequency + 1),
                    _Filter(through, lowest=frequency, highest=frequency),
                ]
        return [_Filter(through)]

    def _sound_rows(self, chosen: _Filter) -> Iterator[Row]:
        """The chosen rows that fit their checksums, by oid.

        A column of the wrong type becomes some number or some bytes here, and
        its row does not fit its checksum.
        """
        stream = self._connection.stream(
            "SELECT oid, CAST(tid AS INTEGER), CAST(frequency AS INTEGER), checksum,"
            " CAST(ifnull(state, '') AS BLOB) FROM record"
            " WHERE tid <= ? AND frequency BETWEEN ? AND ? ORDER BY oid",
            chosen,
        )
        self._streams.append(stream)
        for oid, tid, frequency, expected, state in stream:
            if checksum(oid, tid, state) == expected:
                yield oid, tid, min(max(frequency - self._age, 0), MAX_FREQUENCY), state
                self._require_open()
            else:
                self.skipped += 1

    def _require_open(self) -> None:
        assert self._is_open, "rows() was used after its snapshot"


@contextmanager
def take_snapshot(connection: Connection) -> Iterator[Snapshot]:
    """One read transaction.  Raises CacheFileError."""
    with connection.transaction("read", write=False):
        snapshot = Snapshot(connection, read_tier(connection), read_witnesses(connection))
        try:
            yield snapshot
        finally:
            snapshot.close()
