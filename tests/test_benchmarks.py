"""The benchmarks' workloads at tiny sizes: they do what they say, and their asserts hold."""

from __future__ import annotations

import logging
import statistics
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

for _module in ("cachebox", "cachetools", "lru", "psutil", "pyperf", "relstorage", "ZEO"):
    pytest.importorskip(_module, reason="the extra 'benchmark' is not installed")

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import bench_file  # noqa: E402
import bench_memory  # noqa: E402
import bench_store  # noqa: E402
import bench_threads  # noqa: E402
import bench_workers  # noqa: E402
import bench_write_behind  # noqa: E402
import bench_zodb  # noqa: E402
import filed  # noqa: E402
import pyperf  # noqa: E402
import report  # noqa: E402
import rounds  # noqa: E402
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
    ("churn", {"distribution": "uniform", "limit_mb": 1, "churned_limits": 2}),
    ("churn", {"distribution": "log-uniform", "limit_mb": 1, "churned_limits": 2}),
    ("rewrite", {"limit_mb": 1}),
]
FOOTPRINTS: list[tuple[str, dict[str, Any]]] = [
    ("sizes", {"state_bytes": 300}),
    ("through", {"state_bytes": 300}),
    ("hour", {"operations": 50_000}),
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


@pytest.mark.parametrize("backend", workloads.STORES)
@pytest.mark.parametrize(("name", "parameters"), FOOTPRINTS)
def test_footprint(name: str, parameters: dict[str, Any], backend: str) -> None:
    """That the cache is full, and what it has is right, is asserted inside."""
    parameters = {"backend": backend, "limit_mb": 1, **parameters}
    result = bench_memory.MEASUREMENTS[name](**parameters)
    accounted = result.get("used", result.get("accounted_bytes", 0) / 1e6)
    assert 0 < accounted <= 1
    assert (result["disk_bytes"] > 0) == (backend != "memory")
    assert result["last_disk_bytes"] <= result["disk_bytes"]
    figures = list(bench_memory.figures({"measurement": name, **parameters, **result}))
    assert all(value > 0 for _, _, value in figures)
    assert {text.partition(":")[0] for text, _, _ in figures} == {
        f"{name}, {backend}, 1 MB" + (", states of 300 B" if "state_bytes" in parameters else "")
    }


@pytest.mark.skipif(sys.platform != "linux", reason="nobody else tells the size of such files")
def test_files_without_a_name_are_seen(tmp_path: Path) -> None:
    before = bench_memory.unlinked_bytes()
    with (tmp_path / "gone").open("wb", buffering=0) as file:
        file.write(bytes(1000))
        assert bench_memory.unlinked_bytes() == before
        (tmp_path / "gone").unlink()
        assert bench_memory.unlinked_bytes() == before + 1000
    assert bench_memory.unlinked_bytes() == before


def test_a_wrong_revision_at_the_end_of_the_hour_is_noticed() -> None:
    store = workloads.open_store(1_000_000)
    load = bench_memory.HourlyLoad(1000)
    load.read(store, 1000)
    assert load.found(store) > 0
    load._tids[1:] = type(load._tids)("q", [workloads.TID + 1]) * 1000
    with pytest.raises(AssertionError):
        load.found(store)


def test_memory_is_kept_for_pyperf(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = bench_memory.Asked(bench_memory.QUICK)
    results: list[dict[str, Any]] = []
    goals = [goal.text for ask in ("sizes", "hour") for goal in _asked(ask, asked, results)]
    assert "memory: resident, of a limit of 1 MB after an hour" in goals
    assert "sqlite: on disk, of a limit of 1 MB after an hour" in goals
    path = tmp_path / "memory.json"
    rounds.save(list(bench_memory.benchmarks(results)), path)
    suite = pyperf.BenchmarkSuite.load(str(path))
    assert suite.get_benchmark("sizes, sqlite, 1 MB, states of 300 B: on disk").get_unit() == "byte"
    names = suite.get_benchmark_names()
    assert "hour, memory, 1 MB: an operation, at the end" in names
    assert "An hour: 50,000 operations" in capsys.readouterr().out


def _asked(question: str, *args: Any) -> list[report.Goal]:
    return list(bench_memory.QUESTIONS[question](*args))


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
    found = bench_threads.pairs("a", read, keys, count=2, rounds=rounds)
    assert [list(one) for one in found] == [["a, 1 thread", "a, 8 threads"]] * 2
    assert hits() in (0, 10 * (rounds + 2 * 2 * rounds))


# The file.

FEW = 1000


@pytest.fixture
def unsettled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the disk."""
    monkeypatch.setattr(bench_file, "settle", lambda: None)


@pytest.mark.usefixtures("unsettled")
@pytest.mark.parametrize("kind", bench_file.SAVE)
def test_file_timings(kind: str, tmp_path: Path) -> None:
    """That every state is written, and comes back, is asserted inside."""
    filled, changed = (tmp_path / name for name in ("filled", "changed"))
    for place in (filled, changed):
        place.mkdir()
    bench_file.FILL[kind](filled, FEW)
    for question in bench_file.QUESTIONS.values():
        if kind in question.timings:
            place = filled if question.needs_file else changed
            times = question.timings[kind](place, FEW)
            assert times
            assert all(seconds > 0 for seconds in times.values())


@pytest.mark.usefixtures("unsettled")
@pytest.mark.parametrize("kind", [*bench_file.CACHES.values(), bench_file.PEER])
def test_half_of_the_file_changes(kind: str, tmp_path: Path) -> None:
    assert set(bench_file.SAVE[kind](tmp_path, FEW)) == {
        bench_file.ALL_NEW,
        bench_file.NOTHING_NEW,
        bench_file.HALF_CHANGED,
    }
    rows_in = filed.own_rows_in if kind == bench_file.PEER else filed.rows_in
    assert rows_in(tmp_path) == FEW
    assert rows_in(tmp_path, after=workloads.TID) == FEW / 2


@pytest.mark.usefixtures("unsettled")
@pytest.mark.parametrize("kind", bench_file.SAVE)
def test_what_did_not_come_back_is_noticed(kind: str, tmp_path: Path) -> None:
    bench_file.FILL[kind](tmp_path, FEW - 1)
    with pytest.raises(AssertionError):
        bench_file.QUESTIONS["restore"].timings[kind](tmp_path, FEW)


def test_files_are_timed_in_other_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = bench_file.Asked([0.3, 0.6], ["sqlite"], peers_up_to_mb=0.3)
    found = bench_file.ask(bench_file.Places(tmp_path), "open", asked, rounds=1)
    assert len(found.rounds) == 1
    assert set(found.names) == {
        "zodbcache sqlite, 0.3 MB, open, first hit",
        "RelStorage's file, 0.3 MB, open, first hit",
        "zodbcache sqlite, 0.6 MB, open, first hit",
    }
    bench_file.report({"open": found})
    printed = capsys.readouterr().out
    assert "0.6 MB: zodbcache sqlite, open, first hit: ms, against 0.3 MB's" in printed


def test_goals_of_saving_and_restoring(capsys: pytest.CaptureFixture[str]) -> None:
    saves = (bench_file.ALL_NEW, bench_file.NOTHING_NEW, bench_file.HALF_CHANGED)
    whats = {"save": saves, "restore": (bench_file.RESTORE,)}
    bench_file.report(
        {
            question: rounds.Results(
                [
                    [
                        {
                            f"{kind}, {size_mb} MB, {what}": 0.1 * size_mb
                            for kind in bench_file.SAVE
                            for size_mb in (1, 4)
                            for what in whats[question]
                        }
                    ]
                ]
            )
            for question in whats
        }
    )
    printed = capsys.readouterr().out
    for goal in (
        "1 MB: save, all new: of RelStorage's time",
        "4 MB: save, all new: of the flat file's time",
        "1 MB: save, nothing new: ms",
        "1 MB: restore: of RelStorage's time",
        "4 MB: save, all new, a byte: of 1 MB's time",
        "4 MB: save, half changed, a byte: of 1 MB's time",
        "4 MB: zodbcache sqlite, restore, a byte: of 1 MB's time",
    ):
        assert goal in printed


def test_growth_is_that_within_a_round() -> None:
    one, other = (
        {"zodbcache, 10 MB, restore": s, "zodbcache, 40 MB, restore": 8 * s} for s in (1, 3)
    )
    (growth,) = bench_file.growths(rounds.Results([[one, other]]))
    assert (growth.smallest_mb, growth.largest_mb) == (10, 40)
    assert (growth.time, growth.time_a_byte) == (8, 2)


# The file, written in the background.


def test_threads_while_the_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_write_behind, "HOT_OBJECTS", 200)
    times = bench_write_behind.time_threads(tmp_path, 4, FEW, seconds=0.05)
    assert all(seconds > 0 for seconds in times.values())
    times |= {name.replace("4 threads", "1 thread"): times[name] for name in times}
    bench_write_behind.report(rounds.Results([[times]]), [])
    printed = capsys.readouterr().out
    for goal in ("of the throughput without", "rows/s", "the longest transaction, ms"):
        assert f"4 threads: {goal}" in printed


def test_killed_under_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_write_behind, "EARLIER_SECONDS", 0.1)
    survival = bench_write_behind.kill_loaded(tmp_path, rate=5000, busy=0, seconds=0.3)
    assert survival.cached > bench_write_behind.HOT_BESIDE
    assert 0 <= survival.share <= 1
    bench_write_behind.report(None, [survival])
    assert "killed: still a hit, at worst" in capsys.readouterr().out


# The file of several workers.


def test_workers_stop(capsys: pytest.CaptureFixture[str]) -> None:
    stopping = bench_workers.Stopping(None, workers=2, count=FEW)
    (found,) = rounds.measure_rounds(stopping.scenarios, stopping.measure, 1)
    assert all(seconds > 0 for seconds in found.values())
    for kind in bench_workers.STOPS:
        for how in (bench_workers.AT_ONCE, bench_workers.ALONE):
            (loss,) = stopping.losses[f"{kind}, {how}"]
            assert loss.written <= 1
    assert stopping.losses["zodbcache, at once"] == [bench_workers.Loss([], 1.0)]
    results = rounds.Results([[found]])
    bench_workers.report(bench_workers.Answers(stop=(results, stopping.losses)))
    printed = capsys.readouterr().out
    for goal in ("the last, of the time alone", "failures", "rows written"):
        assert f"stopping at once: {goal}" in printed


def test_a_worker_that_fails_is_counted() -> None:
    def close() -> None:
        logging.getLogger("zodbcache").warning("the disk is %s", "full")
        raise OSError("no")

    stopped = bench_workers.stop(threading.Barrier(1), close)
    assert stopped.failures == ["the disk is full", "OSError('no')"]


@pytest.mark.parametrize("file_times", [1, 2])
def test_hottest_of_a_full_file(file_times: int, tmp_path: Path) -> None:
    """That the file is full is asserted inside."""
    assert 0 <= bench_workers.hottest_of_cache(tmp_path, 1.0, file_times) <= 1


def test_hottest_of_the_peer(tmp_path: Path) -> None:
    assert 0 <= bench_workers.hottest_of_own(tmp_path, 1.0) <= 1


def test_workers_share(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench_workers, "SHARERS", 2)
    sizes = bench_workers.Sizes(1.0, 2.0, objects=FEW, requests=FEW, a_second=1e9)
    found = bench_workers.ask_sharing(None, sizes)
    for reads in found.values():
        assert reads.hits + reads.misses == FEW
    assert found[bench_workers.ONE_PROCESS].file == 0
    bench_workers.report(bench_workers.Answers(hottest={"zodbcache": 1.0}, sharing=found))
    printed = capsys.readouterr().out
    assert "sharing: hits, of one process'" in printed
    assert "the hottest tenth, zodbcache" in printed


def test_popular_objects_are_asked_for_more_often() -> None:
    sizes = bench_workers.Sizes.of(0.001)
    asked = Counter(oid for number in range(10) for oid in bench_workers.popular(sizes, number))
    assert set(asked) <= set(range(1, sizes.objects + 1))
    (_, most), *_ = asked.most_common()
    assert most > 20 * statistics.median(asked.values())
    assert len(asked) > sizes.objects / 2
    assert bench_workers.PRIME % sizes.objects  # or else all would be one object


def test_where_reads_come_from(tmp_path: Path) -> None:
    with filed.open_cache(tmp_path, 1, cache_write_seconds=0) as storage:
        filed.load_all(storage, range(1, 4 * FEW))
        assert filed.reads_of(storage) == filed.Reads(0, 0, 4 * FEW - 1)
        storage._cache.persistence.save()
        kept = filed.in_memory(storage, range(1, 4 * FEW))
        assert 0 < kept == storage.cache_stats()["entries"]
        written = filed.rows_in(tmp_path)
        assert written == storage.cache_stats()["file_writes"] >= kept
