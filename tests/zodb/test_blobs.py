"""ZODB's tests of blobs, over the three ways to put a cache into a storage with blobs."""

from __future__ import annotations

import unittest
from pathlib import Path
from typing import Any

from ZODB.blob import BlobStorage
from ZODB.FileStorage import FileStorage
from ZODB.MappingStorage import MappingStorage
from ZODB.tests.testblob import storage_reusable_suite

from .wrapping import CachedFileStorage
from .wrapping import cached
from .wrapping import run_case
from .wrapping import suites


@suites(
    storage_reusable_suite(
        "CachedFileStorage",
        lambda name, blob_dir: CachedFileStorage(f"{name}.fs", blob_dir=blob_dir),
        test_blob_storage_recovery=True,
        test_packing=True,
    )
)
def test_filestorage(case: unittest.TestCase, layer: Any, in_tmp_path: Path) -> None:
    run_case(case, layer)


@suites(
    storage_reusable_suite(
        "CachedBlobStorage",
        lambda name, blob_dir: cached(BlobStorage(blob_dir, FileStorage(f"{name}.fs"))),
        test_blob_storage_recovery=True,
        test_packing=True,
    )
)
def test_cache_over_blobstorage(case: unittest.TestCase, layer: Any, in_tmp_path: Path) -> None:
    run_case(case, layer)


@suites(
    storage_reusable_suite(
        "CachedBlobMappingStorage",
        lambda name, blob_dir: cached(BlobStorage(blob_dir, MappingStorage(name))),
        test_undo=False,
    )
)
def test_cache_over_blobs_in_memory(case: unittest.TestCase, layer: Any, in_tmp_path: Path) -> None:
    run_case(case, layer)


@suites(
    storage_reusable_suite(
        "BlobStorageOverCache",
        lambda name, blob_dir: BlobStorage(blob_dir, CachedFileStorage(f"{name}.fs")),
        test_blob_storage_recovery=True,
        test_packing=True,
    )
)
def test_blobstorage_over_cache(case: unittest.TestCase, layer: Any, in_tmp_path: Path) -> None:
    run_case(case, layer)
