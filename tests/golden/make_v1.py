"""Make ``v1.sqlite3``, a cache file of format version 1 with fixed contents.

Run once, when version 1 was the present one; the file is kept so that every
later version proves that it reads it.  Do not make it anew: the present code
would make a file of its own version.

    python make_v1.py DIRECTORY
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from zodbcache.cachefile import CacheFile

IDENTITY = "golden"
CHECKPOINT = 0x0400000000000009
WITNESSES = [(7, CHECKPOINT), (2, 0x0400000000000005)]
#: oid, tid, frequency, state
ROWS = [
    (-1, 0x0400000000000003, 15, b"an oid above 2**63"),
    (0, 0x0400000000000001, 9, b"the root"),
    (1, 0x0400000000000002, 0, b""),
    (2, 0x0400000000000005, 3, bytes(range(256)) * 100),
]


def main(directory: str) -> None:
    cache_file = CacheFile.open(directory, identity=IDENTITY, limit_bytes=1_000_000)
    cache_file.advance(CHECKPOINT, 1, lambda since: [], ROWS, WITNESSES)
    cache_file.close()
    shutil.copy(cache_file.path, Path(__file__).with_name("v1.sqlite3"))


if __name__ == "__main__":
    main(sys.argv[1])
