"""Reading the graph: the same objects in the same order for the same seed.

From each module, its classes and functions, and what these refer to.  Every
object is loaded once by a connection, whatever path leads to it.
"""

from __future__ import annotations

import gc
import hashlib
import random
import time
from collections.abc import Callable
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from zodbcache.demo.model import ROOT_KEY
from zodbcache.demo.model import Entry

CHUNK_OBJECTS = 500

Value = tuple[int, str, str]


@dataclass(frozen=True)
class Walked:
    """*chunks_ms_per_500*: for each chunk.

    *versions*: by oid, ``(serial, value)`` of every object read; the value
    is None for the BTrees' own.
    """

    objects: int
    chunks_ms_per_500: tuple[float, ...]
    read_s: float
    versions: dict[bytes, tuple[bytes, Value | None]]

    @property
    def checksum(self) -> str:
        digest = hashlib.sha256()
        for oid, (serial, value) in sorted(self.versions.items()):
            digest.update(oid + serial + repr(value).encode())
        return digest.hexdigest()


def walk(
    connection: Any,
    *,
    objects: int,
    seed: int,
    on_chunk: Callable[[int], object] = lambda read: None,
) -> Walked:
    """Read about *objects* objects through *connection*, or all that it reaches.

    What *on_chunk* does is not timed.
    """
    gc.collect()
    counted, _ = connection.getTransferCounts()
    chunks: list[float] = []
    read_s = 0.0
    done = 0

    def end_chunk(read: int) -> None:
        nonlocal read_s, done
        elapsed_s = time.perf_counter() - begun
        read_s += elapsed_s
        chunks.append(elapsed_s * 1000 * CHUNK_OBJECTS / (read - done))
        on_chunk(read - done)
        done = read

    begun = time.perf_counter()
    for _ in _visits(connection, seed):
        read = connection.getTransferCounts()[0] - counted
        if read - done >= CHUNK_OBJECTS:
            end_chunk(read)
            if read >= objects:
                break
            begun = time.perf_counter()
    if (read := connection.getTransferCounts()[0] - counted) > done:
        end_chunk(read)
    return Walked(done, tuple(chunks), read_s, _versions(connection))


def _visits(connection: Any, seed: int) -> Iterator[None]:
    """Activate everything the graph refers to, once or more; yield after each."""
    graph = connection.root()[ROOT_KEY]
    names = list(graph.modules)
    random.Random(seed).shuffle(names)
    for name in names:
        module = graph.modules[name]
        for entry in (module, *module.imports, *module.classes.values()):
            entry._p_activate()
            yield
        for function in module.functions.values():
            function._p_activate()
            yield
            for called in function.calls:
                called._p_activate()
                yield


def _versions(connection: Any) -> dict[bytes, tuple[bytes, Value | None]]:
    return {
        oid: (entry._p_serial, entry.value() if isinstance(entry, Entry) else None)
        for oid, entry in connection._cache.lru_items()
    }
