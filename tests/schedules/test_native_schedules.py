"""Interleavings over native MVCC storages: each instance reads at its own snapshot.

Nothing here waits for time to pass.  RelStorage runs over SQLite and PostgreSQL,
with history and without; an unwrapped instance at the same snapshot is the oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from contextlib import nullcontext
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import ConflictError
from ZODB.POSException import ReadConflictError
from ZODB.utils import p64
from ZODB.utils import u64

import zodbcache

from .native import OIDS
from .native import Copies
from .native import Site
from .native import Steps
from .native import W
from .native import X
from .native import Y
from .native import Z
from .native import base_of
from .native import bound_window
from .native import check
from .native import check_seen
from .native import commit
from .native import drop_connection
from .native import during_load
from .native import hits
from .native import outcome
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
        commit(replica, [Z])
        for instance in (a, b):
            poll(instance)
            settle(storage)
            check_seen(instance)
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

    def test_a_new_connection_when_the_newest_object_has_changed_again(
        self, town: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing else was read but an old object: what changed since then is a lot."""
        bound_window(monkeypatch)
        for oid in OIDS[1:]:
            town.commit(oid)
        storage = town.open()
        a = storage.new_instance()
        poll(a)
        tid_of(a, OIDS[0])
        town.commit(OIDS[-1])
        b = storage.new_instance()
        poll(b)
        tid_of(b, OIDS[0])
        before = hits(storage)
        assert check_seen(b, [OIDS[0]]) == 2
        assert hits(storage) == before + 2

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


class TestStaleReplicas:
    """An instance's server is behind what RelStorage has polled."""

    @pytest.fixture
    def replica(self, copies: Copies, town: Site) -> Callable[..., Any]:
        """Open the cache at the primary; new connections find an older replica."""

        def open_(revert: bool) -> tuple[Any, Any, Any]:
            storage = town.open()
            a, b = storage.new_instance(), storage.new_instance()
            for instance in (a, b):
                poller = base_of(instance)._adapter.poller
                inner = getattr(poller, "_poller", poller)
                inner.transactions_may_go_backwards = True
                inner.revert_when_stale = revert
                poll(instance)
                read_all(instance)
            copies.copy("first", "replica")
            town.commit(X, Y)
            for instance in (a, b):
                poll(instance)
                check_seen(instance)
            copies.point_to("replica")
            drop_connection(b)
            return storage, a, b

        return open_

    def test_reading_from_it_conflicts(self, replica: Any, copies: Copies) -> None:
        storage, a, b = replica(revert=False)
        before = hits(storage)
        assert poll(b) is None
        for oid in OIDS:
            with pytest.raises(ReadConflictError):
                b.load(p64(oid))
        assert hits(storage) == before
        assert check_seen(a) == 2 * len(OIDS)
        copies.point_to("first")  # it has caught up
        drop_connection(b)
        poll(b)
        assert check_seen(b) == 2 * len(OIDS)
        check_seen(a)

    def test_reverting_to_it_inside_a_transaction(self, replica: Any) -> None:
        """The base storage has an older snapshot all of a sudden, and told nobody."""
        storage, a, b = replica(revert=True)
        storage._log.forget_all()
        with suppress(ReadConflictError):
            b.load(p64(X))
        check_seen(a)
        read(b, Y)
        check_seen(a)

    def test_reverting_to_it_reads_what_it_has(self, replica: Any, copies: Copies) -> None:
        storage, a, b = replica(revert=True)
        for _ in range(2):
            poll(b)
            settle(storage)
            assert check_seen(b) == 2 * len(OIDS)
            check_seen(a)
        copies.point_to("first")
        drop_connection(b)
        for instance in (a, b, a, b):
            poll(instance)
            settle(storage)
            check_seen(instance)


