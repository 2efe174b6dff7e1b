"""``zodbcache demo``: the cache at work on a real database, with figures.

Importing this package needs neither ZEO nor RelStorage nor rich nor
matplotlib; running the demo does.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from zodbcache.demo.bases import BASES
from zodbcache.demo.bases import DEFAULT_BASE
from zodbcache.demo.errors import DemoError
from zodbcache.demo.errors import MissingExtraError

__all__ = ["BASES", "DEFAULT_BASE", "DemoError", "MissingExtraError", "main"]

_NEEDED = ("rich", "matplotlib")


def main(
    *,
    base: str,
    json_path: Path | None,
    plot_path: Path,
    objects: int,
    quick: bool,
    keep: Path | None,
) -> None:
    """Run the demo, print its table, write its plot and, if asked, its JSON.

    *base*: a name in BASES.  Raises DemoError, or what
    :func:`zodbcache.demo.run.run` raises when interrupted.
    """
    for module in (*_NEEDED, *BASES[base].modules):
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError(module, base)
    from rich.console import Console

    from zodbcache.demo.plot import write_plot
    from zodbcache.demo.report import print_report
    from zodbcache.demo.run import DemoOptions
    from zodbcache.demo.run import run

    console = Console()
    options = DemoOptions(base=BASES[base], objects=objects, quick=quick, keep=keep)
    result = run(options, console)
    print_report(result, console)
    write_plot(result, plot_path)
    console.print(f"Plot: {plot_path}")
    if json_path is not None:
        result.write_json(json_path)
        console.print(f"JSON: {json_path}")
