"""What do 500 cold objects over RelStorage cost, with the cache and without?

::

    python benchmarks/bench_relstorage.py                               # everything
    python benchmarks/bench_relstorage.py --question alone --fast       # one question, roughly
    python benchmarks/bench_relstorage.py -o relstorage.json            # and kept, for pyperf

A PostgreSQL server of the benchmark's own serves persistent objects of 300
bytes, 500 in a PersistentMapping.  One value is the time it takes a
connection that has no objects in memory to read an attribute of every one,
the root and the mapping included.  The connection is open, and its
transaction has begun, before the clock starts.  Where the states come from is
asserted afterwards, by the counters of the caches.

none
    From the database, one after the other.  RelStorage's own cache has one
    megabyte, since its conflict resolution leans on it, and is emptied before.
RelStorage's memory, emptied
    RelStorage's own cache as it is without a file, emptied.
RelStorage's memory
    The same, having read all objects before.
RelStorage's file
    RelStorage's own cache, in a storage just opened over its file.  It fills
    its memory while it opens.
restarted
    From this cache, in a storage just opened over its file, and as soon as it
    has compared this with the database.
hot
    From this cache, the process having read them before.  What is left is
    the unpickling, which no cache saves.

What is not in these times stands beside them.  ``opening`` is the time from
nothing to there: RelStorage, the cache and its file, the database, and the
first connection.  ``connecting`` is another connection of a database that is open;
both are mostly PostgreSQL's.

Then the same by 5 threads of one process, and by 5 processes, each with a
connection and 500 objects of its own.  They wait for each other before they
read; one value is the time from the first that starts to the last that ends.

Then the commit of 500 new objects in a new mapping, and the commit of 500
changed ones that the connection has in memory.  From ``begin()`` to the end
of ``commit()``; the objects were made before.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import tempfile
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import postgresql
from persistent.mapping import PersistentMapping
from postgresql import Place
from postgresql import loads_of
from readers import OBJECTS
from readers import READERS
from readers import Doing
from readers import Span
from readers import act_as_threads
from readers import adding
from readers import closing
from readers import fresh_connection
from readers import loads
from readers import new_items
from readers import read
from readers import reading
from readers import running_processes
from readers import timed
from readers import updating
from readers import whole
from report import Goal
from report import keep
from report import print_goals
from report import print_table
from rounds import Measure
from rounds import Results
from rounds import Round
from rounds import add_arguments
from rounds import measure_rounds
from rounds import run_script
from rounds import save
from ZODB.Connection import resetCaches

LOADS = loads(OBJECTS)

Opener = Callable[[Place], Any]


# The database, and files that have all of it.


@contextlib.contextmanager
def serving() -> Iterator[Place]:
    """A database with the objects, and cache files that have all of them."""
    with postgresql.running() as dsn, tempfile.TemporaryDirectory(prefix="benchmark-") as directory:
        place = Place(dsn, directory)
        with closing(postgresql.open_plain(place)) as database:
            _store_objects(database)
        postgresql.tidy(dsn)
        for opener in (postgresql.open_restarted, postgresql.open_with_own_file):
            with closing(opener(place)) as database:
                read_everything(database)
        yield place


def _store_objects(database: Any) -> None:
    with fresh_connection(database) as connection:
        for reader in range(READERS):
            connection.root()[reader] = new_items()
        for kind in WRITERS:
            connection.root()[kind] = PersistentMapping()
        connection.transaction_manager.commit()


def open_restarted(place: Place) -> Any:
    return postgresql.confirmed(postgresql.open_restarted(place))


def read_everything(database: Any) -> None:
    for reader in range(READERS):
        with fresh_connection(database) as connection:
            read(connection, reader)


class Kept:
    """Databases that stay open, having read all objects, until this is closed."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._open: dict[Opener, Any] = {}

    def database(self, opener: Opener) -> Any:
        if opener not in self._open:
            database = self._open[opener] = opener(self._place)
            read_everything(database)
        return self._open[opener]

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


