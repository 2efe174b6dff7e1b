"""What the demo and the processes it starts say to each other: pickled frozen dataclasses.

A child first receives its job.  A reader then sends Opened, waits for Go,
and for each of its phases sends ChunkRead while it reads and PhaseRead
afterwards; at the end Closed.
"""

from __future__ import annotations

from dataclasses import dataclass

from zodbcache.demo.bases import Address
from zodbcache.demo.bases import Base
from zodbcache.demo.stdlib import ModuleFacts


@dataclass(frozen=True)
class ServerJob:
    """Serve a new database of *base* in *directory*; answer Serving."""

    base: Base
    directory: str


@dataclass(frozen=True)
class Serving:
    address: Address


@dataclass(frozen=True)
class ParserJob:
    """Parse every *stride*-th file of the standard library's first *limit*, from *first* on.

    Answer Parsed for each.
    """

    first: int
    stride: int
    limit: int | None


@dataclass(frozen=True)
class Parsed:
    """*facts*: None when the file is not valid Python."""

    facts: ModuleFacts | None


@dataclass(frozen=True)
class CachePlace:
    """Where the cache is: *directory*, with *limit_mb* of memory a process."""

    directory: str
    limit_mb: int


@dataclass(frozen=True)
class ReaderJob:
    """Read at most *objects* objects once for each of *phases*, in an order given by *seed*.

    *started_s*: ``time.monotonic()`` before the process was started.
    *cache*: None to read without one.  *compare*: afterwards read the same
    without the cache and count what differs.
    """

    started_s: float
    address: Address
    cache: CachePlace | None
    phases: tuple[str, ...]
    objects: int
    seed: int
    compare: bool = False


@dataclass(frozen=True)
class Go:
    """Start reading."""


@dataclass(frozen=True)
class Opened:
    """*start_ms*: the interpreter and its imports.  *open_ms*: connecting, the cache, the DB."""

    start_ms: float
    open_ms: float


@dataclass(frozen=True)
class ChunkRead:
    objects: int


@dataclass(frozen=True)
class PhaseRead:
    """*chunks_ms_per_500*: one figure for each chunk.  *checksum*: of all that was read."""

    phase: str
    objects: int
    chunks_ms_per_500: tuple[float, ...]
    read_s: float
    hits: int
    misses: int
    file_hits: int
    checksum: str


@dataclass(frozen=True)
class Compared:
    """*changed*: objects read in a newer version than the first; *wrong*: read differently."""

    changed: int
    wrong: int


@dataclass(frozen=True)
class Closed:
    """*close_ms*: saving the cache is in it."""

    close_ms: float
