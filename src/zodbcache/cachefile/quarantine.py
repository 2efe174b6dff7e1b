"""Find a file that can be used, whatever lies about under its name.

Guarantees (I7):

- What SQLite can open and is ours, and is malformed, is emptied in place; it
  is never renamed or removed, since other processes may use it.
- What SQLite cannot open, or is not ours, is left untouched; the next name is
  taken and one warning says what may be done.
- A bad moment (a lock, a full disk) condemns no name.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from typing import Final

import apsw

from zodbcache.cachefile import connection as files
from zodbcache.cachefile import faults
from zodbcache.cachefile import schema
from zodbcache.cachefile.connection import Connection
from zodbcache.cachefile.merge import empty
from zodbcache.cachefile.mounts import warn_of_network
from zodbcache.cachefile.tier import read_tier
from zodbcache.errors import CacheFileError

logger = logging.getLogger(__name__)

DEFAULT_PREFIX: Final = "zodbcache"
NAMES_TRIED: Final = 8
_PREFIX_LENGTH: Final = 64


class _SetAsideError(Exception):
    """This name cannot be used; another may."""

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(cause, remedy)
        self.cause = cause
        self.remedy = remedy


def file_name(*, identity: str, prefix: str, sequence: int) -> str:
    """The name of the *sequence*-th file for a database, without its directory."""
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return f"{_safe_prefix(prefix)}-{digest}.{sequence}.sqlite3"


def open_usable(directory: str, *, identity: str, prefix: str, busy_timeout_ms: int) -> Connection:
    """Connect to the first usable file of the database; make one if there is none.

    Raises CacheFileError when the directory cannot be used, when no name can,
    or when the moment is bad.
    """
    files.create_directory(directory)
    warn_of_network(directory)
    path = directory
    for sequence in range(NAMES_TRIED):
        name = file_name(identity=identity, prefix=prefix, sequence=sequence)
        path = os.path.join(directory, name)
        try:
            return _open(path, identity=identity, busy_timeout_ms=busy_timeout_ms)
        except _SetAsideError as exc:
            logger.warning(
                "Left cache file %s alone and take the next name: %s. %s",
                path,
                exc.cause,
                exc.remedy,
            )
    raise CacheFileError(
        path,
        "open",
        cause=f"this name and the {NAMES_TRIED - 1} before it cannot be used",
        remedy="Remove the files that the warnings in the log name.",
        recoverable=False,
    )


def heal(path: str, *, identity: str, generation: int | None, busy_timeout_ms: int) -> None:
    """Empty a file that was found damaged, unless somebody has done so.

    *generation*: the one in which it was seen to be damaged, None if unknown.
    The connection that saw the damage must be closed.  Never raises: a file
    that cannot be healed is met again by the next open.
    """
    try:
        connection = _open(path, identity=identity, busy_timeout_ms=busy_timeout_ms)
    except (CacheFileError, _SetAsideError):
        return
    try:
        with connection.transaction("read", write=False):
            found = read_tier(connection).generation
        if generation in (None, found):
            _rebuild(connection, identity=identity, cause="its contents are malformed")
    except CacheFileError as exc:
        logger.warning("Cannot empty a damaged cache file: %s", exc)
    finally:
        _abandon(connection)


def _safe_prefix(prefix: str) -> str:
    """*prefix* as it may stand in a file name; another prefix gives another one."""
    safe = re.sub(r"[^A-Za-z0-9_.-]", "_", prefix).lstrip(".-")[:_PREFIX_LENGTH]
    if safe == prefix:
        return safe or DEFAULT_PREFIX
    return f"{safe or DEFAULT_PREFIX}_{hashlib.sha256(prefix.encode()).hexdigest()[:8]}"


def _open(path: str, *, identity: str, busy_timeout_ms: int) -> Connection:
    """Connect to the file at *path*, make it current, and check its checkpoint's row.

    Raises _SetAsideError, or CacheFileError when another name would not help.
    """
    if files.has_orphans(path):
        raise _SetAsideError(
            "it was deleted, but its -wal or -shm file was not",
            "Stop the processes that use it and remove these two.",
        )
    files.create_file(path)
    connection = _connect(path, busy_timeout_ms=busy_timeout_ms)
    try:
        _make_usable(connection, identity=identity)
    except CacheFileError as exc:
        _abandon(connection)
        if isinstance(exc.__cause__, apsw.Error) and faults.fault_of(exc.__cause__).next_name:
            raise _SetAsideError(exc.cause, exc.remedy) from exc
        raise
    except BaseException:
        _abandon(connection)
        raise
    return connection


def _connect(path: str, *, busy_timeout_ms: int) -> Connection:
    try:
        return Connection(path, busy_timeout_ms=busy_timeout_ms)
    except apsw.Error as exc:
        error = faults.translate(exc, path, "open")
        if faults.fault_of(exc).next_name:
            raise _SetAsideError(error.cause, error.remedy) from exc
        raise error from exc


def _make_usable(connection: Connection, *, identity: str) -> None:
    """Judge before writing; then migrate, empty or take the file as it is."""
    kind = schema.kind_of(connection)
    if kind is schema.Kind.FOREIGN:
        raise _SetAsideError(
            "it is an SQLite database of something else", "Move it away, or set cache-prefix."
        )
    if kind is schema.Kind.NEWER:
        raise _SetAsideError(
            "a newer version of zodbcache wrote it", "Remove it when no process needs it any more."
        )
    if connection.read_only:
        raise _SetAsideError("it is read-only", "Give this user the right to write it.")
    connection.begin_wal()
    if kind is schema.Kind.MALFORMED:
        _rebuild(connection, identity=identity, cause="its tables are not as they should be")
        return
    if kind is schema.Kind.OLDER and not connection.is_in_order():
        _rebuild(connection, identity=identity, cause="its pages are out of order")
        return
    schema.migrate(connection, identity=identity, generation=1)
    connection.compare_pages(True)
    _check_tier(connection, identity=identity)


def _check_tier(connection: Connection, *, identity: str) -> None:
    """Read the checkpoint's row; empty the file if it is malformed or of another database."""
    try:
        with connection.transaction("open", write=False):
            tier = read_tier(connection)
    except CacheFileError as exc:
        if not connection.damaged:
            raise
        _rebuild(connection, identity=identity, cause=exc.cause)
        return
    if tier.identity != identity:
        logger.warning(
            "Emptied cache file %s: it is of another database, %s", connection.path, tier.identity
        )
        empty(connection, generation=tier.generation, identity=identity)


def _rebuild(connection: Connection, *, identity: str, cause: str) -> None:
    """Make a malformed file of ours an empty one, in place.

    Its generation may be unreadable; the clock gives one that it cannot have had.
    """
    connection.compare_pages(False)
    connection.erase()
    schema.migrate(connection, identity=identity, generation=time.time_ns())
    connection.compare_pages(True)
    connection.damaged = False
    logger.warning("Emptied damaged cache file %s: %s", connection.path, cause)


def _abandon(connection: Connection) -> None:
    try:
        connection.close()
    except CacheFileError as exc:
        logger.debug("%s", exc)
