"""The same over real storages: commits and loads that meet, restarts, other configurations.

Nothing here waits for time to pass; threads meet at events.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transaction
import ZODB
from persistent.mapping import PersistentMapping
from zc.zlibstorage import ZlibStorage
from ZEO.ClientStorage import ClientStorage
from ZODB.Connection import TransactionMetaData
from ZODB.DemoStorage import DemoStorage
from ZODB.FileStorage import FileStorage
from ZODB.MappingStorage import MappingStorage
from ZODB.serialize import referencesf

from zodbcache.storage import CachedStorage

from .plain import after
from .plain import answer
from .plain import base_of
from .plain import commit
from .plain import fill
from .plain import hits_and_misses
from .plain import now
from .plain import oid_of
from .plain import read

Wrap = Callable[..., CachedStorage]

X, Y = oid_of(1), oid_of(2)
WAIT_SECONDS = 20


class TestALoadMeetsACommit:
    """On each plain base storage."""

    @pytest.fixture
    def storage(self, bases: Any, wrapped: Wrap) -> CachedStorage:
        storage = wrapped(bases.open(), cache_local_dir=None)
        commit(storage, {X: b"x1", Y: b"y1"})
        return storage

    def check(self, storage: CachedStorage, before: bytes, tid: bytes) -> None:
        assert storage.loadBefore(X, after(tid))[0] == b"x2"
        assert storage.loadBefore(X, before)[0] == b"x1"
        later = commit(storage, {Y: b"y2"})
        assert storage.loadBefore(X, after(later))[0] == b"x2"
        assert storage.loadBefore(X, before)[:2] == base_of(storage).loadBefore(X, before)[:2]

    def test_it_is_asked_inside_the_callback(self, storage: CachedStorage) -> None:
        """And answered whenever the base storage likes to."""
        before = now(storage)
        base = base_of(storage)
        asked = threading.Event()
        load_before = base.loadBefore

        def ask(oid: bytes, tid: bytes) -> Any:
            asked.set()
            return load_before(oid, tid)

        loads: list[threading.Thread] = []

        def callback(tid: bytes) -> None:
            loads.append(threading.Thread(target=answer, args=(storage, X, after(tid))))
            loads[0].start()
            assert asked.wait(WAIT_SECONDS)

        storage._store.clear()
        base.loadBefore = ask
        try:
            tid = commit(storage, {X: b"x2"}, callback=callback)
            loads[0].join(WAIT_SECONDS)
        finally:
            del base.loadBefore
        self.check(storage, before, tid)

    def test_it_is_asked_just_after_the_base_has_finished(self, storage: CachedStorage) -> None:
        before = now(storage)
        base = base_of(storage)
        tpc_finish = base.tpc_finish
        seen: list[Any] = []

        def finish_and_load(*arguments: Any) -> Any:
            tid = tpc_finish(*arguments)
            seen.append(storage.loadBefore(X, now(base)))
            return tid

        storage._store.clear()
        base.tpc_finish = finish_and_load
        try:
            tid = commit(storage, {X: b"x2"})
        finally:
            del base.tpc_finish
        assert seen[0][:2] == (b"x2", tid)
        self.check(storage, before, tid)

    def test_it_was_asked_before_and_answered_after(self, storage: CachedStorage) -> None:
        before = now(storage)
        base = base_of(storage)
        load_before = base.loadBefore
        answered, go_on = threading.Event(), threading.Event()

        def answer_late(oid: bytes, tid: bytes) -> Any:
            found = load_before(oid, tid)
            answered.set()
            assert go_on.wait(WAIT_SECONDS)
            return found

        storage._store.clear()
        base.loadBefore = answer_late
        load = threading.Thread(target=storage.loadBefore, args=(X, before))
        load.start()
        assert answered.wait(WAIT_SECONDS)
        del base.loadBefore
        tid = commit(storage, {X: b"x2"})
        go_on.set()
        load.join(WAIT_SECONDS)
        self.check(storage, before, tid)

    def test_a_poll_inside_the_callback(self, storage: CachedStorage) -> None:
        before = now(storage)
        polled: list[bytes] = []
        tid = commit(
            storage, {X: b"x2"}, callback=lambda tid: polled.append(storage.lastTransaction())
        )
        right = b"x2" if polled[0] == tid else b"x1"
        assert storage.loadBefore(X, after(polled[0]))[0] == right
        self.check(storage, before, tid)


class TestPack:
    def test_a_load_that_was_answered_before(self, tmp_path: Path, wrapped: Wrap) -> None:
        """An own pack drops what it took away, also what is on its way into memory."""
        base = FileStorage(str(tmp_path / "Data.fs"))
        storage = wrapped(base, cache_local_dir=None)
        db = ZODB.DB(storage)
        connection = db.open()
        connection.root()["a"] = 1
        transaction.commit()
        old = now(storage)
        connection.root()["a"] = 2
        transaction.commit()
        storage._store.clear()
        load_before = base.loadBefore

        def answer_and_pack(oid: bytes, tid: bytes) -> Any:
            found = load_before(oid, tid)
            base.loadBefore = load_before
            db.pack()
            return found

        base.loadBefore = answer_and_pack
        root = connection.root()._p_oid
        assert storage.loadBefore(root, old) is not None
        assert answer(storage, root, old) == answer(base, root, old)
        connection.close()

    def test_what_an_own_pack_collected_does_not_come_back_from_the_file(
        self, tmp_path: Path, wrapped: Wrap
    ) -> None:
        path = str(tmp_path / "Data.fs")

        def run(work: Callable[[CachedStorage, Any], None]) -> None:
            storage = wrapped(FileStorage(path))
            db = ZODB.DB(storage)
            connection = db.open()
            work(storage, connection)
            transaction.commit()
            connection.close()
            db.close()

        garbage: list[bytes] = []

        def make(storage: CachedStorage, connection: Any) -> None:
            connection.root()["garbage"] = PersistentMapping()
            transaction.commit()
            garbage.append(connection.root()["garbage"]._p_oid)
            del connection.root()["garbage"]
            transaction.commit()
            read(storage, garbage)

        def pack(storage: CachedStorage, connection: Any) -> None:
            assert hits_and_misses(storage, garbage) == (1, 0), "it came back from the file"
            connection.db().pack()
            assert answer(storage, garbage[0], now(storage)) == "POSKeyError"

        run(make)
        run(pack)
        run(lambda storage, connection: None)
        again = wrapped(FileStorage(path))
        assert answer(again, garbage[0], now(again)) == "POSKeyError"

    def test_elsewhere_it_collects_the_newest_object(self, tmp_path: Path, wrapped: Wrap) -> None:
        """Nothing false after a restart, and warmth is kept."""
        path = str(tmp_path / "Data.fs")
        storage = wrapped(FileStorage(path))
        db = ZODB.DB(storage)
        connection = db.open()
        for number in range(20):
            connection.root()[number] = PersistentMapping()
        transaction.commit()
        oids = [connection.root()[number]._p_oid for number in range(20)]
        nobody_refers_to_it = PersistentMapping()
        connection.add(nobody_refers_to_it)
        transaction.commit()
        newest = storage.lastTransaction()
        read(storage, [*oids, nobody_refers_to_it._p_oid])
        base_of(storage).pack(10**10, referencesf)
        assert hits_and_misses(storage, oids)[1] == 0
        connection.close()
        db.close()

        again = wrapped(FileStorage(path))
        assert again.lastTransaction() < newest
        assert answer(again, nobody_refers_to_it._p_oid, now(again)) == "POSKeyError"
        assert hits_and_misses(again, oids) == (20, 0)
        assert read(again, oids) == read(base_of(again), oids)


class TestRestart:
    def test_below_a_demo_storage_something_changed(self, tmp_path: Path, wrapped: Wrap) -> None:
        below, above = str(tmp_path / "below.fs"), str(tmp_path / "above.fs")
        base = FileStorage(below)
        commit(base, {X: b"x1", Y: b"y1"})
        base.close()

        def demo() -> Any:
            return DemoStorage(base=FileStorage(below), changes=FileStorage(above))

        storage = wrapped(demo())
        read(storage, [X, Y])
        commit(storage, {Y: b"y2"})
        storage.close()
        base = FileStorage(below)
        commit(base, {X: b"x2"})
        base.close()
        storage = wrapped(demo())
        commit(storage, {Y: b"y3"})
        assert read(storage, [X, Y]) == read(base_of(storage), [X, Y])

    def test_the_cache_moves_from_below_compression_to_above(
        self, tmp_path: Path, wrapped: Wrap
    ) -> None:
        """One file of records, seen with and without a wrapper that changes them."""
        path = str(tmp_path / "Data.fs")
        db = ZODB.DB(ZlibStorage(wrapped(FileStorage(path))))
        connection = db.open()
        connection.root()["text"] = "long " * 1000
        transaction.commit()
        connection.close()
        db.close()
        db = ZODB.DB(wrapped(ZlibStorage(FileStorage(path))))
        connection = db.open()
        assert connection.root()["text"] == "long " * 1000
        connection.close()

    def test_the_log_forgot_old_changes(self, tmp_path: Path, wrapped: Wrap) -> None:
        """The file cannot be brought along then; what memory holds is written anew."""
        path = str(tmp_path / "Data.fs")
        storage = wrapped(FileStorage(path))
        oids = fill(storage, 200)
        read(storage, oids)
        storage.close()
        storage = wrapped(FileStorage(path), cache_delta_size_limit=10)
        assert hits_and_misses(storage, oids) == (200, 0)
        for number in range(5):
            fill(storage, 20, start=1000 + 20 * number)
        storage.close()
        storage = wrapped(FileStorage(path))
        assert hits_and_misses(storage, oids) == (200, 0)

    @pytest.mark.parametrize("with_new_commits", [False, True])
    def test_an_older_backup(self, tmp_path: Path, wrapped: Wrap, with_new_commits: bool) -> None:
        path = str(tmp_path / "Data.fs")
        base = FileStorage(path)
        commit(base, {X: b"x1", Y: b"y1"})
        base.close()
        shutil.copy(path, tmp_path / "backup")
        storage = wrapped(FileStorage(path))
        commit(storage, {X: b"x of a lost history"})
        read(storage, [X, Y])
        storage.close()
        os.remove(f"{path}.index")
        shutil.copy(tmp_path / "backup", path)
        if with_new_commits:
            base = FileStorage(path)
            commit(base, {Y: b"y2"})
            base.close()
        storage = wrapped(FileStorage(path))
        assert read(storage, [X, Y]) == read(base_of(storage), [X, Y])
        commit(storage, {Y: b"y3"})
        assert storage.loadBefore(X, now(storage))[0] == b"x1"


class TestUndo:
    def test_a_demo_storage_goes_back_to_what_lies_below(
        self, tmp_path: Path, wrapped: Wrap
    ) -> None:
        """The revision that is current again is older than the one undone."""
        below = FileStorage(str(tmp_path / "below.fs"))
        commit(below, {X: b"x1", Y: b"y1"})
        demo = DemoStorage(base=below, changes=FileStorage(str(tmp_path / "above.fs")))
        storage = wrapped(demo, cache_local_dir=None)
        commit(storage, {Y: b"y2"})
        pinned = after(commit(storage, {X: b"x2"}))
        storage._store.clear()
        undoing = TransactionMetaData()
        storage.tpc_begin(undoing)
        storage.undo(storage.undoLog(0, 1)[0]["id"], undoing)
        storage.tpc_vote(undoing)
        storage.tpc_finish(undoing)
        assert answer(storage, X, now(storage)) == answer(demo, X, now(storage))
        assert answer(storage, X, pinned) == answer(demo, X, pinned)


class TestBounds:
    def test_many_changes_leave_a_small_cache_some_room(self, wrapped: Wrap) -> None:
        """I5: the log's memory is the cache's."""
        storage = wrapped(MappingStorage(), cache_local_mb=1, cache_local_dir=None)
        commit(storage, {oid_of(number): b"state" for number in range(60_000)})
        stats = storage.cache_stats()
        assert stats["used_bytes"] <= stats["limit_bytes"] * 1.05
        read(storage, [X])
        assert hits_and_misses(storage, [X]) == (1, 0)


class TestFork:
    def test_while_a_thread_of_the_parent_holds_the_log(self, wrapped: Wrap) -> None:
        """I9: the child waits for no lock of its parent's."""
        storage = wrapped(MappingStorage(), cache_local_dir=None)
        commit(storage, {X: b"x1", Y: b"y1"})
        storage._store.clear()
        before = now(storage)
        with storage._log._lock:
            child = os.fork()
            if child == 0:
                thread = threading.Thread(target=storage.loadBefore, args=(X, before), daemon=True)
                thread.start()
                thread.join(2)
                os._exit(1 if thread.is_alive() else 0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class ProbedClientStorage(ClientStorage):
    """Connects again only when told to, and lets a test look before calls are possible."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.is_away, self.is_back = threading.Event(), threading.Event()
        self.probe: Callable[[], None] = lambda: None
        super().__init__(*arguments, cache_size=0, wait_timeout=WAIT_SECONDS, **options)
        connection = self._server.client
        self.connect = connection.try_connecting
        connection.try_connecting = self.is_away.set
        self.is_back.clear()

    def notify_connected(self, connection: Any, info: Any) -> None:
        self.probe()
        super().notify_connected(connection, info)
        self.probe()
        self.is_back.set()

    def go_away(self) -> None:
        """Lose the connection; a server in a thread does not always close it when it stops."""
        connection = self._server.client

        def lose() -> None:
            protocol = connection.protocol
            protocol.close()
            connection.disconnected(protocol)

        self.is_back.clear()
        self._server.loop.call_soon_threadsafe(lose)
        assert self.is_away.wait(WAIT_SECONDS)

    def come_back(self) -> None:
        self._server.loop.call_soon_threadsafe(self.connect)
        assert self.is_back.wait(WAIT_SECONDS)
        self._wait()


class TestARealServerComesBack:
    """Its clients' own caches are empty, as they should be below ours."""

    @pytest.fixture(autouse=True)
    def _made(self, zeo_server: Any) -> None:
        zeo_server.stop()
        base = FileStorage(str(zeo_server.path))
        commit(base, {X: b"x1", Y: b"y1"})
        base.close()

    @pytest.fixture
    def client(self, zeo_server: Any) -> ProbedClientStorage:
        zeo_server.start()
        return ProbedClientStorage(zeo_server.address)

    @pytest.fixture
    def storage(self, client: ProbedClientStorage, wrapped: Wrap) -> CachedStorage:
        return wrapped(client, cache_local_dir=None)

    def go_away(self, server: Any, client: ProbedClientStorage, **states: bytes) -> None:
        """Stop the server; while it is down its database gets new states."""
        client.go_away()
        server.stop()
        self.commit_below(server, **states)

    def commit_below(self, server: Any, **states: bytes) -> None:
        base = FileStorage(str(server.path))
        if states:
            commit(base, {{"x": X, "y": Y}[name]: state for name, state in states.items()})
        base.close()

    def test_what_changed_while_it_was_down(
        self, zeo_server: Any, client: ProbedClientStorage, storage: CachedStorage
    ) -> None:
        before = now(storage)
        read(storage, [X, Y])
        self.go_away(zeo_server, client, x=b"x2")
        probed: list[tuple[bytes, Any]] = []

        def probe() -> None:
            at = client.lastTransaction()
            probed.append((at, storage._store.load_before(X, after(at))))

        client.probe = probe
        zeo_server.start()
        client.come_back()
        assert len(probed) == 2
        for at, found in probed:
            assert after(at) > before, "the last tid has jumped"
            assert found is None, "a poll reads at it already"
        assert storage.loadBefore(X, now(storage))[0] == b"x2"
        assert storage.loadBefore(X, before)[0] == b"x1"
        storage._caretaker.wait()
        assert storage.loadBefore(X, now(storage))[0] == b"x2"
        assert storage.loadBefore(Y, now(storage))[0] == b"y1"

    def test_the_caretaker_comes_before_calls_are_possible(
        self, zeo_server: Any, client: ProbedClientStorage, storage: CachedStorage
    ) -> None:
        """Nothing changes afterwards: the log has to become whole without that."""
        read(storage, [X, Y])
        self.go_away(zeo_server, client, x=b"x2")
        asked = threading.Event()
        is_connected = client.is_connected

        def answer_and_tell() -> bool:
            connected = bool(is_connected())
            asked.set()
            return connected

        def let_the_caretaker_ask() -> None:
            if storage._log.broken:
                asked.wait(1)  # a caretaker that waits for the connection asks later

        client.is_connected = answer_and_tell
        client.probe = let_the_caretaker_ask
        zeo_server.start()
        client.come_back()
        storage._caretaker.wait()
        for _ in range(2):
            assert storage.loadBefore(X, now(storage))[0] == b"x2"
            storage._caretaker.wait()
        assert not storage._log.broken
        assert hits_and_misses(storage, [X]) == (1, 0)

    @pytest.mark.parametrize("new", [{}, {"y": b"y2"}], ids=["as it was", "with new commits"])
    def test_it_comes_back_from_an_older_backup(
        self,
        zeo_server: Any,
        client: ProbedClientStorage,
        storage: CachedStorage,
        tmp_path: Path,
        new: dict[str, bytes],
    ) -> None:
        """What the client was given of the lost history must not be served."""
        path = str(zeo_server.path)
        shutil.copy(path, tmp_path / "backup")
        commit(storage, {X: b"x of a lost history"})
        read(storage, [X])
        self.go_away(zeo_server, client)
        os.remove(f"{path}.index")
        shutil.copy(tmp_path / "backup", path)
        self.commit_below(zeo_server, **new)
        zeo_server.start()
        client.come_back()
        storage._caretaker.wait()
        commit(storage, {Y: b"y3"})
        storage._caretaker.wait()
        assert read(client, [X])[X][0] == b"x1"
        assert read(storage, [X])[X][0] == b"x1"

    def test_it_was_not_there_at_the_beginning(self, zeo_server: Any, wrapped: Wrap) -> None:
        """What it provides is known only now."""
        client = ProbedClientStorage(zeo_server.address, wait=False)
        storage = wrapped(client, cache_local_dir=None)
        zeo_server.start()
        client.come_back()
        storage._caretaker.wait()
        missing = [
            interface.__name__
            for interface in client.__provides__
            if not interface.providedBy(storage)
        ]
        assert missing == []
