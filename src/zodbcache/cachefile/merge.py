"""The one atomic step: delete what changed, insert what is proven, raise the checkpoint.

Guarantees, whatever the interleaving of processes (I1, I6):

- The checkpoint never falls, and never rises above what the caller has proven.
- A caller that is behind the file, or whose knowledge is of another
  generation, writes nothing.
- Every row in the file is current through the checkpoint that stands beside
  it in the same SQLite snapshot.
- An exception, or the death of the process, leaves the file as it was.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from typing import Final

from zodbcache._core._store import Batch
from zodbcache.cachefile import rows as bulk
from zodbcache.cachefile.connection import Connection
from zodbcache.cachefile.rows import Gain
from zodbcache.cachefile.rows import Name
from zodbcache.cachefile.rows import Row
from zodbcache.cachefile.tier import Tier
from zodbcache.cachefile.tier import read_tier
from zodbcache.cachefile.tier import update_tier

NamesSince = Callable[[int], Sequence[Name] | None]

WITNESSES_KEPT: Final = 64


class Outcome(enum.Enum):
    """What became of an advance."""

    ADVANCED = "advanced"
    UNCHANGED = "unchanged"
    BEHIND = "behind"
    STALE_GENERATION = "stale generation"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvanceResult:
    """How an advance ended, and what the file says after it.

    *inserted* counts the rows that were new or newer, *deleted* those that had
    changed; both are 0 unless the outcome is ADVANCED.  *size_bytes*: what the
    rows count against the limit now.
    """

    outcome: Outcome
    checkpoint: int
    generation: int
    inserted: int = 0
    deleted: int = 0
    size_bytes: int = 0


def advance(
    connection: Connection,
    *,
    through: int,
    generation: int,
    names_since: NamesSince,
    rows: Iterable[Batch] | Iterable[Row],
    witnesses: Iterable[Name],
) -> AdvanceResult:
    """See ICacheFile.advance.

    *rows* is consumed under the file's write lock, after what changed has
    been deleted; what it or *names_since* raises rolls everything back and
    leaves as it is.
    """
    with connection.transaction("advance", write=True):
        before = read_tier(connection)
        if before.generation != generation:
            return _result(Outcome.STALE_GENERATION, before)
        if before.checkpoint > through:
            return _result(Outcome.BEHIND, before)
        named = names_since(before.checkpoint)
        after, deleted = _delete_changed(connection, before, named)
        after, inserted = _insert(connection, after, rows, through=through)
        after = replace(after, checkpoint=through)
        witnessed = _keep_newest_witnesses(connection, witnesses, through=through)
        if after != before:
            update_tier(connection, after)
        changed = after != before or inserted or deleted or witnessed
    connection.checkpoint()
    outcome = Outcome.ADVANCED if changed else Outcome.UNCHANGED
    return _result(outcome, after, inserted=inserted, deleted=deleted)


def empty(connection: Connection, *, generation: int, identity: str) -> bool:
    """Delete everything and start the next generation; see ICacheFile.reset.

    *identity*: of the database whose file it is from now on.  Return False if
    the file is of another generation already.
    """
    with connection.transaction("reset", write=True):
        tier = read_tier(connection)
        if tier.generation != generation:
            return False
        _delete_everything(connection)
        update_tier(connection, Tier(generation=generation + 1, identity=identity))
    return True


def warm(connection: Connection, *, generation: int, gains: Sequence[Gain]) -> int:
    """Add to the frequencies of rows; return the tier's age, which they fade with."""
    with connection.transaction("advance", write=True):
        tier = read_tier(connection)
        if tier.generation == generation:
            bulk.warm(connection, gains, age=tier.age)
    connection.checkpoint()
    return tier.age


def _result(outcome: Outcome, tier: Tier, *, inserted: int = 0, deleted: int = 0) -> AdvanceResult:
    return AdvanceResult(
        outcome=outcome,
        checkpoint=tier.checkpoint,
        generation=tier.generation,
        inserted=inserted,
        deleted=deleted,
        size_bytes=tier.size_bytes,
    )


def _delete_changed(
    connection: Connection, tier: Tier, named: Sequence[Name] | None
) -> tuple[Tier, int]:
    """Drop what may have changed after the checkpoint: all, if *named* is None."""
    if named is None:
        _delete_everything(connection)
        return replace(tier, row_count=0, state_bytes=0), tier.row_count
    if not named:
        return tier, 0
    change = bulk.delete_older(connection, named)
    return _apply(tier, change), change.changed


def _insert(
    connection: Connection, tier: Tier, rows: Iterable[Batch] | Iterable[Row], *, through: int
) -> tuple[Tier, int]:
    inserted = 0
    for batch in bulk.batches(rows, through=through):
        change = bulk.insert(connection, batch, age=tier.age)
        tier = _apply(tier, change)
        inserted += change.changed
    return tier, inserted


def _apply(tier: Tier, change: bulk.Change) -> Tier:
    return replace(
        tier,
        row_count=tier.row_count + change.row_count,
        state_bytes=tier.state_bytes + change.state_bytes,
    )


def _delete_everything(connection: Connection) -> None:
    for table in ("record", "heat", "witness"):
        connection.run(f"DELETE FROM {table}")


def read_witnesses(connection: Connection) -> list[Name]:
    """All witnesses, newest tid first."""
    names = connection.ask("SELECT oid, tid FROM witness ORDER BY tid DESC, oid")
    if not all(type(number) is int for name in names for number in name):
        raise connection.malformed("a witness is no pair of numbers")
    return names


def _keep_newest_witnesses(
    connection: Connection, witnesses: Iterable[Name], *, through: int
) -> bool:
    """Merge *witnesses* up to *through* into the file's; return whether that changed any."""
    witnesses = list(witnesses)
    if not witnesses:
        return False
    kept = read_witnesses(connection)
    newest = dict(kept)
    for oid, tid in witnesses:
        if newest.get(oid, 0) < tid <= through:
            newest[oid] = tid
    merged = sorted(newest.items(), key=lambda name: (-name[1], name[0]))[:WITNESSES_KEPT]
    if merged == kept:
        return False
    connection.ask("DELETE FROM witness")
    bindings = tuple(number for name in merged for number in name)
    connection.ask(f"INSERT INTO witness VALUES {','.join(['(?,?)'] * len(merged))}", bindings)
    return True
