"""What survives the process: the file's rows come back, and go out again.

The only place where the file meets the log, the memory tier and the base
storage.  Nothing that happens to the file reaches the application: it is
logged once, the cache goes on in memory, and the file is tried again later
(I7).
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from threading import Event
from threading import Lock
from time import monotonic

from zodbcache._core._store import Batch
from zodbcache.cachefile import CacheFile
from zodbcache.cachefile import Outcome
from zodbcache.cachefile import RowReader
from zodbcache.cachefile import Snapshot
from zodbcache.config import CacheOptions
from zodbcache.errors import CacheFileError
from zodbcache.feeds import CannotCatchUp
from zodbcache.feeds import CatchUp
from zodbcache.feeds import Changes
from zodbcache.forking import call_after_fork
from zodbcache.forking import call_around_fork
from zodbcache.ids import to_bytes
from zodbcache.ids import to_int
from zodbcache.invalidations import InvalidationLog
from zodbcache.store import MemoryStore

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


OID_BYTES = 8

SAVE_BYTES = 2_000_000
"""Of states that go into the file in one transaction: some ten thousand objects."""

PACK_BYTES = 1_000_000
"""Of states that are copied under one hold of the GIL."""

HEAT_SLOTS = 5000
"""So many slots of the memory's table are searched for hot revisions under one hold of the GIL."""

GAINS_AT_ONCE = 5000
"""Frequencies that are raised in one transaction."""

CLOSE_BYTES = 64_000_000
"""Likewise, when the process ends."""

LOCKED_SECONDS = 60.0
"""A file that others hold for so long is worth a warning; a process that ends waits for it."""

FORK_SECONDS = 2.0
"""How long a fork waits for who uses the file to let go of it."""

RETRY_SECONDS = (1.0, 60.0)
"""How long a file that failed is left alone: at first, and at most."""


class _OtherHistory(Exception):
    """The log began anew while the file was being written."""


class _Gap(Exception):
    """The log does not know what changed since the file's checkpoint."""


