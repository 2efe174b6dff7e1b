"""What do 500 objects cost over each storage, with each cache, by one, threads and processes?

::

    python benchmarks/bench_matrix.py                                   # everything: an hour
    python benchmarks/bench_matrix.py --fast --base PostgreSQL SQLite   # less, roughly
    python benchmarks/bench_matrix.py --question cold --crew "5 threads"
    python benchmarks/bench_matrix.py --quick                           # whether it works at all
    python benchmarks/bench_matrix.py -o matrix.json                    # and kept, for pyperf

Persistent objects of 300 bytes, 500 in a PersistentMapping, over a ZEO server,
RelStorage on PostgreSQL, RelStorage on SQLite, and a FileStorage.  Each reader
has a connection and 500 objects of its own: one in one process; five threads
of one process, which share the storage and its cache; or five processes, each
with a storage and a cache in memory of its own (not over FileStorage, which one
process only can open).  They wait for each other; one value is the time from
the first that starts to the last that ends.  Connections are open before.

cold
    A connection that has no objects in memory reads an attribute of every one,
    the root and the mapping included.  The cache has all of them: they were
    read just before, by another connection.
hot
    The connection itself has read all of them just before, and they have
    become ghosts: their classes are known, and their states come from the cache
    again.
emptied
    As cold, but the cache was emptied before, and the storage's own below it: all
    of them are misses and are kept.  What a cache costs where it does not help.
add
    The commit of 500 new objects in a new mapping, from ``begin()`` to the end of
    ``commit()``.
update
    The commit of 500 changed objects that the connection has in memory.

none
    The storage alone.  ZEO's own cache is set to hold nothing.  RelStorage's has one
    megabyte, since its conflict resolution leans on it, and is emptied before
    each read: so that cold is emptied, too.
storage's own cache
    ZEO's persistent client cache, in a file of each process; RelStorage's cache
    in memory.  FileStorage has none.
zodbcache memory
    This cache, in memory, over what *none* is.
zodbcache sqlite
    This cache with ``cache-backend sqlite``, over what *none* is.

Every cache has room for all objects.  For ``add`` and ``update`` the storage has just been
opened and its cache is empty, so that nothing has to make room.  Where the
states come from is asserted after every read by the counters of the caches and
the connection, and after every commit that it loaded nothing.

Commits over ZEO and FileStorage wait for the disk; those over PostgreSQL and SQLite
do not.
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
from pathlib import Path
from typing import Any
from typing import NamedTuple

import ZODB
from bases import BASES
from bases import LINES
from bases import NONE
from bases import Address
from persistent.mapping import PersistentMapping
from postgresql import CONNECTION_OBJECTS
from readers import OBJECTS
from readers import READERS
from readers import Action
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

QUICK_OBJECTS = 20


class Place(NamedTuple):
    """A database, where its caches may have files, and how many objects each reader has there."""

    base: str
    address: Address
    directory: str
    objects: int


# The database.


@contextlib.contextmanager
def serving(name: str, objects: int = OBJECTS) -> Iterator[Place]:
    """A new database of this base, with the objects."""
    base = BASES[name]
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        data = directory / "data"
        data.mkdir()
        place = Place(name, stack.enter_context(base.serving(data)), str(directory), objects)
        for line in (NONE,) if base.is_shared else base.lines:
            with closing(ZODB.DB(base.open_bare(place.address, line))) as database:
                _store_objects(database, objects)
        base.tidy(place.address)
        yield place


def _store_objects(database: Any, objects: int) -> None:
    with fresh_connection(database) as connection:
        for reader in range(READERS):
            connection.root()[reader] = new_items(objects)
            connection.root()[_holder(reader)] = PersistentMapping()
        connection.transaction_manager.commit()


def _holder(reader: int) -> str:
    """Where the reader adds objects."""
    return f"added by {reader}"


# The questions.  Each prepares its action on a connection that has no objects.


def prepare_cold(connection: Any, reader: int, objects: int) -> Action:
    return _counted(connection, reading(connection, reader, objects), objects)


def prepare_hot(connection: Any, reader: int, objects: int) -> Action:
    read(connection, reader, objects)
    connection.cacheMinimize()
    return _counted(connection, reading(connection, reader, objects), objects)


def _counted(connection: Any, action: Action, objects: int) -> Action:
    """Assert that the states of the objects, their mapping and the root are loaded, each once."""

    def act() -> Span:
        connection.getTransferCounts(clear=True)
        span = action()
        counts = connection.getTransferCounts()
        assert counts == (objects + 2, 0), counts
        return span

    return act


def prepare_add(connection: Any, reader: int, objects: int) -> Action:
    return adding(connection, connection.root()[_holder(reader)], objects)


def prepare_update(connection: Any, reader: int, objects: int) -> Action:
    items = list(connection.root()[reader].values())
    for item in items:
        item._p_activate()
    return updating(connection, items)


@dataclass(frozen=True)
class Question:
    """*is_read*: from a database that stays open; or else one is opened to commit to.

    *is_emptied*: its caches are emptied before.
    """

    prepare: Callable[[Any, int, int], Action]
    is_read: bool = True
    is_emptied: bool = False


QUESTIONS = {
    "cold": Question(prepare_cold),
    "hot": Question(prepare_hot),
    "emptied": Question(prepare_cold, is_emptied=True),
    "add": Question(prepare_add, is_read=False),
    "update": Question(prepare_update, is_read=False),
}


class Session:
    """What one process has open, and the readers that it has."""

    def __init__(self, place: Place, readers: Sequence[int]) -> None:
        self._place = place
        self._base = BASES[place.base]
        self._readers = readers
        self._stack = contextlib.ExitStack()
        self._kept: dict[str, Any] = {}

    def close(self) -> None:
        self._kept.clear()
        self._stack.close()

    def act(self, question: str, line: str, ready: Callable[[], Any] = lambda: None) -> list[Span]:
        """Prepare, call *ready*, and act; assert where what was read came from."""
        asked, place = QUESTIONS[question], self._place
        with contextlib.ExitStack() as stack:
            database = self._warm(line) if asked.is_read else self._open(line, stack)
            connections = [stack.enter_context(fresh_connection(database)) for _ in self._readers]
            actions = [
                asked.prepare(connection, reader, place.objects)
                for connection, reader in zip(connections, self._readers, strict=True)
            ]
            is_emptied = asked.is_read and (asked.is_emptied or line == NONE)
            if is_emptied:
                self._base.clear(database.storage, line)
            gc.collect()
            before = self._base.hits(database.storage, line)
            ready()
            spans = [actions[0]()] if len(actions) == 1 else act_as_threads(actions)
            hits = self._base.hits(database.storage, line) - before
            if asked.is_read:
                self._check(hits, is_emptied=is_emptied)
        return spans

    def _check(self, hits: int, *, is_emptied: bool) -> None:
        readers = len(self._readers)
        if is_emptied:  # only the root is read more than once
            assert hits <= 2 * readers - 1, hits
        else:
            assert hits == readers * loads(self._place.objects), hits

    def _open(self, line: str, stack: contextlib.ExitStack) -> Any:
        """A database that is closed with *stack*, and an empty cache."""
        directory = stack.enter_context(tempfile.TemporaryDirectory(dir=self._place.directory))
        storage = self._base.open(self._place.address, line, Path(directory))
        return stack.enter_context(closing(ZODB.DB(storage, cache_size=CONNECTION_OBJECTS)))

    def _warm(self, line: str) -> Any:
        """The database that is kept for this line; its cache has all objects of the readers."""
        if line not in self._kept:
            self._kept[line] = self._open(line, self._stack)
        database = self._kept[line]
        if line != NONE:
            for reader in self._readers:
                with fresh_connection(database) as connection:
                    read(connection, reader, self._place.objects)
        return database


# Crews: who does it.


class Scenario(NamedTuple):
    question: str
    line: str

    @classmethod
    def parse(cls, name: str) -> Scenario:
        return cls(*name.split(": "))

    def __str__(self) -> str:
        return ": ".join(self)


@contextlib.contextmanager
def in_one_process(place: Place, readers: int) -> Iterator[Measure]:
    with contextlib.closing(Session(place, range(readers))) as session:
        yield lambda name: {name: whole(session.act(*Scenario.parse(name)))}


@contextlib.contextmanager
def in_processes(place: Place) -> Iterator[Measure]:
    with running_processes(partial(one_of_several, place), READERS) as do:
        yield lambda name: {name: whole(do(name))}


@contextlib.contextmanager
def one_of_several(place: Place, reader: int) -> Iterator[Doing]:
    with contextlib.closing(Session(place, (reader,))) as session:

        def do(name: str, ready: Callable[[], Any]) -> Span:
            (span,) = session.act(*Scenario.parse(name), ready)
            return span

        yield do


ALONE, THREADS, PROCESSES = "1 process", f"{READERS} threads", f"{READERS} processes"

CREWS: dict[str, Callable[[Place], contextlib.AbstractContextManager[Measure]]] = {
    ALONE: partial(in_one_process, readers=1),
    THREADS: partial(in_one_process, readers=READERS),
    PROCESSES: in_processes,
}


def can(base: str, crew: str) -> bool:
    """Whether such a crew can open a database of this base."""
    return crew != PROCESSES or BASES[base].is_shared


# The rounds.


class Matrix(NamedTuple):
    """What to measure."""

    bases: Sequence[str] = tuple(BASES)
    crews: Sequence[str] = tuple(CREWS)
    questions: Sequence[str] = tuple(QUESTIONS)
    lines: Sequence[str] = LINES

    def scenarios(self, base: str, *, reads: bool) -> list[Scenario]:
        """What is measured in turn.  Commits are not made while databases are kept for reads."""
        return [
            Scenario(question, line)
            for question in self.questions
            if QUESTIONS[question].is_read == reads
            for line in self.lines
            # Its cold read is of an emptied cache already.
            if line in BASES[base].lines and (question, line) != ("emptied", NONE)
        ]


def work(job: dict[str, Any]) -> list[Round]:
    """The rounds of one process."""
    with CREWS[job["crew"]](Place(*job["place"])) as measure:
        if job["warm"]:
            measure_rounds(job["scenarios"], measure, 1)
        return measure_rounds(job["scenarios"], measure, job["rounds"])


Found = dict[tuple[str, str], list[Results]]
"""By base and crew: reads, and commits."""


def run(matrix: Matrix, *, objects: int, processes: int, rounds: int, warm: bool = True) -> Found:
    """Measure everything, one base after the other, in so many processes each."""
    found: Found = {}
    for base in matrix.bases:
        with serving(base, objects) as place:
            for crew in matrix.crews:
                if can(base, crew):
                    found[base, crew] = [
                        _rounds(place, crew, scenarios, processes, rounds, warm)
                        for reads in (True, False)
                        if (scenarios := matrix.scenarios(base, reads=reads))
                    ]
    return found


def _rounds(
    place: Place, crew: str, scenarios: list[Scenario], processes: int, rounds: int, warm: bool
) -> Results:
    job = {
        "place": place,
        "crew": crew,
        "scenarios": list(map(str, scenarios)),
        "rounds": rounds,
        "warm": warm,
    }
    return Results([run_script(__file__, job) for _ in range(processes)])


def full_name(base: str, crew: str, name: str) -> str:
    """Of a scenario, among all bases and crews."""
    question, line = Scenario.parse(name)
    return f"{question}, {base}, {crew}: {line}"


def benchmarks(found: Found) -> Iterator[Any]:
    for (base, crew), several in found.items():
        for results in several:
            for benchmark in results.benchmarks():
                name = full_name(base, crew, benchmark.get_name())
                benchmark.update_metadata({"name": name})
                yield benchmark


# What is printed.


def baseline(scenario: Scenario) -> str:
    """What it is compared with: the storage alone."""
    question = "cold" if scenario.question == "emptied" else scenario.question
    return str(Scenario(question, NONE))


def cell(several: Sequence[Results], scenario: Scenario) -> str:
    """Milliseconds, and how many times faster than the storage alone."""
    for results in several:
        if str(scenario) in results.names:
            milliseconds = f"{results.median(str(scenario)) * 1e3:.2f}"
            if baseline(scenario) not in results.names or scenario.line == NONE:
                return milliseconds
            faster = results.faster(str(scenario), baseline(scenario))
            return f"{milliseconds} ({faster:.2f})"
    return ""


def report(found: Found, objects: int) -> None:
    """A table for every base and crew: milliseconds (times faster than none)."""
    for (base, crew), several in found.items():
        scenarios = [Scenario.parse(name) for results in several for name in results.names]
        questions = [one for one in QUESTIONS if any(one == it.question for it in scenarios)]
        lines = [one for one in LINES if any(one == it.line for it in scenarios)]
        rows = [
            (line, *(cell(several, Scenario(question, line)) for question in questions))
            for line in lines
        ]
        title = f"{objects} objects, {base}, {crew}: ms (times faster than none)"
        print_table(title, ("", *questions), rows)
    print_goals(list(goals(found)))


def goals(found: Found) -> Iterator[Goal]:
    cached, none = str(Scenario("cold", "zodbcache sqlite")), str(Scenario("cold", NONE))
    for results in found.get(("PostgreSQL", THREADS), ()):
        if {cached, none} <= set(results.names):
            text = f"{full_name('PostgreSQL', THREADS, cached)}: faster than none"
            yield Goal(text, results.faster(cached, none), 5, at_least=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for option, choices in (
        ("--base", tuple(BASES)),
        ("--crew", tuple(CREWS)),
        ("--question", tuple(QUESTIONS)),
        ("--line", LINES),
    ):
        parser.add_argument(option, nargs="+", choices=choices, default=choices)
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_OBJECTS} objects, one round, one process: only what is asserted means much",
    )
    add_arguments(parser)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(work(args.worker)))
        return
    matrix = Matrix(args.base, args.crew, args.question, args.line)
    if args.quick:
        objects = QUICK_OBJECTS
        matrix = matrix._replace(crews=(ALONE,))
        found = run(matrix, objects=objects, processes=1, rounds=1, warm=False)
    else:
        objects = OBJECTS
        found = run(matrix, objects=objects, processes=args.processes, rounds=args.rounds)
    if args.output:
        save(list(benchmarks(found)), args.output)
    report(found, objects)
    keep(args.output)


if __name__ == "__main__":
    main()
