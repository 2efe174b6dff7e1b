"""Native storages: what an instance sees while others commit; first polls, dropped connections.

Nothing here waits for time to pass.  An unwrapped instance at the same snapshot is
the oracle.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ZODB.Connection import TransactionMetaData
from ZODB.utils import p64
from ZODB.utils import u64

from .native import OIDS
from .native import Site
from .native import W
from .native import X
from .native import Y
from .native import Z
from .native import base_of
from .native import check
from .native import commit
from .native import drop_connection
from .native import during_load
from .native import hits
from .native import poll
from .native import read
from .native import read_all
from .native import stepping
from .native import tid_of

pytest_plugins = ["servers"]


class TestFirstPolls:
    """Schedule 7: two instances poll for the first time, with a commit in between."""

    def test_who_believes_to_see_more_than_its_snapshot(self, site: Site) -> None:
        """A asks at 5; B commits and polls at 6, and RelStorage tells A that it is at 6, too."""
        storage = site.open()
        a, b = storage.new_instance(), storage.new_instance()
        oracles = []

        def meanwhile() -> None:
            oracles.append(site.oracle())
            site.commit(X)
            poll(b)
            read_all(b)

        with stepping(base_of(a)._adapter.poller, "get_current_tid", after=meanwhile):
            poll(a)
        believed = base_of(a)._cache.highest_visible_tid
        assert believed == base_of(b)._cache.highest_visible_tid
        before = hits(storage)
        expected = read_all(oracles[0])
        for _ in range(2):
            for oid in OIDS:  # of the new object RelStorage itself says that it conflicts
                if oid != X:
                    assert read(a, oid) == expected[oid]
        assert hits(storage) == before
        check(b, site.oracle())
        poll(a)
        check(a, site.oracle())
        assert hits(storage) > before

    def test_who_believes_to_see_less_than_its_snapshot(self, site: Site) -> None:
        """B polls at 5; A sees the commit at 6, and RelStorage tells it that it is at 5."""
        storage = site.open()
        a, b = storage.new_instance(), storage.new_instance()
        oracles = []

        def meanwhile() -> None:
            poll(b)
            oracles.append(site.oracle())
            read_all(b)
            site.commit(X)

        old = base_of(a)._load_connection
        with stepping(base_of(a)._adapter.poller, "get_current_tid", before=meanwhile):
            poll(a)
        assert base_of(a)._load_connection is old
        assert base_of(a)._cache.highest_visible_tid == base_of(b)._cache.highest_visible_tid
        before = hits(storage)
        expected = read_all(site.oracle())
        for oid in OIDS:
            if oid != X:
                assert read(a, oid) == expected[oid]
        assert hits(storage) == before
        check(b, oracles[0])
        poll(a)
        check(a, site.oracle())


class TestDroppedConnections:
    """Schedule 8."""

    @pytest.mark.parametrize("is_cached", [True, False])
    def test_a_commit_while_the_connection_is_down(self, site: Site, is_cached: bool) -> None:
        storage = site.open()
        a, b = storage.new_instance(), storage.new_instance()
        poll(a)
        poll(b)
        old = site.oracle()
        if is_cached:
            read_all(b)
        tid_of(a, Y)
        drop_connection(a)
        changed = site.commit(X)
        found = [read(a, oid) for oid in (X, Z, X)]  # old from the cache, or new as the base
        expected = read_all(old)[X], read_all(site.oracle())[X]
        assert found[0] in expected and found[2] in expected
        assert found[1] == read_all(old)[Z]
        check(b, old)  # still in its snapshot
        assert tid_of(b, X) < changed
        for instance in (a, b):
            poll(instance)
            check(instance, site.oracle())

    def test_the_server_ends_the_connection(
        self, open_relstorage: Any, tmp_path: Path, postgresql_server: Any
    ) -> None:
        import psycopg2

        site = Site(lambda **options: open_relstorage("PostgreSQL", **options), tmp_path / "cache")
        commit(site.outside, OIDS)
        storage = site.open()
        a, b = storage.new_instance(), storage.new_instance()
        poll(a)
        poll(b)
        old = site.oracle()
        tid_of(a, Y)

        def terminate(instance: Any) -> None:
            backend = base_of(instance)._load_connection.connection.get_backend_pid()
            postgresql_server._execute(f"SELECT pg_terminate_backend({backend}, 10000)")

        terminate(a)
        changed = site.commit(X)
        with pytest.raises(psycopg2.Error):
            a.load(p64(X))
        a.prefetch([p64(oid) for oid in OIDS])  # RelStorage's raises nothing either
        check(b, old)
        poll(a)
        assert tid_of(a, X) == changed
        check(a, site.oracle())
        terminate(a)  # and once more, between transactions
        a.sync()
        site.commit(X, Y)
        a.poll_invalidations()
        check(a, site.oracle())
        check(b, old)
        site.close()


class TestLoadsAndCommits:
    """Schedule 9's native part, and the like."""

    def test_a_commit_during_a_load(self, site: Site) -> None:
        """X is loaded at 5; before that is kept, it changes, and another instance polls."""
        storage = site.open()
        a, b = storage.new_instance(), storage.new_instance()
        poll(a)
        old = site.oracle()
        poll(b)

        def meanwhile() -> None:
            site.commit(X)
            poll(b)
            tid_of(b, X)

        with during_load(a, meanwhile):
            tid_of(a, X)
        check(a, old)
        check(b, site.oracle())

    def test_the_log_passes_a_commit_between_load_and_admission(self, site: Site) -> None:
        """Nobody has loaded the new revision when the old one is to be kept."""
        storage = site.open()
        a, b = storage.new_instance(), storage.new_instance()
        poll(a)

        def meanwhile() -> None:
            site.commit(X)
            poll(b)

        with during_load(a, meanwhile):
            tid_of(a, X)
        check(b, site.oracle())

    def test_an_own_commit_between_poll_and_load(self, site: Site) -> None:
        storage = site.open()
        a, b, c = (storage.new_instance() for _ in range(3))
        poll(a)
        old = site.oracle()
        changed = commit(b, [X, Y])
        check(a, old)
        poll(c)
        check(c, site.oracle())
        before = hits(storage)
        assert tid_of(c, X) == changed
        assert hits(storage) == before + 1
        check(a, old)

    def test_reads_between_a_commit_and_the_next_poll_see_one_snapshot(self, site: Site) -> None:
        """RelStorage over SQLite alone sees each commit of others at once there."""
        storage = site.open()
        a = storage.new_instance()
        own = commit(a, [W])
        a.afterCompletion()
        seen = tid_of(a, X)
        site.commit(X, Y)
        assert tid_of(a, X) == seen
        assert tid_of(a, Y) <= own
        poll(a)
        check(a, site.oracle())

    def test_own_states_are_read_by_the_next_transaction_from_memory(self, site: Site) -> None:
        storage = site.open()
        a, b = storage.new_instance(), storage.new_instance()
        changed = commit(a, [X, Y])
        poll(b)
        before = hits(storage)
        assert [tid_of(b, oid) for oid in (X, Y)] == [changed, changed]
        assert hits(storage) == before + 2

    @pytest.mark.parametrize("changes_again", [True, False])
    def test_polls_before_own_states_are_kept(self, site: Site, changes_again: bool) -> None:
        """B polls when A's commit is done in the database, and A has not kept its states."""
        storage = site.open()
        a, b = storage.new_instance(), storage.new_instance()

        def meanwhile() -> None:
            if changes_again:
                site.commit(X)
            poll(b)
            tid_of(b, Y)

        with stepping(vars(a)["_base"], "tpc_finish", after=meanwhile):
            commit(a, [X, Y])
        check(b, site.oracle())
        poll(a)
        check(a, site.oracle())

    def test_a_pack_before_own_states_are_kept(self, site: Site) -> None:
        storage = site.open()
        a, b = storage.new_instance(), storage.new_instance()
        with stepping(vars(a)["_base"], "tpc_finish", after=lambda: storage._cache.forget()):
            commit(a, [X, Y])
        poll(b)
        check(b, site.oracle())

    def test_what_was_loaded_before_a_pack_is_not_kept(self, site: Site) -> None:
        storage = site.open()
        a = storage.new_instance()
        poll(a)
        with during_load(a, lambda: storage._cache.forget()):
            tid_of(a, X)
        before = hits(storage)
        tid_of(a, X)
        assert hits(storage) == before
        check(a, site.oracle())

    def test_a_commit_between_a_poll_and_the_question_what_changed(self, site: Site) -> None:
        storage = site.open()
        a, b = storage.new_instance(), storage.new_instance()
        poll(a)
        read_all(a)
        site.commit(X)
        oracles = []

        def meanwhile() -> None:
            oracles.append(site.oracle())
            site.commit(X, Y)
            poll(b)
            read_all(b)

        with stepping(vars(a)["_base"], "poll_invalidations", after=meanwhile):
            poll(a)
        check(a, oracles[0])
        check(b, site.oracle())

    def test_polls_overtake_each_other(self, site: Site) -> None:
        """B is told of more changes than A, after A and before what A was told is used."""
        storage = site.open()
        a, b = storage.new_instance(), storage.new_instance()
        poll(a)
        read_all(a)
        site.commit(X)
        oracles = []

        def meanwhile() -> None:
            oracles.append(site.oracle())
            site.commit(Y)
            poll(b)
            read_all(b)

        with stepping(storage._feed.snapshots, "changes", after=meanwhile):
            poll(a)
        check(a, oracles[0])
        check(b, site.oracle())

    def test_instances_come_and_go(self, site: Site) -> None:
        storage = site.open()
        a = storage.new_instance()
        poll(a)
        old = site.oracle()
        read_all(a)
        site.commit(X)
        b = storage.new_instance()
        poll(b)
        check(b, site.oracle())
        b.release()
        site.commit(Y)
        check(a, old)
        c = storage.new_instance()
        check(c, site.oracle())  # has not polled
        poll(c)
        check(c, site.oracle())
        check(a, old)
        a.release()
        poll(c)
        check(c, site.oracle())

    def test_a_reopened_connection_starts_anew(self, site: Site) -> None:
        """What a pooled ZODB connection does: its last transaction ends, a new one begins."""
        storage = site.open()
        a, b = storage.new_instance(), storage.new_instance()
        poll(a)
        read_all(a)
        a.afterCompletion()
        site.commit(X)
        poll(b)
        check(b, site.oracle())
        a.sync(False)
        assert p64(X) in a.poll_invalidations()
        check(a, site.oracle())

    @pytest.mark.parametrize("told", [[], [p64(Z)]])
    def test_a_poll_after_one_that_knew_nothing(
        self, site: Site, monkeypatch: pytest.MonkeyPatch, told: list[bytes]
    ) -> None:
        """What the base storage remembers may begin later than that poll."""
        storage = site.open()
        a, b = storage.new_instance(), storage.new_instance()
        poll(a)
        answers = iter([None, told])
        base = base_of(a)
        poll_base = base.poll_invalidations

        def poll_forgetfully() -> list[bytes] | None:
            poll_base()
            return next(answers)

        monkeypatch.setattr(base, "poll_invalidations", poll_forgetfully)
        assert poll(a) is None
        site.commit(X)
        poll(b)
        site.commit(Y)
        assert set(poll(a)) == {p64(X), p64(Y), *told}
        check(a, site.oracle())

    def test_a_poll_after_one_that_knew_nothing_past_what_the_log_remembers(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage = site.open()
        a, b = storage.new_instance(), storage.new_instance()
        poll(a)
        answers = iter([None, []])
        base = base_of(a)
        poll_base = base.poll_invalidations
        monkeypatch.setattr(base, "poll_invalidations", lambda: (poll_base(), next(answers))[1])
        assert poll(a) is None
        site.commit(X)
        poll(b)
        storage._log.trim_through(storage._log.end)
        assert poll(a) is None

    def test_reads_without_polls(self, site: Site) -> None:
        """One instance, used directly, gives what RelStorage gives."""
        storage = site.open()
        plain = site.outside.new_instance()
        for oid in (X, Y, Z, X):
            assert read(storage, oid) == read(plain, oid)
        changed = site.commit(X)
        assert read(storage, X) == read(plain, X)
        for instance, oid in ((storage, Y), (plain, Z), (storage, W)):
            transaction = TransactionMetaData()
            _, serial = instance.load(p64(oid))
            instance.tpc_begin(transaction)
            instance.store(p64(oid), serial, b"%d@" % oid, "", transaction)
            instance.tpc_vote(transaction)
            tid = u64(instance.tpc_finish(transaction))
            assert tid_of(instance, oid) == tid
            assert tid_of(instance, X) == changed
        check(storage, site.oracle())
        transaction = TransactionMetaData()
        storage.tpc_begin(transaction)
        storage.store(p64(X), p64(changed), b"lost", "", transaction)
        storage.tpc_abort(transaction)
        check(storage, site.oracle())

    def test_an_empty_database_that_is_never_polled(
        self, open_relstorage: Any, tmp_path: Path
    ) -> None:
        """SQLite's snapshot ends with each query, unless a poll has begun one."""
        site = Site(lambda **options: open_relstorage("SQLite", **options), tmp_path / "cache")
        storage = site.open()
        a = storage.new_instance()
        assert read(a, X) == "POSKeyError"
        site.commit(X)
        with during_load(a, lambda: site.commit(X)):
            read(a, X)
        b = storage.new_instance()
        poll(b)
        check(b, site.oracle())
        site.close()