class TestHugeTransactions:
    """More changes than a poll asks for, or than are remembered."""

    @pytest.fixture
    def small_window(self, monkeypatch: pytest.MonkeyPatch) -> None:
        bound_window(monkeypatch)

    @pytest.mark.parametrize("changed", [9, 10, 11, 15])
    @pytest.mark.parametrize("at_once", [True, False])
    def test_more_than_a_window(
        self, site: Site, small_window: None, changed: int, at_once: bool
    ) -> None:
        storage = site.open()
        a, b = storage.new_instance(), storage.new_instance()
        for instance in (a, b):
            poll(instance)
            read_all(instance)
        old = site.oracle()
        breaks = storage._log.breaks
        poll(b)
        oids = OIDS[:changed]
        for group in [oids] if at_once else [oids[:6], oids[4:]]:
            site.commit(*group)
        with stepping(storage._caretaker, "_mend") if changed >= 10 else nullcontext():
            storage._caretaker.wake = lambda: None  # takes its time
            poll(b)
            check(b, site.oracle())
            check(a, old)
            del storage._caretaker.wake
            storage._caretaker.wake()
            settle(storage)
        assert (storage._log.breaks > breaks) == (changed >= 10)
        check(a, old)
        poll(b)
        before = hits(storage)
        assert [read(b, oid) for oid in OIDS[changed:]] == [
            read(site.oracle(), oid) for oid in OIDS[changed:]
        ]
        assert hits(storage) == before + len(OIDS) - changed
        check(b, site.oracle())
        check(a, old)

    @pytest.mark.parametrize("per_commit", [1, 4, 12])
    def test_more_than_are_remembered(self, site: Site, per_commit: int) -> None:
        """The file is told before names are forgotten; what did not change stays in it."""
        storage = site.open(cache_delta_size_limit=10)
        a = storage.new_instance()
        poll(a)
        read_all(a)
        storage._persistence.save()
        for first in range(0, 12, per_commit):
            site.commit(*OIDS[first : first + per_commit])
            poll(a)
            settle(storage)
            check(a, site.oracle())
        storage._cache.store.clear()  # what is not in the file is lost
        storage.close()
        again = site.open(cache_delta_size_limit=10)
        b = again.new_instance()
        poll(b)
        before = hits(again)
        expected = read_all(site.oracle(), OIDS[12:])
        assert read_all(b, OIDS[12:]) == expected
        assert hits(again) == before + len(expected)
        check(b, site.oracle())


