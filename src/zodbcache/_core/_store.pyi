from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from typing_extensions import Self

class Store:
    """The memory tier; zodbcache.interfaces.IStore is its contract.

    *limit_bytes*: 256 KiB to just under 8 GiB, bookkeeping included.
    *object_max_bytes*: states longer than this are not kept.
    Raises ValueError on impossible sizes and MemoryError without address space.
    """

    def __new__(cls, limit_bytes: int, object_max_bytes: int) -> Self: ...
    @property
    def checkpoint(self) -> int: ...
    @property
    def history(self) -> int: ...
    @property
    def limit_bytes(self) -> int: ...
    def load_before(
        self, oid: bytes, before: bytes, /
    ) -> tuple[bytes, bytes, bytes | None] | None: ...
    def load_at(self, oid: bytes, at: int, /) -> tuple[bytes, bytes] | None: ...
    def holds(self, oid: bytes, at: int, /) -> bool: ...
    def recall(self, oid: bytes, tid: bytes, /) -> bytes | None: ...
    def insert(self, oid: int, tid: int, end: int, state: bytes, /) -> bool: ...
    def insert_own(self, states: dict[bytes, bytes | None], tid: int, /) -> None: ...
    def promote(self, oid: int, tid: int, state: bytes, frequency: int, /) -> bool: ...
    def restore(self, oid: int, tid: int, state: bytes, frequency: int, /) -> bool: ...
    def advance(
        self, changes: Sequence[tuple[Sequence[bytes], int, bool]], checkpoint: int, /
    ) -> None: ...
    def follow(self, names: Sequence[tuple[int, int]], checkpoint: int, /) -> None: ...
    def forget(self, oid: int, /) -> None: ...
    def clear(self) -> None: ...
    def restart(self, checkpoint: int, /) -> None: ...
    def reserve(self, size_bytes: int, /) -> None: ...
    def peek(self, oid: int, /) -> tuple[int, int, bytes] | None: ...
    @property
    def unsaved_bytes(self) -> int: ...
    @property
    def unsaved_left(self) -> bool: ...
    def take_unsaved(self) -> bytes: ...
    def search_unsaved(self) -> None: ...
    def return_unsaved(self, oids: bytes, start: int, /) -> None: ...
    def pack(
        self, oids: bytes, start: int, through: int, bytes_max: int, /
    ) -> tuple[Batch, int]: ...
    def mark_unsaved(self) -> None: ...
    def restore_batch(self, batch: Batch, changed: Deltas, known: int, /) -> bool: ...
    def heated(
        self, position: int, slots: int, faded: int, /
    ) -> tuple[list[tuple[int, int, int]], int]: ...
    def stats(self) -> dict[str, int]: ...
    def check(self) -> None: ...

class TempStore(Store):
    """The memory tier in a temporary SQLite database, of *limit_bytes* on disk.

    Takes some 8 MB of memory whatever the limit, which may be 32 GiB.  After an
    error of SQLite's it is empty, and goes on.  Raises RuntimeError unless
    this module has been loaded into SQLite as an extension.
    """

    @property
    def faults(self) -> int:
        """How often that has happened."""
    @property
    def last_fault(self) -> int:
        """SQLite's extended result code; 0 before the first."""
    def abandon(self) -> None:
        """In a fork's child: leave the database to the parent, and begin with an empty one."""

class Reader:
    """``reader(oid, before)``: what ``store.load_before`` finds, else ``miss(oid, before)``.

    Arguments that are no oid and tid go to *miss* as they are.  A hit is one
    call into C and no frame of Python's.
    """

    def __new__(cls, store: Store, miss: Callable[..., Any]) -> Reader: ...
    def __call__(self, oid: bytes, before: bytes) -> tuple[bytes, bytes, bytes | None] | None: ...

