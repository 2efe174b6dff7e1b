"""``kill -9`` of a real process (schedule 11): the file is as before or as after."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from cachefile_helpers import advance
from cachefile_helpers import log_of
from cachefile_helpers import read
from cachefile_helpers import row
from cachefile_helpers import tids

from zodbcache.cachefile import Outcome

SCRIPT = """
import sys
from zodbcache.cachefile import CacheFile

def wait():
    print("here", flush=True)
    sys.stdin.read()

def rows(moment):
    for oid in range(10, 3000):
        if moment == "inside" and oid == 2000:
            wait()
        yield oid, 8, 0, bytes(500)

directory, identity, moment = sys.argv[1:]
file = CacheFile.open(directory, identity=identity, limit_bytes=10**8)
file.advance(9, 1, lambda since: [(1, 7)], rows(moment), [(1, 7)])
wait()
"""

BEFORE = {1: 2, 2: 3}
AFTER = {2: 3, **dict.fromkeys(range(10, 3000), 8)}


@pytest.mark.parametrize("with_another_process", [False, True])
@pytest.mark.parametrize(("moment", "expected"), [("inside", BEFORE), ("committed", AFTER)])
def test_killed(directory, open_file, moment, expected, with_another_process):
    cache_file = open_file(limit_bytes=10**8)
    advance(cache_file, 5, row(1, 2), row(2, 3))
    if not with_another_process:
        cache_file.close()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(directory), cache_file.identity, moment],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout.readline() == b"here\n"
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()
    if not with_another_process:
        cache_file = open_file(limit_bytes=10**8)
    assert tids(cache_file) == expected
    assert read(cache_file)[0] == (5 if moment == "inside" else 9)
    result = advance(cache_file, 12, row(4, 11), names=log_of((1, 7), (2, 12)))
    assert result.outcome is Outcome.ADVANCED
    assert {1, 2} & tids(cache_file).keys() == set()
    assert read(cache_file)[0] == 12
