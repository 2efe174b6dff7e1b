"""Native storages, their instances and unwrapped ones beside them, one step at a time.

A ``Site`` is one database, the process under test, and whoever else uses the
database, with no cache of ours.  An unwrapped instance that polls when a cached
one does sees the same snapshot: it is the oracle.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from contextlib import AbstractContextManager
from contextlib import contextmanager
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import ConflictError
from ZODB.POSException import POSKeyError
from ZODB.POSException import ReadConflictError
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

import zodbcache
from zodbcache.feeds.wrapped import innermost

X, Y, Z, W = 1, 2, 3, 4
OIDS = range(1, 21)


def base_of(instance: Any) -> Any:
    """The innermost storage of a cached instance, or of another."""
    return innermost(vars(instance).get("_base", instance))


def bound_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """One question tells of 10 changes at most."""
    from zodbcache.feeds import relstorage

    names, table, tid = relstorage._names, relstorage._table, relstorage._tid
    after = names.where(tid > table.bindparam("tid")).order_by(tid).limit(10).prepared()
    after.__set_name__(relstorage._ChangeQueries, "_after")
    monkeypatch.setattr(relstorage._ChangeQueries, "_after", after)
    monkeypatch.setattr(relstorage, "WINDOW_ROWS", 10)


def poll(instance: Any) -> Any:
    """What a ZODB connection does at the start of a transaction."""
    instance.sync()
    return instance.poll_invalidations()


def read(instance: Any, oid: int) -> Any:
    """``(state, tid)``, or the name of what the storage raises."""
    try:
        state, tid = instance.load(p64(oid))
    except POSKeyError as error:
        return type(error).__name__
    return state, u64(tid)


def outcome(method: Callable[..., Any], *args: Any) -> Any:
    """What it returns, or the name of what it raises."""
    try:
        return method(*args)
    except POSKeyError as error:
        return type(error).__name__


def read_all(instance: Any, oids: Iterable[int] = OIDS) -> dict[int, Any]:
    return {oid: read(instance, oid) for oid in oids}


def tid_of(instance: Any, oid: int) -> int:
    """The tid of what is read; its state must be of this object."""
    state, tid = instance.load(p64(oid))
    assert state.startswith(b"%d@" % oid)
    return u64(tid)


def commit(instance: Any, oids: Iterable[int], word: bytes = b"", *, size: int = 0) -> int:
    """Poll, store these objects, and return the tid."""
    poll(instance)
    transaction = TransactionMetaData()
    instance.tpc_begin(transaction)
    for oid in oids:
        try:
            serial = instance.load(p64(oid))[1]
        except POSKeyError:
            serial = z64
        state = b"%d@%d%s" % (oid, u64(serial), word)
        instance.store(p64(oid), serial, state.ljust(size, b"."), "", transaction)
    instance.tpc_vote(transaction)
    return u64(instance.tpc_finish(transaction))


def hits(storage: Any) -> int:
    return int(storage.cache_stats()["hits"])


def settle(storage: Any) -> None:
    """Let the caretaker finish what it knows of."""
    storage._caretaker.wait()


def drop_connection(instance: Any) -> None:
    """The load connection is lost; RelStorage opens another when it needs one."""
    base_of(instance)._load_connection.drop()


@contextmanager
def stepping(
    target: Any,
    name: str,
    *,
    before: Callable[[], object] = lambda: None,
    after: Callable[[], object] = lambda: None,
) -> Iterator[None]:
    """The next call of *target*'s method *name* is preceded and followed by a step."""
    original = getattr(target, name)
    had_own = name in vars(target)

    def restore() -> None:
        if had_own:
            setattr(target, name, original)
        else:
            vars(target).pop(name, None)

    def stepped(*args: Any, **kwargs: Any) -> Any:
        restore()
        before()
        result = original(*args, **kwargs)
        after()
        return result

    setattr(target, name, stepped)
    try:
        yield
        assert vars(target).get(name) is not stepped, f"{name} was not called"
    finally:
        restore()


def during_load(instance: Any, step: Callable[[], object]) -> AbstractContextManager[None]:
    """*step* comes when the database has answered the next load, before that is kept."""
    inner = base_of(instance)
    if hasattr(inner, "_adapter"):
        return stepping(inner._adapter.mover, "load_current", after=step)
    return stepping(inner, "load", after=step)


