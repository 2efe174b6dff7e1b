"""The storages that ZODB sees: they delegate, and decide nothing.

``plain``: one wrapper for all connections.  ``native``: one for each.  Both
are ``delegating``.
"""

from __future__ import annotations

from typing import Any

from ZODB.interfaces import IMVCCStorage
from ZODB.mvccadapter import MVCCAdapter

from zodbcache.config import CacheOptions
from zodbcache.errors import ConfigurationError
from zodbcache.storage.native import CachedMVCCStorage
from zodbcache.storage.plain import CachedStorage

__all__ = ["CachedMVCCStorage", "CachedStorage", "wrap"]


def wrap(base: Any, **options: Any) -> CachedStorage | CachedMVCCStorage:
    """Put a cache before *base*, any ZODB storage, and return the storage to use instead.

    *options*: the fields of CacheOptions.  Raises ConfigurationError for an
    unknown or impossible option and for a base that cannot be wrapped.  A
    cache directory that cannot be used is a warning in the log, and a cache
    in memory.
    """
    checked = CacheOptions.from_mapping(options)
    _check_base(base)
    if IMVCCStorage.providedBy(base):
        return CachedMVCCStorage.first(base, checked)
    return CachedStorage(base, checked)


def _check_base(base: Any) -> None:
    needed = ("close", "lastTransaction", "loadBefore", "sortKey", "store", "tpc_finish")
    missing = [name for name in needed if not callable(getattr(base, name, None))]
    if isinstance(base, MVCCAdapter):
        raise ConfigurationError(
            "MVCCAdapter is what ZODB puts around a storage",
            option=None,
            remedy="Wrap the storage inside it, such as ZODB.FileStorage.FileStorage('Data.fs')",
        )
    if missing or isinstance(base, type):
        raise ConfigurationError(
            f"{base!r} is not a ZODB storage" + (f": no {', '.join(missing)}" if missing else ""),
            option=None,
            remedy="Pass an open storage, such as ZODB.FileStorage.FileStorage('Data.fs')",
        )
