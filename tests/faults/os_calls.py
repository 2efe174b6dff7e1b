"""Calls of Python's ``os`` on one directory's files that fail as an injector says."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from .injector import Injector
from .vfs import FULL

FAILING = ("mkdir", "open", "stat", "lstat")


@contextmanager
def faulty_os_calls(injector: Injector, directory: os.PathLike[str]) -> Iterator[None]:
    """The calls that name *directory*, or a file in it, go through *injector* meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        for name in FAILING:
            patch.setattr(os, name, _faulty(injector, os.fspath(directory), name))
        yield


def _faulty(injector: Injector, directory: str, name: str) -> Callable[..., Any]:
    original = getattr(os, name)

    def call(path: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(directory):
            way = injector.pass_(f"os.{name}", os.path.basename(os.fspath(path)))
            if way is not None:
                code = errno.ENOSPC if way is FULL else errno.EIO
                raise OSError(code, os.strerror(code), os.fspath(path))
        return original(path, *args, **kwargs)

    return call
