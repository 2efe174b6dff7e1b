"""A naive record of a small database, and what a cache file of it may say."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from collections.abc import Iterable

from zodbcache.cachefile import CacheFile

LATEST = 2**63 - 1
ALL_BYTES = 10**12

Row = tuple[int, int, int, bytes]
Name = tuple[int, int]


class Record:
    """All revisions of all objects: ``states[oid, tid]``."""

    def __init__(self, states: dict[tuple[int, int], bytes]) -> None:
        self.states = states
        self.oids = sorted({oid for oid, _ in states})
        self._tids = {
            oid: sorted((tid for one, tid in states if one == oid), reverse=True)
            for oid in self.oids
        }
        self.changed = [oid for oid, tids in self._tids.items() if len(tids) > 1]

    def current(self, oid: int, through: int) -> int:
        """The tid of the newest revision up to *through*; 0 if there is none."""
        return next((tid for tid in self._tids.get(oid, ()) if tid <= through), 0)

    def rows(self, through: int, since: int = 0) -> list[Row]:
        """What is current at *through* and came after *since*."""
        tids = ((oid, self.current(oid, through)) for oid in self.oids)
        return [(oid, tid, tid % 5, self.states[oid, tid]) for oid, tid in tids if tid > since]

    def names_since(self, through: int) -> Callable[[int], list[Name]]:
        """As a log that ends at *through* tells them."""
        return lambda since: [name for name in self.states if since < name[1] <= through]

    def advance(self, file: CacheFile, through: int, *, since: int = 0) -> None:
        """Bring *file* to *through*, with the rows that came after *since*."""
        with file.snapshot() as snapshot:
            generation = snapshot.generation
        witnesses = sorted(self.names_since(through)(0), key=lambda name: -name[1])[:64]
        file.advance(
            through, generation, self.names_since(through), self.rows(through, since), witnesses
        )

    def judge(self, rows: Iterable[Row], checkpoint: int) -> None:
        """I1: each row is the revision current through *checkpoint*."""
        for oid, tid, _, state in rows:
            current = self.current(oid, checkpoint)
            assert tid == current, f"I1: {oid}@{tid} is shown at {checkpoint}, {current} is current"
            assert state == self.states[oid, tid], f"a wrong state of {oid}@{tid}"

    def judge_file(self, file: CacheFile, *, proven: int) -> int:
        """Judge all that *file* says, by a snapshot and by single reads; return its checkpoint."""
        with file.snapshot() as snapshot:
            checkpoint, generation = snapshot.checkpoint, snapshot.generation
            assert checkpoint <= proven, f"I6: {checkpoint} was never proven"
            rows = list(snapshot.rows(LATEST, ALL_BYTES))
        self.judge(rows, checkpoint)
        reader = file.reader()
        try:
            for oid, ahead in [*((oid, 0) for oid in self.changed), (0, 30), (30, 30), (60, 30)]:
                found = reader.read(oid, ahead=ahead)
                assert (found.checkpoint, found.generation) == (checkpoint, generation)
                self.judge(found.rows, checkpoint)
        finally:
            if reader.is_damaged:
                file.mark_damaged()
            reader.close()
        return checkpoint


def make_record() -> Record:
    """Two leaves and more of small states, and a large one that needs pages of its own.

    Changes at tids 2, 6, 12 and 17.
    """
    changed = {2: [*range(70)], 6: [5, 20, 60], 12: [3, 20, 41, 69, 70, 71], 17: [4, 20, 40, 70]}
    return Record({(oid, tid): _state(oid, tid) for tid, oids in changed.items() for oid in oids})


def _state(oid: int, tid: int) -> bytes:
    length = 40_000 if oid == 41 else 400
    return hashlib.shake_128(b"%d@%d" % (oid, tid)).digest(length)
