"""What a base is: a kind of database that the demo can serve and open."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from typing import Protocol


class Address(Protocol):
    """Where a database is served, as the demo's processes tell each other: pickled."""

    def open_storage(self) -> Any:
        """A new storage on it, without zodbcache; whoever asks closes it.

        Its own cache is as small as it may be, so that it is not what is
        measured.
        """


@dataclass(frozen=True)
class Base:
    """A kind of database.  Pickled, too: *serve* is a function of a module.

    *name*: what ``--base`` calls it.  *title*: what objects are read from.
    *modules*: what must be importable to serve and open it.
    *own_cache_mb*: what the storage's own cache is set to, in units of
    1,000,000 bytes; *own_cache_remark*: that, and why, for the user.
    *serve*: a new database with all its files in the directory given, served
    in the ``with`` block.  Called in a process of its own, which has seconds
    to leave the block and is then killed with all its children.  Raises
    DemoError.
    """

    name: str
    title: str
    modules: tuple[str, ...]
    own_cache_mb: float
    own_cache_remark: str
    serve: Callable[[Path], AbstractContextManager[Address]]
