"""Real processes that come, go and are killed over one database and one cache file."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from signal import SIGKILL
from signal import SIGTERM

import pytest
from ZODB.FileStorage import FileStorage
from ZODB.utils import p64
from ZODB.utils import u64

from .children import WAIT_SECONDS
from .children import Application
from .children import Child
from .children import ask
from .children import close
from .children import gate

OIDS = list(range(1, 201))
HALF = OIDS[::2]
REST = OIDS[1::2]


def read_right(child: Child, expected: dict[int, str]) -> dict[str, int]:
    """Read everything once; return what that added to the statistics."""
    before = ask(child, "stats")
    answer = ask(child, "read", list(expected))
    assert answer["wrong"] == []
    assert answer["words"] == {str(oid): word for oid, word in expected.items()}
    after = ask(child, "stats")
    return {name: after[name] - before[name] for name in ("hits", "misses")}


def check_file(application: Application) -> dict[int, int]:
    """I1, I6: sound, and every row what the database has at the checkpoint; ``{oid: tid}``."""
    with contextlib.closing(sqlite3.connect(application.cache_file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        ((checkpoint, row_count),) = connection.execute("SELECT checkpoint, row_count FROM tier")
        rows = connection.execute("SELECT oid, tid, state FROM record").fetchall()
    assert len(rows) == row_count
    database = FileStorage(str(application.path), read_only=True)
    try:
        assert checkpoint <= u64(database.lastTransaction())
        for oid, tid, state in rows:
            found = database.loadBefore(p64(oid), p64(checkpoint + 1))
            assert found is not None and found[:2] == (state, p64(tid)), oid
    finally:
        database.close()
    return {oid: tid for oid, tid, _ in rows}


def filled(application: Application) -> dict[int, str]:
    """A database, and a cache file that has all of it; return the words."""
    words = dict.fromkeys(OIDS, "first")
    application.commit(words)
    child = application.open()
    assert read_right(child, words) == {"hits": 0, "misses": len(OIDS)}
    close(child)
    assert len(check_file(application)) == len(OIDS)
    return words


def test_next_process_is_warm(application: Application) -> None:
    words = filled(application)
    child = application.open()
    assert ask(child, "stats")["restored"] == len(OIDS)
    assert read_right(child, words) == {"hits": len(OIDS), "misses": 0}
    close(child)
    assert len(check_file(application)) == len(OIDS)


@pytest.mark.parametrize("transactions", [1, len(HALF), 2 * len(HALF)])
def test_half_of_the_objects_changed_while_down(
    application: Application, transactions: int
) -> None:
    """In one transaction, and in as many as the server's queue holds, and in more."""
    words = filled(application)
    child = application.open(is_cached=False)
    ask(child, "commit_often", [HALF, transactions])
    if transactions == 1:
        ask(child, "commit", dict.fromkeys(HALF, "second"))
    new = ask(child, "read", HALF)["words"]
    close(child)
    words |= {int(oid): word for oid, word in new.items()}
    assert "first" not in new.values()

    child = application.open()
    assert read_right(child, words) == {"hits": len(REST), "misses": len(HALF)}
    assert read_right(child, words) == {"hits": len(OIDS), "misses": 0}
    close(child)
    assert len(check_file(application)) == len(OIDS)


def test_reading_after_a_change_closes_right(application: Application) -> None:
    """A warm process commits over what it restored; the file has the new revisions."""
    words = filled(application)
    child = application.open()
    ask(child, "commit", dict.fromkeys(HALF, "second"))
    words |= dict.fromkeys(HALF, "second")
    assert read_right(child, words)["misses"] == 0
    close(child)
    assert len(check_file(application)) == len(OIDS)
    child = application.open()
    assert read_right(child, words) == {"hits": len(OIDS), "misses": 0}
    close(child)


def test_four_close_at_the_same_moment(zeo: Application) -> None:
    """Each has read a part, and committed some, so that each knows something else."""
    words = dict.fromkeys(OIDS, "first")
    zeo.commit(words)
    reader, writer = gate()
    children = [zeo.start(pass_fds=[reader]) for _ in range(4)]
    for number, child in enumerate(children):
        assert child.hear() == "open"
        ask(child, "read", OIDS[number * 40 : number * 40 + 80])
        changed = dict.fromkeys(OIDS[number * 50 : number * 50 + 10], f"by {number}")
        ask(child, "commit", changed)
        words |= changed
    for child in children:
        assert ask(child, "close_together", reader) == "ready"
    os.close(reader)
    os.close(writer)
    for child in children:
        assert child.hear() is None
        assert child.end() == 0
    held = check_file(zeo)
    assert len(held) > 40

    child = zeo.open()
    assert read_right(child, words) == {"hits": len(held), "misses": len(OIDS) - len(held)}
    close(child)
    assert len(check_file(zeo)) == len(OIDS)
    child = zeo.open()
    assert read_right(child, words) == {"hits": len(OIDS), "misses": 0}
    close(child)