@dataclass(frozen=True)
class Scenario:
    """What is read from.

    *is_kept*: from a database that has read all objects before; or else from
    one just opened.  *is_emptied*: its cache is emptied before.
    """

    opener: Opener
    is_kept: bool = False
    is_emptied: bool = False

    @contextlib.contextmanager
    def database(self, place: Place, kept: Kept, readers: int = 1) -> Iterator[Any]:
        """Assert of what is read inside, by so many, that it comes from where it should."""
        with contextlib.ExitStack() as stack:
            if self.is_kept:
                database = kept.database(self.opener)
            else:
                database = stack.enter_context(closing(self.opener(place)))
            if self.is_emptied:
                database.storage._cache.clear()
            before = loads_of(database)
            yield database
            after = loads_of(database)
            self._check(after.hits - before.hits, after.misses - before.misses, readers)

    def _check(self, hits: int, misses: int, readers: int) -> None:
        assert hits + misses == readers * LOADS, (hits, misses)
        if self.is_emptied:  # only the root is read more than once
            assert hits <= 2 * readers - 1, (hits, misses)
        else:
            assert misses == 0, (hits, misses)


SCENARIOS = {
    "none": Scenario(postgresql.open_plain, is_kept=True, is_emptied=True),
    "RelStorage's memory, emptied": Scenario(
        postgresql.open_with_own_memory, is_kept=True, is_emptied=True
    ),
    "RelStorage's memory": Scenario(postgresql.open_with_own_memory, is_kept=True),
    "RelStorage's file": Scenario(postgresql.open_with_own_file),
    "restarted": Scenario(open_restarted),
    "hot": Scenario(postgresql.open_in_memory, is_kept=True),
}

TOGETHER = ("none", "RelStorage's file", "restarted", "hot")
"""What several read from at the same time."""

OPENINGS = {
    "opening, none": postgresql.open_plain,
    "opening, RelStorage's file": postgresql.open_with_own_file,
    "opening, restarted": open_restarted,
}

CONNECTINGS = {
    "connecting, none": postgresql.open_plain,
    "connecting, this cache": postgresql.open_in_memory,
}

WRITERS = {
    "none": postgresql.open_plain,
    "RelStorage's file": postgresql.open_with_own_file,
    "this cache": open_restarted,
}


# What is timed.


@contextlib.contextmanager
def measuring_alone(place: Place) -> Iterator[Measure]:
    with contextlib.closing(Kept(place)) as kept:

        def measure(name: str) -> Round:
            gc.collect()
            if name in OPENINGS:
                return {name: time_opening(OPENINGS[name], place)}
            if name in CONNECTINGS:
                return {name: time_connecting(kept.database(CONNECTINGS[name]).storage)}
            with (
                SCENARIOS[name].database(place, kept) as database,
                fresh_connection(database) as connection,
            ):
                return {name: timed(lambda: read(connection)).seconds}

        yield measure


def time_opening(opener: Opener, place: Place) -> float:
    resetCaches()
    with contextlib.ExitStack() as stack:

        def open_all() -> None:
            database = stack.enter_context(closing(opener(place)))
            stack.enter_context(fresh_connection(database))

        return timed(open_all).seconds


def time_connecting(storage: Any) -> float:
    with contextlib.ExitStack() as stack:

        def connect() -> None:
            instance = storage.new_instance()
            stack.callback(instance.release)
            instance.poll_invalidations()

        return timed(connect).seconds


@contextlib.contextmanager
def measuring_threads(place: Place) -> Iterator[Measure]:
    with contextlib.closing(Kept(place)) as kept:

        def measure(name: str) -> Round:
            gc.collect()
            with SCENARIOS[name].database(place, kept, READERS) as database:
                return {name: whole(read_by_threads(database))}

        yield measure


def read_by_threads(database: Any) -> list[Span]:
    """One connection a thread, all of them open before any reads."""
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(fresh_connection(database)) for _ in range(READERS)]
        return act_as_threads([reading(one, reader) for reader, one in enumerate(connections)])


@contextlib.contextmanager
def measuring_processes(place: Place) -> Iterator[Measure]:
    with running_processes(partial(reading_alone, place), READERS) as do:
        yield lambda name: {name: whole(do(name))}


@contextlib.contextmanager
def reading_alone(place: Place, reader: int) -> Iterator[Doing]:
    """One of several processes that read at the same time."""
    with contextlib.closing(Kept(place)) as kept:

        def do(name: str, ready: Callable[[], Any]) -> Span:
            with (
                SCENARIOS[name].database(place, kept) as database,
                fresh_connection(database) as connection,
            ):
                ready()
                return reading(connection, reader)()

        yield do


@contextlib.contextmanager
def measuring_writes(place: Place) -> Iterator[Measure]:
    with contextlib.closing(Kept(place)) as kept:

        def measure(name: str) -> Round:
            with fresh_connection(kept.database(WRITERS[name])) as connection:
                return {
                    f"add, {name}": time_add(connection, connection.root()[name]),
                    f"update, {name}": time_update(connection, connection.root()[name]),
                }

        yield measure


