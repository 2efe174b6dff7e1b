"""The process's invalidation log, and what it lets into the memory tier.

The log knows every change after ``start`` up to ``end``; ``end`` is the
memory tier's checkpoint.  Three guarantees:

- The end advances together with the tier, in one step: what changed is closed
  or dropped first (I1).
- A change is named before anybody hears of it, and the end passes it only
  after the base storage is done with it (I3).
- Only an own, finished commit says exactly when a revision ended (I2).

Every method holds one lock for microseconds and touches memory alone, so it
may be called under the base storage's locks and on its event loop (I10).
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from heapq import nlargest
from itertools import islice
from operator import itemgetter
from threading import Lock

from zope.interface import implementer

from zodbcache._core._store import Batch
from zodbcache._core._store import Deltas
from zodbcache.forking import call_after_fork
from zodbcache.ids import to_bytes
from zodbcache.ids import to_int
from zodbcache.interfaces import IInvalidationLog
from zodbcache.store import Store

DELTA_BYTES = 48
"""What one changed object takes at most in the deltas."""

DELTAS_SHARE = 8
"""The deltas take at most one part in this many of the memory, but for a moment at a start."""

WITNESSES = 64
"""How many of the newest revisions are remembered to recognise the database by."""


class Change:
    """Some oids changed at *tid*, or at an unknown tid up to it while not *exact*."""

    __slots__ = ("exact", "oids", "tid")

    def __init__(self, tid: int, oids: Sequence[bytes]) -> None:
        self.tid = tid
        self.oids = oids
        self.exact = False


@implementer(IInvalidationLog)
class InvalidationLog:
    """Unbroken from ``start`` to ``end``, over one memory tier.

    *deltas_max*: how many changed objects are remembered, as far as they fit
    their share of the memory; beyond that the log forgets, and starts later.
    """

    def __init__(self, store: Store, *, deltas_max: int) -> None:
        self.start = 0
        self.end = 0
        self.broken = True
        self.breaks = 0
        self._store = store
        self._deltas_max = min(deltas_max, store.limit_bytes // (DELTAS_SHARE * DELTA_BYTES))
        self.epoch = 0
        self._lock = Lock()
        self._deltas = Deltas()
        self._newest_name = 0  # no name has a greater tid
        self._floor = 0  # every name is above the checkpoint from which on there are names
        self._pending: list[Change] = []  # named, but beyond the end
        self._announced = 0  # the newest tid that advance() was called with
        self._witnesses: dict[int, int] = {}
        self._shunned: set[bytes] = set()
        call_after_fork(self._renew)

    def _renew(self) -> None:
        """In a forked child: somebody may have been in the middle of something."""
        self._lock = Lock()
        self.break_()

    # Changes as they come

    def name(self, tid: int, oids: Sequence[bytes]) -> Change:
        """These oids changed at some tid up to *tid*.  The end stays where it is.

        Set ``exact`` on the result once the change is an own commit that the
        base storage has finished at just this tid.
        """
        change = Change(tid, oids)
        with self._lock:
            if tid <= self.end:  # a commit given an old tid: nothing known of it can be judged
                for oid in oids:
                    self._store.forget(to_int(oid))
            self._record(oids, max(tid, self.end + 1))
            self._pending.append(change)
        return change

    def _record(self, oids: Sequence[bytes], tid: int) -> None:
        """Remember the names; of too many, that there were some."""
        if len(self._deltas) + len(oids) > self._deltas_max:
            self._deltas.trim(tid)
            self.start = max(self.start, tid)
        else:
            self._deltas.name(oids, tid)
        self._newest_name = max(self._newest_name, tid)
        for oid in oids:
            self._witnesses.pop(to_int(oid), None)
        self._account()

    def advance(self, tid: int) -> None:
        """Every change up to *tid* has been named, and the base storage is done with it."""
        with self._lock:
            self._announced = max(self._announced, tid)
            if not self.broken:
                self._advance_to(tid, trusted=True)

    def _advance_to(self, tid: int, *, trusted: bool) -> None:
        """Close or drop what changed, then raise the end with the tier (I1).

        Not *trusted*: changes may be missing between those named, so that no
        named tid is an exact end.
        """
        ready = [change for change in self._pending if change.tid <= tid]
        if ready:
            ready.sort(key=lambda change: change.tid)
            self._pending = [change for change in self._pending if change.tid > tid]
        elif tid <= self.end:
            return
        self._store.advance(
            [(change.oids, change.tid, trusted and change.exact) for change in ready], tid
        )
        self.end = max(self.end, tid)

    def follow(
        self, names: Sequence[tuple[int, int]], since: int, through: int, breaks: int
    ) -> bool:
        """Every change after *since*, up to *through*, is among *names*: raise the end.

        Each name's tid is an upper bound.  Returns False, and does nothing,
        if the log is broken, or broke or began anew after *since* and
        *breaks* were taken from it.
        """
        with self._lock:
            if self.broken or breaks != self.breaks or since > self.end:
                return False
            if through > self.end:
                exact = since >= self._floor
                if not exact:  # the clock went back, or the newest was packed away
                    names = [(oid, max(tid, self._floor + 1)) for oid, tid in names]
                if not self.has_room(len(names)):
                    self._deltas.trim(through)
                    self.start = through
                else:
                    self._deltas.update(names)
                self._newest_name = max(self._newest_name, through, self._floor + 1)
                if exact:
                    self._note_witnesses(names)
                self._store.follow(names, through)
                self.end = through
                self._account()
            return True

    def drop(self, oids: Sequence[bytes], tid: int) -> None:
        """These changed at *tid*, which the base storage will not tell when asked."""
        with self._lock:
            for oid in oids:
                self._store.forget(to_int(oid))
            self._record(oids, max(tid, self.end + 1))

    def has_room(self, names: int) -> bool:
        """Whether so many more names can be remembered."""
        return len(self._deltas) + names <= self._deltas_max

    @property
    def is_heavy(self) -> bool:
        """The names fill half of what may be remembered: tell the file, then trim_through()."""
        return len(self._deltas) * 2 > self._deltas_max

    def trim_through(self, tid: int) -> None:
        """Forget the names up to *tid*; the log starts there."""
        with self._lock:
            tid = min(tid, self.end)
            if tid > self.start:
                self._deltas.trim(tid)
                self.start = tid
                self._account()

    def _account(self) -> None:
        """The deltas' memory counts against the tier's limit (I5)."""
        self._store.reserve(self._deltas.size_bytes)

    @property
    def newest(self) -> int:
        """The newest tid heard of."""
        with self._lock:
            return max([self.end, self._announced, *(change.tid for change in self._pending)])

    # Breaks

    def break_(self) -> None:
        """Changes may have been missed: the end stays until they are known."""
        with self._lock:
            self.broken = True
            self.breaks += 1
            self._announced = 0  # of what another history may have announced

    def bridge(
        self, breaks: int, named: Sequence[tuple[Sequence[bytes], int]], through: int
    ) -> bool:
        """What was missed up to *through* is among *named*: the log is whole again.

        *named*: ``(oids, tid)``, each tid an upper bound.  *breaks*: the count
        when the question was asked.  Returns False, and does nothing, if it
        broke again since.
        """
        with self._lock:
            if breaks != self.breaks:
                return False
            through = max(through, self._announced, self.end)
            for oids, tid in named:
                self._record(oids, max(tid, self.end + 1))
                self._pending.append(Change(through, oids))
            self._advance_to(through, trusted=False)
            self.broken = False
            return True

    def begin(self, through: int) -> None:
        """Begin at *through*, unless the log has begun."""
        if not self.end:
            self.restart(self.breaks, through)

    def restart(self, breaks: int, through: int) -> bool:
        """What was missed cannot be known: forget everything, and begin at *through*.

        Everything after *through* has been or will be named.  Lower than the
        end as it was: the database went back in time; nothing is kept as open
        before it has passed that end, for a load may still be under way that
        began in the other history.  *breaks* and the result are as for
        bridge().
        """
        with self._lock:
            if breaks != self.breaks:
                return False
            through = max(through, self._announced)
            self.start = through if through >= self.end else self.end + 1
            self.end = through
            self.epoch += 1
            self.breaks += 1  # an answer about what was before is of no use now
            self._pending = [change for change in self._pending if change.tid > through]
            self._deltas.trim(through)
            self._witnesses.clear()
            self._store.restart(through)
            self.broken = False
            self._account()
            return True

    def extend_back(
        self,
        since: int,
        changes: Iterable[tuple[Sequence[bytes], int]],
        through: int,
        exact: bool = False,
    ) -> bool:
        """Every change from *since* to *through* is among *changes*: start earlier.

        *changes*: ``(oids, tid)``, each tid an upper bound, or *exact*.
        Returns False, and does nothing, if *through* does not reach the
        present start.  However many they are, they stay until trim().
        """
        with self._lock:
            if self.broken or through < self.start:
                return False
            for oids, tid in changes:
                self._deltas.name(oids, tid)
                self._newest_name = max(self._newest_name, tid)
                for oid in oids:
                    self._witnesses.pop(to_int(oid), None)
                if exact:
                    self._note_witnesses([(to_int(oid), tid) for oid in oids[:WITNESSES]])
            self.start = min(self.start, since)
            if through < since:
                self._floor = since
            self._account()
            return True

    def can_hold(self, names: int) -> bool:
        """Whether so many names fit half of the memory, for a moment."""
        return names * DELTA_BYTES * 2 <= self._store.limit_bytes

    def trim(self) -> None:
        """Forget names if they are more than may be remembered: start at the end."""
        with self._lock:
            if len(self._deltas) > self._deltas_max:
                self._deltas.trim(self.end)
                self.start = max(self.start, self.end)
                self._account()

    def forget_all(self) -> None:
        """The base storage may have forgotten anything: so does the tier.

        What loads under way bring is not kept either.
        """
        with self._lock:
            self.epoch += 1
            self._store.clear()

    def shun(self, oids: Iterable[bytes]) -> None:
        """Keep these no more: they were undone.

        Over a DemoStorage an older revision may be current again, whose life
        has then a gap that no tier can express.
        """
        with self._lock:
            self._shunned.update(oids)
            for oid in oids:
                self._store.forget(to_int(oid))

    # What may be kept

    def admit(
        self,
        oid: bytes,
        tid: int,
        end: int,
        state: bytes,
        known: int,
        epoch: int | None = None,
    ) -> bool:
        """Keep what the base storage gave, if I3 allows; return whether it was kept.

        *end*: 0 for an open revision.  *known*, *epoch*: the log's end and
        epoch before the base storage was asked.
        """
        with self._lock:
            if oid in self._shunned or (epoch is not None and epoch != self.epoch):
                return False
            number = to_int(oid)
            if end == 0:
                if not self._is_current(number, tid, known):
                    return False
                self._note_witness(number, tid)
            return self._store.insert(number, tid, end, state)

    def admit_seen(self, oid: bytes, tid: int, state: bytes, at: int, epoch: int) -> bool:
        """Keep what a reader in a snapshot at *at* was given as current there, if I3 allows.

        Not what the log knows to have changed by then: what the base storage
        caches itself may be stale.
        """
        number = to_int(oid)
        if tid < self._deltas.get(number) <= at:
            return False
        return self.admit(oid, tid, 0, state, at, epoch)

    def admit_own(self, tid: int, states: dict[bytes, bytes | None]) -> None:
        """Keep what an own commit wrote, where the state is not None."""
        with self._lock:
            if self.start > tid:
                return
            if self._newest_name > tid or self._shunned:  # somebody changed some of it again
                states = {
                    oid: state
                    for oid, state in states.items()
                    if self._deltas.get(to_int(oid)) <= tid and oid not in self._shunned
                }
            self._store.insert_own(states, tid)
            for oid in islice(states, WITNESSES):
                self._note_witness(to_int(oid), tid)

    def admit_rows(
        self,
        rows: Sequence[tuple[int, int, int, bytes]],
        checkpoint: int,
        at: int,
        epoch: int,
        end_wanted: bool,
    ) -> bool:
        """Whether the first row of the file is right for a reader at *at* (I1).

        *rows*: ``(oid, tid, frequency, state)``, current through *checkpoint*;
        those that are current still are kept.  *epoch*: the log's before the
        rows were read.  *end_wanted*: only if it is current through the log's
        end, so that no successor is known.
        """
        with self._lock:
            if epoch != self.epoch or not rows:
                return False
            if self.start <= checkpoint <= self.end:
                name_of, promote = self._deltas.get, self._store.promote
                for oid, tid, frequency, state in rows:
                    if name_of(oid) <= checkpoint:
                        promote(oid, tid, state, frequency)
            oid, tid = rows[0][:2]
            name = self._deltas.get(oid)
            if name > self.end or tid > at:
                return False  # the former: dropped, or being committed
            covers = checkpoint >= self.start and name <= checkpoint
            is_current = covers or checkpoint >= self.end
            return (is_current and at <= self.end) or (at <= checkpoint and not end_wanted)

    def restore(
        self, batch: Batch, known: int, history: int | None = None, epoch: int | None = None
    ) -> bool:
        """Keep rows of the file, current through *known*, that did not change since.

        *history*: the memory tier's when it was known that they are.  Returns
        False when there is no use in more: the tier is full, or began anew.
        """
        with self._lock:
            if history not in (None, self._store.history) or epoch not in (None, self.epoch):
                return False
            return known < self.start or self._store.restore_batch(batch, self._deltas, known)

    def _is_current(self, oid: int, tid: int, known: int) -> bool:
        """A revision current through *known* is so through the end (I3)."""
        return known >= self.start and self._deltas.get(oid) <= max(known, tid)

    def names_since(self, tid: int) -> list[tuple[int, int]] | None:
        """``(oid, newest tid named)`` of what changed after *tid*; None if the log starts later."""
        with self._lock:
            return self._deltas.since(tid) if self.start <= tid else None

    # What the database is recognised by

    def _note_witness(self, oid: int, tid: int) -> None:
        self._witnesses[oid] = tid
        if len(self._witnesses) >= 4 * WITNESSES:
            newest = sorted(self._witnesses.items(), key=lambda item: -item[1])
            self._witnesses = dict(newest[:WITNESSES])

    def _note_witnesses(self, names: Sequence[tuple[int, int]]) -> None:
        """The newest of many: what is known of their oids from before is so no more."""
        if len(names) > WITNESSES:
            changed = {oid for oid, _ in names}
            self._witnesses = {
                oid: tid for oid, tid in self._witnesses.items() if oid not in changed
            }
            names = nlargest(WITNESSES, names, key=itemgetter(1))
        for oid, tid in names:
            self._note_witness(oid, tid)

    def note(self, names: Iterable[tuple[int, int]]) -> None:
        """These were the newest revisions of their objects somewhere; what is newer stays."""
        with self._lock:
            for oid, tid in names:
                if self._deltas.get(oid) <= tid and self._witnesses.get(oid, 0) < tid:
                    self._note_witness(oid, tid)

    def agrees(self, names: Iterable[tuple[int, int]]) -> bool:
        """Whether *names*, the current revisions of some objects, fit what is cached.

        Those after the end say nothing.  Of what is not in memory nothing is
        known, and the file's row of it is used no more.
        """
        with self._lock:
            known = [(oid, tid) for oid, tid in names if tid <= self.end]
            return all(self._agrees(oid, tid) for oid, tid in known)

    def _agrees(self, oid: int, tid: int) -> bool:
        known = self._witnesses.get(oid)
        if known is None:
            held = self._store.peek(oid)
            known = None if held is None else held[0]
        if known is None and self._deltas.get(oid) < tid:
            self._record([to_bytes(oid)], self.end + 1)
        return known in (None, tid)

    def witnesses(self) -> list[tuple[int, int]]:
        """The newest revisions seen, cached or not: ``(oid, tid)``, newest first."""
        with self._lock:
            known = [(oid, tid) for oid, tid in self._witnesses.items() if tid <= self.end]
        return sorted(known, key=lambda item: -item[1])[:WITNESSES]
