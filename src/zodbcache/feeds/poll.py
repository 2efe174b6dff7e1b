"""The poll feed: what a native storage's instances see, turned into the invalidation log.

Whichever instance sees past the log's end asks, in its own snapshot, for what
changed since; so the log is continued by whoever is ahead, and no change is
asked for twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from zodbcache.feeds.snapshots import Snapshots
from zodbcache.invalidations import InvalidationLog

logger = logging.getLogger(__name__)


class PollFeed:
    """Continues *log* by what instances see; one for all of them.

    *on_break*: ``f()``, called when something is to be done that takes long;
    must return at once.  *on_other_history*: ``f()``, called when one
    sees another history of the database than the one that was cached.
    """

    def __init__(
        self,
        log: InvalidationLog,
        snapshots: Snapshots,
        *,
        on_break: Callable[[], None],
        on_other_history: Callable[[], None],
    ) -> None:
        self.snapshots = snapshots
        self._log = log
        self._on_break = on_break
        self._on_other_history = on_other_history
        self._began = 0  # where the present history was seen first, if there was another

    def begin(self, storage: Any, point: int) -> None:
        """The log begins with the first thing that is seen."""
        if not self._log.end:
            self._log.begin(point)
            self._log.note(self.snapshots.newest(storage))
            self._on_break()  # the caretaker has waited for it

    def follow(self, storage: Any, point: int) -> None:
        """*storage* sees everything up to *point*: so does the log after this, if that is quick.

        Otherwise it stays behind until the caretaker has asked, and what is
        read beyond its end is a miss.
        """
        log = self._log
        breaks, since = log.breaks, log.end
        if point > since:
            names = None if log.broken else self.snapshots.changes(storage, since)
            if names is not None and log.has_room(len(names)):
                log.follow(names, since, point, breaks)
            elif not log.broken:
                log.break_()
        if log.broken or log.is_heavy:
            self._on_break()

    def shares_history(self, storage: Any, point: int) -> bool:
        """Whether a new session sees the history that the log tells.

        Its server may be a copy, restored or promoted, that lost commits.
        The newest revisions tell, as far as they lie before *point*.  To be
        asked before the log follows what the session sees.
        """
        end, known = self._log.end, self._log.witnesses()
        if not known:
            return not self._began
        # Older than the present history's begin: it may be another's as well.
        asked = [witness for witness in known if self._began <= witness[1] <= point]
        current = self.snapshots.current_tids(storage, [oid for oid, _ in asked]) if asked else {}
        for oid, tid in asked:
            now = current.get(oid)
            if now == tid:
                return self._agrees_since(storage, tid)
            if now is not None and now <= end:
                return self._begin_anew(storage, point)
        # Nothing of what was known is there; or it sees less than is known.
        return point >= end and self._begin_anew(storage, point)

    def _agrees_since(self, storage: Any, tid: int) -> bool:
        """Whether nothing else happened after *tid* than the log knows."""
        if tid >= self._log.end:
            return True
        names = self.snapshots.changes(storage, tid)
        return names is not None and self._log.agrees(names)

    def _begin_anew(self, storage: Any, point: int) -> bool:
        """Forget the other history.  This one is cached from the next snapshot on."""
        logger.warning(
            "Dropping what was cached: the database has another history than before. "
            "Was an older backup restored, or another server promoted?"
        )
        self._on_other_history()
        self._began = point
        self._log.restart(self._log.breaks, point)
        self._log.note(self.snapshots.newest(storage))
        self._on_break()
        return False
