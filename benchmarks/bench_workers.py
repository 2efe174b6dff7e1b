"""How do many workers get on with one cache file: when they stop, start, and run?

::

    python benchmarks/bench_workers.py                                # everything
    python benchmarks/bench_workers.py --question stop --fast         # one question, roughly
    python benchmarks/bench_workers.py --question sharing --scale 1   # with 1 GB; takes minutes

stop
    20 processes, each with 40 MB of states of 300 bytes in memory that no
    other has and that are not in the file, close at the same time.  ``last``
    is the time until the last has closed, ``median`` what most of them take.
    ``alone`` is one process that has all the 800 MB and closes.  RelStorage's
    cache in the same way, and a flat file of the same bytes, with fsync.  A
    failure is an exception, or a warning in the log, of any worker; *written*
    is the share of the rows that the file has in the end.
hottest
    Two workers read half as many objects again as the file has room for, each
    object once, and in between a tenth of what it has room for, often.  They
    save now and then, and close.  Another opens the file, which is full, and
    restores it: what share of that tenth is in its memory?  With a file as
    large as the memory, and with one four times as large; RelStorage's with
    the one size that it has.
sharing
    Ten workers with 10 MB of memory each and one file of 1 GB read at random,
    popular objects more often, at a steady pace, twice as many objects as the
    file has room for.  What share are hits, in the second half of the time?
    Against one process that has 1 GB in memory and reads the same, and
    RelStorage's caches of 10 MB, which share nothing while they run.  By
    default at a tenth of the scale.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from typing import NamedTuple

import filed
from filed import seconds_of
from report import Goal
from report import keep
from report import print_goals
from report import print_table
from rounds import Results
from rounds import Round
from rounds import add_arguments
from rounds import measure_rounds
from rounds import save
from workloads import BEFORE
from workloads import MEGABYTE
from workloads import STATE_BYTES
from workloads import TID
from workloads import state_of
from ZODB.utils import p64

BARRIER_TIMEOUT_S = 600.0


def run_workers(
    work: Callable[..., Any], directory: Path, jobs: Sequence[tuple[Any, ...]]
) -> list[Any]:
    """What ``work(directory, barrier, *job)`` returns, each job in a process, all at once."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(jobs), timeout=BARRIER_TIMEOUT_S)
    with contextlib.ExitStack() as stack:
        pipes = []
        for job in jobs:
            pipe, end = context.Pipe()
            process = context.Process(target=_serve, args=(end, barrier, work, directory, job))
            process.start()
            end.close()
            stack.callback(process.join)
            pipes.append(stack.enter_context(pipe))
        return [pipe.recv() for pipe in pipes]


def _serve(pipe: Any, barrier: Any, work: Any, directory: Path, job: tuple[Any, ...]) -> None:
    try:
        found = work(directory, barrier, *job)
    except BaseException:
        barrier.abort()
        raise
    pipe.send(found)


# Stopping.

WORKERS = 20
WORKER_MB = 40
STOP_MAX = 2.0

CACHE, PEER, FLAT = "zodbcache", "RelStorage", "flat file"
AT_ONCE, ALONE = "at once", "alone"
LAST, MEDIAN = "last", "median"


class Stopped(NamedTuple):
    """From when to when a worker closed, on the clock of all processes, and what went wrong."""

    start: float
    end: float
    failures: list[str]

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Warnings(logging.Handler):
    """Keeps what is said of failures."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def oids_of(number: int, count: int) -> range:
    """The objects of the worker with this number."""
    return range(1 + number * count, 1 + (number + 1) * count)


def stop_cache(directory: Path, barrier: Any, number: int, count: int, file_mb: float) -> Stopped:
    """Fill this cache, wait for the others, and close."""
    memory_mb = filed.memory_mb(count)
    options = {"cache_file_mb": file_mb, "cache_write_seconds": 0}
    storage = filed.new_cache(directory, memory_mb, **options)
    filed.load_all(storage, oids_of(number, count))
    assert storage.cache_stats()["entries"] == count
    return stop(barrier, storage.close)


def stop_own(directory: Path, barrier: Any, number: int, count: int, file_mb: float) -> Stopped:
    """The same with RelStorage's; its file may be as large as its memory."""
    client = filed.own_client(directory, file_mb)
    client.restore()  # makes the file
    filed.set_all(client, oids_of(number, count))
    assert len(client) == count
    return stop(barrier, lambda: filed.save_client(client))


