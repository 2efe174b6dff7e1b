"""What survives the process: the file's rows come back, and go out again.

The only place where the file meets the log, the memory tier and the base
storage.  Nothing that happens to the file reaches the application: it is
logged once, and the cache goes on in memory (I7).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from collections.abc import Iterator
from itertools import islice
from threading import Lock

from zodbcache.cachefile import CacheFile
from zodbcache.config import CacheOptions
from zodbcache.errors import CacheFileError
from zodbcache.feeds import CannotCatchUp
from zodbcache.feeds import CatchUp
from zodbcache.feeds import Changes
from zodbcache.forking import call_after_fork
from zodbcache.invalidations import InvalidationLog
from zodbcache.store import MemoryStore

logger = logging.getLogger(__name__)

ROWS_AT_ONCE = 500
"""Rows that go into memory under one hold of the log's lock."""


class Persistence:
    """The file of one database, as one process uses it.

    *is_settled* is True once the file is known to agree with the base
    storage; before that nothing is written to it.
    """

    def __init__(
        self, options: CacheOptions, catch_up: CatchUp, log: InvalidationLog, store: MemoryStore
    ) -> None:
        self._options = options
        self._catch_up = catch_up
        self._log = log
        self._store = store
        self._pid = os.getpid()
        self._begin()
        call_after_fork(self._begin)
        self._generation = 0
        self.is_settled = False
        self.restored = 0
        self._file = self._open()

    def _begin(self) -> None:
        self._using = Lock()  # the file is used by one thread at a time

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

    def _give_up(self, error: CacheFileError) -> None:
        """Go on without the file."""
        logger.warning("Going on without the cache file: %s", error)
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except CacheFileError as closing:
                logger.debug("%s", closing)

    @property
    def wants_restore(self) -> bool:
        """There is a file, and its rows have not been asked for yet."""
        return self._file is not None and not self.is_settled

    # From the file

    def restore(self, *, quickly: bool) -> bool:
        """Bring the file's rows back, those that did not change since it was written.

        *quickly*: only if the base storage can tell at once what changed.
        Returns False if that is still to be asked.  Raises what the base
        storage raises.
        """
        with self._using:
            file = self._file
            if file is None or self.is_settled:
                return True
            try:
                if quickly:
                    return self._restore(file, self._catch_up.quick_changes)
                return self._restore(file, self._catch_up.changes)
            except CacheFileError as error:
                self._give_up(error)
                return True

    def _restore(self, file: CacheFile, ask: Callable[[int], Changes | None]) -> bool:
        with file.snapshot() as snapshot:
            checkpoint, witnesses = snapshot.checkpoint, snapshot.witnesses
            self._generation = snapshot.generation
        if checkpoint:
            confirmed = self._catch_up.shared_through(checkpoint, witnesses)
            if confirmed == 0:
                logger.warning(
                    "%s is not of this database as it is now, or cannot be proved so: "
                    "starting with an empty cache",
                    file.path,
                )
                self._reset(file)
            elif not self._bring_back(file, checkpoint, confirmed, ask):
                return False
        self.is_settled = True
        return True

    def _bring_back(
        self,
        file: CacheFile,
        checkpoint: int,
        confirmed: int,
        ask: Callable[[int], Changes | None],
    ) -> bool:
        """Extend the log back to the file, and let its rows in by the log."""
        try:
            changes = ask(confirmed)
            if changes is not None:
                self._check_size(changes)
        except CannotCatchUp as reason:
            logger.warning("Starting with an empty cache instead of %s: %s", file.path, reason)
            self._reset(file)
            return True
        if changes is None or not self._log.extend_back(confirmed, changes.named, changes.through):
            return False
        with file.snapshot() as snapshot:
            if snapshot.generation != self._generation:
                return False  # somebody emptied it meanwhile: ask again
            rows = snapshot.rows(confirmed, self._options.limit_bytes)
            while chunk := list(islice(rows, ROWS_AT_ONCE)):
                judged = self._log.restore(chunk, known=confirmed)
                if judged is None:
                    break
                self.restored += judged
        if confirmed < checkpoint:  # what came between was another history's
            self._reset(file)
            self._store.mark_unsaved()
        else:
            self._advance(file, iter(()))
        self._log.trim()
        return True

    def _check_size(self, changes: Changes) -> None:
        count = sum(len(oids) for oids, _ in changes.named)
        if not self._log.can_hold(count):
            raise CannotCatchUp(f"{count} changed objects are more than the memory can hold")

    def _reset(self, file: CacheFile) -> None:
        file.reset(self._generation)
        with file.snapshot() as snapshot:
            self._generation = snapshot.generation

    # To the file

    def save(self) -> None:
        """Write what the file lacks, and raise its checkpoint to the log's end."""
        with self._using:
            if self._file is None or not self.is_settled or os.getpid() != self._pid:
                return
            try:
                self._advance(self._file, self._unsaved_rows(self._log.end))
            except CacheFileError as error:
                self._store.mark_unsaved()  # what was handed over was rolled back
                self._give_up(error)

    def _advance(self, file: CacheFile, rows: Iterator[tuple[int, int, int, bytes]]) -> None:
        through = self._log.end  # before the names are asked for: all up to it are there
        result = file.advance(
            through, self._generation, self._names_since, rows, self._log.witnesses()
        )
        logger.debug("Advanced %s through %d: %s", file.path, through, result)

    def _names_since(self, tid: int) -> list[tuple[int, int]] | None:
        """The log's answer; None costs the file its rows, and so none of ours is saved."""
        names = self._log.names_since(tid)
        if names is None:
            self._store.mark_unsaved()
        return names

    def _unsaved_rows(self, through: int) -> Iterator[tuple[int, int, int, bytes]]:
        for oid in self._store.unsaved():
            found = self._store.peek(oid)
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
                    self._file.close()
                    self._file = None
            except CacheFileError as error:
                self._give_up(error)

    def close(self) -> None:
        """Give the file back.  May be called twice."""
        with self._using:
            file, self._file = self._file, None
            if file is None:
                return
            try:
                file.close()
            except CacheFileError as error:
                logger.warning("%s", error)
