"""Databases under the cache of a process that forks: what survives a fork, and how.

- FileStorage, read-only: once the files that its readers share have been closed, so
  that nobody moves another process's place in them.
- RelStorage: once its connections have been dropped; it opens others.
- ZEO's client has a thread, and does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from threading import RLock
from typing import Any

from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.FileStorage.FileStorage import FilePool
from ZODB.interfaces import IMVCCStorage
from ZODB.POSException import POSKeyError
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from zodbcache.feeds.wrapped import innermost

WAIT_SECONDS = 30


def open_base(kind: str, address: Any, *, read_only: bool = True) -> Any:
    """*address*: ZEO's port, or the path of the others; *read_only*: a FileStorage."""
    if kind == "FileStorage":
        return FileStorage(address, read_only=read_only)
    if kind == "ZEO":
        from ZEO.ClientStorage import ClientStorage

        return ClientStorage(("127.0.0.1", address), wait_timeout=WAIT_SECONDS)
    from relstorage.adapters.sqlite.adapter import Sqlite3Adapter
    from relstorage.options import Options
    from relstorage.storage import RelStorage

    options = Options(keep_history=False, cache_local_mb=1, create_schema=True)
    adapter = Sqlite3Adapter(address, pragmas={"synchronous": "off"}, options=options)
    return RelStorage(adapter, options=options)


def let_go(storage: Any) -> None:
    """Before a fork: what the child must not share is opened again by whoever needs it."""
    base = innermost(vars(storage).get("_base", storage))
    if isinstance(base, FileStorage):
        base._files.empty()
    elif hasattr(base, "_load_connection"):
        base._load_connection.drop()
        base._store_connection_pool.drop_all()


def renew(storage: Any) -> None:
    """In a child: a FileStorage's own locks may have been held; they are not the question."""
    base = innermost(vars(storage)["_base"])
    if isinstance(base, FileStorage):
        base._files = FilePool(base._file_name)
        base._lock = RLock()


def read(storage: Any, oids: Iterable[int]) -> dict[int, str]:
    """What a new transaction sees."""
    if not IMVCCStorage.providedBy(storage):
        before = p64(u64(storage.lastTransaction()) + 1)
        return {oid: storage.loadBefore(p64(oid), before)[0].decode() for oid in oids}
    instance = storage.new_instance()
    try:
        instance.poll_invalidations()
        return {oid: instance.load(p64(oid))[0].decode() for oid in oids}
    finally:
        instance.release()


def commit(storage: Any, words: dict[int, str]) -> None:
    """One transaction."""
    is_native = IMVCCStorage.providedBy(storage)
    instance = storage.new_instance() if is_native else storage
    if is_native:
        instance.poll_invalidations()
    transaction = TransactionMetaData()
    instance.tpc_begin(transaction)
    for oid, word in words.items():
        serial = z64
        with suppress(POSKeyError):
            serial = instance.load(p64(oid))[1]
        instance.store(p64(oid), serial, word.encode(), "", transaction)
    instance.tpc_vote(transaction)
    instance.tpc_finish(transaction)
    if is_native:
        instance.release()
