"""What all connections of a process share: memory, log, file, and who looks after them."""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable
from time import monotonic
from typing import Any
from weakref import WeakSet

from zodbcache.caretaker import Caretaker
from zodbcache.config import CacheOptions
from zodbcache.feeds import CatchUp
from zodbcache.feeds import catch_up_for
from zodbcache.forking import call_after_fork
from zodbcache.invalidations import InvalidationLog
from zodbcache.persistence import Persistence
from zodbcache.store import MemoryStore
from zodbcache.tempstore import TempStore
from zodbcache.writebehind import WriteBehind

logger = logging.getLogger(__name__)

_STORES: dict[str, type[MemoryStore | TempStore]] = {"memory": MemoryStore, "sqlite": TempStore}

SILENT_SECONDS = 60.0
"""How long nothing is said of further faults after one."""


class ProcessCache:
    """One database's cache in this process.

    *catch_up*: how to ask the base storage; by its kind, if not given.
    *begins_by_poll*: see Caretaker.  *on_ready*: ``f()``, called whenever the
    base storage has proved to be there.  *on_clear*: ``f()``, empties what the
    base storage caches itself.
    """

    def __init__(
        self,
        base: Any,
        options: CacheOptions,
        *,
        catch_up: CatchUp | None = None,
        begins_by_poll: bool = False,
        on_ready: Callable[[], None] = lambda: None,
        on_clear: Callable[[], None] = lambda: None,
    ) -> None:
        self.options = options
        self.store = _STORES[options.cache_backend](options.limit_bytes, options.object_max_bytes)
        self.log = InvalidationLog(self.store, deltas_max=options.cache_delta_size_limit)
        self.catch_up = catch_up or catch_up_for(base)
        self.persistence = Persistence(options, self.catch_up, self.log, self.store)
        self.caretaker = Caretaker(
            self.log,
            self.catch_up,
            self.persistence,
            on_ready=on_ready,
            begins_by_poll=begins_by_poll,
        )
        self.writer = WriteBehind(self.persistence, self.store, options.cache_write_seconds)
        self._on_clear = on_clear
        self._closed = False
        self._faults = 0  # the store's that have been told of
        self._silent_until = 0.0
        self._begin_in_child()
        call_after_fork(self._begin_in_child)
        _living.add(self)

    def _begin_in_child(self) -> None:
        self.pid = os.getpid()

    def stats(self) -> dict[str, float]:
        """Counters since the storage was opened, sizes now in bytes, and the ratio of hits."""
        found: dict[str, float] = {**self.counters()}
        requests = found["hits"] + found["misses"]
        found["ratio"] = found["hits"] / requests if requests else 0.0
        return found

    def counters(self) -> dict[str, int]:
        """stats() without the ratio.  What was read from the file is a hit."""
        found = self.store.stats()
        from_file = self.persistence.file_reads
        found["hits"] += from_file
        found["file_hits"] += from_file
        found["misses"] -= from_file
        found["restored"] = self.persistence.restored
        found["file_writes"] = self.persistence.file_writes
        return found

    def clear(self) -> None:
        """Empty the memory, the base storage's too; the file keeps all it can hold.

        So that a benchmark reads what is cold.
        """
        self.persistence.save()
        self.log.forget_all()
        self._on_clear()

    def preload(self) -> None:
        """Bring back from the file what memory can hold, the most valuable first, and wait."""
        if self.persistence.wants_restore:
            self.caretaker.wake()
        self.persistence.wants_preload = False
        self.caretaker.wait()
        self.persistence.preload()

    def heed(self) -> None:
        """After a miss or a commit: wake who has something to do now."""
        if self.log.broken or self.persistence.wants_care:
            self.caretaker.wake()
        self.writer.heed()
        if self.store.faults != self._faults and monotonic() >= self._silent_until:
            self._complain()

    def _complain(self) -> None:
        self._faults = self.store.faults
        self._silent_until = monotonic() + SILENT_SECONDS
        if isinstance(self.store, TempStore):
            logger.warning("Dropped what this process has cached: %s", self.store.fault)

    def forget(self) -> None:
        """Drop everything: the base storage may have forgotten what is cached of it."""
        self.log.forget_all()  # so that nothing of it is written any more
        self.persistence.forget()
        self.log.forget_all()  # what came back from the file meanwhile

    def begin_anew(self) -> None:
        """Drop everything: another database begins in the place of this one."""
        self.forget()
        self.log.restart(self.log.breaks, self.log.end)

    def close(self) -> None:
        """Save what the file lacks, and give everything back.  May be called twice."""
        if not self._closed:
            self.caretaker.stop()
            self.writer.stop()
            self.writer.warm()
            self.persistence.save_all()
            self.persistence.tidy()
            self.persistence.close()
            self.store.clear()
            self._closed = True  # not before: whoever interrupts it may close it again


_living: WeakSet[ProcessCache] = WeakSet()


@atexit.register
def _close_what_nobody_closed() -> None:
    """Many applications never close their storages."""
    for cache in list(_living):
        if cache.pid == os.getpid():
            cache.close()
