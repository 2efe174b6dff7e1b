"""Single rows, while the process runs.

One read transaction stays open over many reads: that makes a read two to
three times faster, and its checkpoint is read once.  It is renewed while in
use, and ended when idle, so that SQLite can reuse its WAL.

Guarantees: row, checkpoint and generation are of one SQLite snapshot (I1); a
row that does not fit its checksum is left out; a fork's child reads nothing
(I9).  Callable from any thread.
"""

from __future__ import annotations

import logging
from threading import Lock
from threading import Timer
from time import monotonic
from typing import Final
from typing import NamedTuple

from zodbcache._core._store import SQLiteError
from zodbcache.cachefile.connection import Connection
from zodbcache.cachefile.rows import Row
from zodbcache.cachefile.tier import Tier
from zodbcache.cachefile.tier import read_tier
from zodbcache.errors import CacheFileError

logger = logging.getLogger(__name__)

RENEW_SECONDS: Final = 0.05
"""How old the snapshot of a read may be."""

IDLE_SECONDS: Final = 0.5
"""How long a snapshot outlives its last read, about."""


class Found(NamedTuple):
    """Rows as of one moment of the file, current through *checkpoint*."""

    checkpoint: int
    generation: int
    rows: list[Row]


class RowReader:
    """Reads rows by oid over a connection of its own, which it closes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = Lock()
        self._tier: Tier | None = None  # of the open transaction
        self._rows = connection.bulk_rows
        self._stale_at = self._used = 0.0
        self._timer: Timer | None = None
        self._has_complained = False

    def read(self, oid: int, *, ahead: int = 0) -> Found:
        """The row of *oid*, if there is one, and rows of the *ahead* next oids.

        Raises CacheFileError.
        """
        with self._lock:
            now = self._used = monotonic()
            tier = self._tier
            if tier is None or now >= self._stale_at:
                tier = self._begin(now)
            try:
                found, damaged = self._rows.read(oid, ahead, tier.age)
            except SQLiteError as exc:
                self._end()
                raise self._connection.translate_code(exc) from exc
        if damaged:
            level = logging.INFO if self._has_complained else logging.WARNING
            logger.log(level, "Left out %d damaged rows of cache file %s", damaged, self.path)
            self._has_complained = True
        return Found(tier.checkpoint, tier.generation, found)

    @property
    def path(self) -> str:
        """Of the file."""
        return self._connection.path

    def renew(self) -> None:
        """The next read sees the file as it is then."""
        with self._lock:
            self._end()

    def close(self, *, quickly: bool = False) -> None:
        """Give the file back.  May be called twice.  Raises CacheFileError.

        *quickly*: to open it again at once.
        """
        with self._lock:
            timer, self._timer = self._timer, None
            if timer is not None:
                timer.cancel()
            self._end()
            self._connection.close(quickly=quickly)

    @property
    def is_damaged(self) -> bool:
        """Whether the contents were found malformed."""
        return self._connection.damaged

    def abandon(self) -> None:
        """In a fork's child: let go of what is the parent's, whose threads may hold the lock."""
        self._tier = None
        self._connection.close()

    def _begin(self, now: float) -> Tier:
        """A fresh transaction; what the file says of itself in it."""
        self._end()
        self._connection.begin_read()
        try:
            self._tier = read_tier(self._connection)
        except CacheFileError:
            self._end()
            raise
        self._stale_at = now + RENEW_SECONDS
        if self._timer is None:
            self._watch()
        return self._tier

    def _end(self) -> None:
        self._tier = None
        self._connection.end_read()

    def _watch(self) -> None:
        self._timer = Timer(IDLE_SECONDS, self._end_if_idle)
        self._timer.daemon = True
        self._timer.start()

    def _end_if_idle(self) -> None:
        with self._lock:
            if self._timer is None:
                return
            if monotonic() < self._used + IDLE_SECONDS:
                self._watch()
            else:
                self._timer = None
                self._end()
