"""The memory tier under churn: never over its limit, nearly full, and worth its memory.

Seeded, so that a failure comes again.
"""

from __future__ import annotations

import random

import pytest
import ZODB.utils
from ZODB.Connection import TransactionMetaData
from ZODB.MappingStorage import MappingStorage

import zodbcache
from zodbcache.ids import to_bytes
from zodbcache.store import MemoryStore

MB = 1_000_000
LIMIT_BYTES = 4 * MB
STATE = bytes(random.Random(0).randbytes(1 << 20))


def log_uniform(chance, least, most):
    """Small sizes are as common as large ones, as pickles are."""
    return int(least * (most / least) ** chance.random())


def check_bounds(store):
    stats = store.stats()
    assert stats["used_bytes"] + stats["hole_bytes"] <= stats["limit_bytes"], "I5"
    assert stats["state_bytes"] < stats["used_bytes"]
    return stats


def churn(store, chance, limits, least, most, *, first_oid=0):
    """Insert states until *limits* times the limit has gone in; return the next oid."""
    left = limits * store.limit_bytes
    oid = first_oid
    while left > 0:
        size = log_uniform(chance, least, most)
        store.insert(oid, 1, 0, STATE[:size])
        store.load_before(to_bytes(chance.randrange(max(oid - 500, 0), oid + 1)), to_bytes(2))
        check_bounds(store)
        left -= size
        oid += 1
        if oid % 997 == 0:
            store.check()
    store.check()
    return oid


def fill_share(store):
    stats = store.stats()
    return stats["used_bytes"] / stats["limit_bytes"]


def state_share(store):
    stats = store.stats()
    return stats["state_bytes"] / stats["limit_bytes"]


