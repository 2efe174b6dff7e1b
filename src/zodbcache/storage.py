"""The storage that ZODB sees: it delegates, and decides nothing.

Reads go to the view.  Writes go to the base storage, and what they changed
to the invalidation log.  Everything else is the base's own: an attribute is
looked up there each time it is asked for, and exists only if the base has it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

import ZODB.BaseStorage
import ZODB.blob
from ZODB.interfaces import IBlobStorage
from ZODB.interfaces import IMVCCStorage
from ZODB.interfaces import IStorageWrapper
from ZODB.mvccadapter import MVCCAdapter
from ZODB.POSException import ConflictError
from zope.interface import alsoProvides
from zope.interface import implementer
from zope.interface import providedBy

from zodbcache.caretaker import Caretaker
from zodbcache.config import CacheOptions
from zodbcache.errors import ConfigurationError
from zodbcache.feeds import PushFeed
from zodbcache.feeds import catch_up_for
from zodbcache.ids import to_int
from zodbcache.invalidations import Change
from zodbcache.invalidations import InvalidationLog
from zodbcache.persistence import Persistence
from zodbcache.store import MemoryStore
from zodbcache.view import View

OWN_STATES_SHARE = 8
"""Of an own transaction's states at most one part in this many of the memory is kept."""


def wrap(base: Any, **options: Any) -> CachedStorage:
    """Put a cache before *base*, any plain ZODB storage, and return the storage to use instead.

    *options*: the fields of CacheOptions.  Raises ConfigurationError for an
    unknown or impossible option and for a base that cannot be wrapped.  A
    cache directory that cannot be used is a warning in the log, and a cache
    in memory.
    """
    checked = CacheOptions.from_mapping(options)
    _check_base(base)
    return CachedStorage(base, checked)


def _check_base(base: Any) -> None:
    needed = ("close", "lastTransaction", "loadBefore", "sortKey", "store", "tpc_finish")
    missing = [name for name in needed if not callable(getattr(base, name, None))]
    if missing or isinstance(base, type):
        raise ConfigurationError(
            f"{base!r} is not a ZODB storage" + (f": no {', '.join(missing)}" if missing else ""),
            option=None,
            remedy="Pass an open storage, such as ZODB.FileStorage.FileStorage('Data.fs')",
        )
    if IMVCCStorage.providedBy(base) or isinstance(base, MVCCAdapter):
        raise ConfigurationError(
            f"{type(base).__name__} does its own MVCC, and this release wraps plain storages only",
            option=None,
            remedy="Wrap FileStorage, MappingStorage, DemoStorage or ZEO's ClientStorage",
        )


class _Written:
    """What one transaction has written so far.

    *states*: the records as the caller gave them; None where the base storage
    makes its own (I4), or where keeping them would take too much memory.
    """

    __slots__ = ("bytes_left", "states", "undone")

    def __init__(self, bytes_max: int) -> None:
        self.states: dict[bytes, bytes | None] = {}
        self.undone: set[bytes] = set()
        self.bytes_left = bytes_max

    def store(self, oid: bytes, state: Any) -> None:
        if type(state) is bytes and len(state) <= self.bytes_left:
            self.bytes_left -= len(state)
            self.states[oid] = state
        else:
            self.states[oid] = None

    def change(self, oids: Sequence[bytes]) -> None:
        self.states.update(dict.fromkeys(oids))

    def undo(self, oids: Sequence[bytes]) -> None:
        self.change(oids)
        self.undone.update(oids)


