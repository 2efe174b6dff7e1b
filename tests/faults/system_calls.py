"""The system calls that SQLite makes, failing as an injector says.

The only way to reach shared memory and the locks on it.  SQLite itself lets
these calls be replaced (``xSetSystemCall``), for tests like these.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
from collections.abc import Iterator
from contextlib import ExitStack
from contextlib import contextmanager
from typing import Any

import apsw

from .injector import Injector
from .injector import Way
from .injector import calls_of

_int, _long, _pointer = ctypes.c_int, ctypes.c_long, ctypes.c_void_p

#: SQLite's name of each call: its result, then its arguments.
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "open": (_int, ctypes.c_char_p, _int, _int),
    "fstat": (_int, _int, _pointer),
    "ftruncate": (_int, _int, _long),
    "fcntl": (_int, _int, _int, _pointer),
    "pread64": (_long, _int, _pointer, ctypes.c_size_t, _long),
    "pwrite64": (_long, _int, _pointer, ctypes.c_size_t, _long),
    "mmap": (_pointer, _pointer, ctypes.c_size_t, _int, _int, _int, _long),
    "unlink": (_int, ctypes.c_char_p),
}

BROKEN = Way("EIO", every=3)
LOCKED = Way("EAGAIN for a lock", calls_of("fcntl"))
NO_SPACE = Way("ENOSPC", calls_of("pwrite64", "ftruncate", "open", "mmap"), lasting=True, every=2)
NO_MEMORY = Way("ENOMEM", calls_of("mmap"))
NO_DESCRIPTORS = Way("EMFILE", calls_of("open"))

WAYS = {
    BROKEN: errno.EIO,
    LOCKED: errno.EAGAIN,
    NO_SPACE: errno.ENOSPC,
    NO_MEMORY: errno.ENOMEM,
    NO_DESCRIPTORS: errno.EMFILE,
}


@contextmanager
def faulty_system_calls(injector: Injector) -> Iterator[None]:
    """All of SQLite's calls go through *injector* meanwhile."""
    vfs = apsw.VFS("system calls", base=apsw.vfs_names()[0])
    with ExitStack() as replaced:
        for name, signature in _SIGNATURES.items():
            address = vfs.xGetSystemCall(name)
            if address is None:
                continue
            kind = ctypes.CFUNCTYPE(*signature, use_errno=True)
            call = kind(_faulty(injector, name, kind(address)))
            vfs.xSetSystemCall(name, ctypes.cast(call, _pointer).value or 0)
            replaced.callback(_restore, vfs, name, call)
        yield


def _restore(vfs: apsw.VFS, name: str, call: Any) -> None:
    """*call* must live until now."""
    vfs.xSetSystemCall(name, 0)


def _locks(command: int, argument: int) -> bool:
    """Whether this ``fcntl`` takes a lock: giving one back does not fail."""
    if command not in (fcntl.F_SETLK, fcntl.F_SETLKW):
        return False
    return ctypes.cast(argument, ctypes.POINTER(ctypes.c_short))[0] != fcntl.F_UNLCK


def _faulty(injector: Injector, name: str, original: Any) -> Any:
    failed = -1

    def call(*args: Any) -> Any:
        can_fail = name != "fcntl" or _locks(*args[1:])
        way = injector.pass_(name, "") if can_fail else None
        if way is None:
            return original(*args)
        ctypes.set_errno(WAYS[way])
        return failed if name != "mmap" else ctypes.c_void_p(failed).value

    return call
