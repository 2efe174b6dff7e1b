"""Opening and closing: bad bases, bad options, bad files; what is restored is right or nothing."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import stat
import weakref

import apsw
import pytest
from ZODB import DB
from ZODB.DemoStorage import DemoStorage
from ZODB.FileStorage import FileStorage
from ZODB.MappingStorage import MappingStorage
from ZODB.mvccadapter import MVCCAdapter
from ZODB.POSException import POSKeyError
from ZODB.utils import p64

import zodbcache

from .helpers import PERSISTENT
from .helpers import agree
from .helpers import cache_file
from .helpers import commit
from .helpers import hits
from .helpers import now
from .helpers import record
from .helpers import rows
from .helpers import wrap

OIDS = [p64(number) for number in range(1, 21)]
ONE, TWO = OIDS[:2]


def write(storage, word, oids=OIDS):
    return commit(storage, *((oid, record(f"{word} of {oid[-1]} {'x' * 200}")) for oid in oids))


@pytest.fixture
def data_fs(tmp_path):
    return tmp_path / "Data.fs"


@pytest.fixture
def open_storage(data_fs, cache_dir):
    """Opens a FileStorage, cached; all are closed at the end."""
    opened = []

    def opener(path=data_fs, directory=cache_dir, **options):
        opened.append(wrap(FileStorage(str(path)), directory, **options))
        return opened[-1]

    yield opener
    for storage in opened:
        storage.close()


@pytest.fixture
def warnings_of(caplog):
    """The texts of the warnings so far."""
    return lambda: [
        entry.getMessage()
        for entry in caplog.records
        if entry.name.startswith("zodbcache") and entry.levelno >= logging.WARNING
    ]


@pytest.fixture
def saved(open_storage, cache_dir):
    """A database with a cache file; its path."""
    storage = open_storage()
    write(storage, "first")
    storage.close()
    return cache_file(cache_dir)


def works(storage):
    """A storage that takes and gives, whatever has happened to its file."""
    agree(storage, storage._base, OIDS)
    write(storage, "another")
    agree(storage, storage._base, OIDS)
    assert hits(storage, ONE, now(storage)) == 1


class TestRefusals:
    @pytest.mark.parametrize(
        "base",
        [
            None,
            object(),
            "Data.fs",
            {},
            MappingStorage,
            FileStorage,
            MVCCAdapter(MappingStorage()),
            DB(None),
        ],
        ids=lambda base: str(type(base).__name__),
    )
    def test_a_base_that_cannot_be_wrapped(self, base):
        with pytest.raises(zodbcache.ConfigurationError) as caught:
            zodbcache.wrap(base)
        assert caught.value.option is None
        assert "FileStorage" in caught.value.remedy
        assert caught.value.remedy in str(caught.value)

    @pytest.mark.parametrize(
        ("options", "option"),
        [
            ({"cache_local_megabytes": 1}, "cache_local_megabytes"),
            ({"cache-local-mb": -1}, "cache-local-mb"),
            ({"cache_local_dir": 7}, "cache_local_dir"),
            ({"cache_local_mb": "much"}, "cache_local_mb"),
        ],
    )
    def test_an_option_that_cannot_be_used(self, options, option):
        base = MappingStorage()
        with pytest.raises(zodbcache.ConfigurationError) as caught:
            zodbcache.wrap(base, **options)
        assert caught.value.option == option
        assert caught.value.remedy
        zodbcache.wrap(base).close()

    def test_a_mistyped_option_is_guessed(self):
        with pytest.raises(zodbcache.ConfigurationError, match="cache_local_mb"):
            zodbcache.wrap(MappingStorage(), cache_locl_mb=1)


class TestRestart:
    @pytest.mark.parametrize("kind", PERSISTENT)
    def test_what_was_read_is_there_again(self, tmp_path, cache_dir, kind):
        make = PERSISTENT[kind]
        storage = wrap(make(tmp_path), cache_dir)
        write(storage, "first")
        storage.close()
        storage = wrap(make(tmp_path), cache_dir)
        assert storage.cache_stats()["restored"] == len(OIDS)
        assert all(hits(storage, oid, now(storage)) for oid in OIDS)
        agree(storage, storage._base, OIDS)
        storage.close()

    @pytest.mark.parametrize("kind", PERSISTENT)
    def test_what_changed_meanwhile_is_not(self, tmp_path, cache_dir, kind):
        make = PERSISTENT[kind]
        storage = wrap(make(tmp_path), cache_dir)
        write(storage, "first")
        storage.close()
        base = make(tmp_path)
        write(base, "second", OIDS[:5])
        base.close()
        storage = wrap(make(tmp_path), cache_dir)
        before = now(storage)
        assert [hits(storage, oid, before) for oid in OIDS] == [0] * 5 + [1] * 15
        agree(storage, storage._base, OIDS)
        storage.close()

    def test_nothing_new_writes_nothing(self, open_storage, saved):
        contents = saved.read_bytes()
        storage = open_storage()
        agree(storage, storage._base, OIDS[:1])
        storage.close()
        assert saved.read_bytes() == contents

    def test_much_asking_is_something_new(self, open_storage, saved):
        contents = saved.read_bytes()
        storage = open_storage()
        agree(storage, storage._base, OIDS)
        storage.close()
        assert saved.read_bytes() != contents

    def test_in_memory_nothing_survives(self, open_storage, tmp_path, data_fs):
        storage = open_storage(directory=None)
        write(storage, "first")
        storage.close()
        before = set(tmp_path.iterdir())
        storage = open_storage(directory=None)
        assert storage.cache_stats()["entries"] == 0
        assert set(tmp_path.iterdir()) - before <= {data_fs.with_name("Data.fs.lock")}
        storage.close()

    def test_the_directory_is_private(self, saved):
        """I8."""
        assert stat.S_IMODE(saved.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(saved.stat().st_mode) == 0o600

    def test_a_smaller_memory_takes_what_it_can(self, open_storage, cache_dir, data_fs):
        storage = open_storage()
        for start in range(0, 200, 20):
            write(storage, "x" * 5000, [p64(100 + start + number) for number in range(20)])
        storage.close()
        base = FileStorage(str(data_fs))
        storage = zodbcache.wrap(base, cache_local_mb=1, cache_local_dir=cache_dir)
        stats = storage.cache_stats()
        assert 0 < stats["entries"] < 200
        assert stats["used_bytes"] <= stats["limit_bytes"]
        agree(storage, storage._base, [p64(100), p64(299)])
        storage.close()


class TestClosing:
    def test_twice(self, storage):
        commit(storage, (ONE, record(1)))
        storage.close()
        storage.close()

    def test_closes_the_base(self, cache_dir):
        base = MappingStorage()
        wrap(base, cache_dir).close()
        assert not base.opened()

    def test_lets_go_of_the_memory(self, open_storage):
        storage = open_storage()
        write(storage, "first")
        storage.close()
        assert storage.cache_stats()["entries"] == 0

    def test_an_empty_database(self, open_storage):
        open_storage().close()
        storage = open_storage()
        works(storage)
        storage.close()

    def test_a_base_that_fails_to_close(self, cache_dir, data_fs, open_storage):
        storage = open_storage()
        write(storage, "first")
        original = storage._base.close

        def failing():
            original()
            raise OSError("cannot close")

        storage._base.close = failing
        with pytest.raises(OSError, match="cannot close"):
            storage.close()
        del storage._base.close
        again = open_storage()
        assert again.cache_stats()["restored"] == len(OIDS), "saved before"
        again.close()


class TestUnusableDirectory:
    """I7: a warning, once, and a cache in memory."""

    @pytest.fixture(params=["a file", "below a file", "the cache file is a directory"])
    def directory(self, request, tmp_path, saved):
        blocked = tmp_path / "blocked"
        if request.param == "a file":
            blocked.write_bytes(b"in the way")
            return blocked
        if request.param == "below a file":
            blocked.write_bytes(b"in the way")
            return blocked / "cache"
        blocked.mkdir()
        for sequence in range(8):
            (blocked / saved.name.replace(".0.", f".{sequence}.")).mkdir()
        return blocked

    def test_goes_on_in_memory(self, open_storage, directory, warnings_of, caplog):
        caplog.clear()
        storage = open_storage(directory=directory)
        assert any("memory only" in text for text in warnings_of())
        told = len(warnings_of())
        works(storage)
        storage.pack(0, lambda *args: [])
        storage.close()
        assert len(warnings_of()) == told, "once"


class TestBadFile:
    @pytest.mark.parametrize("length", [0, 1, 100, 5000, 100_000])
    def test_garbage(self, open_storage, saved, length):
        saved.write_bytes(os.urandom(length))
        storage = open_storage()
        assert storage.cache_stats()["restored"] == 0
        works(storage)
        storage.close()
        storage = open_storage()
        assert storage.cache_stats()["restored"] == len(OIDS), "healed, or another name taken"
        works(storage)

    @pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
    def test_truncated(self, open_storage, saved, share):
        os.truncate(saved, int(share * saved.stat().st_size))
        storage = open_storage()
        works(storage)
        storage.close()
        works(open_storage())

    def test_a_byte_flipped_in_a_state(self, open_storage, saved):
        contents = bytearray(saved.read_bytes())
        at = contents.index(b"first of 7 ")
        contents[at] ^= 0x20
        saved.write_bytes(contents)
        storage = open_storage()
        assert storage.cache_stats()["restored"] == len(OIDS) - 1
        assert hits(storage, p64(7), now(storage)) == 0
        works(storage)

    def test_a_byte_flipped_anywhere(self, open_storage, saved):
        """A few bytes of every page: nothing fails, nothing is wrong."""
        contents = saved.read_bytes()
        step = max(len(contents) // 40, 1)
        for at in range(3, len(contents), step):
            flipped = bytearray(contents)
            flipped[at] ^= 0xFF
            for path in saved.parent.iterdir():
                path.unlink()
            saved.write_bytes(flipped)
            storage = open_storage()
            agree(storage, storage._base, OIDS)
            storage.close()

    @pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
    def test_garbage_beside_it(self, open_storage, saved, suffix):
        saved.with_name(saved.name + suffix).write_bytes(os.urandom(40_000))
        storage = open_storage()
        works(storage)

    @pytest.mark.parametrize("what", ["removed", "replaced", "truncated"])
    def test_while_open(self, open_storage, saved, what):
        storage = open_storage()
        if what == "truncated":
            os.truncate(saved, 0)
        else:
            saved.unlink()
        if what == "replaced":
            saved.write_bytes(b"something else")
        works(storage)
        storage.close()
        works(open_storage())


class TestAnotherDatabase:
    def test_two_in_one_directory(self, open_storage, tmp_path):
        paths = [tmp_path / "one.fs", tmp_path / "two.fs"]
        storages = [open_storage(path) for path in paths]
        for storage, word in zip(storages, ("one", "two"), strict=True):
            write(storage, word)
        for storage in storages:
            storage.close()
        storages = [open_storage(path) for path in paths]
        for storage, word in zip(storages, (b"one", b"two"), strict=True):
            assert storage.cache_stats()["restored"] == len(OIDS)
            assert word in storage.loadBefore(ONE, now(storage))[0]
            agree(storage, storage._base, OIDS)

    def test_a_link_to_it_is_the_same(self, open_storage, saved, tmp_path, data_fs):
        link = tmp_path / "link.fs"
        link.symlink_to(data_fs)
        storage = open_storage(link)
        assert storage.cache_stats()["restored"] == len(OIDS)

    def test_prefixes_keep_apart(self, open_storage, saved):
        storage = open_storage(cache_prefix="other")
        assert storage.cache_stats()["restored"] == 0
        agree(storage, storage._base, OIDS)

    def test_the_file_of_another_under_this_one_s_name(self, open_storage, saved, tmp_path):
        other = open_storage(tmp_path / "Other.fs", tmp_path / "other")
        write(other, "other")
        other.close()
        shutil.copyfile(cache_file(tmp_path / "other"), saved)
        storage = open_storage()
        assert storage.cache_stats()["restored"] == 0
        works(storage)

    def test_another_database_under_this_one_s_name(self, open_storage, saved, tmp_path, data_fs):
        for when in ("older", "newer"):
            other = FileStorage(str(tmp_path / f"{when}.fs"))
            write(other, when)
            other.close()
            shutil.copyfile(tmp_path / f"{when}.fs", data_fs)
            data_fs.with_name("Data.fs.index").unlink(missing_ok=True)
            storage = open_storage()
            assert storage.cache_stats()["restored"] == 0
            works(storage)
            storage.close()

    def test_a_new_and_empty_one(self, open_storage, saved, data_fs):
        data_fs.unlink()
        data_fs.with_name("Data.fs.index").unlink()
        storage = open_storage()
        with pytest.raises(POSKeyError):
            storage.loadBefore(ONE, p64(2**62))
        works(storage)

    def test_demostorages_of_one_name(self, tmp_path, cache_dir):
        def make(name):
            return wrap(
                DemoStorage(
                    name="demo",
                    base=FileStorage(str(tmp_path / f"{name}.base")),
                    changes=FileStorage(str(tmp_path / f"{name}.changes")),
                ),
                cache_dir,
            )

        for name in ("one", "two"):
            base = FileStorage(str(tmp_path / f"{name}.base"))
            write(base, name)
            base.close()
        one, two = make("one"), make("two")
        commit(two, (TWO, record("two")))
        two.loadBefore(ONE, now(two))
        commit(one, (TWO, record("one")))
        two.close()
        one.close()
        one = make("one")
        found, expected = (storage.loadBefore(ONE, now(one)) for storage in (one, one._base))
        one.close()
        assert found == expected


class TestBackups:
    """A database that lost some of what the file was proven by."""

    @pytest.fixture
    def backup(self, saved, data_fs, tmp_path):
        """The database as it was when the file was written first."""
        return shutil.copyfile(data_fs, tmp_path / "backup")

    def put_back(self, backup, data_fs):
        shutil.copyfile(backup, data_fs)
        data_fs.with_name("Data.fs.index").unlink(missing_ok=True)

    def lose(self, open_storage, oids):
        """Commit what the backup will not have, and save it."""
        storage = open_storage()
        agree(storage, storage._base, OIDS)
        write(storage, "lost", oids)
        storage.close()

    def test_restored(self, open_storage, backup, data_fs):
        self.lose(open_storage, OIDS[:5])
        self.put_back(backup, data_fs)
        storage = open_storage()
        assert b"first" in storage.loadBefore(ONE, now(storage))[0]
        works(storage)

    @pytest.mark.parametrize("lost", [[ONE], OIDS[:5], OIDS], ids=len)
    @pytest.mark.parametrize(
        "then", [[ONE], [TWO], OIDS[3:8], OIDS[10:], OIDS, [p64(99)]], ids=lambda oids: oids[0][-1]
    )
    def test_restored_and_gone_past_the_checkpoint(self, open_storage, backup, data_fs, lost, then):
        self.lose(open_storage, lost)
        self.put_back(backup, data_fs)
        base = FileStorage(str(data_fs))
        for _ in range(3):
            write(base, "then", then)
        base.close()
        for _ in range(2):  # the second time from what the first has written
            storage = open_storage()
            agree(storage, storage._base, [*OIDS, p64(99)])
            for oid in OIDS:
                word = b"then" if oid in then else b"first"
                assert word in storage.loadBefore(oid, now(storage))[0]
            storage.close()

    @pytest.mark.parametrize("seed", range(8))
    def test_two_copies_that_diverged(self, open_storage, backup, data_fs, tmp_path, seed):
        """Each is opened in turn under the same name, with the same file."""
        copies = [shutil.copyfile(backup, tmp_path / name) for name in ("left", "right")]
        for turn in range(6):
            copy = copies[(turn + (seed >> 1)) % 2]
            self.put_back(copy, data_fs)
            storage = open_storage()
            agree(storage, storage._base, OIDS)
            for part in range(2):
                start = (seed * 7 + turn * 5 + part * 3) % 15
                write(storage, f"{copy.name}{turn}", OIDS[start : start + 1 + seed % 5])
            agree(storage, storage._base, OIDS)
            storage.close()
            if seed % 2 and turn % 2:
                base = FileStorage(str(data_fs))
                write(base, "past the cache", OIDS[turn : turn + 3])
                base.close()
            shutil.copyfile(data_fs, copy)

    def test_a_copy_changed_before_the_checkpoint_of_the_other(
        self, open_storage, backup, data_fs, tmp_path
    ):
        """What lies between what both share and the checkpoint is of the other's history."""
        right = FileStorage(str(shutil.copyfile(backup, tmp_path / "right.fs")))
        write(right, "right", [TWO])  # before the left one's checkpoint
        self.lose(open_storage, [ONE])
        write(right, "right", [ONE])  # so that no witness refutes
        right.close()
        shutil.copyfile(tmp_path / "right.fs", data_fs)
        data_fs.with_name("Data.fs.index").unlink()
        open_storage().close()  # reads nothing: what it leaves in the file was there before
        for _ in range(2):
            storage = open_storage()
            agree(storage, storage._base, OIDS)
            assert b"right" in storage.loadBefore(TWO, now(storage))[0]
            storage.close()

    def test_an_older_cache_file(self, open_storage, saved, tmp_path):
        """The other way round: the file comes from a backup, the database does not."""
        old = shutil.copyfile(saved, tmp_path / "old.sqlite3")
        self.lose(open_storage, OIDS[:5])
        shutil.copyfile(old, saved)
        storage = open_storage()
        assert [hits(storage, oid, now(storage)) for oid in OIDS] == [0] * 5 + [1] * 15
        works(storage)


