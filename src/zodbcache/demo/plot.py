"""The picture of the demo's result: time and hit ratio of each phase, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from zodbcache.demo.bases import BASES
from zodbcache.demo.phases import TITLES
from zodbcache.demo.results import DemoResult
from zodbcache.demo.results import percent

_COLORS = {
    "uncached": "#8c8c8c",
    "empty": "#d9a441",
    "warm": "#3b8f5a",
    "restarted": "#2463a6",
    "shared": "#6a4c9c",
}
_NO_DIFFERENCE = 1.1
_PIXELS_PER_INCH = 150


def write_plot(result: DemoResult, path: Path) -> None:
    """Write *path*; its suffix says the format (``.png``, ``.svg``, ...)."""
    draw(result).savefig(path)


def draw(result: DemoResult) -> Figure:
    """The picture, not yet written anywhere.  Needs no display."""
    figure = Figure(
        figsize=(11, 4.6), dpi=_PIXELS_PER_INCH, layout=ConstrainedLayoutEngine(wspace=0.06)
    )
    figure.suptitle(
        f"Reading {result.objects:,} objects of Python {result.python}'s standard library "
        f"from {BASES[result.base].title}",
        fontsize=13,
        fontweight="bold",
    )
    times, ratios = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    _draw_times(times, result)
    _draw_ratios(ratios, result)
    return figure


def _draw_times(axes: Any, result: DemoResult) -> None:
    phases = result.phases
    values = [phase.ms_per_500 for phase in phases]
    axes.barh([TITLES[phase.phase] for phase in phases], values, color=_colors(result))
    axes.invert_yaxis()
    for row, phase in enumerate(phases):
        label = f"{phase.ms_per_500:.1f} ms"
        if phase.phase != "uncached":
            label += f"  ({_times(result.speedup(phase))})"
        axes.text(phase.ms_per_500 + max(values) * 0.01, row, label, va="center")
    axes.set_xlim(0, max(values) * 1.5)
    axes.set_title("Time per 500 objects (shorter is better)")
    axes.set_xlabel("milliseconds in each process, median, unpickling included")
    _tidy(axes)


def _draw_ratios(axes: Any, result: DemoResult) -> None:
    phases = result.phases
    values = [phase.hit_ratio * 100 for phase in phases]
    axes.barh(range(len(phases)), values, color=_colors(result))
    for row, value in enumerate(values):
        axes.text(value + 1.5, row, percent(phases[row].hit_ratio), va="center")
    axes.set_xlim(0, 126)
    axes.set_xticks(range(0, 101, 25))
    axes.set_title("Hit ratio")
    axes.set_xlabel("percent of loads served by the cache")
    _tidy(axes)


def _colors(result: DemoResult) -> list[str]:
    return [_COLORS[phase.phase] for phase in result.phases]


def _times(speedup: float) -> str:
    if speedup < 1 / _NO_DIFFERENCE:
        return f"{1 / speedup:.1f} times slower"
    return f"{speedup:.1f} times faster" if speedup > _NO_DIFFERENCE else "no faster"


def _tidy(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="#dddddd")
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
