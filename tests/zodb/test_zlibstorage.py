"""ZODB's tests of FileStorage over a stack of cache and ``zc.zlibstorage``, either way up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import ZODB
from zc.zlibstorage import ZlibStorage
from ZEO.ClientStorage import ClientStorage
from ZEO.tests import forker
from ZODB.FileStorage import FileStorage
from ZODB.tests import StorageTestBase
from ZODB.tests import testFileStorage as borrowed

from .wrapping import CachedFileStorage
from .wrapping import cached


class CacheOverZlibTests(borrowed.FileStorageHexTests):
    def open(self, **options: Any) -> None:
        self._storage = cached(ZlibStorage(FileStorage("FileStorageTests.fs", **options)))


class ZlibOverCacheTests(borrowed.FileStorageHexTests):
    def open(self, **options: Any) -> None:
        self._storage = ZlibStorage(CachedFileStorage("FileStorageTests.fs", **options))


class CacheOverZlibRecoveryTests(borrowed.FileStorageRecoveryTest):
    def setUp(self) -> None:
        StorageTestBase.StorageTestBase.setUp(self)
        self._storage = cached(ZlibStorage(FileStorage("Source.fs", create=True)))
        self._dst = cached(ZlibStorage(FileStorage("Dest.fs", create=True)))

    def new_dest(self) -> Any:
        return cached(ZlibStorage(FileStorage("Dest.fs")))


@pytest.fixture
def zeo_address(in_tmp_path: Path) -> Iterator[Any]:
    address, stop = forker.start_zeo_server("<filestorage 1>\npath Data.fs\n</filestorage>")
    yield address
    stop()


def test_a_push_before_wrapping_is_not_forgotten(zeo_address: Any) -> None:
    """Without a database a ZlibStorage loses what ZEO pushes, and lastTransaction() lags."""

    def client() -> ZlibStorage:
        return ZlibStorage(ClientStorage(zeo_address, "1", wait=True))

    with closing(ZODB.DB(cached(client()))) as db, db.transaction() as connection:
        root = connection.root()
        root["first"] = root.__class__(value=1)
        root["second"] = root.__class__(value=1)
    with closing(ZODB.DB(client())) as other:
        base = client()
        change(other, "first")
        base.ping()  # the push has come, and is lost
        with closing(ZODB.DB(cached(base))) as db:
            before = base.lastTransaction()
            change(other, "second")
            forker.wait_until("the push comes", lambda: base.lastTransaction() > before)
            with db.transaction() as connection:
                assert connection.root()["second"]["value"] == 2
                assert connection.root()["first"]["value"] == 2


def change(db: ZODB.DB, name: str) -> None:
    with db.transaction() as connection:
        connection.root()[name]["value"] = 2
