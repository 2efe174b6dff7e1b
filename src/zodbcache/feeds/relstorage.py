"""RelStorage: what an instance sees, and what changed in the database.

The only module that knows RelStorage's insides.  Imported only when there is
one.  Its load connections see one snapshot of the database between two
rollbacks; each of its transactions leaves one row for each current object,
with an index on the tid.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any
from urllib.parse import parse_qs
from urllib.parse import urlsplit

from relstorage.adapters.schema import Schema
from ZODB.POSException import POSKeyError

from zodbcache.feeds.catchup import CannotCatchUp
from zodbcache.feeds.catchup import CatchUp
from zodbcache.feeds.catchup import Changes
from zodbcache.feeds.catchup import with_wrappers
from zodbcache.feeds.snapshots import NEWEST
from zodbcache.feeds.snapshots import Recall
from zodbcache.feeds.snapshots import Snapshots
from zodbcache.feeds.wrapped import innermost
from zodbcache.ids import to_bytes

WINDOW_ROWS = 10_000
"""How many changes are asked for at once.  More than that do not hold up a poll."""

_table = Schema.all_current_object
_tid = _table.c.tid
_names = _table.select(_table.c.zoid, _tid)


class _ChangeQueries:
    """``(oid, tid)`` of current objects by their tids: RelStorage's SQL for any database."""

    _after = _names.where(_tid > _table.bindparam("tid")).order_by(_tid).limit(WINDOW_ROWS)
    _after = _after.prepared()
    _newest = _names.order_by(_tid, "DESC").limit(NEWEST).prepared()
    _exactly = _names.where(_tid == _table.bindparam("tid")).prepared()

    def __init__(self, adapter: Any) -> None:
        self.driver = adapter.driver  # these three are what bound queries look for
        self.keep_history = adapter.keep_history
        self.runner = adapter.runner

    def window(self, cursor: Any, since: int) -> list[tuple[int, int]]:
        """The first changes after *since*, by tid; fewer than WINDOW_ROWS are all."""
        self._after.execute(cursor, {"tid": since})
        rows: list[tuple[int, int]] = cursor.fetchall()
        return rows

    def newest(self, cursor: Any) -> list[tuple[int, int]]:
        """The newest changes."""
        self._newest.execute(cursor)
        rows: list[tuple[int, int]] = cursor.fetchall()
        return rows

    def windows(self, cursor: Any, since: int) -> Iterator[list[tuple[int, int]]]:
        """All changes after *since*, whole transactions at a time, by tid."""
        while len(rows := self.window(cursor, since)) == WINDOW_ROWS:
            last = rows[-1][1]
            if rows[0][1] == last:  # a transaction larger than the window
                self._exactly.execute(cursor, {"tid": last})
                yield cursor.fetchall()
                since = last
            else:
                yield [row for row in rows if row[1] < last]
                since = last - 1
        yield rows


class _OverheardPoller:
    """An instance's poller, and what it found last: every change is asked for once."""

    def __init__(self, poller: Any) -> None:
        self._poller = poller
        self._heard: tuple[int | None, int, Any] = (None, 0, ())

    def poll_invalidations(self, connection: Any, cursor: Any, since: int | None) -> Any:
        """RelStorage's IPoller: the changes after *since*, exact, and the newest tid."""
        changes, through = self._poller.poll_invalidations(connection, cursor, since)
        is_of_use = changes is not None and len(changes) < WINDOW_ROWS
        self._heard = (since if is_of_use else None, through, changes if is_of_use else ())
        return changes, through

    def take(self, since: int, through: int) -> list[tuple[int, int]] | None:
        """The changes after *since* up to *through*, if they are what was found last."""
        heard_since, heard_through, changes = self._heard
        self._heard = (None, 0, ())
        if heard_since is None or heard_since > since or heard_through != through:
            return None
        return list(changes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._poller, name)


class RelStorageSnapshots(Snapshots):
    """By RelStorage's own bookkeeping, and where that may err by its database."""

    def __init__(self, base: Any) -> None:
        self._queries = _ChangeQueries(innermost(base)._adapter)

    def attend(self, instance: Any, recall: Recall) -> Any:
        storage = innermost(instance)
        storage._adapter.poller = _OverheardPoller(storage._adapter.poller)
        if _is_sqlite(storage._adapter):
            connection = storage._load_connection
            connection.open_if_needed = _beginning(connection.open_if_needed)
        if storage is instance:  # else its records may be other bytes
            storage.loadSerial = _with_recall(storage.loadSerial, recall)
        return storage

    def point(self, storage: Any, *, ask: bool) -> int | None:
        if hasattr(storage.load, "stale_error"):
            return None  # every read of it is to fail
        believed: int | None = storage._cache.highest_visible_tid
        if not ask:
            return believed or None
        current: int = storage._adapter.poller.get_current_tid(storage._load_connection.cursor)
        return None if believed not in (None, current) else current or None

    def token(self, storage: Any) -> object:
        return storage._cache.highest_visible_tid, storage._load_connection.connection

    def session(self, storage: Any) -> object:
        return storage._load_connection.connection

    def changes(self, storage: Any, since: int) -> list[tuple[int, int]] | None:
        rows = storage._adapter.poller.take(since, storage._cache.highest_visible_tid)
        if rows is None:
            rows = self._queries.window(storage._load_connection.cursor, since)
        return rows if len(rows) < WINDOW_ROWS else None

    def newest(self, storage: Any) -> list[tuple[int, int]]:
        return self._queries.newest(storage._load_connection.cursor)

    def current_tids(self, storage: Any, oids: list[int]) -> dict[int, int]:
        return _current_tids(storage._adapter, storage._load_connection.cursor, oids)

    def load(self, storage: Any, oid: int) -> tuple[bytes, int] | None:
        cursor = storage._load_connection.cursor
        if hasattr(storage.load, "stale_error"):
            return None  # it is to fail
        state, tid = storage._adapter.mover.load_current(cursor, oid)
        return (state, tid) if state and tid else None

    def fetch(self, storage: Any, oids: list[int]) -> list[tuple[int, bytes, int]] | None:
        cursor = storage._load_connection.cursor
        return list(storage._adapter.mover.load_currents(cursor, oids))

    def clear_own_cache(self, storage: Any) -> None:
        storage._cache.clear()


