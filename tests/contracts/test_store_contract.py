"""IStore, sentence by sentence, over every implementation."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
from zope.interface.verify import verifyClass
from zope.interface.verify import verifyObject

from zodbcache._core._store import Batch
from zodbcache._core._store import Deltas
from zodbcache.ids import to_bytes
from zodbcache.ids import to_int
from zodbcache.interfaces import IStore
from zodbcache.store import MemoryStore
from zodbcache.tempstore import TempStore

IMPLEMENTATIONS: tuple[Callable[[int, int], Any], ...] = (MemoryStore, TempStore)
"""Each takes *limit_bytes* and *object_max_bytes*."""

LEAST_KEPT = {MemoryStore: 150, TempStore: 120}
"""States of 1,000 bytes that the least limit has room for: pages are large beside it."""

LIMIT_BYTES = 256 * 1024
OBJECT_MAX_BYTES = 64 * 1024
X = 7
Y = 8
HIGHEST_OID = b"\xff" * 8
LATEST = 2**63 - 1

Advance = tuple[list[bytes], int, bool]


def ended(*oids: int, at: int, exact: bool) -> list[Advance]:
    return [([to_bytes(oid) for oid in oids], at, exact)]


def load(store: Any, oid: int, before: int) -> Any:
    """``(state, tid, end)`` with int ids, or None."""
    found = store.load_before(to_bytes(oid), to_bytes(before))
    if found is None:
        return None
    state, tid, end = found
    return state, to_int(tid), end and to_int(end)


def load_at(store: Any, oid: int, at: int) -> Any:
    """``(state, tid)`` with an int tid, or None."""
    found = store.load_at(to_bytes(oid), at)
    return found and (found[0], to_int(found[1]))


def save(store: Any) -> tuple[bytes, Any]:
    """All that the file lacks is given to it: the oids, and a Batch."""
    oids = store.take_unsaved()
    return oids, store.pack(oids, 0, LATEST, LATEST)[0]


def unsaved(store: Any) -> list[int]:
    """The oids of what the file lacks, and goes on to lack."""
    oids, batch = save(store)
    store.return_unsaved(oids, 0)
    return [row[0] for row in batch.rows()]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=lambda one: one.__name__)
class TestStore:
    @pytest.fixture
    def make(self, implementation: Any) -> Any:
        def make(limit_bytes: int = LIMIT_BYTES, object_max_bytes: int = OBJECT_MAX_BYTES) -> Any:
            made.append(implementation(limit_bytes, object_max_bytes))
            return made[-1]

        made: list[Any] = []
        yield make
        for store in made:
            store.check()

    @pytest.fixture
    def store(self, make: Any) -> Any:
        """At checkpoint 10."""
        store = make()
        store.advance([], 10)
        return store

    def test_keeps_the_interface(self, store: Any) -> None:
        assert verifyObject(IStore, store)
        assert verifyClass(IStore, type(store))

    def test_begins_empty(self, make: Any) -> None:
        store = make()
        assert store.checkpoint == 0
        assert store.limit_bytes == LIMIT_BYTES
        assert unsaved(store) == []
        assert store.peek(X) is None
        assert load(store, X, 1) is None

    # What is visible

    def test_a_load_gives_eight_byte_ids(self, store: Any) -> None:
        store.insert(X, 5, 0, b"state")
        store.insert(Y, 5, 7, b"closed")
        assert store.load_before(to_bytes(X), to_bytes(11)) == (b"state", to_bytes(5), None)
        assert store.load_before(to_bytes(Y), to_bytes(7)) == (b"closed", to_bytes(5), to_bytes(7))

    def test_an_open_revision_is_visible_through_the_checkpoint(self, store: Any) -> None:
        assert store.insert(X, 5, 0, b"x5")
        assert load(store, X, 5) is None, "it begins at 5"
        assert load(store, X, 6) == (b"x5", 5, None)
        assert load(store, X, 11) == (b"x5", 5, None), "at 10, the checkpoint"
        assert load(store, X, 12) is None, "I1: nothing is known beyond"

    def test_an_open_revision_newer_than_the_checkpoint_is_not_visible_yet(
        self, store: Any
    ) -> None:
        assert store.insert(X, 12, 0, b"x12")
        assert load(store, X, 13) is None
        assert load(store, X, 11) is None
        store.advance([], 12)
        assert load(store, X, 13) == (b"x12", 12, None)

    def test_a_closed_revision_is_visible_up_to_its_end(self, store: Any) -> None:
        assert store.insert(X, 5, 8, b"x5")
        assert load(store, X, 5) is None
        assert load(store, X, 6) == (b"x5", 5, 8)
        assert load(store, X, 8) == (b"x5", 5, 8), "just before its end"
        assert load(store, X, 9) is None

    def test_a_closed_revision_needs_no_checkpoint(self, store: Any) -> None:
        assert store.insert(X, 20, 30, b"x20")
        assert load(store, X, 30) == (b"x20", 20, 30)

    def test_revisions_of_one_object_stand_side_by_side(self, store: Any) -> None:
        store.insert(X, 3, 5, b"x3")
        store.insert(X, 7, 0, b"x7")
        store.insert(X, 1, 2, b"x1")
        found = [load(store, X, before) for before in range(1, 12)]
        assert found == [
            None,
            (b"x1", 1, 2),
            None,
            (b"x3", 3, 5),
            (b"x3", 3, 5),
            None,
            None,
            *[(b"x7", 7, None)] * 4,
        ]

    def test_nothing_is_visible_before_the_beginning(self, store: Any) -> None:
        store.insert(X, 1, 2, b"closed")
        store.insert(X, 5, 0, b"open")
        assert load(store, X, 0) is None

    def test_nothing_is_visible_before_the_greatest_ids(self, store: Any) -> None:
        """A caller asking for the newest revision of all must reach the base storage."""
        store.insert(X, 5, 0, b"open")
        store.insert(Y, 5, 9, b"closed")
        for before in (b"\x7f" + b"\xff" * 7, b"\xff" * 8):
            assert store.load_before(to_bytes(X), before) is None
            assert store.load_before(to_bytes(Y), before) is None

    def test_counts_a_hit_or_a_miss(self, store: Any) -> None:
        store.insert(X, 5, 0, b"x5")
        before = store.stats()
        load(store, X, 11)
        load(store, X, 11)
        load(store, X, 12)
        load(store, Y, 11)
        after = store.stats()
        assert after["hits"] - before["hits"] == 2
        assert after["misses"] - before["misses"] == 2

    def test_gives_the_state_as_it_was_given(self, make: Any) -> None:
        store = make(limit_bytes=4 << 20)
        store.advance([], 10)
        states = [bytes(range(256)) * times + b"!" * odd for times in (0, 1, 9) for odd in range(9)]
        for oid, state in enumerate(states):
            assert store.insert(oid, 5, 0, state)
        assert [load(store, oid, 11)[0] for oid in range(len(states))] == states

    # Inserting

    def test_inserting_again_changes_nothing(self, store: Any) -> None:
        assert store.insert(X, 5, 0, b"first")
        assert store.insert(X, 5, 0, b"again")
        assert load(store, X, 11) == (b"first", 5, None)
        assert store.stats()["entries"] == 1

    def test_inserting_again_closes(self, store: Any) -> None:
        store.insert(X, 5, 0, b"x5")
        assert store.insert(X, 5, 8, b"x5")
        assert load(store, X, 8) == (b"x5", 5, 8)
        assert load(store, X, 11) is None
        assert store.peek(X) is None

    def test_inserting_again_does_not_open(self, store: Any) -> None:
        store.insert(X, 5, 8, b"x5")
        assert store.insert(X, 5, 0, b"x5")
        assert load(store, X, 8) == (b"x5", 5, 8)
        assert load(store, X, 11) is None

    def test_many_closed_revisions_of_one_object_stay_within_bounds(self, store: Any) -> None:
        for tid in range(1, 60, 2):
            assert store.insert(X, tid, tid + 1, b"x")
            store.check()
        newest = [tid for tid in range(1, 60, 2) if load(store, X, tid + 1)]
        assert newest[-1] == 59
        assert len(newest) >= 4

    @pytest.mark.parametrize("way", ["insert", "advance"])
    def test_closing_one_more_stays_within_bounds(self, store: Any, way: str) -> None:
        store.insert(X, 100, 0, b"x")
        for tid in range(1, 60, 2):
            store.insert(X, tid, tid + 1, b"x")
        if way == "insert":
            store.insert(X, 100, 101, b"x")
        else:
            store.advance(ended(X, at=101, exact=True), 101)
        store.check()
        assert load(store, X, 101) == (b"x", 100, 101)

    def test_an_open_revision_replaces_an_older_open_one(self, store: Any) -> None:
        store.insert(X, 5, 0, b"x5")
        assert store.insert(X, 8, 0, b"x8")
        assert load(store, X, 11) == (b"x8", 8, None)
        assert load(store, X, 7) is None, "nobody said when the older one ended"
        assert store.stats()["entries"] == 1

    def test_an_open_revision_yields_to_a_newer_one(self, store: Any) -> None:
        store.insert(X, 8, 0, b"x8")
        assert not store.insert(X, 5, 0, b"x5")
        assert load(store, X, 11) == (b"x8", 8, None)
        assert load(store, X, 7) is None

    def test_lives_never_overlap(self, store: Any) -> None:
        store.insert(X, 8, 0, b"x8")
        assert not store.insert(X, 5, 9, b"x5"), "it would reach into the newer one"
        assert store.insert(X, 5, 8, b"x5")
        assert load(store, X, 8) == (b"x5", 5, 8)
        store.insert(Y, 5, 0, b"y5")
        store.insert(Y, 7, 9, b"y7")
        assert load(store, Y, 7) is None, "y5 did not live on"
        assert load(store, Y, 11) is None
        assert load(store, Y, 9) == (b"y7", 7, 9)

    @pytest.mark.parametrize("end", [1, 4, 5])
    def test_a_life_that_ends_before_it_begins_is_refused(self, store: Any, end: int) -> None:
        assert not store.insert(X, 5, end, b"x5")
        assert store.stats()["entries"] == 0

    def test_a_state_longer_than_the_object_limit_is_not_kept(self, store: Any) -> None:
        assert store.insert(X, 5, 0, b"x" * OBJECT_MAX_BYTES) in (True, False)
        assert not store.insert(Y, 5, 0, b"y" * (OBJECT_MAX_BYTES + 1))
        assert not store.insert(Y, 5, 8, b"y" * (OBJECT_MAX_BYTES + 1))
        assert load(store, Y, 8) is None

    def test_makes_room(self, make: Any) -> None:
        store = make()
        store.advance([], 10)
        for oid in range(1000):
            assert store.insert(oid, 5, 0, b"s" * 2000), "admission is judged later"
        stats = store.stats()
        assert stats["evictions"] > 800
        assert stats["used_bytes"] <= stats["limit_bytes"]
        held = [oid for oid in range(1000) if load(store, oid, 11)]
        assert len(held) == stats["entries"]
        assert all(load(store, oid, 11) == (b"s" * 2000, 5, None) for oid in held)

    def test_what_is_read_often_survives_a_scan(self, make: Any) -> None:
        store = make()
        store.advance([], 10)
        hot = range(40)
        for oid in hot:
            store.insert(oid, 5, 0, b"h" * 1000)
        for _ in range(10):
            for oid in hot:
                load(store, oid, 11)
        for oid in range(1000, 3000):
            store.insert(oid, 5, 0, b"s" * 1000)
            load(store, hot[oid % len(hot)], 11)
        assert sum(load(store, oid, 11) is not None for oid in hot) >= 36

    # Reading at a tid

    def test_an_open_revision_is_seen_at_every_tid_up_to_the_checkpoint(self, store: Any) -> None:
        store.insert(X, 5, 0, b"x5")
        found = [load_at(store, X, at) for at in (4, 5, 10, 11)]
        assert found == [None, (b"x5", 5), (b"x5", 5), None]

    def test_a_followed_change_keeps_the_revision_through_the_old_checkpoint(
        self, store: Any
    ) -> None:
        store.insert(X, 5, 0, b"x5")
        store.follow([(X, 14)], 14)
        assert store.checkpoint == 14
        assert load_at(store, X, 10) == (b"x5", 5)
        assert load_at(store, X, 11) is None, "I2: it may have ended at once"
        assert load(store, X, 8) is None, "nobody knows the end"

    def test_following_does_not_touch_what_is_as_new_as_the_name(self, store: Any) -> None:
        store.insert(X, 12, 0, b"x12")
        store.insert(Y, 5, 0, b"y5")
        store.follow([(X, 12)], 14)
        assert load_at(store, X, 14) == (b"x12", 12)
        assert load_at(store, Y, 14) == (b"y5", 5)

    def test_a_name_from_before_the_checkpoint_ends_the_revision_at_once(self, store: Any) -> None:
        store.insert(X, 5, 0, b"x5")
        store.follow([(X, 9)], 10)
        assert load_at(store, X, 5) is None

    def test_a_revision_beyond_the_checkpoint_is_dropped_when_it_is_named(self, store: Any) -> None:
        store.insert(X, 12, 0, b"x12")
        store.follow([(X, 14)], 14)
        assert load_at(store, X, 12) is None

    def test_a_bounded_end_becomes_exact_when_it_is_told(self, store: Any) -> None:
        store.insert(X, 5, 0, b"x5")
        store.follow([(X, 14)], 14)
        assert store.insert(X, 5, 13, b"x5")
        assert load(store, X, 13) == (b"x5", 5, 13)
        assert load_at(store, X, 12) == (b"x5", 5)

    def test_a_newer_revision_lives_beside_a_bounded_one(self, store: Any) -> None:
        store.insert(X, 5, 0, b"x5")
        store.follow([(X, 14)], 14)
        store.insert(X, 14, 0, b"x14")
        assert load_at(store, X, 10) == (b"x5", 5)
        assert load_at(store, X, 14) == (b"x14", 14)

    @pytest.mark.parametrize("names", [[(X,)], [(X, 5, 6)], [X], [(b"x", 5)], [(X, -1)], 7])
    def test_what_is_no_name_is_refused(self, store: Any, names: Any) -> None:
        with pytest.raises((TypeError, ValueError)):
            store.follow(names, 14)
        assert store.checkpoint == 10

    def test_holding_counts_nothing(self, store: Any) -> None:
        store.insert(X, 5, 0, b"x5")
        before = store.stats()
        assert store.holds(to_bytes(X), 10)
        assert not store.holds(to_bytes(X), 11)
        assert not store.holds(to_bytes(Y), 10)
        assert store.stats() == before

    # Promoting

    def test_a_promoted_revision_is_saved_and_of_the_file(self, store: Any) -> None:
        assert store.promote(X, 5, b"x5", 3)
        assert load(store, X, 11) == (b"x5", 5, None)
        assert unsaved(store) == []
        assert store.stats()["file_hits"] == 1
        assert store.stats()["sets"] == 0

    def test_promoting_makes_room(self, make: Any) -> None:
        store = make()
        store.advance([], 10)
        for oid in range(2000):
            store.promote(oid, 5, b"s" * 1000, 0)
        assert store.stats()["evictions"] > 0
        assert load(store, 1999, 11) is not None

    def test_promoting_yields_to_what_is_newer(self, store: Any) -> None:
        store.insert(X, 8, 0, b"x8")
        store.promote(X, 5, b"x5", 15)
        assert load(store, X, 11) == (b"x8", 8, None)

    # Restoring

    def test_a_restored_revision_is_open_and_saved(self, store: Any) -> None:
        assert store.restore(X, 5, b"x5", 3)
        assert load(store, X, 11) == (b"x5", 5, None)
        assert unsaved(store) == []

    def test_restoring_evicts_nothing_and_says_when_it_is_full(self, make: Any) -> None:
        store = make()
        store.advance([], 10)
        for oid in range(20):
            store.insert(oid, 5, 0, b"s" * 1000)
        kept = 0
        while store.restore(1000 + kept, 5, b"r" * 1000, 1):
            kept += 1
            assert kept < 1000, "never full"
        assert kept > LEAST_KEPT[type(store)]
        assert store.stats()["evictions"] == 0
        assert all(load(store, oid, 11) for oid in range(20))
        assert all(load(store, 1000 + number, 11) for number in range(kept))
        assert load(store, 1000 + kept, 11) is None

    def test_restoring_what_cannot_be_kept_is_no_reason_to_stop(self, store: Any) -> None:
        assert store.restore(X, 5, b"x" * (OBJECT_MAX_BYTES + 1), 3)
        assert load(store, X, 11) is None
        store.insert(Y, 8, 0, b"y8")
        assert store.restore(Y, 5, b"y5", 3)
        assert load(store, Y, 11) == (b"y8", 8, None)

    def test_a_frequency_out_of_range_is_bounded(self, store: Any) -> None:
        for oid, frequency in enumerate((-1, 0, 15, 16, 2**40)):
            assert store.restore(oid, 5, b"x", frequency)
            assert 0 <= store.peek(oid)[1] <= 15

    def test_the_frequency_survives(self, store: Any) -> None:
        store.restore(X, 5, b"x", 9)
        store.restore(Y, 5, b"y", 0)
        assert store.peek(X)[1] >= 9
        assert store.peek(Y)[1] <= 2

    # Advancing

    def test_an_exact_change_closes(self, store: Any) -> None:
        store.insert(X, 5, 0, b"x5")
        store.advance(ended(X, at=12, exact=True), 13)
        assert store.checkpoint == 13
        assert load(store, X, 12) == (b"x5", 5, 12)
        assert load(store, X, 13) is None
        assert load(store, X, 14) is None

    def test_an_inexact_change_drops(self, store: Any) -> None:
        """I2: nobody knows where it ended."""
        store.insert(X, 5, 0, b"x5")
        store.advance(ended(X, at=12, exact=False), 12)
        assert [load(store, X, before) for before in (6, 11, 12, 13)] == [None] * 4
        assert store.stats()["entries"] == 0

    @pytest.mark.parametrize("exact", [True, False])
    def test_a_change_does_not_touch_what_is_not_older(self, store: Any, exact: bool) -> None:
        store.insert(X, 12, 0, b"x12")
        store.insert(Y, 5, 8, b"y5")
        store.advance(ended(X, Y, at=12, exact=exact), 12)
        assert load(store, X, 13) == (b"x12", 12, None)
        assert load(store, Y, 8) == (b"y5", 5, 8)

    def test_other_objects_are_current_through_the_new_checkpoint(self, store: Any) -> None:
        store.insert(X, 5, 0, b"x5")
        store.insert(Y, 5, 0, b"y5")
        store.advance(ended(X, at=12, exact=True), 12)
        assert load(store, Y, 13) == (b"y5", 5, None)

    def test_several_changes_apply_in_their_order(self, store: Any) -> None:
        store.insert(X, 5, 0, b"x5")
        changes = [*ended(X, at=11, exact=True), *ended(X, at=12, exact=False)]
        store.advance(changes, 12)
        assert load(store, X, 11) == (b"x5", 5, 11)

    def test_the_checkpoint_does_not_fall(self, store: Any) -> None:
        store.insert(X, 5, 0, b"x5")
        store.advance([], 3)
        assert store.checkpoint == 10
        store.advance(ended(X, at=9, exact=True), 4)
        assert store.checkpoint == 10
        assert load(store, X, 9) == (b"x5", 5, 9)

    def test_changes_of_unknown_objects_do_nothing(self, store: Any) -> None:
        store.advance(ended(X, Y, at=12, exact=True), 12)
        assert store.stats()["entries"] == 0

    def test_closing_keeps_the_state_whatever_its_length(self, make: Any) -> None:
        """The end has to be put somewhere."""
        store = make(limit_bytes=4 << 20)
        store.advance([], 10)
        states = {oid: bytes([oid % 251]) * oid for oid in range(100)}
        for oid, state in states.items():
            store.insert(oid, 5, 0, state)
        store.advance(ended(*states, at=12, exact=True), 12)
        store.check()
        assert {oid: load(store, oid, 12) for oid in states} == {
            oid: (state, 5, 12) for oid, state in states.items()
        }

    def test_closing_works_when_it_is_full(self, make: Any) -> None:
        store = make()
        store.advance([], 10)
        for oid in range(400):
            store.insert(oid, 5, 0, bytes([oid % 251]) * 1000)
        store.advance(ended(*range(400), at=12, exact=True), 12)
        store.check()
        for oid in range(400):
            assert load(store, oid, 12) in (None, (bytes([oid % 251]) * 1000, 5, 12))
            assert load(store, oid, 13) is None

    # Forgetting

    def test_forget_drops_every_revision_of_the_object(self, store: Any) -> None:
        store.insert(X, 1, 3, b"x1")
        store.insert(X, 5, 0, b"x5")
        store.insert(Y, 5, 0, b"y5")
        store.forget(X)
        assert load(store, X, 2) is None
        assert load(store, X, 11) is None
        assert load(store, Y, 11) is not None
        store.forget(X)

    def test_clear_drops_everything_and_the_checkpoint_stays(self, store: Any) -> None:
        store.insert(X, 5, 0, b"x5")
        store.insert(X, 1, 3, b"x1")
        store.clear()
        assert store.checkpoint == 10
        assert load(store, X, 11) is None
        assert load(store, X, 2) is None
        assert store.stats()["entries"] == store.stats()["state_bytes"] == 0
        store.insert(X, 5, 0, b"again")
        assert load(store, X, 11) == (b"again", 5, None)

    @pytest.mark.parametrize("checkpoint", [3, 10, 30])
    def test_restart_drops_everything_and_sets_the_checkpoint(
        self, store: Any, checkpoint: int
    ) -> None:
        store.insert(X, 5, 0, b"x5")
        store.restart(checkpoint)
        assert store.checkpoint == checkpoint
        assert load(store, X, 6) is None
        store.insert(X, 2, 0, b"x2")
        assert load(store, X, checkpoint + 1) == (b"x2", 2, None)
        assert load(store, X, checkpoint + 2) is None

    # Bounds

    def test_reserve_takes_room_from_the_revisions(self, make: Any) -> None:
        store = make()
        store.advance([], 10)
        for oid in range(200):
            store.insert(oid, 5, 0, b"s" * 1000)
        full = store.stats()
        store.reserve(LIMIT_BYTES // 2)
        store.check()
        halved = store.stats()
        assert halved["used_bytes"] <= LIMIT_BYTES
        assert halved["entries"] < full["entries"] * 0.6
        for oid in range(200):
            assert load(store, oid, 11) in (None, (b"s" * 1000, 5, None))
        store.reserve(0)
        for oid in range(1000, 1200):
            store.insert(oid, 5, 0, b"s" * 1000)
        assert store.stats()["state_bytes"] > 0.9 * full["state_bytes"]

    def test_reserving_more_than_there_is_leaves_nothing(self, store: Any) -> None:
        store.insert(X, 5, 0, b"x5")
        store.reserve(10 * LIMIT_BYTES)
        store.check()
        assert load(store, X, 11) is None
        assert not store.insert(X, 5, 0, b"x5")
        assert not store.restore(X, 5, b"x5", 1)
        store.reserve(0)
        assert store.insert(X, 5, 0, b"x5")

    @pytest.mark.parametrize("limit_bytes", [256 << 10, 1_000_000, (8 << 30) - (1 << 20)])
    def test_every_allowed_limit_keeps_something(self, make: Any, limit_bytes: int) -> None:
        store = make(limit_bytes=limit_bytes)
        store.advance([], 10)
        assert store.limit_bytes == limit_bytes
        assert store.insert(X, 5, 0, b"x5")
        assert load(store, X, 11) == (b"x5", 5, None)

    @pytest.mark.parametrize(
        ("limit_bytes", "object_max_bytes"),
        [(256 * 1024 - 1, 1000), (0, 1000), (-1, 1000), ((32 << 30) + 1, 1000), (1 << 20, 0)],
    )
    def test_impossible_sizes(self, make: Any, limit_bytes: int, object_max_bytes: int) -> None:
        with pytest.raises(ValueError):
            make(limit_bytes=limit_bytes, object_max_bytes=object_max_bytes)

    # For the file

    def test_unsaved_are_the_open_revisions_that_the_file_lacks(self, store: Any) -> None:
        store.insert(X, 5, 0, b"x5")
        store.insert(X, 1, 2, b"x1")
        store.insert(Y, 5, 9, b"y5")
        store.restore(9, 5, b"z5", 1)
        assert store.unsaved_bytes == len(b"x5")
        _, batch = save(store)
        assert [(oid, tid, state) for oid, tid, _, state in batch.rows()] == [(X, 5, b"x5")]
        assert store.unsaved_bytes == 0
        assert unsaved(store) == []

    def test_unsaved_oids_ascend_as_signed_numbers(self, store: Any) -> None:
        oids = [0, to_int(HIGHEST_OID), 5, 2**63 - 1, -(2**63), 1000, -7]
        for oid in oids:
            store.insert(oid, 5, 0, b"x")
        assert unsaved(store) == sorted(oids)
        assert store.load_before(HIGHEST_OID, to_bytes(11)) == (b"x", to_bytes(5), None)
        assert store.load_before(b"\0" * 8, to_bytes(11)) == (b"x", to_bytes(5), None)

    def test_a_newer_revision_is_unsaved_again(self, store: Any) -> None:
        store.insert(X, 5, 0, b"x5")
        save(store)
        store.insert(X, 8, 0, b"x8")
        assert unsaved(store) == [X]

    def test_what_was_packed_may_turn_out_not_to_be_saved(self, store: Any) -> None:
        store.insert(X, 5, 0, b"x5")
        store.insert(Y, 5, 0, b"y5")
        oids, _ = save(store)
        assert store.unsaved_bytes == 0
        store.return_unsaved(oids, 1)
        assert store.unsaved_bytes == len(b"y5")
        assert unsaved(store) == [Y]
        store.return_unsaved(oids, 0)
        assert unsaved(store) == [X, Y]

    def test_what_ends_is_unsaved_no_more(self, store: Any) -> None:
        store.insert(X, 5, 0, b"x5")
        store.insert(Y, 5, 0, b"y5")
        store.advance(ended(X, at=12, exact=True), 12)
        assert store.unsaved_bytes == len(b"y5")
        assert unsaved(store) == [Y]
        store.advance(ended(Y, at=13, exact=False), 13)
        assert store.unsaved_bytes == 0
        assert unsaved(store) == []

    def test_mark_unsaved(self, store: Any) -> None:
        store.insert(X, 5, 0, b"x5")
        save(store)
        store.restore(Y, 5, b"y5", 1)
        store.insert(9, 5, 8, b"closed")
        store.mark_unsaved()
        assert store.unsaved_bytes == len(b"x5y5")
        assert unsaved(store) == [X, Y]

    def test_peek_gives_the_open_revision_and_counts_nothing(self, store: Any) -> None:
        store.insert(X, 5, 0, b"x5")
        store.insert(Y, 5, 8, b"y5")
        before = store.stats()
        tid, frequency, state = store.peek(X)
        assert (tid, state) == (5, b"x5")
        assert store.peek(Y) is None
        assert store.peek(99) is None
        assert store.peek(X)[1] == frequency
        assert store.stats() == before

    def test_peek_counts_how_often_it_was_read(self, store: Any) -> None:
        store.insert(X, 5, 0, b"x5")
        store.insert(Y, 5, 0, b"y5")
        for _ in range(6):
            load(store, X, 11)
        assert 6 <= store.peek(X)[1] <= 15
        assert store.peek(X)[1] > store.peek(Y)[1]
        for _ in range(100):
            load(store, X, 11)
        assert store.peek(X)[1] == 15

    # Statistics

    def test_stats_are_counters_and_sizes(self, store: Any) -> None:
        store.insert(X, 5, 0, b"x" * 100)
        store.insert(Y, 5, 8, b"y" * 50)
        stats = store.stats()
        assert all(type(name) is str and type(value) is int for name, value in stats.items())
        assert stats["entries"] == 2
        assert stats["state_bytes"] == 150
        assert stats["sets"] == 2
        assert stats["evictions"] == 0
        assert stats["limit_bytes"] == LIMIT_BYTES
        assert 150 < stats["used_bytes"] <= LIMIT_BYTES

    def test_reserved_bytes_are_used_bytes(self, store: Any) -> None:
        before = store.stats()["used_bytes"]
        store.reserve(1000)
        assert store.stats()["used_bytes"] == before + 1000

    # Bad arguments change nothing

    @pytest.mark.parametrize(
        ("call", "error"),
        [
            (lambda s: s.load_before(X, to_bytes(5)), TypeError),
            (lambda s: s.load_before(to_bytes(X), 5), TypeError),
            (lambda s: s.load_before(None, to_bytes(5)), TypeError),
            (lambda s: s.load_before(bytearray(8), to_bytes(5)), TypeError),
            (lambda s: s.load_before(b"1234567", to_bytes(5)), ValueError),
            (lambda s: s.load_before(to_bytes(X), b""), ValueError),
            (lambda s: s.load_before(to_bytes(X)), TypeError),
            (lambda s: s.insert(to_bytes(Y), 5, 0, b""), TypeError),
            (lambda s: s.insert(Y, 5, 0, "text"), TypeError),
            (lambda s: s.insert(Y, 5, 0, None), TypeError),
            (lambda s: s.insert(Y, 5, None, b""), TypeError),
            (lambda s: s.insert(Y, 5, 0), TypeError),
            (lambda s: s.insert(2**63, 5, 0, b""), OverflowError),
            (lambda s: s.restore(Y, 5, "text", 1), TypeError),
            (lambda s: s.restore(Y, 5, b"", None), TypeError),
            (lambda s: s.advance(None, 20), TypeError),
            (lambda s: s.advance([], None), TypeError),
            (lambda s: s.advance([([b"short"], 20, True)], 20), ValueError),
            (lambda s: s.advance([([Y], 20, True)], 20), TypeError),
            (lambda s: s.advance([(to_bytes(Y), 20, True)], 20), TypeError),
            (lambda s: s.advance([(None, 20, True)], 20), TypeError),
            (lambda s: s.advance([[[to_bytes(Y)], 20]], 20), TypeError),
            (lambda s: s.advance([([to_bytes(Y)], 20)], 20), TypeError),
            (lambda s: s.advance([None], 20), TypeError),
            (lambda s: s.advance([], -1), ValueError),
            (lambda s: s.restart(-1), ValueError),
            (lambda s: s.restart(None), TypeError),
            (lambda s: s.forget(to_bytes(X)), TypeError),
            (lambda s: s.forget("7"), TypeError),
            (lambda s: s.reserve(-1), ValueError),
            (lambda s: s.reserve("1"), TypeError),
            (lambda s: s.peek(to_bytes(X)), TypeError),
            (lambda s: s.return_unsaved(b""), TypeError),
            (lambda s: s.return_unsaved("text", 0), TypeError),
            (lambda s: s.return_unsaved(b"", -1), ValueError),
            (lambda s: s.return_unsaved(b"", None), TypeError),
            (lambda s: s.pack(b"", 0, 20), TypeError),
            (lambda s: s.pack([X], 0, 20, 100), TypeError),
            (lambda s: s.pack(b"", -1, 20, 100), ValueError),
            (lambda s: s.pack(b"", 0, -1, 100), ValueError),
            (lambda s: s.pack(b"", 0, 20, -1), ValueError),
            (lambda s: s.pack(b"", 0, 20, 2**63), OverflowError),
            (lambda s: s.restore_batch(Batch([]), Deltas()), TypeError),
            (lambda s: s.restore_batch([(Y, 5, 0, b"")], Deltas(), 10), TypeError),
            (lambda s: s.restore_batch(Batch([]), {}, 10), TypeError),
            (lambda s: s.restore_batch(Batch([]), Deltas(), -1), ValueError),
            (lambda s: s.heated(0, 10), TypeError),
            (lambda s: s.heated(-1, 10, 0), ValueError),
            (lambda s: s.heated(0, -1, 0), ValueError),
            (lambda s: s.heated(0, 10, -1), ValueError),
            (lambda s: s.heated(None, 10, 0), TypeError),
        ],
    )
    def test_bad_arguments(self, store: Any, call: Any, error: type[Exception]) -> None:
        store.insert(X, 5, 0, b"x5")
        with pytest.raises(error):
            call(store)
        store.check()
        assert store.checkpoint == 10, "I1: a failed step raises no checkpoint"
        assert load(store, X, 11) == (b"x5", 5, None)

    def test_nothing_comes_between_a_peek_and_its_state(self, store: Any) -> None:
        """Making the result may collect garbage, and with it run anything."""
        store.insert(X, 5, 0, b"A" * 1000)

        def replace(phase: str, info: object) -> None:
            if phase == "start":
                gc.callbacks.remove(replace)
                store.forget(X)
                store.insert(Y, 6, 0, b"B" * 1000)

        # As many tuples as use up those that the interpreter keeps for later.
        hold = [(number, number, object()) for number in range(5000)]
        threshold = gc.get_threshold()
        gc.set_threshold(1)
        gc.callbacks.append(replace)
        try:
            tid, _, state = store.peek(X)
        finally:
            gc.set_threshold(*threshold)
            if replace in gc.callbacks:
                gc.callbacks.remove(replace)
        assert (tid, state) == (5, b"A" * 1000)
        assert len(hold) == 5000