def time_add(connection: Any, holder: PersistentMapping) -> float:
    """The objects, their mapping, and the mapping that this is put into."""
    action = adding(connection, holder)
    gc.collect()
    return action().seconds


def time_update(connection: Any, holder: PersistentMapping) -> float:
    """The objects, and nothing else."""
    action = updating(connection, list(holder["items"].values()))
    gc.collect()
    return action().seconds


@dataclass(frozen=True)
class Question:
    """*scenarios*: measured in turn.  *measuring*: gives the function that measures one."""

    title: str
    scenarios: tuple[str, ...]
    measuring: Callable[[Place], contextlib.AbstractContextManager[Measure]]


QUESTIONS = {
    "alone": Question(
        f"{OBJECTS} cold objects over RelStorage",
        (*SCENARIOS, *OPENINGS, *CONNECTINGS),
        measuring_alone,
    ),
    "threads": Question(
        f"{OBJECTS} cold objects by each of {READERS} threads", TOGETHER, measuring_threads
    ),
    "processes": Question(
        f"{OBJECTS} cold objects by each of {READERS} processes", TOGETHER, measuring_processes
    ),
    "write": Question(f"Commit of {OBJECTS} objects", tuple(WRITERS), measuring_writes),
}


# What is printed.

READING_HEAD = ("", "ms", "faster than none", "of hot's time")
COST_HEAD = ("", "ms", "of none's time")


def reading_rows(results: Results, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for name in names:
        yield (
            name,
            f"{results.median(name) * 1e3:.2f}",
            f"{results.faster(name, 'none'):.1f}",
            f"{results.ratio(name, 'hot'):.2f}",
        )


def cost_rows(results: Results, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """What is done with a cache and without; named ``what, with``."""
    for name in names:
        none = f"{name.partition(',')[0]}, none"
        yield name, f"{results.median(name) * 1e3:.2f}", f"{results.ratio(name, none):.3f}"


def report(results: dict[str, Results]) -> None:
    """Milliseconds, and how they compare within a round."""
    for name, found in results.items():
        title = QUESTIONS[name].title
        reads = [one for one in found.names if one in SCENARIOS]
        costs = [one for one in found.names if one not in SCENARIOS]
        if reads:
            print_table(title, READING_HEAD, reading_rows(found, reads))
        if costs:
            what = "What was not timed there" if reads else title
            print_table(what, COST_HEAD, cost_rows(found, costs))
    print_goals(list(goals(results)))


def goals(results: dict[str, Results]) -> Iterator[Goal]:
    if alone := results.get("alone"):
        faster = alone.faster("restarted", "none")
        yield Goal("restarted: faster than none", faster, 8, at_least=True)
        ratio = alone.ratio("restarted", "RelStorage's file")
        yield Goal("restarted: of RelStorage's file's time", ratio, 0.7)
        yield Goal("restarted: of hot's time", alone.ratio("restarted", "hot"), 1.15)
    for name in ("threads", "processes"):
        if together := results.get(name):
            faster = together.faster("restarted", "none")
            yield Goal(f"{READERS} {name}, restarted: faster than none", faster, 10, at_least=True)
    if write := results.get("write"):
        for what in ("add", "update"):
            ratio = write.ratio(f"{what}, this cache", f"{what}, none")
            yield Goal(f"{what}: of none's time", ratio, 1.05)


def work(job: dict[str, Any]) -> list[Round]:
    """The rounds of one process."""
    question = QUESTIONS[job["question"]]
    with question.measuring(Place(*job["place"])) as measure:
        measure_rounds(question.scenarios, measure, 1)  # warm
        return measure_rounds(question.scenarios, measure, job["rounds"])


def run(
    place: Place, questions: Sequence[str], *, processes: int, rounds: int
) -> dict[str, Results]:
    """Ask every question in so many processes, one after the other."""
    results = {}
    for name in questions:
        job = {"question": name, "place": place, "rounds": rounds}
        results[name] = Results([run_script(__file__, job) for _ in range(processes)])
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--question", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    add_arguments(parser)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(work(args.worker)))
        return
    with serving() as place:
        results = run(place, args.question, processes=args.processes, rounds=args.rounds)
    if args.output:
        save(
            [
                benchmark
                for name, found in results.items()
                for benchmark in found.benchmarks(f"{QUESTIONS[name].title}, ")
            ],
            args.output,
        )
    report(results)
    keep(args.output)


if __name__ == "__main__":
    main()
