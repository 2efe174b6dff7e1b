"""A ZEO server and its clients, in one thread and stepwise.

The client behaves towards its database as ZEO 6.2's ClientStorage does
(``ZEO/asyncio/client.py``), in the same order, but nothing happens by itself:
pushes wait until they are delivered, a connection comes back step by step,
and at every point where another thread could run, *interludes* are.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

from ZEO.Exceptions import ClientDisconnected
from ZODB.interfaces import IStorage
from ZODB.interfaces import IStorageIteration
from ZODB.POSException import StorageTransactionError
from zope.interface import implementer

from zodbcache.ids import to_bytes
from zodbcache.ids import to_int

from .database import Database

Interlude = Callable[[], None]

_FILLER = b"." * 100_000


def state_of(name: str, size: int) -> bytes:
    """A record as the model keeps it: short, however long it is."""
    return b"%d|%s|" % (size, name.encode())


def expand(state: bytes) -> bytes:
    """The record as a storage gives it."""
    return state + _FILLER[: int(state.partition(b"|")[0])]


def shorten(data: bytes) -> bytes:
    return data[: data.rindex(b"|") + 1]


def nothing() -> None:
    pass


class Server:
    """The database that the clients share, and who is to hear of changes.

    *queue_length*: how many transactions getInvalidations reaches back.
    """

    def __init__(self, *, queue_length: int = 5) -> None:
        self.database = Database()
        self.everything = self.database.copied()  # never packed
        self.erased: set[int] = set()  # deleted, and packed so that no trace was left
        self.clients: list[Client] = []
        self.queue_length = queue_length
        self.next_tid = 1

    def new_tid(self, gap: int = 1) -> int:
        self.next_tid += gap
        return self.next_tid

    def commit(
        self, tid: int, states: dict[int, bytes | None], *, sender: Client | None = None
    ) -> None:
        """Make it visible, and tell every connected client but the sender."""
        for database in (self.database, self.everything):
            database.commit(tid, states)
        for client in self.clients:
            if client is not sender:
                client.receive(tid, [to_bytes(oid) for oid in states])

    def pack(self) -> None:
        self.erased |= self.database.pack(self.database.last_tid)

    def restart(self) -> None:
        """The last tid is what the transactions say: one that was packed away is not known."""
        assert not self.clients
        self.database = self.database.reopened()

    def swap(self, other: Server) -> None:
        """Go on with *other*'s database; it gets this one's.  Tids go on, being times."""
        assert not self.clients
        for name in ("database", "everything", "erased"):
            mine, others = getattr(self, name), getattr(other, name)
            setattr(self, name, others)
            setattr(other, name, mine)

    def backup(self) -> Server:
        other = Server()
        other.database = self.database.copied()
        other.everything = self.everything.copied()
        other.erased = set(self.erased)
        return other

    def invalidations(self, since: int) -> tuple[bytes, list[bytes]] | None:
        """As StorageServer.get_invalidations: every oid at the newest tid, or None."""
        queue = self.database.transactions[-self.queue_length :]
        if not queue or queue[0].tid > since:
            return None
        oids = {oid for transaction in queue if transaction.tid > since for oid in transaction.oids}
        return to_bytes(queue[-1].tid), [to_bytes(oid) for oid in oids]


class Phase(enum.Enum):
    """How far a connection is."""

    DOWN = "no connection"
    REGISTERED = "the server sends changes; they are queued"
    READY = "the last tid is set; changes are passed on"
    NOTIFIED = "invalidateCache() was called"
    OPERATIONAL = "calls are possible"


class _Record:
    def __init__(self, oid: bytes) -> None:
        self.oid = oid


class _Transaction:
    def __init__(self, tid: int, oids: frozenset[int]) -> None:
        self.tid = to_bytes(tid)
        self.records = [_Record(to_bytes(oid)) for oid in oids]

    def __iter__(self) -> Iterator[_Record]:
        return iter(self.records)


@implementer(IStorage, IStorageIteration)
class Client:
    """What the cache wraps; the class named ClientStorage below is made of it.

    *before_answer*, *after_answer*: run once, around the next answer to
    loadBefore: what other threads do while the question travels.
    *on_questions*: the same, one by one, before and after every other question.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.phase = Phase.DOWN
        self.inbox: deque[tuple[int, list[bytes]]] = deque()
        self.queued: list[tuple[int, list[bytes]]] = []
        self.last_tid = 0
        self.fresh_through = 0  # what ZEO's own cache knows to be current
        self.answers_stale = False
        self.loads = 0
        self.committing: Any = None
        self.before_answer: Interlude = nothing
        self.after_answer: Interlude = nothing
        self.on_questions: deque[Interlude] = deque()  # one for each question
        self._db: Any = None
        self._addr = ("server", 1)
        self._storage = "1"
        server.clients.append(self)
        self.connect()

    # The connection

    def connect(self) -> None:
        while self.phase is not Phase.OPERATIONAL:
            self.step()

    def disconnect(self) -> None:
        self.phase = Phase.DOWN
        self.inbox.clear()
        self.queued.clear()

    def step(self, *, quick_verification: bool = False) -> None:
        """One step of ClientIO.verify(); *quick_verification*: ZEO's own cache was not empty."""
        if self.phase is Phase.DOWN:
            self.phase = Phase.REGISTERED
        elif self.phase is Phase.REGISTERED:
            self._verify(quick_verification)
            self.phase = Phase.READY
        elif self.phase is Phase.READY:
            self.deliver()
            self.phase = Phase.NOTIFIED
            if self._db is not None:
                self._db.invalidateCache()
        elif self.phase is Phase.NOTIFIED:
            self.phase = Phase.OPERATIONAL

    def _verify(self, quick: bool) -> None:
        server_tid = self.server.database.last_tid
        known = self.server.invalidations(self.last_tid) if quick else None
        if known is not None:
            through, oids = to_int(known[0]), known[1]
            self.fresh_through = through
            self._invalidate(through, oids)
            server_tid = through
        self.last_tid = self.fresh_through = server_tid
        self.queued, queued = [], self.queued
        for tid, oids in queued:
            if tid > server_tid:
                self._push(tid, oids)

    def receive(self, tid: int, oids: list[bytes]) -> None:
        if self.phase is Phase.REGISTERED:
            self.queued.append((tid, oids))
        elif self.phase is not Phase.DOWN:
            self.inbox.append((tid, oids))

    def deliver(self, count: int | None = None) -> None:
        """Pass on what the server has sent."""
        while self.inbox and count != 0:
            self._push(*self.inbox.popleft())
            count = None if count is None else count - 1

    def _push(self, tid: int, oids: list[bytes]) -> None:
        self.fresh_through = tid  # ZEO's own cache first
        self._invalidate(tid, oids)
        self.last_tid = tid

    def _invalidate(self, tid: int, oids: list[bytes]) -> None:
        if self._db is not None:
            self._db.invalidate(to_bytes(tid), oids)

    def is_connected(self) -> bool:
        return self.phase is Phase.OPERATIONAL

    def _require_connected(self) -> None:
        if self.phase is not Phase.OPERATIONAL:
            raise ClientDisconnected("not connected")

    def ping(self) -> None:
        self._ask(nothing)

    def _call(self, method: str, *args: bytes) -> Any:
        if method == "lastTransaction":
            return self._ask(lambda: to_bytes(self.server.database.last_tid))
        assert method == "getInvalidations"
        return self._ask(lambda: self.server.invalidations(to_int(args[0])))

    def _ask(self, answer: Callable[[], Any]) -> Any:
        self._pass_time()
        self._require_connected()
        self.deliver()  # messages and answers come in order
        result = answer()
        self._pass_time()
        return result

    def _pass_time(self) -> None:
        if self.on_questions:
            self.on_questions.popleft()()

    def _interlude(self, name: str) -> None:
        interlude = getattr(self, name)
        setattr(self, name, nothing)
        interlude()

    # IStorage

    def registerDB(self, db: Any) -> None:
        self._db = db

    def getName(self) -> str:
        return "server"

    def sortKey(self) -> str:
        return "server"

    def lastTransaction(self) -> bytes:
        return to_bytes(self.last_tid)

    def __len__(self) -> int:
        return len(self.server.database.revisions)

    def loadBefore(self, oid: bytes, before: bytes) -> Any:
        self.loads += 1
        stale = self.answers_stale
        self._interlude("before_answer")
        if not stale:
            self._require_connected()
        as_of = self.fresh_through if stale else None
        try:
            answer = self.server.database.load_before(to_int(oid), to_int(before), as_of=as_of)
        finally:
            self._interlude("after_answer")
        return None if answer is None else (expand(answer[0]), *answer[1:])

    def iterator(self, start: bytes | None = None, stop: bytes | None = None) -> Iterator[Any]:
        first = to_int(start or to_bytes(0))
        last = to_int(stop) if stop is not None else None
        found = [
            one
            for one in self.server.database.transactions
            if one.tid >= first and (last is None or one.tid <= last)
        ]
        for transaction in found:
            yield self._ask(lambda transaction=transaction: _Transaction(*transaction))

    # A commit; the transaction object carries what the model wants done

    def can_begin(self) -> bool:
        """Connected, and nobody holds the commit lock."""
        return self.is_connected() and self.committing is None

    def tpc_begin(self, transaction: Any) -> None:
        self._require_connected()
        self.committing = transaction
        transaction.written = {}

    def store(self, oid: bytes, serial: bytes, data: bytes, version: str, transaction: Any) -> None:
        if transaction is not self.committing:
            raise StorageTransactionError(transaction)
        transaction.written[to_int(oid)] = shorten(data)

    def deleteObject(self, oid: bytes, serial: bytes, transaction: Any) -> None:
        transaction.written[to_int(oid)] = None

    def restore(
        self, oid: bytes, serial: bytes, data: bytes, version: str, prev: Any, transaction: Any
    ) -> None:
        transaction.written[to_int(oid)] = transaction.undone[to_int(oid)]

    def undo(self, transaction_id: bytes, transaction: Any) -> tuple[bytes, list[bytes]]:
        transaction.written.update(transaction.undone)
        return transaction_id, [to_bytes(oid) for oid in transaction.undone]

    def tpc_vote(self, transaction: Any) -> list[bytes]:
        transaction.written.update(transaction.resolved)
        return [to_bytes(oid) for oid in transaction.resolved]

    def tpc_abort(self, transaction: Any) -> None:
        self.committing = None

    def tpc_finish(self, transaction: Any, func: Callable[[bytes], Any]) -> bytes:
        """*transaction.calls_back_first*: before the commit is visible, as FileStorage does."""
        self._require_connected()
        self.committing = None
        tid = transaction.tid = self.server.new_tid(transaction.gap)
        self.deliver()
        if transaction.calls_back_first:
            func(to_bytes(tid))
        self.server.commit(tid, transaction.written, sender=self)
        self.fresh_through = tid
        if not transaction.calls_back_first:
            func(to_bytes(tid))
        self.last_tid = tid
        transaction.meanwhile()
        return to_bytes(tid)

    def pack(self) -> None:
        self.server.pack()

    def close(self) -> None:
        self.disconnect()
        if self in self.server.clients:
            self.server.clients.remove(self)


ClientStorage = type(
    "ClientStorage",
    (Client,),
    {"__module__": "ZEO.ClientStorage", "__doc__": "Caught up with as ZEO."},
)
