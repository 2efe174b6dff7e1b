"""Schedule 6 of the design: a ZEO client whose own cache is empty reconnects.

The fake calls back in the order of ZEO 6.2's ``ClientIO.verify()``: the last
tid is set, queued invalidations are passed on while ``is_connected()`` is
False, ``notify_connected`` calls ``invalidateCache``, and only then is the
client operational.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import transaction
import ZODB
from processes.children import Server
from ZEO.ClientStorage import ClientStorage
from ZEO.Exceptions import ClientDisconnected
from ZODB.FileStorage import FileStorage
from ZODB.mvccadapter import MVCCAdapter
from ZODB.utils import p64

import zodbcache
from zodbcache.ids import to_bytes
from zodbcache.ids import to_int

from .stepping import Database
from .stepping import commit
from .stepping import no_step
from .stepping import state_of

X, Y, Z = 1, 2, 3
WAIT_SECONDS = 20


class FakeClient(ClientStorage):
    """A ClientStorage with an empty cache of its own, moved by the test from phase to phase.

    Its calls wait until it is operational, as real ones do; its loads do not,
    so that a test can read between the phases in its own thread.
    """

    def __init__(self, database: Database) -> None:  # the real one connects
        self.database = database
        self._addr = "a fake server"
        self._storage = "1"
        self._db = None
        self._is_operational = threading.Event()
        self._is_operational.set()
        self._client_tid = database.last_tid
        self.loads: list[tuple[int, int]] = []

    # What ZODB and the wrapper ask

    def is_connected(self, test: bool = False) -> bool:
        return self._is_operational.is_set()

    def lastTransaction(self) -> bytes:
        return to_bytes(self._client_tid)

    def loadBefore(self, oid: bytes, tid: bytes) -> Any:
        self.loads.append((to_int(oid), to_int(tid)))
        return self.database.loadBefore(oid, tid)

    def _call(self, method: str, *arguments: bytes) -> Any:
        if not self._is_operational.wait(WAIT_SECONDS):
            raise ClientDisconnected("timed out waiting for connection")
        if method == "lastTransaction":
            return to_bytes(self.database.last_tid)
        assert method == "getInvalidations"
        changed = self.database.changes(to_int(arguments[0]))
        return to_bytes(self.database.last_tid), [to_bytes(oid) for oid in changed]

    def iterator(self, start: bytes | None = None, stop: bytes | None = None) -> Any:
        self._call("lastTransaction")  # it asks the server, too
        tids = self.database.commits
        return iter(
            [
                SimpleNamespace(tid=to_bytes(tid))
                for tid in sorted(tids)
                if start is None or to_bytes(tid) >= start
                if stop is None or to_bytes(tid) <= stop
            ]
        )

    def close(self) -> None:
        self.disconnected()

    # The phases

    def pushed(self, tid: int, passed_on: Callable[[], object] = no_step) -> None:
        """ClientIO.invalidateTransaction: pass it on, then set the last tid."""
        oids = [to_bytes(oid) for oid in self.database.commits[tid]]
        self.invalidateTransaction(to_bytes(tid), oids)
        passed_on()
        self._client_tid = tid

    def disconnected(self) -> None:
        self._is_operational.clear()

    def verified(self, server_tid: int, queued: Iterable[int] = ()) -> None:
        """verify() with an empty cache, up to the question for the server's info."""
        self._client_tid = server_tid
        for tid in queued:
            if tid > server_tid:
                self.pushed(tid)

    def notified(self) -> None:
        """What notify_connected does that a database sees."""
        if self._db is not None:
            self._db.invalidateCache()

    def operational(self) -> None:
        self._is_operational.set()


def load(storage: Any, oid: int, before: int) -> tuple[int, int | None]:
    state, tid, end = storage.loadBefore(to_bytes(oid), to_bytes(before))
    assert state == state_of(oid, to_int(tid))
    return to_int(tid), None if end is None else to_int(end)


def check_reads(storage: Any, database: Database) -> None:
    """Every read up to where a connection can be is what the database has."""
    for oid in database.changes(0):
        for before in range(1, to_int(storage.lastTransaction()) + 2):
            expected = database.revision(oid, before)
            if expected is not None:
                found = load(storage, oid, before)
                assert found[0] == expected[0], (oid, before)
                assert found[1] in (None, expected[1]), (oid, before)


@pytest.fixture
def database() -> Database:
    return Database({4: [Y], 5: [X]})


@pytest.fixture
def base(database: Database) -> FakeClient:
    return FakeClient(database)


@pytest.fixture
def storage(base: FakeClient) -> Iterator[Any]:
    storage = zodbcache.wrap(base, cache_local_mb=1)
    for oid in (X, Y):  # warm, and current through 5
        load(storage, oid, 6)
    yield storage
    storage.close()


