"""How long does it take to read 500 cold objects over ZEO, after a restart and without?  pyperf.

::

    python benchmarks/bench_zodb.py                       # everything
    python benchmarks/bench_zodb.py --fast -o zodb.json   # less exactly, and kept

A ZEO server in a process of its own serves 500 persistent objects of 300
bytes in one PersistentMapping.  One value is the time it takes a connection
that has no objects in memory to read an attribute of every one, the root and
the mapping included.  Where the states come from is asserted afterwards, by
the counters of the caches.

none
    From the server, one after the other: no cache.
ZEO's cache
    From ZEO's own persistent client cache, which has all of them.
restarted
    From this cache, in a storage just opened over its file.  Opening it is
    not in the time; see below.
hot
    From this cache, the process having read them before.  What is left is
    the unpickling, which no cache saves.
emptied
    As hot, by one connection whose objects have become ghosts.

Then, with the opening of client, cache and database in the time:

opened: none, opened: restarted
    From nothing to all 500 objects read.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import json
import tempfile
import time
from collections.abc import Callable
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from typing import NamedTuple

import pyperf
import transaction
import ZEO
import zeo_server
import ZODB
from persistent.mapping import PersistentMapping
from report import Goal
from report import keep
from report import print_goals
from report import print_table
from workloads import STATE_BYTES
from workloads import Item
from workloads import state_of
from ZODB.Connection import resetCaches

import zodbcache

OBJECTS = 500
LOADS = OBJECTS + 3
"""Loads of a connection without objects: these, their mapping, and the root twice.

The first time the connection only wants to know the root's class.
"""

ZEO_CACHE_BYTES = 20 << 20


class Place(NamedTuple):
    """Where the server listens, and where the caches have their files."""

    port: int
    directory: str

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port


@contextlib.contextmanager
def serving() -> Iterator[Place]:
    """A server with the objects, and cache files that have all of them."""
    with (
        tempfile.TemporaryDirectory(prefix="bench_zodb-") as directory,
        zeo_server.running(Path(directory)) as port,
    ):
        place = Place(port, directory)
        _store_objects(place)
        _warm(open_restarted(place))
        _warm(open_with_zeo_cache(place))
        yield place


def _store_objects(place: Place) -> None:
    with closing(open_plain(place)) as database, fresh_connection(database) as connection:
        connection.root()["items"] = PersistentMapping(
            {number: Item(state_of(number, STATE_BYTES)) for number in range(OBJECTS)}
        )
        transaction.commit()


def _warm(database: ZODB.DB) -> None:
    with closing(database), fresh_connection(database) as connection:
        read_all(connection)


# Databases on the server, each with the caches of its kind.


def open_plain(place: Place) -> ZODB.DB:
    """ZEO's cache is set to hold nothing."""
    return ZODB.DB(ZEO.client(place.address, cache_size=0))


def open_with_zeo_cache(place: Place) -> ZODB.DB:
    storage = ZEO.client(
        place.address, cache_size=ZEO_CACHE_BYTES, client="warm", var=place.directory
    )
    return ZODB.DB(storage)


def open_in_memory(place: Place) -> ZODB.DB:
    return ZODB.DB(zodbcache.wrap(ZEO.client(place.address, cache_size=0), cache_local_mb=10))


def open_restarted(place: Place) -> ZODB.DB:
    base = ZEO.client(place.address, cache_size=0)
    directory = Path(place.directory) / "zodbcache"
    return ZODB.DB(zodbcache.wrap(base, cache_local_mb=10, cache_local_dir=str(directory)))


@contextlib.contextmanager
def closing(database: ZODB.DB) -> Iterator[ZODB.DB]:
    try:
        yield database
    finally:
        database.close()


@contextlib.contextmanager
def fresh_connection(database: ZODB.DB) -> Iterator[Any]:
    """A connection that has no objects."""
    resetCaches()
    connection = database.open()
    try:
        yield connection
    finally:
        connection.close()


_kept_open = contextlib.ExitStack()


@cache
def kept(opener: Callable[[Place], ZODB.DB], place: Place) -> ZODB.DB:
    """One database for the whole process, which has read all objects."""
    database = _kept_open.enter_context(closing(opener(place)))
    with fresh_connection(database) as connection:
        read_all(connection)
    return database


def close_kept() -> None:
    _kept_open.close()
    kept.cache_clear()


atexit.register(close_kept)


# What is timed.


def read_all(connection: Any) -> None:
    """Read every object's state."""
    size_bytes = sum(len(item.state) for item in connection.root()["items"].values())
    assert size_bytes == OBJECTS * STATE_BYTES


def timed_read(connection: Any) -> float:
    start = time.perf_counter()
    read_all(connection)
    return time.perf_counter() - start


def time_none(loops: int, place: Place) -> float:
    database, elapsed = kept(open_plain, place), 0.0
    with checking_zeo_cache(database, loads=0):
        for _ in range(loops):
            with fresh_connection(database) as connection:
                elapsed += timed_read(connection)
    return elapsed


