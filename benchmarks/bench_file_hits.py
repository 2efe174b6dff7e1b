"""What does a hit in the cache file cost, against the same object from PostgreSQL?

::

    python benchmarks/bench_file_hits.py
    python benchmarks/bench_file_hits.py --mb 1000 --fast -o hits.json

A PostgreSQL server of the benchmark's own serves states of 300 bytes, and so
many megabytes of them.  One value is the time of one load by an instance of
the storage, the mean of 2,000 objects in random order, others each time.
Where they come from is asserted afterwards, by the counters of the caches.

file
    From this cache's file, which has everything, its pages in the system's
    cache; the memory has one megabyte.  That includes judging whether the row
    may be seen, checking its bytes, and putting it into memory, from which
    another goes.
memory
    From this cache's memory, which has everything, too.
PostgreSQL
    By RelStorage without this cache; its own one has been emptied.
flat file
    300 bytes at some place of a file that has just that, by one ``pread()``:
    what asking the system costs.  Nothing is found, judged or checked.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import random
import tempfile
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from typing import NamedTuple

import filed
import postgresql
from filed import seconds_of
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
from workloads import STATE_BYTES
from workloads import TID
from workloads import state_of
from ZODB.utils import p64

import zodbcache
from zodbcache.storage import CachedMVCCStorage

LOADS = 2000
OBJECTS_MIN = 20 * LOADS
"""Of fewer, a memory of a megabyte holds too many."""

ASKED_AT_ONCE = 1000
USUAL_MB = 100
SMALLEST_MB = 1.0
"""The memory of a cache whose hits are to be the file's."""

FROM_FILE_MIN = 0.9
"""The share of the loads that the memory must not have by chance."""


class Place(NamedTuple):
    """A server that has so many objects, and where this cache has its file and that file lies."""

    dsn: str
    directory: str
    count: int

    @property
    def flat_path(self) -> Path:
        return Path(self.directory) / "rows"

    def cached(self, cache_mb: float, *, is_filed: bool = True) -> Any:
        """RelStorage with this cache before it."""
        base = postgresql.relstorage(self.dsn, postgresql.LITTLE_MB)
        directory = Path(self.directory) / "zodbcache" if is_filed else None
        file_mb = filed.memory_mb(self.count)
        return zodbcache.wrap(
            base, cache_local_mb=cache_mb, cache_local_dir=directory, cache_file_mb=file_mb
        )


@contextlib.contextmanager
def serving(count: int) -> Iterator[Place]:
    """A database of so many objects, and files that have all of them."""
    with postgresql.running() as dsn, tempfile.TemporaryDirectory(prefix="benchmark-") as directory:
        postgresql.store_states(dsn, count)
        place = Place(dsn, directory, count)
        with instance_of(place.cached(filed.memory_mb(count))) as (storage, instance):
            fetch_all(instance, count)
            assert storage.cache_stats()["entries"] >= count
        assert filed.rows_in(Path(directory) / "zodbcache") >= count
        filed.write_flat(place.flat_path, b"".join(map(state_of, range(1, count + 1))))
        yield place


@contextlib.contextmanager
def instance_of(storage: Any) -> Iterator[tuple[Any, Any]]:
    """The storage and an instance of it that sees the database as it is; both closed at the end."""
    try:
        instance = storage.new_instance()
        instance.poll_invalidations()
        if isinstance(storage, CachedMVCCStorage) and storage._cache.options.cache_local_dir:
            postgresql.wait_until_confirmed(storage)
        try:
            yield storage, instance
        finally:
            instance.release()
    finally:
        storage.close()


def fetch_all(instance: Any, count: int) -> None:
    for first in range(1, count + 1, ASKED_AT_ONCE):
        instance.prefetch([p64(oid) for oid in range(first, min(first + ASKED_AT_ONCE, count + 1))])


# What is timed.


def check(found: Sequence[tuple[bytes, bytes]], oids: Sequence[int]) -> None:
    assert found == [(state_of(oid), p64(TID)) for oid in oids]


def time_loads(load: Callable[[bytes], Any], oids: Sequence[int]) -> float:
    """Seconds of one load.  Asserts that all are right."""
    keys = [p64(oid) for oid in oids]
    found: list[Any] = []
    gc.collect()
    seconds = seconds_of(lambda: found.extend(map(load, keys)))
    check(found, oids)
    return seconds / len(oids)


