"""Real storages, and transactions on them by hand."""

from __future__ import annotations

from pathlib import Path

import zc.zlibstorage
from ZODB.blob import BlobStorage
from ZODB.Connection import TransactionMetaData
from ZODB.DemoStorage import DemoStorage
from ZODB.FileStorage import FileStorage
from ZODB.MappingStorage import MappingStorage
from ZODB.POSException import POSKeyError
from ZODB.tests.MinPO import MinPO
from ZODB.tests.StorageTestBase import zodb_pickle
from ZODB.utils import maxtid
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

import zodbcache

BASES = {
    "FileStorage": lambda path: FileStorage(str(path / "Data.fs")),
    "FileStorage with blobs": lambda path: FileStorage(
        str(path / "Data.fs"), blob_dir=str(path / "blobs")
    ),
    "MappingStorage": lambda path: MappingStorage(),
    "DemoStorage": lambda path: DemoStorage(base=FileStorage(str(path / "Data.fs"))),
    "DemoStorage in memory": lambda path: DemoStorage(),
    "BlobStorage": lambda path: BlobStorage(str(path / "blobs"), MappingStorage()),
    "zlibstorage": lambda path: zc.zlibstorage.ZlibStorage(FileStorage(str(path / "Data.fs"))),
}

PERSISTENT = {
    "FileStorage": BASES["FileStorage"],
    "FileStorage with blobs": BASES["FileStorage with blobs"],
    "BlobStorage": lambda path: BlobStorage(
        str(path / "blobs"), FileStorage(str(path / "Data.fs"))
    ),
    "zlibstorage": BASES["zlibstorage"],
}


def record(value) -> bytes:
    """The record of an object that holds *value*."""
    return zodb_pickle(MinPO(value))


def current(storage, oid) -> bytes:
    """The serial of what is stored; zeros for a new object."""
    try:
        return storage.load(oid)[1]
    except POSKeyError:
        return z64


def begun(storage):
    transaction = TransactionMetaData()
    storage.tpc_begin(transaction)
    return transaction


def finished(storage, transaction):
    storage.tpc_vote(transaction)
    return storage.tpc_finish(transaction)


def commit(storage, *writes, serials=None) -> bytes:
    """*writes*: ``(oid, state)``.  Return the tid."""
    serials = serials or {}
    transaction = begun(storage)
    for oid, state in writes:
        serial = serials.get(oid) or current(storage, oid)
        storage.store(oid, serial, state, "", transaction)
    return finished(storage, transaction)


def after(tid) -> bytes:
    """The *before* of a reader who sees *tid*."""
    return p64(u64(tid) + 1)


def now(storage) -> bytes:
    return after(storage.lastTransaction())


def asked(storage, oid, before):
    """What loadBefore gives, or the class of what it raises."""
    try:
        return storage.loadBefore(oid, before)
    except POSKeyError:
        return POSKeyError


def agree(storage, base, oids, *, ends=True) -> None:
    """Every revision of *oids*, read twice, is what the base storage says.

    Without *ends*: a revision may be given as open though it has ended after
    *before*, by a commit that the cache could not have heard of.
    """
    moments = {z64, maxtid, now(base)}
    for oid in oids:
        before = maxtid
        while (found := asked(base, oid, before)) not in (None, POSKeyError):
            before = found[1]
            moments |= {before, after(before)}
    for _ in range(2):
        for oid in oids:
            for before in sorted(moments):
                found, expected = asked(storage, oid, before), asked(base, oid, before)
                if not ends and isinstance(found, tuple) and found[2] is None:
                    expected = (*expected[:2], None)
                assert found == expected, "I1"


def hits(storage, oid, before) -> int:
    """1 if a read is answered from memory, else 0."""
    held = storage.cache_stats()["hits"]
    asked(storage, oid, before)
    return storage.cache_stats()["hits"] - held


def rows(storage) -> dict[int, tuple[int, bytes]]:
    """What the cache file of an open storage holds."""
    with storage._persistence._file.snapshot() as snapshot:
        found = list(snapshot.rows(2**63 - 1, 10**12))
    return {oid: (tid, state) for oid, tid, _, state in found}


def cache_file(directory: Path) -> Path:
    (path,) = Path(directory).glob("*.sqlite3")
    return path


def wrap(base, directory=None, **options):
    """A small cache over *base*, with a file if there is a *directory*: written when told to."""
    if directory is not None:
        options["cache_local_dir"] = str(directory)
    return zodbcache.wrap(base, **{"cache_local_mb": 2, "cache_write_seconds": 0, **options})
