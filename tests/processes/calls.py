"""The calls by which SQLite changes files, one by one.

What a process has written when it is killed is what these calls had written:
a kill at each of them is every kill that can be told apart afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apsw

_NAME = "zodbcache-test-calls"

AtCall = Callable[[str, str], None]
"""``f(what, path)``, called just before it happens."""


class Calls(apsw.VFS):
    """All connections of this process that are opened while it lives go through it.

    Every write is made in two halves, and both are told.
    """

    def __init__(self, at_call: AtCall) -> None:
        self._at_call = at_call
        self._below = apsw.vfs_names()[0]
        super().__init__(_NAME, self._below, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        self._at_call("open", path)
        return _File(self._at_call, path, self._below, name, flags)

    def xDelete(self, path: str, sync_directory: bool) -> None:
        self._at_call("delete", path)
        super().xDelete(path, sync_directory)


class _File(apsw.VFSFile):
    def __init__(self, at_call: AtCall, path: str, below: str, name: Any, flags: list[int]) -> None:
        self._at_call = at_call
        self._path = path
        super().__init__(below, name, flags)

    def xWrite(self, data: Any, offset: int) -> None:
        half = len(data) // 2
        self._at_call("write", self._path)
        super().xWrite(data[:half], offset)
        self._at_call("write the rest", self._path)
        super().xWrite(data[half:], offset + half)

    def xTruncate(self, size: int) -> None:
        self._at_call("truncate", self._path)
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        self._at_call("sync", self._path)
        super().xSync(flags)

    def xClose(self) -> None:
        self._at_call("close", self._path)
        super().xClose()
