"""ZODB's tests of storages, over a cached RelStorage.

All of them run over PostgreSQL and SQLite, with history and without; over MySQL
where there is one.  Those that wrap RelStorage in something more run over SQLite.
"""

from __future__ import annotations

import threading
import unittest
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import ZODB
from persistent.mapping import PersistentMapping
from relstorage.tests import RecoveryStorage as RelStorageRecovery
from zc.zlibstorage import ZlibStorage
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.POSException import POSKeyError
from ZODB.tests import BasicStorage
from ZODB.tests import ConflictResolution
from ZODB.tests import HistoryStorage
from ZODB.tests import IteratorStorage
from ZODB.tests import MTStorage
from ZODB.tests import PackableStorage
from ZODB.tests import PersistentStorage
from ZODB.tests import ReadOnlyStorage
from ZODB.tests import RecoveryStorage
from ZODB.tests import RevisionStorage
from ZODB.tests import StorageTestBase
from ZODB.tests import Synchronization
from ZODB.tests import TransactionalUndoStorage
from ZODB.tests.racetest import RaceTests
from ZODB.tests.testblob import storage_reusable_suite
from ZODB.tests.testMVCCMappingStorage import MVCCTests
from ZODB.utils import p64

from .wrapping import cached
from .wrapping import run_case
from .wrapping import suites
from .wrapping import with_checks

pytest_plugins = ["servers"]

KINDS = ("SQLite", "PostgreSQL", "MySQL")


class RelStorageTestCase(StorageTestBase.StorageTestBase):
    """A test case with a cached RelStorage over an empty database."""

    __test__ = False

    kind: str
    keep_history: bool

    @pytest.fixture(autouse=True)
    def _take_relstorages(self, open_relstorage: Any) -> None:
        # Not in setUp(), which would leave its temporary directory behind when skipping.
        open_relstorage.have(self.kind, self.keep_history)
        self._open_relstorage = open_relstorage

    def setUp(self) -> None:
        super().setUp()
        self.open()

    def open(self, **options: Any) -> None:
        self._storage = self._new_storage_client(**options)

    def _new_storage_client(self, **options: Any) -> Any:
        """The same database, opened once more."""
        return cached(self._base(**options))

    def _base(self, **options: Any) -> Any:
        return self._open_relstorage(self.kind, keep_history=self.keep_history, **options)


class _OwnInstanceThread(MTStorage.StorageClientThread):
    """A thread with an instance of its own: an instance is for one thread at a time."""

    def __init__(self, storage: Any, *args: Any) -> None:
        super().__init__(storage.new_instance(), *args)


class _OwnInstanceExtThread(MTStorage.ExtStorageClientThread, _OwnInstanceThread):
    pass


class StorageTests(
    BasicStorage.BasicStorage,
    ConflictResolution.ConflictResolvingStorage,
    MTStorage.MTStorage,
    MVCCTests,
    PackableStorage.PackableStorage,
    PersistentStorage.PersistentStorage,
    ReadOnlyStorage.ReadOnlyStorage,
    Synchronization.SynchronizedStorage,
):
    """What holds with history and without."""

    def setUp(self) -> None:
        super().setUp()
        for name, thread in (
            ("StorageClientThread", _OwnInstanceThread),
            ("ExtStorageClientThread", _OwnInstanceExtThread),
        ):
            patch = mock.patch.object(MTStorage, name, thread)
            patch.start()
            self.addCleanup(patch.stop)

    def _do_store_in_separate_thread(self, oid: bytes, revid: bytes, voted: bool) -> Any:
        """As the mixin's, but with an instance of its own."""
        other = type(self)(self._testMethodName)
        other._storage = self._storage.new_instance()
        thread = threading.Thread(
            target=other._dostore, args=(oid,), kwargs={"revid": revid}, daemon=True
        )
        thread.start()
        thread.join(0.1)
        return thread


class HistoryFree(StorageTests, RelStorageTestCase, RaceTests):
    keep_history = False


class HistoryPreserving(
    StorageTests,
    HistoryStorage.HistoryStorage,
    IteratorStorage.ExtendedIteratorStorage,
    IteratorStorage.IteratorStorage,
    PackableStorage.PackableUndoStorage,
    RevisionStorage.RevisionStorage,
    TransactionalUndoStorage.TransactionalUndoStorage,
    RelStorageTestCase,
    RaceTests,
):
    keep_history = True
    use_extension_bytes = True


@with_checks
class CacheOverZlibTests(HistoryPreserving):
    """The cache keeps what ``zc.zlibstorage`` has decompressed."""

    __test__ = True
    kind = "SQLite"

    def _new_storage_client(self, **options: Any) -> Any:
        return cached(ZlibStorage(self._base(**options)))


@with_checks
class ZlibOverCacheTests(HistoryPreserving):
    """The cache keeps what ``zc.zlibstorage`` has compressed."""

    __test__ = True
    kind = "SQLite"

    def _new_storage_client(self, **options: Any) -> Any:
        return ZlibStorage(cached(self._base(**options)))


