"""How long until a restarted worker has read its first 500 objects, and how full may the file be?

::

    python benchmarks/bench_restart.py
    python benchmarks/bench_restart.py --objects 500 110000 500000    # takes minutes to fill
    python benchmarks/bench_restart.py --fast -o restart.json         # roughly, and kept

Every value is from a fresh process.  It opens RelStorage on PostgreSQL, with
a cache whose file has all of so many objects of 300 bytes; opens the database
and a connection; reads an attribute of the 500 objects that were stored
first, with the root and the mappings above them; and closes all of it.  What
is imported meanwhile has been imported before.  That RelStorage's file had
every object is asserted afterwards.  This cache does not keep the first reads
waiting for long while it compares its file with the database, so that its hits
are a figure, too.

opened
    From nothing until the connection's transaction has begun.
read
    The 500 objects.
closed
    Connection, database and storage; whatever is saved then.
whole
    All three.

restarted
    With this cache.
RelStorage's file
    With RelStorage's own, which reads its file, and asks the database about
    every object in it, while it opens.
none
    With no cache: what PostgreSQL and RelStorage themselves take.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import json
import tempfile
import time
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from typing import NamedTuple

import postgresql
import transaction
from persistent.mapping import PersistentMapping
from postgresql import Place
from postgresql import loads_of
from report import Goal
from report import keep
from report import print_goals
from report import print_table
from rounds import Results
from rounds import Round
from rounds import add_arguments
from rounds import import_all
from rounds import importable_modules
from rounds import measure_rounds
from rounds import run_script
from rounds import save
from workloads import STATE_BYTES
from workloads import Item
from workloads import state_of

READ_OBJECTS = 500
"""Read after the restart, and in each mapping."""

LOADS = READ_OBJECTS + 4
"""Of a connection without objects: these, two mappings, and the root twice."""

USUAL_OBJECTS = 110_000
MAPPINGS_A_COMMIT = 10
OBJECT_MAX_BYTES = 1000
"""More than an object takes in any of the caches."""

OPENERS = {
    "none": postgresql.open_plain,
    "RelStorage's file": postgresql.open_with_own_file,
    "restarted": postgresql.open_restarted,
}

FILLED = ("RelStorage's file", "restarted")

PHASES = ("opened", "read", "closed", "whole")

WHOLE_MAX_MS = 50.0
FLAT_MAX = 1.2


# Databases, and files that have all of them.


@contextlib.contextmanager
def serving(counts: Sequence[int]) -> Iterator[dict[int, Place]]:
    """A database for each number of objects, and cache files that have all of it."""
    with postgresql.running() as dsn, tempfile.TemporaryDirectory(prefix="benchmark-") as directory:
        yield {count: _fill(dsn, directory, count) for count in counts}


def _fill(dsn: str, directory: str, count: int) -> Place:
    name = f"objects_{count}"
    files = Path(directory) / name
    files.mkdir()
    cache_mb = max(10.0, count * OBJECT_MAX_BYTES / 1e6)
    place = Place(postgresql.new_database(dsn, name), str(files), cache_mb)
    with connected(place, "none") as connection:
        _store(connection, count)
    postgresql.tidy(place.dsn)
    for kind in FILLED:
        with connected(place, kind) as connection:
            assert read_all(connection) == count
    return place


def _store(connection: Any, count: int) -> None:
    """Mappings of 500 objects, in one mapping."""
    mappings = connection.root()["mappings"] = PersistentMapping()
    for number, first in enumerate(range(0, count, READ_OBJECTS)):
        oids = range(first, min(first + READ_OBJECTS, count))
        mappings[number] = PersistentMapping(
            {oid: Item(state_of(oid, STATE_BYTES)) for oid in oids}
        )
        if number % MAPPINGS_A_COMMIT == 0:
            connection.transaction_manager.commit()
    connection.transaction_manager.commit()


@contextlib.contextmanager
def connected(place: Place, kind: str) -> Iterator[Any]:
    """The first connection of a database just opened."""
    database = OPENERS[kind](place)
    try:
        manager = transaction.TransactionManager()
        connection = database.open(manager)
        yield connection
        manager.abort()
        connection.close()
    finally:
        database.close()


def read(items: PersistentMapping) -> int:
    """Read every object's state; return how many there are."""
    assert all(len(item.state) == STATE_BYTES for item in items.values())
    return len(items)


def read_all(connection: Any) -> int:
    count = 0
    for items in connection.root()["mappings"].values():
        count += read(items)
        connection.cacheGC()
    return count