def stop(barrier: Any, close: Callable[[], None]) -> Stopped:
    warnings = Warnings()
    logging.getLogger().addHandler(warnings)
    failures = warnings.texts
    gc.collect()
    barrier.wait()
    start = time.perf_counter()
    try:
        close()
    except Exception as error:
        failures.append(repr(error))
    end = time.perf_counter()
    logging.getLogger().removeHandler(warnings)
    return Stopped(start, end, failures)


class Stop(NamedTuple):
    """How a kind of cache stops, and how many rows its file has."""

    stop: Callable[..., Stopped]
    rows_in: Callable[[Path], int]


STOPS = {CACHE: Stop(stop_cache, filed.rows_in), PEER: Stop(stop_own, filed.own_rows_in)}


class Loss(NamedTuple):
    """*written*: the share of the rows that the file has in the end."""

    failures: list[str]
    written: float


class Stopping:
    """Measures how *workers* of them stop; *losses* by scenario."""

    def __init__(self, directory: str | None, workers: int, count: int) -> None:
        self._directory = directory
        self._workers = workers
        self._count = count
        self.losses: dict[str, list[Loss]] = {}
        self.scenarios = [f"{kind}, {how}" for kind in STOPS for how in (AT_ONCE, ALONE)] + [
            f"{FLAT}, {ALONE}"
        ]

    def measure(self, name: str) -> Round:
        kind, how = name.split(", ")
        os.sync()
        with tempfile.TemporaryDirectory(prefix="benchmark-", dir=self._directory) as made:
            if kind == FLAT:
                rows = filed.flat_rows(oids_of(0, self._workers * self._count))
                path = Path(made) / "rows"
                return {f"{name}, {LAST}": seconds_of(lambda: filed.write_flat(path, rows))}
            return self._measure(name, kind, how, Path(made))

    def _measure(self, name: str, kind: str, how: str, directory: Path) -> Round:
        total = self._workers * self._count
        file_mb = filed.memory_mb(total)
        if how == ALONE:
            jobs = [(0, total, file_mb)]
        else:
            jobs = [(number, self._count, file_mb) for number in range(self._workers)]
        stopped = run_workers(STOPS[kind].stop, directory, jobs)
        failures = list(chain.from_iterable(one.failures for one in stopped))
        written = STOPS[kind].rows_in(directory) / total
        self.losses.setdefault(name, []).append(Loss(failures, written))
        start, end = min(one.start for one in stopped), max(one.end for one in stopped)
        found = {f"{name}, {LAST}": end - start}
        if how == AT_ONCE:
            found[f"{name}, {MEDIAN}"] = statistics.median(one.seconds for one in stopped)
        return found


STOP_HEAD = ("", "ms", "of alone", "failures", "written")


def stop_rows(found: Results, losses: dict[str, list[Loss]]) -> Iterator[tuple[str, ...]]:
    for name in found.names:
        kind, how, _ = name.split(", ")
        lost = losses.get(f"{kind}, {how}", [])
        yield (
            name,
            f"{found.median(name) * 1e3:.0f}",
            f"{found.ratio(name, f'{kind}, {ALONE}, {LAST}'):.2f}",
            f"{sum(len(one.failures) for one in lost)}" if lost else "",
            f"{min(one.written for one in lost):.4f}" if lost else "",
        )


