"""The process's memory tier: the C core's store under its contract.

All connections of a process share one.  Each call is one call into C under
the GIL, and is atomic by that.
"""

from __future__ import annotations

from zope.interface import implementer

from zodbcache._core import _store
from zodbcache.interfaces import IStore


@implementer(IStore)
class MemoryStore(_store.Store):
    """Revisions in one arena of *limit_bytes*, all bookkeeping included (I5)."""
