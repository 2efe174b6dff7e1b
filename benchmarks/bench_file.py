"""What does the cache file cost: to save, to open, to bring back into memory?

::

    python benchmarks/bench_file.py                                        # everything
    python benchmarks/bench_file.py --question save --mb 500 --fast        # one question
    python benchmarks/bench_file.py -o file.json                           # and kept, for pyperf

States of 300 bytes, so many megabytes of them, over a database that answers
at once.  Every value is from a fresh process.  What is imported meanwhile has
been imported before, and what others have written is on the disk.

save, all new
    Everything is in memory and nothing in the file: until it is.
save, nothing new
    Again, at once.
open, first hit
    From a database that is open until an object of it, any, has been read
    through a cache just opened over its file, and is right.
restore
    From there until the whole file is in memory, because it was asked for.

zodbcache
    Its file.  It is written when it is asked for, and not before.
RelStorage's file
    ``save()`` and ``restore()`` of RelStorage's in-memory cache, called
    directly: opening a RelStorage asks the database about every object
    besides.  Filled by ascending oid, which suits it best.
flat file
    The same oids, tids and states, joined before, as one file: one write and
    an fsync; one read.  It can neither be searched nor changed.

That every state was written, and came back, is asserted afterwards.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filed
from filed import seconds_of
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
from workloads import BEFORE
from workloads import TID
from workloads import state_of
from ZODB.utils import p64

CACHE = "zodbcache"
PEER = "RelStorage's file"
FLAT = "flat file"

ALL_NEW, NOTHING_NEW = "save, all new", "save, nothing new"
FIRST_HIT = "open, first hit"
RESTORE = "restore"

USUAL_MB = 100
FLAT_MAX = 1.5
"""Opening takes as long for the largest file as for the smallest, give or take this."""

Timing = Callable[[Path, int], Round]
"""Times one thing in a directory, of a file with so many states."""


def all_oids(count: int) -> range:
    return range(1, count + 1)


def any_oid(count: int) -> int:
    return random.randrange(1, count + 1)


# This cache.


def save_cache(directory: Path, count: int) -> Round:
    with filed.open_cache(directory, filed.memory_mb(count), cache_write_seconds=0) as storage:
        filed.load_all(storage, all_oids(count))
        assert storage.cache_stats()["entries"] == count
        write = storage._cache.persistence.save
        settle()
        all_new = seconds_of(write)
        assert filed.rows_in(directory) == storage.cache_stats()["file_writes"] == count
        nothing_new = seconds_of(write)
        assert storage.cache_stats()["file_writes"] == count
    return {ALL_NEW: all_new, NOTHING_NEW: nothing_new}


def open_cache(directory: Path, count: int) -> Round:
    oid = any_oid(count)
    base, memory_mb = filed.KnownStorage(), filed.memory_mb(count)
    settle()
    with contextlib.ExitStack() as stack:

        def open_and_read() -> None:
            storage = stack.enter_context(filed.open_cache(directory, memory_mb, base=base))
            found.append((storage.loadBefore(p64(oid), BEFORE), storage.cache_stats()))

        found: list[Any] = []
        seconds = seconds_of(open_and_read)
    ((revision, stats),) = found
    assert revision == (state_of(oid), p64(TID), None)
    assert (stats["hits"], stats["misses"]) == (1, 0), stats
    return {FIRST_HIT: seconds}


def restore_cache(directory: Path, count: int) -> Round:
    base, memory_mb = filed.KnownStorage(), filed.memory_mb(count)
    settle()
    with contextlib.ExitStack() as stack:

        def open_and_preload() -> None:
            storage = stack.enter_context(filed.open_cache(directory, memory_mb, base=base))
            storage.cache_preload()
            entries.append(storage.cache_stats()["entries"])

        entries: list[int] = []
        seconds = seconds_of(open_and_preload)
    assert entries == [count]
    return {RESTORE: seconds}


# RelStorage's.


def save_own(directory: Path, count: int) -> Round:
    client = filed.own_client(directory, filed.memory_mb(count))
    filed.set_all(client, all_oids(count))
    assert len(client) == count
    settle()
    all_new = seconds_of(lambda: filed.save_client(client))
    assert filed.own_rows_in(directory) == count
    return {ALL_NEW: all_new, NOTHING_NEW: seconds_of(lambda: filed.save_client(client))}


def open_own(directory: Path, count: int) -> Round:
    oid = any_oid(count)
    settle()

    def open_and_read() -> None:
        client = filed.own_client(directory, filed.memory_mb(count))
        client.restore()
        assert client[oid, TID] == (state_of(oid), TID)

    return {FIRST_HIT: seconds_of(open_and_read)}


def restore_own(directory: Path, count: int) -> Round:
    settle()
    clients: list[Any] = []

    def open_and_restore() -> None:
        client = filed.own_client(directory, filed.memory_mb(count))
        client.restore()
        clients.append(client)

    seconds = seconds_of(open_and_restore)
    assert len(clients[0]) == count
    return {RESTORE: seconds}


# A flat file.


def save_flat(directory: Path, count: int) -> Round:
    rows = filed.flat_rows(all_oids(count))
    settle()
    return {ALL_NEW: seconds_of(lambda: filed.write_flat(directory / "rows", rows))}


def restore_flat(directory: Path, count: int) -> Round:
    path = directory / "rows"
    settle()
    seconds = seconds_of(path.read_bytes)
    assert path.stat().st_size == len(filed.flat_rows((1,))) * count
    return {RESTORE: seconds}


def settle() -> None:
    """Nobody's garbage, and nobody's unwritten pages, are to be seen to while the clock runs."""
    gc.collect()
    os.sync()


@dataclass(frozen=True)
class Question:
    """*needs_file*: the file is there, and has everything."""

    title: str
    timings: dict[str, Timing]
    sizes_mb: tuple[float, ...] = (USUAL_MB,)
    needs_file: bool = True


SAVE = {CACHE: save_cache, PEER: save_own, FLAT: save_flat}

QUESTIONS = {
    "save": Question("Saving", SAVE, needs_file=False),
    "open": Question(
        "Opening, until the first hit",
        {CACHE: open_cache, PEER: open_own},
        sizes_mb=(10, USUAL_MB, 1000),
    ),
    "restore": Question(
        "The whole file into memory",
        {CACHE: restore_cache, PEER: restore_own, FLAT: restore_flat},
    ),
}


# Each in a process of its own.


def work(job: dict[str, Any]) -> dict[str, Any]:
    """What a timing finds, and what was imported."""
    import_all(job["modules"])
    timing = QUESTIONS[job["question"]].timings[job["kind"]]
    times = timing(Path(job["directory"]), job["count"])
    return {"times": times, "modules": importable_modules()}


def scenario(kind: str, size_mb: float) -> str:
    return f"{kind}, {size_mb:g} MB"


class Places:
    """Directories with files that have everything, made when they are asked for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._filled: dict[tuple[str, float], Path] = {}

    def filled(self, kind: str, size_mb: float) -> Path:
        if (kind, size_mb) not in self._filled:
            place = Path(tempfile.mkdtemp(dir=self._directory))
            self.time("save", kind, size_mb, place, [])
            self._filled[kind, size_mb] = place
        return self._filled[kind, size_mb]

    @contextlib.contextmanager
    def empty(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self._directory) as directory:
            yield Path(directory)

    def time(
        self, question: str, kind: str, size_mb: float, place: Path, modules: list[str]
    ) -> dict[str, Any]:
        job = {
            "question": question,
            "kind": kind,
            "count": filed.states_in(size_mb),
            "directory": str(place),
            "modules": modules,
        }
        found: dict[str, Any] = run_script(__file__, job)
        return found


