"""What survives the process: the file's rows come back, and go out again.

The only place where the file meets the log, the memory tier and the base
storage.  Nothing that happens to the file reaches the application: it is
logged once, and the cache goes on in memory (I7).
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable
from collections.abc import Iterator
from itertools import islice
from threading import Event
from threading import Lock
from time import monotonic

from zodbcache.cachefile import CacheFile
from zodbcache.cachefile import RowReader
from zodbcache.config import CacheOptions
from zodbcache.errors import CacheFileError
from zodbcache.feeds import CannotCatchUp
from zodbcache.feeds import CatchUp
from zodbcache.feeds import Changes
from zodbcache.forking import call_after_fork
from zodbcache.ids import to_bytes
from zodbcache.ids import to_int
from zodbcache.invalidations import InvalidationLog
from zodbcache.store import MemoryStore

logger = logging.getLogger(__name__)

ROWS_AT_ONCE = 200
"""Rows that go into memory under one hold of the log's lock."""

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


class _OtherHistory(Exception):
    """The log began anew while the file was being written."""


class Persistence:
    """The file of one database, as one process uses it.

    *is_settled* is True once the file is known to agree with the base
    storage; before that nothing is read from it or written to it.
    *file_reads* counts what find() has found.  *is_outdated*: the file is to be
    confirmed anew, whatever was being found out about it.
    """

    def __init__(
        self, options: CacheOptions, catch_up: CatchUp, log: InvalidationLog, store: MemoryStore
    ) -> None:
        self._options = options
        self._catch_up = catch_up
        self._log = log
        self._store = store
        self._pid = os.getpid()
        self._reader: RowReader | None = None
        self._begin()
        call_after_fork(self._begin)
        self._generation = 0
        self.restored = 0
        self.file_reads = 0
        self._last_missed = -READ_AHEAD_OIDS
        self._found_at = 0.0  # when find() read last
        self._closing = False
        self._is_damaged = False
        self.is_outdated = False
        self._patience = 0.0  # until when reads wait; from the first one on
        self._file = self._open()

    def _begin(self) -> None:
        self._using = Lock()  # the file is used by one thread at a time
        self._settled = Event()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.abandon()

    def _open(self) -> CacheFile | None:
        identity = self._catch_up.identity()
        if self._options.cache_local_dir is None:
            return None
        if identity is None:
            logger.info("Caching in memory only: nobody could tell this database again")
            return None
        try:
            return CacheFile.open(
                self._options.cache_local_dir,
                identity=identity,
                prefix=self._options.cache_prefix,
                limit_bytes=self._options.file_limit_bytes,
            )
        except CacheFileError as error:
            logger.warning("Caching in memory only: %s", error)
            return None

    @property
    def is_settled(self) -> bool:
        """The file agrees with the base storage."""
        return self._settled.is_set()

    def _give_up(self, error: CacheFileError) -> None:
        """Go on without the file."""
        logger.warning("Going on without the cache file: %s", error)
        try:
            self._let_go()
        except CacheFileError as closing:
            logger.debug("%s", closing)

    def _let_go(self) -> None:
        reader, self._reader = self._reader, None
        file, self._file = self._file, None
        try:
            if reader is not None:
                self._is_damaged |= reader.is_damaged
                reader.close()
        finally:
            if file is not None:
                if self._is_damaged:
                    file.mark_damaged()
                file.close()

    @property
    def wants_restore(self) -> bool:
        """There is a file, and its rows have not been asked for yet."""
        return self._file is not None and not self.is_settled

    # From the file

    def restore(self, *, quickly: bool, pause: Callable[[], object] = lambda: None) -> bool:
        """Confirm the file, and bring its rows back: those that did not change.

        *quickly*: only if the base storage can tell at once what changed.
        *pause*: called between some rows and the next.  Returns False if it
        is still to be asked what changed.  Raises what the base storage raises.
        """
        with self._using:
            file = self._file
            if file is None or self.is_settled:
                return True
            self.is_outdated = False
            ask = self._catch_up.quick_changes if quickly else self._catch_up.changes
            try:
                return self._restore(file, ask, pause)
            except CacheFileError as error:
                self._give_up(error)
                return True

    def _restore(
        self,
        file: CacheFile,
        ask: Callable[[int], Changes | None],
        pause: Callable[[], object],
    ) -> bool:
        with file.snapshot() as snapshot:
            checkpoint, witnesses = snapshot.checkpoint, snapshot.witnesses
            self._generation = snapshot.generation
        if checkpoint:
            confirmed, witnesses = self._shared_through(file, checkpoint, witnesses)
            if confirmed == 0:
                logger.warning(
                    "%s is not of this database as it is now, or cannot be proved so: "
                    "starting with an empty cache",
                    file.path,
                )
                self._reset(file)
            elif not self._bring_back(file, checkpoint, confirmed, ask, pause, witnesses):
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

    def _settle(self, file: CacheFile) -> bool:
        """From now on single rows are read, too, unless the file was distrusted meanwhile."""
        if self._reader is None:
            self._reader = file.reader()
        self._settled.set()
        if self.is_outdated:  # whichever comes last, it ends unsettled
            self._settled.clear()
        return not self.is_outdated

    def _bring_back(
        self,
        file: CacheFile,
        checkpoint: int,
        confirmed: int,
        ask: Callable[[int], Changes | None],
        pause: Callable[[], object],
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
        if changes is None or not self._log.extend_back(confirmed, changes.named, changes.through):
            return False
        is_whole = confirmed == checkpoint
        with file.snapshot() as snapshot:
            if snapshot.generation != self._generation:
                return False  # somebody emptied it meanwhile: ask again
            if is_whole and snapshot.row_count > FEW_ROWS and not self._settle(file):
                return False
            rows = snapshot.rows(confirmed, self._options.limit_bytes)
            while not self._closing and (chunk := list(islice(rows, ROWS_AT_ONCE))):
                judged = self._log.restore(chunk, known=confirmed, history=history)
                if judged is None:
                    break
                self.restored += judged
                pause()
                while not self._closing and monotonic() < self._found_at + QUIET_SECONDS:
                    pause()  # somebody reads what was asked for: that comes first
        if self.is_outdated:
            return False
        if is_whole:
            self._log.note(witnesses)
            if self._log.names_since(checkpoint):
                self._advance(file, iter(()))
        else:  # what came between was another history's
            self._reset(file)
            self._store.mark_unsaved()
        self._log.trim()
        return True

    def find(self, oid: bytes, at: int, *, end_wanted: bool = False) -> tuple[bytes, bytes] | None:
        """``(state, tid)`` of the file's row that a reader at *at* may see, or None.

        *end_wanted*: only if no successor of the revision is known.  What is
        current goes into memory.  Raises nothing.
        """
        epoch = self._log.epoch
        if self._file is None or not self._is_confirmed():
            return None
        reader = self._reader
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

    def distrust(self) -> None:
        """The database turned out to have another history: use no row before that is settled."""
        self.is_outdated = True
        self._settled.clear()

    def _is_confirmed(self) -> bool:
        """Whether the file may be read; the first reads wait for that a little."""
        if not self._settled.is_set():
            self._patience = self._patience or monotonic() + PATIENCE_SECONDS
            left = self._patience - monotonic()
            if left <= 0 or not self._settled.wait(left):
                return False
        return True

    def _drop_reader(self, reader: RowReader, error: CacheFileError) -> None:
        """Read no more single rows; whoever writes next will see what is wrong."""
        if self._reader is reader:
            self._reader = None
            self._is_damaged |= reader.is_damaged
            logger.warning("Reading no more from the cache file: %s", error)
            try:
                reader.close()
            except CacheFileError as closing:
                logger.debug("%s", closing)

    def _check_size(self, changes: Changes) -> None:
        count = sum(len(oids) for oids, _ in changes.named)
        if not self._log.can_hold(count):
            raise CannotCatchUp(f"{count} changed objects are more than the memory can hold")

    def _reset(self, file: CacheFile) -> None:
        file.reset(self._generation)
        if self._reader is not None:
            self._reader.renew()
        with file.snapshot() as snapshot:
            self._generation = snapshot.generation

    # To the file

    def stop(self) -> None:
        """Bring no more rows back: the storage closes."""
        self._closing = True

    def save(self) -> int:
        """Write what the file lacks, and raise its checkpoint to the log's end.

        Returns the checkpoint through which the file knows what changed; 0 if
        it was not written.
        """
        with self._using:
            if self._file is None or not self.is_settled or os.getpid() != self._pid:
                return 0
            try:
                return self._advance(self._file, self._unsaved_rows(self._log.end))
            except _OtherHistory:
                return 0  # rolled back; what was handed over is not in memory any more
            except CacheFileError as error:
                self._store.mark_unsaved()  # what was handed over was rolled back
                self._give_up(error)
                return 0

    def tell(self, changes: Changes, since: int) -> None:
        """*changes* after *since*, the log's end, are more than it remembers: tell the file."""
        names = [(to_int(oid), tid) for oids, tid in changes.named for oid in oids]

        def names_since(tid: int) -> list[tuple[int, int]] | None:
            if tid >= since:
                return names
            known = self._log.names_since(tid)
            return None if known is None else known + names

        with self._using:
            if self._file is None or not self.is_settled or os.getpid() != self._pid:
                return
            try:
                self._file.advance(
                    changes.through, self._generation, names_since, iter(()), self._log.witnesses()
                )
            except CacheFileError as error:
                self._give_up(error)

    def _advance(self, file: CacheFile, rows: Iterator[tuple[int, int, int, bytes]]) -> int:
        through = self._log.end  # before the names are asked for: all up to it are there
        result = file.advance(
            through, self._generation, self._names_since, rows, self._log.witnesses()
        )
        logger.debug("Advanced %s through %d: %s", file.path, through, result)
        if self._reader is not None:
            self._reader.renew()
        return result.checkpoint

    def _names_since(self, tid: int) -> list[tuple[int, int]] | None:
        """The log's answer; None costs the file its rows, and so none of ours is saved."""
        names = self._log.names_since(tid)
        if names is None:
            self._store.mark_unsaved()
        return names

    def _unsaved_rows(self, through: int) -> Iterator[tuple[int, int, int, bytes]]:
        """What is proven through *through*.  Raises _OtherHistory when nothing is any more."""
        history = self._store.history
        for oid in self._store.unsaved():
            found = self._store.peek(oid)
            if self._store.history != history:
                raise _OtherHistory
            if found is not None and found[0] <= through:
                tid, frequency, state = found
                yield oid, tid, frequency, state
                self._store.mark_saved(oid, tid)

    def forget(self) -> None:
        """Empty the file: the base storage may have forgotten what it holds."""
        with self._using:
            if self._file is None or os.getpid() != self._pid:
                return
            try:
                if self.is_settled:
                    self._reset(self._file)
                else:  # its rows must not come back in this process
                    self._let_go()
            except CacheFileError as error:
                self._give_up(error)

    def close(self) -> None:
        """Give the file back.  May be called twice."""
        with self._using:
            try:
                self._let_go()
            except CacheFileError as error:
                logger.warning("%s", error)


def _beyond(checkpoint: int, changes: Changes) -> Changes:
    """*changes* as if all had come after *checkpoint*: no row of before is current."""
    named = [(oids, max(tid, checkpoint + 1)) for oids, tid in changes.named]
    return changes._replace(named=named)
