"""ZODB's tests of FileStorage, over a cached one."""

from __future__ import annotations

import unittest
from pathlib import Path
from typing import Any

from ZODB.FileStorage import FileStorage
from ZODB.tests import Corruption
from ZODB.tests import PackableStorage
from ZODB.tests import StorageTestBase
from ZODB.tests import hexstorage
from ZODB.tests import testFileStorage as borrowed

from .wrapping import CachedFileStorage
from .wrapping import cached
from .wrapping import every_cached
from .wrapping import run_case
from .wrapping import suites


class FileStorageTests(borrowed.FileStorageTests):
    def open(self, **options: Any) -> None:
        self._storage = CachedFileStorage("FileStorageTests.fs", **options)


class BlobsEnabledTests(borrowed.FileStorageTests):
    def open(self, **options: Any) -> None:
        options.setdefault("blob_dir", "blobs")
        self._storage = CachedFileStorage("FileStorageTests.fs", **options)


class CacheOverHexTests(borrowed.FileStorageHexTests):
    def open(self, **options: Any) -> None:
        options.setdefault("blob_dir", "blobs")
        base = FileStorage("FileStorageTests.fs", **options)
        self._storage = cached(hexstorage.HexStorage(base))


class RecoveryTests(borrowed.FileStorageRecoveryTest):
    def setUp(self) -> None:
        StorageTestBase.StorageTestBase.setUp(self)
        self._storage = CachedFileStorage("Source.fs", create=True)
        self._dst = CachedFileStorage("Dest.fs", create=True)

    def new_dest(self) -> Any:
        return CachedFileStorage("Dest.fs")


class HexRecoveryTests(RecoveryTests):
    def setUp(self) -> None:
        StorageTestBase.StorageTestBase.setUp(self)
        self._storage = cached(hexstorage.HexStorage(FileStorage("Source.fs", create=True)))
        self._dst = cached(hexstorage.HexStorage(FileStorage("Dest.fs", create=True)))


class NoRestoreRecoveryTests(borrowed.FileStorageNoRestoreRecoveryTest):
    def setUp(self) -> None:
        StorageTestBase.StorageTestBase.setUp(self)
        self._storage = cached(borrowed.FileStorageNoRestore("Source.fs", create=True))
        self._dst = cached(borrowed.FileStorageNoRestore("Dest.fs", create=True))

    def new_dest(self) -> Any:
        return cached(borrowed.FileStorageNoRestore("Dest.fs"))


class AnalyzeTests(borrowed.AnalyzeDotPyTest):
    def setUp(self) -> None:
        StorageTestBase.StorageTestBase.setUp(self)
        self._storage = CachedFileStorage("Source.fs", create=True)


class CorruptionTests(Corruption.FileStorageCorruptTests):
    def run(self, result: Any = None) -> Any:
        with every_cached(CachedFileStorage):
            return super().run(result)


@suites(
    PackableStorage.IExternalGC_suite(
        lambda: CachedFileStorage("data.fs", blob_dir="blobs", pack_gc=False)
    )
)
def test_external_gc(case: unittest.TestCase, layer: Any, in_tmp_path: Path) -> None:
    run_case(case, layer)
