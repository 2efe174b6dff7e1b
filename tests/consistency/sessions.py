"""A connection as ZODB's Connection makes it: polls, reads, commits; and writes it all down."""

from __future__ import annotations

import base64
import os
import signal
import traceback
from collections.abc import Callable
from collections.abc import Iterable
from itertools import islice
from typing import Any

from ZODB.Connection import TransactionMetaData
from ZODB.POSException import POSError
from ZODB.POSException import POSKeyError
from ZODB.utils import p64
from ZODB.utils import u64

from .journal import Journal
from .journal import Read
from .journal import now
from .objects import Layout
from .objects import checksum
from .plan import Choices


class Writer:
    """What the sessions of one thread have for themselves.

    *pulse*: the object that they change whenever they commit.  *once*: objects
    not yet stored.
    """

    def __init__(self, pulse: int, once: Iterable[int]) -> None:
        self.pulse = pulse
        self._once = iter(once)

    def next_once(self) -> list[int]:
        """One of them, or none if all were stored."""
        return list(islice(self._once, 1))


class Session:
    """One instance of the storage.

    *number*: tells the instance in the journal.  *at_point*: called with the
    name of each point where the process may be killed.  *reads_on*: whether to
    read between a commit and the next poll.
    """

    def __init__(
        self,
        instance: Any,
        number: str,
        journal: Journal,
        choices: Choices,
        layout: Layout,
        writer: Writer,
        at_point: Callable[[str], None],
        *,
        reads_on: bool,
    ) -> None:
        self.instance = instance
        self.is_viewing = False
        self._number = number
        self._journal = journal
        self._choices = choices
        self._layout = layout
        self._writer = writer
        self._at_point = at_point
        self._reads_on = reads_on
        self._view = 0
        self._commits = 0
        self._reads: list[Read] = []
        self._may_move = False
        self._floor = 0
        self._seen: dict[int, int] = {}
        self._last: int | None = None
        self._may_be_undone = False
        self._transaction: Any = None

    # A view

    def begin(self) -> None:
        """Sync and poll, as at the beginning of each transaction."""
        began = now()
        self.instance.sync(True)
        changed = self.instance.poll_invalidations()
        polled = now()
        self._view += 1
        self._seen.clear()
        self.is_viewing = True
        self._write(
            "view",
            began=began,
            polled=polled,
            changed=None if changed is None else [u64(oid) for oid in changed],
        )

    def read(self, oids: Iterable[int]) -> int:
        """Read *oids*; return how many there were."""
        count = 0
        for oid in oids:
            try:
                state, tid = self.instance.load(p64(oid))
            except POSKeyError:
                read = Read(oid, 0, 0)
            else:
                read = Read(oid, u64(tid), checksum(state))
            self._reads.append(read)
            self._seen[oid] = read.tid
            count += 1
        return count

    def prefetch(self, oids: Iterable[int]) -> None:
        prefetch = getattr(self.instance, "prefetch", None)
        if prefetch is not None:
            prefetch([p64(oid) for oid in oids])

    def drop_connection(self) -> None:
        """The load connection is gone, and the base storage will make another without a word."""
        base = self.instance
        while hasattr(base, "_base"):
            base = base._base
        connection = getattr(base, "_load_connection", None)
        if connection is not None:
            self._note_reads()
            connection.drop()
            self._may_move = True

    def end(self) -> None:
        """The transaction is over, without a commit or after it."""
        self._note_reads()
        self.is_viewing = False
        complete = getattr(self.instance, "afterCompletion", None)
        if complete is not None:
            complete()

    # A commit

    def commit(self, kind: str) -> None:
        """Change some of the objects seen in this view, or undo what was committed before.

        *kind*: one of Choices.commit_kind().
        """
        if kind == "undo" and self._last is None:
            kind = "finish"
        self._commits += 1
        self._transaction = transaction = TransactionMetaData()
        before = now()
        states = self._undo if kind == "undo" else self._store
        self._trying(before, kind, states(transaction, kind))
        self._at_point("stored")
        if kind == "abort stored":
            return self._abort()
        self.instance.tpc_vote(transaction)
        self._at_point("voted")
        if kind == "abort voted":
            return self._abort()
        tid = u64(self.instance.tpc_finish(transaction))
        self._transaction = None
        self._at_point("finished")
        self._write("committed", number=self._commits, tid=tid, after=now())
        self._last = tid if self._may_be_undone else None
        if self._reads_on and self._choices.happens(0.1):
            self._read_on(tid)
        return self.end()

    def _store(self, transaction: Any, kind: str) -> dict[int, int]:
        count = self._choices.commit_size()
        oids = {self._writer.pulse, *self._choices.oids(self._layout.changing, count)}
        if kind == "create":
            oids.update(self._writer.next_once())
        self.read(oid for oid in sorted(oids) if oid not in self._seen)
        # Nobody may store again what is gone because its creation was undone.
        created = {oid for oid in oids if self._seen[oid] == 0}
        self._may_be_undone = created.isdisjoint(self._layout.changing)
        self.instance.tpc_begin(transaction)
        states = {}
        for oid in sorted(oids):
            writer = f"{self._number}.{self._commits}"
            state = self._layout.state(oid, writer, self._choices.random)
            self.instance.store(p64(oid), p64(self._seen[oid]), state, "", transaction)
            states[oid] = checksum(state)
        if self._choices.happens(0.2):
            self.read(self._choices.oids(self._layout.changing, 5))
        return states

    def _undo(self, transaction: Any, kind: str) -> dict[int, int]:
        """The transaction committed last, unless somebody has changed its objects since."""
        assert self._last is not None
        self._may_be_undone = False
        self.instance.tpc_begin(transaction)
        self.instance.undo(base64.encodebytes(p64(self._last))[:-1], transaction)
        return {}

    def _trying(self, before: int, kind: str, states: dict[int, int]) -> None:
        self._note_reads()
        self._write(
            "trying", number=self._commits, kind=kind, before=before, states=list(states.items())
        )

    def _read_on(self, tid: int) -> None:
        """Before the next poll: whatever is seen now, the own commit is in it."""
        self._may_move = True
        self._floor = tid
        self.read(self._choices.oids(self._layout.changing, 10))

    def _abort(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            self.instance.tpc_abort(transaction)
        self.end()

    # Errors

    def fail(self, error: Exception) -> None:
        """An error that an application has to expect: abort, and go on."""
        self._write("failed", error=f"{type(error).__name__}: {error}"[:200])
        self._abort()

    def close(self) -> None:
        """Give up the instance."""
        self._note_reads()
        self.is_viewing = False
        self.instance.release()

    # The journal

    def _note_reads(self) -> None:
        if self._reads:
            self._write("reads", may_move=self._may_move, floor=self._floor, reads=self._reads)
            self._reads = []
            self._may_move = False
            self._floor = 0

    def _write(self, event: str, **values: Any) -> None:
        self._journal.write(event, instance=self._number, view=self._view, **values)


def kill_process() -> None:
    """No handler, no buffer, no lock sees it coming."""
    os.kill(os.getpid(), signal.SIGKILL)


def broken(journal: Journal, where: str) -> None:
    """An error that no application should see."""
    journal.write("broken", where=where, error=traceback.format_exc())


EXPECTED = (POSError,)
"""ZODB's errors: conflicts, undo that is refused, a transaction whose connection was lost."""
