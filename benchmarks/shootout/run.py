"""Runs zodbshootout, and reads what it measured.

zodbshootout measures one database after the other, and so does not see them
on the same machine when this drifts.  Whole runs, *rounds*, are repeated with
the databases in the opposite order, and ratios are taken within a round.
"""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyperf

from benchmarks.shootout.configuration import NewDatabase
from benchmarks.shootout.configuration import configured
from benchmarks.shootout.plan import MODES
from benchmarks.shootout.plan import STORAGES

FAILURE_SECONDS = 666
"""What zodbshootout returns as the time of a benchmark that has failed."""

FAILURE_TEXT = "When running"
"""What it logs then, before the traceback."""

Seconds = dict[str, dict[str, float]]
"""The medians of one run: by cache, by benchmark."""


class ShootoutError(Exception):
    """zodbshootout, or a benchmark in it, has failed."""


@dataclass(frozen=True)
class Effort:
    """How much is measured: *objects* in a transaction, and pyperf's processes and values."""

    objects: int = 500
    processes: int = 1
    values: int = 3

    @property
    def options(self) -> tuple[str, ...]:
        return (
            *("--object-counts", str(self.objects)),
            *("--processes", str(self.processes)),
            *("--values", str(self.values)),
            *("--warmups", "1"),
        )


@dataclass(frozen=True)
class Comparison:
    """One storage in one mode, round by round."""

    storage: str
    mode: str
    rounds: Sequence[Seconds]

    @property
    def caches(self) -> tuple[str, ...]:
        return STORAGES[self.storage].caches

    def median(self, cache: str, benchmark: str) -> float:
        """Seconds."""
        return statistics.median(one[cache][benchmark] for one in self.rounds)

    def ratios(self, cache: str, benchmark: str) -> list[float]:
        """Of the time that the same takes without a cache: of each round."""
        none = self.caches[0]
        return [one[cache][benchmark] / one[none][benchmark] for one in self.rounds]

    def ratio(self, cache: str, benchmark: str) -> float:
        return statistics.median(self.ratios(cache, benchmark))


def compare(
    storage: str,
    mode: str,
    benchmarks: Sequence[str],
    effort: Effort,
    rounds: int,
    new_database: NewDatabase,
    keep: Path | None = None,
) -> Comparison:
    """Run the rounds.  *keep*: a directory for zodbshootout's own JSON files."""
    found = []
    for number in range(rounds):
        caches = STORAGES[storage].caches[:: -1 if number % 2 else 1]
        with (
            tempfile.TemporaryDirectory(prefix="shootout_") as temporary,
            configured(storage, caches, _subdirectory(temporary), new_database) as configuration,
        ):
            output = configuration.with_name("shootout.json")
            if keep is not None:
                output = keep / f"{storage}-{mode}-{number + 1}.json"
            shoot(configuration, output, (*MODES[mode].options, *effort.options), benchmarks)
            found.append({cache: seconds(output, cache, effort.objects) for cache in caches})
    return Comparison(storage, mode, found)


def _subdirectory(temporary: str) -> Path:
    """One whose name can be a database's, too."""
    directory = Path(temporary) / Path(temporary).name.lower()
    directory.mkdir()
    return directory


def shoot(
    configuration: Path, output: Path, options: Sequence[str], benchmarks: Sequence[str]
) -> None:
    """Run zodbshootout once.  Raises ShootoutError."""
    command = [
        *(sys.executable, "-m", "zodbshootout", "--quiet", "--fail-fast", "--zap", "force"),
        *("--include-mapping", "false", "--output", str(output), *options),
        str(configuration),
        *benchmarks,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or FAILURE_TEXT in done.stderr:
        raise ShootoutError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def seconds(output: Path, cache: str, objects: int) -> dict[str, float]:
    """The medians of the database that has this *cache*.  Raises ShootoutError."""
    path = output.with_suffix(".d") / f"{cache}_{objects}.json"
    found = {}
    for benchmark in pyperf.BenchmarkSuite.load(str(path)):
        name = benchmark.get_name()
        if any(_has_failed(benchmark, run) for run in benchmark.get_runs()):
            raise ShootoutError(f"{name} with {cache} has failed, and said nothing")
        found[name] = benchmark.median()
    return found


def _has_failed(benchmark: pyperf.Benchmark, run: pyperf.Run) -> bool:
    """A value is the time divided by the loops."""
    loops = run.get_total_loops()
    return any(math.isclose(value * loops, FAILURE_SECONDS) for value in run.values)


def rows(comparisons: Sequence[Comparison]) -> Iterator[tuple[str, ...]]:
    """Storage, mode and benchmark, cache; milliseconds; ratio, lowest and highest."""
    for comparison in comparisons:
        title = f"{STORAGES[comparison.storage].title}, {MODES[comparison.mode].title}"
        none, *others = comparison.caches
        for benchmark in comparison.rounds[0][none]:
            for cache in others:
                ratios = comparison.ratios(cache, benchmark)
                yield (
                    f"{title}, {benchmark}",
                    cache,
                    f"{comparison.median(none, benchmark) * 1e3:.2f}",
                    f"{comparison.median(cache, benchmark) * 1e3:.2f}",
                    f"{statistics.median(ratios):.2f}",
                    f"{min(ratios):.2f}-{max(ratios):.2f}",
                    f"{1 / statistics.median(ratios):.1f}",
                )
