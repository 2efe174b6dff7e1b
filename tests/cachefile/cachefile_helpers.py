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


def query(path, sql, bindings=()):
    """Rows of the file as another program sees it."""
    connection = apsw.Connection(str(path))
    try:
        return list(connection.execute(sql, bindings))
    finally:
        connection.close()


def frequencies(cache_file):
    """``{oid: frequency}`` as a restore would get them."""
    with cache_file.snapshot() as snapshot:
        return {oid: frequency for oid, _, frequency, _ in snapshot.rows(LATEST, ALL_BYTES)}


def check_totals(path):
    """What ``tier`` says of the rows, and that no frequency outlived its row."""
    counted = query(path, "SELECT count(*), ifnull(sum(octet_length(state)), 0) FROM record")
    assert query(path, "SELECT row_count, state_bytes FROM tier") == counted
    assert query(path, "SELECT oid FROM heat WHERE oid NOT IN (SELECT oid FROM record)") == []


def make_version_1(path):
    """What the first version would have left.  No connection may be open."""
    execute(
        path,
        "PRAGMA synchronous = off",
        "PRAGMA journal_mode = delete",
        "DROP TABLE heat",
        "PRAGMA user_version = 1",
        "PRAGMA page_size = 16384",
        "PRAGMA auto_vacuum = 0",
        "VACUUM",
        "PRAGMA journal_mode = wal",
    )


def flip(path, offset):
    """Flip all the bits of one byte.  No connection of this process may be open."""
    with open(path, "r+b") as stream:
        stream.seek(offset)
        byte = stream.read(1)
        stream.seek(offset)
        stream.write(bytes([byte[0] ^ 0xFF]))
