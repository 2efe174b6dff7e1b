"""The shared file as one process has it: opened, lost, opened again, closed around a fork.

Nothing that happens to the file reaches the application: it is logged once, the
cache goes on in memory, and the file is tried again later (I7).
"""

from __future__ import annotations

import logging
import os
from threading import Event
from threading import Lock
from time import monotonic

from zodbcache.cachefile import CacheFile
from zodbcache.cachefile import RowReader
from zodbcache.config import CacheOptions
from zodbcache.errors import CacheFileError
from zodbcache.feeds import CatchUp
from zodbcache.forking import call_after_fork
from zodbcache.forking import call_around_fork
from zodbcache.invalidations import InvalidationLog
from zodbcache.store import Store

logger = logging.getLogger(__name__)

LOCKED_SECONDS = 60.0
"""A file that others hold for so long is worth a warning; a process that ends waits for it."""

FORK_SECONDS = 2.0
"""How long a fork waits for who uses the file to let go of it."""

RETRY_SECONDS = (1.0, 60.0)
"""How long a file that failed is left alone: at first, and at most."""


class Attachment:
    """The file of one database, as one process has it.

    *is_settled* is True once the file is known to agree with the base
    storage; before that nothing is read from it or written to it.
    *is_outdated*: it is to be confirmed anew, whatever was being found out
    about it.  *wants_preload*: it has rows that nobody has asked for yet.
    """

    def __init__(
        self, options: CacheOptions, catch_up: CatchUp, log: InvalidationLog, store: Store
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
        self._closing = False
        self._is_damaged = False
        self.is_outdated = False
        self.wants_preload = False
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

    @property
    def _is_usable(self) -> bool:
        return self._file is not None and self.is_settled and os.getpid() == self._pid

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
        self._live = self._failed = None
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

    def distrust(self) -> None:
        """What the file holds is to be confirmed anew: use no row before that is done."""
        self.is_outdated = True
        self._live = None
        self._settled.clear()

    def _reset(self, file: CacheFile) -> None:
        file.reset(self._generation)
        if self._reader is not None:
            self._reader.renew()
        with file.snapshot() as snapshot:
            self._generation = snapshot.generation

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

    def stop(self) -> None:
        """Bring no more rows back: the storage closes."""
        self._closing = True

    def close(self) -> None:
        """Give the file back.  May be called twice."""
        with self._using:
            self._retry_at = None
            try:
                self._let_go()
            except CacheFileError as error:
                logger.warning("%s", error)
