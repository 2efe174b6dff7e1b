from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .injector import Injector
from .os_calls import faulty_os_calls
from .vfs import faulty_vfs


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
