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
from .vfs import flip_of_place

WAYS = [ERROR, TORN, FULL, BUSY, SHORT, DEAD, CRASH, CRASH_TORN, *FLIPS]


#: Ways that need a call which these operations do not make.
IMPOSSIBLE = {
    "open": (TORN, FULL),
    "open after a kill": (TORN, FULL),
    "read single rows": (TORN, FULL),
    "restore": (TORN, FULL),
    "reset": (BUSY,),
    "trim": (BUSY,),
}


def cases() -> list[tuple[Operation, Way]]:
    return [
        (operation, way)
        for operation in OPERATIONS
        for way in WAYS
        if way not in IMPOSSIBLE.get(operation.name, ())
    ]


@pytest.mark.parametrize(("operation", "way"), cases(), ids=str)
def test_sweep(operation: Operation, way: Way, injector: Injector, run_directory: Path) -> None:
    Sweep(operation, injector, run_directory).run(way)


@pytest.mark.parametrize("place", range(0, 96, 11))
def test_flips_where_changed_rows_are_found(
    place: int, injector: Injector, run_directory: Path
) -> None:
    """In each page that is read to save them, one place after the other."""
    (operation,) = (one for one in OPERATIONS if one.name == "save changed rows")
    Sweep(operation, injector, run_directory).run(flip_of_place(place))