def read_first(connection: Any) -> None:
    assert read(connection.root()["mappings"][0]) == READ_OBJECTS


# What is timed, in a process of its own.


def work(job: dict[str, Any]) -> dict[str, Any]:
    """Restart once; return the seconds of each phase, and what was imported."""
    import_all(job["modules"])
    gc.collect()
    times = [time.perf_counter()]
    with connected(Place(*job["place"]), job["kind"]) as connection:
        database = connection.db()
        times.append(time.perf_counter())
        before = loads_of(database)
        read_first(connection)
        times.append(time.perf_counter())
        loads = loads_of(database)
    times.append(time.perf_counter())
    hits = loads.hits - before.hits
    check(job["kind"], hits, loads.misses - before.misses)
    seconds = [end - start for start, end in itertools.pairwise(times)]
    return {
        "seconds": dict(zip(PHASES, [*seconds, times[-1] - times[0]], strict=True)),
        "hits": hits / LOADS,
        "modules": importable_modules(),
    }


def check(kind: str, hits: int, misses: int) -> None:
    """Assert that what was read came from where it should."""
    assert hits + misses == LOADS, (hits, misses)
    if kind == "RelStorage's file":
        assert misses == 0, (hits, misses)
    if kind == "none":  # but for the root, read while opening
        assert hits == 2, (hits, misses)


def scenario(kind: str, count: int) -> str:
    return f"{kind}, {count:,} objects"


class Restarts(NamedTuple):
    """*hits*: the share of hits in what each restarted process has read, by scenario."""

    times: Results
    hits: dict[str, list[float]]


def run(places: dict[int, Place], *, rounds: int) -> Restarts:
    """Restart with every cache and file in turn, so often."""
    jobs = {
        scenario(kind, count): {"kind": kind, "place": place, "modules": []}
        for count, place in places.items()
        for kind in OPENERS
    }
    for job in jobs.values():  # warm the server, and learn what is imported
        job["modules"] = run_script(__file__, job)["modules"]

    def measure(name: str) -> Round:
        found = run_script(__file__, jobs[name])
        hits[name].append(found["hits"])
        return {f"{name}, {phase}": found["seconds"][phase] for phase in PHASES}

    hits: dict[str, list[float]] = {name: [] for name in jobs}
    return Restarts(Results([measure_rounds(list(jobs), measure, rounds)]), hits)


# What is printed.


def rows(found: Restarts, counts: Sequence[int]) -> Iterator[tuple[str, ...]]:
    for count in counts:
        for kind in OPENERS:
            name = scenario(kind, count)
            times = (f"{found.times.median(f'{name}, {phase}') * 1e3:.1f}" for phase in PHASES)
            yield name, *times, f"{min(found.hits[name]):.3f}"


def report(found: Restarts, counts: Sequence[int]) -> None:
    """Milliseconds, and the smallest share of hits."""
    head = ("ms", *PHASES, "hits")
    print_table(f"The first {READ_OBJECTS} objects after a restart", head, rows(found, counts))
    print_goals(list(goals(found, counts)))


def goals(found: Restarts, counts: Sequence[int]) -> Iterator[Goal]:
    names = {count: scenario("restarted", count) for count in counts}
    first = min(counts)
    for name in names.values():
        yield Goal(f"{name}: ms", found.times.median(f"{name}, whole") * 1e3, WHOLE_MAX_MS)
        yield Goal(f"{name}: hits, at worst", min(found.hits[name]), 1, at_least=True)
    for count in counts:
        if count != first:
            ratio = found.times.ratio(f"{names[count]}, opened", f"{names[first]}, opened")
            yield Goal(f"{names[count]}: opened, of {first:,} objects' time", ratio, FLAT_MAX)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--objects",
        type=int,
        nargs="+",
        default=[READ_OBJECTS, USUAL_OBJECTS],
        help="how many the file has, 500 or more (default: %(default)s)",
    )
    add_arguments(parser)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(work(args.worker)))
        return
    if min(args.objects) < READ_OBJECTS:
        parser.error(f"there must be {READ_OBJECTS} objects to read")
    counts = sorted(set(args.objects))
    with serving(counts) as places:
        found = run(places, rounds=args.processes * args.rounds)
    if args.output:
        save(list(found.times.benchmarks("restart, ")), args.output)
    report(found, counts)
    keep(args.output)


if __name__ == "__main__":
    main()
