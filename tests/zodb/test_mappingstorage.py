"""ZODB's tests of MappingStorage, over a cached one."""

from __future__ import annotations

from ZODB.tests import StorageTestBase
from ZODB.tests import hexstorage
from ZODB.tests import testMappingStorage as borrowed

from .wrapping import CachedMappingStorage
from .wrapping import cached


class MappingStorageTests(borrowed.MappingStorageTests):
    def setUp(self) -> None:
        StorageTestBase.StorageTestBase.setUp(self)
        self._storage = CachedMappingStorage()


class CacheOverHexTests(borrowed.MappingStorageTests):
    def setUp(self) -> None:
        StorageTestBase.StorageTestBase.setUp(self)
        base = borrowed.ZODB.MappingStorage.MappingStorage()
        self._storage = cached(hexstorage.HexStorage(base))
