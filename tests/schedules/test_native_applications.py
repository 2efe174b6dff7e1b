"""Native storages under applications: what is written, ZODB above, random steps.

Nothing here waits for time to pass.  An unwrapped instance at the same snapshot is
the oracle.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import ConflictError
from ZODB.utils import p64
from ZODB.utils import u64

import zodbcache

from .native import OIDS
from .native import Site
from .native import Steps
from .native import X
from .native import Y
from .native import Z
from .native import base_of
from .native import check
from .native import check_seen
from .native import commit
from .native import outcome
from .native import poll
from .native import read_all

pytest_plugins = ["servers"]


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
