"""What the benchmarks share: the data, and every cache behind the same few methods.

A :class:`Backend` holds states by oid.  Its methods loop over keys that were
made before in the form the cache itself takes, so that nothing but the loop
and the cache's own call is timed, and the loop is the same for all.  Keys are
never the objects that were stored, as the oid of a load is not the one of
the store, and lie in memory in the order in which they are looked up.  Those
of a dict, lru-dict, cachebox, cachetools and this cache are ZODB's 8 bytes;
those of RelStorage are ints, as it has them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import ClassVar

from persistent import Persistent
from ZODB.MappingStorage import MappingStorage
from ZODB.utils import p64
from ZODB.utils import u64

import zodbcache
from zodbcache.store import MemoryStore
from zodbcache.tempstore import TempStore

STATE_BYTES = 300
"""A usual size of an object's state, and the one that is timed."""

TID = 0x0400_0000_0000_0000
"""The tid of every revision, unless a benchmark gives it another."""

CHECKPOINT = TID + 0xFF_FFFF
BEFORE = p64(CHECKPOINT + 1)
"""Reading just before this sees every revision."""

MEGABYTE = 1_000_000
_FILLER = random.Random(243).randbytes(32 << 10)


class Item(Persistent):  # type: ignore[misc]
    """An object of bench_zodb: all of it is its *state*, bytes."""

    def __init__(self, state: bytes) -> None:
        self.state = state


def shuffled(count: int, *, first: int = 1) -> list[int]:
    """*count* oids from *first* on, each once, in random order, the same every time."""
    return random.Random(0).sample(range(first, first + count), count)


def state_of(oid: int, size_bytes: int = STATE_BYTES) -> bytes:
    """The oid's state: 8 bytes or more, no two alike, not compressible."""
    return oid.to_bytes(8, "big") + _FILLER[: size_bytes - 8]


class Backend:
    """One cache, with room for *entries* states of *state_bytes* each, none of them in it yet.

    Subclasses say how it is made, what its keys look like, and which of its
    methods is called.
    """

    name: ClassVar[str]
    is_bounded: ClassVar[bool] = True
    is_thread_safe: ClassVar[bool] = True

    def __init__(self, entries: int, state_bytes: int = STATE_BYTES) -> None:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def keys(self, oids: Iterable[int]) -> list[Any]:
        """What look_up() takes: made anew, in this order."""
        return [p64(oid) for oid in oids]

    def items(self, oids: Iterable[int], state_bytes: int = STATE_BYTES) -> list[Any]:
        """What set_all() takes."""
        return [(p64(oid), state_of(oid, state_bytes)) for oid in oids]

    def look_up(self, keys: Sequence[Any]) -> None:
        """Ask for each key once.  This is what is timed."""
        raise NotImplementedError

    def state(self, key: Any) -> bytes | None:
        """The state under *key*, or None."""
        raise NotImplementedError

    def set_all(self, items: Iterable[Any]) -> None:
        """Set each item.  This is what is timed."""
        raise NotImplementedError

    def hits(self) -> int | None:
        """What the cache itself has counted; None if it does not count."""
        return None

    def fill(self, oids: Iterable[int], state_bytes: int = STATE_BYTES) -> None:
        """Set the oids' states, made one by one, so that they take no memory beside the cache."""
        for oid in oids:
            self.set_all(self.items((oid,), state_bytes))

    def found(self, oids: Sequence[int], state_bytes: int = STATE_BYTES) -> int:
        """How many of the oids have their right state here."""
        return sum(
            self.state(key) == state_of(oid, state_bytes)
            for oid, key in zip(oids, self.keys(oids), strict=True)
        )


