"""The wrapper of plain storages: stateless, shared by all connections.

Reads go to the view.  Others' changes come by the push feed; own ones are
named in the base storage's callback when it finishes a transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import ZODB.BaseStorage
import ZODB.blob
from ZODB.interfaces import IBlobStorage
from ZODB.interfaces import IStorageWrapper
from zope.interface import alsoProvides
from zope.interface import implementer
from zope.interface import providedBy

from zodbcache.cache import ProcessCache
from zodbcache.config import CacheOptions
from zodbcache.feeds import PushFeed
from zodbcache.ids import to_int
from zodbcache.invalidations import Change
from zodbcache.storage.delegating import DelegatingStorage
from zodbcache.storage.written import Written
from zodbcache.view import View


@implementer(IStorageWrapper)
class CachedStorage(DelegatingStorage):
    """A plain storage with the cache before it; made by wrap()."""

    loadBefore: Callable[[bytes, bytes], Any]
    """IStorage: the revision before a tid, from memory where that is right (I1)."""

    def __init__(self, base: Any, options: CacheOptions) -> None:
        super().__init__(base, ProcessCache(base, options, on_ready=self._provide))
        self._undo_goes_back = self._cache.catch_up.undo_goes_back
        self._feed = PushFeed(
            self._log, is_continuous=self._cache.catch_up.is_ready, on_break=self._caretaker.wake
        )
        view = View(base, self._cache)
        self.loadBefore = view.load_before
        self._provide()
        register = getattr(base, "registerDB", None)
        if register is not None:
            register(self._feed)  # first, so that no change is missed meanwhile
        self._caretaker.attend(quickly=True)

    def _provide(self) -> None:
        """Provide what the base provides: some of it may be known only when connected."""
        alsoProvides(self, *providedBy(self._base))

    # Reading

    def load(self, oid: bytes, version: str = "") -> Any:
        """IStorage: the newest revision, which only the base storage knows."""
        return self._base.load(oid, version)

    def lastTransaction(self) -> Any:
        """IStorage: the base's, or what the database was told already."""
        return self._feed.newest(self._base.lastTransaction())

    # Writing

    def tpc_begin(self, transaction: Any, *args: Any, **kwargs: Any) -> Any:
        """IStorage."""
        result = super().tpc_begin(transaction, *args, **kwargs)
        self._caretaker.notice(to_int(self._base.lastTransaction()))
        return result

    def tpc_finish(self, transaction: Any, func: Callable[[bytes], Any] = lambda tid: None) -> Any:
        """IStorage.  Names what changed before anybody hears of it (I3)."""
        written = self._writing.get(id(transaction), Written())
        changes: list[Change] = []

        def finish(tid: bytes) -> None:
            changes.append(self._log.name(to_int(tid), list(written.states)))
            func(tid)

        result = self._base.tpc_finish(transaction, finish)
        self._writing.pop(id(transaction), None)
        for change in changes:
            self._committed(change, written)
        return result

    def _committed(self, change: Change, written: Written) -> None:
        """The base storage is done with an own commit: now it counts, and exactly (I2)."""
        change.exact = True
        self._log.advance(change.tid)
        if self._undo_goes_back and written.undone:
            self._log.shun(written.undone)
        self._log.admit_own(change.tid, written.states)
        self._cache.heed()

    def _copy_transactions_from(self, other: Any, *args: Any) -> None:
        """Through this storage, so that the copies are named like any commit."""
        if IBlobStorage.providedBy(self):
            ZODB.blob.copyTransactionsFromTo(other, self)
        else:
            ZODB.BaseStorage.copy(other, self, *args)

    # The database, and the rest

    def registerDB(self, db: Any) -> None:
        """IStorage: *db* hears of changes after the log has."""
        self._feed.db = db

    def invalidate(self, transaction_id: bytes, oids: Sequence[bytes], version: str = "") -> None:
        """IStorageWrapper: somebody committed to the base storage."""
        self._feed.invalidate(transaction_id, oids, version)

    def invalidateCache(self) -> None:
        """IStorageWrapper: somebody may have."""
        self._feed.invalidateCache()

    def references(self, record: bytes, oids: list[bytes] | None = None) -> Any:
        """IStorageWrapper."""
        return self._feed.references(record, oids)

    def transform_record_data(self, data: bytes) -> bytes:
        """IStorageWrapper: this storage changes no record."""
        return self._feed.transform_record_data(data)

    def untransform_record_data(self, data: bytes) -> bytes:
        """IStorageWrapper."""
        return self._feed.untransform_record_data(data)

    def close(self) -> None:
        """IStorage: save what the file lacks, and close the base storage."""
        try:
            self._cache.close()
        finally:
            self._base.close()

    _withheld = DelegatingStorage._withheld | {
        "new_instance",
        "before_instance",
        "undo_instance",
        "poll_invalidations",
    }
