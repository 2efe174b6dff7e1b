"""Lends the C core the one SQLite of the process, which is APSW's."""

from __future__ import annotations

from functools import lru_cache

import apsw

from zodbcache._core import _store


@lru_cache(maxsize=1)
def lend_sqlite() -> None:
    """Show our C code the functions of APSW's SQLite: as an extension it gets them.

    It registers its VFS then.
    """
    sqlite = apsw.Connection(":memory:")
    try:
        sqlite.enable_load_extension(True)
        sqlite.load_extension(_store.__file__, "sqlite3_zodbcache_init")
    finally:
        sqlite.close()
