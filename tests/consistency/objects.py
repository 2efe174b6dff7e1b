"""What is stored: each state tells its oid, its writer, and is like no other state."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

ROOT = 0
"""Refers to every object that a pack may not collect.  Never changes."""


class Plain:
    """Two commits of such an object at a time are a conflict."""


class Merging:
    """Two commits of such an object at a time are merged by the storage."""

    def _p_resolveConflict(
        self, old: dict[str, Any], committed: dict[str, Any], new: dict[str, Any]
    ) -> dict[str, Any]:
        return {**new, "merged_with": committed["writer"]}


_MODULE = b"tests.consistency.objects"
"""By this name the storage finds the classes, whoever stored the state."""


@dataclass(frozen=True)
class Layout:
    """Which oids there are.

    *writers*: threads of the run; each has a *pulse*, an object that it alone
    changes, in every transaction that it commits.  Who reads all the pulses
    knows the read point.
    """

    writers: int
    plain_count: int = 220
    late_count: int = 40
    merging_count: int = 40
    garbage_count: int = 20
    once_count: int = 24

    @property
    def pulses(self) -> range:
        return range(1, 1 + self.writers)

    @property
    def plain(self) -> range:
        return range(self.pulses.stop, self.pulses.stop + self.plain_count)

    @property
    def late(self) -> range:
        """Objects that do not exist before a worker stores them."""
        return range(self.plain.stop, self.plain.stop + self.late_count)

    @property
    def merging(self) -> range:
        return range(self.late.stop, self.late.stop + self.merging_count)

    @property
    def garbage(self) -> range:
        """Objects that nothing refers to: a pack collects them, and they may be stored again."""
        return range(self.merging.stop, self.merging.stop + self.garbage_count)

    def once(self, writer: int) -> range:
        """Objects that only this writer stores, each of them once; and then it may undo that."""
        start = self.garbage.stop + writer * self.once_count
        return range(start, start + self.once_count)

    @property
    def all_once(self) -> range:
        return range(self.garbage.stop, self.once(self.writers).start)

    @property
    def changing(self) -> range:
        """All that any writer may change again and again."""
        return range(self.plain.start, self.garbage.stop)

    def founded(self) -> Iterator[int]:
        """What the first transaction stores."""
        yield ROOT
        yield from self.pulses
        yield from self.plain
        yield from self.merging

    def referred(self) -> Iterator[int]:
        """What the root refers to."""
        yield from range(1, self.garbage.start)
        yield from self.all_once

    def state(self, oid: int, writer: str, random: Random) -> bytes:
        """A new state of the object."""
        class_name = b"Merging" if oid in self.merging else b"Plain"
        state = {"oid": oid, "writer": writer, "payload": random.randbytes(_size(random))}
        return b"c%s\n%s\n." % (_MODULE, class_name) + pickle.dumps(state, 3)


def _size(random: Random) -> int:
    """Mostly small; some that crowd out many; some too large for a small cache."""
    kind = random.random()
    if kind < 0.01:
        return random.randrange(100_000, 200_000)
    if kind < 0.08:
        return random.randrange(5_000, 40_000)
    return int(random.expovariate(1 / 700))


def checksum(state: bytes) -> int:
    return zlib.crc32(state)


def describe(state: bytes) -> str:
    """Whose state it is, for a message."""
    try:
        values = pickle.loads(state[state.index(b".", len(_MODULE) + 2) + 1 :])
    except Exception as error:
        return f"{len(state)} bytes that are no state ({error!r})"
    merged = f", merged with {values['merged_with']}" if "merged_with" in values else ""
    return f"oid {values['oid']} by {values['writer']}{merged}, {len(values['payload'])} bytes"
