"""How results are printed: a table a question, then what was aimed at.  And how they are kept."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Goal:
    """A figure that the cache must reach.

    *bound*: *value* must not be above it; or not below it, if *at_least*.
    """

    text: str
    value: float
    bound: float
    at_least: bool = False

    @property
    def is_met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def cells(self) -> tuple[str, ...]:
        sign = ">=" if self.at_least else "<="
        return (
            self.text,
            f"{self.value:.3g}",
            f"{sign} {self.bound:g}",
            "met" if self.is_met else "MISSED",
        )


_printed: dict[str, list[Any]] = {"tables": [], "goals": []}


def forget() -> None:
    """Nothing has been printed: for who asks several questions in one process."""
    for kept in _printed.values():
        kept.clear()


def print_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of text in columns, the first to the left, the others to the right."""
    lines = [tuple(head), *map(tuple, rows)]
    _print_lines(title, lines)
    _printed["tables"].append({"title": title, "head": lines[0], "rows": lines[1:]})


def _print_lines(title: str, lines: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    print(f"\n{title}\n")
    for line in lines:
        first, *others = (
            cell.ljust(width) if number == 0 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        print("  ".join((first, *others)).rstrip())


def print_goals(goals: Sequence[Goal]) -> None:
    if goals:
        head = ("goal", "is", "must be", "")
        _print_lines("Goals", [head, *(goal.cells() for goal in goals)])
        _printed["goals"].extend(map(asdict, goals))


# What is kept beside the times.

KEPT = "report"
"""The key in a file of pyperf's format under which everything else is; pyperf skips it."""

LIBRARIES = (
    "zodbcache",
    "ZODB",
    "persistent",
    "ZEO",
    "RelStorage",
    "psycopg2-binary",
    "apsw",
    "cachetools",
    "lru-dict",
    "cachebox",
)


def keep(path: Path | str | None) -> None:
    """Add to pyperf's file what was printed, and where and when it was measured.

    Does nothing without a file.
    """
    if path is None or not Path(path).exists():
        return
    path = Path(path)
    suite = json.loads(path.read_text())
    suite[KEPT] = {
        **_printed,
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": dict(versions()),
    }
    path.write_text(json.dumps(suite))


def machine() -> dict[str, str]:
    return {
        "processor": _processor(),
        "processors": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB",
        "system": _system(),
    }


def _processor() -> str:
    """As Linux names it, or else what kind it is."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} ({platform.machine()})" if names else platform.machine()


def _system() -> str:
    try:
        distribution = platform.freedesktop_os_release()["PRETTY_NAME"] + ", "
    except (OSError, KeyError):
        distribution = ""
    return f"{distribution}{platform.system()} {platform.release()}"


def versions() -> Iterator[tuple[str, str]]:
    """Of what was measured, and what it was measured with, as far as it is installed."""
    yield platform.python_implementation(), platform.python_version()
    for library in LIBRARIES:
        try:
            yield library, metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    yield "SQLite of apsw", _sqlite_version()


def _sqlite_version() -> str:
    import apsw

    version: str = apsw.sqlite_lib_version()
    return version
