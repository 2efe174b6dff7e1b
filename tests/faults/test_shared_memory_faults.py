"""I7 when the system refuses shared memory, a lock on it, a descriptor or space."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .injector import Injector
from .injector import Way
from .operations import OPERATIONS
from .operations import Operation
from .sweep import Sweep
from .system_calls import WAYS
from .system_calls import faulty_system_calls

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="calls functions of Linux")

CHOSEN = [
    operation
    for operation in OPERATIONS
    if operation.name in ("open a new file", "open after a kill", "save beside a peer", "close")
]


@pytest.fixture
def injector() -> Iterator[Injector]:
    injector = Injector()
    with faulty_system_calls(injector):
        yield injector


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("operation", CHOSEN, ids=str)
def test_sweep(operation: Operation, way: Way, injector: Injector, run_directory: Path) -> None:
    Sweep(operation, injector, run_directory).run(way)
