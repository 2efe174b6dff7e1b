"""What an instance of a native MVCC storage sees, and how to ask it.

Each connection has an instance of the storage with a snapshot of its own.  A
strategy tells at which tid that is, and what changed up to there.  What it
does not know for certain it does not tell: then the instance is read past the
cache.  ``_STRATEGIES`` says which kind of storage has which.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from heapq import nlargest
from operator import itemgetter
from typing import Any

from zope.interface import implementer

from zodbcache.feeds.wrapped import innermost
from zodbcache.feeds.wrapped import is_instance_of
from zodbcache.ids import to_int
from zodbcache.interfaces import ISnapshots

logger = logging.getLogger(__name__)

NEWEST = 64
"""So many of the newest revisions tell one history from another."""

Name = tuple[int, int]
Recall = Callable[[bytes, bytes], "bytes | None"]


@implementer(ISnapshots)
class Snapshots:
    """A storage of which nobody can tell what an instance sees: it is not cached."""

    def attend(self, instance: Any, recall: Recall) -> Any:
        """Begin to attend to *instance*; return the storage inside it.

        That is what the other methods are asked about, by the thread that uses
        it.  *recall*: see ISnapshots.
        """
        return innermost(instance)

    def point(self, storage: Any, *, ask: bool) -> int | None:
        """The tid at which *storage* reads, or None if that is not known for certain.

        *ask*: what it believes may be wrong; ask its database.
        """
        return None

    def token(self, storage: Any) -> object:
        """Something that is equal as long as the point did not move."""
        return None

    def session(self, storage: Any) -> object:
        """What connects it to its database; another one may see another history."""
        return None

    def changes(self, storage: Any, since: int) -> list[Name] | None:
        """``(oid, tid)`` of what changed after *since* up to the point.

        None if that cannot be told, or not quickly.
        """
        return None

    def newest(self, storage: Any) -> list[Name]:
        """``(oid, tid)`` of the newest revisions that it sees, a few dozen."""
        return []

    def current_tids(self, storage: Any, oids: list[int]) -> dict[int, int]:
        """The tids of the objects' revisions that it sees, as far as it does."""
        return {}

    def load(self, storage: Any, oid: int) -> tuple[bytes, int] | None:
        """``(state, tid)`` as the database has it, past what the storage caches itself.

        None if there is no such way, or no such object.
        """
        return None

    def fetch(self, storage: Any, oids: list[int]) -> list[tuple[int, bytes, int]] | None:
        """``(oid, state, tid)`` of many objects at once; None if the storage has no way."""
        return None

    def clear_own_cache(self, storage: Any) -> None:
        """Empty what the storage caches by itself, for all instances."""


class MappingSnapshots(Snapshots):
    """MVCCMappingStorage of ZODB's tests: all its transactions are in memory."""

    def point(self, storage: Any, *, ask: bool) -> int | None:
        return to_int(storage._polled_tid) if storage._polled_tid else None

    def token(self, storage: Any) -> object:
        return storage._polled_tid

    def changes(self, storage: Any, since: int) -> list[Name] | None:
        point = to_int(storage._polled_tid)
        names: list[Name] = []
        with storage._main_lock:
            for tid_bytes, transaction in storage._transactions.items():
                tid = to_int(tid_bytes)
                if since < tid <= point:
                    names += ((to_int(oid), tid) for oid in transaction.data)
                if tid > since and transaction.status == "p":
                    return None
        return names

    def newest(self, storage: Any) -> list[Name]:
        return nlargest(NEWEST, self._seen(storage).items(), key=itemgetter(1))

    def current_tids(self, storage: Any, oids: list[int]) -> dict[int, int]:
        seen = self._seen(storage)
        return {oid: seen[oid] for oid in oids if oid in seen}

    def _seen(self, storage: Any) -> dict[int, int]:
        return {to_int(oid): to_int(tid) for oid, (_, tid) in storage._data_snapshot.items()}


def _relstorage_snapshots(base: Any) -> Snapshots:
    from zodbcache.feeds.relstorage import RelStorageSnapshots

    return RelStorageSnapshots(base)


def _unknown_snapshots(base: Any) -> Snapshots:
    logger.warning("Caching nothing: %r does its own MVCC in a way that is not known", base)
    return Snapshots()


_STRATEGIES: tuple[tuple[Callable[[Any], bool], Callable[[Any], Snapshots]], ...] = (
    (lambda base: is_instance_of(base, "relstorage.storage", "RelStorage"), _relstorage_snapshots),
    (
        lambda base: is_instance_of(base, "ZODB.tests.MVCCMappingStorage", "MVCCMappingStorage"),
        lambda base: MappingSnapshots(),
    ),
    (lambda base: True, _unknown_snapshots),
)


def snapshots_of(base: Any) -> Snapshots:
    """The strategy for this storage: the first row of the table that fits what is inside."""
    inner = innermost(base)
    return next(strategy(base) for fits, strategy in _STRATEGIES if fits(inner))
