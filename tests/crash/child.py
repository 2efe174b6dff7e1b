"""The process: opens the storage, uses it, closes it, and is killed somewhere on the way.

Tells through a pipe what it is at, a JSON object a line.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import signal
import traceback
from random import Random
from typing import Any

from ZODB.Connection import TransactionMetaData
from ZODB.POSException import ConflictError
from ZODB.utils import p64
from ZODB.utils import u64

from tests.processes.worker import Worker

from .life import OIDS
from .life import SAMPLE
from .life import End
from .life import Life
from .record import checksum

LONGEST_SECONDS = 60
"""A process that takes longer hangs."""


def live(job: dict[str, Any], life: Life, pipe: int) -> int:
    """Be that process.  Returns the exit status; often it does not return."""
    faulthandler.dump_traceback_later(LONGEST_SECONDS, exit=True)
    report = Report(pipe)
    logging.getLogger("zodbcache").addHandler(report)
    try:
        report.phase("opening")
        child = Child(job, life, report)
        child.use()
        report.phase("closing")
        child.close(None)
        report.phase("closed")
    except BaseException:
        report.tell("broken", what=traceback.format_exc())
        return 1
    return 0


class Report(logging.Handler):
    """What the parent is told; warnings, too, for there is nothing to be warned of."""

    def __init__(self, pipe: int) -> None:
        super().__init__(logging.WARNING)
        self._pipe = pipe

    def tell(self, event: str, **values: Any) -> None:
        os.write(self._pipe, json.dumps({"event": event, **values}).encode() + b"\n")

    def phase(self, name: str) -> None:
        """What is done from now on."""
        self.tell("phase", name=name)

    def emit(self, record: logging.LogRecord) -> None:
        self.tell("broken", what=f"{record.levelname}: {self.format(record)}")


class Child(Worker):
    """A storage, used at random."""

    def __init__(self, job: dict[str, Any], life: Life, report: Report) -> None:
        self._life = life
        self._report = report
        self._random = Random(f"child {life.seed}")
        self._commits = 0
        self._calls_left = life.call if life.end is End.AT_A_CALL else -1
        super().__init__({**job, "options": life.options})

    def _at_call(self, what: str, path: str) -> None:
        """kill -9 at one of the calls."""
        if self._calls_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._calls_left -= 1

    def use(self) -> None:
        self._read(SAMPLE)
        for _ in range(self._life.steps):
            kinds = {self._read_some: 5, self._change_some: 3, self._save: 2, self._clear: 1}
            (step,) = self._random.choices(list(kinds), list(kinds.values()))
            step()
            self._report.tell("stats", stats=self.stats(None))

    def _read_some(self) -> None:
        self._read(40)

    def _read(self, count: int) -> None:
        self._report.phase("reading")
        wrong = self.read(self._random.sample(OIDS, count))["wrong"]
        if wrong:
            self._report.tell("broken", what=f"reads of {wrong} are not the base's")

    def _change_some(self) -> None:
        self._report.phase("committing")
        self._commits += 1
        size = self._random.choice((1, 2, 5, 20))
        oids = sorted(self._random.sample(OIDS, size))
        words = {oid: word(oid, f"{self._life.seed}.{self._commits}", self._random) for oid in oids}
        self._report.tell("committing", oids=oids)
        tid = self._commit(words)
        if tid:
            changed = {oid: checksum(state.encode()) for oid, state in words.items()}
            self._report.tell("committed", tid=tid, changed=list(changed.items()))

    def _commit(self, words: dict[int, str]) -> int:
        """The tid; 0 if somebody else was faster."""
        transaction = TransactionMetaData()
        try:
            self._storage.tpc_begin(transaction)
            for oid, state in words.items():
                serial = self._storage.load(p64(oid))[1]
                self._storage.store(p64(oid), serial, state.encode(), "", transaction)
            self._storage.tpc_vote(transaction)
        except ConflictError:
            self._storage.tpc_abort(transaction)
            return 0
        return int(u64(self._storage.tpc_finish(transaction)))

    def _save(self) -> None:
        self._report.phase("saving")
        self._storage._cache.persistence.save()

    def _clear(self) -> None:
        """Save, and read what comes from the file only."""
        self._report.phase("clearing")
        self._storage._cache.clear()


def word(oid: int, writer: str, random: Random) -> str:
    """A new state of the object, like no other."""
    size = int(random.expovariate(1 / 3000))
    return f"{oid} by {writer} {'x' * size}"