class TestFork:
    """I9."""

    def in_child(self, task):
        """Run *task* in a forked child; return what it returned as text."""
        receiving, sending = os.pipe()
        pid = os.fork()
        if pid == 0:  # pragma: no cover
            try:
                answer = str(task())
            except BaseException as error:
                answer = repr(error)
            os.write(sending, answer.encode())
            os._exit(0)
        os.close(sending)
        with os.fdopen(receiving) as stream:
            answer = stream.read()
        os.waitpid(pid, 0)
        return answer

    def files(self, directory):
        """What the files are, without opening one: that would take the parent's locks away.

        The index of the WAL is mapped anew by the parent after each fork.
        """
        stats = {path.name: path.stat() for path in directory.iterdir()}
        return {
            name: (
                found.st_ino,
                found.st_size,
                None if name.endswith("-shm") else found.st_mtime_ns,
            )
            for name, found in stats.items()
        }

    @pytest.fixture
    def storage(self, open_storage):
        """Its file has everything, and memory some things more."""
        storage = open_storage()
        write(storage, "first")
        storage._persistence.save()
        assert len(rows(storage)) == len(OIDS)
        write(storage, "second", OIDS[:5])
        return storage

    def test_closing_in_the_child_leaves_the_file_alone(self, storage, cache_dir):
        before = self.files(cache_dir)

        def task():
            storage._base.close = lambda: None  # the parent's database is not the question
            storage.close()

        assert self.in_child(task) == "None"
        assert self.files(cache_dir) == before
        assert len(rows(storage)) == len(OIDS)
        storage._persistence.save()
        assert len(rows(storage)) == len(OIDS)
        agree(storage, storage._base, OIDS)

    def test_packing_in_the_child_leaves_the_file_alone(self, storage, cache_dir):
        before = self.files(cache_dir)

        def task():
            storage._base.pack = lambda *args: None
            storage._base.close = lambda: None
            storage.pack(0, lambda *args: [])
            storage.close()

        assert self.in_child(task) == "None"
        assert self.files(cache_dir) == before
        assert len(rows(storage)) == len(OIDS)

    def test_reading_in_the_child(self, storage):
        before = now(storage)
        assert self.in_child(lambda: hits(storage, ONE, before)) == "1"
        assert "POSKeyError" in self.in_child(lambda: storage.loadBefore(p64(99), before))

    def test_no_connection_is_open_at_a_fork(self, storage):
        """SQLite would believe to hold in the child the locks that the parent has."""
        inherited = storage._persistence._file._connection._sqlite

        def task():
            with pytest.raises(apsw.ConnectionClosedError):
                inherited.execute("SELECT 1")
            return storage._persistence._file

        assert self.in_child(task) == "None"
        assert storage._persistence.is_settled
        storage._persistence.save()
        assert len(rows(storage)) == len(OIDS)
        agree(storage, storage._base, OIDS)

    def test_a_connection_in_use_at_a_fork_is_not_closed_in_the_child(self, storage, monkeypatch):
        """To close it there could take the parent's locks away."""
        monkeypatch.setattr("zodbcache.attachment.FORK_SECONDS", 0)
        inherited = weakref.ref(storage._persistence._file._connection._sqlite)

        def task():
            storage._base.close = lambda: None
            storage.close()
            gc.collect()
            return inherited() is not None and not inherited().in_transaction

        with storage._persistence._using:
            assert self.in_child(task) == "True"
        storage._persistence.save()
        assert len(rows(storage)) == len(OIDS)
        agree(storage, storage._base, OIDS)

    def test_the_parent_s_log_is_not_the_child_s(self):
        """What a child commits to its own copy does not reach the parent."""
        storage = wrap(MappingStorage())
        write(storage, "second")
        before = now(storage)

        def task():
            write(storage, "child", [ONE])
            return b"child" in storage.loadBefore(ONE, now(storage))[0]

        assert self.in_child(task) == "True"
        assert now(storage) == before
        assert b"second" in storage.loadBefore(ONE, before)[0]
