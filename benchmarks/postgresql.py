"""PostgreSQL for the benchmarks, and ZODB databases in it: RelStorage with and without caches.

Run as a script it is the server, in a process of its own: it prints how to
connect, as a line of JSON, and ends, and removes all its files, when its
standard input is closed.  So it ends with the benchmark, however that ends.

Commits do not wait for the disk.  They would take longer, and what a cache
adds to them would show less.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from typing import NamedTuple
from typing import cast

STOP_TIMEOUT_S = 20.0
CONFIRM_TIMEOUT_S = 60.0

LITTLE_MB = 1.0
"""RelStorage's own cache where there is to be none: without it, it resolves fewer conflicts."""


CONNECTION_OBJECTS = 5000
"""A connection keeps all that it has read or written."""


class Place(NamedTuple):
    """A database in the server, where its caches have their files, and how much they may hold."""

    dsn: str
    directory: str
    cache_mb: float = 10.0


@contextlib.contextmanager
def running() -> Iterator[str]:
    """A server with one empty database, whose DSN this is."""
    with subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            line = server.stdout.readline()
            if not line:
                raise SystemExit("PostgreSQL did not start; see above")
            yield json.loads(line)
        finally:
            server.stdin.close()
            try:
                server.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                server.terminate()


def new_database(dsn: str, name: str) -> str:
    """Create the empty database *name* in the server of *dsn*; return its DSN."""
    from psycopg2.extensions import make_dsn

    _execute(dsn, f"CREATE DATABASE {name}")
    made: str = make_dsn(dsn, dbname=name)
    return made


def tidy(dsn: str) -> None:
    """After much was written, so that the server does it at no other time."""
    _execute(dsn, "VACUUM ANALYZE", "CHECKPOINT")


def store_states(dsn: str, count: int) -> None:
    """Put the states of the oids from 1 to *count* into the empty database of *dsn*.

    They are no pickles, and are to be read from RelStorage, not from ZODB.
    """
    import psycopg2
    from workloads import STATE_BYTES
    from workloads import TID
    from workloads import state_of

    relstorage(dsn, LITTLE_MB).close()  # makes the tables
    with (
        contextlib.closing(psycopg2.connect(dsn)) as connection,
        connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(
            "INSERT INTO object_state (zoid, tid, state_size, state)"
            " SELECT oid, %s, %s, int8send(oid) || %s FROM generate_series(1, %s::bigint) oid",
            (TID, STATE_BYTES, state_of(0)[8:], count),
        )
    tidy(dsn)


def _execute(dsn: str, *statements: str) -> None:
    import psycopg2

    with contextlib.closing(psycopg2.connect(dsn)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


# Databases in the place, each with the caches of its kind.


def open_plain(place: Place) -> Any:
    """No cache that is worth the name: little, and emptied before each read."""
    return _database(relstorage(place.dsn, LITTLE_MB))


def open_with_own_memory(place: Place) -> Any:
    """RelStorage's own cache, in memory."""
    return _database(relstorage(place.dsn, place.cache_mb))


def open_with_own_file(place: Place) -> Any:
    """RelStorage's own cache, filled from its file."""
    return _database(relstorage(place.dsn, place.cache_mb, Path(place.directory) / "relstorage"))


def open_in_memory(place: Place) -> Any:
    """This cache, in memory."""
    import zodbcache

    base = relstorage(place.dsn, LITTLE_MB)
    return _database(zodbcache.wrap(base, cache_local_mb=place.cache_mb))


def open_restarted(place: Place) -> Any:
    """This cache, over its file."""
    import zodbcache

    base = relstorage(place.dsn, LITTLE_MB)
    directory = str(Path(place.directory) / "zodbcache")
    options = {"cache_local_mb": place.cache_mb, "cache_local_dir": directory}
    return _database(zodbcache.wrap(base, **options))


def relstorage(dsn: str, cache_mb: float, cache_directory: Path | None = None) -> Any:
    from relstorage.adapters.postgresql import PostgreSQLAdapter
    from relstorage.options import Options
    from relstorage.storage import RelStorage

    options = Options(
        keep_history=False,
        driver="psycopg2",
        cache_local_mb=cache_mb,
        cache_local_dir=str(cache_directory) if cache_directory else None,
    )
    return RelStorage(PostgreSQLAdapter(dsn=dsn, options=options), options=options)


def _database(storage: Any) -> Any:
    import ZODB

    return ZODB.DB(storage, cache_size=CONNECTION_OBJECTS)


def confirmed(database: Any) -> Any:
    """The database, once this cache has compared its file with it, as it does at open."""
    wait_until_confirmed(database.storage)
    return database


def wait_until_confirmed(storage: Any) -> None:
    """Until nobody competes with what is to be timed.  The file, if there is one, agrees."""
    deadline = time.monotonic() + CONFIRM_TIMEOUT_S
    while not storage._cache.persistence.is_settled:
        assert time.monotonic() < deadline, "the file is not confirmed"
        time.sleep(0.0005)
    storage._caretaker.wait()


class Loads(NamedTuple):
    """What a cache has counted: loads it answered itself, and others."""

    hits: int
    misses: int


def loads_of(database: Any) -> Loads:
    """Those counted by this cache, or if there is none, by RelStorage's own."""
    storage = database.storage
    counted = getattr(storage, "cache_stats", None) or storage._cache.stats
    stats = counted()
    return Loads(stats["hits"], stats["misses"])


def main() -> None:
    from zodbcache.demo.bases.postgresql import BASE
    from zodbcache.demo.bases.postgresql import PostgreSQLAddress

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    with (
        tempfile.TemporaryDirectory(prefix="benchmark-postgresql-") as directory,
        BASE.serve(Path(directory)) as address,
    ):
        settings = ("fsync", "full_page_writes", "synchronous_commit")
        changes = [f"ALTER SYSTEM SET {setting} = off" for setting in settings]
        dsn = cast(PostgreSQLAddress, address).dsn
        _execute(dsn, *changes, "SELECT pg_reload_conf()")
        print(json.dumps(dsn), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
