"""The deltas against a dict."""

from __future__ import annotations

import random

import pytest

from zodbcache._core._store import Deltas
from zodbcache.ids import to_bytes
from zodbcache.ids import to_int

EDGES = [to_bytes(0), to_bytes(1), to_bytes(2**63 - 1), to_bytes(-(2**63)), b"\xff" * 8]
SLOT_BYTES = 16


@pytest.fixture
def deltas():
    return Deltas()


def test_begins_empty(deltas):
    assert len(deltas) == 0
    assert deltas.size_bytes == 0
    assert deltas.get(1) == 0
    assert deltas.since(0) == []
    deltas.trim(5)
    assert len(deltas) == 0


def test_every_oid_can_be_named(deltas):
    deltas.name(EDGES, 5)
    assert [deltas.get(to_int(oid)) for oid in EDGES] == [5] * len(EDGES)
    assert deltas.get(2) == 0
    assert sorted(deltas.since(4)) == sorted((to_int(oid), 5) for oid in EDGES)


def test_the_greater_tid_stays(deltas):
    deltas.name([to_bytes(1)], 5)
    deltas.name([to_bytes(1)], 3)
    assert deltas.get(1) == 5
    deltas.name([to_bytes(1), to_bytes(1)], 8)
    assert deltas.get(1) == 8
    assert len(deltas) == 1


def test_since_means_after(deltas):
    for tid in (3, 5, 7):
        deltas.name([to_bytes(tid)], tid)
    assert sorted(deltas.since(4)) == [(5, 5), (7, 7)]
    assert sorted(deltas.since(5)) == [(7, 7)]
    assert deltas.since(7) == []


def test_trim_forgets_what_was_named_up_to_the_tid(deltas):
    for tid in (3, 5, 7):
        deltas.name([to_bytes(tid)], tid)
    deltas.trim(5)
    assert sorted(deltas.since(0)) == [(7, 7)]
    assert [deltas.get(oid) for oid in (3, 5, 7)] == [0, 0, 7]
    deltas.trim(2**63 - 1)
    assert len(deltas) == 0
    assert deltas.size_bytes == 0


def test_naming_nothing(deltas):
    deltas.name([], 5)
    assert len(deltas) == 0


def test_takes_other_sequences_than_lists(deltas):
    deltas.name((to_bytes(1), to_bytes(2)), 5)
    assert sorted(deltas.since(0)) == [(1, 5), (2, 5)]


def test_size_follows_what_is_named(deltas):
    """I5: what it says it takes is what it takes, and it gives it back."""
    sizes = []
    for count in (1, 100, 10_000):
        deltas.name([to_bytes(oid) for oid in range(count)], 5)
        assert len(deltas) == count
        assert deltas.size_bytes >= count * SLOT_BYTES
        sizes.append(deltas.size_bytes)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] <= 3 * 10_000 * SLOT_BYTES
    deltas.name([to_bytes(1)], 6)
    deltas.trim(5)
    assert deltas.size_bytes <= sizes[0]


@pytest.mark.parametrize(
    ("oids", "tid", "error"),
    [
        (None, 5, TypeError),
        ([1], 5, TypeError),
        ([b"short"], 5, ValueError),
        ([to_bytes(1)], None, TypeError),
        ([to_bytes(1)], b"12345678", TypeError),
        ([to_bytes(1)], 2**63, OverflowError),
    ],
)
def test_bad_arguments_name_nothing(deltas, oids, tid, error):
    with pytest.raises(error):
        deltas.name(oids, tid)
    assert len(deltas) == 0
    assert deltas.since(0) == []


@pytest.mark.parametrize("seed", range(10))
def test_against_a_dict(deltas, seed):
    chance = random.Random(seed)
    oids = [to_int(chance.randbytes(8)) for _ in range(300)] + list(range(300))
    model = {}
    now = 1
    for _ in range(2000):
        action = chance.random()
        if action < 0.6:
            now += chance.randrange(3)
            tid = max(now - chance.randrange(5), 1)
            named = chance.sample(oids, chance.randrange(0, 20))
            deltas.name([to_bytes(oid) for oid in named], tid)
            for oid in named:
                model[oid] = max(model.get(oid, 0), tid)
        elif action < 0.8:
            oid = chance.choice(oids)
            assert deltas.get(oid) == model.get(oid, 0)
        elif action < 0.98:
            since = max(now - chance.randrange(0, 40), 0)
            expected = sorted((oid, tid) for oid, tid in model.items() if tid > since)
            assert sorted(deltas.since(since)) == expected
        else:
            bound = max(now - chance.randrange(0, 60), 0)
            deltas.trim(bound)
            model = {oid: tid for oid, tid in model.items() if tid > bound}
        assert len(deltas) == len(model)
        assert deltas.size_bytes >= SLOT_BYTES * len(model)
    assert {oid: deltas.get(oid) for oid in model} == model


def test_names_with_a_tid_each(deltas):
    deltas.name([to_bytes(1)], 7)
    deltas.update([(1, 5), (2, 6), [3, 8]])
    assert sorted(deltas.since(0)) == [(1, 7), (2, 6), (3, 8)]


@pytest.mark.parametrize("names", [[(1,)], [1], [(1, -5)], [("1", 5)], 3])
def test_what_is_no_name_is_refused(deltas, names):
    with pytest.raises((TypeError, ValueError)):
        deltas.update(names)
    assert len(deltas) == 0
