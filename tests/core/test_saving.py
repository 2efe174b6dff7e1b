"""What of the memory tier goes into the file, and what the file hears of its requests."""

from __future__ import annotations

import random
from array import array

import pytest

from zodbcache._core._store import Batch
from zodbcache._core._store import Deltas
from zodbcache.ids import to_bytes
from zodbcache.store import MemoryStore

LIMIT_BYTES = 1 << 20
REMEMBERED = LIMIT_BYTES // 2048
"""So many oids are remembered; more are searched for."""

LATEST = 2**63 - 1
ALL = 10**9
STATE = random.Random(0).randbytes(1 << 16)


class CheckedStore(MemoryStore):
    """Walks all its invariants after each call that changes what the file lacks."""

    def _checked(name):
        def call(self, *arguments):
            try:
                return getattr(MemoryStore, name)(self, *arguments)
            finally:
                self.check()

        return call

    for _name in (
        "take_unsaved",
        "return_unsaved",
        "pack",
        "mark_unsaved",
        "restore_batch",
        "heated",
    ):
        locals()[_name] = _checked(_name)
    del _checked, _name


@pytest.fixture
def store():
    store = CheckedStore(LIMIT_BYTES, LIMIT_BYTES // 8)
    store.restart(10)
    yield store
    store.check()


def oids_of(taken):
    return array("q", taken).tolist()


def fill(store, oids, tid=5, size=100):
    for oid in oids:
        assert store.insert(oid, tid, 0, STATE[oid % 100 :][:size])


def save(store, through=LATEST):
    """Everything, in one batch."""
    return store.pack(store.take_unsaved(), 0, through, ALL)[0]


def packed(*oids):
    return array("q", oids).tobytes()


def oids_in(batch):
    return [row[0] for row in batch.rows()]


class TestTaking:
    def test_nothing(self, store):
        assert store.take_unsaved() == b""

    def test_ascending_and_each_once(self, store):
        fill(store, [3, -1, 2**63 - 1, -(2**63), 0])
        fill(store, [3], tid=6)
        assert oids_of(store.take_unsaved()) == [-(2**63), -1, 0, 3, 2**63 - 1]

    def test_only_what_came_since(self, store):
        fill(store, range(5))
        store.take_unsaved()
        fill(store, range(10, 13))
        assert oids_of(store.take_unsaved()) == [10, 11, 12]
        assert store.take_unsaved() == b""
        assert store.unsaved_bytes == 800, "to take is not to save"

    def test_what_is_restored_or_closed_or_gone_is_not_packed(self, store):
        fill(store, range(5))
        store.insert(10, 3, 5, b"closed")
        store.restore(11, 5, b"restored", 3)
        store.promote(12, 5, b"promoted", 3)
        store.forget(1)
        store.advance([([to_bytes(2)], 11, True), ([to_bytes(3)], 11, False)], 11)
        assert oids_in(save(store)) == [0, 4]
        assert store.unsaved_bytes == 0

    @pytest.mark.parametrize("extra", [0, 1, 3 * REMEMBERED])
    def test_more_than_are_remembered(self, store, extra):
        count = REMEMBERED + extra
        fill(store, range(count))
        assert oids_of(store.take_unsaved()) == list(range(count))
        fill(store, [-7])
        assert oids_of(store.take_unsaved()) == [-7], "what overflowed has been taken"

    def test_often_the_same_one(self, store):
        """Each time takes a place; the list overflows, and nothing is lost."""
        for tid in range(1, 2 * REMEMBERED):
            store.insert(1, tid, 0, b"x")
        fill(store, [2])
        assert oids_of(store.take_unsaved()) == [1, 2]

    def test_searching_finds_only_what_is_unsaved(self, store):
        fill(store, range(2 * REMEMBERED))
        save(store)
        fill(store, range(1, 2 * REMEMBERED, 2), tid=6)
        store.return_unsaved(packed(2), 0)
        fill(store, range(1, 2 * REMEMBERED, 2), tid=7)
        assert oids_of(store.take_unsaved()) == [1, 2, *range(3, 2 * REMEMBERED, 2)]

    def test_nothing_is_unsaved_in_a_store_that_was_emptied(self, store):
        for empty in (store.clear, lambda: store.restart(20)):
            fill(store, range(2 * REMEMBERED))
            empty()
            assert store.unsaved_bytes == 0
            assert store.take_unsaved() == b""


class TestReturning:
    """The file has not got them, be they packed or not."""

    def test_from_a_position_on(self, store):
        fill(store, range(5))
        taken = store.take_unsaved()
        store.return_unsaved(taken, 3)
        assert oids_of(store.take_unsaved()) == [3, 4]
        store.return_unsaved(taken, 5)
        store.return_unsaved(taken, 10**12)
        store.return_unsaved(b"", 0)
        store.return_unsaved(b"1234567", 0)
        assert store.take_unsaved() == b""

    def test_with_what_came_meanwhile(self, store):
        fill(store, range(5))
        taken = store.take_unsaved()
        fill(store, range(3, 8), tid=6)
        store.return_unsaved(taken, 0)
        assert oids_of(store.take_unsaved()) == list(range(8))

    def test_more_than_are_remembered(self, store):
        fill(store, range(3 * REMEMBERED))
        taken = store.take_unsaved()
        batch, position = store.pack(taken, 0, LATEST, 100)
        assert (len(batch), position) == (1, 1)
        store.return_unsaved(taken, position)
        assert oids_of(store.take_unsaved()) == list(range(1, 3 * REMEMBERED))

    def test_what_was_never_there(self, store):
        store.return_unsaved(packed(1, 2, 3), 1)
        assert store.take_unsaved() == b""

    def test_what_was_packed(self, store):
        fill(store, range(5))
        taken = store.take_unsaved()
        batch, position = store.pack(taken, 0, LATEST, ALL)
        assert (position, store.unsaved_bytes) == (5, 0)
        store.return_unsaved(taken, 0)
        assert store.unsaved_bytes == 500
        store.return_unsaved(taken, 0)
        assert store.unsaved_bytes == 500, "counted once"
        assert save(store).rows() == batch.rows()

    def test_what_was_packed_in_part(self, store):
        fill(store, range(6))
        taken = store.take_unsaved()
        _, first = store.pack(taken, 0, LATEST, 200)
        _, second = store.pack(taken, first, LATEST, 200)
        assert (first, second, store.unsaved_bytes) == (2, 4, 200)
        store.return_unsaved(taken, first)
        assert store.unsaved_bytes == 400
        assert oids_in(save(store)) == [2, 3, 4, 5]

    def test_what_was_packed_and_has_changed(self, store):
        fill(store, range(5))
        taken = store.take_unsaved()
        store.pack(taken, 0, LATEST, ALL)
        fill(store, [1], tid=9)
        store.forget(2)
        store.advance([([to_bytes(3)], 11, True)], 11)
        store.return_unsaved(taken, 0)
        assert store.unsaved_bytes == 300
        assert [row[:2] for row in save(store).rows()] == [(0, 5), (1, 9), (4, 5)]

    def test_more_than_are_remembered_of_what_was_packed(self, store):
        fill(store, range(2 * REMEMBERED))
        taken = store.take_unsaved()
        batch, _ = store.pack(taken, 0, LATEST, ALL)
        assert len(batch) == 2 * REMEMBERED
        store.return_unsaved(taken, 0)
        assert save(store).rows() == batch.rows()

    def test_all_of_them(self, store):
        fill(store, range(3))
        store.insert(7, 3, 5, b"closed")
        store.restore(8, 5, b"restored", 1)
        save(store)
        store.mark_unsaved()
        assert store.unsaved_bytes == 300 + len(b"restored")
        fill(store, [9])
        assert oids_in(save(store)) == [0, 1, 2, 8, 9]
        assert save(store).rows() == []


class TestPacking:
    def test_gives_revisions_as_they_are_and_has_them_saved(self, store):
        fill(store, range(3), size=50)
        for _ in range(4):
            store.load_before(to_bytes(1), to_bytes(11))
        batch = save(store)
        assert [row[:2] + row[3:] for row in batch.rows()] == [
            (oid, 5, STATE[oid:][:50]) for oid in range(3)
        ]
        asked_for = {oid: frequency for oid, _, frequency, _ in batch.rows()}
        assert asked_for[1] == store.peek(1)[1] > asked_for[0] == store.peek(0)[1]
        assert store.unsaved_bytes == 0
        assert save(store).rows() == []

    def test_until_there_are_so_many_bytes(self, store):
        fill(store, range(10))
        taken = store.take_unsaved()
        position, packed = 0, []
        while position < 10:
            batch, position = store.pack(taken, position, LATEST, 250)
            packed.append(oids_in(batch))
        assert packed == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]

    def test_no_bytes_at_all(self, store):
        fill(store, range(3))
        batch, position = store.pack(store.take_unsaved(), 0, LATEST, 0)
        assert (len(batch), position) == (0, 0)
        assert store.unsaved_bytes == 300

    def test_only_what_is_proven(self, store):
        """I1: what is newer than the file's next checkpoint is for the next time."""
        fill(store, [1, 3], tid=10)
        fill(store, [2, 4], tid=11)
        batch, position = store.pack(store.take_unsaved(), 0, 10, ALL)
        assert (oids_in(batch), position) == ([1, 3], 4)
        assert store.unsaved_bytes == 200
        assert oids_of(store.take_unsaved()) == [2, 4]

    def test_from_a_position_beyond_the_end(self, store):
        fill(store, range(3))
        taken = store.take_unsaved()
        assert store.pack(taken, 3, LATEST, ALL)[1] == 3
        assert store.pack(taken, 10**12, LATEST, ALL)[1] == 3
        assert store.pack(taken[:-1], 2, LATEST, ALL)[1] == 2, "half an oid is none"
        assert oids_in(store.pack(taken, 2, LATEST, ALL)[0]) == [2]

    def test_what_changed_between_taking_and_packing(self, store):
        fill(store, range(4))
        taken = store.take_unsaved()
        fill(store, [1], tid=9)
        store.forget(2)
        store.advance([([to_bytes(3)], 11, True)], 11)
        assert [row[:2] for row in store.pack(taken, 0, LATEST, ALL)[0].rows()] == [(0, 5), (1, 9)]
        assert save(store).rows() == [], "1 was saved as it is now"

    def test_blocks_that_slid_meanwhile(self, store):
        """A batch has copies, and a list of oids no addresses: compaction may come between."""
        chance = random.Random(3)
        sizes = {oid: chance.randrange(20, 3000) for oid in range(600)}
        for oid, size in sizes.items():
            store.insert(oid, 5, 0, STATE[oid:][:size])
        taken = store.take_unsaved()
        batch, _ = store.pack(taken, 0, LATEST, 50_000)
        moved_bytes = store.stats()["moved_bytes"]
        for oid in range(0, 600, 2):
            store.forget(oid)
        for oid in range(1000, 1050):
            store.insert(oid, 6, 0, STATE[:15_000])
            store.load_before(to_bytes(oid), to_bytes(11))
        assert store.stats()["moved_bytes"] > moved_bytes, "nothing slid"
        for oid, tid, _, state in batch.rows():
            assert (tid, state) == (5, STATE[oid:][: sizes[oid]])
        store.return_unsaved(taken, 0)
        left = save(store).rows()
        assert left
        for oid, _, _, state in left:
            assert state == (STATE[oid:][: sizes[oid]] if oid < 1000 else STATE[:15_000])
        assert store.unsaved_bytes == 0


