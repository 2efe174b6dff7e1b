"""What do a hundred thousand sets and gets cost, in memory and in a SQLite database?

::

    python benchmarks/bench_micro.py                                  # everything; half an hour
    python benchmarks/bench_micro.py --fast -o micro.json             # roughly, and kept
    python benchmarks/bench_micro.py --workload read --threads 1      # one question

The five workloads of RelStorage's own benchmark, with which its pull request
243 compared a cache in memory with one in a temporary SQLite database:
160,000 keys, values of 1,024 bytes, a limit of 100,000,000 bytes, so that
three of five fit.  Every value is from a fresh process.  What is set was made
before, a bytes object for each key, so that a cache which keeps what it is
given reads as much memory as one which copies it.

pop_eq
    Sets every key, all values equal to each other, in an empty cache.
pop_ne
    Sets every key anew, a newer revision with another value, in a cache that
    is full because every key has been set before.
epop
    Sets every key, all values different, in an empty cache.
read
    Gets every key, in the order in which they have been set.  That what the
    cache holds were hits, nothing else, and the bytes right, is asserted.
mix
    Sets every key again, the same revision, in a full cache, and gets the
    first 400 keys after every 400 sets.  That all these gets were hits from
    the second time on is asserted.

zodbcache memory, zodbcache sqlite
    This cache's store in memory and the one in a temporary SQLite database,
    called as a connection's view calls them.
RelStorage
    The in-memory client of RelStorage.  It keeps the bytes object itself.
RelStorage, one value
    The same, where all keys share one bytes object: what it cannot have in a
    real database, and what is left of its time without any memory traffic.

By one thread, and by 5 threads that share one cache and each do all of it, in
the same order.  Their time is from the first that starts to the last that
ends, divided by 5.

Beside it, what the pull request measured, on a laptop of 2018.
"""

from __future__ import annotations

import argparse
import gc
import json
import threading
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import ClassVar
from typing import NamedTuple

from published import PULL_REQUEST_243_MS
from report import Goal
from report import keep
from report import print_goals
from report import print_table
from rounds import Results
from rounds import Round
from rounds import add_arguments
from rounds import measure_rounds
from rounds import run_script
from rounds import save
from workloads import CHECKPOINT
from workloads import TID
from workloads import RelStorageClient
from workloads import state_of
from ZODB.utils import p64

from zodbcache.store import MemoryStore
from zodbcache.tempstore import TempStore

KEYS = 160_000
VALUE_BYTES = 1024
LIMIT_BYTES = 100_000_000
HOT_KEYS = 400
THREADS = (1, 5)
FULL_MIN = 0.3
"""Of all keys, what a full cache has at least."""

Values = Callable[[int], bytes]
"""The value of an oid."""


def equal_values(oid: int) -> bytes:
    """The same bytes for every oid, each time in an object of its own."""
    return state_of(1, VALUE_BYTES)


def different_values(oid: int) -> bytes:
    return state_of(oid, VALUE_BYTES)


def newer_values(oid: int) -> bytes:
    """Different, and none of them one of different_values()."""
    return state_of(oid + (1 << 62), VALUE_BYTES)


# The caches.


class Line:
    """One cache, empty, with a limit.  Its loops, and nothing else, are what is timed."""

    name: ClassVar[str]

    def __init__(self, limit_bytes: int) -> None:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def hits(self) -> int:
        """As the cache itself counts them."""
        raise NotImplementedError

    def keys(self, oids: Iterable[int], tid: int) -> list[Any]:
        """What get_all() takes, made anew."""
        raise NotImplementedError

    def states(self, oids: Iterable[int], values: Values) -> list[bytes]:
        """What is set, made anew: an object for each oid."""
        return [values(oid) for oid in oids]

    def items(self, oids: Iterable[int], tid: int, states: Iterable[bytes]) -> list[Any]:
        """What set_all() takes: the revisions at *tid*."""
        raise NotImplementedError

    def set_all(self, items: Sequence[Any]) -> None:
        raise NotImplementedError

    def get_all(self, keys: Sequence[Any]) -> None:
        raise NotImplementedError

    def state(self, key: Any) -> bytes | None:
        """The state under *key*, or None."""
        raise NotImplementedError