class Site:
    """One database.  *open_base*: ``f(**options)``, opens it anew."""

    def __init__(self, open_base: Callable[..., Any], directory: Path) -> None:
        self._open_base = open_base
        self._directory = directory
        self._outside: Any = None
        self._processes: list[Any] = []

    @property
    def outside(self) -> Any:
        """The database with no cache of ours, as another process has it."""
        if self._outside is None:
            self._outside = self._open_base(cache_local_mb=0)  # its own cache errs, too
        return self._outside

    def open(self, *, base_options: dict[str, Any] | None = None, **options: Any) -> Any:
        """Another process's cached storage, once the cache is ready; it saves when told to."""
        base = self._open_base(**(base_options or {}))
        checked = {
            "cache_local_mb": 10,
            "cache_local_dir": str(self._directory),
            "cache_write_seconds": 0,
            **options,
        }
        storage = zodbcache.wrap(base, **checked)
        self._processes.append(storage)
        settle(storage)
        return storage

    def commit(self, *oids: int, word: bytes = b"", size: int = 0) -> int:
        """Somebody else does."""
        return commit(self.outside, oids, word, size=size)

    def oracle(self) -> Any:
        """An unwrapped instance whose snapshot is of now."""
        instance = self.outside.new_instance()
        poll(instance)
        return instance

    def close(self) -> None:
        for storage in self._processes:
            storage.close()


def check(instance: Any, oracle: Any, oids: Iterable[int] = OIDS) -> None:
    """I1: twice, for the second read may be a hit."""
    expected = read_all(oracle, oids)
    for _ in range(2):
        assert read_all(instance, oids) == expected
    instance._store.check()


def check_seen(instance: Any, oids: Iterable[int] = OIDS) -> int:
    """What is served is what the instance's own snapshot has; return how many were.

    RelStorage refuses some reads where its own bookkeeping is of another
    history than its server's.  The instance has polled.
    """
    from relstorage.cache.interfaces import CacheConsistencyError

    inner, served = base_of(instance), 0
    for oid in [*oids, *oids]:
        connection = inner._load_connection.connection
        expected = inner._adapter.mover.load_current(inner._load_connection.cursor, oid)
        try:
            found = read(instance, oid)
        except (CacheConsistencyError, ReadConflictError, AssertionError):
            poll(instance)  # as the next attempt of the application does
            continue
        if inner._load_connection.connection is connection:
            assert found == expected or (found == "POSKeyError" and expected == (None, None)), oid
            served += 1
    instance._store.check()
    return served


class Copies:
    """A SQLite database in a directory that can be exchanged for another one.

    Connections that are open stay with what they had: an old server that lives
    on.  New ones find what ``current`` points to.
    """

    def __init__(self, directory: Path, *, keep_history: bool = False) -> None:
        self.directory = directory
        self.keep_history = keep_history
        self.link = directory / "current"
        (directory / "first").mkdir(parents=True)
        self.link.symlink_to("first")
        self._opened: list[Any] = []

    def open(self, name: str = "current", **options: Any) -> Any:
        from relstorage.adapters.sqlite.adapter import Sqlite3Adapter
        from relstorage.options import Options
        from relstorage.storage import RelStorage

        # Its own cache would serve what a server has lost.
        checked = Options(
            **{
                "cache_local_mb": 0,
                "create_schema": True,
                "keep_history": self.keep_history,
                **options,
            }
        )
        path = str(self.directory / name)
        adapter = Sqlite3Adapter(path, pragmas={"synchronous": "off"}, options=checked)
        self._opened.append(RelStorage(adapter, options=checked))
        return self._opened[-1]

    def copy(self, source: str, target: str) -> None:
        """As a backup does: all that is committed, and nothing of the log beside it."""
        import sqlite3

        (self.directory / target).mkdir()
        for path in (self.directory / source).glob("*.sqlite3"):
            with sqlite3.connect(path) as old:
                with sqlite3.connect(self.directory / target / path.name) as new:
                    old.backup(new)
                new.close()
            old.close()

    def point_to(self, name: str) -> None:
        """From now on this copy is the database."""
        self.link.unlink()
        self.link.symlink_to(name)

    def restore(self, source: str, target: str) -> None:
        """Replace the contents of a directory that nobody has open."""
        shutil.rmtree(self.directory / target)
        self.copy(source, target)

    def close(self) -> None:
        for storage in self._opened:
            storage.close()


