"""ZODB's tests of DemoStorage: cached as a whole, and over cached storages."""

from __future__ import annotations

from typing import Any

from ZODB.DemoStorage import DemoStorage
from ZODB.FileStorage import FileStorage
from ZODB.MappingStorage import MappingStorage
from ZODB.tests import StorageTestBase
from ZODB.tests import testDemoStorage as borrowed

from .wrapping import CachedFileStorage
from .wrapping import cached


class DemoStorageTests(borrowed.DemoStorageTests):
    def setUp(self) -> None:
        StorageTestBase.StorageTestBase.setUp(self)
        self._storage = cached(DemoStorage())


class CacheOverBase(borrowed.DemoStorageWrappedBase):
    """A cached DemoStorage whose base already exists."""

    __test__ = False

    def setUp(self) -> None:
        StorageTestBase.StorageTestBase.setUp(self)
        self._base = self._makeBaseStorage()
        self._storage = cached(DemoStorage(base=self._base, changes=self.changes()))

    def changes(self) -> Any:
        return None


class OverMappingStorageTests(CacheOverBase):
    __test__ = True

    def _makeBaseStorage(self) -> Any:
        return MappingStorage()


class OverFileStoragesTests(CacheOverBase):
    __test__ = True
    use_extension_bytes = True

    def _makeBaseStorage(self) -> Any:
        return FileStorage("Base.fs")

    def changes(self) -> Any:
        return FileStorage("Changes.fs")


class OverCachedFileStorageTests(borrowed.DemoStorageWrappedBase):
    """A plain DemoStorage over a cached base: a staging site over production."""

    def _makeBaseStorage(self) -> Any:
        return CachedFileStorage("Base.fs")
