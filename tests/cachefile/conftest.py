from __future__ import annotations

import pytest

from zodbcache.cachefile import CacheFile

IDENTITY = "a test's database"


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def open_file(directory):
    """Open the cache file of one database; all are closed at the end."""
    opened = []

    def opener(*, identity=IDENTITY, limit_bytes=10_000_000, prefix="", busy_timeout_ms=2000):
        cache_file = CacheFile.open(
            directory,
            identity=identity,
            prefix=prefix,
            limit_bytes=limit_bytes,
            busy_timeout_ms=busy_timeout_ms,
        )
        opened.append(cache_file)
        return cache_file

    yield opener
    for cache_file in opened:
        cache_file.close()


@pytest.fixture
def cache_file(open_file):
    return open_file()
