"""Run it by hand: ``python -m tests.consistency --help``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .bases import KINDS
from .faults import FAULTS
from .plan import BACKENDS
from .run import Totals
from .run import run

READS_A_DATABASE = 100_000
"""After so many a new database is begun, with the next seed."""

TESTS = Path(__file__).parents[1]


@contextmanager
def postgresql() -> Iterator[Any]:
    """A PostgreSQL server; yields what creates databases in it."""
    sys.path.insert(0, str(TESTS))
    import servers

    with servers.running_postgresql() as server:
        yield server


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Check that no read of many processes and threads sees a wrong revision."
    )
    parser.add_argument("--base", "--kind", choices=KINDS, default="postgresql")
    parser.add_argument("--history", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--threads", type=int, default=3)
    parser.add_argument("--reads", type=int, default=1_000_000)
    parser.add_argument("--reads-a-database", type=int, default=READS_A_DATABASE)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--cache",
        choices=("zodbcache", "none", *FAULTS),
        default="zodbcache",
        help="none: the base storage itself; the others are wrong on purpose",
    )
    parser.add_argument("--backend", choices=BACKENDS, help="of the cache; by default at random")
    parser.add_argument("--memory-mb", type=float, help="of the cache; by default at random")
    parser.add_argument(
        "--write-seconds",
        type=float,
        help="after how long the cache file is written; by default at random",
    )
    parser.add_argument(
        "--keep", type=Path, help="keep the journals here instead of in a temporary directory"
    )
    parser.add_argument("--go-on", action="store_true", help="even after something was wrong")
    arguments = parser.parse_args()
    totals = Totals()
    with ExitStack() as stack:
        server = None
        if arguments.base == "postgresql":
            server = stack.enter_context(postgresql())
        seed = arguments.seed
        while totals["reads"] < arguments.reads:
            directory = arguments.keep or Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="zodbcache-consistency-"))
            )
            directory = directory / str(seed)
            directory.mkdir(parents=True)
            database = server.create(arguments.history) if server else ""
            address = server.dsn(database) if server else os.path.join(directory, "database")
            totals.add(
                run(
                    kind=arguments.base,
                    address=address,
                    keep_history=arguments.history,
                    cache=arguments.cache,
                    reads=min(arguments.reads_a_database, arguments.reads - totals["reads"]),
                    seed=seed,
                    processes=arguments.processes if arguments.base != "mvccmapping" else 1,
                    threads=arguments.threads,
                    directory=directory,
                    backend=arguments.backend,
                    memory_mb=arguments.memory_mb,
                    write_seconds=arguments.write_seconds,
                    progress=print,
                )
            )
            print(f"seed {seed}: so far {totals}", flush=True)
            if server:
                server.drop(database)
            seed += 1
            if (totals.wrong or totals.broken) and not arguments.go_on:
                break
    for wrong in [*totals.wrong, *totals.broken]:
        print(wrong)
    return 1 if totals.wrong or totals.broken else 0


if __name__ == "__main__":
    sys.exit(main())
