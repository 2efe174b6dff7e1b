"""What one transaction has written so far."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

OWN_STATES_SHARE = 8
"""Of an own transaction's states at most one part in this many of the memory is kept."""


class Written:
    """The objects of one transaction.

    *states*: the records as the caller gave them; None where the base storage
    makes its own (I4), or where keeping them would take too much memory.
    *is_copy*: of a transaction that was committed elsewhere, with its tid.
    """

    __slots__ = ("bytes_left", "deleted", "is_copy", "states", "undone")

    def __init__(self, limit_bytes: int = 0) -> None:
        self.states: dict[bytes, bytes | None] = {}
        self.undone: set[bytes] = set()
        self.deleted: set[bytes] = set()
        self.is_copy = False
        self.bytes_left = limit_bytes // OWN_STATES_SHARE

    def store(self, oid: bytes, state: Any) -> None:
        """The caller gave this record."""
        if type(state) is bytes and len(state) <= self.bytes_left:
            self.bytes_left -= len(state)
            self.states[oid] = state
        else:
            self.states[oid] = None

    def change(self, oids: Iterable[bytes]) -> None:
        """The base storage makes these records."""
        self.states.update(dict.fromkeys(oids))

    def undo(self, oids: Iterable[bytes]) -> None:
        """These are as they were once."""
        self.undone.update(oids)
        self.change(self.undone)

    def delete(self, oid: bytes) -> None:
        """This is no more."""
        self.deleted.add(oid)
        self.change([oid])
