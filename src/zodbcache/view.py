"""What a reader may see, and how what it misses gets into the cache.

A read just before a tid is answered from memory only where the one rule
allows it (I1); the store judges that in one call.  Everything else is asked
of the base storage, and kept under I3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zodbcache._core._store import Reader
from zodbcache.ids import to_int
from zodbcache.invalidations import InvalidationLog
from zodbcache.store import MemoryStore

Revision = tuple[bytes, bytes, "bytes | None"]


class View:
    """Reads through the memory tier to *base*, any plain ZODB storage.

    Holds no state of its own, so that all connections share one.
    *on_broken*: ``f()``, called after a miss while the log is broken.
    """

    def __init__(
        self,
        base: Any,
        store: MemoryStore,
        log: InvalidationLog,
        on_broken: Callable[[], None] = lambda: None,
    ) -> None:
        self._base = base
        self._log = log
        self._on_broken = on_broken
        self.load_before = Reader(store, self._load_missing)
        """``load_before(oid, tid)`` answers as the base storage's loadBefore would."""

    def _load_missing(self, oid: bytes, tid: bytes) -> Revision | None:
        known, epoch = self._log.end, self._log.epoch  # before the call (I3)
        answer: Revision | None = self._base.loadBefore(oid, tid)
        if answer is not None:
            state, serial, end = answer
            if type(state) is bytes:
                ended = 0 if end is None else to_int(end)
                self._log.admit(oid, to_int(serial), ended, state, known, epoch)
        if self._log.broken:
            self._on_broken()
        return answer
