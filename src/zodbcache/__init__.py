"""zodbcache: a cache for any ZODB storage, warm after a restart, never wrong."""

from __future__ import annotations

from zodbcache.config import CacheOptions
from zodbcache.errors import CacheFileError
from zodbcache.errors import ConfigurationError
from zodbcache.errors import ZODBCacheError
from zodbcache.storage import CachedMVCCStorage
from zodbcache.storage import CachedStorage
from zodbcache.storage import wrap

__all__ = [
    "CacheFileError",
    "CacheOptions",
    "CachedMVCCStorage",
    "CachedStorage",
    "ConfigurationError",
    "ZODBCacheError",
    "wrap",
]
