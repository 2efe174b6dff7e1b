"""The naive record of every commit: what each object was, and from when to when."""

from __future__ import annotations

from bisect import bisect_left
from bisect import bisect_right
from collections.abc import Iterable
from collections.abc import Iterator
from typing import NamedTuple

FOREVER = 1 << 63


class Revision(NamedTuple):
    """*checksum*: None where the object ceased to exist, as after its creation is undone.

    *label*: whose state it is, for a message.
    """

    oid: int
    tid: int
    checksum: int | None
    label: str = ""


class Span(NamedTuple):
    """Read points from *first* to just before *end*."""

    first: int
    end: int

    def meet(self, other: Span) -> Span | None:
        met = Span(max(self.first, other.first), min(self.end, other.end))
        return met if met.first < met.end else None


ALWAYS = Span(0, FOREVER)


class Record:
    """All revisions that ever were.  Raises ValueError if two differ at one oid and tid."""

    def __init__(self, revisions: Iterable[Revision]) -> None:
        self._of: dict[int, list[Revision]] = {}
        self._at: dict[int, set[int]] = {}
        found: dict[tuple[int, int], Revision] = {}
        for revision in revisions:
            first = found.setdefault(revision[:2], revision)
            if first.checksum != revision.checksum:
                raise ValueError(f"the record has two: {first} and {revision}")
        for revision in sorted(found.values(), key=lambda revision: revision.tid):
            self._of.setdefault(revision.oid, []).append(revision)
            self._at.setdefault(revision.tid, set()).add(revision.oid)
        self._whose: dict[int | None, list[Revision]] = {}
        for revision in found.values():
            self._whose.setdefault(revision.checksum, []).append(revision)
        self.tids = sorted(self._at)

    def revision(self, oid: int, tid: int) -> Revision | None:
        number = self._number(oid, tid)
        found = self._of[oid][number] if number >= 0 else None
        return found if found is not None and found.tid == tid else None

    def newest(self, oid: int, at: int) -> Revision | None:
        """What a reader at *at* must see."""
        number = self._number(oid, at)
        return self._of[oid][number] if number >= 0 else None

    def span(self, revision: Revision) -> Span:
        """The read points at which *revision* is what a reader must see."""
        revisions = self._of[revision.oid]
        following = self._number(revision.oid, revision.tid) + 1
        end = revisions[following].tid if following < len(revisions) else FOREVER
        return Span(revision.tid, end)

    def absence(self, oid: int) -> list[Span]:
        """The read points at which the object did not exist."""
        revisions = self._of.get(oid, [])
        before = Span(0, revisions[0].tid) if revisions else ALWAYS
        return [before, *(self.span(one) for one in revisions if one.checksum is None)]

    def commits(self, span: Span) -> Iterator[tuple[int, set[int]]]:
        """``(tid, oids)`` of the commits whose tids lie in *span*."""
        for tid in self.tids[bisect_left(self.tids, span.first) :]:
            if tid >= span.end:
                break
            yield tid, self._at[tid]

    def changed_at(self, tid: int) -> set[int]:
        return self._at.get(tid, set())

    def whose(self, checksum: int) -> list[Revision]:
        """The revisions that have just these bytes."""
        return self._whose.get(checksum, [])

    def history(self, oid: int) -> list[int]:
        """The tids of the object's revisions."""
        return [revision.tid for revision in self._of.get(oid, [])]

    def _number(self, oid: int, tid: int) -> int:
        """Of the newest revision up to *tid*; -1 if there is none."""
        return bisect_right(self._of.get(oid, []), tid, key=lambda revision: revision.tid) - 1
