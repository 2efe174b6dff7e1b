"""Where in a page of SQLite a flipped bit does most."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_LEAVES = (10, 13)
_INTERIOR = (2, 5)


def structure(page: bytes, *, is_first: bool) -> Iterator[int]:
    """Offsets in a page: of its header, of where its cells are, and of a cell's first bytes."""
    start = 100 if is_first else 0
    kind = page[start]
    if kind not in (*_LEAVES, *_INTERIOR):  # no page of a tree
        yield from (0, 3, 7, 100, len(page) - 1)
        return
    header_bytes = 8 if kind in _LEAVES else 12
    (count,) = struct.unpack_from(">H", page, start + 3)
    yield from range(start + header_bytes)
    for position in range(min(count, 24)):
        pointer = start + header_bytes + 2 * position
        yield from (pointer, pointer + 1)
    for position in {0, 1, count // 2, count - 1} & set(range(count)):
        (cell,) = struct.unpack_from(">H", page, start + header_bytes + 2 * position)
        yield from range(cell, min(cell + 12, len(page)))
