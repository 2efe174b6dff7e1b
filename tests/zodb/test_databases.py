"""ZODB's tests of databases and connections, every storage they open being cached."""

from __future__ import annotations

import unittest
from pathlib import Path
from typing import Any

from ZODB.tests import MVCCMappingStorage  # noqa: F401  (before its base class is replaced)
from ZODB.tests import testblob
from ZODB.tests import testConnection
from ZODB.tests import testConnectionSavepoint
from ZODB.tests import testcrossdatabasereferences
from ZODB.tests import testDB
from ZODB.tests import testDemoStorage
from ZODB.tests import testFileStorage
from ZODB.tests import testmvcc
from ZODB.tests import testZODB

from .wrapping import CachedDemoStorage
from .wrapping import CachedFileStorage
from .wrapping import CachedMappingStorage
from .wrapping import doctests
from .wrapping import every_cached
from .wrapping import run_case
from .wrapping import suites


@suites(
    testConnection.test_suite(),
    testConnectionSavepoint.test_suite(),
    testDB.test_suite(),
    unittest.defaultTestLoader.loadTestsFromModule(testZODB),
    testblob.test_suite(),
    testcrossdatabasereferences.test_suite(),
    testmvcc.test_suite(),
)
def test_with_cached_storages(case: unittest.TestCase, layer: Any, in_tmp_path: Path) -> None:
    with every_cached(CachedFileStorage, CachedMappingStorage, CachedDemoStorage):
        run_case(case, layer)


@doctests(testDemoStorage.test_suite(), testFileStorage.test_suite())
def test_documentation(case: unittest.TestCase, layer: Any, in_tmp_path: Path) -> None:
    with every_cached(CachedFileStorage, CachedMappingStorage, CachedDemoStorage):
        run_case(case, layer)
