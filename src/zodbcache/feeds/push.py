"""The push feed: a plain storage's callbacks, turned into the invalidation log.

The feed stands between the base storage and whatever called ``registerDB``
on the wrapper.  Its callbacks run under the base's locks or on ZEO's event
loop, touch memory only, and name a change before they pass it on (I3, I10).
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from threading import RLock
from typing import Any

from ZODB.interfaces import IStorageWrapper
from zope.interface import implementer

from zodbcache.forking import call_after_fork
from zodbcache.ids import to_int
from zodbcache.invalidations import InvalidationLog


@implementer(IStorageWrapper)
class PushFeed:
    """What the base storage sees as its database.

    *is_continuous*: ``f()``, False while the base's connection has come back
    but has not said so yet: what it pushes then follows a gap.  *on_break*:
    ``f()``, called when a broken log may be mended; must return at once.
    """

    def __init__(
        self,
        log: InvalidationLog,
        *,
        is_continuous: Callable[[], bool],
        on_break: Callable[[], None],
    ) -> None:
        self._log = log
        self._is_continuous = is_continuous
        self._on_break = on_break
        self.db: Any = None
        self._told = b""  # the newest tid pushed since the last gap
        self._begin()
        call_after_fork(self._begin)

    def _begin(self) -> None:
        self._telling = RLock()  # may be held around the database's own locks

    def newest(self, tid: bytes) -> bytes:
        """What to poll when the base says *tid*: never less than the database was told.

        A base such as ZEO's raises its last tid some time after it has pushed.
        A connection born meanwhile is not told any more; if it polled the tid
        before, it would keep what it then reads, across the change.
        """
        with self._telling:
            return max(tid, self._told) if self._told else tid

    def invalidate(self, transaction_id: bytes, oids: Sequence[bytes], version: str = "") -> None:
        """Somebody else committed."""
        if not self._is_continuous():
            self._log.break_()
        tid = to_int(transaction_id)
        self._log.name(tid, list(oids))
        with self._telling:
            if self.db is not None:
                if self._log.broken:
                    self.db.invalidateCache()  # it may have missed what the log missed
                self.db.invalidate(transaction_id, oids)
            self._told = transaction_id
        self._log.advance(tid)
        if self._log.broken:
            self._on_break()

    def invalidateCache(self) -> None:
        """The base storage was disconnected and may have missed anything."""
        self._log.break_()
        with self._telling:
            if self.db is not None:
                self.db.invalidateCache()
            self._told = b""  # the base may have gone back in time
        self._on_break()

    def references(self, record: bytes, oids: list[bytes] | None = None) -> list[bytes]:
        """The oids in a record; the database knows."""
        found: list[bytes] = self.db.references(record, oids)
        return found

    def transform_record_data(self, data: bytes) -> bytes:
        """As the database stores it."""
        return data if self.db is None else self.db.transform_record_data(data)

    def untransform_record_data(self, data: bytes) -> bytes:
        """As the database reads it."""
        return data if self.db is None else self.db.untransform_record_data(data)
