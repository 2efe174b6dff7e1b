"""Object and transaction ids: 8 bytes at ZODB's boundary, int64 inside.

The integer is the signed reading of the eight bytes, so that it fits an
SQLite INTEGER.  Real tids are positive: ZODB's largest is ``0x7fff…``.
"""

from __future__ import annotations

from struct import Struct

_INT64 = Struct(">q")
_pack = _INT64.pack
_unpack = _INT64.unpack


def to_int(id_bytes: bytes) -> int:
    """The int64 of an 8-byte oid or tid.  Raises struct.error on another length."""
    value: int = _unpack(id_bytes)[0]
    return value


def to_bytes(id_int: int) -> bytes:
    """The 8 bytes of an oid or tid.  Raises struct.error outside int64."""
    return _pack(id_int)
