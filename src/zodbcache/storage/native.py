"""The wrapper of native MVCC storages: one instance for each connection.

Each instance wraps one of the base storage's, and reads at exactly the tid
that this one sees.  All share one cache, which their polls keep up to date.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from typing import Any
from typing import ClassVar

from ZODB.mvccadapter import HistoricalStorageAdapter
from zope.interface import alsoProvides
from zope.interface import providedBy

from zodbcache.cache import ProcessCache
from zodbcache.config import CacheOptions
from zodbcache.feeds import PollFeed
from zodbcache.feeds import snapshots_of
from zodbcache.feeds.wrapped import innermost
from zodbcache.ids import to_int
from zodbcache.storage.delegating import DelegatingStorage
from zodbcache.storage.written import Written
from zodbcache.view import SnapshotView


class CachedMVCCStorage(DelegatingStorage):
    """An instance of a native MVCC storage with the cache before it.

    wrap() makes the first one, ``new_instance()`` the others.
    """

    load: Callable[..., tuple[bytes, bytes]]
    """IMVCCStorage: what this instance sees, from memory where that is right (I1)."""

    def __init__(
        self, base: Any, cache: ProcessCache, feed: PollFeed, *, is_first: bool = False
    ) -> None:
        super().__init__(base, cache)
        self._is_first = is_first
        self._feed = feed
        self._view = SnapshotView(base, cache, feed)
        self._knew_nothing = False  # the base storage, when it polled last
        self.load = self._view.load
        alsoProvides(self, *providedBy(base))

    @classmethod
    def first(cls, base: Any, options: CacheOptions) -> CachedMVCCStorage:
        """The instance that ZODB makes the others from."""
        snapshots = snapshots_of(base)
        cache = ProcessCache(
            base, options, on_clear=lambda: snapshots.clear_own_cache(innermost(base))
        )
        feed = PollFeed(
            cache.log,
            snapshots,
            on_break=cache.caretaker.wake,
            on_other_history=cache.persistence.distrust,
        )
        return cls(base, cache, feed, is_first=True)

    # Instances

    def new_instance(self) -> CachedMVCCStorage:
        """IMVCCStorage: another instance, for another connection."""
        return type(self)(self._base.new_instance(), self._cache, self._feed)

    def _before_instance(self, before: bytes) -> Any:
        """For a historical connection, which reads by loadBefore()."""
        historical = self._base.before_instance(before)
        instance = type(self)(historical._storage, self._cache, self._feed)
        return HistoricalStorageAdapter(instance, before)

    def _undo_instance(self) -> CachedMVCCStorage:
        return type(self)(self._base.undo_instance(), self._cache, self._feed)

    def release(self) -> None:
        """IMVCCStorage: this instance is not used any more."""
        self._view.release()
        self._base.release()

    def close(self) -> None:
        """IStorage: of the first instance, saves what the file lacks."""
        self._view.release()
        try:
            if self._is_first:
                self._cache.close()
        finally:
            self._base.close()

    # Transactions

    def sync(self, force: bool = True) -> None:
        """IMVCCStorage: the snapshot may end here."""
        self._view.unpin()
        self._base.sync(force)

    def poll_invalidations(self) -> Any:
        """IMVCCStorage: a new snapshot begins; what changed since the last one."""
        before = self._view.polled_at
        self._view.unpin()
        was_lost, self._view.is_lost = self._view.is_lost, False
        knew_nothing, self._knew_nothing = self._knew_nothing, False
        changed = self._base.poll_invalidations()
        if changed is None:
            self._knew_nothing = True
        elif was_lost:
            changed = None  # it tells what came after a tid that it believed to have seen
        if not self._view.pin(ask=changed is None):
            changed = self._poll_again(changed)
        if changed is not None and knew_nothing:
            changed = self._view.changed_since(before, changed)
        return changed

    def _poll_again(self, changed: Iterable[bytes] | None) -> Any:
        """A question of ours failed, and may have spoiled the base storage's snapshot."""
        self._base.sync(True)
        more = self._base.poll_invalidations()
        return None if changed is None or more is None else [*changed, *more]

    def _after_completion(self) -> Any:
        self._view.unpin()
        return self._base.afterCompletion()

    # Reading

    def loadBefore(self, oid: bytes, tid: bytes) -> Any:
        """IStorage: the revision before a tid."""
        return self._view.load_before(oid, tid)

    def _prefetch(self, oids: Iterable[bytes]) -> Any:
        return self._view.prefetch(oids)

    # Writing

    def tpc_vote(self, transaction: Any) -> Any:
        """IStorage."""
        self._view.is_voting = True
        try:
            return super().tpc_vote(transaction)
        except BaseException:
            self._view.unpin()  # the base storage may have ended its snapshot
            raise
        finally:
            self._view.is_voting = False

    def tpc_abort(self, transaction: Any, *args: Any, **kwargs: Any) -> Any:
        """IStorage."""
        self._view.unpin()
        return super().tpc_abort(transaction, *args, **kwargs)

    def tpc_begin(self, transaction: Any, *args: Any, **kwargs: Any) -> Any:
        """IStorage."""
        result = super().tpc_begin(transaction, *args, **kwargs)
        has_tid = (args[0] if args else kwargs.get("tid")) is not None
        self._writing[id(transaction)].is_copy = has_tid
        return result

    def tpc_finish(self, transaction: Any, func: Callable[[bytes], Any] | None = None) -> Any:
        """IStorage.  What changed is named by the next poll of some instance."""
        self._view.unpin()
        callback = [] if func is None else [func]
        tid = self._base.tpc_finish(transaction, *callback)
        self._committed(to_int(tid), self._writing.pop(id(transaction), Written()))
        return tid

    def _committed(self, tid: int, written: Written) -> None:
        if written.is_copy:  # older than the log's end, perhaps, and then no poll will name it
            self._log.drop(list(written.states), tid)
            return
        if written.deleted:  # nor what has no revision any more
            self._log.drop(list(written.deleted), tid)
        self._log.admit_own(tid, written.states)
        self._cache.heed()

    def _copy_transactions_from(self, other: Any, *args: Any) -> None:
        """As the base storage does it; the copies are older than what is cached."""
        try:
            self._base.copyTransactionsFrom(other, *args)
        finally:
            self._view.unpin()
            self._cache.forget()

    # The database

    def registerDB(self, db: Any) -> None:
        """IStorage: a database, or a wrapper outside ours."""
        self._base.registerDB(db)
        if "copyTransactionsFrom" in vars(db):
            db.copyTransactionsFrom = self.copyTransactionsFrom  # not past the cache

    _where_the_base_can: ClassVar[dict[str, str]] = {
        **DelegatingStorage._where_the_base_can,
        "afterCompletion": "_after_completion",
        "before_instance": "_before_instance",
        "prefetch": "_prefetch",
        "undo_instance": "_undo_instance",
    }
