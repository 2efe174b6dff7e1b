"""What does writing the file in the background cost, and what does it save from a crash?

::

    python benchmarks/bench_write_behind.py                                  # everything
    python benchmarks/bench_write_behind.py --question threads --fast        # one question
    python benchmarks/bench_write_behind.py --question kill --kills 50

threads
    1 and 4 threads read objects that are in memory, as fast as they can, while
    the background thread writes 100 MB of states of 300 bytes that are not in
    the file.  In the same process and by the same threads: before it begins,
    while it writes until all is written, and after.  *without* is before and
    after, *with* is between.  ``a row`` is what the background thread takes for
    one, meanwhile.  ``a transaction`` is the longest write to the file, during
    which no other process could have written.  RelStorage's cache writes its
    file when it closes, and ZEO's on the thread that reads.
kill
    A process reads 5,000 new objects a second and is killed at some moment by
    SIGKILL.  Another opens its file and asks for everything that had been
    cached 5 s before that moment, and for what came later: what shares are
    hits, and right.  ``--busy 1`` sets a thread beside it that reads objects in
    memory all the time.  RelStorage's cache would have nothing: it writes when
    it closes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from typing import NamedTuple

import filed
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
from workloads import BEFORE
from workloads import TID
from workloads import state_of
from ZODB.utils import p64

from zodbcache.cachefile import CacheFile
from zodbcache.cachefile.connection import Connection

THREADS = (1, 4)
HOT_OBJECTS = 10_000
"""Those that the threads read; they are in the file and in memory."""

USUAL_MB = 100
PHASE_SECONDS = 2.0
"""How long the threads read before the writing begins, and after it has ended."""

WRITTEN_TIMEOUT_S = 120.0
LOOK_SECONDS = 0.02

FIRST_NEW_OID = 1_000_000
"""The new objects' oids begin here."""


class Counts(NamedTuple):
    """How many objects were read until when."""

    reads: int
    at: float

    def seconds_a_read(self, before: Counts) -> float:
        return (self.at - before.at) / (self.reads - before.reads)


class BusyThreads:
    """So many threads that read objects which are in memory, until the block ends."""

    def __init__(self, storage: Any, count: int, objects: int) -> None:
        self._storage = storage
        self._keys = [p64(oid) for oid in range(1, objects + 1)]
        self._reads = [0] * count
        self._stopped = False
        self._threads = [
            threading.Thread(target=self._work, args=(number,)) for number in range(count)
        ]

    def __enter__(self) -> BusyThreads:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        for thread in self._threads:
            thread.join()

    def counts(self) -> Counts:
        return Counts(sum(self._reads), time.perf_counter())

    def _work(self, number: int) -> None:
        load_before, before = self._storage.loadBefore, BEFORE
        keys = random.Random(number).sample(self._keys, len(self._keys))
        batches = [keys[first : first + 100] for first in range(0, len(keys), 100)]
        while True:
            for batch in batches:
                for key in batch:
                    load_before(key, before)
                self._reads[number] += len(batch)
                if self._stopped:
                    return


class Writes:
    """The writes to cache files of this process: when they may begin, and how long they took.

    *seconds*: of each write transaction, from having the write lock to the end of the commit.
    """

    def __init__(self) -> None:
        self.allowed = threading.Event()
        self.seconds: list[float] = []

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        advance, transaction = CacheFile.advance, Connection.transaction

        def held_back(*args: Any) -> Any:
            self.allowed.wait()
            return advance(*args)

        @contextlib.contextmanager
        def timed(connection: Connection, operation: str, *, write: bool) -> Iterator[None]:
            with transaction(connection, operation, write=write):
                start = time.perf_counter()
                yield
            if write:
                self.seconds.append(time.perf_counter() - start)

        CacheFile.advance = held_back  # type: ignore[method-assign]
        Connection.transaction = timed  # type: ignore[method-assign]
        try:
            yield
        finally:
            CacheFile.advance = advance  # type: ignore[method-assign]
            Connection.transaction = transaction  # type: ignore[method-assign]


