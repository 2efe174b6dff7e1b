"""ZEO's tests of its ClientStorage, over a cached one and real servers."""

from __future__ import annotations

import unittest
from pathlib import Path
from typing import Any

import ZEO.tests.testConnection as borrowed_connection
import ZEO.tests.testZEO as borrowed
from ZEO.tests import ConnectionTests
from ZODB.tests import hexstorage
from ZODB.tests.PackableStorage import IExternalGC_suite
from ZODB.tests.racetest import RaceTests
from ZODB.tests.testblob import storage_reusable_suite

from .wrapping import CachedClientStorage
from .wrapping import cached
from .wrapping import doctests
from .wrapping import every_cached
from .wrapping import run_case
from .wrapping import suites
from .wrapping import transparent
from .wrapping import with_checks


class CachedClients:
    """Clients are cached, the reopened ones too."""

    def _wrap_client(self, client: Any) -> Any:
        return cached(client)

    def open(self, read_only: bool = False) -> None:
        address = self._storage._addr
        self._storage.close()
        client = borrowed.ClientStorage(
            address, read_only=read_only, wait=1, **self._client_options()
        )
        self._storage = self._wrap_client(client)


@with_checks
class BlobStorageTests(CachedClients, borrowed.BlobAdaptedFileStorageTests):
    pass


@with_checks
class SharedBlobsTests(CachedClients, borrowed.CommonBlobTests, borrowed.GenericTestBase):
    blob_cache_dir = "blobs"
    shared_blob_dir = True


@with_checks
class MappingStorageTests(CachedClients, borrowed.MappingStorageTests):
    pass


@with_checks
class CacheOverClientHexTests(CachedClients, borrowed.FileStorageClientHexTests):
    def _wrap_client(self, client: Any) -> Any:
        storage = hexstorage.HexStorage(client)
        storage.registerDB(borrowed.DummyDB())  # without any, it loses what is pushed
        return cached(storage)


@with_checks
class ClientConflictResolutionTests(CachedClients, borrowed.ClientConflictResolutionTests):
    pass


class LoadDelayedRaceTests(CachedClients, borrowed.GenericTestBase, RaceTests):
    getConfig = borrowed.FileStorageLoadDelayedTests.getConfig


@with_checks
class RecoveryTests(borrowed.FileStorageRecoveryTests):
    def _new_storage(self) -> Any:
        return cached(super()._new_storage())


class CachedConnections:
    """Clients of the connection tests are cached."""

    def openClientStorage(self, *args: Any, **options: Any) -> Any:
        storage = transparent(cached(super().openClientStorage(*args, **options)))
        storage.registerDB(ConnectionTests.DummyDB())
        return storage


@with_checks
class RPCTests(CachedConnections, borrowed.ZRPCConnectionTests):
    pass


@with_checks
class ConnectingTests(CachedConnections, borrowed_connection.FileStorageConnectionTests):
    MINTIME = 3  # seconds that the writers of a test write


@with_checks
class ReconnectingTests(CachedConnections, borrowed_connection.FileStorageReconnectionTests):
    pass


@with_checks
class InvalidationQueueTests(CachedConnections, borrowed_connection.FileStorageInvqTests):
    pass


@with_checks
class TimeoutTests(CachedConnections, borrowed_connection.FileStorageTimeoutTests):
    pass


@suites(
    storage_reusable_suite(
        "CachedClient",
        lambda name, blob_dir: cached(borrowed.ServerManagingClientStorage(name, blob_dir)),
    ),
    storage_reusable_suite(
        "CachedClientSharedBlobs",
        lambda name, blob_dir: cached(borrowed.create_storage_shared(name, blob_dir)),
    ),
    IExternalGC_suite(
        lambda: cached(
            borrowed.ServerManagingClientStorageForIExternalGCTest(
                "data.fs", "blobs", extrafsoptions="pack-gc false"
            )
        )
    ),
)
def test_blobs(case: unittest.TestCase, layer: Any, in_tmp_path: Path) -> None:
    run_case(case, layer)


@doctests(borrowed.test_suite(), borrowed_connection.test_suite())
def test_documentation(case: unittest.TestCase, layer: Any, in_tmp_path: Path) -> None:
    with every_cached(CachedClientStorage):
        run_case(case, layer)
