"""Do several threads read as much as one?  One and eight in turn, pair by pair.

Not a pyperf script: pyperf times each case in processes of its own, minutes
apart, and a machine that drifts by a fifth meanwhile hides what is asked here.
A pair runs in one process within a second; the median of the ratios is the
figure, and a dict's stands beside it.

    python benchmarks/bench_threads.py
    python benchmarks/bench_threads.py -o threads.json    # and kept, for pyperf
"""

from __future__ import annotations

import argparse
import random
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

from report import Goal
from report import keep
from report import print_goals
from report import print_table
from rounds import Results
from rounds import Round
from rounds import save

from zodbcache.ids import to_bytes
from zodbcache.store import MemoryStore

THREADS = 8
STATE = bytes(300)
NOW = 100


def store_reader(keys: list[bytes]) -> tuple[Callable[[bytes], object], Callable[[], int]]:
    """A look-up in a store that holds every key, and the count of its hits."""
    store = MemoryStore(600 * len(keys) + 1_000_000, len(STATE))
    for number in range(len(keys)):
        assert store.insert(number, 5, 0, STATE)
    store.advance([], NOW)
    before, load = to_bytes(NOW), store.load_before
    return lambda key: load(key, before), lambda: store.stats()["hits"]


def dict_reader(keys: list[bytes]) -> tuple[Callable[[bytes], object], Callable[[], int]]:
    """The same for a dict, which counts nothing."""
    return {bytes(key): STATE for key in keys}.__getitem__, lambda: 0


def seconds(read: Callable[[bytes], object], keys: list[bytes], rounds: int, threads: int) -> float:
    """How long *threads* take for *rounds* of all keys between them."""
    start = threading.Barrier(threads + 1)

    def work() -> None:
        start.wait()
        for _ in range(rounds // threads):
            for key in keys:
                read(key)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    start.wait()
    began = time.perf_counter()
    for worker in workers:
        worker.join()
    return time.perf_counter() - began


def pairs(
    name: str, read: Callable[[bytes], object], keys: list[bytes], *, count: int, rounds: int
) -> list[Round]:
    """How long one thread takes and how long THREADS take, pair by pair."""
    seconds(read, keys, THREADS, 1)  # warm
    return [
        {
            one(name): seconds(read, keys, rounds, 1),
            many(name): seconds(read, keys, rounds, THREADS),
        }
        for _ in range(count)
    ]


def one(name: str) -> str:
    return f"{name}, 1 thread"


def many(name: str) -> str:
    return f"{name}, {THREADS} threads"


def report(found: Results) -> None:
    """Throughput of THREADS threads as a share of one thread's, and the quarters of its spread."""
    rows = []
    for name in READERS:
        shares = [pair[one(name)] / pair[many(name)] for pair in found.rounds]
        low, middle, high = statistics.quantiles(shares)
        rows.append((name, f"{middle:.3f}", f"{low:.3f}", f"{high:.3f}"))
    title = f"What {THREADS} threads read, of one thread's throughput"
    print_table(title, ("", "median", "lower quartile", "upper quartile"), rows)
    share = found.faster(many(STORE), one(STORE))
    text = f"{THREADS} threads, {STORE}: throughput of one thread's"
    print_goals([Goal(text, share, 0.95, at_least=True)])


STORE = "zodbcache store"
READERS = {STORE: store_reader, "dict": dict_reader}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=50_000)
    parser.add_argument("--pairs", type=int, default=21)
    parser.add_argument("--rounds", type=int, default=2 * THREADS)
    parser.add_argument("-o", "--output", type=Path, help="keep the result, in pyperf's format")
    options = parser.parse_args()
    keys = [to_bytes(number) for number in range(options.keys)]
    shuffled = random.Random(1).sample(keys, len(keys))
    measured = []
    for name, make in READERS.items():
        read, hits = make(keys)
        measured.append(pairs(name, read, shuffled, count=options.pairs, rounds=options.rounds))
        if name == STORE:
            expected = options.keys * (THREADS + 2 * options.pairs * options.rounds)
            assert hits() == expected, "every read is a hit"
    found = Results([[first | second for first, second in zip(*measured, strict=True)]])
    if options.output:
        save(list(found.benchmarks()), options.output)
    report(found)
    keep(options.output)


if __name__ == "__main__":
    main()
