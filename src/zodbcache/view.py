"""What a reader may see, and how what it misses gets into the cache.

A read is answered from memory, or from the file, only where the one rule
allows it (I1).  Everything else is asked of the base storage, and kept under
I3.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable
from typing import Any

from zodbcache._core._store import PinnedReader
from zodbcache._core._store import Reader
from zodbcache.cache import ProcessCache
from zodbcache.feeds import PollFeed
from zodbcache.ids import to_bytes
from zodbcache.ids import to_int

logger = logging.getLogger(__name__)

Revision = tuple[bytes, bytes, "bytes | None"]

PREFETCH_AT_ONCE = 1000
"""Objects asked for by one question."""


def _find_before(cache: ProcessCache, oid: bytes, tid: bytes) -> Revision | None:
    """What the file has of the revision before *tid*, no successor of it known."""
    try:
        at = to_int(tid) - 1
    except (struct.error, TypeError):
        return None  # the base storage will say what it thinks of it
    found = cache.persistence.find(oid, at, end_wanted=True)
    return None if found is None else (*found, None)


class View:
    """Reads through the cache to *base*, any plain ZODB storage.

    Holds no state of its own, so that all connections share one.
    """

    def __init__(self, base: Any, cache: ProcessCache) -> None:
        self._base = base
        self._cache = cache
        self._log = cache.log
        self.load_before = Reader(cache.store, self._load_missing)
        """``load_before(oid, tid)`` answers as the base storage's loadBefore would."""

    def _load_missing(self, oid: bytes, tid: bytes) -> Revision | None:
        found = _find_before(self._cache, oid, tid)
        if found is not None:
            return found
        known, epoch = self._log.end, self._log.epoch  # before the call (I3)
        answer: Revision | None = self._base.loadBefore(oid, tid)
        if answer is not None:
            state, serial, end = answer
            if type(state) is bytes:
                ended = 0 if end is None else to_int(end)
                self._log.admit(oid, to_int(serial), ended, state, known, epoch)
        self._cache.heed()
        return answer


