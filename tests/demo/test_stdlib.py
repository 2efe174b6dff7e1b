"""What the parser finds in a source, and which of Python's files it takes."""

from __future__ import annotations

import pytest

from zodbcache.demo.stdlib import ClassFacts
from zodbcache.demo.stdlib import FunctionFacts
from zodbcache.demo.stdlib import Source
from zodbcache.demo.stdlib import parse_file
from zodbcache.demo.stdlib import parse_source
from zodbcache.demo.stdlib import stdlib_sources

SOURCE = '''
"""A shape."""
import os.path
import json as j
from . import sibling
from ..other import tool as hammer
from elsewhere import *


class Shape(Base, abc.ABC, metaclass=Meta):
    """It has a size."""

    @property
    def size(self):
        return self.area() + len(self.parts)

    @size.setter
    def size(self, value, *rest, unit=1, **options):
        def convert():
            return hammer(value)
        self.resize(convert())[0].done()


async def fetch(path, /):
    return await j.load(os.path.join(path))
'''


@pytest.fixture(scope="module")
def facts():
    return parse_source(SOURCE, "package.inner.shapes")


def test_a_module_has_its_name_and_docstring(facts):
    assert (facts.name, facts.docstring) == ("package.inner.shapes", "A shape.")


def test_a_class_has_its_bases_as_written(facts):
    assert facts.classes == (ClassFacts("Shape", 10, "It has a size.", ("Base", "abc.ABC")),)


def test_functions_are_in_source_order_and_have_unique_names(facts):
    assert [function.qualname for function in facts.functions] == [
        "Shape.size",
        "Shape.size@18",
        "Shape.size.<locals>.convert",
        "fetch",
    ]


def test_a_call_belongs_to_the_innermost_function(facts):
    setter, convert = facts.functions[1:3]
    assert setter == FunctionFacts(
        qualname="Shape.size@18",
        line=18,
        docstring="",
        owner="Shape",
        arguments=("self", "value", "unit", "rest", "options"),
        calls=("convert", "self.resize"),
    )
    assert convert.calls == ("hammer",)


def test_calls_are_dotted_names_sorted(facts):
    assert facts.functions[3].calls == ("j.load", "os.path.join")


def test_bindings_tell_what_a_local_name_stands_for(facts):
    assert dict(facts.bindings) == {
        "os": "os",
        "j": "json",
        "sibling": "package.inner.sibling",
        "hammer": "package.other.tool",
    }


def test_a_package_is_its_own_parent():
    facts = parse_source("from . import part", "package", is_package=True)
    assert dict(facts.bindings) == {"part": "package.part"}


def test_imports_name_whatever_may_be_a_module(facts):
    assert {"os.path", "json", "package.inner.sibling", "package.other"} <= set(facts.imports)


@pytest.mark.parametrize("text", [b"print 'two'", b"\xff\xfe", b"# coding: no-such\n", b"a\0b"])
def test_a_file_that_is_not_python_is_none(tmp_path, text):
    path = tmp_path / "broken.py"
    path.write_bytes(text)
    assert parse_file(Source("broken", str(path), is_package=False)) is None


def test_sources_are_python_s_own_and_no_other():
    sources = stdlib_sources()
    modules = {source.module for source in sources}
    assert {"json", "json.decoder", "os"} <= modules
    assert len(modules) == len(sources)
    assert not any("site-packages" in source.path for source in sources)
    assert next(source for source in sources if source.module == "json").is_package


def test_a_limit_takes_the_first_sources():
    assert stdlib_sources(3) == stdlib_sources()[:3]
