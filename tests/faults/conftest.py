from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .injector import Injector
from .operations import open_file
from .os_calls import faulty_os_calls
from .vfs import faulty_vfs


@pytest.fixture(scope="session", autouse=True)
def core_vfs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The core's VFS comes with the first file: let it stand behind the system's own."""
    open_file(tmp_path_factory.mktemp("first")).close()


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    """Where the files lie whose input and output fail."""
    return tmp_path / "run"


@pytest.fixture
def injector(run_directory: Path) -> Iterator[Injector]:
    """Every connection of APSW, and every call of ``os`` on the run's files, goes through it."""
    injector = Injector()
    with faulty_vfs(injector), faulty_os_calls(injector, run_directory):
        yield injector
