"""Schedules 10 and 12 of the design: databases that lose a part of their history."""

from __future__ import annotations

import shutil
from pathlib import Path
from time import time
from typing import Any

import pytest
from processes.children import Server
from ZEO.ClientStorage import ClientStorage
from ZODB.FileStorage import FileStorage
from ZODB.POSException import POSKeyError
from ZODB.utils import p64
from ZODB.utils import u64

import zodbcache

from .stepping import commit

OIDS = list(range(1, 21))
CHANGED, ALSO_CHANGED = [1, 2, 3], [4, 5, 6]


def opened(path: Path) -> Any:
    return zodbcache.wrap(
        FileStorage(str(path)),
        cache_local_mb=1,
        cache_local_dir=str(path.parent / "cache"),
        cache_write_seconds=0,
    )


def read_all(storage: Any) -> dict[int, bytes]:
    """Each object where a new connection is, and that it is what the base has."""
    found = {}
    before = p64(u64(storage.lastTransaction()) + 1)
    for oid in OIDS:
        answer = storage.loadBefore(p64(oid), before)
        assert answer == storage._base.loadBefore(p64(oid), before), oid
        found[oid] = answer[0]
    return found


def warmth(storage: Any) -> int:
    """How many of all objects are hits when read, each read being right."""
    hits: int = storage.cache_stats()["hits"]
    read_all(storage)
    now: int = storage.cache_stats()["hits"]
    return now - hits


def saved(path: Path, *words: bytes) -> None:
    """A process commits all objects at each word, reads them, and closes."""
    storage = opened(path)
    for word in words:
        commit(storage, OIDS, word)
    read_all(storage)
    storage.close()


# Schedule 10


@pytest.mark.parametrize("commits", [0, 1, 3])
def test_older_backup_is_restored_and_commits_pass_the_old_checkpoint(
    tmp_path: Path, commits: int
) -> None:
    """A backup, a change, a saved file; the backup again, and *commits* on it, unseen by us."""
    path, backup = tmp_path / "Data.fs", tmp_path / "backup.fs"
    saved(path, b"first")
    shutil.copy(path, backup)
    storage = opened(path)
    lost = commit(storage, CHANGED, b"lost")
    assert read_all(storage)[CHANGED[0]] == b"lost"
    storage.close()

    restore(backup, path)
    base = FileStorage(str(path))
    for number in range(commits):
        assert commit(base, ALSO_CHANGED, b"since %d" % number) > lost
    base.close()

    storage = opened(path)
    found = read_all(storage)
    assert found[CHANGED[0]] == b"first"
    assert found[ALSO_CHANGED[0]] == (b"since %d" % (commits - 1) if commits else b"first")
    assert found == read_all(storage)
    storage.close()
    storage = opened(path)
    assert warmth(storage) == len(OIDS)
    storage.close()


def restore(backup: Path, path: Path) -> None:
    shutil.copy(backup, path)
    Path(f"{path}.index").unlink(missing_ok=True)


def test_objects_that_both_histories_changed(tmp_path: Path) -> None:
    """After the backup is restored the same objects are changed again, and to something else."""
    path, backup = tmp_path / "Data.fs", tmp_path / "backup.fs"
    saved(path, b"first")
    shutil.copy(path, backup)
    storage = opened(path)
    commit(storage, CHANGED, b"lost")
    commit(storage, ALSO_CHANGED, b"lost")
    read_all(storage)
    storage.close()
    restore(backup, path)
    base = FileStorage(str(path))
    commit(base, CHANGED, b"since")
    base.close()

    storage = opened(path)
    found = read_all(storage)
    assert found[CHANGED[0]] == b"since"
    assert found[ALSO_CHANGED[0]] == b"first"
    storage.close()


def test_two_copies_that_have_diverged(tmp_path: Path) -> None:
    """Copies of one database, changed apart, are opened in turn under one path."""
    path = tmp_path / "Data.fs"
    copies = [tmp_path / "here.fs", tmp_path / "there.fs"]
    saved(path, b"first")
    for copy in copies:
        shutil.copy(path, copy)
    words = [b"here", b"there"]
    for turn in range(4):
        which = turn % 2
        restore(copies[which], path)
        storage = opened(path)
        assert read_all(storage)[CHANGED[0]] == (words[which] if turn > 1 else b"first")
        commit(storage, CHANGED, words[which])
        assert read_all(storage)[CHANGED[0]] == words[which]
        storage.close()
        shutil.copy(path, copies[which])


