"""The process's memory tier: the C core's stores under their contract.

All connections of a process share one.  Each call is one call into C, and is
atomic.
"""

from __future__ import annotations

from zope.interface import implementer

from zodbcache._core import _store
from zodbcache._core.lending import lend_sqlite
from zodbcache.forking import call_after_fork
from zodbcache.interfaces import IStore


@implementer(IStore)
class MemoryStore(_store.Store):
    """Revisions in one arena of *limit_bytes*, all bookkeeping included (I5)."""


@implementer(IStore)
class TempStore(_store.TempStore):
    """Revisions in a SQLite temporary database of *limit_bytes*, all bookkeeping included (I5).

    It lies where SQLite puts temporary files: in the directory that the
    environment variable SQLITE_TMPDIR or TMPDIR names, else in /var/tmp.  It
    is gone when the process ends, however that happens.  In a fork's child it
    is empty at first.
    """

    def __new__(cls, limit_bytes: int, object_max_bytes: int) -> TempStore:
        lend_sqlite()
        self = super().__new__(cls, limit_bytes, object_max_bytes)
        call_after_fork(self._renew)
        return self

    def _renew(self) -> None:
        """In a fork's child: the database is the parent's."""
        self.abandon()
