"""Damage to a file in use, or between two uses: never a wrong row, never another error (I7)."""

from __future__ import annotations

import logging
import os
import random

import apsw
import pytest
from cachefile_helpers import LATEST
from cachefile_helpers import advance
from cachefile_helpers import execute
from cachefile_helpers import flip
from cachefile_helpers import generation_of
from cachefile_helpers import log_of
from cachefile_helpers import read
from cachefile_helpers import row
from cachefile_helpers import tids

from zodbcache.cachefile import Outcome
from zodbcache.errors import CacheFileError

STATE = b"the state of the object that a byte is flipped in"
TID = 0x0411223344556677


def saved(open_file, *rows, through=TID + 1):
    """The path of a closed file with these rows."""
    cache_file = open_file()
    advance(cache_file, through, *rows)
    cache_file.close()
    return cache_file.path


def offset_of(path, content):
    with open(path, "rb") as stream:
        found = stream.read()
    assert found.count(content) == 1
    return found.index(content)


@pytest.mark.parametrize(
    ("content", "position"),
    [(STATE, 0), (STATE, 20), (STATE, len(STATE) - 1), (TID.to_bytes(8, "big"), 7)],
)
def test_flipped_byte_in_a_row_is_a_miss(open_file, caplog, content, position):
    path = saved(open_file, row(1, 5), row(2, TID, STATE), row(3, 5))
    flip(path, offset_of(path, content) + position)
    cache_file = open_file()
    assert tids(cache_file) == {1: 5, 3: 5}
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 1 and "1 damaged" in messages[0]


def test_flipped_bytes_are_counted_and_said_once(open_file, caplog):
    saved(open_file, *(row(oid, 5) for oid in range(10)))
    cache_file = open_file()
    execute(cache_file.path, "UPDATE record SET state = x'00' WHERE oid < 4")
    with cache_file.snapshot() as snapshot:
        assert len(list(snapshot.rows(LATEST, 10**6))) == 6
        assert snapshot.skipped == 4
    assert len(caplog.records) == 1 and caplog.records[0].levelno == logging.WARNING


def test_wrong_types_are_misses(open_file):
    """The tables are STRICT; only damage to a cell's header makes another type."""
    path = saved(open_file, *(row(oid, 5) for oid in range(5)))
    cache_file = open_file()
    changed = apsw.Connection(path)
    changed.pragma("writable_schema", True)
    changed.execute(
        "UPDATE sqlite_schema SET sql = 'CREATE TABLE record(oid INTEGER PRIMARY KEY, tid,"
        " frequency, checksum, state)' WHERE name = 'record'"
    )
    changed.close()
    execute(
        path,
        "UPDATE record SET tid = x'FF00' WHERE oid = 0",
        "UPDATE record SET state = 12 WHERE oid = 1",
        "UPDATE record SET state = NULL WHERE oid = 2",
        "UPDATE record SET checksum = 'x' WHERE oid = 3",
    )
    assert tids(cache_file) == {4: 5}


@pytest.mark.parametrize("seed", range(40))
def test_flipped_bytes_anywhere(open_file, seed):
    rows = {oid: (5, os.urandom(300)) for oid in range(300)}
    path = saved(open_file, *((oid, tid, 0, state) for oid, (tid, state) in rows.items()))
    chance = random.Random(seed)
    header = seed % 4 == 0
    for _ in range(5):
        flip(path, chance.randrange(100 if header else os.path.getsize(path)))
    try:
        cache_file = open_file()
        checkpoint, found = read(cache_file)
        advance(cache_file, TID + 2, row(1000, 6))
    except CacheFileError as exc:
        assert not exc.recoverable
    else:
        assert checkpoint in (0, TID + 1)
        assert found.items() <= rows.items()
        cache_file.close()
        again = open_file()
        assert read(again)[1].items() <= {**rows, 1000: (6, row(1000, 6)[3])}.items()


def test_damaged_page_ends_the_use_and_closing_heals(open_file, caplog):
    path = saved(open_file, *(row(oid, 5, bytes(1000)) for oid in range(500)))
    connection = apsw.Connection(path)
    page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'record'").get
    connection.close()
    for offset in range(300):
        flip(path, (page - 1) * 16384 + offset)
    cache_file = open_file_unless_emptied(open_file, path)
    with pytest.raises(CacheFileError, match="CorruptError") as caught:
        tids(cache_file)
    assert not caught.value.recoverable
    generation = cache_file._seen_generation
    cache_file.close()
    healed = open_file()
    assert healed.path == path
    assert generation_of(healed) != generation
    assert advance(healed, 5, row(1, 2)).outcome is Outcome.ADVANCED


