"""The ``zodbcache`` command: its exit statuses and its one-line errors."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import zodbcache.demo
from zodbcache import cli
from zodbcache.demo import BASES
from zodbcache.demo import DemoError


def test_without_a_command_it_says_how(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main([])
    assert "usage: zodbcache" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["0", "-1", "many"])
def test_a_number_that_cannot_be_is_refused(capsys, wrong):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["demo", f"--objects={wrong}"])
    assert "--objects" in capsys.readouterr().err


def test_the_demo_gets_its_options(monkeypatch):
    given = {}
    monkeypatch.setattr(zodbcache.demo, "main", lambda **options: given.update(options))
    assert cli.main(["demo", "--quick", "--json", "a.json", "--objects", "7"]) == 0
    assert given == {
        "base": "zeo",
        "json_path": Path("a.json"),
        "plot_path": Path("zodbcache-demo.png"),
        "objects": 7,
        "quick": True,
        "keep": None,
    }


def raising(exc):
    def demo_main(**options):
        raise exc

    return demo_main


def test_a_failure_is_one_line_and_status_1(monkeypatch, capsys):
    monkeypatch.setattr(zodbcache.demo, "main", raising(DemoError("It rains. Wait.")))
    assert cli.main(["demo"]) == 1
    assert capsys.readouterr().err == "zodbcache: It rains. Wait.\n"


def test_ctrl_c_is_one_line_and_status_130(monkeypatch, capsys):
    monkeypatch.setattr(zodbcache.demo, "main", raising(KeyboardInterrupt()))
    assert cli.main(["demo"]) == 130
    assert capsys.readouterr().err.count("\n") == 1


def test_a_base_that_there_is_not_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["demo", "--base", "oracle"])
    error = capsys.readouterr().err
    assert all(name in error for name in ("zeo", "postgresql", "relstorage-sqlite"))


@pytest.mark.parametrize(
    ("base", "missing"),
    [(name, module) for name, base in BASES.items() for module in (*base.modules, "rich")]
    + [("zeo", "matplotlib")],
)
def test_without_the_extra_the_demo_says_how_to_install_it(monkeypatch, capsys, base, missing):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else find_spec(name)
    )
    assert cli.main(["demo", "--base", base]) == 1
    error = capsys.readouterr().err
    assert f"--base {base} needs {missing}" in error
    assert "pip install zodbcache[demo]" in error


def test_the_command_itself_needs_no_extra():
    script = "import sys, zodbcache.cli, zodbcache.demo; print(sorted(sys.modules))"
    source = str(Path(zodbcache.__file__).parent.parent)
    output = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r}); {script}"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert not {"'ZEO'", "'rich'", "'matplotlib'"} & set(output.strip("[]\n").split(", "))
