"""What several tests of the cache file need."""

from __future__ import annotations

import apsw

ALL_BYTES = 10**12
LATEST = 2**63 - 1


def no_names(since):
    return []


def log_of(*names):
    """A log that starts at 0 and names these (oid, tid)."""
    return lambda since: [name for name in names if name[1] > since]


def log_too_short(since):
    return None


def row(oid, tid, state=None, frequency=0):
    return oid, tid, frequency, b"state of %d at %d" % (oid, tid) if state is None else state


def advance(cache_file, through, *rows, names=no_names, generation=None, witnesses=()):
    if generation is None:
        with cache_file.snapshot() as snapshot:
            generation = snapshot.generation
    return cache_file.advance(through, generation, names, iter(rows), list(witnesses))


def read(cache_file, through=LATEST, limit_bytes=ALL_BYTES):
    """``(checkpoint, {oid: (tid, state)})`` of one snapshot."""
    with cache_file.snapshot() as snapshot:
        found = list(snapshot.rows(through, limit_bytes))
        assert len(found) == len({row[0] for row in found}), "I6"
        return snapshot.checkpoint, {oid: (tid, state) for oid, tid, _, state in found}


def tids(cache_file):
    return {oid: tid for oid, (tid, _) in read(cache_file)[1].items()}


def generation_of(cache_file):
    with cache_file.snapshot() as snapshot:
        return snapshot.generation


def execute(path, *statements):
    """Change the file behind the cache's back."""
    connection = apsw.Connection(str(path))
    try:
        for sql in statements:
            for _ in connection.execute(sql):
                pass
    finally:
        connection.close()


def flip(path, offset):
    """Flip all the bits of one byte.  No connection of this process may be open."""
    with open(path, "r+b") as stream:
        stream.seek(offset)
        byte = stream.read(1)
        stream.seek(offset)
        stream.write(bytes([byte[0] ^ 0xFF]))
