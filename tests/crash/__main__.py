"""Run it by hand: ``python -m tests.crash --help``."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from .run import Run
from .run import Totals


def _missing(totals: Totals) -> Iterator[str]:
    """What did not happen, so that the run means nothing."""
    for name in ("commits", "file_hits", "file_writes"):
        if not totals.counts[name]:
            yield f"there were no {name}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Kill processes that share a cache file, and check what they leave."
    )
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--kills-a-database", type=int, default=50)
    parser.add_argument("--processes", type=int, default=1, help="at once; over ZEO, if several")
    parser.add_argument("--seed", type=int, default=0, help="odd: the file is never trimmed")
    parser.add_argument("--write-seconds", type=float, help="by default at random")
    parser.add_argument("--memory-mb", type=float, default=1)
    parser.add_argument("--keep", type=Path, help="keep the files here")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    logging.getLogger().addHandler(logging.NullHandler())  # ZEO's clients log each kill
    began = time.monotonic()
    kills, seed, broken = 0, arguments.seed, []
    while kills < arguments.kills and not broken:
        with tempfile.TemporaryDirectory(prefix="zodbcache-crash-") as temporary:
            directory = (arguments.keep or Path(temporary)) / str(seed)
            directory.mkdir(parents=True)
            run = Run(
                directory,
                seed=seed,
                processes=arguments.processes,
                write_seconds=arguments.write_seconds,
                memory_mb=arguments.memory_mb,
                progress=print if arguments.verbose else lambda text: None,
            )
            run.kill(min(arguments.kills_a_database, arguments.kills - kills))
        kills += run.totals.kills
        broken = run.totals.broken
        print(f"seed {seed}: {run.totals}", flush=True)
        seed += 1
        for what in _missing(run.totals):
            broken.append(f"seed {seed - 1}: {what}")
    for what in broken:
        print(what)
    print(f"{kills} kills in {time.monotonic() - began:.0f} s, broken={len(broken)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
