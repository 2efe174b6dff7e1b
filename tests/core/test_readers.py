"""The readers: a hit without a frame of Python's, else the miss."""

from __future__ import annotations

from typing import Any

import pytest

from zodbcache._core._store import PinnedReader
from zodbcache.ids import to_bytes
from zodbcache.store import MemoryStore

X = to_bytes(7)


@pytest.fixture
def store():
    """x@5, current through 10."""
    store = MemoryStore(256 * 1024, 64 * 1024)
    store.advance([], 10)
    store.insert(7, 5, 0, b"x5")
    return store


@pytest.fixture
def misses() -> list[Any]:
    return []


@pytest.fixture
def reader(store, misses):
    def miss(*arguments: Any) -> str:
        misses.append(arguments)
        return "missed"

    return PinnedReader(store, miss)


def test_reads_nothing_before_it_is_pinned(reader, misses):
    assert reader.at < 0
    assert reader(X) == "missed"
    assert misses == [(X,)]


@pytest.mark.parametrize("arguments", [(X,), (X, "")])
def test_a_hit(reader, misses, arguments):
    reader.at = 10
    assert reader(*arguments) == (b"x5", to_bytes(5))
    assert misses == []


@pytest.mark.parametrize("at", [4, 11, -1])
def test_what_is_not_visible_there_is_a_miss(reader, misses, at):
    reader.at = at
    assert reader(X, "") == "missed"
    assert misses == [(X, "")]


@pytest.mark.parametrize("oid", [b"short", None, 7, b"", b"nine bytes"])
def test_what_is_no_oid_is_for_the_miss_to_judge(reader, misses, oid):
    reader.at = 10
    assert reader(oid) == "missed"
    assert misses == [(oid,)]


def test_keywords_go_to_the_miss(store):
    reader = PinnedReader(store, lambda oid, version="": (oid, version))
    reader.at = 10
    assert reader(X, version="v") == (X, "v")


def test_a_store_is_wanted():
    with pytest.raises(TypeError):
        PinnedReader(object(), print)


def test_the_point_is_a_number(reader):
    with pytest.raises(TypeError):
        reader.at = "10"
