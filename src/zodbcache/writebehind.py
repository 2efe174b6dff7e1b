"""The background thread that writes what is new into the file while the process runs.

So that others read it soon, a kill costs seconds of warmth and not all of it,
and a shutdown has little left to write.  It touches memory and the file, never
the base storage; no request waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event
from threading import Lock
from threading import Thread
from threading import current_thread
from time import monotonic
from time import thread_time

from zodbcache.forking import call_after_fork
from zodbcache.persistence import Persistence
from zodbcache.store import Store

logger = logging.getLogger(__name__)

UNSAVED_SHARE = 32
"""More unsaved bytes than one part in this many of the memory do not wait: they may be evicted."""

UNSAVED_MAX_BYTES = 4_000_000

WARM_SECONDS = 60.0
"""How often the file is told what is asked for often."""

HITS_SHARE = 8
"""It is told only when there were more hits since the last time than one for so many objects."""

STOP_SECONDS = 10.0
"""How long close() waits for a transaction or a trim to end."""


class WriteBehind:
    """Saves every *seconds*, or earlier when much is unsaved; 0: never."""

    def __init__(self, persistence: Persistence, store: Store, seconds: float) -> None:
        self._persistence = persistence
        self._store = store
        self._seconds = seconds
        self._threshold = min(store.limit_bytes // UNSAVED_SHARE, UNSAVED_MAX_BYTES)
        self._hits_told = 0
        self._warmed = monotonic()
        self._begin()
        call_after_fork(self._begin)

    def _begin(self) -> None:
        self._lock = Lock()
        self._thread: Thread | None = None
        self._woken = Event()
        self._stopping = Event()

    def heed(self) -> None:
        """Something may have come into memory.  Returns at once, under any lock."""
        if self._thread is None:
            if self._seconds and self._store.unsaved_bytes:
                self._start()
        elif self._store.unsaved_bytes > self._threshold and not self._woken.is_set():
            self._woken.set()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stopping.is_set():
                self._thread = Thread(target=self._run, name="zodbcache writer", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Wait until the thread has ended; start none any more."""
        with self._lock:
            self._stopping.set()
            thread = self._thread
        self._woken.set()
        if thread is not None and thread is not current_thread():
            thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._woken.wait(self._seconds)
            self._woken.clear()
            try:
                pause = _Rest(self._stopping)
                if self._store.unsaved_bytes:
                    self._persistence.save(pause)
                    self._persistence.tidy(pause)
                if monotonic() >= self._warmed + WARM_SECONDS:
                    self.warm(pause)
            except Exception:
                logger.exception("Cannot write behind; trying again")

    def warm(self, pause: Callable[[], bool] = lambda: False) -> None:
        """Tell the file what is hot, if there was much asking since the last time."""
        self._warmed = monotonic()
        stats = self._store.stats()
        if (stats["hits"] - self._hits_told) * HITS_SHARE > stats["entries"]:
            self._hits_told = stats["hits"]
            self._persistence.warm(pause)


class _Rest:
    """Called between two pieces of work: rests, so that it takes little from who reads.

    Twice as long as it has computed, which leaves two thirds of a processor;
    and a quarter of the time that has passed, most of it waiting for the GIL
    or a disk.  True: it is time to end.
    """

    def __init__(self, stopping: Event) -> None:
        self._stopping = stopping
        self._begin()

    def _begin(self) -> None:
        self._begun, self._computed = monotonic(), thread_time()

    def __call__(self) -> bool:
        passed, computed = monotonic() - self._begun, thread_time() - self._computed
        stopped = self._stopping.wait(max(passed / 4, 2 * computed))
        self._begin()
        return stopped
