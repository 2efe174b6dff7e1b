"""The background thread that asks: mends a broken log, confirms the file, preloads its rows.

It exists only while there is something to do that may block: asking a base
storage across a network what changed.  Until it is done, reads beyond the
log's end are misses; none is wrong.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from zodbcache.feeds import CannotCatchUp
from zodbcache.feeds import CatchUp
from zodbcache.feeds import Changes
from zodbcache.feeds import Unsettled
from zodbcache.forking import call_after_fork
from zodbcache.invalidations import InvalidationLog
from zodbcache.persistence import Persistence

logger = logging.getLogger(__name__)

STOP_SECONDS = 10.0
"""How long close() waits for a question to the base storage to be answered."""

PAUSE_SECONDS = 0.001
"""Between some rows of the file and the next, so that nobody has to wait for the GIL long."""


class Caretaker:
    """Does what is to be done, on a thread of its own when woken.

    *begins_by_poll*: the log begins when the first instance of the storage
    polls, and there is nothing to do before.  *on_ready*: ``f()``, called
    whenever the base storage has proved to be there.
    """

    def __init__(
        self,
        log: InvalidationLog,
        catch_up: CatchUp,
        persistence: Persistence,
        *,
        on_ready: Callable[[], None],
        begins_by_poll: bool = False,
    ) -> None:
        self._log = log
        self._catch_up = catch_up
        self._persistence = persistence
        self._on_ready = on_ready
        self._begins_by_poll = begins_by_poll
        self._begin()
        call_after_fork(self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._woken = False
        self._stopped = False
        self._stopping = threading.Event()

    def wake(self) -> None:
        """See to it soon.  Returns at once; callable from any thread, under any lock."""
        with self._lock:
            self._woken = True
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(
                    target=self._run, name="zodbcache caretaker", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """Wait until the thread has ended; start none any more."""
        with self._lock:
            self._stopped = True
            thread = self._thread
        self._stopping.set()
        self._persistence.stop()
        if thread is not None and thread is not threading.current_thread():
            thread.join(STOP_SECONDS)

    def wait(self) -> None:
        """Until nothing is left to do that was known at the call."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._woken or self._stopped:
                    self._thread = None
                    return
                self._woken = False
            self.attend(quickly=False)

    def attend(self, *, quickly: bool) -> None:
        """Do it now, in this thread.  What the base storage cannot tell quickly is left.

        Raises nothing: a log that stays broken makes misses, no wrong reads.
        """
        try:
            if self._begins_by_poll and not self._log.end:
                return
            if quickly and not self._catch_up.is_ready():
                return  # invalidateCache() comes with the connection, and wakes us
            with self._catch_up.conversation():
                while self._log.broken and not self._stopped:
                    self._mend()
                self._on_ready()
                if self._persistence.wants_restore and not self._persistence.restore(
                    quickly=quickly
                ):
                    self.wake()
            if self._persistence.wants_preload:
                if quickly:
                    self.wake()
                else:
                    self._persistence.preload(lambda: self._stopping.wait(PAUSE_SECONDS))
            if self._log.is_heavy and not self._persistence.wants_restore:
                self._log.trim_through(self._persistence.save() or self._log.end)
        except Unsettled as reason:
            logger.info("Caching nothing until the next change: %s", reason)
        except Exception:
            if self._catch_up.is_ready():
                logger.exception("Cannot ask the base storage what changed; caching less")
            else:
                logger.info("The base storage went away while it was asked what changed")

    def notice(self, last_tid: int) -> None:
        """An own commit begins, and *last_tid* was the newest before it.

        If the log has not heard of it, somebody committed past the wrapper:
        that has to be known before the log's end may pass it.
        """
        if last_tid > self._log.newest and not self._log.broken:
            self._log.break_()
            self.attend(quickly=True)

    def _mend(self) -> None:
        """Make the log whole, or begin it anew."""
        breaks, end = self._log.breaks, self._log.end
        if end:
            try:
                changes = self._changes_since(end)
            except CannotCatchUp as reason:
                logger.warning("Dropping what was cached: %s", reason)
            else:
                if not self._log.has_room(sum(len(oids) for oids, _ in changes.named)):
                    self._persistence.tell(changes, end)  # before they are forgotten
                self._log.bridge(breaks, changes.named, changes.through)
                return
        self._log.restart(breaks, self._catch_up.last_tid())

    def _changes_since(self, end: int) -> Changes:
        """What the log missed.  Raises CannotCatchUp."""
        witnesses = self._log.witnesses()
        shared = self._catch_up.shared_through(end, witnesses)
        if not shared or (shared < end and not self._catch_up.asks_for_many):
            raise CannotCatchUp("the database is not known to be the same as before")
        changes = self._catch_up.changes(shared)
        return changes if shared == end else changes.doubting(witnesses, shared)
