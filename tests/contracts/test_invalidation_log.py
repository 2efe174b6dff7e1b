"""IInvalidationLog: what it lets in, and what it makes of changes, breaks and late answers."""

from __future__ import annotations

from typing import Any

import pytest
from zope.interface.verify import verifyObject

from zodbcache._core._store import Batch
from zodbcache.ids import to_bytes
from zodbcache.ids import to_int
from zodbcache.interfaces import IInvalidationLog
from zodbcache.invalidations import WITNESSES
from zodbcache.invalidations import InvalidationLog
from zodbcache.store import MemoryStore

X = to_bytes(7)
Y = to_bytes(8)


class Tier:
    """A log over a store, with int tids."""

    def __init__(self, deltas_max: int = 1000) -> None:
        self.store = MemoryStore(256 * 1024, 64 * 1024)
        self.log = InvalidationLog(self.store, deltas_max=deltas_max)

    def load(self, oid: bytes, at: int) -> Any:
        """``(tid, end)`` of what a reader at *at* sees, or None."""
        found = self.store.load_before(oid, to_bytes(at + 1))
        return found and (to_int(found[1]), found[2] and to_int(found[2]))

    def admit(self, oid: bytes, tid: int, end: int = 0, *, known: int) -> bool:
        return self.log.admit(oid, tid, end, b"state", known=known)

    def push(self, tid: int, *oids: bytes) -> None:
        self.log.name(tid, list(oids))
        self.log.advance(tid)

    def commit(self, tid: int, *oids: bytes) -> None:
        change = self.log.name(tid, list(oids))
        change.exact = True
        self.log.advance(tid)


@pytest.fixture
def tier() -> Any:
    """Whole, from 10 to 10."""
    tier = Tier()
    assert tier.log.restart(0, 10)
    yield tier
    tier.store.check()
    assert tier.store.checkpoint == tier.log.end


@pytest.fixture
def forgetful() -> Tier:
    """Remembers one changed object."""
    tier = Tier(deltas_max=1)
    tier.log.restart(0, 10)
    return tier


def test_keeps_the_interface(tier: Tier) -> None:
    assert verifyObject(IInvalidationLog, tier.log)


def test_begins_broken_and_lets_nothing_in_that_could_be_read() -> None:
    tier = Tier()
    assert tier.log.broken
    tier.admit(X, 5, known=tier.log.end)
    assert tier.load(X, 5) is None
    tier.push(6, Y)
    assert tier.log.end == 0


class TestChanges:
    def test_a_push_drops(self, tier: Tier) -> None:
        tier.admit(X, 5, known=10)
        tier.admit(Y, 5, known=10)
        tier.push(12, X)
        assert tier.log.end == 12
        assert tier.load(X, 10) is None, "I2: a push is an upper bound"
        assert tier.load(Y, 12) == (5, None)

    def test_an_own_commit_closes(self, tier: Tier) -> None:
        tier.admit(X, 5, known=10)
        tier.commit(12, X)
        assert tier.load(X, 11) == (5, 12)
        assert tier.load(X, 12) is None

    def test_what_is_only_named_moves_nothing(self, tier: Tier) -> None:
        tier.admit(X, 5, known=10)
        tier.log.name(12, [X])
        assert tier.log.end == 10
        assert tier.load(X, 10) == (5, None)
        assert tier.load(X, 12) is None

    def test_an_own_commit_that_was_not_finished_is_not_exact(self, tier: Tier) -> None:
        tier.admit(X, 5, known=10)
        tier.log.name(12, [X])
        tier.push(13, Y)
        assert tier.load(X, 11) is None

    def test_a_push_before_an_own_commit_of_the_same_object(self, tier: Tier) -> None:
        tier.admit(X, 5, known=10)
        own = tier.log.name(13, [X])
        tier.log.name(12, [X])
        own.exact = True
        tier.log.advance(13)
        assert tier.load(X, 12) is None, "it ended at 12 at the latest"

    def test_a_commit_given_an_old_tid(self, tier: Tier) -> None:
        tier.admit(X, 5, known=10)
        tier.commit(8, X)
        assert tier.log.end == 10
        assert tier.load(X, 10) is None
        assert tier.load(X, 9) is None

    def test_an_old_tid_is_heard_of_before_the_base_storage_is_done(self, tier: Tier) -> None:
        tier.admit(X, 5, known=10)
        tier.admit(Y, 5, known=10)
        tier.log.name(8, [X])
        assert tier.load(X, 10) is None, "what it shows at 10 is changing this moment"
        assert tier.load(Y, 10) == (5, None)

    def test_the_end_never_falls(self, tier: Tier) -> None:
        tier.push(15, Y)
        tier.push(12, X)
        assert tier.log.end == 15


