"""A ZEO server in a process of its own: ``serve Data.fs port``.

Prints its port, and serves until it is killed or its input is closed.
"""

from __future__ import annotations

import logging
import os
import sys

import ZEO


def main() -> None:
    logging.getLogger().addHandler(logging.NullHandler())  # clients that die are no news
    path, port = sys.argv[1], int(sys.argv[2])
    os.chdir(os.path.dirname(path))  # ZEO.server() writes its configuration here
    (_, port), _ = ZEO.server(path=path, port=port)
    print(port, flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
