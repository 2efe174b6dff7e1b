"""What does one operation on a cache in memory cost, beside its peers?  pyperf.

::

    python benchmarks/bench_store.py                            # everything
    python benchmarks/bench_store.py --operation hit            # a hit at 50,000 and 1,000,000 keys
    python benchmarks/bench_store.py --operation threads        # hits of 1, 2, 4 and 8 threads

Add ``--cache dict "RelStorage client" "zodbcache store" "zodbcache
loadBefore"`` for only the caches that the goals are about, ``--keys 50000``
for one size, and pyperf's own options, such as ``--fast`` or ``-o FILE``.

One value is the time of one call, in a loop over all keys in random order.

hit
    Every key is there, and that is asserted.  A dict returns a reference; the
    caches of this project and of RelStorage copy 300 bytes and make a bytes
    object, and this project's also a tuple and the tid.
miss
    No key is there.
set
    New keys into an empty cache that has room for them.  The dict, lru-dict,
    cachebox and cachetools keep the object; the others copy it.
    ``zodbcache loadBefore`` is a miss that is loaded and kept.
evict
    New keys into a full cache.
threads
    Hits by several threads, each over all keys from a place of its own; the
    keys are the same objects, lest more threads mean more memory to read.  The
    time is divided by the hits of all threads, so that the same time is the
    same throughput.  cachetools is left out: it may not be shared.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from functools import cache
from typing import Any
from typing import NamedTuple

import pyperf
from report import Goal
from report import keep
from report import print_goals
from report import print_table
from workloads import BACKENDS
from workloads import Backend
from workloads import Dict
from workloads import RelStorageClient
from workloads import RelStorageLoad
from workloads import Store
from workloads import Wrapper
from workloads import shuffled

KEYS = (50_000, 1_000_000)
THREADS = (1, 2, 4, 8)


class Case(NamedTuple):
    """One benchmark: *threads* of them do the operation on *keys* keys of the cache."""

    operation: str
    keys: int
    cache: str
    threads: int = 1

    def __str__(self) -> str:
        threads = f", {self.threads} threads" if self.operation == "threads" else ""
        return f"{self.operation}, {self.keys:,} keys{threads}: {self.cache}"


@cache
def filled(name: str, keys: int) -> Backend:
    """The cache with oids 1 to *keys* in it and room for more; made once a process."""
    backend = BACKENDS[name](2 * keys)
    backend.fill(range(1, keys + 1))
    assert len(backend) == keys
    return backend


@cache
def shuffled_keys(name: str, keys: int, *, first: int = 1) -> list[Any]:
    """Keys from *first* on in random order; made once a process."""
    return filled(name, keys).keys(shuffled(keys, first=first))


def check_hits(backend: Backend, counted: int | None, expected: int, keys: int) -> None:
    """Assert that all that was timed were hits.

    *counted*: what the cache itself had counted before, if it counts.
    """
    if counted is not None:
        assert (backend.hits() or 0) - counted == expected
    sample = shuffled(keys)[:10_000]
    assert backend.found(sample) == len(sample)
    assert len(backend) == keys


def time_hits(loops: int, case: Case) -> float:
    backend, keys = filled(case.cache, case.keys), shuffled_keys(case.cache, case.keys)
    counted = backend.hits()
    start = time.perf_counter()
    for _ in range(loops):
        backend.look_up(keys)
    elapsed = time.perf_counter() - start
    check_hits(backend, counted, loops * case.keys, case.keys)
    return elapsed


def time_misses(loops: int, case: Case) -> float:
    backend = filled(case.cache, case.keys)
    keys = shuffled_keys(case.cache, case.keys, first=case.keys + 1)
    counted = backend.hits()
    start = time.perf_counter()
    for _ in range(loops):
        backend.look_up(keys)
    elapsed = time.perf_counter() - start
    assert backend.hits() == counted
    assert len(backend) == case.keys
    return elapsed


def time_sets(loops: int, case: Case) -> float:
    elapsed = 0.0
    for _ in range(loops):
        backend = BACKENDS[case.cache](2 * case.keys)
        items = backend.items(shuffled(case.keys))
        start = time.perf_counter()
        backend.set_all(items)
        elapsed += time.perf_counter() - start
        assert len(backend) == case.keys
    return elapsed


def time_evictions(loops: int, case: Case) -> float:
    backend = BACKENDS[case.cache](case.keys)
    backend.fill(range(1, 2 * case.keys + 1))
    full, elapsed = len(backend), 0.0
    for loop in range(loops):
        items = backend.items(shuffled(case.keys, first=(loop + 2) * case.keys + 1))
        start = time.perf_counter()
        backend.set_all(items)
        elapsed += time.perf_counter() - start
    assert abs(len(backend) - full) <= full // 20, (full, len(backend))
    return elapsed


def time_threads(loops: int, case: Case) -> float:
    """From when all threads stand ready until the last is done."""
    backend = filled(case.cache, case.keys)
    keys = shuffled_keys(case.cache, case.keys)
    starts = range(0, case.keys, -(-case.keys // case.threads))
    key_lists = [keys[start:] + keys[:start] for start in starts]
    counted = backend.hits()
    started: list[float] = []
    ended: list[float] = []
    ready = threading.Barrier(case.threads, lambda: started.append(time.perf_counter()))

    def run(own_keys: list[Any]) -> None:
        ready.wait()
        for _ in range(loops):
            backend.look_up(own_keys)
        ended.append(time.perf_counter())

    threads = [threading.Thread(target=run, args=(own_keys,)) for own_keys in key_lists]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ended) == case.threads
    check_hits(backend, counted, loops * case.keys * case.threads, case.keys)
    return max(ended) - started[0]


OPERATIONS: dict[str, Callable[[int, Case], float]] = {
    "hit": time_hits,
    "miss": time_misses,
    "set": time_sets,
    "evict": time_evictions,
    "threads": time_threads,
}


def can_do(operation: str, backend: type[Backend]) -> bool:
    """Whether the operation says anything about the cache."""
    if operation == "miss":
        return not issubclass(backend, RelStorageLoad | Wrapper)  # these ask their database then
    if operation == "set":
        return not issubclass(backend, RelStorageLoad)  # its client is what it sets
    if operation == "evict":
        return backend.is_bounded and not issubclass(backend, RelStorageLoad)
    if operation == "threads":
        return backend.is_thread_safe
    return True


def cases(operations: Sequence[str], keys: Sequence[int], caches: Sequence[str]) -> Iterator[Case]:
    """Every benchmark there is for these, peers one after the other."""
    for operation in operations:
        for count in keys if operation == "hit" else keys[:1]:
            for name in caches:
                if can_do(operation, BACKENDS[name]):
                    for threads in THREADS if operation == "threads" else (1,):
                        yield Case(operation, count, name, threads)


def goals(seconds: dict[Case, float]) -> Iterator[Goal]:
    """What was aimed at, as far as it was measured."""
    for keys, bound in zip(KEYS, (2.5, 1.2), strict=True):
        hit = {case.cache: s for case, s in seconds.items() if case[:2] == ("hit", keys)}
        store, client = hit.get(Store.name), hit.get(RelStorageClient.name)
        wrapper = hit.get(Wrapper.name)
        if store and Dict.name in hit:
            yield Goal(f"hit, {keys:,} keys: of a dict's time", store / hit[Dict.name], bound)
        if store and client:
            text = f"hit, {keys:,} keys: faster than RelStorage's client"
            yield Goal(text, client / store, 3.5, at_least=True)
        if wrapper and keys == KEYS[0]:
            either = " (this or the next)" if client else ""
            yield Goal(f"loadBefore, {keys:,} keys: ns{either}", wrapper * 1e9, 250)
        if wrapper and client and keys == KEYS[0]:
            text = f"loadBefore, {keys:,} keys: of RelStorage's client's time"
            yield Goal(text, wrapper / client, 0.35)
    for case, eight in seconds.items():
        one = seconds.get(case._replace(threads=1))
        is_ours = case.cache in (Store.name, Wrapper.name)
        if case.operation == "threads" and case.threads == 8 and is_ours and one:
            text = f"8 threads, {case.cache}: throughput of one thread's"
            yield Goal(text, one / eight, 0.95, at_least=True)


def report(seconds: dict[Case, float]) -> None:
    """One table for each set of peers: nanoseconds, and how they compare."""
    groups = dict.fromkeys((case.operation, case.keys, case.threads) for case in seconds)
    for group in groups:
        peers = {
            case.cache: s
            for case, s in seconds.items()
            if (case.operation, case.keys, case.threads) == group
        }
        rows = [
            (name, f"{s * 1e9:.0f}", *(ratio(s, peers.get(to)) for to in COMPARED_TO))
            for name, s in peers.items()
        ]
        case = Case(group[0], group[1], "", group[2])
        head = ("cache", "ns", *(f"/ {name}" for name in COMPARED_TO))
        print_table(str(case).rstrip(": "), head, rows)
    print_goals(list(goals(seconds)))


COMPARED_TO = (Dict.name, RelStorageClient.name)


def ratio(seconds: float, to: float | None) -> str:
    return "" if to is None else f"{seconds / to:.2f}"


def pass_on(command: list[str], args: argparse.Namespace) -> None:
    """Give pyperf's worker processes the options that decide what there is to run."""
    for option in ("operation", "keys", "cache"):
        command.extend((f"--{option}", *map(str, getattr(args, option))))


def main() -> None:
    runner = pyperf.Runner(processes=5, values=5, add_cmdline_args=pass_on)
    add = runner.argparser.add_argument
    add("--operation", nargs="+", choices=list(OPERATIONS), default=list(OPERATIONS))
    add("--keys", nargs="+", type=int, default=list(KEYS))
    add("--cache", nargs="+", choices=list(BACKENDS), default=list(BACKENDS))
    args = runner.parse_args()
    seconds: dict[Case, float] = {}
    for case in cases(args.operation, args.keys, args.cache):
        benchmark = runner.bench_time_func(
            str(case), OPERATIONS[case.operation], case, inner_loops=case.keys * case.threads
        )
        if benchmark is not None and not args.worker:
            seconds[case] = benchmark.median()
    if seconds:
        report(seconds)
        keep(args.output)


if __name__ == "__main__":
    main()
