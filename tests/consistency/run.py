"""A run: a database, its processes, and the judgement of what they wrote down."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from itertools import chain
from pathlib import Path
from random import Random
from signal import SIGKILL
from typing import Any

from .bases import Base
from .bases import base_of
from .journal import entries
from .judge import Bounds
from .judge import Judge
from .judge import Wrong
from .judge import commits_of
from .judge import revisions_of
from .record import Record
from .worker import Job

ROOT = Path(__file__).parents[2]
"""Of the source tree: the processes are started here."""

STARTUP_SECONDS = 60.0
READS_A_SECOND = 250
"""No machine may be slower than this; it bounds how long a run may take."""


@dataclass
class Totals:
    """What happened in a run; *broken*: errors that should never be, and failed processes."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[Wrong] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __getitem__(self, name: str) -> int:
        return self.counts[name]

    def add(self, other: Totals) -> None:
        self.counts += other.counts
        self.wrong += other.wrong
        self.broken += other.broken
        self.seconds += other.seconds

    def __str__(self) -> str:
        counts = [f"{name} {count}" for name, count in sorted(self.counts.items())]
        kinds = Counter(wrong.kind for wrong in self.wrong)
        of_which = "".join(f" ({kind} {count})" for kind, count in sorted(kinds.items()))
        ends = f"broken {len(self.broken)}, wrong={len(self.wrong)}{of_which}"
        return ", ".join([*counts, f"{ends} in {self.seconds:.0f} s"])


def run(
    *,
    kind: str,
    address: str,
    keep_history: bool,
    cache: str,
    reads: int,
    seed: int,
    processes: int,
    threads: int,
    directory: Path,
    backend: str | None = None,
    memory_mb: float | None = None,
    write_seconds: float | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Totals:
    """Have *processes* use an empty database together until they have made *reads* reads.

    *backend*, *memory_mb*, *write_seconds*: of the cache; None: at random.

    *address*: of the database, as bases.py has it.  *directory*: for the
    journals and the cache file; it stays, for whoever wants to understand
    what was wrong.
    """
    started = time.monotonic()
    job = Job(
        kind=kind,
        address=address,
        keep_history=keep_history,
        cache=cache,
        directory=str(directory),
        seed=seed,
        process=0,
        processes=processes,
        threads=threads,
        first_life=0,
        reads=-(-reads // (processes * threads)),
        time_limit_seconds=STARTUP_SECONDS + reads / READS_A_SECOND,
        backend=backend,
        memory_mb=memory_mb,
        write_seconds=write_seconds,
    )
    base = base_of(kind, address, keep_history=keep_history, layout=job.layout)
    if base.records_itself:
        base.found(Random(seed))
    broken = _live(job, progress)
    totals = _judge(job, base)
    totals.broken += broken
    totals.seconds = time.monotonic() - started
    return totals


def _live(job: Job, progress: Callable[[str], None]) -> list[str]:
    """Start every process, and again those that were killed; return how some failed."""
    jobs = [replace(job, process=number) for number in range(job.processes)]
    with ThreadPoolExecutor(job.processes) as executor:
        failures = executor.map(lambda one: list(_lives(one, progress)), jobs)
        return [failure for of_one in failures for failure in of_one]


def _lives(job: Job, progress: Callable[[str], None]) -> Iterator[str]:
    """One process after the other has the rest of the lives of *job*; yields how one failed."""
    while job.reads > 0:
        status, errors = _run_process(job)
        if status != -SIGKILL:
            if status:
                yield f"process {job.process} ended with status {status}: {errors}"
            return
        job = _rest(job)
        progress(f"process {job.process} was killed; {job.reads} reads left for each thread")


def _run_process(job: Job) -> tuple[int, str]:
    """Its exit status, and what it wrote to stderr.  It ends when this process does."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.consistency.worker", job.text()],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stderr=errors,
        )
        with process:
            try:
                # It keeps its time limit itself; this one is for when it cannot.
                status = process.wait(job.time_limit_seconds + STARTUP_SECONDS)
            except BaseException:
                process.kill()
                raise
        errors.seek(0)
        return status, errors.read().decode(errors="replace")


def _rest(job: Job) -> Job:
    """What a killed process had still to do."""
    lives = [_life_number(path) for path in _journals(job, f"p{job.process}l*.journal")]
    done = sum(
        len(entry["reads"])
        for path in _journals(job, f"p{job.process}l*t*.journal")
        if _life_number(path) >= job.first_life
        for entry in entries(path)
        if entry["event"] == "reads"
    )
    return replace(
        job,
        first_life=max(lives, default=job.first_life) + 1,
        reads=job.reads - done // job.threads,
    )


def _journals(job: Job, pattern: str = "*.journal") -> list[Path]:
    return sorted(Path(job.directory).glob(pattern))


def _life_number(path: Path) -> int:
    (number,) = re.findall(r"l(\d+)", path.name)
    return int(number)


def _judge(job: Job, base: Base) -> Totals:
    """What the journals of the run say, once all its processes have ended."""
    paths = _journals(job)
    totals = Totals()
    for path in paths:
        for entry in entries(path):
            _count(totals, path, entry)
    revisions = [base.revisions()]
    if not base.records_itself:
        revisions += [revisions_of(entries(path)) for path in paths]
    record = Record(chain.from_iterable(revisions))
    bounds = Bounds(chain.from_iterable(commits_of(entries(path)) for path in paths))
    judge = Judge(record, bounds, job.layout.garbage if totals["packs begun"] else ())
    for path in paths:
        judge.judge(entries(path))
    totals.wrong = judge.wrong
    totals.counts["reads"] = judge.reads
    return totals


def _count(totals: Totals, path: Path, entry: dict[str, Any]) -> None:
    event = entry["event"]
    if event == "did":
        totals.counts[entry["what"]] += 1
    elif event == "failed":
        totals.counts[f"failed: {entry['error'].partition(':')[0]}"] += 1
    elif event == "broken":
        totals.broken.append(f"{path.name}: {entry['error']}")
    elif event == "committed":
        totals.counts["commits"] += 1
    elif event == "view":
        totals.counts["views"] += 1
    elif event == "stats":
        for name in ("hits", "misses", "restored", "file_hits", "file_writes"):
            totals.counts[name] += entry["stats"].get(name, 0)
        if entry["is_silent"]:
            assert not entry["stats"].get("file_writes"), "it must not write"
            totals.counts["shared"] += entry["stats"].get("file_hits", 0)
