"""Imports point downward only, and the C core knows no Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "zodbcache"

LAYERS = (
    "__main__",
    "cli",
    "demo",
    "__init__",
    "zodburi",
    "zconfig",
    "storage",
    "view",
    "cache",
    "caretaker",
    "writebehind",
    "persistence",
    "saving",
    "attachment",
    "feeds",
    "invalidations",
    "store",
    "tempstore",
    "cachefile",
    "_core",
    "config",
    "interfaces",
    "forking",
    "ids",
    "errors",
)
"""From top to bottom.  A module imports from its own package and from below."""

MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def layer_of(module: Path) -> str:
    """``feeds/push.py`` is of layer ``feeds``, ``view.py`` of layer ``view``."""
    return module.with_suffix("").parts[0]


def layer_named(dotted: str) -> str:
    """The layer of ``zodbcache.feeds.push`` or of a name that ``__init__`` gives."""
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 and is_module(parts[1]) else "__init__"


def is_module(name: str) -> bool:
    return name in LAYERS or (PACKAGE / f"{name}.py").exists() or (PACKAGE / name).is_dir()


def imports(source: str, module: Path) -> Iterator[str]:
    """The layers that *source* imports from, wherever in it the import stands."""
    here = ["zodbcache", *module.with_suffix("").parts]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = here[: -node.level] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{origin}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "zodbcache":
                yield layer_named(name)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_module_has_a_layer(module: Path) -> None:
    assert layer_of(module) in LAYERS, f"Place {layer_of(module)} in LAYERS"


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_imports_point_downward(module: Path) -> None:
    own = layer_of(module)
    source = (PACKAGE / module).read_text(encoding="utf-8")
    upward = [
        layer
        for layer in imports(source, module)
        if layer != own and LAYERS.index(layer) < LAYERS.index(own)
    ]
    assert not upward, f"{module} imports from above: {upward}"


@pytest.mark.parametrize(
    ("source", "module", "layers"),
    [
        ("from zodbcache.ids import to_int", "view.py", ["ids"]),
        ("from zodbcache import ids", "view.py", ["ids"]),
        ("from zodbcache import wrap", "view.py", ["__init__"]),
        ("import zodbcache.feeds.push", "view.py", ["feeds"]),
        ("from .. import view", "feeds/push.py", ["view"]),
        ("from . import poll", "feeds/push.py", ["feeds"]),
        ("from .cli import main", "ids.py", ["cli"]),
        ("def f():\n    from zodbcache import cli", "ids.py", ["cli"]),
        ("import os, ZODB.utils", "ids.py", []),
    ],
)
def test_imports_are_seen(source: str, module: str, layers: list[str]) -> None:
    assert list(imports(source, Path(module))) == layers


def test_only_the_binding_knows_python() -> None:
    includes = re.compile(r'^\s*#\s*include\s*[<"]Python\.h[>"]', re.MULTILINE)
    sources = sorted((PACKAGE / "_core").rglob("*.[ch]"))
    assert [path.name for path in sources if includes.search(path.read_text())] == ["module.c"]