class TestLateAnswers:
    """I3: the base storage was asked, and then something happened."""

    def test_named_since(self, tier: Tier) -> None:
        known = tier.log.end
        tier.push(12, X)
        assert not tier.admit(X, 5, known=known)
        assert tier.load(X, 12) is None
        assert tier.admit(Y, 5, known=known), "it was not named"
        assert tier.load(Y, 12) == (5, None)

    def test_named_and_not_finished(self, tier: Tier) -> None:
        known = tier.log.end
        tier.log.name(12, [X])
        assert not tier.admit(X, 5, known=known)

    def test_the_answer_has_the_change(self, tier: Tier) -> None:
        known = tier.log.end
        tier.push(12, X)
        assert tier.admit(X, 12, known=known)
        assert tier.load(X, 12) == (12, None)

    def test_an_answer_newer_than_the_log(self, tier: Tier) -> None:
        assert tier.admit(X, 12, known=tier.log.end)
        assert tier.load(X, 12) is None
        tier.commit(12, X)
        assert tier.load(X, 12) == (12, None)
        tier.commit(14, X)
        assert tier.load(X, 13) == (12, 14)
        assert tier.load(X, 14) is None

    def test_a_closed_revision_is_right_for_ever(self, tier: Tier) -> None:
        known = tier.log.end
        tier.push(12, X)
        assert tier.admit(X, 5, 9, known=known)
        assert tier.load(X, 8) == (5, 9)

    def test_trimmed_since(self, forgetful: Tier) -> None:
        known = forgetful.log.end
        forgetful.push(12, X, Y)
        assert forgetful.log.start == 12, "the log has forgotten that these changed"
        assert not forgetful.admit(X, 5, known=known)
        assert not forgetful.admit(to_bytes(9), 5, known=known), "nobody knows any more"

    def test_restarted_since(self, tier: Tier) -> None:
        known = tier.log.end
        tier.log.break_()
        tier.log.restart(tier.log.breaks, 20)
        assert not tier.admit(X, 5, known=known)

    def test_restarted_lower_since(self, tier: Tier) -> None:
        """The server came back as it was earlier: what was asked of it before is void."""
        tier.push(20, Y)
        known = tier.log.end
        tier.log.break_()
        tier.log.restart(tier.log.breaks, 15)
        tier.admit(X, 18, known=known)
        tier.push(25, Y)
        assert tier.load(X, 25) is None

    def test_bridged_since(self, tier: Tier) -> None:
        known = tier.log.end
        tier.log.break_()
        tier.log.bridge(tier.log.breaks, [([X], 20)], 20)
        assert not tier.admit(X, 5, known=known)
        assert tier.admit(Y, 5, known=known)
        assert tier.load(Y, 20) == (5, None)

    def test_an_old_tid_was_committed_since(self, tier: Tier) -> None:
        known = tier.log.end
        tier.commit(8, X)
        assert not tier.admit(X, 5, known=known)
        assert tier.load(X, 10) is None


