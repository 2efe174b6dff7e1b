"""The shared file of one database, as the rest of the cache sees it.

Guarantees: ICacheFile, and that nothing but CacheFileError leaves, except
what the caller's own callables raise inside ``advance``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager

import apsw
from zope.interface import implementer

from zodbcache._core._store import Batch
from zodbcache.cachefile import faults
from zodbcache.cachefile import merge
from zodbcache.cachefile import quarantine
from zodbcache.cachefile.connection import BUSY_TIMEOUT_MS
from zodbcache.cachefile.connection import Connection
from zodbcache.cachefile.merge import AdvanceResult
from zodbcache.cachefile.merge import NamesSince
from zodbcache.cachefile.reader import RowReader
from zodbcache.cachefile.rows import Gain
from zodbcache.cachefile.rows import Name
from zodbcache.cachefile.rows import Row
from zodbcache.cachefile.snapshot import Snapshot
from zodbcache.cachefile.snapshot import take_snapshot
from zodbcache.cachefile.trim import trim
from zodbcache.interfaces import ICacheFile


@implementer(ICacheFile)
class CacheFile:
    """See ICacheFile.  Made by :meth:`open`.

    *path*: where it is.  *identity*: of its database.  *limit_bytes*: what
    its rows may count, ROW_OVERHEAD_BYTES a row included; the file on disk
    can be larger by the unused part of its pages.
    """

    def __init__(
        self, connection: Connection, *, identity: str, limit_bytes: int, busy_timeout_ms: int
    ) -> None:
        self._connection = connection
        self._reading: Connection | None = None
        self._busy_timeout_ms = busy_timeout_ms
        self._seen_generation: int | None = None
        self._told: tuple[int, list[Name]] | None = None  # the last witnesses, and where
        self.path = connection.path
        self.identity = identity
        self.limit_bytes = limit_bytes

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        *,
        identity: str,
        prefix: str = "",
        limit_bytes: int,
        busy_timeout_ms: int = BUSY_TIMEOUT_MS,
    ) -> CacheFile:
        """The file of the database *identity* in *directory*; both are made if need be.

        Reads no rows.  A file that cannot be used is emptied or left alone
        (:mod:`zodbcache.cachefile.quarantine`), with one warning in the log.
        Raises CacheFileError when there is no file to use.
        """
        connection = quarantine.open_usable(
            os.fspath(directory), identity=identity, prefix=prefix, busy_timeout_ms=busy_timeout_ms
        )
        return cls(
            connection,
            identity=identity,
            limit_bytes=limit_bytes,
            busy_timeout_ms=busy_timeout_ms,
        )

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """One read transaction; no other method may be called inside it."""
        self._connection.require_open("read")
        if self._reading is None:
            self._reading = self._connect()
        with take_snapshot(self._reading) as snapshot:
            self._seen_generation = snapshot.generation
            yield snapshot

    @contextmanager
    def separate_snapshot(self) -> Iterator[Snapshot]:
        """As snapshot(), over a connection of its own: for any thread, and for as long as it takes.

        Raises CacheFileError.
        """
        connection = self._connect()
        try:
            with take_snapshot(connection) as snapshot:
                yield snapshot
        finally:
            self._connection.damaged |= connection.damaged
            connection.close()

    def reader(self) -> RowReader:
        """A reader of single rows, with a connection of its own.  Raises CacheFileError."""
        return RowReader(self._connect())

    def _connect(self) -> Connection:
        try:
            connection = Connection(self.path, busy_timeout_ms=self._busy_timeout_ms)
        except apsw.Error as exc:
            raise faults.translate(exc, self.path, "open") from exc
        connection.begin_wal()
        return connection

    def advance(
        self,
        through: int,
        generation: int,
        names_since: NamesSince,
        rows: Iterable[Batch] | Iterable[Row],
        witnesses: Iterable[Name],
    ) -> AdvanceResult:
        """The one atomic step (:mod:`zodbcache.cachefile.merge`).

        *witnesses* above *through* are not kept; their tids must be exact.
        """
        self._seen_generation = generation
        given = list(witnesses)
        result = merge.advance(
            self._connection,
            through=through,
            generation=generation,
            names_since=names_since,
            rows=rows,
            # Those that it has been told of cost each transaction some waits for the GIL.
            witnesses=() if (generation, given) == self._told else given,
        )
        if result.outcome in (merge.Outcome.ADVANCED, merge.Outcome.UNCHANGED):
            self._told = generation, given
        return result

    def warm(self, generation: int, gains: Sequence[Gain]) -> int:
        """Add to the frequencies of rows; return the file's age: they fade as it grows."""
        return merge.warm(self._connection, generation=generation, gains=gains)

    def trim(self, pause: Callable[[], bool] = lambda: False) -> int:
        """Keep to the limit (:mod:`zodbcache.cachefile.trim`); return how many rows went.

        *pause*: called between two transactions, none of which is long; True
        ends it before its time.
        """
        return trim(self._connection, limit_bytes=self.limit_bytes, pause=pause)

    def reset(self, generation: int) -> None:
        """Empty the file in place, unless its generation is not *generation* any more."""
        merge.empty(self._connection, generation=generation, identity=self.identity)

    def abandon(self) -> None:
        """In a fork's child: let go of what is the parent's."""
        self._connection.close()
        if self._reading is not None:
            self._reading.close()

    def mark_damaged(self) -> None:
        """A reader found the contents malformed: close() empties the file."""
        self._connection.damaged = True

    def close(self, *, quickly: bool = False) -> None:
        """Give the file back; empty it if it was found damaged.  May be called twice.

        *quickly*: to open it again at once.
        """
        damaged, self._connection.damaged = self._connection.damaged, False
        reading, self._reading = self._reading, None
        try:
            if reading is not None:
                damaged |= reading.damaged
                reading.close(quickly=True)
        finally:
            self._connection.close(quickly=quickly)
        if damaged:
            quarantine.heal(
                self.path,
                identity=self.identity,
                generation=self._seen_generation,
                busy_timeout_ms=self._busy_timeout_ms,
            )
