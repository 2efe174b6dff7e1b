"""What does the cache file cost: to save, to open, to bring back into memory?

::

    python benchmarks/bench_file.py                                        # everything
    python benchmarks/bench_file.py --question save --mb 500 --fast        # one question
    python benchmarks/bench_file.py --mb 100 500 2000 --peers-up-to 100 -p 1 -n 3   # how it grows
    python benchmarks/bench_file.py --backend memory sqlite                # with both backends
    python benchmarks/bench_file.py --quick                                # whether it works at all
    python benchmarks/bench_file.py -o file.json                           # and kept, for pyperf

States of 300 bytes, so many megabytes of them, over a database that answers
at once.  Every value is from a fresh process.  What is imported meanwhile has
been imported before, and what others have written is on the disk.

save, all new
    Everything is in memory and nothing in the file: until it is.
save, nothing new
    Again, at once.
save, half changed
    Half of the objects, every other, have a newer revision, committed through the cache.
open, first hit
    From a database that is open until an object of it, any, has been read
    through a cache just opened over its file, and is right.
restore
    From there until the whole file is in memory, because it was asked for.

zodbcache
    Its file.  It is written when it is asked for, and not before.
zodbcache sqlite
    The same with ``cache-backend sqlite``: what is in memory there, is in a temporary database
    here.
RelStorage's file
    ``save()`` and ``restore()`` of RelStorage's in-memory cache, called
    directly: opening a RelStorage asks the database about every object
    besides.  Filled by ascending oid, which suits it best.
flat file
    The same oids, tids and states, joined before, as one file: one write and
    an fsync; one read.  It can neither be searched nor changed.

That every state was written, and came back, is asserted afterwards.  Where there is more than
one size, a last table tells how the time grows: of the largest, of that of the smallest, and
the same a byte.
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
from functools import partial
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
CACHES = {"memory": CACHE, "sqlite": "zodbcache sqlite"}
"""This one's name by backend."""
PEER = "RelStorage's file"
FLAT = "flat file"

ALL_NEW, NOTHING_NEW = "save, all new", "save, nothing new"
HALF_CHANGED = "save, half changed"
FIRST_HIT = "open, first hit"
RESTORE = "restore"

USUAL_MB = 100
DELTAS_USUAL = 100_000
"""How many changed objects are remembered if nothing is said."""

QUICK_MB = (0.3, 1)
FLAT_MAX, FLAT_BESIDE_MS = 1.5, 2
"""Opening takes as long for the largest file as for the smallest, give or take this."""

LINEAR_MAX = 1.1
"""Nor do saving and restoring take longer a byte than this."""

Timing = Callable[[Path, int], Round]
"""Times one thing in a directory, of a file with so many states."""


def all_oids(count: int) -> range:
    return range(1, count + 1)


def any_oid(count: int) -> int:
    return random.randrange(1, count + 1)


def half_of(count: int) -> range:
    """Every other oid."""
    return range(1, count + 1, 2)


# This cache.


def fill_cache(directory: Path, count: int, backend: str) -> Round:
    """Save all objects."""
    with saved_cache(directory, count, backend) as (_, times):
        return times


@contextlib.contextmanager
def saved_cache(directory: Path, count: int, backend: str) -> Iterator[tuple[Any, Round]]:
    """A storage with all objects in memory and in its file, and how long it took to save them."""
    options = {
        "cache_write_seconds": 0,
        "cache_delta_size_limit": max(count, DELTAS_USUAL),
        "cache_backend": backend,
    }
    # Until they are saved, changed objects are there twice.
    with filed.open_cache(directory, filed.memory_mb(2 * count), **options) as storage:
        filed.load_all(storage, all_oids(count))
        assert storage.cache_stats()["entries"] == count
        write = storage._cache.persistence.save
        settle()
        all_new = seconds_of(write)
        assert filed.rows_in(directory) == storage.cache_stats()["file_writes"] == count
        yield storage, {ALL_NEW: all_new}


def save_cache(directory: Path, count: int, backend: str) -> Round:
    with saved_cache(directory, count, backend) as (storage, times):
        write = storage._cache.persistence.save
        nothing_new = seconds_of(write)
        assert storage.cache_stats()["file_writes"] == count
        changed = half_of(count)
        filed.change_all(storage, changed)
        settle()
        half_changed = seconds_of(write)
        assert storage.cache_stats()["file_writes"] == count + len(changed)
        assert filed.rows_in(directory, after=TID) == len(changed)
        assert filed.rows_in(directory) == count
    return {**times, NOTHING_NEW: nothing_new, HALF_CHANGED: half_changed}


def open_cache(directory: Path, count: int, backend: str) -> Round:
    oid = any_oid(count)
    base, memory_mb = filed.KnownStorage(), filed.memory_mb(count)
    options = {"base": base, "cache_backend": backend}
    settle()
    with contextlib.ExitStack() as stack:

        def open_and_read() -> None:
            storage = stack.enter_context(filed.open_cache(directory, memory_mb, **options))
            found.append((storage.loadBefore(p64(oid), BEFORE), storage.cache_stats()))

        found: list[Any] = []
        seconds = seconds_of(open_and_read)
    ((revision, stats),) = found
    assert revision == (state_of(oid), p64(TID), None)
    assert (stats["hits"], stats["misses"]) == (1, 0), stats
    return {FIRST_HIT: seconds}