def open_file_unless_emptied(open_file, path):
    """Open a file whose damage the quick check at open must not see."""
    from zodbcache.cachefile import quarantine

    original, quarantine._check_tier = quarantine._check_tier, lambda *args, **kw: None
    try:
        cache_file = open_file()
    finally:
        quarantine._check_tier = original
    assert cache_file.path == path
    return cache_file


def test_damage_that_somebody_healed_is_not_healed_again(open_file):
    first, second = open_file(), open_file()
    advance(first, 5, row(1, 2))
    first._connection.damaged = second._connection.damaged = True
    tids(second)
    first.close()
    other = open_file()
    advance(other, 6, row(2, 3))
    second.close()
    assert tids(other) == {2: 3}


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_deleted_or_replaced_while_open(open_file, suffix, how):
    cache_file = open_file()
    advance(cache_file, 5, row(1, 2))
    path = cache_file.path + suffix
    with open(path, "rb") as stream:
        content = stream.read()
    os.rename(path, path + ".kept")
    if how == "replaced":
        with open(path, "wb") as stream:
            stream.write(content)
    for use in (tids, lambda file: advance(file, 6, generation=1), lambda file: file.reset(1)):
        with pytest.raises(CacheFileError, match="deleted or replaced") as caught:
            use(cache_file)
        assert not caught.value.recoverable


def test_truncated_while_open(open_file):
    cache_file = open_file()
    advance(cache_file, 5, *(row(oid, 5, bytes(1000)) for oid in range(500)))
    cache_file._connection._sqlite.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    os.truncate(cache_file.path, 16384 * 5)
    cache_file._connection._sqlite.release_memory()
    with pytest.raises(CacheFileError) as caught:
        read(open_file())
        tids(cache_file)
    assert not caught.value.recoverable


def test_lock_is_recoverable(open_file):
    cache_file = open_file(busy_timeout_ms=1)
    holder = apsw.Connection(cache_file.path)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(CacheFileError, match="BusyError") as caught:
        advance(cache_file, 5, row(1, 2))
    assert caught.value.recoverable
    holder.execute("ROLLBACK")
    holder.close()
    assert advance(cache_file, 5, row(1, 2)).outcome is Outcome.ADVANCED


def test_full_disk_is_recoverable(open_file):
    cache_file = open_file()
    advance(cache_file, 5, row(1, 2))
    sqlite = cache_file._connection._sqlite
    pages = sqlite.pragma("page_count")
    sqlite.pragma("max_page_count", pages)
    with pytest.raises(CacheFileError, match="FullError") as caught:
        advance(cache_file, 9, row(2, 8, bytes(100_000)), names=log_of((1, 7)))
    assert caught.value.recoverable
    assert read(cache_file) == (5, {1: (2, row(1, 2)[3])})
    sqlite.pragma("max_page_count", pages + 100)
    assert advance(cache_file, 9, row(2, 8, bytes(100_000))).outcome is Outcome.ADVANCED


def test_closed(open_file):
    cache_file = open_file()
    cache_file.close()
    cache_file.close()
    for use in (tids, lambda file: advance(file, 6, generation=1), lambda file: file.reset(1)):
        with pytest.raises(CacheFileError, match="closed"):
            use(cache_file)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_child_uses_nothing_of_its_parent(open_file):
    cache_file = open_file()
    advance(cache_file, 5, row(1, 2))
    child = os.fork()
    if not child:
        try:
            tids(cache_file)
        except CacheFileError:
            cache_file.close()
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert tids(cache_file) == {1: 2}


def test_rows_end_with_their_snapshot(open_file):
    cache_file = open_file()
    advance(cache_file, 5, row(1, 2), row(2, 3))
    with cache_file.snapshot() as snapshot:
        rows = snapshot.rows(LATEST, 1000)
        next(rows)
    with pytest.raises(AssertionError):
        next(rows)
    assert advance(cache_file, 6).outcome is Outcome.ADVANCED
    assert read(cache_file)[0] == 6
