"""Commits and reads through a plain storage, with no ZODB above it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ZODB.Connection import TransactionMetaData
from ZODB.POSException import POSKeyError
from ZODB.utils import maxtid
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

import zodbcache


def oid_of(number: int) -> bytes:
    return p64(number)


def after(tid: bytes) -> bytes:
    """What a reader at *tid* asks loadBefore for."""
    return p64(u64(tid) + 1)


def now(storage: Any) -> bytes:
    return after(storage.lastTransaction())


def current_tid(storage: Any, oid: bytes) -> bytes:
    try:
        found = storage.loadBefore(oid, maxtid)
    except POSKeyError:
        return z64
    return found[1] if found else z64


def commit(
    storage: Any,
    states: dict[bytes, bytes],
    *,
    callback: Callable[[bytes], Any] = lambda tid: None,
    serials: dict[bytes, bytes] | None = None,
    tid: bytes | None = None,
) -> bytes:
    """Store *states* in one transaction; return its tid."""
    transaction = TransactionMetaData()
    storage.tpc_begin(transaction, *([] if tid is None else [tid]))
    for oid, state in states.items():
        serial = (serials or {}).get(oid) or current_tid(storage, oid)
        storage.store(oid, serial, state, "", transaction)
    storage.tpc_vote(transaction)
    finished: list[bytes] = []

    def call_back(tid: bytes) -> None:
        finished.append(tid)
        callback(tid)

    storage.tpc_finish(transaction, call_back)
    return finished[0]


def fill(storage: Any, count: int, *, size: int = 100, start: int = 1) -> list[bytes]:
    """Commit *count* objects in a few transactions; return their oids."""
    oids = [oid_of(number) for number in range(start, start + count)]
    for first in range(0, count, 500):
        commit(storage, {oid: b"%d" % u64(oid) * size for oid in oids[first : first + 500]})
    return oids


def read(storage: Any, oids: Iterable[bytes]) -> dict[bytes, Any]:
    """What a reader of now sees."""
    before = now(storage)
    return {oid: storage.loadBefore(oid, before) for oid in oids}


def answer(storage: Any, oid: bytes, before: bytes) -> Any:
    """loadBefore's answer, or the name of what it raises."""
    try:
        return storage.loadBefore(oid, before)
    except POSKeyError as error:
        return type(error).__name__


def base_of(storage: Any) -> Any:
    """The storage below: what the cache is compared with."""
    return vars(storage)["_base"]


def hits_and_misses(storage: Any, oids: Iterable[bytes]) -> tuple[int, int]:
    """Read *oids* as of now; how many came from memory, and how many did not."""
    before = storage.cache_stats()
    read(storage, oids)
    stats = storage.cache_stats()
    return stats["hits"] - before["hits"], stats["misses"] - before["misses"]


def run_python(*arguments: str, check: bool = True) -> subprocess.Popen[str]:
    """Start another interpreter that finds this very zodbcache."""
    found = str(Path(zodbcache.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([found, *sys.path])}
    return subprocess.Popen(
        [sys.executable, *arguments], env=environment, stdout=subprocess.PIPE, text=True
    )
