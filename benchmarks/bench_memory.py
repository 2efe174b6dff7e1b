"""How much memory does a cache take beyond the states, and does it keep to its limit?

::

    python benchmarks/bench_memory.py                        # everything
    python benchmarks/bench_memory.py --question entry       # bytes an entry beyond its state
    python benchmarks/bench_memory.py --question resident    # resident memory over the limit
    python benchmarks/bench_memory.py --question churn       # the limit put to use, under churn
    python benchmarks/bench_memory.py --question rewrite     # the same, while all sizes change
    python benchmarks/bench_memory.py --question sizes       # what is stored, and what it takes
    python benchmarks/bench_memory.py --question through     # the limit, ten times over
    python benchmarks/bench_memory.py --question hour        # an hour's load, in a minute
    python benchmarks/bench_memory.py --backend sqlite       # of the last three: only of this one
    python benchmarks/bench_memory.py --quick                # whether it works at all
    python benchmarks/bench_memory.py -o memory.json         # and kept, for pyperf
    python benchmarks/bench_memory.py --json memory.json     # all that was measured, as JSON

Not a timing, and so not a pyperf script: each measurement runs once, in a
process of its own.  *Resident* is what the process's resident memory grew by
since the cache was there and empty.  *Accounted* is what the cache itself
counts: its ``used_bytes``.  *On disk* is the temporary database of ``cache-backend
sqlite``: what is accounted, or where the system tells the size of files that
have no name any more, that size, if it is larger.

entry
    States of 100, 300 and 1,000 bytes into a cache of 100 MB until it is
    full: what is accounted beyond the states, an entry, at the end, and at the
    worst fill level from 10,000 entries on, which is just after the table has
    grown.  Then as many entries in each of the peers, by resident memory;
    there the states' bytes objects and the keys count as overhead.
resident
    Half as much again as fits, at three limits: the most that was resident,
    of the limit.
churn
    Read-through: skewed reads of more objects than fit, of 50 bytes to 16 KB
    (each size as likely, or each order of magnitude), each miss kept, until 20
    times the limit has gone in.  What is accounted, and what the states alone
    take, of the limit: at the end, and at the worst moment since it was full.
rewrite
    More objects than fit, each written anew in every phase, in random order:
    100 bytes, 1 kB, 16 kB and 100 bytes again.

The first four are about ``cache-backend memory``; the others about both.

sizes
    States of 100, 300 and 1,000 bytes at limits of 10 MB, 100 MB and 1 GB, until the
    cache is full, and a tenth more.  50 neighbours come one after the other, and these
    fifties in random order.  What is stored, what is accounted beside it, what was
    resident and what was on disk at most.
through
    New states of 300 bytes until ten times the limit has gone in: what was
    resident, and what was on disk, of the limit, at most and at the end.
hour
    The load of an hour at 1,000 operations a second, as fast as it can be: skewed reads of
    four times the objects that fit, each miss kept; every tenth operation is a
    change, ten to a commit.  The same, and how many operations are done in a
    second, at the end of the hour and when the cache had just become full.  That
    what is found in the end is right is asserted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from array import array
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pyperf
import rounds
from report import Goal
from report import keep
from report import print_goals
from report import print_table
from workloads import BACKENDS
from workloads import BEFORE
from workloads import CHECKPOINT
from workloads import MEGABYTE
from workloads import STATE_BYTES
from workloads import STORES
from workloads import TID
from workloads import BoundedBackend
from workloads import RelStorageClient
from workloads import Store
from workloads import Wrapper
from workloads import open_store
from workloads import shuffled
from workloads import state_of

Result = dict[str, Any]

SMALLEST_BYTES, LARGEST_BYTES = 50, 16 << 10
NEIGHBOURS = 50
"""Objects that were made together, and are read together."""

PHASES_BYTES = (100, 1000, 16_000, 100)
THROUGH_LIMITS = 10
COMMIT_OBJECTS, COMMIT_EVERY = 10, 100
"""Objects in a commit of the hour, and operations from one to the next."""
SLICES = 50
"""The hour's throughput is looked at so often."""
COMPARED_SLICES = 5
SAMPLES = 200
"""How often a store is looked at in a phase, or while one limit's worth of bytes goes in."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured.  *limits_mb*: of `resident`.  *grid_mb*: of `sizes`."""

    states_bytes: Sequence[int] = (100, 300, 1000)
    limit_mb: float = 100
    limits_mb: Sequence[float] = (10, 100, 500)
    churned_limits: int = 20
    grid_mb: Sequence[float] = (10, 100, 1000)
    through_mb: Sequence[float] = (10, 100)
    operations: int = 3_600_000