class SnapshotView:
    """Reads through the cache to *base*, one instance of a native MVCC storage.

    Pinned to a tid while the instance's snapshot is known to be of that tid.
    Used by one thread at a time, as the instance is.
    """

    def __init__(self, base: Any, cache: ProcessCache, feed: PollFeed) -> None:
        self._base = base
        self._cache = cache
        self._log = cache.log
        self._feed = feed
        self._snapshots = feed.snapshots
        self._inner = self._snapshots.attend(base, self._recall)
        self._is_bare = self._inner is base  # no wrapper that gives other bytes
        self.is_voting = False
        """Whether conflicts may be resolved now."""
        self._token: object = None  # of the snapshot that it is pinned to
        self._asked: object = None  # of the snapshot that was asked about last
        self._session: object = None
        self._history = 0  # the store's, in which the session was found to be the same
        self.is_lost = False
        """Whether the next poll may tell of too little: it begins where it was believed to be."""
        self._newest = 0  # the highest point of this session
        self.polled_at = -1
        """Where the last poll has pinned it to; negative if it could not."""
        self._before = Reader(cache.store, self._load_missing_before)
        self.load = PinnedReader(cache.store, self._load_missing)
        """``load(oid)`` answers as the instance's would."""

    # Where it reads

    def unpin(self) -> None:
        """The snapshot may end: read past the cache until pin()."""
        self.load.unpin()
        self._asked = None

    def pin(self, *, ask: bool) -> bool:
        """Read at what the instance sees, if that is known for certain.

        *ask*: see Snapshots.point.  Returns False if a question to the
        database failed: its snapshot may be spoiled.
        """
        self.unpin()
        self.polled_at = -1
        try:
            self._pin(ask)
        except Exception:
            logger.warning("Reading past the cache: cannot tell what is seen", exc_info=True)
            return False
        return True

    def _pin(self, ask: bool) -> None:
        history = self._cache.store.history
        session = self._snapshots.session(self._inner)
        if session is not self._session:
            ask = True  # what it believes may be another server's
        point = self._snapshots.point(self._inner, ask=ask)
        self.is_lost |= point is None and ask
        self._asked = token = self._snapshots.token(self._inner)
        if point is None:
            return
        if not self._log.end:
            self._feed.begin(self._inner, point)
            history = self._cache.store.history
        if session is not self._session or history != self._history or point < self._newest:
            self._session = None
            if not self._feed.shares_history(self._inner, point):
                return
            self._session, self._history = session, history
        self._feed.follow(self._inner, point)
        if self._snapshots.token(self._inner) == token:
            self._newest = point
            self._token = token
            self.load.pin(point, history)
            self.polled_at = point

    def _pin_anew(self) -> None:
        """A read has begun a snapshot: pin to that, unless this was tried."""
        if self._snapshots.token(self._inner) != self._asked and not self.pin(ask=True):
            self._base.sync(True)

    def changed_since(self, before: int, told: Iterable[bytes]) -> list[bytes] | None:
        """What changed since a read at *before*: *told*, and whatever else the log knows.

        None: everything may have.  For when what the base storage remembers
        may begin later than *before*.
        """
        at = self.load.at
        names = self._log.names_since(before) if 0 <= before <= at <= self._log.end else None
        return None if names is None else list({*told, *(to_bytes(oid) for oid, _ in names)})

    def release(self) -> None:
        """The instance is not used any more."""
        self.unpin()
        self._token = self._session = None

    # Reading

    def _load_missing(self, oid: bytes, version: str = "") -> tuple[bytes, bytes]:
        at = self.load.at
        if at >= 0:
            found = self._cache.persistence.find(oid, at)
            if found is not None:
                return found
        epoch = self._log.epoch
        answer = self._load_past_own_cache(oid)
        if answer is None or (at >= 0 and to_int(answer[1]) > at):
            answer = self._base.load(oid, version)
        if at < 0:
            self._pin_anew()
        elif self._snapshots.token(self._inner) != self._token:
            self.unpin()  # the base storage has a new snapshot, and told nobody
        else:
            self._admit(oid, answer[0], to_int(answer[1]), epoch)
        self._cache.heed()
        return answer

    def _load_past_own_cache(self, oid: bytes) -> tuple[bytes, bytes] | None:
        """As the instance's load, but from the database; None if only the instance can.

        RelStorage's own cache is of no use here, and serves old revisions now and then.
        """
        if not self._is_bare:  # the wrapper between may give other bytes
            return None
        try:
            found = self._snapshots.load(self._inner, to_int(oid))
        except (struct.error, TypeError):
            return None  # the base storage will say what it thinks of it
        return None if found is None else (found[0], to_bytes(found[1]))

    def _admit(self, oid: bytes, state: bytes, tid: int, epoch: int) -> None:
        at = self.load.at
        if tid > at >= 0:
            self.unpin()  # it sees more than it says
        elif at >= 0 and type(state) is bytes:
            self._log.admit_seen(oid, tid, state, at, epoch)

    def _recall(self, oid: bytes, serial: bytes) -> bytes | None:
        return self._cache.store.recall(oid, serial) if self.is_voting else None

    def load_before(self, oid: bytes, tid: bytes) -> Revision | None:
        """As the instance's loadBefore."""
        if to_int(tid) - 1 <= self.load.at <= self._log.end:
            return self._before(oid, tid)
        answer: Revision | None = self._base.loadBefore(oid, tid)
        if self.load.at < 0:  # a historical connection never polls
            self._pin_anew()
        return answer

    def _load_missing_before(self, oid: bytes, tid: bytes) -> Revision | None:
        found = _find_before(self._cache, oid, tid)
        if found is not None:
            return found
        answer: Revision | None = self._base.loadBefore(oid, tid)
        return answer

    def prefetch(self, oids: Iterable[bytes]) -> None:
        """Bring these objects into memory, by few questions."""
        missing = [oid for oid in oids if not self._is_near(oid)]
        for start in range(0, len(missing), PREFETCH_AT_ONCE):
            self._prefetch(missing[start : start + PREFETCH_AT_ONCE])

    def _is_near(self, oid: bytes) -> bool:
        at = self.load.at
        return at >= 0 and (
            self._cache.store.holds(oid, at) or self._cache.persistence.find(oid, at) is not None
        )

    def _prefetch(self, oids: list[bytes]) -> None:
        epoch = self._log.epoch
        rows = None
        if self.load.at >= 0 and self._is_bare:
            try:
                rows = self._snapshots.fetch(self._inner, [to_int(oid) for oid in oids])
            except Exception:  # nobody waits for it, and every load will say what is wrong
                logger.warning("Cannot prefetch", exc_info=True)
                self.unpin()
                return
        if rows is None:
            self._base.prefetch(oids)
        elif self._snapshots.token(self._inner) == self._token:
            for number, state, tid in rows:
                self._admit(to_bytes(number), state, tid, epoch)