class PinnedReader:
    """``reader(oid)``: what is visible at ``at``, ``(state, tid)``, else ``miss(oid)``.

    Further positional arguments are passed to *miss* and mean nothing to a
    hit.  *at* is negative at first, after unpin(), and when the store has been
    restarted since pin()'s *history* was taken from it: every call is a miss.
    """

    @property
    def at(self) -> int: ...
    def pin(self, at: int, history: int, /) -> None: ...
    def unpin(self) -> None: ...
    def __new__(cls, store: Store, miss: Callable[..., Any]) -> PinnedReader: ...
    def __call__(self, oid: bytes, version: str = "", /) -> tuple[bytes, bytes]: ...

class Deltas:
    """``{oid: tid}`` of what changed, 16 bytes a slot.  Raises MemoryError when there is none."""

    def __new__(cls) -> Deltas: ...
    def __len__(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    def name(self, oids: Sequence[bytes], tid: int, /) -> None:
        """Each oid's tid becomes the greater of its old one and *tid* (> 0)."""

    def update(self, names: Sequence[tuple[int, int]], /) -> None:
        """Likewise, with a tid for each oid: ``(oid, tid)``."""

    def get(self, oid: int, /) -> int:
        """The oid's tid, or 0."""

    def since(self, tid: int, /) -> list[tuple[int, int]]:
        """``(oid, tid)`` of what was named after *tid*, in no order."""

    def trim(self, tid: int, /) -> None:
        """Forget what was named up to *tid*."""

class Batch:
    """Rows on their way between memory and the file; it does not change.

    *rows*: ``(oid, tid, frequency, state)``.
    """

    def __new__(cls, rows: Sequence[tuple[int, int, int, bytes]]) -> Batch: ...
    def __len__(self) -> int: ...
    @property
    def state_bytes(self) -> int: ...
    def rows(self) -> list[tuple[int, int, int, bytes]]: ...

class SQLiteError(Exception):
    """Its args: SQLite's result code, and its message."""

    args: tuple[int, str]

class Rows:
    """The file's rows, on an apsw.Connection, whose transactions the caller begins.

    To be closed before the connection.  One thread at a time may use either.
    Raises SQLiteError.
    """

    def __new__(cls, connection: Any) -> Rows: ...
    def ask(
        self, sql: str, bindings: tuple[int | str, ...], quickly: bool, /
    ) -> list[tuple[Any, ...]]:
        """Run one statement of any kind; all its rows.

        *quickly*: without letting other threads run, to wait for whom would
        take much longer.
        """
    def read(
        self, oid: int, ahead: int, age: int, /
    ) -> tuple[list[tuple[int, int, int, bytes]], int]:
        """The row of *oid*, and with *ahead* those of the next oids; how many were damaged."""
    def insert(self, batch: Batch, age: int, /) -> tuple[int, int, int]:
        """How many rows were written, and how many rows and bytes there are more."""
    def delete_older(self, names: Sequence[tuple[int, int]], /) -> tuple[int, int, int]:
        """Likewise, for what was deleted."""
    def warm(self, gains: Sequence[tuple[int, int, int]], age: int, /) -> int:
        """Add to the frequencies of ``(oid, tid, gain)``; how many were there."""
    def weigh(self, age: int, /) -> list[tuple[int, int, int]]:
        """``(class, rows, state bytes)`` of all rows by value, the least valuable first."""
    def choose(self, age: int, below: int, share: int, /) -> bytes:
        """The rows below a class, and of that class so many of 1024: names packed as int64s."""
    def delete_exactly(self, names: bytes, start: int, rows_max: int, /) -> tuple[int, int, int]:
        """Delete revisions of choose() from the *start*-th on; as for delete_older()."""
    def scan(self, through: int, /) -> None:
        """Begin to read all rows with tids up to *through*, by oid."""
    def scan_next(
        self, rows_max: int, bytes_max: int, age: int, lowest: int, highest: int, /
    ) -> tuple[Batch, int, bool]:
        """Some rows of these classes, how many more were damaged, and whether it was all."""
    def scan_end(self) -> None: ...
    def close(self) -> None: ...

def checksum(oid: int, tid: int, state: bytes, /) -> int:
    """CRC-32 over oid and tid, 8 signed big-endian bytes each, then the state."""

def keep(object: object, /) -> None:
    """Never free it, not even when the interpreter ends."""