def _with_recall(load_serial: Callable[..., bytes], recall: Recall) -> Callable[..., bytes]:
    """Resolving a conflict takes the revision before; without history only caches have it.

    RelStorage's own has not, since what we serve it never saw.
    """

    def load(oid: bytes, serial: bytes) -> bytes:
        try:
            return load_serial(oid, serial)
        except POSKeyError:
            state = recall(oid, serial)
            if state is None:
                raise
            return state

    return load


def _beginning(open_if_needed: Callable[[], Any]) -> Callable[[], Any]:
    """A load connection that is used again without a poll sees one snapshot, too.

    Over SQLite, RelStorage begins a transaction only when it polls; without
    one each of its reads would see the database as it is then.
    """

    def open_connection() -> Any:
        connection, cursor = open_if_needed()
        if not connection.in_transaction:
            cursor.execute("BEGIN DEFERRED TRANSACTION")
        return connection, cursor

    return open_connection


def _is_sqlite(adapter: Any) -> bool:
    return hasattr(adapter, "data_dir")


def _current_tids(adapter: Any, cursor: Any, oids: list[int]) -> dict[int, int]:
    return dict(adapter.mover.current_object_tids(cursor, oids).items())


class RelStorageCatchUp(CatchUp):
    """Asks the database over connections of its own, so that it may run beside all others."""

    def __init__(self, base: Any) -> None:
        super().__init__(base)
        self.asks_for_many = True
        self._adapter = innermost(base)._adapter
        self._queries = _ChangeQueries(self._adapter)
        self._open_cursor: Callable[[], Any] | None = None

    def identity(self) -> str:
        return with_wrappers(self.base, f"relstorage:{_address(self._adapter)}")

    def last_tid(self) -> int:
        tid: int = self._ask(self._adapter.poller.get_current_tid)
        return tid

    def changes(self, since: int) -> Changes:
        def ask(cursor: Any) -> Changes:
            through = max(since, self._adapter.poller.get_current_tid(cursor))
            named: list[tuple[list[bytes], int]] = []
            for rows in self._queries.windows(cursor, since):
                for tid, group in groupby(rows, key=itemgetter(1)):
                    named.append(([to_bytes(oid) for oid, _ in group], tid))
            return Changes(through, named, exact=True)

        found: Changes = self._ask(ask)
        return found

    def shared_through(self, checkpoint: int, witnesses: list[tuple[int, int]]) -> int:
        """As for every storage, with one question for all the witnesses.

        The witnesses are the newest of all that the tier holds or has heard
        of.  So whatever the tier holds that is newer than the one that
        confirms is a witness itself, and has changed since or is gone; what
        else changed since the database can tell.
        """
        oids = [oid for oid, _ in witnesses]
        current = self._ask(lambda cursor: _current_tids(self._adapter, cursor, oids))
        for oid, tid in witnesses:
            now = current.get(oid)
            if now == tid:
                return min(tid, checkpoint)
            if now is not None and now <= checkpoint:
                raise CannotCatchUp("the database has lost what was committed to it")
        return 0

    @contextmanager
    def conversation(self) -> Iterator[None]:
        manager = self._adapter.connmanager
        opened: list[tuple[Any, Any]] = []

        def cursor() -> Any:
            if opened:
                manager.rollback(*opened[0])  # each question is about the present moment
            else:
                opened.append(manager.open(isolation=manager.isolation_load, read_only=True))
            return opened[0][1]

        self._open_cursor = cursor
        try:
            yield
        finally:
            self._open_cursor = None
            if opened:
                manager.rollback_and_close(*opened[0])

    def _ask(self, question: Callable[[Any], Any]) -> Any:
        """``question(cursor)``, in the conversation's snapshot or one of its own."""
        if self._open_cursor is None:
            with self.conversation():
                return self._ask(question)
        return question(self._open_cursor())


def _address(adapter: Any) -> str:
    """Which database it is, without the credentials and options of this client."""
    if _is_sqlite(adapter):
        return f"sqlite:{os.path.realpath(adapter.data_dir)}"
    if hasattr(adapter, "_dsn"):
        return f"{type(adapter).__name__}:{_address_in(adapter._dsn)}"
    parameters = getattr(adapter, "_params", None) or {}
    known = {name: parameters[name] for name in _ADDRESS if name in parameters}
    return f"{type(adapter).__name__}:{known}"


_ADDRESS = ("host", "hostaddr", "port", "unix_socket", "service", "dbname", "database", "db")


def _address_in(dsn: str) -> dict[str, str]:
    """The address in a DSN of libpq: a URI, or words such as ``host=...``."""
    if "://" in dsn:
        parts = urlsplit(dsn)
        found = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if parts.hostname:
            found["host"] = parts.hostname
        if parts.port:
            found["port"] = str(parts.port)
        if parts.path.strip("/"):
            found["dbname"] = parts.path.strip("/")
    else:
        words = (word.partition("=") for word in shlex.split(dsn))
        found = {name.strip(): value for name, _, value in words}
    return {name: found[name] for name in _ADDRESS if name in found}
