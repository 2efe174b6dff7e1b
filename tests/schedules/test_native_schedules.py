"""Interleavings over native MVCC storages: each instance reads at its own snapshot.

Nothing here waits for time to pass.  RelStorage runs over SQLite and PostgreSQL,
with history and without; an unwrapped instance at the same snapshot is the oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import POSKeyError
from ZODB.utils import p64
from ZODB.utils import u64

from .native import OIDS
from .native import Copies
from .native import Site
from .native import W
from .native import X
from .native import Y
from .native import Z
from .native import base_of
from .native import check
from .native import check_seen
from .native import commit
from .native import drop_connection
from .native import hits
from .native import poll
from .native import read
from .native import read_all
from .native import settle
from .native import stepping
from .native import tid_of

pytest_plugins = ["servers"]

DATABASES = [
    pytest.param((kind, keep_history), id=f"{kind}-{'history' if keep_history else 'free'}")
    for kind in ("SQLite", "PostgreSQL")
    for keep_history in (True, False)
]


@pytest.fixture(params=DATABASES)
def site(request: pytest.FixtureRequest, open_relstorage: Any, tmp_path: Path) -> Iterator[Site]:
    """A database with the objects of OIDS."""
    kind, keep_history = request.param
    site = Site(
        lambda **options: open_relstorage(kind, keep_history=keep_history, **options),
        tmp_path / "cache",
    )
    commit(site.outside, OIDS)
    yield site
    site.close()


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Copies]:
    """One history-free SQLite database, to be copied and exchanged."""
    pytest.importorskip("relstorage")
    copies = Copies(tmp_path / "copies")
    yield copies
    copies.close()


@pytest.fixture
def town(copies: Copies, tmp_path: Path) -> Iterator[Site]:
    """A process over what ``copies`` points to."""
    site = Site(copies.open, tmp_path / "cache")
    commit(site.outside, OIDS)
    yield site
    site.close()


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

        with stepping(base_of(a), "load", after=meanwhile):
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

        with stepping(base_of(a), "load", after=meanwhile):
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
        with stepping(base_of(a), "load", after=lambda: storage._cache.forget()):
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
        with stepping(base_of(a), "load", after=lambda: site.commit(X)):
            read(a, X)
        b = storage.new_instance()
        poll(b)
        check(b, site.oracle())
        site.close()


class TestOtherHistories:
    """Schedule 10: backups, copies and promoted replicas."""

    def test_a_restored_backup_that_passes_the_checkpoint(
        self, copies: Copies, town: Site, tmp_path: Path
    ) -> None:
        copies.copy("first", "backup")
        storage = town.open()
        a = storage.new_instance()
        town.commit(X)
        town.commit(Y)
        poll(a)
        read_all(a)
        storage.close()
        copies.close()
        copies.restore("backup", "first")
        later = Site(copies.open, tmp_path / "cache")
        later.commit(Z)
        b = later.open().new_instance()
        poll(b)
        check(b, later.oracle())
        later.close()

    @pytest.mark.parametrize("counters_only", [True, False])
    def test_copies_that_have_diverged(
        self, copies: Copies, town: Site, tmp_path: Path, counters_only: bool
    ) -> None:
        """In both copies the newest objects change again, so that no witness contradicts.

        In the copy W changes before the checkpoint of the file, and X after it.
        """
        storage = town.open()
        a = storage.new_instance()
        poll(a)
        read_all(a)
        copies.copy("first", "second")
        other = copies.open("second")
        if not counters_only:
            town.commit(Y)
        commit(other, [W, Y])  # between two commits of the first
        town.commit(X)
        poll(a)
        read_all(a)
        storage.close()
        commit(other, [X])
        copies.close()
        copies.restore("second", "first")
        later = Site(copies.open, tmp_path / "cache")
        b = later.open().new_instance()
        poll(b)
        check(b, later.oracle())
        later.close()

    @pytest.mark.parametrize("commits", [[], [[Z]], [[X]], [[X], [Y]], [[Z], [X, Y]]])
    def test_a_promoted_replica_that_lost_commits(
        self, copies: Copies, town: Site, commits: list[list[int]]
    ) -> None:
        """*commits*: at the replica, before anybody here is connected to it."""
        copies.copy("first", "replica")
        storage = town.open()
        a, b = storage.new_instance(), storage.new_instance()
        poll(a)
        read_all(a)
        town.commit(X)
        town.commit(Y, W)
        for instance in (a, b):
            poll(instance)
            check_seen(instance)
        copies.point_to("replica")
        replica = copies.open()
        for oids in commits:
            commit(replica, oids)
        drop_connection(b)
        poll(b)
        for instance in (b, a, b):
            settle(storage)
            check_seen(instance)
        commit(replica, [Y])
        poll(b)
        for instance in (b, a, b):
            settle(storage)
            check_seen(instance)
        commit(replica, [X])
        drop_connection(a)
        for instance in (a, b, a, b):
            poll(instance)
            settle(storage)
            assert check_seen(instance)
        before = hits(storage)
        poll(a)
        assert check_seen(a) == 2 * len(OIDS)
        assert hits(storage) >= before + len(OIDS)  # it has recovered

    @pytest.mark.parametrize("seed", range(5))
    def test_the_old_server_lives_on(self, copies: Copies, town: Site, seed: int) -> None:
        """Instances at two servers, both of which go on committing."""
        random = Random(seed)
        copies.copy("first", "replica")
        storage = town.open()
        instances = [storage.new_instance() for _ in range(4)]
        for instance in instances:
            poll(instance)
            check_seen(instance)
        town.commit(X)
        for instance in instances:
            poll(instance)
            check_seen(instance)
        copies.point_to("replica")
        servers = [town.outside, copies.open()]
        for number in range(60):
            if number == 5:
                drop_connection(instances[0])
            if number == 30:
                drop_connection(instances[1])
            commit(random.choice(servers), random.sample(OIDS, 2))
            for instance in random.sample(instances, 2):
                if random.random() < 0.8:
                    poll(instance)
                    settle(storage)
                check_seen(instance, random.sample(OIDS, 10))

    def test_another_history_appears_while_changes_are_asked_for(
        self, copies: Copies, town: Site
    ) -> None:
        """A's names are of the old server; the log began anew meanwhile."""
        storage = town.open()
        a, b = storage.new_instance(), storage.new_instance()
        poll(a)
        read_all(a)
        copies.copy("first", "replica")
        town.commit(X)
        poll(a)
        poll(b)
        read_all(a)
        replica = copies.open("replica")
        commit(replica, [Z])
        commit(replica, [X])

        def meanwhile() -> None:
            copies.point_to("replica")
            drop_connection(b)
            poll(b)
            check_seen(b)
            commit(replica, [W])  # before what A sees

        town.commit(Y)
        snapshots = storage._feed.snapshots
        with stepping(base_of(a), "poll_invalidations", after=lambda: None):
            pass_on = stepping(snapshots, "changes", before=meanwhile)
            with pass_on:
                town.commit(Y)
                poll(a)
        poll(b)
        check_seen(b)
        check_seen(a)

    def test_a_read_in_an_old_snapshot_after_the_log_began_anew(
        self, copies: Copies, town: Site
    ) -> None:
        """A is still with the old server; what is cached now is of the new one."""
        storage = town.open()
        a, b = storage.new_instance(), storage.new_instance()
        poll(a)
        read_all(a)
        copies.copy("first", "replica")
        replica = copies.open("replica")
        commit(replica, [Z])
        town.commit(X)
        for instance in (a, b):
            poll(instance)
        check_seen(a, [X])
        copies.point_to("replica")
        drop_connection(b)
        poll(b)
        check_seen(b)
        commit(replica, [Y])
        poll(b)
        check_seen(b)
        check_seen(a)
        check_seen(b)


