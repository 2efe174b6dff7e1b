"""Plain base storages of every kind, opened as often as a test likes."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class ZEOServer:
    """A real server over a FileStorage, in a thread of this process; stopped and started."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.address: Any = None
        self._stop: Callable[[], None] | None = None
        self.start()

    def start(self) -> None:
        import ZEO

        port = self.address[1] if self.address else 0
        self.address, self._stop = ZEO.server(str(self.path), port=port)

    def stop(self) -> None:
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()

    def client(self, **options: Any) -> Any:
        from ZEO.ClientStorage import ClientStorage

        return ClientStorage(self.address, wait_timeout=20, **options)


@pytest.fixture
def zeo_server(tmp_path: Path) -> Iterator[ZEOServer]:
    server = ZEOServer(tmp_path / "Data.fs")
    yield server
    server.stop()


class Bases:
    """Opens the base storage of one kind; ``reopen()`` gives the same database again."""

    def __init__(self, kind: str, directory: Path, server: ZEOServer | None) -> None:
        self.kind = kind
        self.is_persistent = kind in ("FileStorage", "DemoStorage", "ZEO")
        self._directory = directory
        self._server = server

    def open(self, name: str = "Data", **options: Any) -> Any:
        from ZODB.DemoStorage import DemoStorage
        from ZODB.FileStorage import FileStorage
        from ZODB.MappingStorage import MappingStorage

        path = self._directory / name
        if self.kind == "FileStorage":
            return FileStorage(f"{path}.fs", **options)
        if self.kind == "MappingStorage":
            return MappingStorage(name)
        if self.kind == "DemoStorage":
            below = FileStorage(f"{path}.below.fs")
            return DemoStorage(base=below, changes=FileStorage(f"{path}.changes.fs"))
        assert self._server is not None
        return self._server.client(**options)


@pytest.fixture(params=["FileStorage", "MappingStorage", "DemoStorage", "ZEO"])
def bases(request: pytest.FixtureRequest, tmp_path: Path) -> Bases:
    server = request.getfixturevalue("zeo_server") if request.param == "ZEO" else None
    return Bases(request.param, tmp_path, server)


@pytest.fixture
def wrapped(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Wrap a base storage, with the test's own cache directory; closed at the end.

    The file is written when a test says so, and at the end.
    """
    import zodbcache

    made: list[Any] = []

    def wrap(base: Any, **options: Any) -> Any:
        options = {
            "cache_local_mb": 10,
            "cache_local_dir": str(tmp_path / "cache"),
            "cache_write_seconds": 0,
            **options,
        }
        made.append(zodbcache.wrap(base, **options))
        return made[-1]

    yield wrap
    for storage in made:
        storage.close()
