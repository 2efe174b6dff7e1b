"""What the demo has found out: frozen dataclasses, and the JSON they become."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PhaseResult:
    """One way of reading.

    *ms_per_500*: the median over all chunks of 500 objects, of all
    processes.  *hit_ratio*: hits of all loads, 0 to 1.  *start_ms*
    (the interpreter and its imports) and *open_ms* (connecting, the cache,
    the DB): before the first read and in no other figure, the median over
    the processes; None for a phase that goes on in an open process.
    *read_s*: of the slowest process.  *objects_per_s*: of all processes together.
    """

    phase: str
    processes: int
    objects: int
    ms_per_500: float
    hit_ratio: float
    hits: int
    misses: int
    file_hits: int
    read_s: float
    objects_per_s: float
    start_ms: float | None
    open_ms: float | None
    checksum: str


@dataclass(frozen=True)
class ChangedResult:
    """Reading with the file after objects changed while no process had it open."""

    objects_changed: int
    wrong: int
    hit_ratio: float
    ms_per_500: float
    open_ms: float


@dataclass(frozen=True)
class GraphResult:
    """What was parsed and stored; *objects*: with the BTrees' own."""

    modules: int
    functions: int
    classes: int
    skipped: int
    objects: int
    parse_s: float
    store_s: float
    database_bytes: int


@dataclass(frozen=True)
class DemoResult:
    """*base*: the name of what it ran on.

    *own_cache_mb*: what the storage's own cache was set to.  *objects*: read
    in each phase, by each process.  *close_ms*: saving the cache's file.
    """

    base: str
    own_cache_mb: float
    python: str
    objects: int
    graph: GraphResult
    phases: tuple[PhaseResult, ...]
    changed: ChangedResult
    close_ms: float
    cache_bytes: int
    total_s: float

    def phase(self, name: str) -> PhaseResult:
        return next(result for result in self.phases if result.phase == name)

    def speedup(self, phase: PhaseResult) -> float:
        """How many times faster than without the cache."""
        return self.phase("uncached").ms_per_500 / phase.ms_per_500

    def write_json(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")


def percent(ratio: float) -> str:
    """*ratio* in percent, rounded down: 100.0 % means all of them."""
    return f"{math.floor(ratio * 1000) / 10:.1f} %"
