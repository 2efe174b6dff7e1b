"""Measurements that are compared are made in turn, again and again, in one process after another.

pyperf's runner measures each benchmark by itself, minutes apart from the one
it is compared with, and a machine that drifts meanwhile hides what is asked.
Here a *round* is every scenario once, in random order, within seconds.  A
ratio is taken within each round; the figure is the median of all rounds'.
The results are kept in pyperf's format all the same.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyperf

Round = dict[str, float]
"""Seconds by name."""

Measure = Callable[[str], Round]
"""Measures one scenario, which may have several figures, each with a name of its own."""


class Results:
    """The rounds of several processes."""

    def __init__(self, processes: Sequence[Sequence[Round]]) -> None:
        self.processes = processes
        self.rounds = [one for rounds in processes for one in rounds]

    @property
    def names(self) -> list[str]:
        return list(self.rounds[0])

    def median(self, name: str) -> float:
        """Seconds."""
        return statistics.median(one[name] for one in self.rounds)

    def ratio(self, name: str, of: str) -> float:
        """How long *name* takes, of the time of *of*."""
        return statistics.median(one[name] / one[of] for one in self.rounds)

    def faster(self, name: str, than: str) -> float:
        """How many times as long *than* takes."""
        return statistics.median(one[than] / one[name] for one in self.rounds)

    def benchmarks(self, prefix: str = "") -> Iterator[pyperf.Benchmark]:
        """As pyperf keeps them: a run is a process."""
        for name in self.names:
            metadata = {"name": prefix + name, "unit": "second", "loops": 1}
            yield pyperf.Benchmark(
                [
                    pyperf.Run([one[name] for one in rounds], metadata=metadata)
                    for rounds in self.processes
                ]
            )


def measure_rounds(scenarios: Sequence[str], measure: Measure, count: int) -> list[Round]:
    """Measure every scenario *count* times, each round in another order."""
    rounds = []
    for _ in range(count):
        figures = {name: measure(name) for name in random.sample(scenarios, len(scenarios))}
        rounds.append({key: figures[name][key] for name in scenarios for key in figures[name]})
    return rounds


def run_script(script: str, job: dict[str, Any]) -> Any:
    """What *script* prints as JSON in a fresh process that is given *job*."""
    done = subprocess.run(
        [sys.executable, script, "--worker", json.dumps(job)],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(done.stdout)


def importable_modules() -> list[str]:
    """Those imported, that others can import by their names."""
    specs = {name: getattr(module, "__spec__", None) for name, module in sys.modules.items()}
    return sorted(name for name, spec in specs.items() if spec is not None and spec.name == name)


def import_all(modules: Sequence[str]) -> None:
    """So that it is not timed."""
    for name in modules:
        importlib.import_module(name)


def save(benchmarks: Sequence[pyperf.Benchmark], path: Path) -> None:
    """For ``python -m pyperf``."""
    pyperf.BenchmarkSuite(benchmarks).dump(str(path), replace=True)


SIZES = {"fast": (2, 3), "usual": (5, 5), "rigorous": (10, 10)}
"""Processes, and rounds in each."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """pyperf's options, as far as they mean something here."""
    processes, rounds = SIZES["usual"]
    parser.add_argument("-p", "--processes", type=int, default=processes)
    parser.add_argument("-n", "--rounds", type=int, default=rounds, help="in each process")
    for name in ("fast", "rigorous"):
        processes, rounds = SIZES[name]
        parser.add_argument(f"--{name}", action=_Size, nargs=0, help=f"-p {processes} -n {rounds}")
    parser.add_argument("-o", "--output", type=Path, help="keep the result, in pyperf's format")
    parser.add_argument("--worker", type=json.loads, help=argparse.SUPPRESS)


class _Size(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        namespace.processes, namespace.rounds = SIZES[self.dest]