def test_copies_whose_commits_interleave(tmp_path: Path) -> None:
    """There: y at 11.  Here: x at 12, saved.  There: x at 13.  Then there is opened here."""
    path, there = tmp_path / "Data.fs", tmp_path / "there.fs"
    saved(path, b"first")
    shutil.copy(path, there)
    storage, base = opened(path), FileStorage(str(there))
    early = commit(base, ALSO_CHANGED, b"there")
    checkpoint = commit(storage, CHANGED, b"here")
    late = commit(base, CHANGED, b"there")
    assert early < checkpoint < late
    read_all(storage)
    storage.close()
    base.close()
    restore(there, path)
    storage = opened(path)
    found = read_all(storage)
    assert found[CHANGED[0]] == found[ALSO_CHANGED[0]] == b"there"
    assert storage.cache_stats()["restored"] > 0, "what both have in common is warm"
    storage.close()


# Schedule 12


def all_but_newest(state: bytes, oids: list[bytes] | None = None) -> list[bytes]:
    """Whatever is reached, the root first, refers to every object except the newest."""
    found = [p64(oid) for oid in OIDS]
    if oids is not None:
        oids.extend(found)
    return found


NEWEST = 99


def collect_newest(base: Any) -> None:
    """What a pack by another client does on the database itself."""
    base.pack(time() + 1, all_but_newest)
    with pytest.raises(POSKeyError):
        base.load(p64(NEWEST), "")


def test_newest_object_is_collected_by_another(tmp_path: Path) -> None:
    """The newest transaction goes with its object, past a living process; then a restart."""
    path = tmp_path / "Data.fs"
    storage = opened(path)
    commit(storage, [0], b"root")
    commit(storage, OIDS, b"first")
    newest = commit(storage, [NEWEST], b"newest")
    read_all(storage)
    assert storage.loadBefore(p64(NEWEST), p64(newest + 1))[0] == b"newest"
    collect_newest(storage._base)
    assert warmth(storage) == len(OIDS), "the living process is not disturbed"
    storage.close()

    storage = opened(path)
    assert u64(storage.lastTransaction()) < newest
    with pytest.raises(POSKeyError):
        storage.loadBefore(p64(NEWEST), p64(newest + 1))
    assert warmth(storage) == len(OIDS)
    storage.close()


def test_newest_object_is_collected_and_others_change(tmp_path: Path) -> None:
    """As before, and the living process commits after the pack: the file passes the gap."""
    path = tmp_path / "Data.fs"
    storage = opened(path)
    commit(storage, [0], b"root")
    commit(storage, OIDS, b"first")
    commit(storage, [NEWEST], b"newest")
    read_all(storage)
    collect_newest(storage._base)
    commit(storage, CHANGED, b"second")
    assert read_all(storage)[CHANGED[0]] == b"second"
    storage.close()

    storage = opened(path)
    assert warmth(storage) == len(OIDS)
    assert storage.load(p64(CHANGED[0]), "")[0] == b"second"
    storage.close()


def test_newest_object_is_collected_through_another_zeo_client(tmp_path: Path) -> None:
    """The server's pack is announced to nobody; then server and client start again."""
    path = tmp_path / "Data.fs"
    base = FileStorage(str(path))
    commit(base, [0], b"root")
    commit(base, OIDS, b"first")
    newest = commit(base, [NEWEST], b"newest")
    base.close()
    server = Server(path)
    try:
        storage = over_zeo(server, tmp_path)
        read_all(storage)
        assert storage.loadBefore(p64(NEWEST), p64(newest + 1))[0] == b"newest"
        storage.close()
        server.kill()
        base = FileStorage(str(path))
        collect_newest(base)
        base.close()
        server.start()
        storage = over_zeo(server, tmp_path)
        with pytest.raises(POSKeyError):
            storage.loadBefore(p64(NEWEST), p64(newest + 1))
        assert warmth(storage) == len(OIDS)
        storage.close()
    finally:
        server.kill()


def over_zeo(server: Server, directory: Path) -> Any:
    storage = zodbcache.wrap(
        ClientStorage(("127.0.0.1", server.port)),
        cache_local_mb=1,
        cache_local_dir=str(directory / "cache"),
        cache_write_seconds=0,
    )
    storage._caretaker.wait()
    return storage


def test_own_pack_forgets_at_once(tmp_path: Path) -> None:
    """A pack through the wrapper: what it collected is served by nobody, here or after."""
    path = tmp_path / "Data.fs"
    storage = opened(path)
    commit(storage, [0], b"root")
    commit(storage, OIDS, b"first")
    newest = commit(storage, [NEWEST], b"newest")
    commit(storage, CHANGED, b"second")  # keeps the file's last transaction
    storage.close()
    storage = opened(path)
    assert storage.cache_stats()["restored"] > len(OIDS)
    storage.pack(time() + 1, all_but_newest)
    with pytest.raises(POSKeyError):
        storage.loadBefore(p64(NEWEST), p64(newest + 1))
    read_all(storage)
    storage.close()
    storage = opened(path)
    with pytest.raises(POSKeyError):
        storage.loadBefore(p64(NEWEST), p64(newest + 1))
    read_all(storage)
    storage.close()