def time_threads(directory: Path, threads: int, count: int, seconds: float) -> Round:
    """Seconds of a read without and with so many rows being written, and of each row."""
    writes = Writes()
    with contextlib.ExitStack() as stack:
        stack.enter_context(writes.watched())
        cache_mb = filed.memory_mb(HOT_OBJECTS + count)
        storage = stack.enter_context(filed.open_cache(directory, cache_mb))
        stack.callback(writes.allowed.set)  # or else it could not close
        writes.allowed.set()
        filed.load_all(storage, range(1, HOT_OBJECTS + 1))
        wait_until_written(storage, HOT_OBJECTS)
        writes.allowed.clear()
        filed.load_all(storage, range(FIRST_NEW_OID, FIRST_NEW_OID + count))
        assert storage.cache_stats()["entries"] == HOT_OBJECTS + count
        writes.seconds.clear()
        reads = filed.reads_of(storage)
        with BusyThreads(storage, threads, HOT_OBJECTS) as busy:
            time.sleep(seconds / 10)  # until all are at it
            begun = busy.counts()
            time.sleep(seconds)
            before = busy.counts()
            writes.allowed.set()
            wait_until_written(storage, HOT_OBJECTS + count)
            between = busy.counts()
            time.sleep(seconds)
            after = busy.counts()
        counted = filed.reads_of(storage).since(reads)
        assert counted == filed.Reads(memory=busy.counts().reads, file=0, misses=0), counted
        idle = (begun.seconds_a_read(before) + between.seconds_a_read(after)) / 2
        longest = max(writes.seconds)
    assert filed.rows_in(directory) == HOT_OBJECTS + count
    name = scenario(threads)
    return {
        f"{name}, a read without": idle,
        f"{name}, a read with": before.seconds_a_read(between),
        f"{name}, a row": (between.at - before.at) / count,
        f"{name}, a transaction": longest,
    }


def wait_until_written(storage: Any, count: int) -> None:
    deadline = time.monotonic() + WRITTEN_TIMEOUT_S
    while storage.cache_stats()["file_writes"] < count:
        assert time.monotonic() < deadline, storage.cache_stats()
        time.sleep(LOOK_SECONDS)


def scenario(threads: int) -> str:
    return f"{threads} thread{'s' * (threads > 1)}"


def work_threads(job: dict[str, Any]) -> list[Round]:
    """The rounds of one process."""
    jobs = {scenario(threads): threads for threads in THREADS}

    def measure(name: str) -> Round:
        with tempfile.TemporaryDirectory(prefix="benchmark-", dir=job["directory"]) as directory:
            return time_threads(Path(directory), jobs[name], job["count"], job["seconds"])

    return measure_rounds(list(jobs), measure, job["rounds"])


def ask_threads(args: argparse.Namespace) -> Results:
    job = {
        "question": "threads",
        "count": filed.states_in(args.mb),
        "seconds": args.seconds,
        "directory": args.directory,
        "rounds": args.rounds,
    }
    return Results([run_script(__file__, job) for _ in range(args.processes)])


# After a kill.

HOT_BESIDE = 1000
"""What the busy thread reads."""

OBJECTS_A_SECOND = 5000
AT_ONCE = 50
EARLIER_SECONDS = 5.0
LOAD_SECONDS = (8.0, 12.0)
"""Killed after some time between these."""

MEMORY_MB = 100.0


class Survival(NamedTuple):
    """How much had been cached so long before the kill and what share of it was a hit later.

    *later*: the share of what was cached after that.
    """

    cached: int
    share: float
    later: float


def work_load(job: dict[str, Any]) -> None:
    """Read new objects at a steady rate, a thread beside; say when which were cached; for ever."""
    with (
        filed.open_cache(Path(job["directory"]), MEMORY_MB) as storage,
        contextlib.ExitStack() as stack,
    ):
        filed.load_all(storage, range(1, HOT_BESIDE + 1))
        stack.enter_context(BusyThreads(storage, job["busy"], HOT_BESIDE))
        start = time.monotonic()
        oid = FIRST_NEW_OID
        while True:
            filed.load_all(storage, range(oid, oid + AT_ONCE))
            oid += AT_ONCE
            print(oid, time.monotonic(), flush=True)
            ahead = (oid - FIRST_NEW_OID) / job["rate"] - (time.monotonic() - start)
            if ahead > 0:
                time.sleep(ahead)


def kill_loaded(directory: Path, *, rate: float, busy: int, seconds: float) -> Survival:
    """Load for so long, kill, and look what is there."""
    job = {"question": "load", "directory": str(directory), "rate": rate, "busy": busy}
    with (directory / "told").open("w+b") as told:  # a pipe may be full
        command = [sys.executable, __file__, "--worker", json.dumps(job)]
        process = subprocess.Popen(command, stdout=told)
        wait_for_line(Path(told.name))
        time.sleep(seconds)
        assert process.poll() is None, "it has ended by itself"
        killed = time.monotonic()
        process.kill()
        process.wait()
        told.seek(0)
        lines = [
            line.split() for line in told.read().splitlines(keepends=True) if line[-1:] == b"\n"
        ]
    cached = [(int(oid), float(at)) for oid, at in lines]
    earlier = max((oid for oid, at in cached if at <= killed - EARLIER_SECONDS), default=None)
    assert earlier is not None, "it was killed too soon"
    with filed.open_cache(directory, MEMORY_MB) as storage:
        hot = hits_of(storage, range(1, HOT_BESIDE + 1))
        sooner = hits_of(storage, range(FIRST_NEW_OID, earlier))
        later = hits_of(storage, range(earlier, cached[-1][0]))
    count = HOT_BESIDE + earlier - FIRST_NEW_OID
    return Survival(count, (hot + sooner) / count, later / max(1, cached[-1][0] - earlier))


