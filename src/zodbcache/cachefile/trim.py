"""Keep the file within its limit: the least valuable rows go.

Guarantees: after a trim the rows count at most the limit; a row goes only when
every less frequent one has gone.

Frequencies age without rewriting the rows (a rewrite of every page would pass
through the WAL).  A row is written with its frequency plus the tier's age, and
a trim raises the age to the frequency at which it stopped, so that what was hot
long ago comes to weigh no more than what is new: LFU with dynamic aging,
Arlitt et al., "Evaluating content management techniques for web proxy
caches", 2000.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from typing import NamedTuple

from zodbcache.cachefile.connection import Connection
from zodbcache.cachefile.tier import MAX_FREQUENCY
from zodbcache.cachefile.tier import ROW_OVERHEAD_BYTES
from zodbcache.cachefile.tier import Tier

#: A trim leaves this much room, so that the next batch does not trim again.
_TARGET_PERCENT: Final = 90

#: Among rows of one frequency, those in the first so many of 1024 classes of
#: checksums go: an even choice by no order that means anything.
_CLASSES: Final = 1024


class FrequencyClass(NamedTuple):
    """All rows of one stored frequency."""

    frequency: int
    row_count: int
    state_bytes: int

    @property
    def size_bytes(self) -> int:
        return self.state_bytes + ROW_OVERHEAD_BYTES * self.row_count


def histogram(connection: Connection, *, through: int | None = None) -> list[FrequencyClass]:
    """The rows by stored frequency, ascending; only tids up to *through*, if given.

    Reads every page of the table but no large state, and sorts two integers a row.
    """
    # Materialized: otherwise the sorter carries the states.
    found = connection.rows(
        "WITH sizes AS MATERIALIZED (SELECT frequency, octet_length(state) AS size FROM record"
        f" WHERE {'tid <= ?' if through is not None else 'TRUE'})"
        " SELECT frequency, count(*), sum(size) FROM sizes GROUP BY frequency ORDER BY frequency",
        (through,) if through is not None else (),
    )
    return [FrequencyClass(*row) for row in found]


def trim(connection: Connection, tier: Tier, *, limit_bytes: int) -> tuple[Tier, int]:
    """Delete the least frequent rows of a file above *limit_bytes*.

    Return the tier as it is then, and how many rows went.
    """
    if tier.size_bytes <= limit_bytes:
        return tier, 0
    trimmed = 0
    age = tier.age
    classes = histogram(connection)
    # The share is an estimate; where it fell short, the whole class goes.
    for whole_class in (False, True):
        if _size_bytes(classes) <= limit_bytes:
            break
        frequency, share = _threshold(classes, limit_bytes * _TARGET_PERCENT // 100)
        trimmed += connection.run(
            "DELETE FROM record WHERE frequency < ? OR (frequency = ? AND checksum % ? < ?)",
            (frequency, frequency, _CLASSES, _CLASSES if whole_class else share),
        )
        # A frequency out of range is damage; it must not carry the age away.
        age = max(age, min(frequency, tier.age + MAX_FREQUENCY))
        classes = histogram(connection)
    row_count = sum(one.row_count for one in classes)
    state_bytes = sum(one.state_bytes for one in classes)
    return replace(tier, age=age, row_count=row_count, state_bytes=state_bytes), trimmed


def _size_bytes(classes: list[FrequencyClass]) -> int:
    return sum(one.size_bytes for one in classes)


def _threshold(classes: list[FrequencyClass], target_bytes: int) -> tuple[int, int]:
    """The frequency below which all rows go, and the share, of 1024, that goes at it."""
    excess_bytes = _size_bytes(classes) - target_bytes
    for one in classes:
        if excess_bytes <= one.size_bytes:
            return one.frequency, -(-_CLASSES * excess_bytes // one.size_bytes)
        excess_bytes -= one.size_bytes
    return classes[-1].frequency, _CLASSES
