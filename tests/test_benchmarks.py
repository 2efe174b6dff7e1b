"""The benchmarks' workloads at tiny sizes: they do what they say, and their asserts hold."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

for _module in ("cachebox", "cachetools", "lru", "psutil", "pyperf", "relstorage", "ZEO"):
    pytest.importorskip(_module, reason="the extra 'benchmark' is not installed")

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import bench_memory  # noqa: E402
import bench_store  # noqa: E402
import bench_threads  # noqa: E402
import bench_zodb  # noqa: E402
import report  # noqa: E402
import workloads  # noqa: E402

KEYS = 3000
"""Enough to fill the smallest limit there is."""

CASES = list(bench_store.cases(list(bench_store.OPERATIONS), [KEYS], list(workloads.BACKENDS)))


@pytest.fixture(scope="module", autouse=True)
def nothing_kept() -> Iterator[None]:
    """The benchmarks keep what they have made as long as their process lives."""
    yield
    bench_store.shuffled_keys.cache_clear()
    bench_store.filled.cache_clear()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_store_operation(case: bench_store.Case) -> None:
    assert bench_store.OPERATIONS[case.operation](2, case) > 0


@pytest.mark.parametrize("name", workloads.BACKENDS)
def test_backend_holds_what_was_set_and_nothing_else(name: str) -> None:
    backend = workloads.BACKENDS[name](2 * KEYS)
    oids = workloads.shuffled(100)
    backend.fill(oids)
    assert len(backend) == 100
    assert backend.found(oids) == 100
    for key in backend.keys(range(101, 110)):
        # One that loads what it misses has every object; RelStorage's database here has none.
        is_loaded = issubclass(workloads.BACKENDS[name], workloads.Wrapper)
        assert (backend.state(key) is not None) == is_loaded


def test_store_hits_are_asserted() -> None:
    """A backend that has lost what was set does not pass for one with hits."""
    backend = workloads.Store(KEYS)
    backend.fill(range(1, KEYS + 1))
    counted = backend.hits()
    backend.store.forget(7)
    backend.look_up(backend.keys(range(1, KEYS + 1)))
    with pytest.raises(AssertionError):
        bench_store.check_hits(backend, counted, KEYS, KEYS)


MEASUREMENTS: list[tuple[str, dict[str, Any]]] = [
    ("levels", {"state_bytes": 300, "limit_mb": 1, "varied": False}),
    ("levels", {"state_bytes": 100, "limit_mb": 1, "varied": True}),
    ("entry", {"cache": "dict", "state_bytes": 100, "entries": 100}),
    ("entry", {"cache": "zodbcache store", "state_bytes": 100, "entries": 100}),
    ("resident", {"cache": "zodbcache store", "limit_mb": 1}),
    ("resident", {"cache": "RelStorage client", "limit_mb": 1}),
    ("churn", {"distribution": "uniform", "limit_mb": 1}),
    ("churn", {"distribution": "log-uniform", "limit_mb": 1}),
    ("rewrite", {"limit_mb": 1}),
]


@pytest.mark.parametrize(("name", "parameters"), MEASUREMENTS)
def test_memory_measurement(name: str, parameters: dict[str, Any]) -> None:
    result = bench_memory.MEASUREMENTS[name](**parameters)
    for use in result.get("phases", [result]):
        assert use.get("worst_used", 0) <= use.get("used", 0) <= 1


def test_memory_is_measured_in_another_process() -> None:
    result = bench_memory.measure("levels", state_bytes=1000, limit_mb=1, varied=False)
    assert result["measurement"] == "levels"
    assert result["full_entries"] > 500


@pytest.fixture(scope="module")
def place() -> Iterator[bench_zodb.Place]:
    with bench_zodb.serving() as place:
        yield place
        bench_zodb.close_kept()


@pytest.mark.parametrize("name", bench_zodb.SCENARIOS)
def test_zodb_scenario(place: bench_zodb.Place, name: str) -> None:
    assert bench_zodb.SCENARIOS[name](2, place) > 0


def test_every_goal_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    cases = bench_store.cases(["hit", "threads"], bench_store.KEYS, list(workloads.BACKENDS))
    bench_store.report({case: 1e-9 * (1 + number) for number, case in enumerate(cases)})
    bench_zodb.report(dict.fromkeys(bench_zodb.SCENARIOS, 0.1))
    printed = capsys.readouterr().out
    for keys in ("50,000", "1,000,000"):
        assert f"hit, {keys} keys: of a dict's time" in printed
        assert f"hit, {keys} keys: faster than RelStorage's client" in printed
    assert "loadBefore, 50,000 keys" in printed
    assert "8 threads, zodbcache store" in printed
    assert "restarted: faster than none" in printed


@pytest.mark.parametrize(("at_least", "is_met"), [(False, True), (True, False)])
def test_goal(at_least: bool, is_met: bool) -> None:
    goal = report.Goal("a figure", 1.0, 1.5, at_least=at_least)
    assert goal.is_met is is_met
    assert report.Goal("a figure", 1.5, 1.5, at_least=at_least).is_met


@pytest.mark.parametrize("make", [bench_threads.store_reader, bench_threads.dict_reader])
def test_every_thread_reads_its_share(make: Any) -> None:
    keys = [number.to_bytes(8, "big") for number in range(10)]
    read, hits = make(keys)
    rounds = bench_threads.THREADS
    assert len(bench_threads.ratios(read, keys, pairs=2, rounds=rounds)) == 2
    assert hits() in (0, 10 * (rounds + 2 * 2 * rounds))
