"""Compare storages with this cache and without by zodbshootout, and print one table of ratios.

::

    tox -e shootout                                   # everything; an hour or so
    tox -e shootout -- --storage relstorage --mode single --rounds 2
    python -m benchmarks.shootout --json FILE --keep DIRECTORY

The second needs zodbshootout, and a pyperf that it knows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Goal
from benchmarks.report import print_goals
from benchmarks.report import print_table
from benchmarks.shootout.configuration import new_databases
from benchmarks.shootout.plan import BENCHMARKS
from benchmarks.shootout.plan import CACHES
from benchmarks.shootout.plan import MODES
from benchmarks.shootout.plan import NOISE
from benchmarks.shootout.plan import NOISE_MAX
from benchmarks.shootout.plan import STORAGES
from benchmarks.shootout.run import Comparison
from benchmarks.shootout.run import Effort
from benchmarks.shootout.run import ShootoutError
from benchmarks.shootout.run import compare
from benchmarks.shootout.run import rows

HEAD = ("", "with", "none ms", "ms", "of none's time", "rounds", "faster")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    usual = Effort()
    parser = argparse.ArgumentParser(prog="shootout", description=__doc__.splitlines()[0])
    for option, known in (("storage", STORAGES), ("mode", MODES), ("benchmark", BENCHMARKS)):
        parser.add_argument(f"--{option}", nargs="+", choices=list(known), default=list(known))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--objects", type=int, default=usual.objects, help="in a transaction")
    parser.add_argument("--processes", type=int, default=usual.processes, help="pyperf's, a round")
    parser.add_argument("--values", type=int, default=usual.values, help="pyperf's, a process")
    parser.add_argument("--json", type=Path, help="keep the results in this file")
    parser.add_argument("--keep", type=Path, help="keep zodbshootout's in this directory")
    args = parser.parse_args(arguments)
    if "add" not in args.benchmark:
        parser.error("what the others read is put there by add")
    return args


def run(args: argparse.Namespace) -> Iterator[Comparison]:
    effort = Effort(args.objects, args.processes, args.values)
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
    with new_databases() as new_database:
        for storage in args.storage:
            for mode in args.mode:
                if mode in STORAGES[storage].modes:
                    print(f"{STORAGES[storage].title}, {MODES[mode].title} ...", flush=True)
                    yield compare(
                        *(storage, mode, args.benchmark, effort, args.rounds, new_database),
                        keep=args.keep,
                    )


def report(comparisons: Sequence[Comparison]) -> None:
    print_table("zodbshootout, with a cache and without", HEAD, table(comparisons))
    print_goals(list(goals(comparisons)))


def table(comparisons: Sequence[Comparison]) -> Iterator[tuple[str, ...]]:
    for what, cache, *figures in rows(comparisons):
        yield what, CACHES[cache], *figures


def goals(comparisons: Sequence[Comparison]) -> Iterator[Goal]:
    """How much of the figures is noise: what does not touch the storage takes as long."""
    for comparison in comparisons:
        if NOISE in comparison.rounds[0]["none"]:
            ratio = comparison.ratio("cached", NOISE)
            title = f"{STORAGES[comparison.storage].title}, {MODES[comparison.mode].title}"
            yield Goal(f"{title}: {NOISE}, off 1 by", max(ratio, 1 / ratio), NOISE_MAX)


def save(comparisons: Sequence[Comparison], path: Path) -> None:
    """Every round's medians, in seconds."""
    kept = [{"storage": one.storage, "mode": one.mode, "rounds": one.rounds} for one in comparisons]
    path.write_text(json.dumps(kept, indent=1) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    args = parse(arguments)
    try:
        comparisons = list(run(args))
    except ShootoutError as error:
        raise SystemExit(f"zodbshootout has failed.\n{error}") from None
    if args.json:
        save(comparisons, args.json)
    report(comparisons)


if __name__ == "__main__":
    main()
