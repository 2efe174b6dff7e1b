"""The storages of bench_matrix, each with no cache, with its own, and with this one.

PostgreSQL and SQLite do not wait for the disk.  ZEO's server and FileStorage
cannot be told not to, and wait in every commit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from typing import ClassVar

import postgresql
import zeo_server
from postgresql import LITTLE_MB
from workloads import MEGABYTE

import zodbcache

CACHE_MB = 50.0
"""What each cache may hold: more than is read and written."""

NONE, OWN = "none", "storage's own cache"
CACHED = {"zodbcache memory": "memory", "zodbcache sqlite": "sqlite"}
"""This cache, by its option ``cache-backend``."""

LINES = (NONE, OWN, *CACHED)

Address = Any
"""What it takes to open a database; JSON can carry it."""


class Base:
    """A kind of storage.

    *is_shared*: several processes can open a database, and one process can do
    so several times.  *has_own_cache*: worth measuring.
    """

    name: ClassVar[str]
    is_shared: ClassVar[bool] = True
    has_own_cache: ClassVar[bool] = True

    @contextlib.contextmanager
    def serving(self, directory: Path) -> Iterator[Address]:
        """A new database in *directory*, and what it needs, until the end."""
        raise NotImplementedError

    def open_bare(self, address: Address, line: str) -> Any:
        """The storage, its own cache as little as it can be."""
        raise NotImplementedError

    def open_own(self, address: Address, directory: Path) -> Any:
        """The storage with its own cache, which may have its files in *directory*."""
        raise NotImplementedError

    def own_hits(self, storage: Any) -> int:
        """Loads that the storage's own cache has answered."""
        raise NotImplementedError

    def tidy(self, address: Address) -> None:
        """After much was written."""

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(line for line in LINES if line != OWN or self.has_own_cache)

    def open(self, address: Address, line: str, directory: Path) -> Any:
        """The storage with the line's cache, empty."""
        if line == OWN:
            return self.open_own(address, directory)
        bare = self.open_bare(address, line)
        if line == NONE:
            return bare
        return zodbcache.wrap(bare, cache_local_mb=CACHE_MB, cache_backend=CACHED[line])

    def clear(self, storage: Any, line: str) -> None:
        """Empty this cache, and the storage's own."""
        storage._cache.clear()

    def hits(self, storage: Any, line: str) -> int:
        """Loads that the line's cache has answered."""
        if line in CACHED:
            hits: int = storage.cache_stats()["hits"]
            return hits
        return self.own_hits(storage)


class ZEOBase(Base):
    name = "ZEO"

    @contextlib.contextmanager
    def serving(self, directory: Path) -> Iterator[Address]:
        with zeo_server.running(directory) as port:
            yield ["127.0.0.1", port]

    def open_bare(self, address: Address, line: str) -> Any:
        """Its cache is set to hold nothing."""
        import ZEO

        return ZEO.client(tuple(address), cache_size=0)

    def open_own(self, address: Address, directory: Path) -> Any:
        """Its persistent cache, the file of this process alone."""
        import ZEO

        size_bytes = int(CACHE_MB * MEGABYTE)
        options = {"cache_size": size_bytes, "client": "own", "var": str(directory)}
        return ZEO.client(tuple(address), **options)

    def own_hits(self, storage: Any) -> int:
        accesses: int = storage._cache.getStats()[4]
        return accesses


class _RelStorageBase(Base):
    def open_bare(self, address: Address, line: str) -> Any:
        return self._open(address, LITTLE_MB)

    def open_own(self, address: Address, directory: Path) -> Any:
        """Its cache in memory, without a file."""
        return self._open(address, CACHE_MB)

    def _open(self, address: Address, cache_mb: float) -> Any:
        raise NotImplementedError

    def own_hits(self, storage: Any) -> int:
        hits: int = storage._cache.stats()["hits"]
        return hits


class PostgreSQLBase(_RelStorageBase):
    name = "PostgreSQL"

    @contextlib.contextmanager
    def serving(self, directory: Path) -> Iterator[Address]:
        with postgresql.running() as dsn:
            yield dsn

    def _open(self, address: Address, cache_mb: float) -> Any:
        return postgresql.relstorage(address, cache_mb)

    def tidy(self, address: Address) -> None:
        postgresql.tidy(address)


class SQLiteBase(_RelStorageBase):
    name = "SQLite"

    @contextlib.contextmanager
    def serving(self, directory: Path) -> Iterator[Address]:
        yield str(directory)

    def _open(self, address: Address, cache_mb: float) -> Any:
        from relstorage.adapters.sqlite.adapter import Sqlite3Adapter
        from relstorage.options import Options
        from relstorage.storage import RelStorage

        options = Options(keep_history=False, cache_local_mb=cache_mb)
        adapter = Sqlite3Adapter(address, pragmas={"synchronous": "off"}, options=options)
        return RelStorage(adapter, options=options)


class FileStorageBase(Base):
    """Each line has a database of its own, since only one can open it."""

    name = "FileStorage"
    is_shared = False
    has_own_cache = False

    @contextlib.contextmanager
    def serving(self, directory: Path) -> Iterator[Address]:
        yield str(directory)

    def open_bare(self, address: Address, line: str) -> Any:
        from ZODB.FileStorage import FileStorage

        return FileStorage(str(Path(address) / f"{line}.fs"))

    def clear(self, storage: Any, line: str) -> None:
        """It has no cache of its own to empty."""
        if line != NONE:
            super().clear(storage, line)

    def own_hits(self, storage: Any) -> int:
        return 0


BASES: dict[str, Base] = {
    base.name: base for base in (ZEOBase(), PostgreSQLBase(), SQLiteBase(), FileStorageBase())
}
