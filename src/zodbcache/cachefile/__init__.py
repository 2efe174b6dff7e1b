"""The tier that the worker processes of a machine share: one SQLite file.

It holds at most the latest revision of an object, and one checkpoint through
which all of them are current.  ``docs/file-format.rst`` says how.
"""

from __future__ import annotations

from zodbcache.cachefile.file import CacheFile
from zodbcache.cachefile.merge import AdvanceResult
from zodbcache.cachefile.merge import Outcome
from zodbcache.cachefile.reader import RowReader
from zodbcache.cachefile.rows import checksum
from zodbcache.cachefile.snapshot import Snapshot
from zodbcache.cachefile.tier import ROW_OVERHEAD_BYTES

__all__ = [
    "ROW_OVERHEAD_BYTES",
    "AdvanceResult",
    "CacheFile",
    "Outcome",
    "RowReader",
    "Snapshot",
    "checksum",
]