def test_poll_before_the_break_is_known_sees_no_old_revision(
    database: Database, base: FakeClient, storage: Any
) -> None:
    """Last tid jumps from 5 to 7; before invalidateCache comes, a connection polls and reads x."""
    base.disconnected()
    database.commit(7, [X])
    check_reads(storage, database)
    base.verified(7)
    assert storage.lastTransaction() == to_bytes(7)
    assert load(storage, X, 8) == (7, None)
    assert load(storage, X, 7) == (5, 7)  # between the two tids
    assert load(storage, X, 6) == (5, 7)
    check_reads(storage, database)
    base.notified()
    check_reads(storage, database)
    base.operational()
    storage._caretaker.wake()
    storage._caretaker.wait()
    assert load(storage, X, 8) == (7, None)
    assert load(storage, X, 7) == (5, 7)
    check_reads(storage, database)


def test_push_that_was_queued_while_verifying_does_not_jump_the_gap(
    database: Database, base: FakeClient, storage: Any
) -> None:
    """x changes at 7 while away; y at 8, pushed between the last tid's update and the break."""
    base.disconnected()
    database.commit(7, [X])
    database.commit(8, [Y])
    base.verified(7, queued=[8])
    assert load(storage, X, 9) == (7, None)
    check_reads(storage, database)
    base.notified()
    check_reads(storage, database)
    base.operational()
    storage._caretaker.wake()
    storage._caretaker.wait()
    check_reads(storage, database)
    assert storage._log.end == 8


def test_push_after_the_break_does_not_jump_the_gap(
    database: Database, base: FakeClient, storage: Any
) -> None:
    """x changes at 7 while away; y at 8, pushed when the client is operational again."""
    base.disconnected()
    database.commit(7, [X])
    base.verified(7)
    base._call = lambda *arguments: _raise()  # type: ignore[method-assign]
    base.notified()
    storage._caretaker.wait()
    base.operational()
    database.commit(8, [Y])
    base.pushed(8)
    storage._caretaker.wait()
    assert storage._log.broken
    check_reads(storage, database)
    del base._call  # type: ignore[method-assign]
    database.commit(9, [Y])
    base.pushed(9)
    storage._caretaker.wait()
    assert not storage._log.broken
    check_reads(storage, database)


def _raise() -> Any:
    raise ClientDisconnected("went away again")


def test_what_did_not_change_while_away_is_warm_again(
    database: Database, base: FakeClient, storage: Any
) -> None:
    """x changes at 7 while away, y does not: after the catch-up y is a hit at 7."""
    base.disconnected()
    database.commit(7, [X])
    base.verified(7)
    base.operational()  # the other order of the last two steps, in which the break is mended
    base.notified()
    storage._caretaker.wait()
    base.loads.clear()
    assert load(storage, Y, 8) == (4, None)
    assert base.loads == []
    assert load(storage, X, 8) == (7, None)
    assert base.loads == [(X, 8)]


def test_reconnection_is_mended_even_when_the_caretaker_comes_first(
    database: Database, base: FakeClient, storage: Any
) -> None:
    """The caretaker that invalidateCache wakes runs before the client is operational."""
    base.disconnected()
    database.commit(7, [X])
    base.verified(7)
    base.notified()
    caretaker = storage._caretaker._thread
    if caretaker is not None:
        caretaker.join(0.2)  # long enough to see that it is not operational
    base.operational()
    storage._caretaker.wait()
    base.loads.clear()
    assert load(storage, Y, 8) == (4, None)
    assert base.loads == [], "nothing is cached until the next commit"


# Between a push and the last tid: a connection that is born then is told nothing of it


class Newborn:
    """A connection that polls and reads x, which changes from 5 to 7, for the first time."""

    def __init__(self, adapter: MVCCAdapter) -> None:
        self.connection = adapter.new_instance()
        assert self.connection.poll_invalidations() == []
        self.tid = to_int(self.connection.load(to_bytes(X))[1])

    def check(self) -> None:
        """What its next transaction keeps of the first is current there."""
        changed = self.connection.poll_invalidations()
        assert to_bytes(X) in changed or self.tid == 7
        assert self.connection.load(to_bytes(X))[1] == to_bytes(7)


def test_connection_born_before_the_last_tid_of_a_push(
    database: Database, base: FakeClient, storage: Any
) -> None:
    adapter = MVCCAdapter(storage)
    database.commit(7, [X])
    born: list[Newborn] = []
    base.pushed(7, passed_on=lambda: born.append(Newborn(adapter)))
    born[0].check()


def test_database_registered_before_the_last_tid_of_a_push(
    database: Database, base: FakeClient, storage: Any
) -> None:
    """What was pushed has been told to nobody, or to another database."""
    database.commit(7, [X])
    born: list[Newborn] = []
    base.pushed(7, passed_on=lambda: born.append(Newborn(MVCCAdapter(storage))))
    born[0].check()


def test_connection_born_before_the_database_returns_from_a_push(
    database: Database, base: FakeClient, storage: Any
) -> None:
    """All others have been told, but the storage does not know yet that they were."""
    born: list[Newborn] = []
    threads: list[threading.Thread] = []

    class Slow(MVCCAdapter):
        def invalidate(self, transaction_id: bytes, oids: Any) -> None:
            super().invalidate(transaction_id, oids)
            threads.append(threading.Thread(target=lambda: born.append(Newborn(self))))
            threads[0].start()
            threads[0].join(0.2)  # long enough to poll, if nothing held it

    Slow(storage)
    database.commit(7, [X])
    base.pushed(7)
    threads[0].join(WAIT_SECONDS)
    born[0].check()


