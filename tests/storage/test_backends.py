"""What one backend has saved, the other finds: the shared file is the same."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import transaction
import ZODB
from persistent.mapping import PersistentMapping
from ZODB.FileStorage import FileStorage

import zodbcache

BACKENDS = ("memory", "sqlite")
OBJECTS = 300


def open_database(directory: Path, backend: str) -> Any:
    base = FileStorage(str(directory / "Data.fs"))
    return ZODB.DB(
        zodbcache.wrap(
            base,
            cache_backend=backend,
            cache_local_mb=8,
            cache_local_dir=str(directory / "cache"),
            cache_write_seconds=0,
        )
    )


def read_all(database: Any) -> list[str]:
    with closing(database.open()) as connection:
        connection.cacheMinimize()
        return [connection.root()[number]["state"] for number in range(OBJECTS)]


def write(database: Any, numbers: range, state: str) -> None:
    with closing(database.open()) as connection:
        root = connection.root()
        for number in numbers:
            root.setdefault(number, PersistentMapping())["state"] = state
        transaction.commit()


@pytest.mark.parametrize("second", BACKENDS)
@pytest.mark.parametrize("first", BACKENDS)
def test_a_restart_with_another_backend(tmp_path: Path, first: str, second: str) -> None:
    expected = ["old"] * OBJECTS
    with closing(open_database(tmp_path, first)) as database:
        write(database, range(OBJECTS), "old")
        assert read_all(database) == expected
    with closing(open_database(tmp_path, second)) as database:
        assert read_all(database) == expected
        stats = database.storage.cache_stats()
        assert stats["file_hits"] >= OBJECTS * 0.9
        write(database, range(0, OBJECTS, 3), "new")
    expected[::3] = ["new"] * len(expected[::3])
    with closing(open_database(tmp_path, first)) as database:
        assert read_all(database) == expected
        assert database.storage.cache_stats()["file_hits"] >= OBJECTS * 0.9


def test_more_is_saved_than_is_remembered_as_unsaved(tmp_path: Path) -> None:
    """A temporary database may hold more than its list of the unsaved: the rest is sought."""
    count = 100_000
    with closing(open_database(tmp_path, "sqlite")) as database:
        write(database, range(1), "old")
        cache = database.storage._cache
        tid = cache.log.end
        for oid in range(1000, 1000 + count):
            assert cache.store.insert(oid, tid, 0, b"state")
        assert cache.store.unsaved_left
        before = database.storage.cache_stats()["file_writes"]
        assert cache.persistence.save() == tid
        assert database.storage.cache_stats()["file_writes"] - before >= count
        assert cache.store.unsaved_bytes == 0
