"""The storages below the cache, and the record that each keeps of its commits without it."""

from __future__ import annotations

import os
import sqlite3
from abc import ABC
from abc import abstractmethod
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from ZODB.Connection import TransactionMetaData
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from .objects import ROOT
from .objects import Layout
from .objects import checksum
from .objects import describe
from .record import Revision

KINDS = ("postgresql", "sqlite", "mvccmapping")


class Base(ABC):
    """A database.  Its *address* and *keep_history* are all that another process needs to know."""

    kind = ""
    records_itself = True
    """Whether revisions() has every revision; and whether the database outlives a process."""

    keeps_unasked_changes = True
    """Whether a poll tells of changes that an instance has come to see since the poll before."""

    def __init__(self, address: str, *, keep_history: bool, layout: Layout) -> None:
        self.address = address
        self.keep_history = keep_history
        self.layout = layout

    @abstractmethod
    def open(self, **options: Any) -> Any:
        """A storage that provides IMVCCStorage.  *options*: RelStorage's."""

    def errors(self) -> tuple[type[Exception], ...]:
        """What the database driver may raise when a connection is lost or a lock not had."""
        return ()

    def found(self, random: Random) -> None:
        """Start the record, and commit the first revisions."""
        storage = self.open()
        self._start_record()
        transaction = TransactionMetaData()
        storage.tpc_begin(transaction)
        for oid in self.layout.founded():
            state = self.layout.state(oid, "founder", random)
            storage.store(p64(oid), z64, state, "", transaction)
        storage.tpc_vote(transaction)
        storage.tpc_finish(transaction)
        storage.close()

    def references(self) -> Callable[[bytes], list[bytes]]:
        """For a pack: what a state refers to."""
        referred = [p64(oid) for oid in self.layout.referred()]
        return lambda state: referred if _is_root(state) else []

    def disconnect(self, random: Random) -> bool:
        """Have the server end somebody's connection; whether there was one to be ended."""
        return False

    @abstractmethod
    def revisions(self) -> Iterator[Revision]:
        """Every revision since found()."""

    @abstractmethod
    def _start_record(self) -> None:
        """Have what is committed from now on recorded."""


def _is_root(state: bytes) -> bool:
    return describe(state).startswith(f"oid {ROOT} ")


def _revision(oid: int, tid: int, state: bytes | None) -> Revision:
    if not state:
        return Revision(oid, tid, None, "gone")
    return Revision(oid, tid, checksum(bytes(state)), describe(bytes(state)))


