"""The report: one Markdown file, its plots beside it, all figures from the questions' files."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path

from benchmarks.plots import PLOTS
from benchmarks.report import Goal
from benchmarks.results import Result
from benchmarks.results import load_all

QUICK_WARNING = (
    "> Asked with `--quick`: tiny sizes, one round, several questions at once."
    " That all of it works is all that this says; times and goals mean nothing."
)


def write_report(directory: Path) -> Path:
    """Write ``report.md`` about every result in *directory*, and its plots; return its path."""
    results = list(load_all(directory))
    plotted = {result.question.name: _write_plot(result, directory) for result in results}
    path = directory / "report.md"
    path.write_text("\n".join(_lines(results, plotted)) + "\n")
    return path


def _write_plot(result: Result, directory: Path) -> Path | None:
    plot = PLOTS.get(result.question.name)
    figure = plot(result) if plot is not None else None
    if figure is None:
        return None
    path = directory / f"{result.question.name}.png"
    figure.savefig(path)
    return path


def _lines(results: Sequence[Result], plotted: dict[str, Path | None]) -> Iterator[str]:
    yield "# Benchmarks: a report"
    yield ""
    yield (
        "Written by `python -m benchmarks` from what it has measured.  Times differ from machine"
        " to machine and, on a busy one, from run to run; use the ratios, which compare what ran"
        " in the same run.  What is measured and what it means to a user stands in"
        " `docs/benchmarks.rst`."
    )
    if any(result.kept.get("effort") == "quick" for result in results):
        yield from ("", QUICK_WARNING)
    yield from _machines(results)
    yield from _summary(results)
    for result in results:
        yield from _section(result, plotted[result.question.name])


def _machines(results: Sequence[Result]) -> Iterator[str]:
    """Once for all results, or for each set of questions that was asked elsewhere."""
    places: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for result in results:
        facts = {**result.kept.get("machine", {}), **result.kept.get("versions", {})}
        places.setdefault(tuple(facts.items()), []).append(result.question.name)
    yield from ("", "## Where")
    for facts, names in places.items():
        if len(places) > 1:
            yield from ("", f"{', '.join(names)}:")
        yield ""
        yield from _table(("", ""), facts, right=False)


def _summary(results: Sequence[Result]) -> Iterator[str]:
    yield from ("", "## The questions", "")
    rows = []
    for result in results:
        met = sum(goal.is_met for goal in result.goals)
        goals = f"{met} of {len(result.goals)}" if result.goals else ""
        title = result.question.title
        link = f"[{result.question.name}](#{anchor(title)})"
        effort, seconds = result.kept.get("effort", ""), result.kept.get("seconds")
        took = "" if seconds is None else f"{seconds:,} s"
        rows.append((link, title, result.date, effort, took, goals))
    head = ("question", "", "measured", "effort", "took", "goals met")
    yield from _table(head, rows, right=False)


def anchor(title: str) -> str:
    """What links to a heading, as GitHub makes it."""
    kept = (one for one in title.lower() if one.isalnum() or one in " -_")
    return "".join(kept).replace(" ", "-")


def _section(result: Result, plot: Path | None) -> Iterator[str]:
    question = result.question
    yield from ("", f"## {question.title}", "")
    yield f"{question.text}  (`benchmarks/{question.script.name}`)"
    if plot is not None:
        yield from ("", f"![{question.title}]({plot.name})")
    for table in result.tables:
        yield from ("", f"**{table.title}**", "")
        yield from _table(table.head, table.rows)
    if not result.tables:
        yield ""
        yield from _medians(result)
    if result.goals:
        yield from ("", "**Goals**", "")
        yield from _table(("goal", "is", "must be", ""), map(_goal_cells, result.goals))


def _goal_cells(goal: Goal) -> tuple[str, ...]:
    *cells, outcome = goal.cells()
    return (*cells, outcome if goal.is_met else f"**{outcome}**")


def _medians(result: Result) -> Iterator[str]:
    """For a script that keeps nothing but pyperf's figures."""
    benchmarks = result.suite.get_benchmarks()
    rows = (
        (one.get_name(), one.format_value(one.median()), str(one.get_nvalue()))
        for one in benchmarks
    )
    yield from _table(("", "median", "values"), rows)


def _table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, right: bool = True
) -> Iterator[str]:
    """All columns to the left; or, if *right*, all but the first to the right."""
    yield _row(head)
    yield _row(["---", *(["---:" if right else "---"] * (len(head) - 1))])
    for row in rows:
        yield _row(row)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
