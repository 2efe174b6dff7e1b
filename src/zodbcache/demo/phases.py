"""The phases in their order, each in processes of its own where it says so."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass

from zodbcache.demo.bases import Address
from zodbcache.demo.children import Children
from zodbcache.demo.errors import DemoError
from zodbcache.demo.messages import CachePlace
from zodbcache.demo.messages import ChunkRead
from zodbcache.demo.messages import Closed
from zodbcache.demo.messages import Compared
from zodbcache.demo.messages import Go
from zodbcache.demo.messages import Opened
from zodbcache.demo.messages import PhaseRead
from zodbcache.demo.messages import ReaderJob
from zodbcache.demo.progress import Advance
from zodbcache.demo.progress import ProgressBars
from zodbcache.demo.results import ChangedResult
from zodbcache.demo.results import PhaseResult

SHARING_PROCESSES = 4

TITLES = {
    "uncached": "without the cache",
    "empty": "empty cache",
    "warm": "warm, same process",
    "restarted": "warm, restarted",
    "shared": f"{SHARING_PROCESSES} processes at once",
    "changed": "after changes while it was down",
}


@dataclass(frozen=True)
class Plan:
    """What every phase reads, and from where."""

    address: Address
    cache: CachePlace
    objects: int
    seed: int

    def job(self, *phases: str, cached: bool = True, compare: bool = False) -> ReaderJob:
        return ReaderJob(
            started_s=time.monotonic(),
            address=self.address,
            cache=self.cache if cached else None,
            phases=phases,
            objects=self.objects,
            seed=self.seed,
            compare=compare,
        )


@dataclass(frozen=True)
class _Run:
    """What the readers of one run have sent."""

    opened: list[Opened]
    read: list[PhaseRead]
    closed: list[Closed]
    compared: list[Compared]


def run_phases(
    children: Children, plan: Plan, bars: ProgressBars
) -> tuple[list[PhaseResult], float]:
    """The result of every phase, and the ms that closing the filled cache took.

    Raises DemoError when a phase has read anything else than the first.
    """
    uncached = _run(children, [plan.job("uncached", cached=False)], bars)
    filled = _run(children, [plan.job("empty", "warm")], bars)
    restarted = _run(children, [plan.job("restarted")], bars)
    shared = _run(children, [plan.job("shared")] * SHARING_PROCESSES, bars)
    results = [
        _combine("uncached", uncached),
        _combine("empty", filled),
        _combine("warm", filled),
        _combine("restarted", restarted),
        _combine("shared", shared),
    ]
    _check(results)
    return results, filled.closed[0].close_ms


def run_changed(
    children: Children, plan: Plan, bars: ProgressBars, objects_changed: int
) -> ChangedResult:
    """Read with the file, after *objects_changed* objects were changed without it."""
    run = _run(children, [plan.job("changed", compare=True)], bars)
    compared = run.compared[0]
    if compared.wrong or compared.changed != objects_changed:
        raise DemoError(
            f"{compared.wrong} objects were read differently from the database's, and "
            f"{compared.changed} of {objects_changed} changes were seen. "
            "This is a bug of zodbcache: please report it."
        )
    result = _combine("changed", run)
    assert result.open_ms is not None
    return ChangedResult(
        objects_changed=objects_changed,
        wrong=compared.wrong,
        hit_ratio=result.hit_ratio,
        ms_per_500=result.ms_per_500,
        open_ms=result.open_ms,
    )


def _run(children: Children, jobs: Sequence[ReaderJob], bars: ProgressBars) -> _Run:
    """Start a reader for each of *jobs*, let all start reading together, hear them out."""
    group = children.start("zodbcache.demo.reader", jobs)
    opened = group.wait_for(Opened, len(jobs))
    group.send(Go())
    for number, phase in enumerate(jobs[0].phases, start=1):
        with bars.part(f"Read: {TITLES[phase]}", jobs[0].objects * len(jobs)) as advance:
            read = group.wait_for(PhaseRead, len(jobs) * number, _advances(advance))
    compared = []
    if jobs[0].compare:
        with bars.part("Compare with the database's", jobs[0].objects) as advance:
            compared = group.wait_for(Compared, len(jobs), _advances(advance))
    closed = group.wait_for(Closed, len(jobs))
    group.wait()
    return _Run(opened, read, closed, compared)


def _advances(advance: Advance) -> Callable[[object], None]:
    def on_message(message: object) -> None:
        if isinstance(message, ChunkRead):
            advance(message.objects)

    return on_message


def _combine(phase: str, run: _Run) -> PhaseResult:
    """One result of what all processes of *run* have read in *phase*."""
    reads = [read for read in run.read if read.phase == phase]
    checksums = {read.checksum for read in reads}
    hits = sum(read.hits for read in reads)
    misses = sum(read.misses for read in reads)
    is_first = run.read[0].phase == phase
    return PhaseResult(
        phase=phase,
        processes=len(reads),
        objects=reads[0].objects,
        ms_per_500=statistics.median(ms for read in reads for ms in read.chunks_ms_per_500),
        hit_ratio=hits / (hits + misses) if hits else 0.0,
        hits=hits,
        misses=misses,
        file_hits=sum(read.file_hits for read in reads),
        read_s=(read_s := max(read.read_s for read in reads)),
        objects_per_s=sum(read.objects for read in reads) / read_s,
        start_ms=statistics.median(o.start_ms for o in run.opened) if is_first else None,
        open_ms=statistics.median(o.open_ms for o in run.opened) if is_first else None,
        checksum=" ".join(sorted(checksums)),
    )


def _check(results: Sequence[PhaseResult]) -> None:
    for result in results:
        if result.checksum != results[0].checksum:
            raise DemoError(
                f"What was read {TITLES[result.phase]!r} is not what was read "
                f"{TITLES[results[0].phase]!r}. This is a bug of zodbcache: please report it."
            )
