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
    reader.pin(10, 0)
    assert reader(*arguments) == (b"x5", to_bytes(5))
    assert misses == []


@pytest.mark.parametrize("at", [4, 11, -1])
def test_what_is_not_visible_there_is_a_miss(reader, misses, at):
    if at >= 0:
        reader.pin(at, 0)
    assert reader(X, "") == "missed"
    assert misses == [(X, "")]


@pytest.mark.parametrize("oid", [b"short", None, 7, b"", b"nine bytes"])
def test_what_is_no_oid_is_for_the_miss_to_judge(reader, misses, oid):
    reader.pin(10, 0)
    assert reader(oid) == "missed"
    assert misses == [(oid,)]


def test_keywords_go_to_the_miss(store):
    reader = PinnedReader(store, lambda oid, version="": (oid, version))
    reader.pin(10, 0)
    assert reader(X, version="v") == (X, "v")


def test_a_store_is_wanted():
    with pytest.raises(TypeError):
        PinnedReader(object(), print)


def test_the_point_is_a_number(reader):
    for at, history in (("10", 0), (10, "0"), (10, None)):
        with pytest.raises(TypeError):
            reader.pin(at, history)
    with pytest.raises(ValueError):
        reader.pin(-1, 0)
    assert reader.at < 0


def test_nothing_is_read_of_another_history(store, reader, misses):
    reader.pin(10, store.history)
    before = store.history
    store.restart(10)
    store.insert(7, 5, 0, b"other")
    assert reader.at < 0
    assert reader(X) == "missed"
    reader.pin(10, before)
    assert reader(X) == "missed"
    reader.pin(10, store.history)
    assert reader(X) == (b"other", to_bytes(5))


def test_unpinned(reader, misses):
    reader.pin(10, 0)
    reader.unpin()
    assert reader.at < 0
    assert reader(X) == "missed"