class TestBounds:
    @pytest.mark.parametrize("seed", range(3))
    def test_every_size_from_50_bytes_to_a_megabyte(self, seed):
        chance = random.Random(seed)
        store = MemoryStore(16 * MB, 1 << 20)
        store.restart(10)
        churn(store, chance, 4, 50, 1 << 20)
        assert store.stats()["evictions"] > 100

    @pytest.mark.parametrize("seed", range(6))
    def test_every_operation(self, seed):
        """Against a dict: what is held is what was put there last."""
        chance = random.Random(seed)
        store = MemoryStore(LIMIT_BYTES, LIMIT_BYTES // 8)
        current = {}  # oid: (tid, length)
        now = 1
        for step in range(6000):
            oid = chance.randrange(3000)
            action = chance.random()
            if action < 0.5:
                tid, size = current.setdefault(oid, (now, log_uniform(chance, 50, 100_000)))
                store.insert(oid, tid, 0, STATE[:size])
            elif action < 0.6:
                tid, size = current.setdefault(oid, (now, log_uniform(chance, 50, 100_000)))
                store.restore(oid, tid, STATE[:size], chance.randrange(16))
            elif action < 0.9:
                found = store.load_before(to_bytes(oid), to_bytes(now + 1))
                if found is not None:
                    tid, size = current[oid]
                    assert found == (STATE[:size], to_bytes(tid), None)
            elif action < 0.97:
                now += 1
                oids = chance.sample(range(3000), chance.randrange(1, 40))
                for changed in oids:
                    current.pop(changed, None)
                exact = chance.random() < 0.5
                store.advance([([to_bytes(changed) for changed in oids], now, exact)], now)
            elif action < 0.99:
                store.forget(oid)
            elif action < 0.998:
                store.reserve(chance.randrange(LIMIT_BYTES // 2))
            else:
                store.mark_unsaved()
            check_bounds(store)
            if step % 250 == 0:
                store.check()
        store.check()
        stats = store.stats()
        assert stats["hits"] > 100
        assert stats["evictions"] > 100

    @pytest.mark.parametrize("seed", range(3))
    def test_the_limit_holds_while_the_bookkeeping_grows(self, seed):
        """Many tiny states: the table and the sketch take their part from the same limit."""
        store = MemoryStore(LIMIT_BYTES, LIMIT_BYTES // 8)
        chance = random.Random(seed)
        oid = churn(store, chance, 0.5, 20_000, 100_000)
        entries = store.stats()["entries"]
        churn(store, chance, 1, 1, 60, first_oid=oid)
        stats = store.stats()
        assert stats["entries"] > 20 * entries
        assert stats["used_bytes"] - stats["state_bytes"] <= 60 * stats["entries"]


class TestRevisions:
    """Few objects, many revisions: a miss is allowed, a wrong one never (I1, I2)."""

    OBJECTS = 12

    def state_of(self, oid, tid):
        return STATE[oid * 1000 + tid :][: (oid * 7919 + tid * 104729) % 9000]

    def check_visible(self, store, tids, oid, before):
        found = store.load_before(to_bytes(oid), to_bytes(before))
        if found is None:
            return
        state, tid, end = found
        older = [tid for tid in tids if tid < before]
        newer = [tid for tid in tids if tid >= before]
        assert older and tid == to_bytes(older[-1])
        assert state == self.state_of(oid, older[-1])
        if end is None:
            assert not newer and before - 1 <= store.checkpoint
        else:
            assert end == to_bytes(newer[0])

    @pytest.mark.parametrize("seed", range(20))
    def test_against_all_there_ever_were(self, seed):
        chance = random.Random(seed)
        store = MemoryStore(256 << 10, 30_000)
        history = {oid: [] for oid in range(self.OBJECTS)}  # tids, ascending
        now = 0
        for step in range(1500):
            oid = chance.randrange(self.OBJECTS)
            tids = history[oid]
            action = chance.random()
            if action < 0.2:
                now += chance.randrange(1, 3)
                oids = chance.sample(sorted(history), chance.randrange(1, 4))
                for changed in oids:
                    history[changed].append(now)
                exact = chance.random() < 0.7
                store.advance([([to_bytes(changed) for changed in oids], now, exact)], now)
            elif action < 0.6 and tids:
                index = chance.randrange(len(tids))
                end = tids[index + 1] if index + 1 < len(tids) else 0
                store.insert(oid, tids[index], end, self.state_of(oid, tids[index]))
            elif action < 0.65 and tids:
                store.restore(oid, tids[-1], self.state_of(oid, tids[-1]), chance.randrange(16))
            elif action < 0.67:
                store.forget(oid)
            elif action < 0.68:
                store.reserve(chance.randrange(100_000))
            elif action < 0.682:
                store.restart(now)
            else:
                for before in range(max(now - 4, 0), now + 3):
                    self.check_visible(store, tids, oid, before)
            if step % 50 == 0:
                store.check()
        assert store.stats()["hits"] > 200

    def test_the_newest_eight_closed_ones_are_kept(self):
        store = MemoryStore(256 << 10, 30_000)
        for tid in range(11, 1, -1):
            store.insert(1, tid, tid + 1, b"state")
        held = [t for t in range(1, 12) if store.load_before(to_bytes(1), to_bytes(t + 1))]
        assert held == list(range(4, 12))


class TestFilling:
    @pytest.mark.parametrize("seed", range(3))
    def test_stays_full_under_churn(self, seed):
        store = MemoryStore(LIMIT_BYTES, 64 << 10)
        churn(store, random.Random(seed), 20, 50, 16 << 10)
        assert fill_share(store) >= 0.95
        assert state_share(store) >= 0.90

    @pytest.mark.parametrize(
        ("first", "then"),
        [
            ((50, 500), (8 << 10, 16 << 10)),
            ((8 << 10, 16 << 10), (50, 500)),
            ((1000, 1100), (1900, 2300)),
            ((50, 16 << 10), (30_000, 60_000)),
        ],
    )
    def test_stays_full_when_all_sizes_change(self, first, then):
        chance = random.Random(1)
        store = MemoryStore(LIMIT_BYTES, 64 << 10)
        oid = churn(store, chance, 3, *first)
        churn(store, chance, 4, *then, first_oid=oid)
        assert fill_share(store) >= 0.85


class TestWorkingSet:
    """What is read often outlives what is read once."""

    OBJECTS = 400
    STATE_BYTES = 2000

    def read(self, storage, oids):
        """The share of *oids* that a read finds in memory."""
        before = storage.cache_stats()
        at = ZODB.utils.p64(ZODB.utils.u64(storage.lastTransaction()) + 1)
        for oid in oids:
            assert storage.loadBefore(oid, at) is not None
        after = storage.cache_stats()
        hits, misses = (after[name] - before[name] for name in ("hits", "misses"))
        assert hits + misses == len(oids)
        return hits / len(oids)

    def commit(self, storage, states):
        transaction = TransactionMetaData()
        storage.tpc_begin(transaction)
        for oid, state in states:
            storage.store(oid, ZODB.utils.z64, state, "", transaction)
        storage.tpc_vote(transaction)
        return storage.tpc_finish(transaction)

    @pytest.fixture
    def base(self):
        """A base with many more objects than the cache takes, written past it."""
        base = MappingStorage()
        self.working_set = [to_bytes(oid) for oid in range(1, self.OBJECTS + 1)]
        self.others = [to_bytes(oid) for oid in range(10_000, 20_000)]
        everything = self.working_set + self.others
        self.commit(base, [(oid, STATE[: self.STATE_BYTES]) for oid in everything])
        return base

    @pytest.fixture
    def storage(self, base):
        """The working set is a fifth of the memory, and has been read often."""
        storage = zodbcache.wrap(base, cache_local_mb=4, cache_local_object_max=64 << 10)
        for _ in range(5):
            self.read(storage, self.working_set)
        assert self.read(storage, self.working_set) == 1
        yield storage
        storage.close()

    def test_outlives_a_scan(self, storage):
        self.read(storage, self.others)
        assert storage.cache_stats()["evictions"] > 5000
        assert self.read(storage, self.working_set) >= 0.98

    def test_outlives_several_scans(self, storage):
        for _ in range(4):
            self.read(storage, self.others)
            assert self.read(storage, self.working_set) >= 0.95

    def test_outlives_a_scan_that_it_is_read_during(self, storage):
        found = []
        for start in range(0, len(self.others), 500):
            self.read(storage, self.others[start : start + 500])
            found.append(self.read(storage, self.working_set))
        assert min(found) >= 0.95

    def test_outlives_a_huge_own_transaction_of_large_states(self, storage):
        self.commit(storage, [(to_bytes(oid), STATE[:50_000]) for oid in range(30_000, 31_000)])
        assert self.read(storage, self.working_set) >= 0.98

    def test_outlives_a_huge_own_transaction_of_many_objects(self, storage):
        self.commit(storage, [(to_bytes(oid), STATE[:100]) for oid in range(30_000, 50_000)])
        assert self.read(storage, self.working_set) >= 0.9

    def test_outlives_an_own_transaction_of_more_objects_than_the_deltas_hold(self, storage):
        states = [(to_bytes(oid), STATE[:100]) for oid in range(30_000, 150_000)]
        self.commit(storage, states)
        assert self.read(storage, self.working_set) >= 0.9

    def test_many_changes_leave_room_in_a_small_memory(self, base):
        """I5: what the deltas take counts, and does not starve the cache."""
        storage = zodbcache.wrap(base, cache_local_mb=1)
        for start in range(30_000, 90_000, 1000):
            oids = range(start, start + 1000)
            self.commit(storage, [(to_bytes(oid), STATE[:10]) for oid in oids])
            stats = storage.cache_stats()
            assert stats["used_bytes"] <= 1.05 * stats["limit_bytes"]
        newest = self.working_set[:1]
        self.read(storage, newest)
        assert self.read(storage, newest) == 1
        assert stats["entries"] > 2000
        storage.close()

    @pytest.mark.parametrize("rounds", [5, 100])
    def test_enters_a_memory_full_of_tiny_states_read_twice(self, rounds):
        store = MemoryStore(MB, MB // 8)
        store.restart(10)
        for oid in range(30_000, 60_000):
            store.insert(oid, 1, 0, STATE[:10])
            store.load_before(to_bytes(oid), to_bytes(5))
        found = 0
        for _ in range(rounds):
            found = 0
            for oid in range(100):
                if store.load_before(to_bytes(oid), to_bytes(5)):
                    found += 1
                else:
                    store.insert(oid, 1, 0, STATE[: self.STATE_BYTES])
        assert found >= 90

    def test_gives_way_when_the_readers_turn_to_something_else(self, storage):
        """The other side: frequencies age, the cache is no museum."""
        new = self.others[:1200]
        for _ in range(40):
            self.read(storage, new)
        assert self.read(storage, new) >= 0.9
