"""The one row that says what the file vouches for, and how full it is.

Guarantee: a flipped byte in it is found by its checksum.  A checkpoint that
was raised by accident would make every row a possible wrong answer (I1).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from struct import Struct
from typing import Final

from zodbcache.cachefile.connection import Connection

_NUMBERS: Final = Struct(">5q")

#: What a row costs beside its state: the columns, the cell and the unused part of its page.
ROW_OVERHEAD_BYTES: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """The file as a tier: its checkpoint and its bookkeeping.

    *checkpoint*: the tid through which every row is proven current; 0 when
    nothing is.  *generation*: another number after each reset.  *age*: added
    to a row's frequency when it is written, taken off when it is read;
    trimming raises it (:mod:`zodbcache.cachefile.trim`).  *row_count*,
    *state_bytes*: of all rows.  *identity*: of the base storage, a str.
    """

    checkpoint: int = 0
    generation: int = 1
    age: int = 0
    row_count: int = 0
    state_bytes: int = 0
    identity: str = ""

    @property
    def size_bytes(self) -> int:
        """What the rows count against the limit."""
        return self.state_bytes + ROW_OVERHEAD_BYTES * self.row_count

    @property
    def checksum(self) -> int:
        """CRC-32 over the five numbers and the identity."""
        numbers = _NUMBERS.pack(
            self.checkpoint, self.generation, self.age, self.row_count, self.state_bytes
        )
        return zlib.crc32(self.identity.encode(), zlib.crc32(numbers))


def read_tier(connection: Connection) -> Tier:
    """The row.  Raises CacheFileError if it is missing or does not fit its checksum."""
    found = connection.ask(
        "SELECT checkpoint, generation, age, row_count, state_bytes, identity, checksum FROM tier"
    )
    if len(found) != 1:
        raise connection.malformed(f"it has {len(found)} rows where one tells its checkpoint")
    *numbers, identity, checksum = found[0]
    if not (isinstance(identity, str) and all(type(number) is int for number in numbers)):
        raise connection.malformed("a column of its checkpoint's row has the wrong type")
    checkpoint, generation, age, row_count, state_bytes = numbers
    tier = Tier(
        checkpoint=checkpoint,
        generation=generation,
        age=age,
        row_count=row_count,
        state_bytes=state_bytes,
        identity=identity,
    )
    if tier.checksum != checksum:
        raise connection.malformed("its checkpoint's row does not fit its checksum")
    return tier


def insert_tier(connection: Connection, tier: Tier) -> None:
    """Write the first row of a new file."""
    connection.run("INSERT INTO tier VALUES (1, ?, ?, ?, ?, ?, ?, ?)", _columns(tier))


def update_tier(connection: Connection, tier: Tier) -> None:
    """Replace the row; inside the transaction that makes it true."""
    connection.ask(
        "UPDATE tier SET (checkpoint, generation, age, row_count, state_bytes, identity, checksum)"
        " = (?, ?, ?, ?, ?, ?, ?)",
        _columns(tier),
    )


def _columns(tier: Tier) -> tuple[int | str, ...]:
    return (
        tier.checkpoint,
        tier.generation,
        tier.age,
        tier.row_count,
        tier.state_bytes,
        tier.identity,
        tier.checksum,
    )
