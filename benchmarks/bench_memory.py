"""How much memory does a cache take beyond the states, and does it keep to its limit?

::

    python benchmarks/bench_memory.py                        # everything
    python benchmarks/bench_memory.py --question entry       # bytes an entry beyond its state
    python benchmarks/bench_memory.py --question resident    # resident memory over the limit
    python benchmarks/bench_memory.py --question churn       # the limit put to use, under churn
    python benchmarks/bench_memory.py --question rewrite     # the same, while all sizes change
    python benchmarks/bench_memory.py --json memory.json     # all that was measured, as JSON

Not a timing, and so not a pyperf script: each measurement runs once, in a
process of its own.  *Resident* is what the process's resident memory grew by
since the cache was there and empty.  *Accounted* is what the cache itself
counts: its ``used_bytes``.

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
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
from collections.abc import Callable
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psutil
from report import Goal
from report import print_goals
from report import print_table
from workloads import BACKENDS
from workloads import BEFORE
from workloads import MEGABYTE
from workloads import STATE_BYTES
from workloads import TID
from workloads import BoundedBackend
from workloads import RelStorageClient
from workloads import Store
from workloads import Wrapper
from workloads import open_store
from workloads import shuffled
from workloads import state_of

Result = dict[str, Any]

SIZES_BYTES = (100, 300, 1000)
LIMIT_MB = 100
LIMITS_MB = (10, 100, 500)
SMALLEST_BYTES, LARGEST_BYTES = 50, 16 << 10
CHURNED_LIMITS = 20
PHASES_BYTES = (100, 1000, 16_000, 100)
SAMPLES = 200
"""How often a store is looked at in a phase, or while one limit's worth of bytes goes in."""


def resident_bytes() -> int:
    """This process's resident memory now."""
    size: int = psutil.Process().memory_info().rss
    return size


def beside_state(stats: dict[str, int]) -> float:
    """Accounted bytes an entry beyond its state."""
    return (stats["used_bytes"] - stats["state_bytes"]) / stats["entries"]


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
    return bool(stats["evictions"] + stats["rejections"])


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
    return {"resident_bytes": grown_bytes / entries - state_bytes}


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


def churn(distribution: str, limit_mb: float) -> Result:
    """Skewed reads of more objects than fit, each miss kept."""
    limit_bytes = int(limit_mb * MEGABYTE)
    store, sizes = open_store(limit_bytes), sizes_of(distribution)
    before, most = resident_bytes(), 0
    use: Use | None = None
    for _ in misses(store, sizes, limit_bytes):
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


def misses(store: Any, sizes: list[int], limit_bytes: int) -> Iterator[None]:
    """Read through the store; yield whenever another sample's bytes have gone in."""
    mean_bytes = sum(sizes) / len(sizes)
    objects = int(4 * limit_bytes / mean_bytes)
    chance, sampled_bytes = random.Random(4).random, 0
    for _ in range(CHURNED_LIMITS * SAMPLES):
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


MEASUREMENTS: dict[str, Callable[..., Result]] = {
    "levels": levels,
    "entry": entry,
    "resident": resident,
    "churn": churn,
    "rewrite": rewrite,
}


def measure(name: str, **parameters: Any) -> Result:
    """Run one measurement in a process of its own."""
    job = json.dumps([name, parameters])
    command = [sys.executable, str(Path(__file__).resolve()), "--one", job]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    result: Result = json.loads(done.stdout)
    return {"measurement": name, **parameters, **result}


# The questions: each prints its table, and yields its goals.


def ask_entry(results: list[Result]) -> Iterator[Goal]:
    counts: dict[int, int] = {}
    rows = []
    for state_bytes in SIZES_BYTES:
        for varied in (False, True):
            found = measure("levels", state_bytes=state_bytes, limit_mb=LIMIT_MB, varied=varied)
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
    print_table(f"Accounted bytes an entry beyond its state, {LIMIT_MB} MB", head, rows)
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
            rows.append((cache, *(f"{result['resident_bytes']:.0f}" for result in found)))
    head = ("cache", *(f"{size} B x {entries:,}" for size, entries in counts.items()))
    print_table("Resident bytes an entry beyond its state", head, rows)


def ask_resident(results: list[Result]) -> Iterator[Goal]:
    rows = []
    for cache in (RelStorageClient.name, Store.name):
        found = [measure("resident", cache=cache, limit_mb=limit_mb) for limit_mb in LIMITS_MB]
        results.extend(found)
        rows.append((cache, *(f"{result['resident']:.3f}" for result in found)))
        if cache == Store.name:
            for limit_mb, result in zip(LIMITS_MB, found, strict=True):
                yield Goal(f"resident of a limit of {limit_mb} MB", result["resident"], 1.05)
    head = ("cache", *(f"{limit_mb} MB" for limit_mb in LIMITS_MB))
    print_table("Resident memory of the limit, at most", head, rows)


def ask_churn(results: list[Result]) -> Iterator[Goal]:
    rows = []
    for distribution in ("uniform", "log-uniform"):
        found = measure("churn", distribution=distribution, limit_mb=LIMIT_MB)
        results.append(found)
        rows.append((distribution, *_use_cells(found), f"{found['resident']:.3f}"))
        text = f"after churn, {distribution} sizes"
        yield Goal(f"accounted of the limit {text}", found["used"], 0.95, at_least=True)
        yield Goal(f"resident of the limit {text}", found["resident"], 1.05)
    title = f"{CHURNED_LIMITS} times {LIMIT_MB} MB of {SMALLEST_BYTES} B to {LARGEST_BYTES:,} B"
    print_table(f"{title}, of the limit", ("sizes", *_USE_HEAD, "resident"), rows)


def ask_rewrite(results: list[Result]) -> Iterator[Goal]:
    found = measure("rewrite", limit_mb=LIMIT_MB)
    results.append(found)
    rows = []
    for number, phase in enumerate(found["phases"]):
        rows.append((f"{phase['state_bytes']:,} B", *_use_cells(phase)))
        text = f"accounted of the limit, {phase['state_bytes']:,} B states"
        bound = 0.85 if number else 0.95
        yield Goal(f"{text}, phase {number + 1}", phase["used"], bound, at_least=True)
    yield Goal("resident of the limit while sizes change", found["resident"], 1.05)
    title = f"All sizes change, {LIMIT_MB} MB, of the limit"
    print_table(title, ("states", *_USE_HEAD), rows)


_USE_HEAD = ("accounted", "worst", "states", "worst")


def _use_cells(result: Result) -> tuple[str, ...]:
    fields = ("used", "worst_used", "states", "worst_states")
    return tuple(f"{result[field]:.3f}" for field in fields)


QUESTIONS: dict[str, Callable[[list[Result]], Iterator[Goal]]] = {
    "entry": ask_entry,
    "resident": ask_resident,
    "churn": ask_churn,
    "rewrite": ask_rewrite,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--question", nargs="+", choices=list(QUESTIONS), default=list(QUESTIONS))
    parser.add_argument("--json", type=Path, help="write all that was measured to this file")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        name, parameters = json.loads(args.one)
        print(json.dumps(MEASUREMENTS[name](**parameters)))
        return
    results: list[Result] = []
    print_goals([goal for question in args.question for goal in QUESTIONS[question](results)])
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