class _Mapping(Backend):
    """A cache that has dict's methods, and keeps the bytes object it is given."""

    def __init__(self, entries: int, state_bytes: int = STATE_BYTES) -> None:
        self._map = self._make(entries)

    def _make(self, entries: int) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._map)

    def look_up(self, keys: Sequence[Any]) -> None:
        get = self._map.get
        for key in keys:
            get(key)

    def state(self, key: Any) -> bytes | None:
        state: bytes | None = self._map.get(key)
        return state

    def set_all(self, items: Iterable[Any]) -> None:
        cache = self._map
        for key, state in items:
            cache[key] = state


class Dict(_Mapping):
    """No cache at all: bounds nothing, orders nothing, copies nothing."""

    name = "dict"
    is_bounded = False

    def _make(self, entries: int) -> Any:
        return {}


class CacheTools(_Mapping):
    name = "cachetools"
    is_thread_safe = False

    def _make(self, entries: int) -> Any:
        import cachetools

        return cachetools.LRUCache(entries)


class LRUDict(_Mapping):
    name = "lru-dict"

    def _make(self, entries: int) -> Any:
        import lru

        return lru.LRU(entries)

    def hits(self) -> int | None:
        hits: int = self._map.get_stats()[0]
        return hits


class CacheBox(_Mapping):
    name = "cachebox"

    def _make(self, entries: int) -> Any:
        import cachebox

        return cachebox.LRUCache(entries)


class BoundedBackend(Backend):
    """A cache whose limit is in bytes.

    *beside_state_bytes*: what an entry takes of the limit beyond its state, at most.
    """

    beside_state_bytes: ClassVar[int]
    limit_min_bytes: ClassVar[int] = 1 << 18

    def __init__(self, entries: int, state_bytes: int = STATE_BYTES) -> None:
        limit_bytes = entries * (state_bytes + self.beside_state_bytes)
        self._open(max(limit_bytes, self.limit_min_bytes))

    def _open(self, limit_bytes: int) -> None:
        raise NotImplementedError

    @classmethod
    def bounded(cls, limit_bytes: int) -> BoundedBackend:
        """An empty one with this limit."""
        self = cls.__new__(cls)
        self._open(limit_bytes)
        return self


class RelStorageClient(BoundedBackend):
    """The in-memory client of RelStorage, by (oid, tid), as its StorageCache calls it."""

    name = "RelStorage client"
    beside_state_bytes = 90  # it counts 88

    def _open(self, limit_bytes: int) -> None:
        from relstorage.cache.local_client import LocalClient

        self._client = LocalClient(self._options(limit_bytes))

    def _options(self, limit_bytes: int) -> Any:
        from relstorage.options import Options

        return Options(cache_local_mb=limit_bytes / MEGABYTE, cache_local_object_max=1 << 20)

    def __len__(self) -> int:
        return len(self._client)

    def keys(self, oids: Iterable[int]) -> list[Any]:
        return [(oid, TID) for oid in oids]

    def items(self, oids: Iterable[int], state_bytes: int = STATE_BYTES) -> list[Any]:
        return [((oid, TID), (state_of(oid, state_bytes), TID)) for oid in oids]

    def look_up(self, keys: Sequence[Any]) -> None:
        get = self._client.get
        for key in keys:
            get(key)

    def state(self, key: Any) -> bytes | None:
        found = self._client.get(key)
        return None if found is None else found[0]

    def set_all(self, items: Iterable[Any]) -> None:
        cache = self._client
        for key, revision in items:
            cache[key] = revision

    def hits(self) -> int | None:
        hits: int = self._client.stats()["hits"]
        return hits


class RelStorageLoad(RelStorageClient):
    """RelStorage's StorageCache.load(): its index of tids before its client."""

    name = "RelStorage load"

    def _open(self, limit_bytes: int) -> None:
        from relstorage.cache.storage_cache import StorageCache
        from relstorage.tests import MockAdapter

        adapter = MockAdapter()
        adapter.poller.poll_tid = CHECKPOINT
        # The first must live as long as the instance does.
        self._first = StorageCache(adapter, self._options(limit_bytes), "benchmark")
        self._instance = self._first.new_instance()
        self._instance.poll(None, None, 0)
        self._client = self._instance.local_client

    def keys(self, oids: Iterable[int]) -> list[Any]:
        return list(oids)

    def look_up(self, keys: Sequence[Any]) -> None:
        load = self._instance.load
        for key in keys:
            load(None, key)

    def state(self, key: Any) -> bytes | None:
        state: bytes | None = self._instance.load(None, key)[0]
        return state

    def set_all(self, items: Iterable[Any]) -> None:
        cache, index = self._client, self._instance.object_index
        for key, revision in items:
            cache[key] = revision
            index[key[0]] = TID


