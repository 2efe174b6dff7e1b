"""Another process that does to a cache file what it is asked to: ``onlooker path``.

One line ``[command, argument]`` at a time, each answered with one line.  Only
another process may copy the file: to close a copied file drops all locks that
a process has on it.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import apsw


class Onlooker:
    """Every public method is a command."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: apsw.Connection | None = None

    def look(self, _: None) -> object:
        """``[checkpoint, [[oid, tid], ...]]`` of one moment; null if there is nothing to be seen.

        It never waits for a lock, and stays connected, as a worker does.
        """
        if self._connection is None:
            if not self._path.exists():
                return None
            self._connection = apsw.Connection(str(self._path))
        try:
            with self._connection as connection:
                if not connection.pragma("user_version"):  # it comes with the tables
                    return None
                (checkpoint,) = connection.execute("SELECT checkpoint FROM tier").fetchone()
                return checkpoint, connection.execute("SELECT oid, tid FROM record").fetchall()
        except apsw.BusyError:
            return None

    def copy(self, directory: str) -> None:
        """What a process leaves behind that is killed now."""
        Path(directory).mkdir(parents=True)
        for file in self._path.parent.iterdir():
            if not file.name.endswith("-shm"):
                shutil.copy(file, directory)


def main() -> None:
    onlooker = Onlooker(Path(sys.argv[1]))
    for line in sys.stdin:
        command, argument = json.loads(line)
        print(json.dumps(getattr(onlooker, command)(argument)), flush=True)


if __name__ == "__main__":
    main()