QUICK = Sizes(
    states_bytes=(300,),
    limit_mb=1,
    limits_mb=(1,),
    churned_limits=2,
    grid_mb=(1,),
    through_mb=(1,),
    operations=50_000,
)


def resident_bytes() -> int:
    """This process's resident memory now."""
    size: int = psutil.Process().memory_info().rss
    return size


def beside_state(stats: dict[str, int]) -> float:
    """Accounted bytes an entry beyond its state."""
    return (stats["used_bytes"] - stats["state_bytes"]) / stats["entries"]


def shares(stats: dict[str, int]) -> Result:
    """Of the limit: what is accounted, and the states alone."""
    limit_bytes = stats["limit_bytes"]
    return {of: stats[f"{of}_bytes"] / limit_bytes for of in ("used", "state")}


class Use:
    """How much of a store's limit is put to use, now and at its worst.

    *used*: accounted, of the limit.  *states*: the states alone.
    """

    def __init__(self, store: Any) -> None:
        self._store = store
        self.worst_used = self.worst_states = 1.0
        self.look()

    def look(self) -> None:
        stats = self._store.stats()
        self.used = stats["used_bytes"] / stats["limit_bytes"]
        self.states = stats["state_bytes"] / stats["limit_bytes"]
        self.worst_used = min(self.worst_used, self.used)
        self.worst_states = min(self.worst_states, self.states)

    def result(self) -> Result:
        return {
            "used": self.used,
            "worst_used": self.worst_used,
            "states": self.states,
            "worst_states": self.worst_states,
        }


def is_full(store: Any) -> bool:
    stats = store.stats()
    return bool(stats["evictions"] + stats.get("rejections", 0))


def unlinked_bytes() -> int:
    """The size of this process's open files that have no name any more; 0 where nobody tells."""
    total = 0
    for descriptor in Path("/proc/self/fd").glob("*"):
        try:
            link = os.readlink(descriptor)
            if link.endswith(" (deleted)") and not link.startswith("/memfd:"):
                total += os.fstat(int(descriptor.name)).st_size
        except OSError:  # closed meanwhile
            continue
    return total


class Footprint:
    """What a store takes beside and on disk, now and at most, in bytes.

    *resident*: the growth since this was made, which is before the store is.
    *disk*: of a backend that is on disk: accounted, or the file, if it is larger.
    """

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._resident, self._unlinked = resident_bytes(), unlinked_bytes()
        self.most_resident = self.most_disk = self.disk = 0

    def look(self, store: Any) -> None:
        self.most_resident = max(self.most_resident, resident_bytes() - self._resident)
        if self._backend != "memory":
            file_bytes = unlinked_bytes() - self._unlinked
            self.disk = max(store.stats()["used_bytes"], file_bytes)
            self.most_disk = max(self.most_disk, self.disk)

    def result(self) -> Result:
        return {
            "resident_bytes": self.most_resident,
            "disk_bytes": self.most_disk,
            "last_disk_bytes": self.disk,
        }


# The measurements, each run in a process of its own.