def test_one_commits_while_others_read_and_close(zeo: Application) -> None:
    words = filled(zeo)
    writer, *readers = [zeo.open() for _ in range(4)]
    writer.say(["commit_often", [HALF, 400]])
    for number, reader in enumerate(readers):
        reader.say(["read_often", [OIDS, 4 * (number + 1)]])
    for reader in readers:
        assert reader.hear()["wrong"] == []
        close(reader)
        check_file(zeo)
    writer.hear()
    words |= {oid: str(300 + number) for number, oid in enumerate(HALF)}
    read_right(writer, words)
    close(writer)
    check_file(zeo)
    child = zeo.open()
    assert read_right(child, words)["hits"] >= len(REST)
    close(child)


def test_killed_after_reading(application: Application) -> None:
    """It has read and committed, and saved nothing of that."""
    words = filled(application)
    child = application.open()
    ask(child, "commit", dict.fromkeys(HALF, "second"))
    words |= dict.fromkeys(HALF, "second")
    read_right(child, words)
    child.kill()
    assert len(check_file(application)) == len(OIDS)

    child = application.open()
    assert read_right(child, words) == {"hits": len(REST), "misses": len(HALF)}
    close(child)
    assert len(check_file(application)) == len(OIDS)


@pytest.mark.parametrize("writes", [0, 5])
@pytest.mark.parametrize("signal", [SIGKILL, SIGTERM])
def test_killed_while_saving(application: Application, writes: int, signal: int) -> None:
    """What changed is deleted and what is new is there, but not all of it is in the file."""
    words = filled(application)
    before = check_file(application)
    child = application.open()
    ask(child, "commit", dict.fromkeys(HALF, "second"))
    words |= dict.fromkeys(HALF, "second")
    read_right(child, words)
    assert ask(child, "close_half", writes) == "halted"
    child.signal(signal)
    assert child.end() == -signal
    assert check_file(application) == before, "as if nothing had been written"

    child = application.open()
    assert read_right(child, words) == {"hits": len(REST), "misses": len(HALF)}
    close(child)
    assert len(check_file(application)) == len(OIDS)


def test_killed_while_saving_with_another_alive(zeo: Application) -> None:
    """The other process reads on, saves what it knows, and finds no lock held."""
    words = filled(zeo)
    other = zeo.open()
    child = zeo.open()
    ask(child, "commit", dict.fromkeys(HALF, "second"))
    words |= dict.fromkeys(HALF, "second")
    assert ask(child, "close_half", 5) == "halted"
    read_right(other, words)
    child.kill()
    read_right(other, words)
    close(other)
    assert len(check_file(zeo)) == len(OIDS)
    child = zeo.open()
    assert read_right(child, words) == {"hits": len(OIDS), "misses": 0}
    close(child)


def test_ended_without_closing(application: Application) -> None:
    """Many applications never close their storages."""
    words = dict.fromkeys(OIDS, "first")
    application.commit(words)
    child = application.open()
    read_right(child, words)
    assert child.end() == 0
    assert len(check_file(application)) == len(OIDS)


def wait_for_writes(child: Child, count: int) -> None:
    """Until the process has written so many rows."""
    deadline = time.monotonic() + WAIT_SECONDS
    while ask(child, "stats")["file_writes"] < count:
        assert time.monotonic() < deadline


def test_killed_after_writing_behind(application: Application) -> None:
    """Nothing is lost that was written before; no saving, no closing."""
    words = dict.fromkeys(OIDS, "first")
    application.commit(words)
    child = application.open(cache_write_seconds=0.01)
    read_right(child, words)
    wait_for_writes(child, len(OIDS))
    ask(child, "commit", dict.fromkeys(HALF, "second"))
    words |= dict.fromkeys(HALF, "second")
    wait_for_writes(child, len(OIDS) + len(HALF))
    child.kill()
    assert len(check_file(application)) == len(OIDS)
    child = application.open()
    assert read_right(child, words) == {"hits": len(OIDS), "misses": 0}
    close(child)


def test_server_goes_away_and_comes_back(zeo: Application) -> None:
    """Its database changes meanwhile; what did not change is warm, then and after a restart."""
    words = filled(zeo)
    child = zeo.open()
    assert zeo.server is not None
    zeo.server.kill()
    offline = Application(zeo.path.parent, is_zeo=False)
    offline.commit(dict.fromkeys(HALF, "second"))
    words |= dict.fromkeys(HALF, "second")
    zeo.server.start()
    ask(child, "reconnect")
    assert read_right(child, words) == {"hits": len(REST), "misses": len(HALF)}
    assert read_right(child, words) == {"hits": len(OIDS), "misses": 0}
    close(child)
    assert len(check_file(zeo)) == len(OIDS)
    child = zeo.open()
    assert read_right(child, words) == {"hits": len(OIDS), "misses": 0}
    close(child)


def test_closing_while_the_server_is_away(zeo: Application) -> None:
    words = filled(zeo)
    child = zeo.open()
    ask(child, "commit", dict.fromkeys(HALF, "second"))
    words |= dict.fromkeys(HALF, "second")
    assert zeo.server is not None
    zeo.server.kill()
    close(child)
    assert len(check_file(zeo)) == len(OIDS)
    zeo.server.start()
    child = zeo.open()
    assert read_right(child, words) == {"hits": len(OIDS), "misses": 0}
    close(child)
