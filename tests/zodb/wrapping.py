"""How the borrowed tests get at cached storages, and how their suites run under pytest."""

from __future__ import annotations

import contextlib
import doctest
import os
import sys
import unittest
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from ZEO.ClientStorage import ClientStorage
from ZODB.DemoStorage import DemoStorage
from ZODB.FileStorage import FileStorage
from ZODB.MappingStorage import MappingStorage

import zodbcache


def cached(base: Any) -> Any:
    """*base* with a small cache, its file beside the test's other files.

    Storages that a test opens one after the other share the file, as the
    runs of an application do.
    """
    return zodbcache.wrap(base, cache_local_mb=10, cache_local_dir=os.path.abspath(".cache"))


class _Transparent(zodbcache.CachedStorage):
    """Attributes that tests assign are the base storage's, where it alone has them."""

    def __setattr__(self, name: str, value: Any) -> None:
        own = name in vars(self) or hasattr(type(self), name) or not hasattr(self._base, name)
        object.__setattr__(self if own else self._base, name, value)


def transparent(storage: Any) -> Any:
    """A cached storage whose base's attributes can be assigned."""
    storage.__class__ = _Transparent
    return storage


class _MadeCached(type):
    """A storage class whose instances are made with a cache before them."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        return transparent(cached(super().__call__(*args, **options)))

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(getattr(instance, "_base", instance))


class CachedFileStorage(FileStorage, metaclass=_MadeCached):
    pass


class CachedMappingStorage(MappingStorage, metaclass=_MadeCached):
    pass


class CachedDemoStorage(DemoStorage, metaclass=_MadeCached):
    pass


class CachedClientStorage(ClientStorage, metaclass=_MadeCached):
    pass


@contextlib.contextmanager
def every_cached(*stand_ins: type) -> Iterator[None]:
    """Whoever makes a storage of a class that one of *stand_ins* stands for gets a cached one."""
    originals = {stand_in.__bases__[0]: stand_in for stand_in in stand_ins}
    with contextlib.ExitStack() as patches:
        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith(("ZODB.", "ZEO.")):
                for name, value in list(vars(module).items()):
                    if isinstance(value, type) and value in originals:
                        patches.enter_context(mock.patch.object(module, name, originals[value]))
        yield


def suites(*tests: unittest.TestSuite) -> pytest.MarkDecorator:
    """Parametrize a test by the ``case`` and ``layer`` of every case in *tests*."""
    return _parametrize([pair for suite in tests for pair in _cases(suite, None)])


def doctests(*tests: unittest.TestSuite) -> pytest.MarkDecorator:
    """Likewise, by the doctests alone; without those that some storage is made for."""
    return _parametrize(
        [
            (case, layer)
            for suite in tests
            for case, layer in _cases(suite, None)
            if isinstance(case, doctest.DocTestCase)
            and not getattr(layer, "__name__", "").endswith("BlobTests")
            and "create_storage" not in _source(case)
        ]
    )


def _parametrize(cases: list[tuple[unittest.TestCase, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("case", "layer"), [pytest.param(*pair, id=_case_id(pair[0])) for pair in cases]
    )


def run_case(case: unittest.TestCase, layer: Any) -> None:
    """Run one case of a suite as ``unittest`` does, and tell pytest how it went."""
    result = unittest.TestResult()
    if layer is not None:
        layer.testSetUp()
    try:
        case.run(result)
    finally:
        if layer is not None:
            layer.testTearDown()
    for _, reason in result.skipped:
        pytest.skip(reason)
    for _, report in result.errors + result.failures:
        pytest.fail(report, pytrace=False)


def _cases(test: Any, layer: Any) -> Iterator[tuple[unittest.TestCase, Any]]:
    layer = getattr(test, "layer", layer)
    if isinstance(test, unittest.TestCase):
        yield test, layer
    else:
        for inner in test:
            yield from _cases(inner, layer)


def _source(case: doctest.DocTestCase) -> str:
    return "".join(example.source for example in case._dt_test.examples)


def _case_id(case: unittest.TestCase) -> str:
    return os.path.basename(case.id())


def with_checks(test_class: type[unittest.TestCase]) -> type[unittest.TestCase]:
    """Let pytest find the tests whose names start with ``check``, as ZEO's do."""
    for name in dir(test_class):
        if name.startswith("check"):
            setattr(test_class, f"test_{name}", getattr(test_class, name))
    return test_class