def time_zeo_cache(loops: int, place: Place) -> float:
    database, elapsed = kept(open_with_zeo_cache, place), 0.0
    with checking_zeo_cache(database, loads=LOADS * loops):
        for _ in range(loops):
            with fresh_connection(database) as connection:
                elapsed += timed_read(connection)
    return elapsed


def time_restarted(loops: int, place: Place) -> float:
    elapsed = 0.0
    for _ in range(loops):
        with (
            closing(open_restarted(place)) as database,
            fresh_connection(database) as connection,
            checking_hits(database, LOADS),
        ):
            elapsed += timed_read(connection)
    return elapsed


def time_hot(loops: int, place: Place) -> float:
    database, elapsed = kept(open_in_memory, place), 0.0
    for _ in range(loops):
        with fresh_connection(database) as connection, checking_hits(database, LOADS):
            elapsed += timed_read(connection)
    return elapsed


def time_emptied(loops: int, place: Place) -> float:
    database, elapsed = kept(open_in_memory, place), 0.0
    with fresh_connection(database) as connection:
        read_all(connection)
        for _ in range(loops):
            connection.cacheMinimize()
            with checking_hits(database, LOADS):
                elapsed += timed_read(connection)
    return elapsed


def time_opened(loops: int, place: Place, opener: Callable[[Place], ZODB.DB]) -> float:
    elapsed = 0.0
    for _ in range(loops):
        start = time.perf_counter()
        with closing(opener(place)) as database, fresh_connection(database) as connection:
            read_all(connection)
            elapsed += time.perf_counter() - start
    return elapsed


def time_opened_none(loops: int, place: Place) -> float:
    return time_opened(loops, place, open_plain)


def time_opened_restarted(loops: int, place: Place) -> float:
    return time_opened(loops, place, open_restarted)


@contextlib.contextmanager
def checking_hits(database: ZODB.DB, loads: int) -> Iterator[None]:
    """Assert that there are so many loads, and that all come from this cache."""
    before = database.storage.cache_stats()
    yield
    after = database.storage.cache_stats()
    assert after["hits"] - before["hits"] == loads, (before, after)
    assert after["misses"] == before["misses"], (before, after)


@contextlib.contextmanager
def checking_zeo_cache(database: ZODB.DB, loads: int) -> Iterator[None]:
    """Assert that just so many loads come from ZEO's own cache."""
    before = zeo_cache_accesses(database)
    yield
    accesses = zeo_cache_accesses(database) - before
    assert accesses == loads, (accesses, loads)


def zeo_cache_accesses(database: ZODB.DB) -> int:
    accesses: int = database.storage._cache.getStats()[4]
    return accesses


SCENARIOS: dict[str, Callable[[int, Place], float]] = {
    "none": time_none,
    "ZEO's cache": time_zeo_cache,
    "restarted": time_restarted,
    "hot": time_hot,
    "emptied": time_emptied,
    "opened: none": time_opened_none,
    "opened: restarted": time_opened_restarted,
}


def goals(seconds: dict[str, float]) -> Iterator[Goal]:
    faster = seconds["none"] / seconds["restarted"]
    yield Goal("restarted: faster than none", faster, 20, at_least=True)
    yield Goal("restarted: of hot's time", seconds["restarted"] / seconds["hot"], 1.2)


def report(seconds: dict[str, float]) -> None:
    """Milliseconds, and how they compare."""
    rows = []
    for name, s in seconds.items():
        none = seconds["opened: none" if name.startswith("opened") else "none"]
        rows.append((name, f"{s * 1e3:.2f}", f"{none / s:.1f}", f"{s / seconds['hot']:.2f}"))
    print_table(
        f"{OBJECTS} cold objects over ZEO", ("", "ms", "faster than none", "of hot's time"), rows
    )
    print_goals(list(goals(seconds)))


def pass_on(command: list[str], args: argparse.Namespace) -> None:
    """Tell pyperf's worker processes where the server is."""
    command.extend(("--place", args.place))


def run(runner: pyperf.Runner, place: Place) -> dict[str, float]:
    """Run every scenario; return the medians, which worker processes do not have."""
    seconds = {}
    for name, time_func in SCENARIOS.items():
        benchmark = runner.bench_time_func(f"{OBJECTS} cold objects, {name}", time_func, place)
        if benchmark is not None and not runner.args.worker:
            seconds[name] = benchmark.median()
    return seconds


def main() -> None:
    runner = pyperf.Runner(processes=5, values=5, add_cmdline_args=pass_on)
    runner.argparser.add_argument("--place", help=argparse.SUPPRESS)
    args = runner.parse_args()
    if args.worker:
        run(runner, Place(*json.loads(args.place)))
        return
    with serving() as place:
        args.place = json.dumps(place)
        seconds = run(runner, place)
    report(seconds)
    keep(args.output)


if __name__ == "__main__":
    main()
