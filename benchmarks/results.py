"""What a question's file holds: pyperf's suite, and what was kept beside the times."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyperf

from benchmarks.questions import QUESTIONS
from benchmarks.questions import Question
from benchmarks.report import KEPT
from benchmarks.report import Goal


@dataclass(frozen=True)
class Table:
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Result:
    """*kept*: what report.keep() and the suite have added; empty if they have not."""

    question: Question
    suite: pyperf.BenchmarkSuite
    kept: dict[str, Any]

    @cached_property
    def names(self) -> list[str]:
        names: list[str] = self.suite.get_benchmark_names()
        return names

    def benchmark(self, name: str) -> pyperf.Benchmark:
        return self.suite.get_benchmark(name)

    def median(self, name: str) -> float:
        """In the benchmark's unit."""
        median: float = self.benchmark(name).median()
        return median

    def ratio(self, name: str, of: str) -> float:
        """Of *of*'s figure, within a round; that only if both were measured in rounds."""
        pairs = zip(self.benchmark(name).get_values(), self.benchmark(of).get_values(), strict=True)
        return statistics.median(one / other for one, other in pairs)

    @property
    def tables(self) -> list[Table]:
        return [
            Table(table["title"], tuple(table["head"]), tuple(map(tuple, table["rows"])))
            for table in self.kept.get("tables", ())
        ]

    @property
    def goals(self) -> list[Goal]:
        return [Goal(**goal) for goal in self.kept.get("goals", ())]

    @property
    def date(self) -> str:
        date: str = self.kept.get("date", "")
        return date[:16].replace("T", " ")


def load(question: Question, path: Path) -> Result:
    suite = pyperf.BenchmarkSuite.load(str(path))
    return Result(question, suite, json.loads(path.read_text()).get(KEPT, {}))


def load_all(directory: Path) -> Iterator[Result]:
    """Every result that is there, in the order of the questions."""
    for question in QUESTIONS.values():
        path = directory / f"{question.name}.json"
        if path.exists():
            yield load(question, path)
