"""I7 of the cache file: whatever call fails, and however, only CacheFileError is raised,
the next process can use the file, and no row in it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from .injector import Injector
from .injector import Way
from .operations import OPERATIONS
from .operations import Operation
from .sweep import Sweep
from .vfs import BUSY
from .vfs import CRASH
from .vfs import CRASH_TORN
from .vfs import DEAD
from .vfs import ERROR
from .vfs import FLIPS
from .vfs import FULL
from .vfs import SHORT
from .vfs import TORN

WAYS = [ERROR, TORN, FULL, BUSY, SHORT, DEAD, CRASH, CRASH_TORN, *FLIPS]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_sweep(operation: Operation, way: Way, injector: Injector, run_directory: Path) -> None:
    Sweep(operation, injector, run_directory).run(way)