class TestBreaks:
    def test_the_end_stays(self, tier: Tier) -> None:
        tier.admit(X, 5, known=10)
        tier.log.break_()
        tier.push(12, Y)
        assert tier.log.end == 10
        assert tier.load(X, 10) == (5, None), "nothing is cleared"
        assert tier.load(X, 12) is None

    def test_a_bridge_names_what_was_missed(self, tier: Tier) -> None:
        tier.admit(X, 5, known=10)
        tier.admit(Y, 5, known=10)
        tier.log.break_()
        assert tier.log.bridge(tier.log.breaks, [([X], 20)], 20)
        assert not tier.log.broken
        assert tier.log.end == 20
        assert tier.load(X, 20) is None
        assert tier.load(Y, 20) == (5, None)
        assert tier.log.names_since(10) == [(7, 20)]

    def test_a_bridge_reaches_what_was_announced_meanwhile(self, tier: Tier) -> None:
        tier.admit(X, 5, known=10)
        tier.admit(Y, 5, known=10)
        tier.log.break_()
        tier.push(22, X)
        assert tier.log.bridge(tier.log.breaks, [], 20)
        assert tier.log.end == 22
        assert tier.load(X, 22) is None
        assert tier.load(Y, 22) == (5, None)

    def test_nothing_is_exact_across_a_bridge(self, tier: Tier) -> None:
        """I2: somebody else may have changed it before the own commit."""
        tier.admit(X, 5, known=10)
        tier.log.break_()
        tier.commit(15, X)
        assert tier.log.bridge(tier.log.breaks, [([X], 20)], 20)
        assert tier.load(X, 12) is None

    def test_an_own_commit_while_broken_is_dropped_if_it_was_replaced(self, tier: Tier) -> None:
        tier.log.break_()
        tier.commit(15, X)
        tier.admit(X, 15, known=15)
        assert tier.load(X, 15) is None
        tier.log.bridge(tier.log.breaks, [([X], 20)], 20)
        assert tier.load(X, 20) is None

    @pytest.mark.parametrize("way", ["bridge", "restart"])
    def test_an_answer_from_before_another_break_is_void(self, tier: Tier, way: str) -> None:
        tier.admit(X, 5, known=10)
        tier.log.break_()
        asked = tier.log.breaks
        tier.log.break_()
        if way == "bridge":
            assert not tier.log.bridge(asked, [], 20)
        else:
            assert not tier.log.restart(asked, 20)
        assert tier.log.broken
        assert tier.log.end == 10
        assert tier.load(X, 10) == (5, None)

    def test_a_restart_forgets_everything(self, tier: Tier) -> None:
        tier.admit(X, 5, known=10)
        tier.log.break_()
        assert tier.log.restart(tier.log.breaks, 20)
        assert (tier.log.start, tier.log.end) == (20, 20)
        assert tier.load(X, 10) is None
        assert tier.log.names_since(10) is None
        assert tier.log.witnesses() == []

    def test_a_commit_in_progress_survives_a_restart(self, tier: Tier) -> None:
        """Named, but the base storage is not done: a load may still give the older one."""
        tier.log.break_()
        change = tier.log.name(25, [X])
        tier.log.restart(tier.log.breaks, 20)
        assert not tier.admit(X, 5, known=20)
        change.exact = True
        tier.log.advance(25)
        assert tier.log.end == 25
        assert tier.log.names_since(20) == [(7, 25)]