def test_callback_that_polls_does_not_wait_for_itself(
    database: Database, base: FakeClient, storage: Any
) -> None:
    polled: list[int] = []

    class Curious(MVCCAdapter):
        def invalidate(self, transaction_id: bytes, oids: Any) -> None:
            polled.append(to_int(storage.lastTransaction()))

    Curious(storage)
    database.commit(7, [X])
    base.pushed(7)
    assert polled == [5]


def test_last_tid_follows_a_database_that_went_back(
    database: Database, base: FakeClient, storage: Any
) -> None:
    """Seven was pushed; the server comes back from a backup that ends at five."""
    database.commit(7, [X])
    base.pushed(7)
    base.disconnected()
    del database.commits[7]
    base.verified(5)
    base.notified()
    base.operational()
    assert storage.lastTransaction() == to_bytes(5)


# A real server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "Data.fs")
    yield server
    server.kill()


def test_commit_while_a_real_server_was_down(server: Server) -> None:
    """A server stops, x changes in its FileStorage, it starts again; a reader in between.

    The client is held between its last tid's update and ``invalidateCache``.
    """
    base = ClientStorage(
        ("127.0.0.1", server.port), wait_timeout=WAIT_SECONDS, max_disconnect_poll=1
    )
    storage = zodbcache.wrap(base, cache_local_mb=1)
    old = commit(storage, [X, Y], b"old")
    gone, arrived, go_on = threading.Event(), threading.Event(), threading.Event()
    connect, disconnect = base.notify_connected, base.notify_disconnected

    def held_connect(*arguments: Any) -> None:
        arrived.set()
        assert go_on.wait(WAIT_SECONDS)
        connect(*arguments)

    def noticed_disconnect() -> None:
        disconnect()
        gone.set()

    base.notify_connected = held_connect
    base.notify_disconnected = noticed_disconnect
    try:
        base._cache.clear()
        server.kill()
        assert gone.wait(WAIT_SECONDS)
        foreign = FileStorage(str(server.path))
        new = commit(foreign, [X], b"new")
        foreign.close()
        server.start()

        assert arrived.wait(WAIT_SECONDS)
        assert to_int(storage.lastTransaction()) == new, "the client's last tid jumped"
        # A hit would answer at once; a load that reaches the base waits for the connection.
        answers: list[Any] = []
        reader = threading.Thread(
            target=lambda: answers.append(storage.loadBefore(p64(X), p64(new + 1)))
        )
        hits = storage.cache_stats()["hits"]
        reader.start()
        assert storage.loadBefore(p64(X), p64(old + 1))[:2] == (b"old", p64(old))
        go_on.set()
        reader.join(WAIT_SECONDS)
        assert answers == [(b"new", p64(new), None)]
        assert storage.cache_stats()["hits"] == hits + 1
        assert storage.loadBefore(p64(X), p64(new)) == (b"old", p64(old), p64(new))

        commit(storage, [Z], b"own")  # whatever the caretaker saw, it is woken now
        storage._caretaker.wait()
        last = to_int(storage.lastTransaction())
        assert storage.loadBefore(p64(X), p64(last + 1)) == (b"new", p64(new), None)
        assert storage.loadBefore(p64(Y), p64(last + 1))[:2] == (b"old", p64(old))
        assert storage._log.end == last
    finally:
        go_on.set()
        storage.close()


def test_connection_born_while_a_real_client_is_pushed_to(server: Server) -> None:
    """The client is held between passing a push on and raising its last tid."""
    address = ("127.0.0.1", server.port)
    base = ClientStorage(address, wait_timeout=WAIT_SECONDS)
    db = ZODB.DB(zodbcache.wrap(base, cache_local_mb=1))
    other = ZODB.DB(ClientStorage(address, wait_timeout=WAIT_SECONDS, server_sync=True))
    passed_on, go_on = threading.Event(), threading.Event()
    set_last_tid = base._cache.setLastTid

    def held(tid: bytes) -> None:
        passed_on.set()
        assert go_on.wait(WAIT_SECONDS)
        set_last_tid(tid)

    try:
        with db.transaction() as connection:
            connection.root()["x"] = "old"
        connection = db.open()  # one that the newborn does not share
        base._cache.setLastTid = held
        with other.transaction() as connection_of_other:
            connection_of_other.root()["x"] = "new"
        assert passed_on.wait(WAIT_SECONDS)
        manager = transaction.TransactionManager()
        newborn = db.open(manager)  # polls
        go_on.set()
        seen = newborn.root()["x"]
        base._call("lastTransaction")  # answered when the client is done with the push
        manager.begin()
        assert newborn.root()["x"] == "new", f"saw {seen!r} before, and now too"
    finally:
        go_on.set()
        transaction.abort()
        other.close()
        db.close()