def stop_goals(found: Results, losses: dict[str, list[Loss]]) -> Iterator[Goal]:
    name = f"{CACHE}, {AT_ONCE}"
    ratio = found.ratio(f"{name}, {LAST}", f"{CACHE}, {ALONE}, {LAST}")
    yield Goal("stopping at once: the last, of the time alone", ratio, STOP_MAX)
    lost = losses[name]
    yield Goal("stopping at once: failures", sum(len(one.failures) for one in lost), 0)
    written = min(one.written for one in lost)
    yield Goal("stopping at once: rows written", written, 1, at_least=True)


# The hottest.

HOTTEST_MB = 20.0
HOT_SHARE = 10
"""One in so many."""

HOT_READS = 8
READING = 2
SAVES = 20
"""For each memory's worth of reads, so that nothing new has gone from eden before."""

FULL_MIN = 0.9
FILE_AS_MEMORY, FILE_LARGER = 1, 4


class Reading(NamedTuple):
    """What each of two workers reads, in this order, and what of it is hot."""

    orders: list[list[int]]
    hot: range

    @classmethod
    def of(cls, fitting: int) -> Reading:
        """If so many objects fit the file."""
        hot = range(1, 1 + fitting // HOT_SHARE)
        cold = range(hot.stop, hot.stop + fitting * 3 // 4 * READING)
        shuffle = random.Random(0).shuffle
        orders = []
        for first in range(READING):
            order = [*cold[first::READING], *HOT_READS * list(hot)]
            shuffle(order)
            orders.append(order)
        return cls(orders, hot)


def in_parts(order: Sequence[int], length: int) -> Iterator[Sequence[int]]:
    return (order[first : first + length] for first in range(0, len(order), length))


def hottest_of_cache(directory: Path, memory_mb: float, file_times: int) -> float:
    """The share of the hottest tenth of a full file that is in memory after a restore."""
    file_mb = memory_mb * file_times
    fitting = rows_fitting(file_mb)
    reading = Reading.of(fitting)
    with contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(filed.open_cache(directory, memory_mb, cache_file_mb=file_mb))
            for _ in reading.orders
        ]
        parts = (in_parts(order, rows_fitting(memory_mb) // SAVES) for order in reading.orders)
        for both in zip(*parts, strict=True):
            for worker, oids in zip(workers, both, strict=True):
                filed.load_all(worker, oids)
                worker._cache.persistence.save()
    assert filed.rows_in(directory) >= FULL_MIN * fitting
    with filed.open_cache(directory, memory_mb, cache_file_mb=file_mb) as storage:
        storage.cache_preload()
        return filed.in_memory(storage, reading.hot) / len(reading.hot)


def hottest_of_own(directory: Path, memory_mb: float) -> float:
    fitting = rows_fitting(memory_mb)
    reading = Reading.of(fitting)
    for order in reading.orders:
        client = filed.own_client(directory, memory_mb)
        for oid in order:
            read_own(client, oid)
        filed.save_client(client)
    assert filed.own_rows_in(directory) >= FULL_MIN * fitting
    client = filed.own_client(directory, memory_mb)
    client.restore()
    return sum((oid, TID) in client for oid in reading.hot) / len(reading.hot)


def rows_fitting(size_mb: float) -> int:
    """So many fit any of the caches."""
    return int(size_mb * MEGABYTE) // (STATE_BYTES + filed.BESIDE_STATE_BYTES)


def read_own(client: Any, oid: int) -> bool:
    """Whether it was a hit; it is one from now on."""
    if client[oid, TID] is not None:
        return True
    client[oid, TID] = (state_of(oid), TID)
    return False


def ask_hottest(directory: str | None, memory_mb: float) -> dict[str, float]:
    found = {}
    for file_times in (FILE_AS_MEMORY, FILE_LARGER):
        with tempfile.TemporaryDirectory(prefix="benchmark-", dir=directory) as made:
            name = f"{CACHE}, a file of {file_times} times the memory"
            found[name] = hottest_of_cache(Path(made), memory_mb, file_times)
    with tempfile.TemporaryDirectory(prefix="benchmark-", dir=directory) as made:
        found[PEER] = hottest_of_own(Path(made), memory_mb)
    return found


def hottest_goals(found: dict[str, float]) -> Iterator[Goal]:
    for name, share in found.items():
        if name != PEER:
            yield Goal(f"the hottest tenth, {name}", share, 0.99, at_least=True)


# Sharing.

SHARERS = 10
SHARER_MB = 10.0
SHARED_MB = 1000.0
PACE = 10_000
"""Requests a second of each, at full scale: as many as fill its memory in some seconds."""

REQUESTS_A_ROW = 3
"""In all, for each row that the file has room for."""

OBJECTS_A_ROW = 2
SKEW = 0.8
"""The object in place n is asked for in proportion to n to the power of minus this."""

PRIME = 7_368_787
"""Spreads the popular objects over the oids."""

REQUESTS_AT_ONCE = 50
SMALLEST_MB = 1.0


class Sizes(NamedTuple):
    """*requests*, *a_second*: of each worker.  *objects*: that there are."""

    worker_mb: float
    file_mb: float
    objects: int
    requests: int
    a_second: float

    @classmethod
    def of(cls, scale: float, pace: float = PACE) -> Sizes:
        fitting = rows_fitting(SHARED_MB * scale)
        return cls(
            max(SHARER_MB * scale, SMALLEST_MB),
            SHARED_MB * scale,
            OBJECTS_A_ROW * fitting,
            REQUESTS_A_ROW * fitting // SHARERS,
            pace * scale,
        )


def popular(sizes: Sizes, number: int) -> Iterator[int]:
    """The oids that the worker with this number asks for."""
    draw = random.Random(number).random
    power = 1 - SKEW
    top = (sizes.objects + 1) ** power - 1
    for _ in range(sizes.requests):
        place = int((1 + top * draw()) ** (1 / power)) - 1
        yield 1 + place * PRIME % sizes.objects


def share_file(directory: Path, barrier: Any, number: int, sizes: Sizes) -> filed.Reads:
    """What one worker reads, in its second half."""
    with filed.open_cache(directory, sizes.worker_mb, cache_file_mb=sizes.file_mb) as storage:
        barrier.wait()
        load_before, before = storage.loadBefore, BEFORE
        start = time.monotonic()
        for asked, oid in enumerate(popular(sizes, number), 1):
            load_before(p64(oid), before)
            if asked % REQUESTS_AT_ONCE == 0:
                ahead = asked / sizes.a_second - (time.monotonic() - start)
                if ahead > 0:
                    time.sleep(ahead)
            if asked == sizes.requests // 2:
                half = filed.reads_of(storage)
        reads = filed.reads_of(storage).since(half)
        barrier.wait()  # nobody's end makes it easier for the others
    return reads


def share_nothing(sizes: Sizes) -> filed.Reads:
    """One process with all the memory, that reads what all of the workers do."""
    streams = [popular(sizes, number) for number in range(SHARERS)]
    with filed.open_cache(None, sizes.file_mb) as storage:
        for asked, oids in enumerate(zip(*streams, strict=True), 1):
            filed.load_all(storage, oids)
            if asked == sizes.requests // 2:
                half = filed.reads_of(storage)
        return filed.reads_of(storage).since(half)


def share_own(sizes: Sizes) -> filed.Reads:
    """RelStorage's memories of the workers, one after the other."""
    hits = misses = 0
    for number in range(SHARERS):
        client = filed.own_client(None, sizes.worker_mb)
        for asked, oid in enumerate(popular(sizes, number), 1):
            is_hit = read_own(client, oid)
            if asked > sizes.requests // 2:
                hits += is_hit
                misses += not is_hit
    return filed.Reads(memory=hits, file=0, misses=misses)


ONE_PROCESS = "one process, all in memory"


def ask_sharing(directory: str | None, sizes: Sizes) -> dict[str, filed.Reads]:
    with tempfile.TemporaryDirectory(prefix="benchmark-", dir=directory) as made:
        jobs = [(number, sizes) for number in range(SHARERS)]
        shared = run_workers(share_file, Path(made), jobs)
    return {
        CACHE: filed.Reads(*map(sum, zip(*shared, strict=True))),
        ONE_PROCESS: share_nothing(sizes),
        PEER: share_own(sizes),
    }


SHARING_HEAD = ("ten workers", "hits", "of one process'", "in memory")


def sharing_rows(found: dict[str, filed.Reads]) -> Iterator[tuple[str, ...]]:
    one = found[ONE_PROCESS].ratio
    for name, reads in found.items():
        in_memory = reads.memory / (reads.hits + reads.misses)
        yield name, f"{reads.ratio:.4f}", f"{reads.ratio / one:.3f}", f"{in_memory:.4f}"


def sharing_goals(found: dict[str, filed.Reads]) -> Iterator[Goal]:
    ratio = found[CACHE].ratio / found[ONE_PROCESS].ratio
    yield Goal("sharing: hits, of one process'", ratio, 0.95, at_least=True)


# What is printed.


class Answers(NamedTuple):
    """Those of the questions that were asked."""

    stop: tuple[Results, dict[str, list[Loss]]] | None = None
    hottest: dict[str, float] | None = None
    sharing: dict[str, filed.Reads] | None = None


def report(found: Answers) -> None:
    goals: list[Iterator[Goal]] = []
    if found.stop is not None:
        print_table("Closing", STOP_HEAD, stop_rows(*found.stop))
        goals.append(stop_goals(*found.stop))
    if found.hottest is not None:
        rows = ((name, f"{share:.4f}") for name, share in found.hottest.items())
        print_table("The hottest tenth of a full file", ("", "in memory"), rows)
        goals.append(hottest_goals(found.hottest))
    if found.sharing is not None:
        print_table("Hits of ten workers", SHARING_HEAD, sharing_rows(found.sharing))
        goals.append(sharing_goals(found.sharing))
    print_goals(list(chain.from_iterable(goals)))


QUESTIONS = ("stop", "hottest", "sharing")


def ask_stop(args: argparse.Namespace) -> tuple[Results, dict[str, list[Loss]]]:
    count = filed.states_in(args.worker_mb)
    stopping = Stopping(args.directory, args.workers, count)
    rounds = args.processes * args.rounds
    return Results([measure_rounds(stopping.scenarios, stopping.measure, rounds)]), stopping.losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--question", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    parser.add_argument("--workers", type=int, default=WORKERS, help="that stop")
    parser.add_argument("--worker-mb", type=float, default=WORKER_MB, help="that each has to write")
    parser.add_argument("--hottest-mb", type=float, default=HOTTEST_MB, help="of memory")
    parser.add_argument("--scale", type=float, default=0.1, help="of sharing; 1 is a file of 1 GB")
    parser.add_argument(
        "--pace", type=float, default=PACE, help="requests a second of each worker, at scale 1"
    )
    parser.add_argument("--directory", help="where the files are made")
    add_arguments(parser)
    parser.set_defaults(processes=1)
    args = parser.parse_args()
    asked = args.question
    sizes = Sizes.of(args.scale, args.pace)
    found = Answers(
        ask_stop(args) if "stop" in asked else None,
        ask_hottest(args.directory, args.hottest_mb) if "hottest" in asked else None,
        ask_sharing(args.directory, sizes) if "sharing" in asked else None,
    )
    if args.output and found.stop is not None:
        save(list(found.stop[0].benchmarks("close, ")), args.output)
    report(found)
    keep(args.output)


if __name__ == "__main__":
    main()
