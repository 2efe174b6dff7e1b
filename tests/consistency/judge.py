"""Whether what the journals say can have been: every read against the record of every commit.

The rules, of one instance's views one after the other:

- There is one read point at which all reads of a view are the newest revisions.
- It is not before that of the instance's view before, nor before any commit that
  had finished when the view was asked for, nor after one that began later.
- Every object changed between two views was invalidated, unless the instance
  itself wrote just that revision.
- Every state is what was committed, byte for byte.

A view may *move* once for each time that it was provoked to; then the reads
before and after have read points of their own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field
from itertools import accumulate
from typing import Any

from .journal import Read
from .record import ALWAYS
from .record import FOREVER
from .record import Record
from .record import Revision
from .record import Span

Spans = list[Span]


@dataclass
class Group:
    """Reads that stand together in the journal."""

    reads: list[Read]
    may_move: bool
    floor: int


@dataclass
class View:
    """What one instance saw from one poll to the next."""

    instance: str
    number: int
    began: int
    polled: int
    changed: set[int] | None
    groups: list[Group] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.instance}, view {self.number}"


@dataclass(frozen=True)
class Wrong:
    """*kind*: ``revision``, ``bytes``, ``view``, ``invalidation`` or ``commit``."""

    kind: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"wrong {self.kind} in {self.where}: {self.what}"


class Bounds:
    """When each commit certainly was: what a view must and must not see."""

    def __init__(self, commits: Iterable[tuple[int, int, int]]) -> None:
        """*commits*: ``(before, after, tid)``, the times around each commit that is known of."""
        known = list(commits)
        finished = sorted((after, tid) for _, after, tid in known)
        begun = sorted(((before, tid) for before, _, tid in known), reverse=True)
        self._finished = [after for after, _ in finished]
        self._newest = list(accumulate((tid for _, tid in finished), max))
        self._begun = [-before for before, _ in begun]
        self._oldest = list(accumulate((tid for _, tid in begun), min))

    def span(self, began: int, polled: int) -> Span:
        """The read points that a view asked for and got at these times may have."""
        finished = bisect_left(self._finished, began)
        begun = bisect_left(self._begun, -polled)
        return Span(
            self._newest[finished - 1] if finished else 0,
            self._oldest[begun - 1] if begun else FOREVER,
        )


class Judge:
    """Judges the journals of one thread after the other; *wrong* is what it found.

    *collected*: objects that a pack may have removed at any time.
    """

    def __init__(self, record: Record, bounds: Bounds, collected: Container[int]) -> None:
        self.wrong: list[Wrong] = []
        self.reads = 0
        self._record = record
        self._bounds = bounds
        self._collected = collected

    def judge(self, entries: Iterable[dict[str, Any]]) -> None:
        """All that one thread wrote down."""
        instances: dict[str, list[View]] = {}
        own: dict[str, set[int]] = {}
        for entry in entries:
            if entry["event"] == "view":
                changed = None if entry["changed"] is None else set(entry["changed"])
                view = View(
                    entry["instance"], entry["view"], entry["began"], entry["polled"], changed
                )
                instances.setdefault(view.instance, []).append(view)
            elif entry["event"] == "reads":
                reads = [Read(*read) for read in entry["reads"]]
                group = Group(reads, entry["may_move"], entry["floor"])
                instances[entry["instance"]][-1].groups.append(group)
            elif entry["event"] == "committed":
                own.setdefault(entry["instance"], set()).add(entry["tid"])
                if not self._record.changed_at(entry["tid"]):
                    where = f"{entry['instance']}, commit {entry['number']}"
                    self._find("commit", where, f"nobody has tid {entry['tid']}")
        for instance, views in instances.items():
            self._judge_instance(views, own.get(instance, set()))

    def _find(self, kind: str, where: object, what: str) -> None:
        self.wrong.append(Wrong(kind, str(where), what))

    # One instance

    def _judge_instance(self, views: list[View], own_tids: set[int]) -> None:
        before: Span | None = None
        floor = 0
        for view in views:
            polled_at, floor = self._judge_view(view, floor)
            if before is not None and view.changed is not None:
                self._check_invalidations(view, before, polled_at, own_tids)
            before = polled_at

    def _check_invalidations(self, view: View, before: Span, now: Span, own_tids: set[int]) -> None:
        """*before*, *now*: where the read points at the last poll and at this one lie."""
        assert view.changed is not None
        for tid, oids in self._record.commits(Span(before.end, now.first + 1)):
            missing = [
                oid
                for oid in sorted(oids - view.changed)
                if oid not in self._collected
                and self._record.newest(oid, now.first).tid not in own_tids
            ]
            if missing:
                self._find(
                    "invalidation",
                    view,
                    f"objects {missing} changed at {tid}, after the view before, whose read"
                    f" point is below {before.end}, and up to {now.first}, which this one saw",
                )

    # One view

    def _judge_view(self, view: View, floor: int) -> tuple[Span, int]:
        """Where the read point at the poll can lie, and the floor of the instance's next view."""
        moves = 0
        first: Span | None = None
        bounds = self._bounds.span(view.began, view.polled)
        run = Run(Span(max(floor, bounds.first), bounds.end))
        if bounds.end <= run.floor:
            self._find("view", view, f"is past {bounds.end - 1}, though that was committed later")
            run = Run(Span(floor, FOREVER))
        for group in view.groups:
            if group.may_move:
                first = first or run.at
                moves += 1
            for number, read in enumerate(group.reads):
                self.reads += 1
                spans = self._spans(view, read)
                if spans is None:
                    continue
                must_move = group.floor and not number
                if moves and (must_move or not run.allows(spans)):
                    self._conclude(view, run)
                    moves -= 1
                    run = Run(Span(max(run.floor, group.floor), FOREVER))
                run.add(read, spans)
        self._conclude(view, run)
        return first or run.at, run.floor

    def _spans(self, view: View, read: Read) -> Spans | None:
        """The read points at which *read* is right; None if nothing follows from it."""
        if read.tid == 0:
            if read.oid in self._collected:
                return None
            return self._record.absence(read.oid)
        revision = self._record.revision(read.oid, read.tid)
        if revision is None:
            self._find(
                "revision",
                view,
                f"{read.oid} has no revision at {read.tid}; the bytes are"
                f" {self._whose(read)}; it changed at {self._record.history(read.oid)[-20:]}",
            )
            return None
        if revision.checksum != read.checksum:
            self._find("bytes", view, f"those of {revision} are {self._whose(read)}")
            return None
        if read.oid in self._collected:  # nobody is told of a change that a pack has removed
            return [Span(read.tid, FOREVER)]
        return [self._record.span(revision)]

    def _whose(self, read: Read) -> str:
        found = self._record.whose(read.checksum)
        return " or ".join(map(_name, found)) or "nobody's"

    def _conclude(self, view: View, run: Run) -> None:
        """Tell what was wrong in *run*, if its reads have no read point in common."""
        if run.spans:
            return
        at, kept = run.best()
        if len(kept) == len(run.reads):
            self._find(
                "view",
                view,
                f"all {len(kept)} reads are of a read point in {_list(at)}, but it must lie in"
                f" {_list([run.allowed])}: the commits at its ends are known to be finished"
                " before and begun after",
            )
            return
        for read, spans in run.reads:
            if read not in kept:
                newest = self._record.newest(read.oid, at[0].first)
                self._find(
                    "revision",
                    view,
                    f"{read.oid} was read as of {read.tid}, right at read points"
                    f" {_list(spans)}; {len(kept)} of {len(run.reads)} reads say the read point"
                    f" is in {_list(at)}, where it is {_name(newest)}; its tids:"
                    f" {self._around(read)}",
                )

    def _around(self, read: Read) -> list[int]:
        history = self._record.history(read.oid)
        number = bisect_left(history, read.tid)
        return history[max(0, number - 2) : number + 4]