class Stored(Line):
    """One of this cache's stores."""

    store: ClassVar[type[MemoryStore | TempStore]]

    def __init__(self, limit_bytes: int) -> None:
        self._store = self.store(limit_bytes, limit_bytes // 8)
        self._store.restart(CHECKPOINT)

    def __len__(self) -> int:
        entries: int = self._store.stats()["entries"]
        return entries

    def hits(self) -> int:
        hits: int = self._store.stats()["hits"]
        return hits

    def keys(self, oids: Iterable[int], tid: int) -> list[Any]:
        return [p64(oid) for oid in oids]

    def items(self, oids: Iterable[int], tid: int, states: Iterable[bytes]) -> list[Any]:
        return [(oid, tid, state) for oid, state in zip(oids, states, strict=True)]

    def set_all(self, items: Sequence[Any]) -> None:
        insert = self._store.insert
        for oid, tid, state in items:
            insert(oid, tid, 0, state)

    def get_all(self, keys: Sequence[Any]) -> None:
        load, at = self._store.load_at, CHECKPOINT
        for key in keys:
            load(key, at)

    def state(self, key: Any) -> bytes | None:
        found = self._store.load_at(key, CHECKPOINT)
        return None if found is None else found[0]


class Memory(Stored):
    name = "zodbcache memory"
    store = MemoryStore


class Sqlite(Stored):
    name = "zodbcache sqlite"
    store = TempStore


class RelStorage(Line):
    name = "RelStorage"

    def __init__(self, limit_bytes: int) -> None:
        self._backend = RelStorageClient.bounded(limit_bytes)

    def __len__(self) -> int:
        return len(self._backend)

    def hits(self) -> int:
        return self._backend.hits() or 0

    def keys(self, oids: Iterable[int], tid: int) -> list[Any]:
        return [(oid, tid) for oid in oids]

    def items(self, oids: Iterable[int], tid: int, states: Iterable[bytes]) -> list[Any]:
        return [((oid, tid), (state, tid)) for oid, state in zip(oids, states, strict=True)]

    def set_all(self, items: Sequence[Any]) -> None:
        self._backend.set_all(items)

    def get_all(self, keys: Sequence[Any]) -> None:
        self._backend.look_up(keys)

    def state(self, key: Any) -> bytes | None:
        return self._backend.state(key)


class RelStorageOneValue(RelStorage):
    """All keys of a revision share one bytes object."""

    name = "RelStorage, one value"

    def states(self, oids: Iterable[int], values: Values) -> list[bytes]:
        value = values(0)
        return [value for _ in oids]


LINES: dict[str, type[Line]] = {
    line.name: line for line in (Memory, Sqlite, RelStorage, RelStorageOneValue)
}


# The workloads.


class Task(NamedTuple):
    """*run*: what each thread does.  *check*: asserts what must be so when *n* threads have."""

    run: Callable[[], None]
    check: Callable[[int], None]


Workload = Callable[[Line, range], Task]
"""Prepares an empty cache for doing something with these oids, once."""


class Revisions:
    """A revision of every oid, as a cache takes them."""

    def __init__(self, line: Line, oids: range, tid: int, values: Values) -> None:
        self._line = line
        self._states = line.states(oids, values)
        self.items = line.items(oids, tid, self._states)
        self.keys = line.keys(oids, tid)

    def set_all(self) -> None:
        self._line.set_all(self.items)

    def held(self) -> int:
        """How many of them the cache has.  What it has is right."""
        found = [self._line.state(key) for key in self.keys]
        for state, right in zip(found, self._states, strict=True):
            assert state is None or state == right
        return len(found) - found.count(None)

    def check_full(self, threads: int) -> None:
        """Not all fit, and those are gone that came first."""
        assert FULL_MIN * len(self.items) <= self.held() < len(self.items)
        assert self._line.state(self.keys[-1]) is not None


def pop_eq(line: Line, oids: range) -> Task:
    revisions = Revisions(line, oids, TID, equal_values)
    return Task(revisions.set_all, revisions.check_full)


def pop_ne(line: Line, oids: range) -> Task:
    Revisions(line, oids, TID, different_values).set_all()
    revisions = Revisions(line, oids, TID + 1, newer_values)
    return Task(revisions.set_all, revisions.check_full)


def epop(line: Line, oids: range) -> Task:
    revisions = Revisions(line, oids, TID, different_values)
    return Task(revisions.set_all, revisions.check_full)


def read(line: Line, oids: range) -> Task:
    revisions = Revisions(line, oids, TID, different_values)
    revisions.set_all()
    counted = line.hits()
    keys = line.keys(oids, TID)

    def check(threads: int) -> None:
        hits = line.hits() - counted
        assert hits == threads * revisions.held() == threads * len(line)
        revisions.check_full(threads)

    return Task(lambda: line.get_all(keys), check)


def mix(line: Line, oids: range) -> Task:
    revisions = Revisions(line, oids, TID, different_values)
    revisions.set_all()
    counted = line.hits()
    starts = range(0, len(oids), HOT_KEYS)
    groups = [revisions.items[start : start + HOT_KEYS] for start in starts]
    hot = line.keys(oids[:HOT_KEYS], TID)

    def run() -> None:
        for group in groups:
            line.set_all(group)
            line.get_all(hot)

    def check(threads: int) -> None:
        hits = line.hits() - counted
        assert hits >= threads * (len(groups) - 1) * len(hot), (hits, len(groups))
        revisions.check_full(threads)

    return Task(run, check)


WORKLOADS: dict[str, Workload] = {
    workload.__name__: workload for workload in (pop_eq, pop_ne, epop, read, mix)
}


# Each in a process of its own.


def seconds_by_threads(run: Callable[[], None], threads: int) -> float:
    """From when all stand ready until the last is done, divided by their number."""
    started: list[float] = []
    ended: list[float] = []
    ready = threading.Barrier(threads, lambda: started.append(time.perf_counter()))

    def one() -> None:
        ready.wait()
        run()
        ended.append(time.perf_counter())

    workers = [threading.Thread(target=one) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(ended) == threads
    return (max(ended) - started[0]) / threads


def time_workload(workload: str, line: str, threads: int, keys: int) -> float:
    """Seconds for one thread's work; the limit is in proportion to the keys."""
    cache = LINES[line](LIMIT_BYTES * keys // KEYS)
    task = WORKLOADS[workload](cache, range(1, keys + 1))
    gc.collect()
    gc.freeze()  # no collection looks at what was prepared
    seconds = seconds_by_threads(task.run, threads)
    gc.unfreeze()
    task.check(threads)
    return seconds


def by_threads(threads: int) -> str:
    return f"{threads} thread{'s' * (threads > 1)}"


def name_of(workload: str, threads: int, line: str) -> str:
    return f"{workload}, {by_threads(threads)}: {line}"


def measure_all(
    workloads: Sequence[str], lines: Sequence[str], threads: Sequence[int], keys: int, rounds: int
) -> Results:
    jobs = {
        name_of(workload, count, line): {
            "workload": workload,
            "line": line,
            "threads": count,
            "keys": keys,
        }
        for count in threads
        for workload in workloads
        for line in lines
    }

    def measure(name: str) -> Round:
        return {name: run_script(__file__, jobs[name])}

    return Results([measure_rounds(list(jobs), measure, rounds)])


# What is printed.

HEAD = (
    "",
    "memory ms",
    "sqlite ms",
    "RelStorage ms",
    "its one value ms",
    "memory / RelStorage",
    "sqlite / memory",
    "sqlite / RelStorage",
    "243's memory ms",
    "243's sqlite ms",
)


def rows(found: Results, threads: int) -> Iterator[tuple[str, ...]]:
    for workload in WORKLOADS:
        memory, sqlite, peer, one = (name_of(workload, threads, line) for line in LINES)
        if not {memory, sqlite, peer, one}.isdisjoint(found.names):
            yield (
                workload,
                *(milliseconds(found, name) for name in (memory, sqlite, peer, one)),
                ratio(found, memory, peer),
                ratio(found, sqlite, memory),
                ratio(found, sqlite, peer),
                *(f"{published[workload]:,}" for published in PULL_REQUEST_243_MS.values()),
            )


def milliseconds(found: Results, name: str) -> str:
    return f"{found.median(name) * 1e3:.0f}" if name in found.names else ""


def ratio(found: Results, name: str, of: str) -> str:
    return f"{found.ratio(name, of):.2f}" if {name, of} <= set(found.names) else ""


MEMORY_RATIO_MAX = 0.8
SQLITE_RATIO_MAX = {"pop_eq": 6, "pop_ne": 6, "epop": 6, "read": 4, "mix": 6}
SQLITE_MAX_MS = {"pop_eq": 511, "pop_ne": 547, "epop": 459, "read": 195, "mix": 646}


def goals(found: Results, threads: Sequence[int]) -> Iterator[Goal]:
    """The store in memory by any number of threads; the database by one."""
    names = set(found.names)
    for count in threads:
        for workload in WORKLOADS:
            memory, sqlite, peer, _ = (name_of(workload, count, line) for line in LINES)
            text = f"{workload}, {by_threads(count)}"
            if {memory, peer} <= names:
                value = found.ratio(memory, peer)
                yield Goal(f"{text}: memory, of RelStorage's time", value, MEMORY_RATIO_MAX)
            if {sqlite, memory} <= names and count == 1:
                value = found.ratio(sqlite, memory)
                bound = SQLITE_RATIO_MAX[workload]
                yield Goal(f"{text}: sqlite, of memory's time", value, bound)
            if sqlite in names and count == 1:
                value = found.median(sqlite) * 1e3
                yield Goal(f"{text}: sqlite, ms", value, SQLITE_MAX_MS[workload])


def report(found: Results, threads: Sequence[int]) -> None:
    for count in threads:
        print_table(f"By {by_threads(count)}", HEAD, rows(found, count))
    print_goals(list(goals(found, threads)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--workload", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    add("--cache", nargs="+", choices=LINES, default=list(LINES))
    add("--threads", nargs="+", type=int, default=list(THREADS))
    add("--keys", type=int, default=KEYS, help="the limit grows with them")
    add_arguments(parser)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(time_workload(**args.worker)))
        return
    rounds = args.processes * args.rounds
    found = measure_all(args.workload, args.cache, args.threads, args.keys, rounds)
    if args.output:
        save(list(found.benchmarks()), args.output)
    report(found, args.threads)
    keep(args.output)


if __name__ == "__main__":
    main()
