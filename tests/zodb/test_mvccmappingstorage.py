"""ZODB's tests of MVCCMappingStorage, the plainest storage with its own MVCC, over a cached one."""

from __future__ import annotations

import unittest
from pathlib import Path
from typing import Any

from ZODB.blob import BlobStorage
from ZODB.tests import StorageTestBase
from ZODB.tests import testMVCCMappingStorage as borrowed
from ZODB.tests.MVCCMappingStorage import MVCCMappingStorage
from ZODB.tests.racetest import RaceTests
from ZODB.tests.testblob import storage_reusable_suite

from .wrapping import cached
from .wrapping import run_case
from .wrapping import suites


class MVCCMappingStorageTests(borrowed.MVCCMappingStorageTests, RaceTests):
    def setUp(self) -> None:
        StorageTestBase.StorageTestBase.setUp(self)
        self._storage = cached(MVCCMappingStorage())


@suites(
    storage_reusable_suite(
        "CachedBlobStorage",
        lambda name, blob_dir: cached(BlobStorage(blob_dir, MVCCMappingStorage(name))),
        test_undo=False,
    )
)
def test_cache_over_blobstorage(case: unittest.TestCase, layer: Any, in_tmp_path: Path) -> None:
    run_case(case, layer)


@suites(
    storage_reusable_suite(
        "BlobStorageOverCache",
        lambda name, blob_dir: BlobStorage(blob_dir, cached(MVCCMappingStorage(name))),
        test_undo=False,
    )
)
def test_blobstorage_over_cache(case: unittest.TestCase, layer: Any, in_tmp_path: Path) -> None:
    run_case(case, layer)
