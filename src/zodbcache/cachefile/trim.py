"""Keep the file within its limit: the least valuable rows go, in small steps.

Guarantees: after a trim the rows count at most the limit, unless others write
meanwhile; a row goes only when all of a lower class have been chosen; no
transaction deletes more than STEP_ROWS rows, so that others can write in
between; what is free in the end goes back to the file system but for a tenth.

A row's value is how often it was asked for, a byte.  Frequencies age without
rewriting the rows (a rewrite of every page would pass through the WAL): a row is
written with its frequency plus the tier's age, and each trim raises the age, so
that what was hot long ago comes to weigh no more, and then less, than what is
new: LFU with dynamic aging, and sizes, after Arlitt et al., "Evaluating content
management techniques for web proxy caches", 2000.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final
from typing import NamedTuple

from zodbcache.cachefile.connection import Connection
from zodbcache.cachefile.tier import ROW_OVERHEAD_BYTES
from zodbcache.cachefile.tier import Tier
from zodbcache.cachefile.tier import read_tier
from zodbcache.cachefile.tier import update_tier

#: A trim leaves this much room, so that the next batch does not trim again.
_TARGET_PERCENT: Final = 90

STEP_ROWS: Final = 2000
_STEP_PAGES: Final = 256

#: So much of the file may be free, for the rows that come next.
_FREE_PERCENT: Final = 15
_FREE_TARGET_PERCENT: Final = 10

_SHARES: Final = 1024

#: Of a class of few rows an even choice may be far from its share: twice as much then.
_ATTEMPTS: Final = _SHARES.bit_length()

_NAME_BYTES: Final = 16


class ValueClass(NamedTuple):
    """All rows of about one value; eight classes double it."""

    value: int
    row_count: int
    state_bytes: int

    @property
    def size_bytes(self) -> int:
        return self.state_bytes + ROW_OVERHEAD_BYTES * self.row_count


def classes(connection: Connection, tier: Tier) -> list[ValueClass]:
    """The rows by value, the least first.  Reads every page, but no large state."""
    with connection.bulk() as rows:
        return [ValueClass(*one) for one in rows.weigh(tier.age)]


def trim(connection: Connection, *, limit_bytes: int, pause: Callable[[], bool]) -> int:
    """Bring a file above *limit_bytes* down to nine tenths of it; return how many rows went.

    *pause*: called between two transactions; True ends it before its time.
    Raises CacheFileError.
    """
    trimmed = 0
    planned = None
    for attempt in range(_ATTEMPTS):
        with connection.transaction("trim", write=False):
            tier = read_tier(connection)
            if tier.size_bytes <= limit_bytes:
                break
            victims = _choose(connection, tier, limit_bytes, attempt)
        planned = planned or tier
        for start in range(0, len(victims) // _NAME_BYTES, STEP_ROWS):
            trimmed += _delete(connection, planned, victims, start)
            if pause():
                return trimmed
    if planned is not None:
        _grow_older(connection, planned)
    while _shrink(connection) and not pause():
        pass
    return trimmed


def _choose(connection: Connection, tier: Tier, limit_bytes: int, attempt: int) -> bytes:
    """Whom to delete: the rows below a class, and by their checksums a share of that class."""
    target_bytes = limit_bytes * _TARGET_PERCENT // 100
    below, share = _threshold(classes(connection, tier), tier.size_bytes - target_bytes)
    with connection.bulk() as rows:
        return rows.choose(tier.age, below, min(share << attempt, _SHARES))


def _threshold(found: list[ValueClass], excess_bytes: int) -> tuple[int, int]:
    """The class below which all rows go, and the share, of 1024, that goes of it."""
    for one in found:
        if excess_bytes <= one.size_bytes:
            # An estimate: a little more, rather than not enough.
            return one.value, min(_SHARES, -(-_SHARES * excess_bytes // one.size_bytes) + 8)
        excess_bytes -= one.size_bytes
    return found[-1].value if found else 0, _SHARES


def _delete(connection: Connection, planned: Tier, victims: bytes, start: int) -> int:
    """Delete some of those rows that are as they were."""
    with connection.transaction("trim", write=True):
        tier = read_tier(connection)
        if tier.generation != planned.generation:
            return 0
        with connection.bulk() as rows:
            deleted, row_count, state_bytes = rows.delete_exactly(victims, start, STEP_ROWS)
        row_count += tier.row_count
        state_bytes += tier.state_bytes
        update_tier(connection, replace(tier, row_count=row_count, state_bytes=state_bytes))
    connection.checkpoint()
    return deleted


def _grow_older(connection: Connection, planned: Tier) -> None:
    with connection.transaction("trim", write=True):
        tier = read_tier(connection)
        if (tier.generation, tier.age) == (planned.generation, planned.age):
            update_tier(connection, replace(tier, age=tier.age + 1))


def _shrink(connection: Connection) -> bool:
    """Give some free pages back to the file system; return whether there are more."""
    (pages,), (free,) = connection.rows("PRAGMA page_count") + connection.rows(
        "PRAGMA freelist_count"
    )
    if free * 100 <= pages * _FREE_PERCENT:
        return False
    excess = free - pages * _FREE_TARGET_PERCENT // 100
    with connection.transaction("trim", write=True):
        connection.rows(f"PRAGMA incremental_vacuum({min(excess, _STEP_PAGES)})")
    connection.checkpoint()
    return bool(connection.rows("PRAGMA freelist_count")[0][0] < free)