class TestPacks:
    """Schedule 12."""

    def test_a_pack_by_another_process_collects_the_newest_object(
        self, open_relstorage: Any, tmp_path: Path
    ) -> None:
        import transaction
        import ZODB
        from persistent.mapping import PersistentMapping

        def open_base(**options: Any) -> Any:
            return open_relstorage("SQLite", keep_history=False, **options)

        site = Site(open_base, tmp_path / "cache")
        outside = ZODB.DB(open_base())
        manager = transaction.TransactionManager()
        connection = outside.open(manager)
        root = connection.root()
        root["kept"] = PersistentMapping(number=1)
        root["doomed"] = PersistentMapping(number=2)
        manager.commit()
        doomed = root["doomed"]
        oids = [0, u64(root["kept"]._p_oid)]
        del root["doomed"]
        manager.commit()
        doomed["number"] = 3  # the newest object, and nobody refers to it
        manager.commit()
        storage = site.open()
        a = storage.new_instance()
        poll(a)
        for oid in (*oids, u64(doomed._p_oid)):
            a.load(p64(oid))
        assert a.load(doomed._p_oid)[1] == doomed._p_serial
        connection.close()
        outside.pack()
        assert read(site.oracle(), u64(doomed._p_oid)) == "POSKeyError"
        for _ in range(2):
            poll(a)
            check(a, site.oracle(), oids)
        storage.close()
        again = site.open()
        b = again.new_instance()
        poll(b)
        check(b, site.oracle(), oids)
        assert again.cache_stats()["misses"] == 0
        assert read(b, u64(doomed._p_oid)) == "POSKeyError"
        outside.close()
        site.close()
