"""Make ``v2.sqlite3``, a cache file of format version 2 with fixed contents.

Run once, when version 2 was the present one; the file is kept so that every
later version proves that it reads it.  Do not make it anew.

    python make_v2.py DIRECTORY
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from zodbcache.cachefile import CacheFile

IDENTITY = "golden"
CHECKPOINT = 0x0400000000000009
AGE = 1
WITNESSES = [(7, CHECKPOINT), (2, 0x0400000000000005)]
#: oid, tid, frequency, state; as they were written
ROWS = [
    (-1, 0x0400000000000003, 15, b"an oid above 2**63"),
    (0, 0x0400000000000001, 9, b"the root"),
    (1, 0x0400000000000002, 0, b""),
    (2, 0x0400000000000005, 3, bytes(range(256)) * 100),
]
#: oid: frequency; after a trim, and after some were asked for again
FREQUENCIES = {-1: 14, 0: 13, 1: 1, 2: 2}
#: Of no value: the trim takes it.
BALLAST = (3, 0x0400000000000004, 0, bytes(20_000))
LIMIT_BYTES = 30_000


def main(directory: str) -> None:
    cache_file = CacheFile.open(directory, identity=IDENTITY, limit_bytes=LIMIT_BYTES)
    cache_file.advance(CHECKPOINT, 1, lambda since: [], [*ROWS, BALLAST], WITNESSES)
    assert cache_file.trim() == 1
    cache_file.warm(1, [(0, ROWS[1][1], 5), (1, ROWS[2][1], 1)])
    cache_file.close()
    shutil.copy(cache_file.path, Path(__file__).with_name("v2.sqlite3"))


if __name__ == "__main__":
    main(sys.argv[1])