@implementer(IStorageWrapper)
class CachedStorage:
    """A plain storage with the cache before it; made by wrap()."""

    loadBefore: Callable[[bytes, bytes], Any]
    """IStorage: the revision before a tid, from memory where that is right (I1)."""

    def __init__(self, base: Any, options: CacheOptions) -> None:
        self._base = base
        self._options = options
        self._store = MemoryStore(options.limit_bytes, options.object_max_bytes)
        self._log = InvalidationLog(self._store, deltas_max=options.cache_delta_size_limit)
        catch_up = catch_up_for(base)
        self._undo_goes_back = catch_up.undo_goes_back
        self._persistence = Persistence(options, catch_up, self._log, self._store)
        self._caretaker = Caretaker(self._log, catch_up, self._persistence, on_ready=self._provide)
        self._feed = PushFeed(
            self._log, is_continuous=catch_up.is_ready, on_break=self._caretaker.wake
        )
        self._writing: dict[int, _Written] = {}
        self._closed = False
        view = View(base, self._store, self._log, on_broken=self._caretaker.wake)
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

    def loadSerial(self, oid: bytes, serial: bytes) -> Any:
        """IStorage: asks the base storage, for a pack may have removed it."""
        return self._base.loadSerial(oid, serial)

    def lastTransaction(self) -> Any:
        """IStorage."""
        return self._base.lastTransaction()

    def __len__(self) -> int:
        return len(self._base)

    # Writing

    def tpc_begin(self, transaction: Any, *args: Any, **kwargs: Any) -> Any:
        """IStorage."""
        result = self._base.tpc_begin(transaction, *args, **kwargs)
        self._writing[id(transaction)] = _Written(self._options.limit_bytes // OWN_STATES_SHARE)
        self._caretaker.notice(to_int(self._base.lastTransaction()))
        return result

    def store(self, oid: bytes, serial: bytes, data: bytes, version: str, transaction: Any) -> Any:
        """IStorage."""
        with self._distrusting():
            result = self._base.store(oid, serial, data, version, transaction)
        self._writing[id(transaction)].store(oid, data)
        return result

    @contextmanager
    def _distrusting(self) -> Iterator[None]:
        """A conflict may come of a revision that should never have been cached."""
        try:
            yield
        except ConflictError as error:
            if error.oid is not None:
                self._store.forget(to_int(error.oid))
            raise

    def tpc_vote(self, transaction: Any) -> Any:
        """IStorage.  What the base resolved is not what the caller stored (I4)."""
        with self._distrusting():
            resolved = self._base.tpc_vote(transaction)
        if resolved:
            self._writing[id(transaction)].change(resolved)
        return resolved

    def tpc_abort(self, transaction: Any, *args: Any, **kwargs: Any) -> Any:
        """IStorage."""
        result = self._base.tpc_abort(transaction, *args, **kwargs)
        self._writing.pop(id(transaction), None)
        return result

    def tpc_finish(self, transaction: Any, func: Callable[[bytes], Any] = lambda tid: None) -> Any:
        """IStorage.  Names what changed before anybody hears of it (I3)."""
        written = self._writing.get(id(transaction), _Written(0))
        changes: list[Change] = []

        def finish(tid: bytes) -> None:
            changes.append(self._log.name(to_int(tid), list(written.states)))
            func(tid)

        result = self._base.tpc_finish(transaction, finish)
        self._writing.pop(id(transaction), None)
        for change in changes:
            self._committed(change, written)
        return result

    def _committed(self, change: Change, written: _Written) -> None:
        """The base storage is done with an own commit: now it counts, and exactly (I2)."""
        change.exact = True
        self._log.advance(change.tid)
        if self._undo_goes_back and written.undone:
            self._log.shun(written.undone)
        if self._log.broken:
            self._caretaker.wake()
        for oid, state in written.states.items():
            if state is not None:
                self._log.admit(oid, change.tid, 0, state, known=change.tid)

    def pack(self, *args: Any, **kwargs: Any) -> Any:
        """IStorage.  Whatever the base storage forgets must not be served any more."""
        try:
            return self._base.pack(*args, **kwargs)
        finally:
            self._persistence.forget()  # waits for rows on their way back
            self._log.forget_all()

    # Writing, where the base can

    def _check_current(self, oid: bytes, serial: bytes, transaction: Any) -> Any:
        with self._distrusting():
            return self._base.checkCurrentSerialInTransaction(oid, serial, transaction)

    def _undo(self, transaction_id: bytes, transaction: Any) -> Any:
        result = self._base.undo(transaction_id, transaction)
        if result:
            self._writing[id(transaction)].undo(result[1])
        return result

    def _restore(
        self, oid: bytes, serial: bytes, data: bytes, version: str, prev_txn: Any, transaction: Any
    ) -> Any:
        result = self._base.restore(oid, serial, data, version, prev_txn, transaction)
        self._writing[id(transaction)].change([oid])
        return result

    def _delete_object(self, oid: bytes, serial: bytes, transaction: Any) -> Any:
        result = self._base.deleteObject(oid, serial, transaction)
        self._writing[id(transaction)].change([oid])
        return result

    def _store_blob(
        self, oid: bytes, serial: bytes, data: bytes, blob: str, version: str, transaction: Any
    ) -> Any:
        with self._distrusting():
            result = self._base.storeBlob(oid, serial, data, blob, version, transaction)
        self._writing[id(transaction)].store(oid, data)
        return result

    def _restore_blob(
        self, oid: bytes, serial: bytes, data: bytes, blob: str, prev_txn: Any, transaction: Any
    ) -> Any:
        result = self._base.restoreBlob(oid, serial, data, blob, prev_txn, transaction)
        self._writing[id(transaction)].change([oid])
        return result

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

    def cache_stats(self) -> dict[str, int]:
        """Counters since the storage was opened, and sizes now, in bytes."""
        return {**self._store.stats(), "restored": self._persistence.restored}

    def close(self) -> None:
        """IStorage: save what the file lacks, and close the base storage."""
        try:
            if not self._closed:
                self._closed = True
                self._caretaker.stop()
                self._persistence.save()
                self._persistence.close()
                self._store.clear()
        finally:
            self._base.close()

    def __getattr__(self, name: str) -> Any:
        if name in _WITHHELD or (name.startswith("__") and name != "__name__"):
            raise AttributeError(name)
        value = getattr(self._base, name)
        own = _WHERE_THE_BASE_CAN.get(name)
        return value if own is None else getattr(self, own)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {self._base!r}>"


_WHERE_THE_BASE_CAN = {
    "checkCurrentSerialInTransaction": "_check_current",
    "copyTransactionsFrom": "_copy_transactions_from",
    "deleteObject": "_delete_object",
    "restore": "_restore",
    "restoreBlob": "_restore_blob",
    "storeBlob": "_store_blob",
    "undo": "_undo",
}
"""Methods that exist only if the base has them, and what stands for each here."""

_WITHHELD = frozenset(
    {"_base", "new_instance", "before_instance", "undo_instance", "poll_invalidations"}
)
"""What would hand the database children of the base, past the cache."""