def ask(places: Places, name: str, sizes_mb: Sequence[float], rounds: int) -> Results:
    """Time every kind at every size in turn, so often."""
    question = QUESTIONS[name]
    modules: dict[str, list[str]] = {}

    def measure(kind: str, size_mb: float) -> Round:
        with contextlib.ExitStack() as stack:
            if question.needs_file:
                place = places.filled(kind, size_mb)
            else:
                place = stack.enter_context(places.empty())
            found = places.time(name, kind, size_mb, place, modules.get(kind, []))
        modules[kind] = found["modules"]
        return {f"{scenario(kind, size_mb)}, {what}": s for what, s in found["times"].items()}

    smallest = min(sizes_mb)
    for kind in question.timings:  # learn what is imported
        measure(kind, smallest)
    jobs = {scenario(kind, mb): (kind, mb) for mb in sizes_mb for kind in question.timings}
    return Results([measure_rounds(list(jobs), lambda job: measure(*jobs[job]), rounds)])


# What is printed.

HEAD = ("", "ms", "of RelStorage's time", "of the flat file's")


def rows(found: Results) -> Iterator[tuple[str, ...]]:
    for name in found.names:
        _, size, what = name.split(", ", 2)
        of_peer, of_flat = (
            f"{found.ratio(name, other):.3f}" if other in found.names else ""
            for other in (f"{peer}, {size}, {what}" for peer in (PEER, FLAT))
        )
        yield name, f"{found.median(name) * 1e3:.2f}", of_peer, of_flat


