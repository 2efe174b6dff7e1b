"""Native storages whose database is not what it was: other histories, packs, replicas.

Nothing here waits for time to pass.  An unwrapped instance at the same snapshot is
the oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from ZODB.POSException import ReadConflictError
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
from .native import bound_window
from .native import check
from .native import check_seen
from .native import commit
from .native import drop_connection
from .native import hits
from .native import poll
from .native import read
from .native import read_all
from .native import settle
from .native import tid_of

pytest_plugins = ["servers"]


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
