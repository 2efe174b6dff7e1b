"""What both families of wrapped storages have in common: the base does it, and we note what.

An attribute is looked up in the base storage each time it is asked for (a
base may swap its methods), and exists only if the base has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from typing import ClassVar

from ZODB.POSException import ConflictError

from zodbcache.cache import ProcessCache
from zodbcache.ids import to_int
from zodbcache.storage.written import Written


class DelegatingStorage:
    """Delegates everything to *base*, and notes what transactions write."""

    def __init__(self, base: Any, cache: ProcessCache) -> None:
        self._base = base
        self._cache = cache
        self._store = cache.store
        self._log = cache.log
        self._persistence = cache.persistence
        self._caretaker = cache.caretaker
        self._writing: dict[int, Written] = {}

    # Reading

    def loadSerial(self, oid: bytes, serial: bytes) -> Any:
        """IStorage: asks the base storage, for a pack may have removed it."""
        return self._base.loadSerial(oid, serial)

    def lastTransaction(self) -> Any:
        """IStorage."""
        return self._base.lastTransaction()

    def __len__(self) -> int:
        return len(self._base)

    # Writing

    def new_oid(self) -> Any:
        """IStorage."""
        return self._base.new_oid()

    def tpc_begin(self, transaction: Any, *args: Any, **kwargs: Any) -> Any:
        """IStorage."""
        result = self._base.tpc_begin(transaction, *args, **kwargs)
        self._writing[id(transaction)] = Written(self._cache.options.limit_bytes)
        return result

    def store(self, oid: bytes, serial: bytes, data: bytes, version: str, transaction: Any) -> Any:
        """IStorage."""
        try:
            result = self._base.store(oid, serial, data, version, transaction)
        except ConflictError as error:
            self._distrust(error)
            raise
        written = self._writing[id(transaction)]
        if type(data) is bytes and len(data) <= written.bytes_left:
            written.bytes_left -= len(data)
            written.states[oid] = data
        else:
            written.states[oid] = None
        return result

    def _distrust(self, error: ConflictError) -> None:
        """A conflict may come of a revision that should never have been cached."""
        if error.oid is not None:
            self._store.forget(to_int(error.oid))

    @contextmanager
    def _distrusting(self) -> Iterator[None]:
        try:
            yield
        except ConflictError as error:
            self._distrust(error)
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

    def pack(self, *args: Any, **kwargs: Any) -> Any:
        """IStorage.  Whatever the base storage forgets must not be served any more."""
        try:
            return self._base.pack(*args, **kwargs)
        finally:
            self._cache.forget()

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
        self._writing[id(transaction)].delete(oid)
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

    def _zap_all(self, *args: Any, **kwargs: Any) -> Any:
        """RelStorage: another database begins in the place of this one."""
        try:
            return self._base.zap_all(*args, **kwargs)
        finally:
            self._cache.begin_anew()

    def _cleanup(self) -> Any:
        """FileStorage: removes the database's files."""
        try:
            return self._base.cleanup()
        finally:
            self._cache.begin_anew()

    # The rest

    def cache_stats(self) -> dict[str, int]:
        """Counters since the storage was opened, and sizes now, in bytes."""
        return self._cache.counters()

    def cache_preload(self) -> None:
        """Bring back from the file what memory can hold, the most valuable first, and wait."""
        self._cache.preload()

    _where_the_base_can: ClassVar[dict[str, str]] = {
        "checkCurrentSerialInTransaction": "_check_current",
        "cleanup": "_cleanup",
        "copyTransactionsFrom": "_copy_transactions_from",
        "deleteObject": "_delete_object",
        "restore": "_restore",
        "restoreBlob": "_restore_blob",
        "storeBlob": "_store_blob",
        "undo": "_undo",
        "zap_all": "_zap_all",
    }
    """Methods that exist only if the base has them, and what stands for each here."""

    _withheld: ClassVar[frozenset[str]] = frozenset({"_base"})
    """What of the base nobody gets through us."""

    def __getattr__(self, name: str) -> Any:
        if name in self._withheld or (name.startswith("__") and name != "__name__"):
            raise AttributeError(name)
        value = getattr(self._base, name)
        own = self._where_the_base_can.get(name)
        return value if own is None else getattr(self, own)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {self._base!r}>"