class Store(BoundedBackend):
    """The cache's memory tier by itself, called in C."""

    name = "zodbcache store"
    beside_state_bytes = 64

    def _open(self, limit_bytes: int) -> None:
        self.store = open_store(limit_bytes)

    def __len__(self) -> int:
        return self.store.stats()["entries"]

    def items(self, oids: Iterable[int], state_bytes: int = STATE_BYTES) -> list[Any]:
        return [(oid, state_of(oid, state_bytes)) for oid in oids]

    def look_up(self, keys: Sequence[Any]) -> None:
        load_before, before = self.store.load_before, BEFORE
        for key in keys:
            load_before(key, before)

    def state(self, key: Any) -> bytes | None:
        found = self.store.load_before(key, BEFORE)
        return None if found is None else found[0]

    def set_all(self, items: Iterable[Any]) -> None:
        insert = self.store.insert
        for oid, state in items:
            insert(oid, TID, 0, state)

    def hits(self) -> int | None:
        return self.store.stats()["hits"]


class Wrapper(BoundedBackend):
    """The storage that ZODB sees: ``loadBefore`` of zodbcache.wrap(), over states of 300 bytes."""

    name = "zodbcache loadBefore"
    beside_state_bytes = 64
    limit_min_bytes = MEGABYTE

    def _open(self, limit_bytes: int) -> None:
        self.storage = zodbcache.wrap(MadeStorage(), cache_local_mb=limit_bytes / MEGABYTE)

    def __len__(self) -> int:
        return self.storage.cache_stats()["entries"]

    def items(self, oids: Iterable[int], state_bytes: int = STATE_BYTES) -> list[Any]:
        return self.keys(oids)

    def look_up(self, keys: Sequence[Any]) -> None:
        load_before, before = self.storage.loadBefore, BEFORE
        for key in keys:
            load_before(key, before)

    def state(self, key: Any) -> bytes | None:
        found = self.storage.loadBefore(key, BEFORE)
        return None if found is None else found[0]

    def set_all(self, items: Iterable[Any]) -> None:
        """A read that misses is what fills this cache."""
        self.look_up(list(items))

    def hits(self) -> int | None:
        return self.storage.cache_stats()["hits"]


class MadeStorage(MappingStorage):  # type: ignore[misc]
    """A base storage that has every object and takes no memory for it."""

    def lastTransaction(self) -> bytes:
        return CHECKPOINT.to_bytes(8, "big")

    def loadBefore(self, oid: bytes, tid: bytes) -> tuple[bytes, bytes, None]:
        return state_of(u64(oid)), p64(TID), None


STORES: dict[str, Callable[[int, int], Any]] = {"memory": MemoryStore, "sqlite": TempStore}
"""The cache of a process by the option ``cache-backend``."""


def open_store(limit_bytes: int, backend: str = "memory") -> Any:
    """An empty one whose checkpoint is CHECKPOINT: a store of this backend."""
    store = STORES[backend](limit_bytes, limit_bytes // 8)
    store.restart(CHECKPOINT)
    return store


BACKENDS: dict[str, type[Backend]] = {
    backend.name: backend
    for backend in (
        Dict,
        Store,
        Wrapper,
        RelStorageClient,
        RelStorageLoad,
        LRUDict,
        CacheBox,
        CacheTools,
    )
}
"""Every cache that is measured, by its name in the tables.

Those that goals compare come first, and so close to each other in time.
"""