class TestRestoring:
    def restore(self, store, rows, *, named=(), known=10):
        changed = Deltas()
        changed.update(list(named))
        return store.restore_batch(Batch(rows), changed, known)

    def test_as_saved(self, store):
        assert self.restore(store, [(1, 5, 3, b"x5"), (2, 4, 0, b"y4")])
        assert [store.peek(oid)[::2] for oid in (1, 2)] == [(5, b"x5"), (4, b"y4")]
        assert store.unsaved_bytes == 0
        assert save(store).rows() == []

    def test_nothing_that_was_named_since(self, store):
        """I2: a name up to what is known of the file says nothing; a later one all."""
        rows = [(oid, 5, 1, b"x") for oid in range(5)]
        assert self.restore(store, rows, named=[(0, 3), (1, 5), (2, 8), (3, 9)], known=8)
        assert [oid for oid in range(5) if store.peek(oid)] == [0, 1, 2, 4]

    def test_a_row_that_is_what_was_named(self, store):
        assert self.restore(store, [(1, 9, 1, b"x")], named=[(1, 9)], known=8)
        assert store.peek(1)[0] == 9

    def test_nothing_over_what_is_newer(self, store):
        store.insert(1, 8, 0, b"x8")
        store.insert(2, 5, 0, b"y5")
        assert self.restore(store, [(1, 5, 3, b"x5"), (2, 5, 3, b"y5")])
        assert oids_in(save(store)) == [1, 2], "what memory had first is unsaved still"

    def test_until_it_is_full(self, store):
        rows = [(oid, 5, 1, STATE[:3000]) for oid in range(1000)]
        assert not self.restore(store, rows)
        held = [oid for oid in range(1000) if store.peek(oid)]
        assert held == list(range(len(held)))
        assert store.stats()["evictions"] == 0
        assert store.stats()["used_bytes"] > 0.95 * LIMIT_BYTES

    def test_what_is_too_long_is_no_reason_to_stop(self, store):
        rows = [(1, 5, 1, bytes(LIMIT_BYTES // 8 + 1)), (2, 5, 1, b"y")]
        assert self.restore(store, rows)
        assert (store.peek(1), store.peek(2)[0]) == (None, 5)

    def test_nothing(self, store):
        assert self.restore(store, [])


class TestHeat:
    """What the file does not know of requests."""

    def request(self, store, oid, times):
        for _ in range(times):
            assert store.load_before(to_bytes(oid), to_bytes(11))

    def heated(self, store, *, slots=10**6, faded=0):
        found, position = store.heated(0, slots, faded)
        while position:
            more, position = store.heated(position, slots, faded)
            found += more
        return {oid: (tid, gain) for oid, tid, gain in found}

    def test_what_was_asked_for_since_it_was_saved(self, store):
        fill(store, range(4))
        save(store)
        assert self.heated(store) == {}
        told = store.peek(2)[1]
        self.request(store, 2, 6)
        assert self.heated(store) == {2: (5, store.peek(2)[1] - told)}
        assert self.heated(store) == {}, "told once"
        self.request(store, 2, 1)
        assert self.heated(store) == {}, "not worth telling"

    def test_what_was_restored(self, store):
        store.restore_batch(Batch([(1, 5, 4, b"x"), (2, 5, 4, b"y")]), Deltas(), 10)
        assert self.heated(store) == {}
        self.request(store, 1, 15)
        assert self.heated(store) == {1: (5, 15 - 4)}

    def test_what_was_promoted(self, store):
        store.promote(1, 5, b"x", 0)
        self.request(store, 1, 9)
        assert self.heated(store) == {1: (5, store.peek(1)[1])}

    def test_what_the_file_has_forgotten(self, store):
        store.restore_batch(Batch([(1, 5, 12, b"x")]), Deltas(), 10)
        assert self.heated(store, faded=2) == {}
        assert self.heated(store, faded=9) == {1: (5, 12 - 3)}
        assert self.heated(store, faded=LATEST) == {1: (5, 12)}

    def test_not_what_the_file_lacks(self, store):
        fill(store, [1])
        self.request(store, 1, 15)
        store.insert(2, 3, 9, b"closed")
        assert self.heated(store) == {}
        batch = save(store)
        assert batch.rows()[0][2] == 15, "it is told with the row"
        assert self.heated(store) == {}

    def test_a_few_slots_at_a_time(self, store):
        fill(store, range(300))
        save(store)
        for oid in range(300):
            self.request(store, oid, 5)
        assert set(self.heated(store, slots=7)) == set(range(300))

    def test_more_slots_than_there_are(self, store):
        fill(store, range(300))
        save(store)
        for oid in range(300):
            self.request(store, oid, 5)
        found, position = store.heated(0, LATEST, 0)
        assert (len(found), position) == (300, 0)

    def test_positions(self, store):
        fill(store, range(3))
        assert store.heated(0, 0, 0) == ([], 0)
        assert store.heated(5, 0, 0) == ([], 5)
        assert store.heated(LATEST, 1, 0) == ([], 0)
        assert store.heated(0, 3, 0)[1] == 3
        fill(store, range(3, 2000), size=1)
        assert store.heated(500, 10**6, 0)[1] == 0, "the table grew meanwhile"


@pytest.mark.parametrize("seed", range(3))
def test_a_save_after_any_of_them_leaves_nothing_out(seed):
    """Against dicts of what memory got, and of what the file has."""
    chance = random.Random(seed)
    store = MemoryStore(LIMIT_BYTES, LIMIT_BYTES // 8)
    tid = 1
    store.restart(tid)
    current, in_file = {}, {}
    taken, position = b"", 0
    for step in range(3000):
        oid = chance.randrange(1500)
        action = chance.random()
        if action < 0.6:
            current.setdefault(oid, tid)
            store.insert(oid, current[oid], 0, STATE[oid:][: 20 + oid])
        elif action < 0.7:
            tid += 1
            changed = chance.sample(range(1500), 20)
            for one in changed:
                current.pop(one, None)
            store.advance([([to_bytes(one) for one in changed], tid, True)], tid)
        elif action < 0.75:
            store.return_unsaved(taken, position)
            taken, position = store.take_unsaved(), 0
        elif action < 0.95:
            batch, after = store.pack(taken, position, tid, chance.randrange(20_000))
            if chance.random() < 0.3:
                store.return_unsaved(taken, position)
                taken, position = b"", 0
            else:
                in_file.update((row[0], row[1]) for row in batch.rows())
                position = after
        elif action < 0.97:
            store.reserve(chance.randrange(LIMIT_BYTES // 2))
        elif action < 0.98:
            store.mark_unsaved()
            in_file.clear()
        if step % 100 == 0:
            store.check()
    store.return_unsaved(taken, position)
    for oid, saved, _, state in save(store).rows():
        assert state == STATE[oid:][: 20 + oid]
        in_file[oid] = saved
    store.check()
    assert store.unsaved_bytes == 0
    held = {oid: store.peek(oid)[0] for oid in range(1500) if store.peek(oid)}
    assert len(held) > 100
    assert held == {oid: in_file.get(oid) for oid in held}
