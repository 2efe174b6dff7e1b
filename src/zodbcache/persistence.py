"""What survives the process: the file's rows come back, and go out again.

The only place where the file meets the log, the memory tier and the base
storage: ``attachment.py`` has the file, ``saving.py`` writes it, and here it is
confirmed and read.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from time import monotonic

from zodbcache.cachefile import CacheFile
from zodbcache.cachefile import RowReader
from zodbcache.cachefile import Snapshot
from zodbcache.config import CacheOptions
from zodbcache.errors import CacheFileError
from zodbcache.feeds import CannotCatchUp
from zodbcache.feeds import CatchUp
from zodbcache.feeds import Changes
from zodbcache.ids import to_bytes
from zodbcache.ids import to_int
from zodbcache.invalidations import InvalidationLog
from zodbcache.saving import Gap
from zodbcache.saving import OtherHistory
from zodbcache.saving import Saving
from zodbcache.store import Store

logger = logging.getLogger(__name__)

QUIET_SECONDS = 0.01
"""How long nobody must have read a row for rows to be brought back that nobody asked for."""

PATIENCE_SECONDS = 0.05
"""How long the first reads wait, all together, for the file to be confirmed."""

MORE_WITNESSES = 1000
"""Of so many rows one must be as it was, or the file is thought to be another database's."""

FEW_ROWS = 5000
"""So many rows are brought back before the first read, which waits for them."""

READ_AHEAD_OIDS = 64
"""Whoever reads objects in about the order of their oids gets so many rows at once."""


