"""One SQLite connection to a cache file, and the files that it needs.

Guarantees:

- A directory made here has mode 0700, a file 0600, and so its ``-wal`` and
  ``-shm`` (I8).  What exists keeps its mode.
- Every fault of SQLite or the operating system leaves as CacheFileError;
  nothing else is translated.
- No transaction begins on a file that was deleted or replaced while open, nor
  in a child of the process that opened it (I7, I9).
- WAL, ``synchronous=NORMAL``, no mmap: a file that somebody truncates must
  not kill the process.
- A commit never copies the WAL into the file: checkpoint() does, when called.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextlib import suppress
from typing import Any
from typing import Final

import apsw

from zodbcache._core import _store
from zodbcache._core._store import Rows
from zodbcache._core._store import SQLiteError
from zodbcache._core.lending import lend_sqlite
from zodbcache.cachefile import faults
from zodbcache.errors import CacheFileError

#: A point read from the system's cache costs a fifth less than with 16 KiB, a save the same.
PAGE_SIZE_BYTES: Final = 8 * 1024
BUSY_TIMEOUT_MS: Final = 5000
_WAL_LIMIT_BYTES: Final = 32 * 1024 * 1024
_CHECKPOINT_PAGES: Final = 8 * 1024 * 1024 // PAGE_SIZE_BYTES
_SIBLINGS: Final = ("-wal", "-shm")

_INCREMENTAL: Final = 2

#: The core's VFS, which keeps a checksum in so many bytes at the end of each page.
_VFS: Final = "zodbcache"
PAGE_SUM_BYTES: Final = 8
_COMPARE: Final = 0x5A4F4301
_IGNORE: Final = 0x5A4F4300

FileIdentity = tuple[tuple[int, int], ...]


def create_directory(directory: str) -> None:
    """Make *directory* with mode 0700 unless it exists, its parents as usual.

    Raises CacheFileError when that fails or the path is not a directory.
    """
    try:
        parent = os.path.dirname(os.path.abspath(directory))
        os.makedirs(parent, exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(directory, 0o700)
        if not os.path.isdir(directory):
            raise NotADirectoryError(20, "Not a directory", directory)
    except OSError as exc:
        raise faults.translate(exc, directory, "create the directory of") from exc


def create_file(path: str) -> bool:
    """Make an empty file with mode 0600; return False if something is there.

    An existing file is never opened here: closing it would drop the POSIX
    locks that other connections of this process hold on it.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return False
    except OSError as exc:
        raise faults.translate(exc, path, "create") from exc
    return True


def has_orphans(path: str) -> bool:
    """Whether a ``-wal`` or ``-shm`` outlived its file.

    A process may still use them: a new file of that name would share their
    index with the deleted one, and read its pages.
    """
    # The order matters: these two are never there before the file is.
    orphans = any(os.path.lexists(path + suffix) for suffix in _SIBLINGS)
    return orphans and not os.path.lexists(path)


