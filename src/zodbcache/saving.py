"""From memory to the file: what it lacks, what changed, and what was asked for often.

Each transaction is the one atomic step (:mod:`zodbcache.cachefile.merge`): what
the log names since the file's checkpoint goes, what is proven comes, the
checkpoint is raised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from time import monotonic

from zodbcache._core._store import Batch
from zodbcache.attachment import LOCKED_SECONDS
from zodbcache.attachment import RETRY_SECONDS
from zodbcache.attachment import Attachment
from zodbcache.cachefile import CacheFile
from zodbcache.cachefile import Outcome
from zodbcache.config import CacheOptions
from zodbcache.errors import CacheFileError
from zodbcache.feeds import CatchUp
from zodbcache.feeds import Changes
from zodbcache.ids import to_int
from zodbcache.invalidations import InvalidationLog
from zodbcache.store import Store

logger = logging.getLogger(__name__)

NamesSince = Callable[[int], Sequence[tuple[int, int]] | None]

OID_BYTES = 8

SAVE_BYTES = 2_000_000
"""Of states that go into the file in one transaction: some ten thousand objects."""

PACK_BYTES = 2_000_000
"""Of states that are copied under one hold of the GIL."""

CLOSE_BYTES = 64_000_000
"""Likewise, when the process ends."""

HEAT_SLOTS = 5000
"""So many slots of the memory's table are searched for hot revisions under one hold of the GIL."""

GAINS_AT_ONCE = 5000
"""Frequencies that are raised in one transaction."""


class OtherHistory(Exception):
    """The log began anew while the file was being written."""


class Gap(Exception):
    """The log does not know what changed since the file's checkpoint."""


class Saving(Attachment):
    """Writes the file.

    *file_writes* counts the rows written.
    """

    def __init__(
        self, options: CacheOptions, catch_up: CatchUp, log: InvalidationLog, store: Store
    ) -> None:
        super().__init__(options, catch_up, log, store)
        self.file_writes = 0
        self._is_full = False  # the file has more rows than it may
        self._is_void = False  # the file's rows may not come back when it is opened anew
        self._age: int | None = None  # the file's, when it was told of frequencies

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
            while True:
                with self._using:
                    if not self._is_usable:
                        position = max(position, 0)
                        return 0
                    if position < 0:
                        oids, position = self._take_unsaved(), 0
                    begun = position
                    position, checkpoint = self._save_some(oids, position, bytes_at_once)
                if not checkpoint or position == begun or pause():
                    break
                if position == len(oids) // OID_BYTES:
                    if not self._store.unsaved_left:
                        break
                    position = -1
        finally:
            if position < 0:  # interrupted, perhaps just after they were handed over
                self._store.search_unsaved()
            self._store.return_unsaved(oids, max(position, 0))
        return checkpoint

    def _take_unsaved(self) -> bytes:
        """The oids of some of what the file lacks, if it lacks anything."""
        oids = self._store.take_unsaved()
        while not oids and self._store.unsaved_left:
            oids = self._store.take_unsaved()
        return oids

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
                    raise OtherHistory  # it may be of that one
                left_bytes -= batch.state_bytes
                yield batch

        try:
            checkpoint = self._advance(file, packed(), history, through)
        except CacheFileError as error:
            self._cannot_write(error)
        except OtherHistory:
            logger.debug("The log began anew while %s was written", file.path)
        except Gap:
            self.distrust()  # the caretaker asks what changed since its checkpoint
        else:
            if checkpoint >= through:
                return after, checkpoint
        return position, 0

    def _advance(
        self,
        file: CacheFile,
        batches: Iterable[Batch],
        history: int,
        through: int,
        log_names_since: NamesSince | None = None,
    ) -> int:
        """Write *batches*, proven through *through*; return the file's checkpoint.

        *history*: the memory tier's, before *through* was taken from the log.
        *log_names_since*: what changed, if the log does not know it yet.  0 if
        nothing was written.  Raises OtherHistory and Gap.
        """
        ask = log_names_since or self._log.names_since

        def names_since(tid: int) -> Sequence[tuple[int, int]] | None:
            if history != self._store.history:
                raise OtherHistory
            names = ask(tid)
            if names is None and tid:  # 0: the file is empty
                raise Gap
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
                self._cannot_write(error)
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
            file = self._file
            if file is None or not self._is_usable:
                return
            try:
                self._advance(file, (), self._store.history, changes.through, names_since)
            except CacheFileError as error:
                self._cannot_write(error)
            except Gap:
                self.distrust()
            except OtherHistory:
                logger.debug("The log began anew before %s was told", file.path)

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
