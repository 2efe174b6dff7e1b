"""One process of an application: a storage, moved by lines of JSON.

``worker '{"zeo": port | "file": path, "cache": directory | null}'``, then
one line ``[command, argument]`` at a time, each answered with one line.  The job
may also have ``"options"`` of the cache, and ``"read_only": true`` with a file.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from ZEO.ClientStorage import ClientStorage
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.POSException import POSKeyError
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

import zodbcache

from .calls import Calls

WAIT_SECONDS = 30


def say(answer: object) -> None:
    print(json.dumps(answer), flush=True)


def open_base(job: dict[str, Any]) -> Any:
    if "file" in job:
        return FileStorage(job["file"], read_only=job.get("read_only", False))
    return ClientStorage(
        ("127.0.0.1", job["zeo"]), wait_timeout=WAIT_SECONDS, max_disconnect_poll=1
    )


class Worker:
    """Every public method is a command."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._halt_after: int | None = None
        self._calls = Calls(self._at_call)
        self._base = self._storage = open_base(job)
        self._cached = job["cache"] is not None
        if self._cached:
            options = {"cache_local_mb": 10, "cache_write_seconds": 0, **job.get("options", {})}
            self._storage = zodbcache.wrap(self._base, cache_local_dir=job["cache"], **options)
            self._storage._caretaker.wait()

    def stats(self, _: None) -> dict[str, int]:
        stats: dict[str, int] = self._storage.cache_stats()
        return stats

    def read(self, oids: list[int]) -> dict[str, Any]:
        """Each object as a new connection would see it, and which an uncached read denies."""
        before = p64(u64(self._storage.lastTransaction()) + 1)
        words, wrong = {}, []
        for oid in oids:
            found = self._storage.loadBefore(p64(oid), before)
            words[oid] = found[0].decode()
            if found[:2] != self._base.loadBefore(p64(oid), before)[:2]:
                wrong.append(oid)
        return {"words": words, "wrong": wrong}

    def read_often(self, job: list[Any]) -> dict[str, Any]:
        """``[oids, rounds]``; the words are the last round's."""
        oids, rounds = job
        wrong: list[int] = []
        for _ in range(rounds):
            answer = self.read(oids)
            wrong += answer["wrong"]
        return {**answer, "wrong": wrong}

    def commit(self, words: dict[str, str]) -> int:
        """One transaction; return its tid."""
        transaction = TransactionMetaData()
        self._storage.tpc_begin(transaction)
        for oid, word in words.items():
            try:
                serial = self._storage.load(p64(int(oid)), "")[1]
            except POSKeyError:
                serial = z64
            self._storage.store(p64(int(oid)), serial, word.encode(), "", transaction)
        self._storage.tpc_vote(transaction)
        tid: int = u64(self._storage.tpc_finish(transaction))
        return tid

    def commit_often(self, job: list[Any]) -> None:
        """``[oids, rounds]``: one object a transaction, in turn; its word is the round."""
        oids, rounds = job
        for number in range(rounds):
            self.commit({oids[number % len(oids)]: str(number)})

    def reconnect(self, _: None) -> None:
        """Until the server is there again and the cache has asked what changed."""
        self._base._server.wait(WAIT_SECONDS)
        self._base._call("lastTransaction")
        if self._cached:
            self._storage._caretaker.wake()
            self._storage._caretaker.wait()

    def close(self, _: None) -> None:
        self._storage.close()

    def close_together(self, gate: int) -> None:
        """Close when the other end of the pipe *gate* is closed."""
        say("ready")
        os.read(gate, 1)
        self._storage.close()

    def close_half(self, writes: int) -> None:
        """Close, stop before the file is written to once more than *writes*, and never go on."""
        self._halt_after = writes
        self._storage.close()

    def _at_call(self, what: str, path: str) -> None:
        if self._halt_after is not None and what.startswith("write"):
            if self._halt_after == 0:
                say("halted")
                threading.Event().wait()
            self._halt_after -= 1


def main() -> None:
    worker = Worker(json.loads(sys.argv[1]))
    say("open")
    for line in sys.stdin:
        command, argument = json.loads(line)
        say(getattr(worker, command)(argument))


if __name__ == "__main__":
    main()