class Readers:
    """A process's storages, opened when they are first needed."""

    def __init__(self, place: Place, stack: contextlib.ExitStack) -> None:
        self._place = place
        self._stack = stack
        self._opened: dict[str, tuple[Any, Any]] = {}

    def opened(self, name: str, storage: Callable[[], Any]) -> tuple[Any, Any]:
        if name not in self._opened:
            self._opened[name] = self._stack.enter_context(instance_of(storage()))
        return self._opened[name]

    def file(self, oids: Sequence[int]) -> float:
        storage, instance = self.opened("file", lambda: self._place.cached(SMALLEST_MB))
        before = filed.reads_of(storage)
        seconds = time_loads(instance.load, oids)
        after = filed.reads_of(storage)
        counted = after.since(before)
        assert counted.misses == 0, counted
        assert counted.file >= FROM_FILE_MIN * len(oids), counted
        instance.load(p64(oids[-1]))
        counted = filed.reads_of(storage).since(after)
        assert counted == filed.Reads(memory=1, file=0, misses=0), counted  # it was promoted
        return seconds

    def memory(self, oids: Sequence[int]) -> float:
        memory_mb = filed.memory_mb(self._place.count)
        storage, instance = self.opened(
            "memory", lambda: self._place.cached(memory_mb, is_filed=False)
        )
        instance.prefetch([p64(oid) for oid in oids])
        before = filed.reads_of(storage)
        seconds = time_loads(instance.load, oids)
        counted = filed.reads_of(storage).since(before)
        assert counted == filed.Reads(memory=len(oids), file=0, misses=0), counted
        return seconds

    def database(self, oids: Sequence[int]) -> float:
        dsn = self._place.dsn
        storage, instance = self.opened(
            "PostgreSQL", lambda: postgresql.relstorage(dsn, postgresql.LITTLE_MB)
        )
        storage._cache.clear()
        instance.poll_invalidations()
        before = storage._cache.stats()["misses"]
        seconds = time_loads(instance.load, oids)
        assert storage._cache.stats()["misses"] - before == len(oids)
        return seconds

    def flat(self, oids: Sequence[int]) -> float:
        offsets = [STATE_BYTES * (oid - 1) for oid in oids]
        with self._place.flat_path.open("rb") as file:
            number = file.fileno()
            found: list[bytes] = []
            read = os.pread
            seconds = seconds_of(
                lambda: found.extend(read(number, STATE_BYTES, offset) for offset in offsets)
            )
        assert found == [state_of(oid) for oid in oids]
        return seconds / len(oids)


SCENARIOS: dict[str, Callable[[Readers, Sequence[int]], float]] = {
    "file": Readers.file,
    "memory": Readers.memory,
    "PostgreSQL": Readers.database,
    "flat file": Readers.flat,
}


@contextlib.contextmanager
def measuring(place: Place) -> Iterator[Measure]:
    """Every scenario of a round reads the same objects, and the next round others."""
    with contextlib.ExitStack() as stack:
        readers = Readers(place, stack)
        asked = dict.fromkeys(SCENARIOS, 0)
        order = random.sample(range(1, place.count + 1), place.count)

        def measure(name: str) -> Round:
            first = asked[name] * LOADS % (place.count - LOADS + 1)
            asked[name] += 1
            return {name: SCENARIOS[name](readers, order[first : first + LOADS])}

        yield measure


# What is printed.

HEAD = ("a load", "us", "faster than PostgreSQL", "of a hit in memory")


def rows(found: Results) -> Iterator[tuple[str, ...]]:
    for name in found.names:
        yield (
            name,
            f"{found.median(name) * 1e6:.2f}",
            f"{found.faster(name, 'PostgreSQL'):.1f}",
            f"{found.ratio(name, 'memory'):.2f}",
        )


def report(found: Results) -> None:
    print_table("A hit in the file", HEAD, rows(found))
    print_goals(list(goals(found)))


def goals(found: Results) -> Iterator[Goal]:
    yield Goal("file: us", found.median("file") * 1e6, 5)
    faster = found.faster("file", "PostgreSQL")
    yield Goal("file: faster than PostgreSQL", faster, 6, at_least=True)


def work(job: dict[str, Any]) -> list[Round]:
    """The rounds of one process."""
    with measuring(Place(*job["place"])) as measure:
        measure_rounds(list(SCENARIOS), measure, 1)  # warm
        return measure_rounds(list(SCENARIOS), measure, job["rounds"])


def run(place: Place, *, processes: int, rounds: int) -> Results:
    job = {"place": place, "rounds": rounds}
    return Results([run_script(__file__, job) for _ in range(processes)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=float, default=USUAL_MB, help="megabytes of states")
    add_arguments(parser)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(work(args.worker)))
        return
    count = filed.states_in(args.mb)
    if count < OBJECTS_MIN:
        parser.error(f"there must be {OBJECTS_MIN} objects, which is many times the memory")
    with serving(count) as place:
        found = run(place, processes=args.processes, rounds=args.rounds)
    if args.output:
        save(list(found.benchmarks("load, ")), args.output)
    report(found)
    keep(args.output)


if __name__ == "__main__":
    main()
