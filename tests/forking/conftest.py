"""A database of OBJECTS, and processes over it."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import zodbcache

from . import databases
from .server import Gunicorn

WORDS = {oid: f"word {oid} {'.' * 100}" for oid in range(1, 201)}


@pytest.fixture
def words() -> dict[int, str]:
    """What is in the database."""
    return dict(WORDS)


@pytest.fixture
def make_database(tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """``make_database(kind)``: its address, of one however often it is asked for."""
    servers: list[Any] = []
    addresses: dict[str, Any] = {}

    def make(kind: str) -> Any:
        if kind not in addresses:
            addresses[kind] = fill(kind)
        return addresses[kind]

    def fill(kind: str) -> Any:
        address = str(tmp_path / f"Data.{kind}")
        if kind == "RelStorage":
            pytest.importorskip("relstorage")
        storage = databases.open_base(
            "FileStorage" if kind == "ZEO" else kind, address, read_only=False
        )
        databases.commit(storage, WORDS)
        storage.close()
        if kind == "ZEO":
            from processes.children import Server

            servers.append(Server(Path(address)))
            return servers[0].port
        return address

    yield make
    for server in servers:
        server.kill()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """The cache's directory."""
    return tmp_path / "cache"


@pytest.fixture
def opened(make_database: Callable[[str], Any], cache: Path) -> Iterator[Callable[..., Any]]:
    """``opened(kind, **options)``: a cached storage of this process, once it is ready.

    It writes to the file when told to, or closed.
    """
    storages: list[Any] = []

    def open_storage(kind: str = "FileStorage", **options: Any) -> Any:
        options = {"cache_local_mb": 10, "cache_write_seconds": 0, **options}
        base = databases.open_base(kind, make_database(kind))
        storages.append(zodbcache.wrap(base, cache_local_dir=str(cache), **options))
        storages[-1]._caretaker.wait()
        return storages[-1]

    yield open_storage
    for storage in storages:
        storage.close()


@pytest.fixture
def serve(make_database: Callable[[str], Any], tmp_path: Path) -> Iterator[Callable[..., Gunicorn]]:
    """``serve(kind, **job)``: a gunicorn; its job is the application's, over one database."""
    pytest.importorskip("gunicorn")
    running: list[Gunicorn] = []

    def start(kind: str, **job: Any) -> Gunicorn:
        basic = {"address": make_database(kind), "opens": "parent", "write_seconds": 0}
        running.append(Gunicorn(tmp_path, {"kind": kind, "workers": 3, **basic, **job}))
        return running[-1]

    yield start
    for gunicorn in running:
        gunicorn.close()
