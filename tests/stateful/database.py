"""The naive model: a database as a list of all its revisions.

What it answers is right by inspection; everything else is compared with it.
Ids are int64 here, as in :mod:`zodbcache.ids`.
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from ZODB.POSException import POSKeyError

from zodbcache.ids import to_bytes

_tid = attrgetter("tid")


class Revision(NamedTuple):
    """*state*: None where the object was deleted."""

    tid: int
    state: bytes | None


class Transaction(NamedTuple):
    tid: int
    oids: frozenset[int]


class Database:
    """All revisions of all objects, oldest first.  Tids have gaps, as real ones do."""

    def __init__(self) -> None:
        self.revisions: dict[int, list[Revision]] = {}
        self.transactions: list[Transaction] = []
        self.last_tid = 0

    def commit(self, tid: int, states: dict[int, bytes | None]) -> None:
        assert tid > self.last_tid
        for oid, state in states.items():
            self.revisions.setdefault(oid, []).append(Revision(tid, state))
        self.transactions.append(Transaction(tid, frozenset(states)))
        self.last_tid = tid

    def load_before(
        self, oid: int, before: int, *, as_of: int | None = None
    ) -> tuple[bytes, bytes, bytes | None] | None:
        """As IStorage.loadBefore; *as_of*: what it would have said when that tid was the last."""
        found = self.revisions.get(oid, [])
        known = len(found) if as_of is None else bisect_right(found, as_of, key=_tid)
        if not known:
            raise POSKeyError(to_bytes(oid))
        following = min(bisect_left(found, before, key=_tid), known)
        if not following:
            return None
        tid, state = found[following - 1]
        if state is None:
            raise POSKeyError(to_bytes(oid))
        end = to_bytes(found[following].tid) if following < known else None
        return state, to_bytes(tid), end

    def has(self, oid: int, tid: int) -> bool:
        return any(revision.tid == tid for revision in self.revisions.get(oid, ()))

    def pack(self, tid: int) -> set[int]:
        """Forget every revision that *tid* or something before it has replaced.

        Returns the oids of which no trace is left, since they had been deleted.
        """
        erased = set()
        for oid, found in list(self.revisions.items()):
            old = [revision for revision in found if revision.tid <= tid]
            is_deleted = bool(old) and old[-1].state is None
            self._forget(oid, {one.tid for one in (old if is_deleted else old[:-1])})
            if is_deleted:
                erased.add(oid)
        return erased

    def collect(self, oids: Iterable[int]) -> None:
        """Forget these objects altogether, as garbage collection does."""
        for oid in list(oids):
            self._forget(oid, {revision.tid for revision in self.revisions.get(oid, ())})

    def _forget(self, oid: int, tids: set[int]) -> None:
        left = [revision for revision in self.revisions.get(oid, ()) if revision.tid not in tids]
        if left:
            self.revisions[oid] = left
        else:
            self.revisions.pop(oid, None)
        transactions = [
            Transaction(one.tid, one.oids - {oid}) if one.tid in tids else one
            for one in self.transactions
        ]
        self.transactions = [one for one in transactions if one.oids]

    def reopened(self) -> Database:
        """What is there after the database was closed and opened: the last tid is found anew."""
        other = self.copied()
        other.last_tid = max((one.tid for one in other.transactions), default=0)
        return other

    def copied(self) -> Database:
        other = Database()
        other.revisions = {oid: list(found) for oid, found in self.revisions.items()}
        other.transactions = copy.copy(self.transactions)
        other.last_tid = self.last_tid
        return other
