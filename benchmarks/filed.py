"""What the benchmarks of the cache file share: a database that takes no room, and its caches.

Nothing is stored anywhere before a benchmark begins, so that files of a
gigabyte can be measured.  The database has every object: its state is
:func:`workloads.state_of`.  A process that opens it again knows it again, as
it does a FileStorage.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from typing import NamedTuple

import apsw
from workloads import BEFORE
from workloads import CHECKPOINT
from workloads import MEGABYTE
from workloads import STATE_BYTES
from workloads import TID
from workloads import state_of
from ZODB.BaseStorage import BaseStorage
from ZODB.Connection import TransactionMetaData
from ZODB.interfaces import IStorageIteration
from ZODB.utils import p64
from ZODB.utils import u64
from zope.interface import implementer

import zodbcache

BESIDE_STATE_BYTES = 100
"""More than any of the caches counts for an object beside its state."""

ROOM_MB = 2
"""What a memory that holds all objects has beside them."""


class Transaction(list[Any]):
    """One without objects."""

    tid = p64(CHECKPOINT)


@implementer(IStorageIteration)
class KnownStorage(BaseStorage):  # type: ignore[misc]
    """A base storage that has every object, takes no memory for it, and is known again.

    Of what is committed it keeps the last tid and nothing else.
    """

    def __init__(self) -> None:
        super().__init__("benchmark")
        self._ltid = Transaction.tid

    def loadBefore(self, oid: bytes, tid: bytes) -> tuple[bytes, bytes, None]:
        return state_of(u64(oid)), p64(TID), None

    def store(self, *args: Any) -> None:
        pass

    def _clear_temp(self) -> None:
        pass

    def _finish(self, tid: bytes, *description: Any) -> None:
        self._ltid = tid

    def close(self) -> None:
        pass

    def iterator(
        self, start: bytes | None = None, stop: bytes | None = None
    ) -> Iterator[Transaction]:
        """Its last transaction, by which a file is recognised."""
        if (start or b"") <= Transaction.tid <= (stop or Transaction.tid):
            yield Transaction()


def states_in(size_mb: float) -> int:
    """How many states add up to so much."""
    return int(size_mb * MEGABYTE) // STATE_BYTES


def memory_mb(count: int) -> float:
    """A memory that holds so many objects."""
    return ROOM_MB + count * (STATE_BYTES + BESIDE_STATE_BYTES) / MEGABYTE


def new_cache(directory: Path | None, cache_mb: float, *, base: Any = None, **options: Any) -> Any:
    """This cache over *base* or a KnownStorage, its file in *directory*."""
    return zodbcache.wrap(
        base or KnownStorage(), cache_local_mb=cache_mb, cache_local_dir=directory, **options
    )


@contextlib.contextmanager
def open_cache(directory: Path | None, cache_mb: float, **options: Any) -> Iterator[Any]:
    """A new_cache(), closed at the end."""
    storage = new_cache(directory, cache_mb, **options)
    try:
        yield storage
    finally:
        storage.close()


def load_all(storage: Any, oids: Iterable[int]) -> None:
    """Read each object, as it was before any later change."""
    load_before, before = storage.loadBefore, BEFORE
    for oid in oids:
        load_before(p64(oid), before)


CHANGED_AT_ONCE = 500
"""Objects in a commit."""


def change_all(storage: Any, oids: Sequence[int]) -> None:
    """Commit a newer revision of each object, through the cache."""
    for start in range(0, len(oids), CHANGED_AT_ONCE):
        change = TransactionMetaData()
        storage.tpc_begin(change, p64(u64(storage.lastTransaction()) + 1))
        for oid in oids[start : start + CHANGED_AT_ONCE]:
            storage.store(p64(oid), p64(TID), state_of(oid), "", change)
        storage.tpc_vote(change)
        storage.tpc_finish(change)


class Reads(NamedTuple):
    """Loads that a cache answered from memory, and from its file; and others."""

    memory: int
    file: int
    misses: int

    @property
    def hits(self) -> int:
        return self.memory + self.file

    @property
    def ratio(self) -> float:
        """The share of hits."""
        return self.hits / (self.hits + self.misses)

    def since(self, before: Reads) -> Reads:
        return Reads(*(now - then for now, then in zip(self, before, strict=True)))


def reads_of(storage: Any) -> Reads:
    """Those counted since it was opened.

    The statistics call a hit in memory the file's, too, if the object came from there.
    """
    stats, from_file = storage.cache_stats(), storage._cache.persistence.file_reads
    return Reads(memory=stats["hits"] - from_file, file=from_file, misses=stats["misses"])


def in_memory(storage: Any, oids: Iterable[int]) -> int:
    """How many of the oids the memory has.  Brings none of them there."""
    holds = storage._cache.store.holds
    return sum(holds(p64(oid), CHECKPOINT) for oid in oids)


def rows_in(directory: Path, *, after: int = 0) -> int:
    """How many rows with states of the right size the directory's cache file has.

    *after*: only with later tids.
    """
    (path,) = directory.glob("*.sqlite3")
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        sql = "SELECT count(*) FROM record WHERE octet_length(state) = ? AND tid > ?"
        count: int = connection.execute(sql, (STATE_BYTES, after)).get
        return count
    finally:
        connection.close()


# The peers.


def own_client(directory: Path | None, cache_mb: float) -> Any:
    """RelStorage's in-memory cache, its file in *directory*, with nothing in it."""
    from relstorage.cache.local_client import LocalClient
    from relstorage.options import Options

    cache_directory = str(directory) if directory else None
    options = Options(cache_local_mb=cache_mb, cache_local_dir=cache_directory)
    return LocalClient(options, "benchmark")


def set_all(client: Any, oids: Iterable[int], tid: int = TID) -> None:
    for oid in oids:
        client[(oid, tid)] = (state_of(oid), tid)


def save_client(client: Any) -> None:
    """As RelStorage does when it closes."""
    assert client.save(checkpoints=(CHECKPOINT, TID)) == 1


def own_rows_in(directory: Path, *, after: int = 0) -> int:
    """As rows_in(), of RelStorage's file."""
    import sqlite3

    (path,) = directory.glob("*.sqlite3")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        sql = "SELECT count(*) FROM object_state WHERE length(state) = ? AND tid > ?"
        count: int = connection.execute(sql, (STATE_BYTES, after)).fetchone()[0]
        return count


def flat_rows(oids: Iterable[int]) -> bytes:
    """What there is to write about them, and nothing else."""
    tid = p64(TID)
    return b"".join(p64(oid) + tid + state_of(oid) for oid in oids)


def write_flat(path: Path, rows: bytes) -> None:
    """As one file that is on the disk at the end."""
    with path.open("wb") as file:
        file.write(rows)
        file.flush()
        os.fsync(file.fileno())


def seconds_of(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