class TestWhatItRemembers:
    def test_names_since(self, tier: Tier) -> None:
        tier.push(12, X, Y)
        tier.push(14, Y)
        assert sorted(tier.log.names_since(10)) == [(7, 12), (8, 14)]
        assert tier.log.names_since(12) == [(8, 14)]
        assert tier.log.names_since(9) is None

    def test_a_trim_moves_the_start(self, forgetful: Tier) -> None:
        forgetful.push(12, X)
        assert forgetful.log.start == 10
        forgetful.push(13, Y)
        assert forgetful.log.start == 13
        assert forgetful.log.names_since(10) is None
        assert forgetful.log.names_since(13) == []

    def test_a_trim_keeps_what_is_not_finished(self, forgetful: Tier) -> None:
        forgetful.log.name(20, [to_bytes(9)])
        forgetful.push(12, X)
        forgetful.push(13, Y)
        assert not forgetful.admit(to_bytes(9), 5, known=forgetful.log.end)

    def test_extended_back(self, tier: Tier) -> None:
        assert tier.log.extend_back(4, [([X], 8)], 10)
        assert tier.log.start == 4
        assert tier.log.restore(Batch([(7, 2, 1, b"x2"), (8, 2, 1, b"y2")]), known=4)
        assert tier.load(X, 10) is None
        assert tier.load(Y, 10) == (2, None)
        assert tier.log.names_since(4) == [(7, 8)]

    def test_not_extended_over_a_gap(self, tier: Tier) -> None:
        assert not tier.log.extend_back(4, [], 9)
        tier.log.break_()
        assert not tier.log.extend_back(4, [], 10)
        assert tier.log.start == 10

    def test_rows_from_before_the_start_are_refused(self, tier: Tier) -> None:
        tier.log.restore(Batch([(7, 2, 1, b"x2")]), known=9)
        assert tier.load(X, 10) is None

    def test_rows_that_were_named_are_refused(self, tier: Tier) -> None:
        tier.push(12, X)
        tier.log.restore(Batch([(7, 5, 1, b"x5"), (8, 5, 1, b"y5")]), known=10)
        assert tier.load(X, 12) is None
        assert tier.load(Y, 12) == (5, None)

    def test_restoring_says_when_the_memory_is_full(self, tier: Tier) -> None:
        rows = ((oid, 5, 1, b"s" * 10_000) for oid in range(100))
        assert not tier.log.restore(Batch(list(rows)), known=10)

    def test_rows_of_another_history_are_refused(self, tier: Tier) -> None:
        """They were confirmed, and then another database began in its place."""
        batch = Batch([(7, 5, 1, b"x5")])
        history = tier.store.history
        assert tier.log.restart(tier.log.breaks, 10)
        assert not tier.log.restore(batch, 10, history)
        assert tier.load(X, 10) is None
        assert tier.log.restore(batch, 10, tier.store.history)
        assert tier.load(X, 10) == (5, None)

    def test_its_memory_is_counted(self) -> None:
        """I5."""
        tier = Tier(deltas_max=10_000)
        tier.log.restart(0, 10)
        before = tier.store.stats()["used_bytes"]
        tier.push(12, *(to_bytes(oid) for oid in range(500)))
        assert tier.store.stats()["used_bytes"] >= before + 500 * 16

    def test_its_memory_stays_within_the_limit(self) -> None:
        """I5: however many changes it may remember, the limit holds and something is kept."""
        tier = Tier(deltas_max=1_000_000)
        tier.log.restart(0, 10)
        for tid in range(11, 41):
            tier.push(tid, *(to_bytes(tid * 1000 + number) for number in range(1000)))
            stats = tier.store.stats()
            assert stats["used_bytes"] <= stats["limit_bytes"] * 1.05
        assert tier.admit(X, 40, known=40)
        assert tier.load(X, 40) == (40, None)


