"""What each thread writes down: one JSON object a line, complete even if the process is killed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from typing import NamedTuple


def now() -> int:
    """Nanoseconds on a clock that all processes share."""
    return time.monotonic_ns()


class Read(NamedTuple):
    """*tid*: 0 where the object was said not to exist."""

    oid: int
    tid: int
    checksum: int


class Journal:
    """One thread's.  Lines:

    - ``view``: an instance has polled; ``changed`` is what it was told, None for everything.
    - ``reads``: in that view.  ``may_move``: the view may have moved on before them;
      ``floor``: at least to this tid.
    - ``trying``: a commit is about to be made.  ``committed``: it was.
    - ``failed``: an error that is to be expected, such as a conflict or a lost connection.
    - ``broken``: one that is not.
    - ``did``: an event that is only counted.
    - ``stats``: the process's cache_stats() at its end; ``is_silent``: see plan.Life.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, event: str, **values: Any) -> None:
        line = json.dumps({"event": event, **values}, separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a journal; without the last if its writer was killed while writing it."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)