class Persistence:
    """The file of one database, as one process uses it.

    *is_settled* is True once the file is known to agree with the base
    storage; before that nothing is read from it or written to it.
    *restored* counts the rows that were brought back, *file_reads* what find()
    has found, *file_writes* the rows written.  *is_outdated*: the file is to be
    confirmed anew, whatever was being found out about it.  *wants_preload*: it
    has rows that nobody has asked for yet.
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
        self._live: RowReader | None = None  # the reader, once the file is confirmed
        self._file: CacheFile | None = None
        self._identity: str | None = None
        self._generation = 0
        self.restored = 0
        self.file_reads = 0
        self.file_writes = 0
        self._last_missed = -READ_AHEAD_OIDS
        self._found_at = 0.0  # when find() read last
        self._closing = False
        self._is_damaged = False
        self._is_full = False  # the file has more rows than it may
        self._is_void = False  # the file's rows may not come back when it is opened anew
        self._age: int | None = None  # the file's, when it was told of frequencies
        self.is_outdated = False
        self.wants_preload = False
        self._patience = 0.0  # until when reads wait; from the first one on
        self._retry_at: float | None = None  # when a file that failed is opened again
        self._retry_seconds = RETRY_SECONDS[0]
        self._complaint = ""  # the last warning, not to be repeated
        self._locked_since = 0.0  # since when others have held it; 0: they do not
        self._failed: CacheFileError | None = None  # what a reader met
        self._begin()
        if options.cache_local_dir is not None:
            self._identity = catch_up.identity()
            if self._identity is None:
                logger.info("Caching in memory only: nobody could tell this database again")
            else:
                self._file = self._open()
        call_around_fork(self._before_fork, self._go_on_in_parent)
        call_after_fork(self._begin_in_child)

    def _begin(self) -> None:
        self._using = Lock()  # the file is used by one thread at a time
        self._preloading = Lock()
        self._is_forking = False  # every thread lets go of the file
        self._holds_for_fork = self._forked_open = self._forked_settled = False
        self._settled = Event()

    def _before_fork(self) -> None:
        """Close the file, which could not be used in the child otherwise.

        Unless somebody holds it for long: the child goes without it then.
        """
        self._is_forking = True
        if not self._preloading.acquire(timeout=FORK_SECONDS):
            return
        if not self._using.acquire(timeout=FORK_SECONDS):
            self._preloading.release()
            return
        self._holds_for_fork = True
        self._forked_open, self._forked_settled = self._file is not None, self.is_settled
        try:
            self._let_go(quickly=True)
        except CacheFileError as error:
            self._complain("Before a fork: %s", error)

    def _go_on_in_parent(self) -> None:
        self._is_forking = False
        if not self._holds_for_fork:
            return
        try:
            if self._forked_open:
                self._file = self._open()
                if self._file is not None and self._forked_settled:
                    self._settle(self._file)
        except CacheFileError as error:
            self._give_up(error)
        finally:
            self._holds_for_fork = False
            self._using.release()
            self._preloading.release()

    def _begin_in_child(self) -> None:
        """A file of our own is opened when it is needed, if the parent has closed its own."""
        file, reader = self._file, self._reader
        if file is not None:
            logger.warning("Caching in memory only: %s was open before a fork", file.path)
            file.abandon()
            if reader is not None:
                reader.abandon()
            self._file = self._reader = self._live = self._retry_at = None
        elif self._forked_open or self._retry_at is not None:
            self._retry_at = 0.0
        self._begin()
        self._pid = os.getpid()

    def _open(self) -> CacheFile | None:
        assert self._options.cache_local_dir is not None and self._identity is not None
        self._retry_at = None
        try:
            return CacheFile.open(
                self._options.cache_local_dir,
                identity=self._identity,
                prefix=self._options.cache_prefix,
                limit_bytes=self._options.file_limit_bytes,
            )
        except CacheFileError as error:
            self._retry_later(error)
            return None

    def _retry_later(self, error: CacheFileError) -> None:
        self._retry_at = monotonic() + self._retry_seconds
        self._retry_seconds = min(2 * self._retry_seconds, RETRY_SECONDS[1])
        self._complain("Caching in memory only, for now: %s", error)

    def _complain(self, message: str, error: CacheFileError) -> None:
        """Warn, unless it was just the same before."""
        text = message % error
        logger.log(logging.DEBUG if text == self._complaint else logging.WARNING, message, error)
        self._complaint = text

    def retry_now(self) -> None:
        """Do not wait before a file that failed is opened again."""
        if self._retry_at is not None:
            self._retry_at = 0.0

    @property
    def is_due(self) -> bool:
        """The file failed, and is to be opened again."""
        return self._retry_at is not None and monotonic() >= self._retry_at

    @property
    def wants_care(self) -> bool:
        """The caretaker has something to do here."""
        return self.is_outdated or self.wants_preload or self._failed is not None or self.is_due

    @property
    def is_settled(self) -> bool:
        """The file agrees with the base storage."""
        return self._settled.is_set()

    def _give_up(self, error: CacheFileError) -> None:
        """Go on without the file for a while."""
        self._retry_later(error)
        try:
            self._let_go()
        except CacheFileError as closing:
            logger.debug("%s", closing)
        self._store.mark_unsaved()  # who knows what the next file has

    def _let_go(self, *, quickly: bool = False) -> None:
        self._settled.clear()
        self._live = None
        reader, self._reader = self._reader, None
        file, self._file = self._file, None
        try:
            if reader is not None:
                self._is_damaged |= reader.is_damaged
                reader.close(quickly=quickly)
        finally:
            if file is not None:
                if self._is_damaged:
                    file.mark_damaged()
                self._is_damaged = False
                file.close(quickly=quickly)

    @property
    def wants_restore(self) -> bool:
        """There is a file, or may be one again, and it is not confirmed."""
        return (self._file is not None or self.is_due) and self._live is None

    # From the file

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

    def _settle(self, file: CacheFile) -> bool:
        """From now on single rows are read, too, unless the file was distrusted meanwhile."""
        if self._reader is None:
            self._reader = file.reader()
        self._settled.set()
        self._live = self._reader
        if self.is_outdated:  # whichever comes last, it ends unsettled
            self._live = None
            self._settled.clear()
        elif self._complaint:
            self._complaint = ""
            logger.info("Using cache file %s again", file.path)
        return not self.is_outdated

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
            except (_OtherHistory, _Gap):
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

    def distrust(self) -> None:
        """What the file holds is to be confirmed anew: use no row before that is done."""
        self.is_outdated = True
        self._live = None
        self._settled.clear()

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

    def save(
        self, pause: Callable[[], bool] = lambda: False, *, bytes_at_once: int = SAVE_BYTES
    ) -> int:
        """Write what the file lacks, and raise its checkpoint to the log's end.

        *pause*: called between two transactions; what is left is for the next
        time if it returns True.  *bytes_at_once*: of states in a transaction.
        Returns the checkpoint through which the file knows what changed; 0 if
        not all was written.
        """
        oids, position, checkpoint = b"", -1, 0
        try:
            while position < len(oids) // OID_BYTES:
                with self._using:
                    if not self._is_usable:
                        position = max(position, 0)
                        return 0
                    if position < 0:
                        oids = self._store.take_unsaved()
                        position = 0
                    begun = position
                    position, checkpoint = self._save_some(oids, position, bytes_at_once)
                if not checkpoint or position == begun or pause():
                    break
        finally:
            if position < 0:  # interrupted, perhaps just after they were handed over
                self._store.search_unsaved()
            self._store.return_unsaved(oids, max(position, 0))
        return checkpoint

    @property
    def _is_usable(self) -> bool:
        return self._file is not None and self.is_settled and os.getpid() == self._pid

    def _save_some(self, oids: bytes, position: int, bytes_max: int) -> tuple[int, int]:
        """One transaction; the position after it, and the checkpoint, 0 if nothing was written."""
        file = self._file
        assert file is not None
        history, through, after = self._store.history, self._log.end, position

        def packed() -> Iterator[Batch]:
            nonlocal after
            left_bytes = bytes_max
            while left_bytes > 0 and after < len(oids) // OID_BYTES:
                batch, after = self._store.pack(oids, after, through, min(left_bytes, PACK_BYTES))
                if self._store.history != history:
                    raise _OtherHistory  # it may be of that one
                left_bytes -= batch.state_bytes
                yield batch

        try:
            checkpoint = self._advance(file, packed(), history, through)
        except CacheFileError as error:
            self._cannot_write(error)
        except _OtherHistory:
            logger.debug("The log began anew while %s was written", file.path)
        except _Gap:
            self.distrust()  # the caretaker asks what changed since its checkpoint
        else:
            if checkpoint >= through:
                return after, checkpoint
        return position, 0

    def _advance(
        self, file: CacheFile, batches: Iterable[Batch], history: int, through: int
    ) -> int:
        """Write *batches*, proven through *through*; return the file's checkpoint.

        *history*: the memory tier's, before *through* was taken from the log.
        0 if nothing was written.  Raises _OtherHistory and _Gap.
        """

        def names_since(tid: int) -> list[tuple[int, int]] | None:
            if history != self._store.history:
                raise _OtherHistory
            names = self._log.names_since(tid)
            if names is None and tid:  # 0: the file is empty
                raise _Gap
            return names

        result = file.advance(
            through, self._generation, names_since, batches, self._log.witnesses()
        )
        logger.debug("Advanced %s through %d: %s", file.path, through, result)
        self.file_writes += result.inserted
        self._is_full = result.size_bytes > file.limit_bytes
        self._retry_seconds = RETRY_SECONDS[0]
        self._locked_since = 0.0
        self._complaint = ""
        if result.outcome is Outcome.STALE_GENERATION:
            self.distrust()
            return 0
        return result.checkpoint if result.outcome is not Outcome.BEHIND else 0

    def _cannot_write(self, error: CacheFileError) -> None:
        """Now, or with this file at all."""
        now = monotonic()
        self._locked_since = (self._locked_since or now) if error.busy else 0.0
        if not error.recoverable:
            self._give_up(error)
        elif not error.busy or now >= self._locked_since + LOCKED_SECONDS:
            self._complain("Cannot write the cache file now: %s", error)
        else:
            logger.debug("Waiting for the cache file: %s", error)

    def save_all(self) -> None:
        """Save when the process ends: wait while others hold the file."""
        deadline = monotonic() + LOCKED_SECONDS
        while not self.save(bytes_at_once=CLOSE_BYTES):
            if not self._locked_since or monotonic() >= deadline:
                return

    def tidy(self, pause: Callable[[], bool] = lambda: False) -> None:
        """Trim the file, if it has become too large."""
        with self._using:
            if self._file is not None and self._is_full and self._is_usable:
                try:
                    self._file.trim(pause)
                    self._is_full = False  # or the next save says so again
                except CacheFileError as error:
                    self._cannot_write(error)

    def warm(self, pause: Callable[[], bool] = lambda: False) -> None:
        """Tell the file what was asked for more often than it knows."""
        gains: list[tuple[int, int, int]] = []
        faded, age = 0, self._age
        with self._using:
            if self._file is None or not self._is_usable:
                return
            try:
                with self._file.snapshot() as snapshot:
                    self._age = snapshot.age
            except CacheFileError as error:
                self._give_up(error)
                return
        if age is not None:
            faded = max(0, self._age - age)
        position = 0
        while True:
            found, position = self._store.heated(position, HEAT_SLOTS, faded)
            gains += found
            if len(gains) >= GAINS_AT_ONCE or position == 0:
                self._warm(gains)
                gains = []
            if position == 0 or pause():
                return

    def _warm(self, gains: list[tuple[int, int, int]]) -> None:
        with self._using:
            if gains and self._file is not None and self._is_usable:
                try:
                    self._file.warm(self._generation, sorted(gains))
                except CacheFileError as error:
                    self._cannot_write(error)

    def tell(self, changes: Changes, since: int) -> None:
        """*changes* after *since*, the log's end, are more than it remembers: tell the file."""
        names = [(to_int(oid), tid) for oids, tid in changes.named for oid in oids]

        def names_since(tid: int) -> list[tuple[int, int]] | None:
            if tid >= since:
                return names
            known = self._log.names_since(tid)
            return None if known is None else known + names

        with self._using:
            if self._file is None or not self._is_usable:
                return
            try:
                self._file.advance(
                    changes.through, self._generation, names_since, (), self._log.witnesses()
                )
            except CacheFileError as error:
                self._cannot_write(error)

    def forget(self) -> None:
        """Empty the file: the base storage may have forgotten what it holds."""
        with self._using:
            self._is_void = True
            if self._file is None or not self._is_usable:
                return  # when it is confirmed, it is emptied
            try:
                self._reset(self._file)
                self._is_void = False
            except CacheFileError as error:
                self._give_up(error)

    def close(self) -> None:
        """Give the file back.  May be called twice."""
        with self._using:
            self._retry_at = None
            try:
                self._let_go()
            except CacheFileError as error:
                logger.warning("%s", error)


def _beyond(checkpoint: int, changes: Changes) -> Changes:
    """*changes* as if all had come after *checkpoint*: no row of before is current."""
    named = [(oids, max(tid, checkpoint + 1)) for oids, tid in changes.named]
    return changes._replace(named=named, exact=False)
