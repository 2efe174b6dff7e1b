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
from .system_calls import NO_DESCRIPTORS
from .system_calls import NO_MEMORY
from .system_calls import WAYS
from .system_calls import faulty_system_calls

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="calls functions of Linux")

CHOSEN = ("open a new file", "open after a kill", "save beside a peer", "close")
#: Ways that need a call which these operations do not make.
IMPOSSIBLE = {"save beside a peer": (NO_MEMORY,), "close": (NO_MEMORY, NO_DESCRIPTORS)}


def cases() -> list[tuple[Operation, Way]]:
    chosen = [operation for operation in OPERATIONS if operation.name in CHOSEN]
    return [
        (operation, way)
        for operation in chosen
        for way in WAYS
        if way not in IMPOSSIBLE.get(operation.name, ())
    ]


@pytest.fixture
def injector() -> Iterator[Injector]:
    injector = Injector()
    with faulty_system_calls(injector):
        yield injector


@pytest.mark.parametrize(("operation", "way"), cases(), ids=str)
def test_sweep(operation: Operation, way: Way, injector: Injector, run_directory: Path) -> None:
    Sweep(operation, injector, run_directory).run(way)
