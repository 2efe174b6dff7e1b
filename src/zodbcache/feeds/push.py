"""The push feed: a plain storage's callbacks, turned into the invalidation log.

The feed stands between the base storage and whatever called ``registerDB``
on the wrapper.  Its callbacks run under the base's locks or on ZEO's event
loop, touch memory only, and name a change before they pass it on (I3, I10).
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from ZODB.interfaces import IStorageWrapper
from zope.interface import implementer

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

    def invalidate(self, transaction_id: bytes, oids: Sequence[bytes], version: str = "") -> None:
        """Somebody else committed."""
        if not self._is_continuous():
            self._log.break_()
        tid = to_int(transaction_id)
        self._log.name(tid, list(oids))
        if self.db is not None:
            self.db.invalidate(transaction_id, oids)
        self._log.advance(tid)
        if self._log.broken:
            if self.db is not None:
                self.db.invalidateCache()  # it may have missed what the log missed
            self._on_break()

    def invalidateCache(self) -> None:
        """The base storage was disconnected and may have missed anything."""
        self._log.break_()
        if self.db is not None:
            self.db.invalidateCache()
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