def wait_for_line(path: Path) -> None:
    deadline = time.monotonic() + WRITTEN_TIMEOUT_S
    while b"\n" not in path.read_bytes():
        assert time.monotonic() < deadline, "nothing was read"
        time.sleep(LOOK_SECONDS)


def hits_of(storage: Any, oids: range) -> int:
    """How many of the oids are hits.  Asserts that all are right."""
    before = filed.reads_of(storage)
    for oid in oids:
        assert storage.loadBefore(p64(oid), BEFORE) == (state_of(oid), p64(TID), None)
    return filed.reads_of(storage).since(before).hits


def ask_kill(args: argparse.Namespace) -> list[Survival]:
    found = []
    for _ in range(args.kills):
        with tempfile.TemporaryDirectory(prefix="benchmark-", dir=args.directory) as directory:
            seconds = random.uniform(*LOAD_SECONDS)
            found.append(
                kill_loaded(Path(directory), rate=args.rate, busy=args.busy, seconds=seconds)
            )
    return found


# What is printed.

THREADS_HEAD = ("", "with: of the throughput without", "reads/s without", "rows/s", "longest, ms")
KILL_HEAD = ("killed", "cached 5 s earlier", "still a hit", "of what came later")


def longest(found: Results, name: str) -> float:
    return max(one[f"{name}, a transaction"] for one in found.rounds)


def threads_rows(found: Results) -> Iterator[tuple[str, ...]]:
    for name in map(scenario, THREADS):
        yield (
            name,
            f"{found.faster(f'{name}, a read with', f'{name}, a read without'):.3f}",
            f"{1 / found.median(f'{name}, a read without'):,.0f}",
            f"{1 / found.median(f'{name}, a row'):,.0f}",
            f"{longest(found, name) * 1e3:.0f}",
        )


def threads_goals(found: Results) -> Iterator[Goal]:
    for name in map(scenario, THREADS):
        share = found.faster(f"{name}, a read with", f"{name}, a read without")
        yield Goal(f"{name}: of the throughput without", share, 0.9, at_least=True)
        rows_a_second = 1 / found.median(f"{name}, a row")
        yield Goal(f"{name}: rows/s", rows_a_second, 20_000, at_least=True)
        yield Goal(f"{name}: the longest transaction, ms", longest(found, name) * 1e3, 250)


def kill_rows(found: Sequence[Survival]) -> Iterator[tuple[str, ...]]:
    yield (
        f"{len(found)} times, median",
        f"{statistics.median(one.cached for one in found):,.0f}",
        f"{statistics.median(one.share for one in found):.4f}",
        f"{statistics.median(one.later for one in found):.4f}",
    )
    worst = min(found, key=lambda one: one.share)
    yield "at worst", f"{worst.cached:,}", f"{worst.share:.4f}", f"{worst.later:.4f}"


def kill_goals(found: Sequence[Survival]) -> Iterator[Goal]:
    share = min(one.share for one in found)
    yield Goal("killed: still a hit, at worst", share, 0.95, at_least=True)


def report(threads: Results | None, kills: Sequence[Survival]) -> None:
    goals: list[Iterator[Goal]] = []
    if threads is not None:
        print_table("While the file is written", THREADS_HEAD, threads_rows(threads))
        goals.append(threads_goals(threads))
    if kills:
        print_table("After a kill", KILL_HEAD, kill_rows(kills))
        goals.append(kill_goals(kills))
    print_goals(list(chain.from_iterable(goals)))


QUESTIONS = ("threads", "kill")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--question", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    parser.add_argument("--mb", type=float, default=USUAL_MB, help="megabytes that are written")
    parser.add_argument("--seconds", type=float, default=PHASE_SECONDS, help="before, and after")
    parser.add_argument("--kills", type=int, help="how many (default: one for each round)")
    parser.add_argument("--rate", type=float, default=OBJECTS_A_SECOND, help="new objects a second")
    parser.add_argument("--busy", type=int, default=0, help="threads beside, that read the same")
    parser.add_argument("--directory", help="where the files are made")
    add_arguments(parser)
    args = parser.parse_args()
    if args.worker:
        if args.worker["question"] == "load":
            work_load(args.worker)
        print(json.dumps(work_threads(args.worker)))
        return
    args.kills = args.kills or args.processes * args.rounds
    threads = ask_threads(args) if "threads" in args.question else None
    kills = ask_kill(args) if "kill" in args.question else []
    if args.output and threads is not None:
        save(list(threads.benchmarks("write-behind, ")), args.output)
    report(threads, kills)
    keep(args.output)


if __name__ == "__main__":
    main()
