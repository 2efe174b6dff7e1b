"""A ZEO server for the benchmarks: a process of its own on a free port of the loopback address.

Run as a script it serves a new FileStorage in the directory it is given,
prints its port, and ends when its standard input is closed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import ZEO

STOP_TIMEOUT_S = 10.0


@contextlib.contextmanager
def running(directory: Path) -> Iterator[int]:
    """A server with an empty database in *directory*, whose port this is."""
    server = subprocess.Popen(
        [sys.executable, __file__, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        yield int(server.stdout.readline())
    finally:
        server.stdin.close()
        try:
            server.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def main() -> None:
    directory = Path(sys.argv[1])
    # That it closes while clients are leaving is no news.
    logging.getLogger("ZEO").setLevel(logging.CRITICAL)
    os.chdir(directory)  # ZEO.server() writes its configuration to the working directory
    (_, port), stop = ZEO.server(path=str(directory / "Data.fs"))
    print(port, flush=True)
    sys.stdin.read()
    stop()


if __name__ == "__main__":
    main()