class Connection:
    """One SQLite connection; used by one thread at a time.

    *damaged* turns True when SQLite, or a check of ours, finds the contents
    malformed; it stays so.
    """

    def __init__(self, path: str, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> None:
        """Connect to the existing file at *path* without changing it.

        Raises the bare apsw.Error: only the caller knows what it means there.
        """
        self.path = path
        self.damaged = False
        self._operation = "open"
        self._owner_pid = os.getpid()
        self._busy_timeout_ms = busy_timeout_ms
        self._files: FileIdentity | None = None
        self._rows: Rows | None = None
        self._wal_pages = 0
        lend_sqlite()
        self._sqlite: apsw.Connection | None = apsw.Connection(
            path, flags=apsw.SQLITE_OPEN_READWRITE, vfs=_VFS
        )
        _harden(self._sqlite, busy_timeout_ms)
        self._sqlite.set_wal_hook(self._note_wal)

    def _note_wal(self, sqlite: apsw.Connection, name: str, pages: int) -> int:
        """After a commit, instead of SQLite's own checkpoint inside it."""
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def begin_wal(self) -> None:
        """Make the file a WAL database, if it is not.  Raises CacheFileError.

        SQLite does not call its busy handler for this step, so two processes
        that create a file at once would fail each other; hence the loop.
        """
        sqlite = self._require("open")
        deadline_s = time.monotonic() + self._busy_timeout_ms / 1000
        while True:
            try:
                sqlite.pragma("page_size", PAGE_SIZE_BYTES)
                sqlite.reserve_bytes("main", PAGE_SUM_BYTES)
                if sqlite.pragma("auto_vacuum") != _INCREMENTAL:  # to say it again is a write
                    sqlite.pragma("auto_vacuum", _INCREMENTAL)
                if sqlite.pragma("journal_mode") != "wal":
                    sqlite.pragma("journal_mode", "wal")
                sqlite.pragma("synchronous", "NORMAL")
                sqlite.pragma("journal_size_limit", _WAL_LIMIT_BYTES)
                # The first read opens -wal and -shm.
                sqlite.pragma("user_version")
                self._files = _identify(self.path)
                self._rows = Rows(sqlite)
                return
            except apsw.BusyError as exc:
                if time.monotonic() >= deadline_s:
                    raise self.translate(exc) from exc
                time.sleep(0.005)
            except (apsw.Error, OSError) as exc:
                raise self.translate(exc) from exc

    def require_open(self, operation: str) -> None:
        """Raise CacheFileError if it is closed, or of the parent process."""
        self._require(operation)

    def compare_pages(self, wanted: bool) -> None:
        """Whether a page that does not fit its checksum counts as damage, from now on.

        Who deletes rows must not miss one.  For who reads, the rows' own
        checksums are enough, and only the row in question is lost.
        """
        self._require("open").file_control("main", _COMPARE if wanted else _IGNORE, 0)

    @property
    def read_only(self) -> bool:
        """Whether SQLite can only read the file."""
        return self._require("open").readonly("main")

    @contextmanager
    def transaction(self, operation: str, *, write: bool) -> Iterator[None]:
        """One transaction: committed at the end, rolled back by any exception.

        *operation*: completes "Cannot ... the cache file" in errors.  With
        *write* the write lock is taken at once.  Raises CacheFileError.
        """
        sqlite = self._require(operation)
        assert not sqlite.in_transaction, "a transaction of this instance is open"
        self._require_same_files()
        try:
            self._wait_once("BEGIN IMMEDIATE" if write else "BEGIN")
            yield
            self.run("COMMIT")  # calls _note_wal(), whose interrupts APSW passes on
        except BaseException:
            # SQLite may have rolled back already.
            with suppress(apsw.Error):
                if sqlite.in_transaction:
                    sqlite.execute("ROLLBACK")
            raise

    def _wait_once(self, sql: str) -> None:
        """Execute what may wait for a lock, and then for the GIL, no more than once."""
        if self._rows is None:
            self.run(sql)
            return
        with self.bulk() as rows:
            rows.ask(sql, (), False)

    def begin_read(self) -> None:
        """Begin a read transaction that lasts until end_read().  Raises CacheFileError."""
        self._require("read")
        self._require_same_files()
        self.run("BEGIN")

    def end_read(self) -> None:
        """End the read transaction, if one is open.  Raises nothing."""
        if self._sqlite is not None and os.getpid() == self._owner_pid:
            with suppress(apsw.Error):
                if self._sqlite.in_transaction:
                    self._sqlite.execute("ROLLBACK")

    def run(self, sql: str, bindings: tuple[Any, ...] = ()) -> int:
        """Execute a statement; return how many rows it changed."""
        sqlite = self._require(self._operation)
        try:
            before = sqlite.total_changes()
            sqlite.execute(sql, bindings)
            return sqlite.total_changes() - before
        except apsw.Error as exc:
            raise self.translate(exc) from exc

    def ask(self, sql: str, bindings: tuple[int | str, ...] = ()) -> list[tuple[Any, ...]]:
        """Execute a short statement on few pages; return its rows.

        Other threads wait meanwhile: while a file is locked, to wait for them
        after each statement would take a hundred times as long.
        """
        try:
            with self.bulk() as rows:
                return rows.ask(sql, bindings, True)
        except UnicodeDecodeError as exc:
            raise self.malformed(f"a text is damaged: {exc}") from exc

    def rows(self, sql: str, bindings: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Execute a query; return all its rows."""
        sqlite = self._require(self._operation)
        try:
            return list(sqlite.execute(sql, bindings))
        except apsw.Error as exc:
            raise self.translate(exc) from exc
        except UnicodeDecodeError as exc:
            raise self.malformed(f"a text is damaged: {exc}") from exc

    @property
    def bulk_rows(self) -> Rows:
        """The rows, whose SQLiteErrors are for translate_code()."""
        self._require(self._operation)
        if self._rows is None:
            raise faults.not_ours(self.path, self._operation)
        return self._rows

    @contextmanager
    def bulk(self) -> Iterator[Rows]:
        """The rows, for work in bulk.  SQLite's faults inside are translated."""
        try:
            yield self.bulk_rows
        except SQLiteError as exc:
            raise self.translate_code(exc) from exc

    def translate_code(self, exc: SQLiteError) -> CacheFileError:
        """As translate(), of what the C core met."""
        return self.translate(faults.of_code(*exc.args))

    def checkpoint(self) -> None:
        """Copy what the WAL holds into the file, if that is much.  Outside a transaction."""
        if self._wal_pages >= _CHECKPOINT_PAGES:
            self._wal_pages = 0
            with suppress(apsw.Error):  # somebody else is about it, or the next one will see
                self._require("checkpoint").wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def is_in_order(self) -> bool:
        """Whether SQLite finds nothing wrong with the pages.  Reads them all."""
        return self.rows("PRAGMA quick_check(1)") == [("ok",)]

    @property
    def can_shrink(self) -> bool:
        """Whether the file gives pages back: decided when it was made, or written anew."""
        return bool(self.rows("PRAGMA auto_vacuum")[0][0] == _INCREMENTAL)

    def vacuum(self) -> None:
        """Write the file anew, so that it can give pages back later.  Raises CacheFileError."""
        sqlite = self._require("migrate")
        try:
            sqlite.pragma("auto_vacuum", _INCREMENTAL)
            sqlite.reserve_bytes("main", PAGE_SUM_BYTES)
            sqlite.execute("VACUUM")
        except apsw.Error as exc:
            raise self.translate(exc) from exc

    def erase(self) -> None:
        """Make the file an empty database, however damaged its contents are.

        Other processes' transactions go on with what they see.  Raises
        CacheFileError.
        """
        sqlite = self._require("reset")
        try:
            sqlite.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 1)
            sqlite.pragma("auto_vacuum", _INCREMENTAL)
            sqlite.reserve_bytes("main", PAGE_SUM_BYTES)
            sqlite.execute("VACUUM")
        except apsw.Error as exc:
            raise self.translate(exc) from exc
        finally:
            sqlite.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 0)

    def malformed(self, cause: str) -> CacheFileError:
        """Note the damage; return the error to raise."""
        self.damaged = True
        return faults.malformed(self.path, self._operation, cause)

    def translate(self, exc: apsw.Error | OSError) -> CacheFileError:
        """Note the damage if it is some; return the error to raise."""
        if isinstance(exc, faults.DAMAGE):
            self.damaged = True
        return faults.translate(exc, self.path, self._operation)

    def close(self, *, quickly: bool = False) -> None:
        """Copy what the WAL holds into the file and let go.  May be called twice.

        *quickly*: without copying, for who goes on at once.  In a child of the
        process that opened it, only lets go (I9).  Raises CacheFileError when
        SQLite cannot close.
        """
        sqlite, self._sqlite = self._sqlite, None
        rows, self._rows = self._rows, None
        if sqlite is None:
            return
        if os.getpid() != self._owner_pid:
            # To close it here could take the parent's locks away, or its WAL.
            _store.keep(sqlite)
            return
        self._operation = "close"
        if rows is not None:
            rows.close()
        with suppress(apsw.Error):
            if quickly:
                sqlite.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            else:
                sqlite.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        try:
            sqlite.close()
        except apsw.Error as exc:
            raise self.translate(exc) from exc

    def _require(self, operation: str) -> apsw.Connection:
        if self._sqlite is None or os.getpid() != self._owner_pid:
            raise faults.not_ours(self.path, operation)
        self._operation = operation
        return self._sqlite

    def _require_same_files(self) -> None:
        if self._files is None:
            return
        try:
            same = _identify(self.path) == self._files
        except FileNotFoundError:
            same = False
        except OSError as exc:
            raise self.translate(exc) from exc
        if not same:
            raise faults.replaced(self.path, self._operation)


def _harden(sqlite: apsw.Connection, busy_timeout_ms: int) -> None:
    """Trust nothing that the file's own schema may say, and never wait for long."""
    sqlite.set_busy_timeout(busy_timeout_ms)
    for option, value in (
        (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
        (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
        (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),
        (apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0),
        (apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0),
        (apsw.SQLITE_DBCONFIG_DQS_DML, 0),
        (apsw.SQLITE_DBCONFIG_DQS_DDL, 0),
    ):
        sqlite.config(option, value)
    sqlite.pragma("mmap_size", 0)
    sqlite.pragma("cell_size_check", True)
    sqlite.pragma("temp_store", "MEMORY")


def _identify(path: str) -> FileIdentity:
    """Device and inode of the file and of its siblings."""
    stats = [os.stat(path + suffix) for suffix in ("", *_SIBLINGS)]
    return tuple((stat.st_dev, stat.st_ino) for stat in stats)
