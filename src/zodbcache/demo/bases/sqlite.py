"""RelStorage over SQLite: no server, nothing but packages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zodbcache.demo.bases.base import Base
from zodbcache.demo.bases.relstorage import OWN_CACHE_MB
from zodbcache.demo.bases.relstorage import OWN_CACHE_REMARK
from zodbcache.demo.bases.relstorage import options


@dataclass(frozen=True)
class SQLiteAddress:
    directory: str

    def open_storage(self) -> Any:
        from relstorage.adapters.sqlite.adapter import Sqlite3Adapter
        from relstorage.storage import RelStorage

        own = options()
        return RelStorage(Sqlite3Adapter(self.directory, pragmas={}, options=own), options=own)


@contextmanager
def _serve(directory: Path) -> Iterator[SQLiteAddress]:
    path = directory / "sqlite"
    path.mkdir()
    yield SQLiteAddress(str(path))


BASE = Base(
    name="relstorage-sqlite",
    title="RelStorage on SQLite",
    modules=("relstorage",),
    own_cache_mb=OWN_CACHE_MB,
    own_cache_remark=OWN_CACHE_REMARK,
    serve=_serve,
)