class PostgreSQLBase(Base):
    """RelStorage; a trigger keeps the record."""

    kind = "postgresql"

    _RECORD = """
        CREATE TABLE every_revision (zoid BIGINT, tid BIGINT, state BYTEA);
        CREATE FUNCTION record_revision() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO every_revision VALUES (NEW.zoid, NEW.tid, NEW.state);
            RETURN NULL;
        END $$;
        CREATE TRIGGER record_revision AFTER INSERT OR UPDATE ON object_state
            FOR EACH ROW EXECUTE FUNCTION record_revision();
    """
    _SOMEBODY = """
        SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND backend_type = 'client backend'
            AND pid != pg_backend_pid()
        ORDER BY backend_start
    """

    def open(self, **options: Any) -> Any:
        from relstorage.adapters.postgresql import PostgreSQLAdapter

        options["driver"] = "psycopg2"
        return _relstorage(
            lambda checked: PostgreSQLAdapter(dsn=self.address, options=checked),
            keep_history=self.keep_history,
            **options,
        )

    def errors(self) -> tuple[type[Exception], ...]:
        import psycopg2

        return (psycopg2.Error,)

    def disconnect(self, random: Random) -> bool:
        with closing(self._connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(self._SOMEBODY)
            pids = [pid for (pid,) in cursor]
            if pids:
                cursor.execute("SELECT pg_terminate_backend(%s)", (random.choice(pids),))
            return bool(pids)

    def revisions(self) -> Iterator[Revision]:
        with closing(self._connect()) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT zoid, tid, state FROM every_revision")
            yield from (_revision(*row) for row in cursor)

    def _start_record(self) -> None:
        with closing(self._connect()) as connection:
            connection.cursor().execute(self._RECORD)

    def _connect(self) -> Any:
        import psycopg2

        connection = psycopg2.connect(self.address)
        connection.autocommit = True
        return connection


class SQLiteBase(Base):
    """RelStorage over the directory *address*; triggers keep the record."""

    kind = "sqlite"

    _RECORD = """
        CREATE TABLE every_revision (zoid INTEGER, tid INTEGER, state BLOB);
        CREATE TRIGGER record_insert AFTER INSERT ON object_state BEGIN
            INSERT INTO every_revision VALUES (NEW.zoid, NEW.tid, NEW.state);
        END;
        CREATE TRIGGER record_update AFTER UPDATE ON object_state BEGIN
            INSERT INTO every_revision VALUES (NEW.zoid, NEW.tid, NEW.state);
        END;
    """

    def open(self, **options: Any) -> Any:
        from relstorage.adapters.sqlite.adapter import Sqlite3Adapter

        return _relstorage(
            lambda checked: Sqlite3Adapter(
                self.address, pragmas={"synchronous": "off"}, options=checked
            ),
            keep_history=self.keep_history,
            **options,
        )

    def errors(self) -> tuple[type[Exception], ...]:
        return (sqlite3.Error,)

    def revisions(self) -> Iterator[Revision]:
        with closing(self._connect()) as connection:
            rows = connection.execute("SELECT zoid, tid, state FROM every_revision")
            yield from (_revision(*row) for row in rows)

    def _start_record(self) -> None:
        with closing(self._connect()) as connection:
            connection.executescript(self._RECORD)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(os.path.join(self.address, "main.sqlite3"), timeout=60)


class MVCCMappingBase(Base):
    """ZODB's own native storage, in one process: the journals of its threads are the record.

    They can be, because nobody is killed and this storage changes no state
    while committing.  What the first transaction stored is in the file *address*.
    """

    kind = "mvccmapping"
    records_itself = False
    keeps_unasked_changes = False

    def __init__(self, address: str, *, keep_history: bool, layout: Layout) -> None:
        super().__init__(address, keep_history=keep_history, layout=layout)
        from ZODB.tests.MVCCMappingStorage import MVCCMappingStorage

        self._first = MVCCMappingStorage()

    def open(self, **options: Any) -> Any:
        instance = self._first.new_instance()
        # Its own instances would poll under a lock of their own while the first one packs.
        instance._lock = self._first._lock
        return instance

    def found(self, random: Random) -> None:
        super().found(random)
        with open(self.address, "w") as file:
            for oid, states in self._first._data.items():
                for tid, state in states.items():
                    print(*_revision(u64(oid), u64(tid), state), file=file)

    def references(self) -> Callable[[bytes], list[bytes]]:
        """Of those that exist: this storage takes references at their word."""
        references = super().references()
        return lambda state: [oid for oid in references(state) if oid in self._first._data]

    def revisions(self) -> Iterator[Revision]:
        for line in Path(self.address).read_text().splitlines():
            oid, tid, found, label = line.split(maxsplit=3)
            yield Revision(int(oid), int(tid), int(found), label)

    def _start_record(self) -> None:
        """There is none."""


def _relstorage(make_adapter: Callable[[Any], Any], **options: Any) -> Any:
    from relstorage.options import Options
    from relstorage.storage import RelStorage

    checked = Options(**{"cache_local_mb": 1, "create_schema": True, **options})
    return RelStorage(make_adapter(checked), options=checked)


_CLASSES: dict[str, type[Base]] = {
    base.kind: base for base in (PostgreSQLBase, SQLiteBase, MVCCMappingBase)
}


def base_of(kind: str, address: str, *, keep_history: bool, layout: Layout) -> Base:
    return _CLASSES[kind](address, keep_history=keep_history, layout=layout)
