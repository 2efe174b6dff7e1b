"""Every revision that was ever committed, and what a cache file must say by it.

The record is the base storage's own file: what a FileStorage has written down
is committed, and nothing else is.
"""

from __future__ import annotations

import contextlib
import sqlite3
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ZODB.FileStorage import FileIterator
from ZODB.utils import p64
from ZODB.utils import u64

REACH_SECONDS = 5


def checksum(state: bytes) -> int:
    return zlib.crc32(state)


class Record:
    """``{oid: [(tid, state), ...]}`` of a FileStorage that others go on writing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._revisions: dict[int, list[tuple[int, bytes]]] = {}
        self.newest_tid = 0

    def update(self) -> None:
        """Learn what was committed since."""
        with contextlib.closing(FileIterator(str(self._path), p64(self.newest_tid + 1))) as found:
            for transaction in found:
                self.newest_tid = u64(transaction.tid)
                for revision in transaction:
                    of_oid = self._revisions.setdefault(u64(revision.oid), [])
                    of_oid.append((self.newest_tid, revision.data))

    def reach(self, tid: int) -> bool:
        """Learn what was committed up to *tid*, which a server tells before it is written down."""
        deadline = time.monotonic() + REACH_SECONDS
        while self.newest_tid < tid and time.monotonic() < deadline:
            self.update()
        return self.newest_tid >= tid

    def at(self, oid: int, tid: int) -> tuple[int, bytes] | None:
        """The object's revision at *tid*, ``(tid, state)``."""
        known = [revision for revision in self._revisions.get(oid, []) if revision[0] <= tid]
        return known[-1] if known else None

    def has(self, oid: int, tid: int, crc: int) -> bool:
        """Whether the object has changed at *tid* to a state with that checksum."""
        found = self.at(oid, tid)
        return found is not None and (found[0], checksum(found[1])) == (tid, crc)


class Contents(NamedTuple):
    """A cache file as of one moment.  *rows*: ``{oid: (tid, state)}``."""

    checkpoint: int
    generation: int
    rows: dict[int, tuple[int, bytes]]


EMPTY = Contents(0, 0, {})


class FileJudge:
    """What is wrong with a cache file, by the record and by what it said before."""

    def __init__(self, record: Record, *, keeps_all: bool) -> None:
        """*keeps_all*: it is large enough for all, so no row goes but for a newer revision."""
        self._record = record
        self._keeps_all = keeps_all
        self._before = EMPTY

    def judge(self, path: Path, changing: set[int]) -> Iterator[str]:
        """Yields what is wrong.  Nothing but a read transaction touches the file.

        *changing*: objects that somebody was about to commit: their rows may go before that.
        """
        with contextlib.closing(sqlite3.connect(path, timeout=30)) as connection:
            connection.isolation_level = None
            connection.execute("BEGIN")
            integrity = connection.execute("PRAGMA integrity_check").fetchall()
            if integrity != [("ok",)]:
                yield f"integrity: {integrity}"
                return
            if not connection.execute("PRAGMA user_version").fetchone()[0]:
                return  # just created; its tables come with its version
            tiers = connection.execute(
                "SELECT checkpoint, generation, age, row_count, state_bytes, identity, checksum"
                " FROM tier"
            ).fetchall()
            rows = connection.execute("SELECT oid, tid, checksum, state FROM record").fetchall()
            witnesses = connection.execute("SELECT oid, tid FROM witness").fetchall()
        (tier,) = tiers
        *numbers, identity, crc = tier
        checkpoint, generation, _, row_count, state_bytes = numbers
        if zlib.crc32(identity.encode(), zlib.crc32(struct.pack(">5q", *numbers))) != crc:
            yield f"the tier {tier} does not fit its checksum"
        if (row_count, state_bytes) != (len(rows), sum(len(row[3]) for row in rows)):
            yield f"the tier's totals {row_count}, {state_bytes} are not those of its rows"
        yield from self._judge_rows(checkpoint, rows)
        for oid, tid in witnesses:
            found = self._record.at(oid, checkpoint)
            if found is None or found[0] != tid:
                yield f"witness {oid} at {tid} is not current at {checkpoint}"
        now = Contents(checkpoint, generation, {oid: (tid, state) for oid, tid, _, state in rows})
        yield from self._compare(now, changing)
        self._before = now

    def _judge_rows(
        self, checkpoint: int, rows: list[tuple[int, int, int, bytes]]
    ) -> Iterator[str]:
        if not self._record.reach(checkpoint):
            yield f"the checkpoint {checkpoint} is beyond {self._record.newest_tid}"
        for oid, tid, crc, state in rows:
            if self._record.at(oid, checkpoint) != (tid, state):
                yield f"row {oid} at {tid} is not current at {checkpoint}"
            if zlib.crc32(state, zlib.crc32(struct.pack(">qq", oid, tid))) != crc:
                yield f"row {oid} at {tid} does not fit its checksum"

    def _compare(self, now: Contents, changing: set[int]) -> Iterator[str]:
        before = self._before
        if before.generation not in (0, now.generation):
            yield f"generation {before.generation} has become {now.generation}"
        if now.checkpoint < before.checkpoint:
            yield f"the checkpoint fell from {before.checkpoint} to {now.checkpoint}"
        if self._keeps_all:
            lost = {
                oid: found[0]
                for oid, found in before.rows.items()
                if oid not in now.rows
                and oid not in changing
                and self._record.at(oid, now.checkpoint) == found
            }
            if lost:
                yield (
                    f"of {len(before.rows)} rows, current through {before.checkpoint}, {len(lost)}"
                    f" were lost when it became {now.checkpoint}: {lost}"
                )