class RecoveryTestCase(RelStorageTestCase):
    """A test case that copies ``_storage`` to ``_dst``; one of them is a FileStorage."""

    def tearDown(self) -> None:
        self._dst.close()
        super().tearDown()

    def _closing(self, opened: Any) -> Any:
        """What a test opens ends with its storages."""
        return opened

    def compare(self, source: Any, destination: Any) -> None:
        """RelStorage keeps one record of an object a transaction, in no order."""
        expected = list(_transactions(source))
        self.assertTrue(expected)
        self.assertEqual(expected, list(_transactions(destination)))


def _transactions(storage: Any) -> Iterator[tuple[Any, ...]]:
    """Of each transaction its metadata, and {oid: (tid, state)}."""
    for txn in storage.iterator():
        records = {record.oid: (record.tid, record.data) for record in txn}
        yield txn.tid, txn.status, txn.user, txn.description, txn.extension, records


class ToFileStorage(RecoveryTestCase):
    def setUp(self) -> None:
        super().setUp()
        self._dst = FileStorage("Dest.fs", create=True)


class FromFileStorage(RecoveryTestCase):
    def setUp(self) -> None:
        super().setUp()
        self._dst = self._storage
        self._storage = FileStorage("Source.fs", create=True)


class HistoryPreservingToFileStorage(ToFileStorage, RecoveryStorage.RecoveryStorage):
    keep_history = True


class HistoryPreservingFromFileStorage(FromFileStorage, RecoveryStorage.RecoveryStorage):
    keep_history = True


class HistoryFreeToFileStorage(ToFileStorage, RelStorageRecovery.BasicRecoveryStorage):
    keep_history = False


class HistoryFreeFromFileStorage(FromFileStorage, RecoveryStorage.RecoveryStorage):
    keep_history = False

    def compare(self, source: Any, destination: Any) -> None:
        """Only the newest revision of each object is copied."""
        expected = _newest_records(source)
        self.assertTrue(expected)
        self.assertEqual(expected, _newest_records(destination))


def _newest_records(storage: Any) -> dict[bytes, tuple[bytes, bytes]]:
    newest = {}
    for *_, records in _transactions(storage):
        newest.update(records)
    return newest


def _over_every_database(*test_cases: type[RelStorageTestCase]) -> dict[str, type]:
    """The test cases to run, such as ``SQLiteHistoryFreeTests``."""
    return {
        f"{name}{test_case.__name__}Tests": with_checks(
            type(
                f"{name}{test_case.__name__}Tests",
                (test_case,),
                {"__test__": True, "kind": name},
            )
        )
        for name in KINDS
        for test_case in test_cases
    }


globals().update(
    _over_every_database(
        HistoryFree,
        HistoryPreserving,
        HistoryFreeToFileStorage,
        HistoryFreeFromFileStorage,
        HistoryPreservingToFileStorage,
        HistoryPreservingFromFileStorage,
    )
)


@pytest.mark.parametrize("keep_history", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_deleted_object_is_gone_for_every_connection(
    kind: str, keep_history: bool, in_tmp_path: Path, open_relstorage: Any
) -> None:
    """ZODB's own test of IExternalGC expects what RelStorage never promised."""
    storage = cached(open_relstorage(kind, keep_history=keep_history))
    with closing(ZODB.DB(storage)) as db:
        with db.transaction() as connection:
            connection.root()["doomed"] = PersistentMapping()
        reader, deleter = storage.new_instance(), storage.new_instance()
        for instance in (reader, deleter):
            instance.poll_invalidations()
        _, tid = reader.load(p64(1))
        transaction = TransactionMetaData()
        deleter.tpc_begin(transaction)
        deleter.deleteObject(p64(1), tid, transaction)
        deleter.tpc_vote(transaction)
        deleter.tpc_finish(transaction)
        for instance in (reader, deleter, storage.new_instance()):
            instance.sync()
            instance.poll_invalidations()
            with pytest.raises(POSKeyError):
                instance.load(p64(1))


class _Running:
    """What the blob test that runs opens; the suites are made before any runs."""

    open_relstorage: Any


def _with_blobs(name: str, blob_dir: str) -> Any:
    return cached(_Running.open_relstorage(name=name, blob_dir=blob_dir))


@pytest.mark.parametrize("kind", KINDS)
@suites(storage_reusable_suite("", _with_blobs, test_blob_storage_recovery=True))
def test_blobs_in_a_history_preserving_database(
    case: unittest.TestCase, layer: Any, kind: str, in_tmp_path: Path, open_relstorage: Any
) -> None:
    open_relstorage.have(kind, keep_history=True)
    _Running.open_relstorage = partial(open_relstorage, kind)
    run_case(case, layer)


@pytest.mark.parametrize("kind", KINDS)
@suites(storage_reusable_suite("", _with_blobs, test_blob_storage_recovery=True, test_undo=False))
def test_blobs_in_a_shared_directory_without_history(
    case: unittest.TestCase, layer: Any, kind: str, in_tmp_path: Path, open_relstorage: Any
) -> None:
    open_relstorage.have(kind, keep_history=False)
    _Running.open_relstorage = partial(
        open_relstorage, kind, keep_history=False, shared_blob_dir=True
    )
    run_case(case, layer)