class Persistence(Saving):
    """The file of one database, as one process uses it.

    *restored* counts the rows that were brought back, *file_reads* what find()
    has found.
    """

    def __init__(
        self, options: CacheOptions, catch_up: CatchUp, log: InvalidationLog, store: Store
    ) -> None:
        super().__init__(options, catch_up, log, store)
        self.restored = 0
        self.file_reads = 0
        self._last_missed = -READ_AHEAD_OIDS
        self._found_at = 0.0  # when find() read last
        self._patience = 0.0  # until when reads wait; from the first one on

    @property
    def wants_restore(self) -> bool:
        """There is a file, or may be one again, and it is not confirmed."""
        return (self._file is not None or self.is_due) and self._live is None

    def restore(self, *, quickly: bool) -> bool:
        """Confirm the file, and bring its rows back, if they are few.

        *quickly*: only if the base storage can tell at once what changed.
        Returns False if it is still to be asked what changed.  Raises what the
        base storage raises.
        """
        with self._using:
            if self._failed is not None:
                error, self._failed = self._failed, None
                self._give_up(error)
            if self._file is None and self.is_due and not self._closing:
                self._file = self._open()
            file = self._file
            if file is None or self.is_settled:
                return True
            self.is_outdated = False
            ask = self._catch_up.quick_changes if quickly else self._catch_up.changes
            try:
                return self._restore(file, ask)
            except CacheFileError as error:
                self._give_up(error)
                return True

    def _restore(
        self,
        file: CacheFile,
        ask: Callable[[int], Changes | None],
    ) -> bool:
        with file.snapshot() as snapshot:
            checkpoint, witnesses = snapshot.checkpoint, snapshot.witnesses
            self._generation = snapshot.generation
        if self._is_void:
            self._reset(file)
            self._is_void = False
        elif checkpoint:
            confirmed, witnesses = self._shared_through(file, checkpoint, witnesses)
            if confirmed == 0:
                logger.warning(
                    "%s is not of this database as it is now, or cannot be proved so: "
                    "starting with an empty cache",
                    file.path,
                )
                self._reset(file)
            elif not self._bring_back(file, checkpoint, confirmed, ask, witnesses):
                return False
        return self._settle(file)

    def _shared_through(
        self, file: CacheFile, checkpoint: int, witnesses: list[tuple[int, int]]
    ) -> tuple[int, list[tuple[int, int]]]:
        """See ICatchUp; and the witnesses that were asked about.

        Where all have changed since, the newest rows are some.
        """
        try:
            confirmed = self._catch_up.shared_through(checkpoint, witnesses)
            if confirmed == 0 and self._catch_up.asks_for_many:
                with file.snapshot() as snapshot:
                    witnesses = snapshot.newest(MORE_WITNESSES)
                confirmed = self._catch_up.shared_through(checkpoint, witnesses)
        except CannotCatchUp as reason:
            logger.info("%s: %s", file.path, reason)
            return 0, witnesses
        return confirmed, witnesses

    def _bring_back(
        self,
        file: CacheFile,
        checkpoint: int,
        confirmed: int,
        ask: Callable[[int], Changes | None],
        witnesses: list[tuple[int, int]],
    ) -> bool:
        """Extend the log back to the file, and let its rows in by the log."""
        history = self._store.history
        try:
            changes = ask(confirmed)
            if changes is not None:
                self._check_size(changes)
        except CannotCatchUp as reason:
            logger.warning("Starting with an empty cache instead of %s: %s", file.path, reason)
            self._reset(file)
            return True
        if changes is not None and confirmed < checkpoint and self._catch_up.asks_for_many:
            if changes.named and changes.through < checkpoint:
                self._reset(file)  # it is ahead of what is to be deleted from it
                return True
            changes = _beyond(checkpoint, changes.doubting(witnesses, confirmed))
            confirmed = checkpoint
        if changes is None or not self._log.extend_back(
            confirmed, changes.named, changes.through, exact=changes.exact
        ):
            return False
        is_whole = confirmed == checkpoint
        with file.snapshot() as snapshot:
            if snapshot.generation != self._generation:
                return False  # somebody emptied it meanwhile: ask again
            if is_whole and snapshot.row_count > FEW_ROWS:
                self.wants_preload = True  # not now: somebody waits for the storage to open
            else:
                self._take(snapshot, confirmed, history)
        if self.is_outdated:
            return False
        if is_whole:
            self._log.note(witnesses)
            try:
                if self._log.names_since(checkpoint):
                    self._advance(file, (), history, self._log.end)
            except (OtherHistory, Gap):
                return False
        else:  # what came between was another history's
            self._reset(file)
            self._store.mark_unsaved()
        self._log.trim()
        return True

    def _take(
        self,
        snapshot: Snapshot,
        known: int,
        history: int,
        pause: Callable[[], object] | None = None,
        epoch: int | None = None,
    ) -> None:
        """Let the rows in by the log, as many as memory holds."""
        for batch in snapshot.batches(known, self._options.limit_bytes):
            if self._closing or self._is_forking:
                self.wants_preload = not self._closing
                break
            if not self._log.restore(batch, known, history, epoch):
                break
            self.restored += len(batch)
            if pause is not None:
                self._rest(pause)

    def _rest(self, pause: Callable[[], object]) -> None:
        """Somebody who reads what was asked for comes first."""
        pause()
        while (
            not (self._closing or self._is_forking) and monotonic() < self._found_at + QUIET_SECONDS
        ):
            pause()

    def preload(self, pause: Callable[[], object] | None = None) -> None:
        """Bring back what memory can hold of the confirmed file, the most valuable first.

        *pause*: called between some rows and the next; None: somebody waits.
        """
        self.wants_preload = False
        history, epoch, file = self._store.history, self._log.epoch, self._file
        if file is None or not self._is_usable:
            return
        try:
            with self._preloading, file.separate_snapshot() as snapshot:
                if snapshot.generation == self._generation:
                    self._take(snapshot, snapshot.checkpoint, history, pause, epoch)
        except CacheFileError as error:
            self._complain("Cannot preload the cache: %s", error)

    def find(self, oid: bytes, at: int, *, end_wanted: bool = False) -> tuple[bytes, bytes] | None:
        """``(state, tid)`` of the file's row that a reader at *at* may see, or None.

        *end_wanted*: only if no successor of the revision is known.  What is
        current goes into memory.  Raises nothing.
        """
        epoch = self._log.epoch
        reader = self._live
        if reader is None:
            reader = self._wait()
            if reader is None:
                return None
        try:
            number = to_int(oid)
        except (struct.error, TypeError):
            return None  # the base storage will say what it thinks of it
        self._found_at = monotonic()
        distance, self._last_missed = number - self._last_missed, number
        ahead = READ_AHEAD_OIDS if 0 < distance <= READ_AHEAD_OIDS else 0
        try:
            found = reader.read(number, ahead=ahead)
        except CacheFileError as error:
            self._drop_reader(reader, error)
            return None
        if found.generation != self._generation:
            if found.generation > self._generation:  # somebody emptied it
                self.distrust()
            return None
        rows = found.rows
        is_there = bool(rows) and rows[0][0] == number
        if not self._log.admit_rows(rows, found.checkpoint, at, epoch, end_wanted) or not is_there:
            return None
        self.file_reads += 1
        return rows[0][3], to_bytes(rows[0][1])

    def _wait(self) -> RowReader | None:
        """The first reads wait a little for the file to be confirmed."""
        if self._file is None:
            return None
        self._patience = self._patience or monotonic() + PATIENCE_SECONDS
        left = self._patience - monotonic()
        return self._live if left > 0 and self._settled.wait(left) else None

    def _drop_reader(self, reader: RowReader, error: CacheFileError) -> None:
        """Use the file no more for now; the caretaker will open it anew."""
        if self._live is reader:
            self._live = None
            self._failed = error

    def _check_size(self, changes: Changes) -> None:
        count = sum(len(oids) for oids, _ in changes.named)
        if not self._log.can_hold(count):
            raise CannotCatchUp(f"{count} changed objects are more than the memory can hold")


def _beyond(checkpoint: int, changes: Changes) -> Changes:
    """*changes* as if all had come after *checkpoint*: no row of before is current."""
    named = [(oids, max(tid, checkpoint + 1)) for oids, tid in changes.named]
    return changes._replace(named=named, exact=False)
