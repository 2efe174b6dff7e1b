"""All benchmarks at once: each question's script in a process, its result and its log in files.

A question that fails keeps none of the others from being asked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn
from rich.progress import MofNCompleteColumn
from rich.progress import Progress
from rich.progress import SpinnerColumn
from rich.progress import TextColumn
from rich.progress import TimeElapsedColumn

from benchmarks.questions import Question
from benchmarks.report import KEPT
from benchmarks.report import keep

QUICK = "quick"
EFFORTS = (QUICK, "fast", "usual", "rigorous")
"""How exactly times are measured; QUICK, whether all of it works."""

LOG_LINES = 25
"""Of a failed question's log, that are shown."""


@dataclass(frozen=True)
class Run:
    """How one question went."""

    question: Question
    seconds: float
    is_done: bool
    log: Path

    def last_lines(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES:])


def result_path(question: Question, directory: Path) -> Path:
    return directory / f"{question.name}.json"


def arguments(question: Question, effort: str) -> tuple[str, ...]:
    if effort == QUICK:
        return question.quick
    size = (f"--{effort}",) if question.is_sized and effort != "usual" else ()
    return (*size, *question.full)


def ask(question: Question, directory: Path, effort: str) -> Run:
    """Run the question's script; what an earlier run has left is gone first."""
    result, log = result_path(question, directory), directory / f"{question.name}.log"
    result.unlink(missing_ok=True)
    command = [sys.executable, str(question.script), *arguments(question, effort)]
    start = time.monotonic()
    with log.open("wb") as output:
        done = subprocess.run(
            [*command, "-o", str(result)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    seconds = time.monotonic() - start
    is_done = done.returncode == 0 and result.exists()
    if is_done:
        _add_effort(result, effort, seconds)
    return Run(question, seconds, is_done, log)


def _add_effort(result: Path, effort: str, seconds: float) -> None:
    suite = json.loads(result.read_text())
    if KEPT not in suite:
        keep(result)
        suite = json.loads(result.read_text())
    suite[KEPT].update(effort=effort, seconds=round(seconds))
    result.write_text(json.dumps(suite))


def ask_all(
    questions: Sequence[Question], directory: Path, effort: str, console: Console
) -> list[Run]:
    """One after the other, as they would disturb each other; if that is no matter, some at once."""
    directory.mkdir(parents=True, exist_ok=True)
    at_once = (os.cpu_count() or 1) if effort == QUICK else 1
    runs: dict[str, Run] = {}
    with (
        Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        ) as progress,
        ThreadPoolExecutor(at_once) as pool,
    ):
        bar = progress.add_task("benchmarks", total=len(questions))
        asked: list[str] = []

        def ask_one(question: Question) -> Run:
            asked.append(question.name)
            progress.update(bar, description=", ".join(asked))
            try:
                return ask(question, directory, effort)
            finally:
                asked.remove(question.name)

        for future in as_completed([pool.submit(ask_one, question) for question in questions]):
            run = future.result()
            runs[run.question.name] = run
            outcome = "[green]done[/]" if run.is_done else "[red]failed[/]"
            progress.console.print(f"{run.question.name:14} {outcome} {run.seconds:6.0f} s")
            progress.update(bar, advance=1, description=", ".join(asked))
    return [runs[question.name] for question in questions]


def print_failures(runs: Sequence[Run], console: Console) -> None:
    for run in runs:
        if not run.is_done:
            console.rule(f"[red]{run.question.name} failed[/]: the end of {run.log}")
            console.print(run.last_lines(), markup=False, highlight=False)