def levels(state_bytes: int, limit_mb: float, varied: bool) -> Result:
    """Accounted bytes an entry beyond the state, from an empty cache to a full one.

    *varied*: states of half to one and a half times the size.
    """
    limit_bytes = int(limit_mb * MEGABYTE)
    least_entries = min(10_000, limit_bytes // state_bytes // 4)
    store, sizes, oids = open_store(limit_bytes), random.Random(1), count(1)
    worst, worst_entries = 0.0, 0
    while not is_full(store):
        for _ in range(16):
            oid = next(oids)
            size = sizes.randint(state_bytes // 2, state_bytes * 3 // 2) if varied else state_bytes
            store.insert(oid, TID, 0, state_of(oid, size))
        stats = store.stats()
        if stats["entries"] >= least_entries and beside_state(stats) > worst:
            worst, worst_entries = beside_state(stats), stats["entries"]
    stats = store.stats()
    return {
        "full_bytes": beside_state(stats),
        "full_entries": stats["entries"],
        "worst_bytes": worst,
        "worst_entries": worst_entries,
        "used": stats["used_bytes"] / limit_bytes,
    }


def entry(cache: str, state_bytes: int, entries: int) -> Result:
    """Resident bytes an entry beyond the state, for this many entries."""
    backend = BACKENDS[cache](2 * entries, state_bytes)
    before = resident_bytes()
    backend.fill(range(1, entries + 1), state_bytes)
    grown_bytes = resident_bytes() - before
    assert len(backend) == entries
    return {"resident_beside_bytes": grown_bytes / entries - state_bytes}


def resident(cache: str, limit_mb: float) -> Result:
    """The most that is resident, of the limit, while half as much again as fits goes in."""
    limit_bytes = int(limit_mb * MEGABYTE)
    maker = BACKENDS[cache]
    assert issubclass(maker, BoundedBackend)
    backend = maker.bounded(limit_bytes)
    before, most, total = resident_bytes(), 0, 3 * limit_bytes // (2 * STATE_BYTES)
    for percent in range(100):
        backend.fill(range(percent * total // 100 + 1, (percent + 1) * total // 100 + 1))
        most = max(most, resident_bytes() - before)
    assert len(backend) < total, "the limit was not reached"
    return {"resident": most / limit_bytes, "entries": len(backend)}


def churn(distribution: str, limit_mb: float, churned_limits: int) -> Result:
    """Skewed reads of more objects than fit, each miss kept."""
    limit_bytes = int(limit_mb * MEGABYTE)
    store, sizes = open_store(limit_bytes), sizes_of(distribution)
    before, most = resident_bytes(), 0
    use: Use | None = None
    for _ in misses(store, sizes, limit_bytes, churned_limits):
        if use is not None:
            use.look()
        elif is_full(store):
            use = Use(store)
        most = max(most, resident_bytes() - before)
    store.check()
    assert use is not None, "the limit was not reached"
    stats = store.stats()
    return {
        **use.result(),
        "resident": most / limit_bytes,
        "hit_ratio": stats["hits"] / (stats["hits"] + stats["misses"]),
    }


def sizes_of(distribution: str) -> list[int]:
    """Sizes to choose from."""
    chance = random.Random(3)
    if distribution == "uniform":
        return [chance.randint(SMALLEST_BYTES, LARGEST_BYTES) for _ in range(4096)]
    low, high = math.log(SMALLEST_BYTES), math.log(LARGEST_BYTES)
    return [round(math.exp(chance.uniform(low, high))) for _ in range(4096)]


def misses(store: Any, sizes: list[int], limit_bytes: int, churned_limits: int) -> Iterator[None]:
    """Read through the store; yield whenever another sample's bytes have gone in."""
    mean_bytes = sum(sizes) / len(sizes)
    objects = int(4 * limit_bytes / mean_bytes)
    chance, sampled_bytes = random.Random(4).random, 0
    for _ in range(churned_limits * SAMPLES):
        while sampled_bytes < limit_bytes // SAMPLES:
            oid = 1 + int(objects * chance() ** 2)
            if store.load_before(oid.to_bytes(8, "big"), BEFORE) is None:
                state = state_of(oid, sizes[oid * 2_654_435_761 % 2**32 >> 20])
                store.insert(oid, TID, 0, state)
                sampled_bytes += len(state)
        sampled_bytes = 0
        yield


def rewrite(limit_mb: float) -> Result:
    """The same objects written anew, one after the other, with states of other sizes."""
    limit_bytes = int(limit_mb * MEGABYTE)
    store, oids = open_store(limit_bytes), shuffled(limit_bytes // PHASES_BYTES[0])
    before, most, phases = resident_bytes(), 0, []
    for number, state_bytes in enumerate(PHASES_BYTES):
        use: Use | None = None
        for start in range(0, len(oids), len(oids) // SAMPLES):
            for oid in oids[start : start + len(oids) // SAMPLES]:
                store.insert(oid, TID + number, 0, state_of(oid, state_bytes))
            if use is not None:
                use.look()
            elif is_full(store):
                use = Use(store)
            most = max(most, resident_bytes() - before)
        store.check()
        assert use is not None, "the limit was not reached"
        stats = store.stats()
        assert stats["state_bytes"] == stats["entries"] * state_bytes
        phases.append({"state_bytes": state_bytes, **use.result()})
    return {"phases": phases, "resident": most / limit_bytes}


def sizes(backend: str, limit_mb: float, state_bytes: int) -> Result:
    """What a full store has, and what it takes."""
    limit_bytes = int(limit_mb * MEGABYTE)
    starts = shuffled(limit_bytes // state_bytes * 6 // 5 // NEIGHBOURS)
    oids = (NEIGHBOURS * start + nth for start in starts for nth in range(NEIGHBOURS))
    footprint = Footprint(backend)
    store = open_store(limit_bytes, backend)
    chunk = max(limit_bytes // state_bytes // SAMPLES, 1)

    def insert_chunk() -> None:
        for oid in islice(oids, chunk):
            store.insert(oid, TID, 0, state_of(oid, state_bytes))
        footprint.look(store)

    while not is_full(store):
        insert_chunk()
    for _ in range(SAMPLES // 10):
        insert_chunk()
    store.check()
    stats = store.stats()
    assert stats["state_bytes"] == stats["entries"] * state_bytes
    return {
        "entries": stats["entries"],
        "stored_bytes": stats["state_bytes"],
        "accounted_bytes": stats["used_bytes"],
        "beside_bytes": beside_state(stats),
        **footprint.result(),
    }


def through(backend: str, limit_mb: float, state_bytes: int) -> Result:
    """What a store takes while ten times its limit goes in."""
    limit_bytes = int(limit_mb * MEGABYTE)
    footprint = Footprint(backend)
    store = open_store(limit_bytes, backend)
    for sample in range(THROUGH_LIMITS * SAMPLES):
        first = 1 + sample * limit_bytes // state_bytes // SAMPLES
        for oid in range(first, 1 + (sample + 1) * limit_bytes // state_bytes // SAMPLES):
            store.insert(oid, TID, 0, state_of(oid, state_bytes))
        footprint.look(store)
    store.check()
    assert is_full(store)
    return {**shares(store.stats()), **footprint.result()}


def hour(backend: str, limit_mb: float, operations: int) -> Result:
    """Reads, and commits of some changes, of four times the objects that fit."""
    limit_bytes = int(limit_mb * MEGABYTE)
    load = HourlyLoad(4 * limit_bytes // STATE_BYTES)
    footprint = Footprint(backend)
    store = open_store(limit_bytes, backend)
    rates, full_rates = [], []
    for _ in range(SLICES):
        was_full = is_full(store)
        start = time.perf_counter()
        for _ in range(operations // SLICES // COMMIT_EVERY):
            load.read(store, COMMIT_EVERY - COMMIT_OBJECTS)
            load.commit(store)
        rates.append(operations / SLICES / (time.perf_counter() - start))
        if was_full:
            full_rates.append(rates[-1])
        footprint.look(store)
    store.check()
    stats = store.stats()
    assert len(full_rates) >= 2 * COMPARED_SLICES, "it was not full for long"
    assert load.found(store) > 0
    return {
        **shares(stats),
        "hit_ratio": stats["hits"] / (stats["hits"] + stats["misses"]),
        "begins": statistics.median(full_rates[:COMPARED_SLICES]),
        "ends": statistics.median(full_rates[-COMPARED_SLICES:]),
        **footprint.result(),
    }


class HourlyLoad:
    """Skewed reads and commits; what the newest revisions are is known beside the store."""

    def __init__(self, objects: int) -> None:
        self._objects = objects
        self._tids = array("q", (TID,)) * (objects + 1)
        self._chance = random.Random(5).random
        self._tid = CHECKPOINT

    def _oid(self) -> int:
        """The lower, the more often."""
        return 1 + int(self._objects * self._chance() ** 3)

    def read(self, store: Any, times: int) -> None:
        before = (self._tid + 1).to_bytes(8, "big")
        for _ in range(times):
            oid = self._oid()
            if store.load_before(oid.to_bytes(8, "big"), before) is None:
                store.insert(oid, self._tids[oid], 0, state_of(oid))

    def commit(self, store: Any) -> None:
        """As the invalidation log does: what was is closed, and what is new is kept."""
        self._tid += 1
        oids = {self._oid() for _ in range(COMMIT_OBJECTS)}
        states = {oid.to_bytes(8, "big"): state_of(oid) for oid in oids}
        store.advance([(list(states), self._tid, True)], self._tid)
        store.insert_own(states, self._tid)
        for oid in oids:
            self._tids[oid] = self._tid

    def found(self, store: Any) -> int:
        """How many of some objects the store has; assert that it has the newest revision of each.

        They are counted as reads.
        """
        before, hits = (self._tid + 1).to_bytes(8, "big"), 0
        for oid in range(1, self._objects, max(self._objects // 1000, 1)):
            found = store.load_before(oid.to_bytes(8, "big"), before)
            if found is not None:
                assert found == (state_of(oid), self._tids[oid].to_bytes(8, "big"), None), oid
                hits += 1
        return hits


MEASUREMENTS: dict[str, Callable[..., Result]] = {
    "levels": levels,
    "entry": entry,
    "resident": resident,
    "churn": churn,
    "rewrite": rewrite,
    "sizes": sizes,
    "through": through,
    "hour": hour,
}


def measure(name: str, **parameters: Any) -> Result:
    """Run one measurement in a process of its own."""
    job = json.dumps([name, parameters])
    command = [sys.executable, str(Path(__file__).resolve()), "--one", job]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    result: Result = json.loads(done.stdout)
    return {"measurement": name, **parameters, **result}


# The questions: each prints its table, and yields its goals.


@dataclass(frozen=True)
class Asked:
    """What the questions are about."""

    sizes: Sizes = Sizes()
    backends: Sequence[str] = tuple(STORES)


def ask_entry(asked: Asked, results: list[Result]) -> Iterator[Goal]:
    counts: dict[int, int] = {}
    rows = []
    for state_bytes in asked.sizes.states_bytes:
        for varied in (False, True):
            found = measure(
                "levels", state_bytes=state_bytes, limit_mb=asked.sizes.limit_mb, varied=varied
            )
            results.append(found)
            counts.setdefault(state_bytes, found["full_entries"])
            text = f"{state_bytes} B" + (", +- 50 %" if varied else "")
            rows.append(
                (
                    text,
                    f"{found['full_bytes']:.1f}",
                    f"{found['full_entries']:,}",
                    f"{found['worst_bytes']:.1f}",
                    f"{found['worst_entries']:,}",
                    f"{found['used']:.3f}",
                )
            )
            if state_bytes < 1000:
                yield Goal(f"accounted beyond {text}, full", found["full_bytes"], 56)
                yield Goal(f"accounted beyond {text}, worst", found["worst_bytes"], 56)
            if not varied:
                yield Goal(f"accounted of the limit, {text}", found["used"], 0.95, at_least=True)
    head = ("states", "full", "entries", "worst", "entries", "of the limit")
    print_table(
        f"Accounted bytes an entry beyond its state, {asked.sizes.limit_mb:g} MB", head, rows
    )
    _ask_peers(results, counts)


def _ask_peers(results: list[Result], counts: dict[int, int]) -> None:
    rows = []
    for cache, backend in BACKENDS.items():
        if not issubclass(backend, Wrapper):
            found = [
                measure("entry", cache=cache, state_bytes=state_bytes, entries=entries)
                for state_bytes, entries in counts.items()
            ]
            results.extend(found)
            rows.append((cache, *(f"{result['resident_beside_bytes']:.0f}" for result in found)))
    head = ("cache", *(f"{size} B x {entries:,}" for size, entries in counts.items()))
    print_table("Resident bytes an entry beyond its state", head, rows)


def ask_resident(asked: Asked, results: list[Result]) -> Iterator[Goal]:
    rows = []
    for cache in (RelStorageClient.name, Store.name):
        found = [
            measure("resident", cache=cache, limit_mb=limit_mb)
            for limit_mb in asked.sizes.limits_mb
        ]
        results.extend(found)
        rows.append((cache, *(f"{result['resident']:.3f}" for result in found)))
        if cache == Store.name:
            for limit_mb, result in zip(asked.sizes.limits_mb, found, strict=True):
                yield Goal(f"resident of a limit of {limit_mb} MB", result["resident"], 1.05)
    head = ("cache", *(f"{limit_mb} MB" for limit_mb in asked.sizes.limits_mb))
    print_table("Resident memory of the limit, at most", head, rows)


def ask_churn(asked: Asked, results: list[Result]) -> Iterator[Goal]:
    rows = []
    limit_mb, churned_limits = asked.sizes.limit_mb, asked.sizes.churned_limits
    for distribution in ("uniform", "log-uniform"):
        found = measure(
            "churn", distribution=distribution, limit_mb=limit_mb, churned_limits=churned_limits
        )
        results.append(found)
        rows.append((distribution, *_use_cells(found), f"{found['resident']:.3f}"))
        text = f"after churn, {distribution} sizes"
        yield Goal(f"accounted of the limit {text}", found["used"], 0.95, at_least=True)
        yield Goal(f"resident of the limit {text}", found["resident"], 1.05)
    title = f"{churned_limits} times {limit_mb:g} MB of {SMALLEST_BYTES} B to {LARGEST_BYTES:,} B"
    print_table(f"{title}, of the limit", ("sizes", *_USE_HEAD, "resident"), rows)


def ask_rewrite(asked: Asked, results: list[Result]) -> Iterator[Goal]:
    found = measure("rewrite", limit_mb=asked.sizes.limit_mb)
    results.append(found)
    rows = []
    for number, phase in enumerate(found["phases"]):
        rows.append((f"{phase['state_bytes']:,} B", *_use_cells(phase)))
        text = f"accounted of the limit, {phase['state_bytes']:,} B states"
        bound = 0.85 if number else 0.95
        yield Goal(f"{text}, phase {number + 1}", phase["used"], bound, at_least=True)
    yield Goal("resident of the limit while sizes change", found["resident"], 1.05)
    title = f"All sizes change, {asked.sizes.limit_mb:g} MB, of the limit"
    print_table(title, ("states", *_USE_HEAD), rows)


def ask_sizes(asked: Asked, results: list[Result]) -> Iterator[Goal]:
    for backend in asked.backends:
        rows = []
        for limit_mb in asked.sizes.grid_mb:
            for state_bytes in asked.sizes.states_bytes:
                found = measure(
                    "sizes", backend=backend, limit_mb=limit_mb, state_bytes=state_bytes
                )
                results.append(found)
                rows.append(
                    (
                        f"{limit_mb:g} MB of {state_bytes} B",
                        f"{found['entries']:,}",
                        f"{found['beside_bytes']:.1f}",
                        *(_megabytes(found[f"{of}_bytes"]) for of in _SIZES_HEAD),
                    )
                )
                if backend != "memory" and limit_mb >= 100 and state_bytes == 100:
                    text = f"{backend}: resident, {limit_mb:g} MB of {state_bytes} B states: MB"
                    yield Goal(text, found["resident_bytes"] / MEGABYTE, 16)
        head = ("limit, states", "entries", "beside each: B", *(f"{of}: MB" for of in _SIZES_HEAD))
        print_table(f"A full cache, cache-backend {backend}", head, rows)


_SIZES_HEAD = ("stored", "accounted", "resident", "disk")


def _megabytes(size_bytes: float) -> str:
    return f"{size_bytes / MEGABYTE:.1f}" if size_bytes else ""


def ask_through(asked: Asked, results: list[Result]) -> Iterator[Goal]:
    rows = []
    for backend in asked.backends:
        for limit_mb in asked.sizes.through_mb:
            found = measure("through", backend=backend, limit_mb=limit_mb, state_bytes=STATE_BYTES)
            results.append(found)
            rows.append((f"{backend}, {limit_mb:g} MB", *_footprint_cells(found)))
            yield from _footprint_goals(found, f"after {THROUGH_LIMITS} times the limit")
    print_table(f"{THROUGH_LIMITS} times the limit goes in", ("", *_FOOTPRINT_HEAD), rows)


def ask_hour(asked: Asked, results: list[Result]) -> Iterator[Goal]:
    rows = []
    limit_mb, operations = asked.sizes.limit_mb, asked.sizes.operations
    for backend in asked.backends:
        found = measure("hour", backend=backend, limit_mb=limit_mb, operations=operations)
        results.append(found)
        rates = (found["begins"], found["ends"])
        rows.append(
            (
                f"{backend}, {limit_mb:g} MB",
                *_footprint_cells(found),
                f"{found['hit_ratio']:.3f}",
                *(f"{rate:,.0f}" for rate in rates),
                f"{rates[1] / rates[0]:.2f}",
            )
        )
        yield from _footprint_goals(found, "after an hour")
    head = ("", *_FOOTPRINT_HEAD, "hits", "full: operations/s", "at the end", "of that")
    print_table(f"An hour: {operations:,} operations", head, rows)


_FOOTPRINT_HEAD = (
    "accounted of the limit",
    "states",
    "resident: MB",
    "disk: MB",
    "disk, of the limit",
)


def _footprint_cells(result: Result) -> tuple[str, ...]:
    disk = result["disk_bytes"]
    return (
        f"{result['used']:.3f}",
        f"{result['state']:.3f}",
        _megabytes(result["resident_bytes"]),
        _megabytes(disk),
        f"{disk / result['limit_mb'] / MEGABYTE:.3f}" if disk else "",
    )


def _footprint_goals(result: Result, when: str) -> Iterator[Goal]:
    """A limit holds wherever the states are."""
    what, of = ("resident", "resident_bytes")
    if result["backend"] != "memory":
        what, of = ("on disk", "disk_bytes")
    ratio = result[of] / result["limit_mb"] / MEGABYTE
    text = f"{result['backend']}: {what}, of a limit of {result['limit_mb']:g} MB {when}"
    yield Goal(text, ratio, 1.05)


_USE_HEAD = ("accounted", "worst", "states", "worst")


def _use_cells(result: Result) -> tuple[str, ...]:
    fields = ("used", "worst_used", "states", "worst_states")
    return tuple(f"{result[field]:.3f}" for field in fields)


QUESTIONS: dict[str, Callable[[Asked, list[Result]], Iterator[Goal]]] = {
    "entry": ask_entry,
    "resident": ask_resident,
    "churn": ask_churn,
    "rewrite": ask_rewrite,
    "sizes": ask_sizes,
    "through": ask_through,
    "hour": ask_hour,
}


# What is kept.


def benchmarks(results: Sequence[Result]) -> Iterator[pyperf.Benchmark]:
    """As pyperf keeps them, of one value each; what is less than nothing is a byte."""
    for result in results:
        for name, unit, value in figures(result):
            metadata = {"name": name, "unit": unit, "loops": 1}
            yield pyperf.Benchmark([pyperf.Run([value], metadata=metadata)])


def figures(result: Result) -> Iterator[tuple[str, str, float]]:
    """Name, unit and value of what was measured."""
    about = [text.format(result[key]) for key, text in _PARAMETERS.items() if result.get(key)]
    name = ", ".join((result["measurement"], *about))
    for key, (text, unit) in _FIGURES.items():
        value = result.get(key, 0)
        if unit == "of the limit":
            unit, value = "byte", value * result.get("limit_mb", 0) * MEGABYTE
        elif unit == "second":
            value = value and 1 / value
        if key in result and (value or key.startswith("resident")):
            yield f"{name}: {text}", unit, value if unit == "second" else max(1, round(value))


_PARAMETERS = {
    "backend": "{}",
    "cache": "{}",
    "distribution": "{} sizes",
    "limit_mb": "{:g} MB",
    "state_bytes": "states of {} B",
    "varied": "+- 50 %",
}
_FIGURES = {
    "full_bytes": ("accounted beside a state, full", "byte"),
    "worst_bytes": ("accounted beside a state, worst", "byte"),
    "used": ("accounted", "of the limit"),
    "state": ("stored", "of the limit"),
    "resident": ("resident", "of the limit"),
    "resident_bytes": ("resident", "byte"),
    "resident_beside_bytes": ("resident beside a state", "byte"),
    "stored_bytes": ("stored", "byte"),
    "accounted_bytes": ("accounted", "byte"),
    "beside_bytes": ("accounted beside a state", "byte"),
    "disk_bytes": ("on disk", "byte"),
    "begins": ("an operation, just full", "second"),
    "ends": ("an operation, at the end", "second"),
}
"""What each is called, and its unit."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--question", nargs="+", choices=list(QUESTIONS), default=list(QUESTIONS))
    parser.add_argument("--json", type=Path, help="write all that was measured to this file")
    parser.add_argument("-o", "--output", type=Path, help="keep the figures in pyperf's format")
    parser.add_argument("--backend", nargs="+", choices=list(STORES), default=list(STORES))
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes: only what is asserted means much"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        name, parameters = json.loads(args.one)
        print(json.dumps(MEASUREMENTS[name](**parameters)))
        return
    results: list[Result] = []
    asked = Asked(QUICK if args.quick else Sizes(), args.backend)
    print_goals(
        [goal for question in args.question for goal in QUESTIONS[question](asked, results)]
    )
    if args.output:
        rounds.save(list(benchmarks(results)), args.output)
        keep(args.output)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