class TestFiles:
    def test_reads_below_and_above_the_checkpoint(self, site: Site) -> None:
        """A is behind the file that another process has advanced; C is ahead of it."""
        storage = site.open()
        a = storage.new_instance()
        poll(a)
        old = site.oracle()
        other = site.open()
        b = other.new_instance()
        site.commit(X, Y)
        poll(b)
        read_all(b)
        assert other._persistence.save()
        storage._persistence._reader.renew()
        before = storage.cache_stats()["file_hits"]
        check(a, old)
        assert storage.cache_stats()["file_hits"] >= before + len(OIDS) - 2
        c = storage.new_instance()
        site.commit(Y, Z)
        poll(c)
        storage._log.forget_all()
        check(c, site.oracle())
        check(a, old)
        storage._log.forget_all()
        check(a, old)
        check(c, site.oracle())

    def test_another_process_empties_the_file(self, site: Site) -> None:
        storage, other = site.open(), site.open()
        a, b = storage.new_instance(), other.new_instance()
        for instance in (a, b):
            poll(instance)
            read_all(instance)
        storage._persistence.save()
        storage._log.forget_all()
        other._cache.forget()
        storage._persistence._reader.renew()
        site.commit(X)
        for instance in (a, b):
            poll(instance)
            check(instance, site.oracle())
        settle(storage)
        for instance in (a, b):
            check(instance, site.oracle())
        for process in (other, storage):
            process._persistence.save()
        storage._log.forget_all()
        check(a, site.oracle())

    def test_before_the_file_is_confirmed(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = site.open()
        a = first.new_instance()
        poll(a)
        read_all(a)
        first.close()
        site.commit(X)
        monkeypatch.setattr("zodbcache.persistence.PATIENCE_SECONDS", 0.0)
        with monkeypatch.context() as context:
            context.setattr("zodbcache.caretaker.Caretaker._restore", lambda *args: True)
            storage = site.open()
            b = storage.new_instance()
            poll(b)
            check(b, site.oracle())
            assert storage.cache_stats()["file_hits"] == 0
            old = site.oracle()
            site.commit(Y)
            c = storage.new_instance()
            poll(c)
        storage._log.forget_all()
        storage._caretaker.wake()
        settle(storage)
        check(c, site.oracle())
        check(b, old)
        assert storage.cache_stats()["file_hits"]

    def test_another_process_advances_the_file_while_it_is_confirmed(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A question of before that must not tell that the database has lost something."""
        from zodbcache.persistence import Persistence

        other = site.open()
        a = other.new_instance()
        poll(a)
        read_all(a)
        other._persistence.save()
        restore = Persistence._restore

        def late(self: Any, *args: Any) -> bool:
            monkeypatch.setattr(Persistence, "_restore", restore)
            site.commit(X)
            poll(a)
            read_all(a)
            other._persistence.save()
            return restore(self, *args)

        monkeypatch.setattr(Persistence, "_restore", late)
        generation = other._persistence._generation
        storage = site.open()
        poll(storage.new_instance())
        settle(storage)
        assert storage._persistence._generation == generation
        b = storage.new_instance()
        poll(b)
        check(b, site.oracle())
        assert storage.cache_stats()["misses"] == 0

    def test_a_database_of_another_name(self, open_relstorage: Any, tmp_path: Path) -> None:
        """Each has a file of its own."""
        one, two = (
            Site(
                lambda name=name, **options: open_relstorage("SQLite", name=name, **options),
                tmp_path / "cache",
            )
            for name in ("one", "two")
        )
        commit(one.outside, OIDS, b"one")
        commit(two.outside, OIDS, b"two")
        for site in (one, two, one, two):
            storage = site.open()
            a = storage.new_instance()
            poll(a)
            check(a, site.oracle())
            site.commit(X)
            poll(a)
            check(a, site.oracle())
            storage.close()

    def test_a_replica_is_promoted_right_after_a_restart(
        self, copies: Copies, town: Site, tmp_path: Path
    ) -> None:
        """All that is known of the database is in the file."""
        copies.copy("first", "replica")
        first = town.open()
        a = first.new_instance()
        town.commit(X, Y)
        poll(a)
        read_all(a)
        first.close()
        storage = town.open()
        b = storage.new_instance()
        copies.point_to("replica")
        for _ in range(2):
            poll(b)
            settle(storage)
            assert check_seen(b)
            commit(copies.open(), [Z])


class TestWriting:
    """What the base storage writes otherwise than it was given."""

    def everywhere(self, site: Site, storage: Any, *instances: Any) -> None:
        for instance in instances:
            poll(instance)
            check(instance, site.oracle())
        storage.close()
        again = site.open()
        instance = again.new_instance()
        poll(instance)
        check(instance, site.oracle())

    def test_historical_reads(self, site: Site) -> None:
        storage = site.open()
        a = storage.new_instance()
        tids = [commit(site.outside, [X])]
        poll(a)
        read_all(a)
        tids += [site.commit(X, Y), site.commit(Y)]
        plain = site.oracle()

        def compare(instance: Any, oracle: Any) -> None:
            for oid in (X, Y, Z, 99):
                for tid in [1, *(tid + step for tid in tids for step in (-1, 0, 1))]:
                    for _ in range(2):
                        found = outcome(instance.loadBefore, p64(oid), p64(tid))
                        assert found == outcome(oracle.loadBefore, p64(oid), p64(tid))

        poll(a)
        compare(a, plain)
        read_all(a)
        compare(a, plain)
        for tid in tids:
            historical = storage.before_instance(p64(tid + 1))
            oracle = site.outside.before_instance(p64(tid + 1))
            for oid in (X, Y, Z):
                for _ in range(2):
                    found = outcome(historical.load, p64(oid))
                    assert found == outcome(oracle.load, p64(oid))
            historical.release()
        assert site.commit(X)
        compare(a, plain)

    def test_undo(self, open_relstorage: Any, tmp_path: Path) -> None:
        site = Site(lambda **options: open_relstorage("SQLite", **options), tmp_path / "cache")
        commit(site.outside, OIDS)
        storage = site.open()
        a, b = storage.new_instance(), storage.new_instance()
        commit(a, [X, Y])
        for instance in (a, b):
            poll(instance)
            read_all(instance)
        old = site.oracle()
        transaction = TransactionMetaData()
        a.tpc_begin(transaction)
        a.undo(a.undoLog(0, 1)[0]["id"], transaction)
        a.tpc_vote(transaction)
        a.tpc_finish(transaction)
        check(b, old)
        self.everywhere(site, storage, a, b)
        site.close()

    def test_a_resolved_conflict(self, open_relstorage: Any, tmp_path: Path) -> None:
        import transaction
        import ZODB
        from BTrees.Length import Length

        site = Site(lambda **options: open_relstorage("SQLite", **options), tmp_path / "cache")
        storage = site.open()
        db = ZODB.DB(storage)
        managers = [transaction.TransactionManager() for _ in range(3)]
        connections = [db.open(manager) for manager in managers]
        connections[0].root()["length"] = Length(0)
        managers[0].commit()
        for connection, manager in zip(connections, managers, strict=True):
            manager.begin()
            connection.root()["length"].change(1)
        for manager in managers:
            manager.commit()
        oid = u64(connections[0].root()["length"]._p_oid)
        for connection, manager in zip(connections, managers, strict=True):
            manager.begin()
            assert connection.root()["length"]() == 3
        a = storage.new_instance()
        poll(a)
        check(a, site.oracle(), [0, oid])
        db.close()
        site.close()

    def test_a_deleted_object(self, site: Site) -> None:
        storage = site.open(base_options={"cache_local_mb": 0})
        a, b = storage.new_instance(), storage.new_instance()
        for instance in (a, b):
            poll(instance)
            read_all(instance)
        storage._persistence.save()
        transaction = TransactionMetaData()
        a.tpc_begin(transaction)
        a.deleteObject(p64(X), a.load(p64(X))[1], transaction)
        a.tpc_vote(transaction)
        a.tpc_finish(transaction)
        self.everywhere(site, storage, a, b)

    @pytest.mark.parametrize("is_late", [True, False])
    def test_restored_records_with_old_tids(self, site: Site, is_late: bool) -> None:
        """*is_late*: the log has heard of newer transactions."""
        storage = site.open(base_options={"cache_local_mb": 0})
        a, b = storage.new_instance(), storage.new_instance()
        poll(a)
        newest = u64(a.lastTransaction())
        read_all(a)
        storage._persistence.save()
        if is_late:
            commit(b, [Y])
            newest = site.commit(Z)
            poll(b)
        tid = newest - 1 if is_late else newest + 1
        transaction = TransactionMetaData()
        a.tpc_begin(transaction, p64(tid))
        a.restore(p64(X), p64(tid), b"1@restored", "", None, transaction)
        a.tpc_vote(transaction)
        a.tpc_finish(transaction)
        for instance in (a, b, a, b):  # RelStorage refuses some reads
            poll(instance)
            check_seen(instance)
        storage.close()
        c = site.open().new_instance()
        poll(c)
        check_seen(c)

    def test_transactions_copied_from_another_storage(self, site: Site, tmp_path: Path) -> None:
        from ZODB.FileStorage import FileStorage

        storage = site.open()
        a, b = storage.new_instance(), storage.new_instance()
        poll(a)
        read_all(a)
        old = p64(u64(a.lastTransaction()) - 1000)
        storage._persistence.save()
        source = FileStorage(str(tmp_path / "Source.fs"))
        transaction = TransactionMetaData()
        source.tpc_begin(transaction, old)
        for oid in (X, Y, 50):
            source.restore(p64(oid), old, b"%d@copied" % oid, "", None, transaction)
        source.tpc_vote(transaction)
        source.tpc_finish(transaction)
        a.zap_all()
        a.copyTransactionsFrom(source)
        source.close()
        self.everywhere(site, storage, a, b)

    def test_all_is_zapped(self, site: Site) -> None:
        storage = site.open()
        a, b = storage.new_instance(), storage.new_instance()
        for instance in (a, b):
            poll(instance)
            read_all(instance)
        storage._persistence.save()
        b.afterCompletion()
        base_of(b)._load_connection.drop()
        a.zap_all()
        poll(b)
        for _ in range(2):
            assert set(read_all(b).values()) == {"POSKeyError"}
        commit(a, [X, Y])
        poll(b)
        poll(a)
        check(b, site.oracle())
        self.everywhere(site, storage, a, b)


class TestApplications:
    """ZODB above it all."""

    @pytest.mark.parametrize("where", ["inside", "outside", "nowhere"])
    def test_what_a_connection_reads(
        self, where: str, open_relstorage: Any, tmp_path: Path
    ) -> None:
        """Savepoints, readCurrent, explicit managers, and two databases at once."""
        import transaction
        import ZODB
        from persistent.mapping import PersistentMapping
        from zc.zlibstorage import ZlibStorage

        def open_base(name: str) -> Any:
            base = open_relstorage("SQLite", name=name)
            return base if where == "nowhere" else ZlibStorage(base)

        def open_cached(name: str) -> Any:
            inner = open_relstorage("SQLite", name=name)
            options = {"cache_local_mb": 10, "cache_local_dir": str(tmp_path / "cache")}
            if where == "inside":
                return zodbcache.wrap(ZlibStorage(inner), **options)
            cached = zodbcache.wrap(inner, **options)
            return ZlibStorage(cached) if where == "outside" else cached

        databases: dict[str, Any] = {}
        db = ZODB.DB(open_cached("one"), databases=databases, database_name="one")
        ZODB.DB(open_cached("two"), databases=databases, database_name="two")
        plain = ZODB.DB(open_base("one"))
        managers = [transaction.TransactionManager(explicit=True) for _ in range(3)]
        a, b = db.open(managers[0]), db.open(managers[1])
        other = plain.open(managers[2])
        managers[0].begin()
        for name in ("x", "y"):
            a.root()[name] = PersistentMapping(text="a" * 500)
        managers[0].savepoint()
        a.root()["x"]["text"] = "b" * 500
        savepoint = managers[0].savepoint()
        a.root()["x"]["text"] = "c"
        savepoint.rollback()
        a.get_connection("two").root()["far"] = PersistentMapping(text="two")
        managers[0].commit()
        managers[1].begin()
        assert b.root()["x"]["text"] == "b" * 500
        assert b.get_connection("two").root()["far"]["text"] == "two"
        managers[2].begin()
        other.root()["x"]["text"] = "d" * 500
        managers[2].commit()
        b.cacheMinimize()
        assert b.root()["x"]["text"] == "b" * 500
        b.readCurrent(b.root()["x"])
        b.root()["y"]["text"] = "depends on x"
        with pytest.raises(ConflictError):
            managers[1].commit()
        managers[1].abort()
        managers[1].begin()
        assert b.root()["x"]["text"] == "d" * 500
        assert b.root()["y"]["text"] == "a" * 500
        managers[1].abort()
        managers[0].begin()
        a.cacheMinimize()
        assert a.root()["x"]["text"] == "d" * 500
        managers[0].abort()
        for connection in (a, b, other):
            connection.close()
        plain.close()
        for database in databases.values():
            database.close()


class TestRandomSteps:
    """Instances, a foreign committer, packs and restarts; each read compared with an oracle."""

    @pytest.mark.parametrize("keep_history", [True, False])
    @pytest.mark.parametrize("seed", range(4))
    def test_relstorage(
        self, open_relstorage: Any, tmp_path: Path, seed: int, keep_history: bool
    ) -> None:
        site = Site(
            lambda **options: open_relstorage("SQLite", keep_history=keep_history, **options),
            tmp_path / "cache",
        )
        commit(site.outside, OIDS)
        steps = Steps(
            Random(seed),
            storage=lambda: site.open(
                base_options={"cache_local_mb": 0},  # its own cache errs at times
                cache_delta_size_limit=(100000, 12)[seed % 2],
            ),
            outside=site.outside,
        )
        steps.run(1500)
        site.close()

    @pytest.mark.parametrize("seed", range(4))
    def test_mvcc_mapping_storage(self, seed: int) -> None:
        from ZODB.tests.MVCCMappingStorage import MVCCMappingStorage

        base = MVCCMappingStorage()
        outside = base.new_instance()
        commit(outside, OIDS)
        steps = Steps(
            Random(seed),
            storage=lambda: zodbcache.wrap(base.new_instance(), cache_local_mb=10),
            outside=outside,
        )
        steps.run(1500)