class TestFollowing:
    def follow(self, tier: Tier, names: list[tuple[int, int]], through: int) -> bool:
        log = tier.log
        return log.follow(names, log.end, through, log.breaks)

    def test_what_is_named_is_over_and_the_rest_goes_on(self, tier: Tier) -> None:
        tier.admit(X, 5, known=10)
        tier.admit(Y, 5, known=10)
        assert self.follow(tier, [(7, 12)], 13)
        assert tier.log.end == 13
        assert tier.load(X, 13) is None
        assert tier.load(Y, 13) == (5, None)
        assert tier.log.names_since(10) == [(7, 12)]

    def test_a_load_from_before_a_name_is_refused(self, tier: Tier) -> None:
        self.follow(tier, [(7, 12)], 13)
        assert not tier.admit(X, 5, known=11)
        assert tier.admit(X, 12, known=12)
        assert tier.admit(Y, 5, known=11)

    def test_who_comes_second_changes_nothing(self, tier: Tier) -> None:
        since, breaks = tier.log.end, tier.log.breaks
        assert tier.log.follow([(7, 12), (8, 14)], since, 14, breaks)
        assert tier.log.follow([(7, 12)], since, 12, breaks)
        assert tier.log.end == 14

    def test_not_from_beyond_the_end(self, tier: Tier) -> None:
        assert not tier.log.follow([], 11, 14, tier.log.breaks)
        assert tier.log.end == 10

    def test_not_over_a_break(self, tier: Tier) -> None:
        breaks = tier.log.breaks
        tier.log.break_()
        assert not self.follow(tier, [], 14)
        tier.log.bridge(tier.log.breaks, [], 11)
        assert not tier.log.follow([], 10, 14, breaks)
        assert tier.log.end == 11

    def test_more_than_it_remembers(self, forgetful: Tier) -> None:
        forgetful.admit(X, 5, known=10)
        forgetful.admit(Y, 5, known=10)
        self.follow(forgetful, [(7, 12), (9, 13)], 13)
        assert forgetful.log.start == 13
        assert forgetful.load(X, 13) is None
        assert forgetful.load(Y, 13) == (5, None), "what did not change stays"
        assert not forgetful.admit(X, 5, known=12)

    def test_begins_once(self) -> None:
        tier = Tier()
        tier.log.begin(10)
        tier.log.begin(20)
        assert (tier.log.start, tier.log.end, tier.log.broken) == (10, 10, False)

    def test_who_was_about_to_begin_it_need_not(self) -> None:
        tier = Tier()
        breaks = tier.log.breaks
        tier.log.begin(10)
        assert not tier.log.restart(breaks, 5)
        assert tier.log.end == 10

    def test_what_is_dropped_is_named_for_the_file(self, tier: Tier) -> None:
        tier.admit(X, 5, known=10)
        tier.log.drop([X], 4)
        assert tier.load(X, 10) is None
        assert [oid for oid, _ in tier.log.names_since(10)] == [7]

    def test_names_that_the_file_was_told_of_are_forgotten(self, tier: Tier) -> None:
        self.follow(tier, [(7, 12)], 12)
        self.follow(tier, [(8, 14)], 14)
        tier.log.trim_through(12)
        assert tier.log.start == 12
        assert tier.log.names_since(12) == [(8, 14)]
        tier.log.trim_through(99)
        assert tier.log.start == 14

    def test_heavy_when_half_full(self) -> None:
        tier = Tier(deltas_max=10)
        tier.log.restart(0, 10)
        assert not tier.log.is_heavy
        self.follow(tier, [(oid, 12) for oid in range(6)], 12)
        assert tier.log.is_heavy


