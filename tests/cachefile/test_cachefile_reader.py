"""Single rows: of one snapshot, sound, renewed while read, let go of when idle."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest
from cachefile_helpers import advance
from cachefile_helpers import execute
from cachefile_helpers import generation_of
from cachefile_helpers import log_of
from cachefile_helpers import row

from zodbcache.cachefile import reader as readers
from zodbcache.errors import CacheFileError

X, Y, Z = 7, 8, 40


@pytest.fixture
def filled(cache_file):
    """x@5, y@8, z@3 at checkpoint 10."""
    advance(cache_file, 10, row(X, 5, frequency=4), row(Y, 8), row(Z, 3))
    return cache_file


@pytest.fixture
def reader(filled):
    with closing(filled.reader()) as reader:
        yield reader


def oids(found):
    return [oid for oid, _, _, _ in found.rows]


def test_a_row_with_its_checkpoint(filled, reader):
    assert reader.read(X) == (10, generation_of(filled), [row(X, 5, frequency=4)])


def test_what_is_not_there(reader):
    assert reader.read(9).rows == []
    assert reader.read(-1).checkpoint == 10


def test_rows_ahead(reader):
    assert oids(reader.read(X, ahead=32)) == [X, Y]
    assert oids(reader.read(X, ahead=33)) == [X, Y, Z]
    assert oids(reader.read(X, ahead=1)) == [X]
    assert oids(reader.read(X + 2, ahead=32)) == [Z]


def test_row_and_checkpoint_are_of_one_snapshot(filled, reader):
    """Schedule 2: whoever holds a snapshot sees its checkpoint, too."""
    assert reader.read(X).checkpoint == 10
    advance(filled, 20, row(X, 19), names=log_of((X, 19)))
    found = reader.read(X)
    assert (found.checkpoint, found.rows[0][1]) == (10, 5)
    reader.renew()
    found = reader.read(X)
    assert (found.checkpoint, found.rows[0][1]) == (20, 19)


def test_a_snapshot_in_use_is_renewed(filled, reader, monkeypatch):
    monkeypatch.setattr(readers, "RENEW_SECONDS", 0.0)
    assert reader.read(X).checkpoint == 10
    advance(filled, 20, row(X, 19), names=log_of((X, 19)))
    assert reader.read(X).checkpoint == 20


def test_an_idle_snapshot_is_ended(filled, monkeypatch):
    monkeypatch.setattr(readers, "IDLE_SECONDS", 0.0)
    with closing(filled.reader()) as reader:
        reader.read(X)
        timer = reader._timer
        if timer is not None:
            timer.join()
        assert not reader._connection._sqlite.in_transaction
        assert oids(reader.read(X)) == [X]


def test_an_emptied_file_has_another_generation(filled, reader):
    before = reader.read(X).generation
    filled.reset(generation_of(filled))
    reader.renew()
    found = reader.read(X)
    assert found.rows == []
    assert found.generation > before


def test_a_damaged_row_is_left_out(filled, reader, caplog):
    execute(filled.path, f"UPDATE record SET state = x'00' WHERE oid = {X}")
    reader.renew()
    assert oids(reader.read(X, ahead=32)) == [Y]
    assert "damaged" in caplog.text


def test_a_damaged_checkpoint_is_an_error(filled, reader):
    execute(filled.path, "UPDATE tier SET checkpoint = 99")
    reader.renew()
    with pytest.raises(CacheFileError, match="checksum"):
        reader.read(X)
    assert reader.is_damaged


def test_a_replaced_file_is_an_error(filled, reader):
    Path(filled.path).rename(filled.path + ".away")
    reader.renew()
    with pytest.raises(CacheFileError, match="replaced"):
        reader.read(X)


def test_a_save_does_not_hold_up_a_read(filled, reader):
    """The writer is in the middle of its transaction."""
    seen = []

    def rows():
        seen.append(reader.read(Y).checkpoint)
        yield row(X, 15)

    filled.advance(20, generation_of(filled), log_of((X, 15)), rows(), [])
    reader.renew()
    assert seen == [10]
    assert reader.read(X).checkpoint == 20


def test_closed(filled):
    reader = filled.reader()
    reader.read(X)
    reader.close()
    reader.close()
    with pytest.raises(CacheFileError):
        reader.read(X)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_reads_nothing_and_lets_go(reader):
    """I9."""
    reader.read(X)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            reader.abandon()
            reader.read(X)
        except CacheFileError:
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert oids(reader.read(X)) == [X]