def restore_cache(directory: Path, count: int, backend: str) -> Round:
    base, memory_mb = filed.KnownStorage(), filed.memory_mb(count)
    options = {"base": base, "cache_backend": backend}
    settle()
    with contextlib.ExitStack() as stack:

        def open_and_preload() -> None:
            storage = stack.enter_context(filed.open_cache(directory, memory_mb, **options))
            storage.cache_preload()
            entries.append(storage.cache_stats()["entries"])

        entries: list[int] = []
        seconds = seconds_of(open_and_preload)
    assert entries == [count]
    return {RESTORE: seconds}


# RelStorage's.


def fill_own(directory: Path, count: int) -> Round:
    """Save all objects."""
    return saved_own(directory, count)[1]


def saved_own(directory: Path, count: int) -> tuple[Any, Round]:
    """A client with all objects in memory and in its file, and how long it took to save them."""
    client = filed.own_client(directory, filed.memory_mb(2 * count))
    filed.set_all(client, all_oids(count))
    assert len(client) == count
    settle()
    all_new = seconds_of(lambda: filed.save_client(client))
    assert filed.own_rows_in(directory) == count
    return client, {ALL_NEW: all_new}


def save_own(directory: Path, count: int) -> Round:
    client, times = saved_own(directory, count)
    nothing_new = seconds_of(lambda: filed.save_client(client))
    changed = half_of(count)
    filed.set_all(client, changed, TID + 1)
    settle()
    half_changed = seconds_of(lambda: filed.save_client(client))
    assert filed.own_rows_in(directory, after=TID) == len(changed)
    assert filed.own_rows_in(directory) == count
    return {**times, NOTHING_NEW: nothing_new, HALF_CHANGED: half_changed}


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


def by_cache(timing: Callable[[Path, int, str], Round]) -> dict[str, Timing]:
    """With each backend."""
    return {name: partial(timing, backend=backend) for backend, name in CACHES.items()}


FILL: dict[str, Timing] = {**by_cache(fill_cache), PEER: fill_own, FLAT: save_flat}
"""Makes the file."""

SAVE: dict[str, Timing] = {**by_cache(save_cache), PEER: save_own, FLAT: save_flat}

QUESTIONS = {
    "save": Question("Saving", SAVE, needs_file=False),
    "open": Question(
        "Opening, until the first hit",
        {**by_cache(open_cache), PEER: open_own},
        sizes_mb=(10, USUAL_MB, 1000),
    ),
    "restore": Question(
        "The whole file into memory",
        {**by_cache(restore_cache), PEER: restore_own, FLAT: restore_flat},
    ),
}

TIMINGS = {"fill": FILL, **{name: question.timings for name, question in QUESTIONS.items()}}


# Each in a process of its own.


def work(job: dict[str, Any]) -> dict[str, Any]:
    """What a timing finds, and what was imported."""
    import_all(job["modules"])
    timing = TIMINGS[job["question"]][job["kind"]]
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
            self.time("fill", kind, size_mb, place, [])
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


@dataclass(frozen=True)
class Asked:
    """What is measured.

    *sizes_mb*: or else those of the question.  *peers_up_to_mb*: the peers only up to this size.
    """

    sizes_mb: Sequence[float] = ()
    backends: Sequence[str] = ("memory",)
    peers_up_to_mb: float = float("inf")

    def sizes(self, question: Question) -> list[float]:
        return sorted(set(self.sizes_mb or question.sizes_mb))

    def kinds(self, question: Question, size_mb: float) -> list[str]:
        """This cache, with each backend, and the peers."""
        ours = [CACHES[backend] for backend in self.backends]
        peers = [kind for kind in question.timings if kind not in CACHES.values()]
        return ours + (peers if size_mb <= self.peers_up_to_mb else [])


def ask(places: Places, name: str, asked: Asked, rounds: int) -> Results:
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

    sizes_mb = asked.sizes(question)
    for kind in asked.kinds(question, sizes_mb[0]):  # learn what is imported
        measure(kind, sizes_mb[0])
    jobs = {
        scenario(kind, size_mb): (kind, size_mb)
        for size_mb in sizes_mb
        for kind in asked.kinds(question, size_mb)
    }
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


class Growth(NamedTuple):
    """One thing at several sizes: of the largest, in terms of the smallest, in the same round."""

    kind: str
    what: str
    smallest_mb: float
    largest_mb: float
    ms: tuple[float, ...]
    time: float

    @property
    def time_a_byte(self) -> float:
        return self.time * self.smallest_mb / self.largest_mb


def growths(found: Results) -> Iterator[Growth]:
    """Of all that was measured at more than one size."""
    sizes: dict[tuple[str, str], list[str]] = {}
    for name in found.names:
        kind, size, what = name.split(", ", 2)
        sizes.setdefault((kind, what), []).append(size)
    for (kind, what), several in sizes.items():
        if len(several) > 1:
            names = [f"{kind}, {size}, {what}" for size in several]
            smallest_mb, largest_mb = (float(several[at].split()[0]) for at in (0, -1))
            ms = tuple(found.median(name) * 1e3 for name in names)
            time = found.ratio(names[-1], names[0])
            yield Growth(kind, what, smallest_mb, largest_mb, ms, time)


