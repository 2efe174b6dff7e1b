"""The table that the demo ends with."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from zodbcache.demo.bases import BASES
from zodbcache.demo.phases import TITLES
from zodbcache.demo.results import DemoResult
from zodbcache.demo.results import percent


def print_report(result: DemoResult, console: Console) -> None:
    """Print the table and what belongs to it."""
    console.print(_table(result))
    for line in _remarks(result):
        console.print(line, highlight=False, soft_wrap=True)


def _table(result: DemoResult) -> Table:
    base = BASES[result.base]
    table = Table(title=f"Reading {result.objects:,} persistent objects from {base.title}")
    table.add_column("", no_wrap=True)
    for heading in ("ms per 500", "faster", "objects/s", "hits", "open ms"):
        table.add_column(heading, justify="right")
    for phase in result.phases:
        table.add_row(
            TITLES[phase.phase],
            f"{phase.ms_per_500:.1f}",
            f"{result.speedup(phase):.1f} x",
            f"{phase.objects_per_s:,.0f}",
            percent(phase.hit_ratio),
            "" if phase.open_ms is None else f"{phase.open_ms:.0f}",
        )
    return table


def _remarks(result: DemoResult) -> list[str]:
    graph, changed = result.graph, result.changed
    return [
        f"Python {result.python}'s library: {graph.modules:,} modules, {graph.functions:,} "
        f"functions, {graph.classes:,} classes ({graph.skipped} files are not valid Python); "
        f"{graph.objects:,} objects, {graph.database_bytes / 1e6:.0f} MB.",
        "ms per 500: in each process, reading by a ZODB connection, unpickling included. "
        "All phases read the same, proven by a checksum. "
        f"{BASES[result.base].own_cache_remark}",
        f"After {changed.objects_changed:,} objects changed while the cache was down: "
        f"{changed.wrong} read wrong, {percent(changed.hit_ratio)} still hits.",
        f"The cache's file has {result.cache_bytes / 1e6:.0f} MB; "
        f"closing wrote it in {result.close_ms:.0f} ms. "
        f"The demo took {result.total_s:.0f} s.",
    ]
