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

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Final
from typing import NamedTuple

from zodbcache.cachefile.connection import Connection
from zodbcache.cachefile.tier import MAX_FREQUENCY
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

#: Of the last class that goes, only the rows whose checksum has one of the first
#: so many of 1024 remainders: an even choice by no order that means anything.
_SHARES: Final = 1024

_WEIGHED: Final = f"""\
SELECT record.oid, record.tid, record.checksum, octet_length(record.state) AS size,
    min(ifnull(heat.frequency, record.frequency) - ?1, {MAX_FREQUENCY}) AS frequency
FROM record LEFT JOIN heat ON heat.oid = record.oid"""

_CLASS: Final = f"""\
CAST(floor(8 * log2(iif(frequency >= 0, frequency + 1.0, 1.0 / (1 - frequency))
    / (size + {ROW_OVERHEAD_BYTES}))) AS INTEGER)"""

CLASSIFIED: Final = f"SELECT oid, tid, checksum, size, {_CLASS} AS class FROM ({_WEIGHED})"
"""The rows with their class; ``?1`` is the tier's age.  Eight classes double the value."""


class ValueClass(NamedTuple):
    """All rows of about one value."""

    value: int
    row_count: int
    state_bytes: int

    @property
    def size_bytes(self) -> int:
        return self.state_bytes + ROW_OVERHEAD_BYTES * self.row_count


def classes(connection: Connection, tier: Tier) -> list[ValueClass]:
    """The rows by value, the least first.  Reads every page, but no large state."""
    found = connection.rows(  # one row, since each costs a wait for the GIL
        "SELECT json_group_array(json_array(class, count, bytes)) FROM ("
        f"SELECT class, count(*) AS count, sum(size) AS bytes FROM ({CLASSIFIED})"
        " GROUP BY class ORDER BY class)",
        (tier.age,),
    )
    return [ValueClass(*one) for one in json.loads(found[0][0])]


def trim(connection: Connection, *, limit_bytes: int, pause: Callable[[], object]) -> int:
    """Bring a file above *limit_bytes* down to nine tenths of it; return how many rows went.

    *pause*: called between two transactions.  Raises CacheFileError.
    """
    trimmed = 0
    with connection.transaction("trim", write=False):
        tier = read_tier(connection)
        is_full = tier.size_bytes > limit_bytes
        if is_full:
            last = _choose(connection, tier, limit_bytes * _TARGET_PERCENT // 100)
    if is_full:
        for first in range(1, last + 1, STEP_ROWS):
            trimmed += _delete(connection, tier, first, first + STEP_ROWS - 1)
            pause()
        _grow_older(connection, tier)
    while _shrink(connection):
        pause()
    return trimmed


def _choose(connection: Connection, tier: Tier, target_bytes: int) -> int:
    """Note whom to delete in a table of this connection; return how many."""
    threshold, share = _threshold(classes(connection, tier), tier.size_bytes - target_bytes)
    connection.run("DROP TABLE IF EXISTS temp.victim")
    connection.run("CREATE TEMP TABLE victim(number INTEGER PRIMARY KEY, oid INTEGER, tid INTEGER)")
    return connection.run(
        f"INSERT INTO temp.victim(oid, tid) SELECT oid, tid FROM ({CLASSIFIED})"
        " WHERE class < ?2 OR (class = ?2 AND checksum % ?3 < ?4)",
        (tier.age, threshold, _SHARES, share),
    )


def _threshold(found: list[ValueClass], excess_bytes: int) -> tuple[int, int]:
    """The class below which all rows go, and the share, of 1024, that goes of it."""
    for one in found:
        if excess_bytes <= one.size_bytes:
            # An estimate: a little more, rather than not enough.
            return one.value, min(_SHARES, -(-_SHARES * excess_bytes // one.size_bytes) + 8)
        excess_bytes -= one.size_bytes
    return found[-1].value if found else 0, _SHARES


_CHOSEN: Final = "SELECT oid, tid FROM temp.victim WHERE number BETWEEN ? AND ?"


def _delete(connection: Connection, planned: Tier, first: int, last: int) -> int:
    """Delete the chosen rows of these numbers that are as they were."""
    with connection.transaction("trim", write=True):
        tier = read_tier(connection)
        if tier.generation != planned.generation:
            return 0
        chosen = f"FROM record WHERE (oid, tid) IN ({_CHOSEN})"
        state_bytes = connection.rows(
            f"SELECT ifnull(sum(octet_length(state)), 0) {chosen}", (first, last)
        )[0][0]
        deleted = connection.run(f"DELETE {chosen}", (first, last))
        connection.run(
            f"DELETE FROM heat WHERE oid IN (SELECT oid FROM ({_CHOSEN}))"
            " AND oid NOT IN (SELECT oid FROM record)",
            (first, last),
        )
        left = {
            "row_count": tier.row_count - deleted,
            "state_bytes": tier.state_bytes - state_bytes,
        }
        update_tier(connection, replace(tier, **left))
    connection.checkpoint()
    return deleted


def _grow_older(connection: Connection, planned: Tier) -> None:
    with connection.transaction("trim", write=True):
        connection.run("DROP TABLE temp.victim")
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
    return True