GROWTH_HEAD = ("", "from", "to", "ms at each", "of the time", "a byte")


def growth_rows(results: dict[str, Results]) -> Iterator[tuple[str, ...]]:
    for found in results.values():
        for one in growths(found):
            yield (
                f"{one.kind}, {one.what}",
                f"{one.smallest_mb:g} MB",
                f"{one.largest_mb:g} MB",
                " ".join(f"{ms:.1f}" for ms in one.ms),
                f"{one.time:.2f}",
                f"{one.time_a_byte:.2f}",
            )


def report(results: dict[str, Results]) -> None:
    for name, found in results.items():
        print_table(QUESTIONS[name].title, HEAD, rows(found))
    if grown := list(growth_rows(results)):
        print_table("How it grows: the largest, of the smallest", GROWTH_HEAD, grown)
    print_goals([goal for name in results for goal in GOALS[name](results[name])])


def sizes_of(found: Results) -> list[str]:
    return list(dict.fromkeys(name.split(", ")[1] for name in found.names))


def compared(found: Results, what: str, bounds: dict[str, float]) -> Iterator[Goal]:
    """This cache with peers, at every size at which there are both."""
    for kind in CACHES.values():
        for size in sizes_of(found):
            name = f"{kind}, {size}, {what}"
            for peer, bound in bounds.items():
                other = f"{peer}, {size}, {what}"
                if {name, other} <= set(found.names):
                    text = f"{size}: {_labelled(kind, what)}: of {_OF_PEER[peer]}"
                    yield Goal(text, found.ratio(name, other), bound)


_OF_PEER = {PEER: "RelStorage's time", FLAT: "the flat file's time"}


def _labelled(kind: str, what: str) -> str:
    return what if kind == CACHE else f"{kind}, {what}"


def linear(found: Results, *whats: str) -> Iterator[Goal]:
    """Not more than so much longer a byte for the largest."""
    for one in growths(found):
        if one.kind in CACHES.values() and one.what in whats:
            text = f"{one.largest_mb:g} MB: {_labelled(one.kind, one.what)}, a byte"
            yield Goal(f"{text}: of {one.smallest_mb:g} MB's time", one.time_a_byte, LINEAR_MAX)


def save_goals(found: Results) -> Iterator[Goal]:
    yield from compared(found, ALL_NEW, {PEER: 0.27, FLAT: 4})
    for size in sizes_of(found):
        for kind in CACHES.values():
            if (name := f"{kind}, {size}, {NOTHING_NEW}") in found.names:
                text = f"{size}: {_labelled(kind, NOTHING_NEW)}: ms"
                yield Goal(text, found.median(name) * 1e3, 5)
    yield from linear(found, ALL_NEW, HALF_CHANGED)


def open_goals(found: Results) -> Iterator[Goal]:
    for kind in CACHES.values():
        for size in sizes_of(found):
            if (name := f"{kind}, {size}, {FIRST_HIT}") in found.names:
                text = f"{size}: {_labelled(kind, FIRST_HIT)}: ms"
                yield Goal(text, found.median(name) * 1e3, 10)
    for one in growths(found):
        if one.kind in CACHES.values():
            text = f"{one.largest_mb:g} MB: {_labelled(one.kind, one.what)}: ms"
            bound = round(FLAT_MAX * one.ms[0] + FLAT_BESIDE_MS, 2)
            yield Goal(f"{text}, against {one.smallest_mb:g} MB's", one.ms[-1], bound)


def restore_goals(found: Results) -> Iterator[Goal]:
    yield from compared(found, RESTORE, {PEER: 0.35})
    yield from linear(found, RESTORE)


GOALS = {"save": save_goals, "open": open_goals, "restore": restore_goals}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--question", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    parser.add_argument("--mb", type=float, nargs="+", help="megabytes of states, in place of all")
    parser.add_argument("--directory", type=Path, help="where the files are made")
    parser.add_argument("--backend", nargs="+", choices=CACHES, default=["memory"])
    parser.add_argument(
        "--peers-up-to", type=float, metavar="MB", default=float("inf"), help="no larger than this"
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, once: only what is asserted means much"
    )
    add_arguments(parser)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(work(args.worker)))
        return
    asked, rounds = (
        Asked(args.mb or (), args.backend, args.peers_up_to),
        args.processes * args.rounds,
    )
    if args.quick:
        asked, rounds = Asked(QUICK_MB, args.backend, QUICK_MB[0]), 1
    results = {}
    for name in args.question:
        with tempfile.TemporaryDirectory(prefix="benchmark-", dir=args.directory) as directory:
            results[name] = ask(Places(Path(directory)), name, asked, rounds)
    if args.output:
        save([one for found in results.values() for one in found.benchmarks()], args.output)
    report(results)
    keep(args.output)


if __name__ == "__main__":
    main()
