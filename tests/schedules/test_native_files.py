"""Native storages and the shared file; huge transactions.

Nothing here waits for time to pass.  An unwrapped instance at the same snapshot is
the oracle.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from .native import OIDS
from .native import Copies
from .native import Site
from .native import X
from .native import Y
from .native import Z
from .native import bound_window
from .native import check
from .native import check_seen
from .native import commit
from .native import hits
from .native import poll
from .native import read
from .native import read_all
from .native import settle
from .native import stepping

pytest_plugins = ["servers"]


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
            context.setattr("zodbcache.persistence.Persistence.restore", lambda *_, quickly: True)
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
