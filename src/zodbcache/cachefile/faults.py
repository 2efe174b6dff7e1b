"""Turn what SQLite and the operating system report into CacheFileError.

Guarantee: every fault becomes one error that names the path, the operation,
the cause, the remedy and whether trying again may help.  What to say about
which fault is the table below and nothing else.
"""

from __future__ import annotations

import errno
from typing import Final
from typing import NamedTuple

import apsw

from zodbcache.errors import CacheFileError


class Fault(NamedTuple):
    """What is known of one kind of fault.

    *recoverable*: the same operation on the same file may succeed later.
    *next_name*: met while opening, it condemns this file name only, so that
    another name may be tried.
    """

    remedy: str
    recoverable: bool
    next_name: bool


_REPLACE = "Stop the processes that use it and remove it, with its -wal and -shm files."
_FREE_SPACE = "Free some space; the cache goes on by itself."
_WAIT = "Another process holds it; the cache tries again by itself."
_PERMIT = "Give this user the right to read and write it and its directory."
_DIRECTORY = "Choose another cache-local-dir, or make this one writable for this user."

_SQLITE_FAULTS: Final[dict[type[apsw.Error], Fault]] = {
    apsw.BusyError: Fault(_WAIT, True, False),
    apsw.LockedError: Fault(_WAIT, True, False),
    apsw.ProtocolError: Fault(_WAIT, True, False),
    apsw.InterruptError: Fault("The cache tries again by itself.", True, False),
    apsw.FullError: Fault(_FREE_SPACE, True, False),
    apsw.NoMemError: Fault("Give the process more memory.", True, False),
    apsw.CorruptError: Fault(_REPLACE, False, True),
    apsw.NotADBError: Fault(_REPLACE, False, True),
    apsw.FormatError: Fault(_REPLACE, False, True),
    apsw.SQLError: Fault(_REPLACE, False, True),
    apsw.ConstraintError: Fault(_REPLACE, False, True),
    apsw.CantOpenError: Fault(_PERMIT, False, True),
    apsw.PermissionsError: Fault(_PERMIT, False, True),
    apsw.AuthError: Fault(_PERMIT, False, True),
    apsw.ReadOnlyError: Fault(_PERMIT, False, True),
    apsw.IOError: Fault("Look for faults of the disk or the file system.", False, False),
}
_OTHER_SQLITE_FAULT: Final = Fault("The application goes on without the file.", False, False)

_OS_FAULTS: Final[dict[int | None, Fault]] = {
    errno.ENOSPC: Fault(_FREE_SPACE, True, False),
    errno.EDQUOT: Fault(_FREE_SPACE, True, False),
    errno.EMFILE: Fault("Raise the limit on open files.", True, False),
    errno.ENFILE: Fault("Raise the limit on open files.", True, False),
}
_OTHER_OS_FAULT: Final = Fault(_DIRECTORY, False, False)

#: Faults that say the contents are damaged, not that the moment is bad.
DAMAGE: Final = (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, apsw.FormatError)


def fault_of(exc: apsw.Error | OSError) -> Fault:
    """What the table says about *exc*."""
    if isinstance(exc, OSError):
        return _OS_FAULTS.get(exc.errno, _OTHER_OS_FAULT)
    return _SQLITE_FAULTS.get(type(exc), _OTHER_SQLITE_FAULT)


def translate(exc: apsw.Error | OSError, path: str, operation: str) -> CacheFileError:
    """The CacheFileError to raise from *exc*."""
    fault = fault_of(exc)
    return CacheFileError(
        path,
        operation,
        cause=f"{type(exc).__name__}: {exc}",
        remedy=fault.remedy,
        recoverable=fault.recoverable,
        busy=fault.remedy == _WAIT,
    )


def of_code(code: int, message: str) -> apsw.Error:
    """APSW's exception for a result code of SQLite's."""
    exc = apsw.exception_for(code)
    exc.args = (message,)
    return exc if isinstance(exc, apsw.Error) else apsw.Error(message)


def malformed(path: str, operation: str, cause: str) -> CacheFileError:
    """The CacheFileError for contents that SQLite can read and that make no sense."""
    return CacheFileError(path, operation, cause=cause, remedy=_REPLACE, recoverable=False)


def replaced(path: str, operation: str) -> CacheFileError:
    """The CacheFileError for a file that is not the one opened any more."""
    return CacheFileError(
        path,
        operation,
        cause="it, or its -wal or -shm file, was deleted or replaced while open",
        remedy="Leave it in place while processes use it; what is there now is tried soon.",
        recoverable=False,
    )


def not_ours(path: str, operation: str) -> CacheFileError:
    """The CacheFileError for a connection that is closed, or of the parent process."""
    return CacheFileError(
        path,
        operation,
        cause="it is closed, or was opened before a fork",
        remedy="Open it anew in this process.",
        recoverable=False,
    )