class TestRows:
    """Rows of the file, one by one: the rule, between the file's checkpoint and the log."""

    def row(
        self, tier: Tier, *, checkpoint: int, at: int, tid: int = 5, end_wanted: bool = False
    ) -> bool:
        row = (7, tid, 1, b"state")
        return tier.log.admit_rows([row], checkpoint, at, tier.log.epoch, end_wanted)

    def test_within_what_the_file_vouches_for(self, tier: Tier) -> None:
        assert self.row(tier, checkpoint=8, at=8)
        assert self.row(tier, checkpoint=8, at=5)
        assert not self.row(tier, checkpoint=8, at=4), "not born yet"
        assert not self.row(tier, checkpoint=8, at=9), "the log starts at 10"
        assert tier.load(X, 10) is None, "nobody knows whether it is current"

    def test_by_the_log_from_the_checkpoint_on(self, tier: Tier) -> None:
        tier.log.follow([(8, 12)], 10, 14, tier.log.breaks)
        assert self.row(tier, checkpoint=10, at=14)
        assert tier.load(X, 14) == (5, None), "promoted"
        assert not self.row(tier, checkpoint=10, at=15), "beyond the log"

    def test_what_was_named_since_is_right_only_within_the_checkpoint(self, tier: Tier) -> None:
        tier.log.follow([(7, 12)], 10, 14, tier.log.breaks)
        assert not self.row(tier, checkpoint=10, at=14)
        assert self.row(tier, checkpoint=10, at=10)
        assert not self.row(tier, checkpoint=10, at=10, end_wanted=True), "12 may be its end"
        assert tier.load(X, 10) is None

    def test_a_file_ahead_of_the_process(self, tier: Tier) -> None:
        assert self.row(tier, checkpoint=20, at=10)
        assert self.row(tier, checkpoint=20, at=10, end_wanted=True)
        assert self.row(tier, checkpoint=20, at=15)
        assert not self.row(tier, checkpoint=20, at=15, end_wanted=True)
        assert not self.row(tier, checkpoint=20, at=15, tid=16)
        assert tier.load(X, 10) is None, "who is behind the file does not insert"

    def test_not_after_everything_was_forgotten(self, tier: Tier) -> None:
        epoch = tier.log.epoch
        tier.log.forget_all()
        assert not tier.log.admit_rows([(7, 5, 1, b"state")], 10, 10, epoch, False)
        assert tier.load(X, 10) is None


class TestWitnesses:
    def test_followed_names_are_witnesses(self, tier: Tier) -> None:
        tier.admit(X, 5, known=10)
        tier.log.follow([(7, 12), (9, 14)], 10, 14, tier.log.breaks)
        assert tier.log.witnesses() == [(9, 14), (7, 12)]

    def test_the_newest_of_many_names(self, tier: Tier) -> None:
        tier.admit(X, 5, known=10)
        names = [(100 + number, 11 + number) for number in range(200)] + [(7, 11)]
        tier.log.follow(names, 10, 300, tier.log.breaks)
        found = tier.log.witnesses()
        assert found[0] == (299, 210)
        assert len(found) == WITNESSES
        assert (7, 5) not in found

    def test_they_are_the_newest_seen(self, tier: Tier) -> None:
        for tid in range(1, 10):
            tier.admit(to_bytes(100 + tid), tid, known=10)
        assert tier.log.witnesses() == [(100 + tid, tid) for tid in range(9, 0, -1)]

    def test_what_changed_is_none_any_more(self, tier: Tier) -> None:
        tier.admit(X, 5, known=10)
        tier.admit(Y, 6, known=10)
        tier.push(12, X)
        assert tier.log.witnesses() == [(8, 6)]
        tier.log.break_()
        tier.log.bridge(tier.log.breaks, [([Y], 20)], 20)
        assert tier.log.witnesses() == []

    def test_what_was_not_kept_is_one(self, tier: Tier) -> None:
        assert not tier.log.admit(X, 5, 0, b"x" * 100_000, known=10)
        assert tier.log.witnesses() == [(7, 5)]

    def test_what_is_beyond_the_end_is_none_yet(self, tier: Tier) -> None:
        tier.admit(X, 12, known=10)
        assert tier.log.witnesses() == []
        tier.commit(12, X)
        assert tier.log.witnesses() in ([], [(7, 12)])

    def test_there_are_not_many(self, tier: Tier) -> None:
        tier.log.advance(100_000)
        for tid in range(1, 2000):
            tier.admit(to_bytes(tid), tid, known=100_000)
        found = tier.log.witnesses()
        assert len(found) == WITNESSES
        assert found[0] == (1999, 1999)
        assert [tid for _, tid in found] == sorted((tid for _, tid in found), reverse=True)
