"""The ZEO server of bench_zodb: a process of its own on a free port of the loopback address.

It serves a new FileStorage in the directory it is given, prints its port,
and ends when its standard input is closed.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import ZEO


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
