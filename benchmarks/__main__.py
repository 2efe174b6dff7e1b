"""Ask all benchmarks, or some, and write one report of what they found.

::

    python -m benchmarks                          # everything; takes hours
    python -m benchmarks micro memory             # some of the questions
    python -m benchmarks --list                   # which there are
    python -m benchmarks --fast --output DIR      # roughly
    python -m benchmarks --quick                  # whether all of it works: times mean nothing
    python -m benchmarks report DIR               # the report, from what is kept there

Each question's result is kept as ``DIR/<question>.json``, in pyperf's format,
and what its script has printed as ``DIR/<question>.log``.  The report is
``DIR/report.md``, with its plots beside it; it covers every result in the
directory, and says when and where each was measured.  A question that fails
does not stop the others; the exit status is 1 then.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.page import write_report
from benchmarks.questions import QUESTIONS
from benchmarks.suite import EFFORTS
from benchmarks.suite import ask_all
from benchmarks.suite import print_failures

DIRECTORY = Path("build") / "benchmarks"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=_first_line())
    add = parser.add_argument
    add("question", nargs="*", help="one of --list; or 'report DIR', to write the report again")
    add("--list", action="store_true", help="print the questions")
    add("--output", type=Path, metavar="DIR", default=DIRECTORY, help="(default: %(default)s)")
    for effort in EFFORTS:
        add(f"--{effort}", dest="effort", action="store_const", const=effort)
    parser.set_defaults(effort="usual")
    args = parser.parse_args(arguments)
    unknown = set(args.question) - set(QUESTIONS)
    if unknown:
        parser.error(f"no such question: {', '.join(sorted(unknown))}.  See --list")
    return args


def _first_line() -> str:
    return (__doc__ or "").splitlines()[0]


def parse_report(arguments: Sequence[str]) -> Path:
    parser = argparse.ArgumentParser(prog="python -m benchmarks report")
    parser.add_argument("directory", type=Path, nargs="?", default=DIRECTORY)
    directory: Path = parser.parse_args(arguments).directory
    return directory


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    console = Console()
    if given[:1] == ["report"]:
        console.print(f"Wrote {write_report(parse_report(given[1:]))}")
        return 0
    args = parse(given)
    if args.list:
        for question in QUESTIONS.values():
            console.print(f"[bold]{question.name:14}[/] {question.title}", highlight=False)
        return 0
    asked = [QUESTIONS[name] for name in args.question or QUESTIONS]
    runs = ask_all(asked, args.output, args.effort, console)
    print_failures(runs, console)
    if any(run.is_done for run in runs):
        console.print(f"Wrote {write_report(args.output)}")
    return 0 if all(run.is_done for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