def report(results: dict[str, Results]) -> None:
    for name, found in results.items():
        print_table(QUESTIONS[name].title, HEAD, rows(found))
    print_goals([goal for name in results for goal in GOALS[name](results[name])])


def sizes_of(found: Results) -> list[str]:
    return list(dict.fromkeys(name.split(", ")[1] for name in found.names))


def save_goals(found: Results) -> Iterator[Goal]:
    for size in sizes_of(found):
        all_new = f"{CACHE}, {size}, {ALL_NEW}"
        ratio = found.ratio(all_new, f"{PEER}, {size}, {ALL_NEW}")
        yield Goal(f"{size}: save, all new: of RelStorage's time", ratio, 0.27)
        ratio = found.ratio(all_new, f"{FLAT}, {size}, {ALL_NEW}")
        yield Goal(f"{size}: save, all new: of the flat file's time", ratio, 4)
        seconds = found.median(f"{CACHE}, {size}, {NOTHING_NEW}")
        yield Goal(f"{size}: save, nothing new: ms", seconds * 1e3, 5)


def open_goals(found: Results) -> Iterator[Goal]:
    names = {size: f"{CACHE}, {size}, {FIRST_HIT}" for size in sizes_of(found)}
    first, *others = names
    for size, name in names.items():
        yield Goal(f"{size}: open, first hit: ms", found.median(name) * 1e3, 10)
    for size in others:
        ratio = found.ratio(names[size], names[first])
        yield Goal(f"{size}: open, first hit: of the time for {first}", ratio, FLAT_MAX)


def restore_goals(found: Results) -> Iterator[Goal]:
    for size in sizes_of(found):
        ratio = found.ratio(f"{CACHE}, {size}, {RESTORE}", f"{PEER}, {size}, {RESTORE}")
        yield Goal(f"{size}: restore: of RelStorage's time", ratio, 0.35)


GOALS = {"save": save_goals, "open": open_goals, "restore": restore_goals}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--question", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    parser.add_argument("--mb", type=float, nargs="+", help="megabytes of states, in place of all")
    parser.add_argument("--directory", type=Path, help="where the files are made")
    add_arguments(parser)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(work(args.worker)))
        return
    results = {}
    for name in args.question:
        with tempfile.TemporaryDirectory(prefix="benchmark-", dir=args.directory) as directory:
            sizes_mb = sorted(set(args.mb or QUESTIONS[name].sizes_mb))
            rounds = args.processes * args.rounds
            results[name] = ask(Places(Path(directory)), name, sizes_mb, rounds)
    if args.output:
        save([one for found in results.values() for one in found.benchmarks()], args.output)
    report(results)
    keep(args.output)


if __name__ == "__main__":
    main()
