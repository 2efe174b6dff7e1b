"""``zodbcache demo``: the cache at work on a real ZEO server, with figures.

Importing this package needs neither ZEO nor rich nor matplotlib; running
the demo does.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from zodbcache.demo.errors import DemoError
from zodbcache.demo.errors import MissingExtraError

__all__ = ["DemoError", "MissingExtraError", "main"]

_NEEDED = ("ZEO", "rich", "matplotlib")


def main(
    *,
    json_path: Path | None,
    plot_path: Path,
    objects: int,
    quick: bool,
    keep: Path | None,
) -> None:
    """Run the demo, print its table, write its plot and, if asked, its JSON.

    Raises DemoError, or what :func:`zodbcache.demo.run.run` raises when
    interrupted.
    """
    for module in _NEEDED:
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError(module)
    from rich.console import Console

    from zodbcache.demo.plot import write_plot
    from zodbcache.demo.report import print_report
    from zodbcache.demo.run import DemoOptions
    from zodbcache.demo.run import run

    console = Console()
    result = run(DemoOptions(objects=objects, quick=quick, keep=keep), console)
    print_report(result, console)
    write_plot(result, plot_path)
    console.print(f"Plot: {plot_path}")
    if json_path is not None:
        result.write_json(json_path)
        console.print(f"JSON: {json_path}")
