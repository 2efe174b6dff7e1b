"""The process's memory tier: the C core's store under its contract.

All connections of a process share one.  Each call is one call into C, and is
atomic.  ``Store`` is what this one and :mod:`zodbcache.tempstore`'s have in
common.
"""

from __future__ import annotations

from typing import Final

from zope.interface import implementer

from zodbcache._core._store import Store
from zodbcache.interfaces import IStore

__all__ = ["MemoryStore", "Store"]


@implementer(IStore)
class MemoryStore(Store):
    """Revisions in one arena of *limit_bytes*, all bookkeeping included (I5)."""

    faults: Final = 0
