"""The report's plots: of a question's result, where a plot shows more than the table."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from matplotlib.ticker import NullLocator

from benchmarks.results import Result
from benchmarks.results import Table

matplotlib.use("Agg")

Groups = Mapping[str, Mapping[str, float]]
"""Heights of bars by the name of the bar within the name of its group."""

OURS = ("#1f6fb2", "#e8862e", "#3fa34d", "#8a5fbf")
OTHERS = ("#6b6b6b", "#a8a8a8", "#cfcfcf", "#404040", "#8c8c8c", "#dedede")
IS_OURS = re.compile(r"zodbcache|restarted|^hot$|emptied$")

PANEL_INCHES = (6.4, 3.6)


def colours(names: Sequence[str]) -> dict[str, str]:
    """This cache's lines in colour, what is beside them in grey."""
    ours = [name for name in names if IS_OURS.search(name) and "RelStorage" not in name]
    others = [name for name in names if name not in ours]
    return {
        name: palette[number % len(palette)]
        for chosen, palette in ((ours, OURS), (others, OTHERS))
        for number, name in enumerate(chosen)
    }


def new_figure(panels: int, *, columns: int = 2) -> tuple[Figure, list[Any]]:
    columns = min(columns, panels)
    rows = -(-panels // columns)
    width, height = PANEL_INCHES
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained", dpi=110)
    axes = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for unused in axes[panels:]:
        unused.remove()
    for each in axes[:panels]:
        each.spines[["top", "right"]].set_visible(False)
        each.grid(axis="y", color="#e4e4e4")
        each.set_axisbelow(True)
    return figure, axes[:panels]


def digits(number: float, count: int) -> str:
    """With so many digits that count, and never as a power of ten."""
    return f"{float(f'{number:.{count}g}'):,.10g}"


def draw_bars(axes: Any, groups: Groups, *, count: int = 2) -> None:
    """Bars side by side in groups, their heights written above them."""
    names = list(dict.fromkeys(name for bars in groups.values() for name in bars))
    colour, width = colours(names), 0.84 / len(names)
    for number, name in enumerate(names):
        places = [
            place + (number - (len(names) - 1) / 2) * width
            for place, bars in enumerate(groups.values())
            if name in bars
        ]
        heights = [bars[name] for bars in groups.values() if name in bars]
        drawn = axes.bar(places, heights, width * 0.94, label=name, color=colour[name])
        labels = [digits(height, count) for height in heights]
        axes.bar_label(drawn, labels, fontsize=6.5, padding=1)
    axes.set_xticks(range(len(groups)), list(groups))
    axes.margins(y=0.12)


def make_logarithmic(axes: Any) -> None:
    """The y axis, with room below the smallest bar."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    heights = [bar.get_height() for bar in axes.patches]
    if heights:
        axes.set_ylim(bottom=min(heights) / 2)


def add_legend(figure: Figure, axes: Sequence[Any]) -> None:
    """One for all panels, below them."""
    lines: dict[str, Any] = {}
    for each in axes:
        for line, label in zip(*each.get_legend_handles_labels(), strict=True):
            lines.setdefault(label, line)
    figure.legend(
        lines.values(),
        lines.keys(),
        loc="outside lower center",
        ncols=min(len(lines), 2 if len(axes) == 1 else 4),
        frameon=False,
    )


def find(result: Result, pattern: str) -> list[tuple[str, tuple[str, ...]]]:
    """The benchmarks whose whole name fits, and what the pattern's groups found."""
    found = ((name, re.fullmatch(pattern, name)) for name in result.names)
    return [(name, match.groups()) for name, match in found if match]


def plot_micro(result: Result) -> Figure | None:
    """Of RelStorage's time, a panel for each number of threads."""
    panels: dict[str, dict[str, dict[str, float]]] = {}
    for name, (workload, threads, line) in find(result, r"(\w+), (\d+ threads?): (.+)"):
        peer = f"{workload}, {threads}: RelStorage"
        if line != "RelStorage" and peer in result.names:
            groups = panels.setdefault(threads, {})
            groups.setdefault(workload, {})[line] = result.ratio(name, peer)
    if not panels:
        return None
    figure, axes = new_figure(len(panels))
    for each, (threads, groups) in zip(axes, panels.items(), strict=True):
        draw_bars(each, groups)
        each.axhline(1, color="#404040", linewidth=1)
        each.set_title(threads)
        each.set_ylabel("of RelStorage's time")
    add_legend(figure, axes)
    return figure


def plot_memory(result: Result) -> Figure | None:
    """Bytes beside a state, for every cache; and what a full one takes, for each backend."""
    tables = [table for table in result.tables if table.title.startswith("Resident bytes an entry")]
    if not tables:
        return None
    (table, *_) = tables
    figure, axes = new_figure(2, columns=1)
    figure.set_figwidth(10)
    draw_bars(axes[0], beside_state(table), count=3)
    axes[0].set(title=table.title, ylabel="bytes")
    axes[0].legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.1))
    draw_bars(axes[1], resident(result), count=3)
    axes[1].set(title="What a full cache takes of the process's memory", ylabel="MB")
    make_logarithmic(axes[1])
    axes[1].legend(frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    return figure


def beside_state(table: Table) -> Groups:
    groups: dict[str, dict[str, float]] = defaultdict(dict)
    for cache, *cells in table.rows:
        for size, cell in zip(table.head[1:], cells, strict=True):
            groups[size][cache] = float(cell)
    return groups


def resident(result: Result) -> Groups:
    """Megabytes, by backend within limit and size of the states."""
    groups: dict[str, dict[str, float]] = {}
    pattern = r"sizes, (\w+), ([\d.]+ MB), states of (\d+ B): resident"
    for name, (backend, limit, state) in find(result, pattern):
        bars = groups.setdefault(f"{limit}\nof {state}", {})
        bars[f"zodbcache {backend}"] = result.median(name) / 1e6
    return groups


def plot_file(result: Result) -> Figure | None:
    """Milliseconds over the file's size, a panel for each thing that is timed."""
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for name, (kind, size, what) in find(result, r"(.+?), ([\d.]+) MB, (.+)"):
        point = float(size), result.median(name) * 1e3
        panels.setdefault(what, {}).setdefault(kind, []).append(point)
    if not panels:
        return None
    figure, axes = new_figure(len(panels))
    kinds = list(dict.fromkeys(kind for lines in panels.values() for kind in lines))
    colour = colours(kinds)
    for each, (what, lines) in zip(axes, panels.items(), strict=True):
        for kind, points in lines.items():
            sizes, times = zip(*sorted(points), strict=True)
            each.plot(sizes, times, "o-", label=kind, color=colour[kind])
        ticks = sorted({size for points in lines.values() for size, _ in points})
        each.set(title=what, xlabel="MB of states", ylabel="ms", xscale="log")
        each.set_xticks(ticks, [f"{size:g}" for size in ticks])
        each.xaxis.set_minor_locator(NullLocator())
        make_logarithmic(each)
    add_legend(figure, axes)
    return figure


def plot_cold(result: Result) -> Figure | None:
    """Milliseconds of the lines of each question that reads cold objects."""
    panels: dict[str, dict[str, float]] = {}
    for name, (question, line) in find(result, r"(500 cold objects[^,]*), (.+)"):
        if not line.startswith(("opening", "connecting", "opened")):
            panels.setdefault(question, {})[line] = result.median(name) * 1e3
    if not panels:
        return None
    return draw_lines(panels)


def draw_lines(panels: Mapping[str, Mapping[str, float]]) -> Figure:
    """A bar to the right for each line, a panel for each question."""
    figure, axes = new_figure(len(panels))
    colour = colours(list(dict.fromkeys(line for bars in panels.values() for line in bars)))
    for each, (question, bars) in zip(axes, panels.items(), strict=True):
        drawn = each.barh(list(bars), list(bars.values()), color=[colour[line] for line in bars])
        each.bar_label(drawn, [digits(ms, 3) for ms in bars.values()], fontsize=8, padding=3)
        each.grid(axis="y", visible=False)
        each.grid(axis="x", color="#e4e4e4")
        each.invert_yaxis()
        each.margins(x=0.12)
        each.set(title=question, xlabel="ms")
    return figure


def plot_matrix(result: Result) -> Figure | None:
    """Reads that are cold: milliseconds over each storage, a panel for each number of readers."""
    panels: dict[str, dict[str, dict[str, float]]] = {}
    for name, (base, crew, line) in find(result, r"cold, ([^,]+), ([^:]+): (.+)"):
        bases = panels.setdefault(crew, {})
        bases.setdefault(base, {})[line] = result.median(name) * 1e3
    if not panels:
        return None
    figure, axes = new_figure(len(panels))
    for each, (crew, groups) in zip(axes, panels.items(), strict=True):
        draw_bars(each, groups, count=3)
        make_logarithmic(each)
        each.set(title=f"cold, {crew}", ylabel="ms")
    add_legend(figure, axes)
    return figure


def plot_store(result: Result) -> Figure | None:
    """Nanoseconds of a call, for each operation."""
    groups: dict[str, dict[str, float]] = {}
    for name, (operation, cache) in find(result, r"((?:hit|miss|set|evict), [\d,]+ keys): (.+)"):
        groups.setdefault(operation.replace(", ", "\n"), {})[cache] = result.median(name) * 1e9
    if not groups:
        return None
    figure, axes = new_figure(1)
    figure.set_figwidth(12)
    draw_bars(axes[0], groups, count=3)
    axes[0].set(title="One call", ylabel="ns")
    add_legend(figure, axes)
    return figure


PLOTS: dict[str, Callable[[Result], Figure | None]] = {
    "micro": plot_micro,
    "memory": plot_memory,
    "store": plot_store,
    "file": plot_file,
    "zodb": plot_cold,
    "relstorage": plot_cold,
    "matrix": plot_matrix,
}