class Run:
    """Reads of one read point.

    *allowed*: where it may lie.  *spans*: where it can, by the reads so far.
    """

    def __init__(self, allowed: Span) -> None:
        self.allowed = allowed
        self.spans: Spans = [allowed]
        self.reads: list[tuple[Read, Spans]] = []

    def allows(self, spans: Spans) -> bool:
        return bool(_meet(self.spans, spans))

    def add(self, read: Read, spans: Spans) -> None:
        self.reads.append((read, spans))
        self.spans = _meet(self.spans, spans)

    @property
    def at(self) -> Span:
        """From the first to the last possible read point; of a wrong run, the allowed ones."""
        if not self.spans:
            return self.allowed
        return Span(self.spans[0].first, self.spans[-1].end)

    @property
    def floor(self) -> int:
        return self.at.first

    def best(self) -> tuple[Spans, list[Read]]:
        """The read points at which most reads are right, within what is allowed if any is."""
        firsts = {span.first for _, spans in self.reads for span in spans}
        within = ALWAYS if self._agree() else self.allowed
        candidates = {within.first, *(first for first in firsts if first < within.end)}
        best = max(
            sorted(at for at in candidates if at >= within.first),
            key=lambda at: len(self._right(at)),
        )
        kept = self._right(best)
        spans: Spans = [within]
        for read, of_read in self.reads:
            if read in kept:
                spans = _meet(spans, of_read)
        return [span for span in spans if span.first <= best < span.end], kept

    def _agree(self) -> bool:
        """Whether the reads have a read point in common, if an impossible one."""
        spans: Spans = [ALWAYS]
        for _, of_read in self.reads:
            spans = _meet(spans, of_read)
        return bool(spans)

    def _right(self, at: int) -> list[Read]:
        return [
            read for read, spans in self.reads if any(span.first <= at < span.end for span in spans)
        ]


def _meet(some: Spans, others: Spans) -> Spans:
    met = (one.meet(other) for one in some for other in others)
    return [span for span in met if span is not None]


def _list(spans: Iterable[Span]) -> str:
    return " or ".join(
        f"[{span.first}, {'...' if span.end == FOREVER else span.end})" for span in spans
    )


def _name(revision: Revision | None) -> str:
    if revision is None:
        return "not there"
    return f"{revision.oid} at {revision.tid} ({revision.label})"


def commits_of(entries: Iterable[dict[str, Any]]) -> Iterator[tuple[int, int, int]]:
    """``(before, after, tid)`` of the commits in a journal whose ends are known."""
    begun: dict[tuple[str, int], int] = {}
    for entry in entries:
        if entry["event"] == "trying":
            begun[entry["instance"], entry["number"]] = entry["before"]
        elif entry["event"] == "committed":
            before = begun[entry["instance"], entry["number"]]
            yield before, entry["after"], entry["tid"]


def revisions_of(entries: Iterable[dict[str, Any]]) -> Iterator[Revision]:
    """What was committed according to a journal."""
    states: dict[tuple[str, int], list[list[int]]] = {}
    for entry in entries:
        if entry["event"] == "trying":
            states[entry["instance"], entry["number"]] = entry["states"]
        elif entry["event"] == "committed":
            label = f"by {entry['instance']}.{entry['number']}"
            for oid, checksum in states[entry["instance"], entry["number"]]:
                yield Revision(oid, entry["tid"], checksum, label)