class Steps:
    """Three cached instances, each with an unwrapped one that polls when it does.

    *storage*: ``f()``, opens the cached storage anew.  *outside*: an
    unwrapped instance of the same database.
    """

    def __init__(self, random: Random, *, storage: Callable[[], Any], outside: Any) -> None:
        self._random = random
        self._open = storage
        self._outside = outside
        self._committer = outside.new_instance()
        self._pairs: list[tuple[Any, Any]] = []
        self._storage: Any = None
        self._open_all()

    def _open_all(self) -> None:
        self._storage = self._open()
        self._pairs = [self._pair() for _ in range(3)]

    def _pair(self) -> tuple[Any, Any]:
        pair = self._storage.new_instance(), self._outside.new_instance()
        self._poll(*pair)
        return pair

    def _poll(self, cached: Any, plain: Any) -> None:
        poll(cached)
        poll(plain)

    def run(self, count: int) -> None:
        actions = {
            self._read: 60,
            self._poll_one: 25,
            self._commit_outside: 12,
            self._commit: 10,
            self._commit_during_load: 6,
            self._commit_during_poll: 4,
            self._abort: 3,
            self._read_before: 5,
            self._exchange: 2,
            self._clear: 1,
            self._save: 2,
            self._pack: 0.5,
            self._settle: 5,
            self._restart: 0.7,
        }
        for _ in range(count):
            (action,) = self._random.choices(list(actions), list(actions.values()))
            action(*self._random.choice(self._pairs))
        for pair in self._pairs:
            self._poll(*pair)
            check(*pair)
        self._storage.close()

    def _some(self, most: int = 3) -> list[int]:
        return self._random.sample(OIDS, self._random.randint(1, most))

    def _read(self, cached: Any, plain: Any) -> None:
        for oid in self._some(8):
            assert read(cached, oid) == read(plain, oid)

    def _read_before(self, cached: Any, plain: Any) -> None:
        for oid in self._some():
            _, tid = plain.load(p64(oid))
            before = p64(u64(tid) + self._random.choice((0, 1)))
            expected = outcome(plain.loadBefore, p64(oid), before)
            found = outcome(cached.loadBefore, p64(oid), before)
            assert (
                found == expected
                or (  # MVCCMappingStorage tells of what comes after, too
                    found[:2] == expected[:2]
                    and found[2] is None
                    and u64(expected[2]) > cached.load.at
                )
            )

    def _poll_one(self, cached: Any, plain: Any) -> None:
        self._poll(cached, plain)

    def _commit_outside(self, cached: Any, plain: Any) -> None:
        commit(self._committer, self._some(self._random.choice((2, 15))))

    def _commit(self, cached: Any, plain: Any) -> None:
        commit(cached, self._some())
        self._poll(cached, plain)
        self._read(cached, plain)

    def _abort(self, cached: Any, plain: Any) -> None:
        transaction = TransactionMetaData()
        cached.tpc_begin(transaction)
        for oid in self._some():
            with suppress(ConflictError):
                cached.store(p64(oid), cached.load(p64(oid))[1], b"aborted", "", transaction)
        cached.tpc_abort(transaction)
        self._poll(cached, plain)

    def _commit_during_load(self, cached: Any, plain: Any) -> None:
        oids = self._some()
        with suppress(AssertionError), during_load(cached, self._meanwhile):
            cached.load(p64(oids[0]))
        self._read(cached, plain)

    def _commit_during_poll(self, cached: Any, plain: Any) -> None:
        def meanwhile() -> None:
            poll(plain)
            self._meanwhile()

        with stepping(vars(cached)["_base"], "poll_invalidations", after=meanwhile):
            poll(cached)

    def _meanwhile(self) -> None:
        commit(self._committer, self._some())
        if self._random.random() < 0.5:
            pair = self._pair()
            self._read(*pair)
            for instance in pair:
                instance.release()

    def _exchange(self, cached: Any, plain: Any) -> None:
        self._pairs.remove((cached, plain))
        cached.release()
        plain.release()
        self._pairs.append(self._pair())

    def _clear(self, cached: Any, plain: Any) -> None:
        self._storage._cache.clear()

    def _save(self, cached: Any, plain: Any) -> None:
        self._storage._persistence.save()
        self._storage._store.check()

    def _settle(self, cached: Any, plain: Any) -> None:
        settle(self._storage)

    def _pack(self, cached: Any, plain: Any) -> None:
        self._storage._cache.forget()

    def _restart(self, cached: Any, plain: Any) -> None:
        self._storage.close()
        for _, oracle in self._pairs:
            oracle.release()
        self._open_all()
