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

WITNESSES_ASKED = 16
"""So many of the newest revisions tell one history from another."""


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

    def follow(self, storage: Any, point: int) -> None:
        """*storage* sees everything up to *point*: so does the log after this, if that is quick.

        Otherwise it stays behind until the caretaker has asked, and what is
        read beyond its end is a miss.
        """
        log = self._log
        if not log.end:
            log.begin(point)
            return
        since, breaks = log.end, log.breaks
        if point > since:
            names = None if log.broken else self.snapshots.changes(storage, since)
            if names is None:
                if not log.broken:
                    log.break_()
            else:
                log.follow(names, since, point, breaks)
        if log.broken or log.is_heavy:
            self._on_break()

    def shares_history(self, storage: Any, point: int) -> bool:
        """Whether a new session sees the history that the log tells.

        Its server may be a copy, restored or promoted, that lost commits.
        The newest revisions tell, as far as they lie before *point*.
        """
        known = self._log.witnesses()
        asked = [witness for witness in known if witness[1] <= point][:WITNESSES_ASKED]
        if not known:
            return True
        current = self.snapshots.current_tids(storage, [oid for oid, _ in asked]) if asked else {}
        for oid, tid in asked:
            if current.get(oid) == tid:
                return True
            if current.get(oid, tid) < tid:
                self._begin_anew(point)
                return True
        if point >= self._log.end:  # nothing of what was known is there
            self._begin_anew(point)
            return True
        return False

    def _begin_anew(self, point: int) -> None:
        logger.warning(
            "Dropping what was cached: the database has another history than before. "
            "Was an older backup restored, or another server promoted?"
        )
        self._on_other_history()
        self._log.restart(self._log.breaks, point)
        self._on_break()
