"""Which definition a name means: the source's own word, and never a guess."""

from __future__ import annotations

import pytest

from zodbcache.demo.resolve import Resolver
from zodbcache.demo.stdlib import parse_source

MODULES = [
    parse_source("from tools.hammer import hit\n", "tools", is_package=True),
    parse_source("def hit(): pass\nclass Head:\n    def turn(self): pass\n", "tools.hammer"),
    parse_source(
        """
import tools
import tools.hammer as th
from tools import hit as strike
from tools.hammer import Head


class Own(Head):
    def work(self):
        self.turn()
        self.missing()
        cls.turn()

def main(unknown):
    tools.hit()
    th.hit()
    strike()
    Own()
    main()
    unknown.turn()
    print()
""",
        "app",
    ),
]


@pytest.fixture(scope="module")
def resolver():
    return Resolver(MODULES)


def function(name):
    return next(function for function in MODULES[2].functions if function.qualname == name)


def test_calls_through_modules_aliases_and_re_exports(resolver):
    found, unresolved = resolver.calls("app", function("main"))
    assert found == ("app:Own", "app:main", "tools.hammer:hit")
    assert unresolved == ("print", "unknown.turn")


def test_methods_are_found_in_the_bases(resolver):
    found, unresolved = resolver.calls("app", function("Own.work"))
    assert found == ("tools.hammer:Head.turn",)
    assert unresolved == ("self.missing",)


def test_bases_and_imports(resolver):
    assert resolver.bases("app", MODULES[2].classes[0]) == ("tools.hammer:Head",)
    assert resolver.imports(MODULES[2]) == ("tools", "tools.hammer")


def test_names_that_go_round_in_circles_end():
    circle = Resolver([parse_source("from b import x", "a"), parse_source("from a import x", "b")])
    assert circle.definition("a", "x") == ""


def test_classes_that_inherit_in_circles_end():
    source = "class A(B):\n    def f(self): self.g()\nclass B(A): pass\n"
    module = parse_source(source, "m")
    assert Resolver([module]).calls("m", module.functions[0]) == ((), ("self.g",))
