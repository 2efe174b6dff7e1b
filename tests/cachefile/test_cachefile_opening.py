"""Where the file is, who may read it, and what opening makes of what it finds (I7, I8)."""

from __future__ import annotations

import errno
import logging
import os
import stat
import subprocess
import sys

import apsw
import pytest
from cachefile_helpers import advance
from cachefile_helpers import execute
from cachefile_helpers import generation_of
from cachefile_helpers import read
from cachefile_helpers import row
from cachefile_helpers import tids

from zodbcache.cachefile import CacheFile
from zodbcache.cachefile import Outcome
from zodbcache.cachefile import faults
from zodbcache.cachefile import schema
from zodbcache.cachefile.quarantine import NAMES_TRIED
from zodbcache.cachefile.quarantine import file_name
from zodbcache.errors import CacheFileError


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


class TestNames:
    def test_default(self, cache_file):
        assert os.path.basename(cache_file.path) == "zodbcache-238702cf8bbe67bd.0.sqlite3"

    def test_another_database_has_another_file(self, open_file):
        assert open_file(identity="a").path != open_file(identity="b").path

    @pytest.mark.parametrize(
        "prefix", ["../up", "a/b", "a\0b", ".hidden", "-x", "ä", "x" * 500, ""]
    )
    def test_prefix_is_safe(self, prefix):
        name = file_name(identity="x", prefix=prefix, sequence=3)
        assert name == os.path.basename(name)
        assert name.isascii() and "\0" not in name and name[0] not in ".-" and len(name) < 128
        assert name.endswith(".3.sqlite3")

    def test_prefixes_that_look_alike_stay_apart(self):
        names = {
            file_name(identity="x", prefix=p, sequence=0) for p in ("a/b", "a_b", "a.b", "a b")
        }
        assert len(names) == 4


class TestPermissions:
    def test_made_here(self, directory, cache_file):
        old_umask = os.umask(0)
        try:
            advance(cache_file, 5, row(1, 2))
        finally:
            os.umask(old_umask)
        assert mode(directory) == 0o700
        found = {name: mode(directory / name) for name in os.listdir(directory)}
        assert len(found) == 3
        assert set(found.values()) == {0o600}

    def test_existing_directory_keeps_its_mode(self, directory, open_file):
        directory.mkdir(mode=0o755)
        before = mode(directory)
        open_file()
        assert mode(directory) == before

    def test_parents_are_made(self, tmp_path):
        CacheFile.open(tmp_path / "a" / "b", identity="x", limit_bytes=1000).close()
        assert mode(tmp_path / "a" / "b") == 0o700
        assert mode(tmp_path / "a") == 0o777 & ~_umask()


def _umask():
    current = os.umask(0)
    os.umask(current)
    return current


class TestSchema:
    def test_header(self, cache_file):
        connection = apsw.Connection(cache_file.path)
        assert connection.pragma("application_id") == schema.APPLICATION_ID
        assert connection.pragma("user_version") == schema.VERSION == 2
        assert connection.pragma("page_size") == 8192
        assert connection.pragma("auto_vacuum") == 2, "incremental"
        assert connection.pragma("journal_mode") == "wal"
        connection.close()

    def test_each_fault_of_sqlite_says_what_to_do(self):
        for name in dir(apsw):
            kind = getattr(apsw, name)
            if isinstance(kind, type) and issubclass(kind, apsw.Error):
                error = faults.translate(kind("details"), "/path", "read")
                assert error.remedy and "details" in error.cause and "/path" in str(error)

    @pytest.mark.parametrize(
        ("exc", "recoverable"),
        [
            (apsw.BusyError(), True),
            (apsw.FullError(), True),
            (apsw.CorruptError(), False),
            (OSError(errno.ENOSPC, "full"), True),
            (OSError(errno.EACCES, "forbidden"), False),
        ],
    )
    def test_what_may_heal_by_itself(self, exc, recoverable):
        assert faults.translate(exc, "/path", "read").recoverable is recoverable

    def test_interrupted_creation_is_taken_up(self, directory, open_file):
        first = open_file()
        first.close()
        os.remove(first.path)
        execute(first.path, "PRAGMA page_size = 16384", "PRAGMA journal_mode = wal")
        second = open_file()
        assert second.path == first.path
        assert advance(second, 5, row(1, 2)).outcome is Outcome.ADVANCED

    def test_zero_length_is_new(self, directory, open_file):
        first = open_file()
        first.close()
        os.truncate(first.path, 0)
        second = open_file()
        assert second.path == first.path
        assert read(second) == (0, {})


class TestUnusableName:
    """What is not ours, or cannot be opened, stays as it is; the next name is taken."""

    def path_of(self, open_file):
        cache_file = open_file()
        cache_file.close()
        return cache_file.path

    def assert_next_name(self, open_file, caplog, path, *, cause):
        cache_file = open_file()
        assert cache_file.path == path.replace(".0.", ".1.")
        assert advance(cache_file, 5, row(1, 2)).outcome is Outcome.ADVANCED
        assert len(warnings(caplog)) == 1
        assert path in warnings(caplog)[0] and cause in warnings(caplog)[0]

    def test_not_a_database(self, open_file, caplog):
        path = self.path_of(open_file)
        with open(path, "wb") as stream:
            stream.write(b"something else" * 5000)
        self.assert_next_name(open_file, caplog, path, cause="NotADBError")
        with open(path, "rb") as stream:
            assert stream.read() == b"something else" * 5000

    def test_truncated(self, open_file, caplog):
        path = self.path_of(open_file)
        os.truncate(path, 20_000)
        self.assert_next_name(open_file, caplog, path, cause="CorruptError")
        assert os.path.getsize(path) == 20_000

    def test_directory(self, open_file, caplog):
        path = self.path_of(open_file)
        os.remove(path)
        os.mkdir(path)
        self.assert_next_name(open_file, caplog, path, cause="CantOpenError")
        assert os.path.isdir(path)

    @pytest.mark.parametrize("setup", ["PRAGMA application_id = 7", "PRAGMA user_version = 3", ""])
    def test_database_of_something_else(self, open_file, caplog, setup):
        path = self.path_of(open_file)
        os.remove(path)
        execute(path, "CREATE TABLE record(oid, tid)", "INSERT INTO record VALUES (1, 2)", setup)
        with open(path, "rb") as stream:
            before = stream.read()
        self.assert_next_name(open_file, caplog, path, cause="something else")
        with open(path, "rb") as stream:
            assert stream.read() == before

    def test_newer_version(self, open_file, caplog):
        path = self.path_of(open_file)
        execute(path, f"PRAGMA user_version = {schema.VERSION + 1}", "CREATE TABLE later(x)")
        self.assert_next_name(open_file, caplog, path, cause="newer version")

    def test_deleted_under_its_users(self, open_file, caplog):
        user = open_file()
        advance(user, 5, row(1, 2))
        os.remove(user.path)
        self.assert_next_name(open_file, caplog, user.path, cause="was deleted")

    def test_all_names_unusable(self, directory, open_file):
        path = self.path_of(open_file)
        os.remove(path)
        for sequence in range(NAMES_TRIED):
            os.mkdir(path.replace(".0.", f".{sequence}."))
        with pytest.raises(CacheFileError, match="cannot be used") as caught:
            open_file()
        assert not caught.value.recoverable

    def test_locked_condemns_no_name(self, directory, open_file):
        path = self.path_of(open_file)
        holder = apsw.Connection(path)
        holder.pragma("locking_mode", "exclusive")
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(CacheFileError, match="BusyError") as caught:
            open_file(busy_timeout_ms=1)
        holder.close()
        assert caught.value.recoverable
        assert sorted(os.listdir(directory)) == [os.path.basename(path)]
        assert open_file().path == path


class TestMalformed:
    """What is ours and malformed is emptied where it is."""

    @pytest.mark.parametrize(
        "damage",
        [
            "UPDATE tier SET checkpoint = 9",
            "UPDATE tier SET generation = generation - 1",
            "DELETE FROM tier",
            "DROP TABLE tier",
            "DROP TABLE record",
            "DROP TABLE witness",
            "ALTER TABLE record ADD COLUMN more ANY",
            "CREATE TRIGGER t AFTER INSERT ON record BEGIN DELETE FROM record; END",
            "CREATE VIEW v AS SELECT * FROM record",
            "PRAGMA user_version = 0",
        ],
    )
    def test_emptied_in_place(self, open_file, caplog, damage):
        first = open_file()
        advance(first, 5, row(1, 2))
        first.close()
        inode = os.stat(first.path).st_ino
        execute(first.path, damage)
        second = open_file()
        assert second.path == first.path and os.stat(second.path).st_ino == inode
        assert read(second) == (0, {})
        assert generation_of(second) > 1
        assert len(warnings(caplog)) == 1 and "Emptied damaged" in warnings(caplog)[0]
        assert advance(second, 5, row(1, 2)).outcome is Outcome.ADVANCED
        second.close()
        assert tids(open_file()) == {1: 2}

    def test_process_that_uses_it_stops(self, open_file):
        user = open_file()
        advance(user, 5, row(1, 2))
        execute(user.path, "UPDATE tier SET checkpoint = 9")
        other = open_file()
        advance(other, 6, row(2, 6))
        try:
            result = advance(user, 7, row(3, 7), generation=1)
        except CacheFileError as exc:
            assert not exc.recoverable
        else:
            assert result.outcome is Outcome.STALE_GENERATION
        user.close()
        assert tids(other) == {2: 6}

    def test_another_databases_file_under_our_name(self, open_file, caplog):
        first = open_file()
        advance(first, 5, row(1, 2))
        ours = first.path
        first.close()
        foreign = open_file(identity="foreign")
        advance(foreign, 5, row(1, 3))
        foreign.close()
        os.replace(foreign.path, ours)
        again = open_file()
        assert (again.path, read(again), generation_of(again)) == (ours, (0, {}), 2)
        assert len(warnings(caplog)) == 1


class TestUnusableDirectory:
    def test_it_is_a_file(self, tmp_path):
        (tmp_path / "cache").write_text("a file")
        with pytest.raises(CacheFileError, match="cache-local-dir") as caught:
            CacheFile.open(tmp_path / "cache", identity="x", limit_bytes=1000)
        assert not caught.value.recoverable

    def test_below_a_file(self, tmp_path):
        (tmp_path / "cache").write_text("a file")
        with pytest.raises(CacheFileError, match="cache-local-dir"):
            CacheFile.open(tmp_path / "cache" / "below", identity="x", limit_bytes=1000)

    def test_read_only(self, directory):
        directory.mkdir(mode=0o500)
        if os.access(directory, os.W_OK):
            pytest.skip("this user may write to a read-only directory")
        with pytest.raises(CacheFileError, match="cache-local-dir"):
            CacheFile.open(directory, identity="x", limit_bytes=1000)

    def test_creation_refused(self, directory, monkeypatch):
        def refuse(*args):
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr("zodbcache.cachefile.connection.os.open", refuse)
        with pytest.raises(CacheFileError, match="cache-local-dir") as caught:
            CacheFile.open(directory, identity="x", limit_bytes=1000)
        assert not caught.value.recoverable


def test_processes_that_create_it_at_once_share_it(directory):
    script = (
        "import sys; sys.stdin.read(1)\n"
        "from zodbcache.cachefile import CacheFile\n"
        "oid = int(sys.argv[2])\n"
        "f = CacheFile.open(sys.argv[1], identity='shared', limit_bytes=10**6)\n"
        "f.advance(5, 1, lambda since: [], [(oid, 2, 0, b'x')], [])\n"
        "f.close()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(directory), str(oid)],
            stdin=subprocess.PIPE,
            env=environment,
        )
        for oid in range(6)
    ]
    for process in processes:
        process.stdin.write(b"x")
        process.stdin.flush()
    assert [process.wait() for process in processes] == [0] * 6
    for process in processes:
        process.stdin.close()
    cache_file = CacheFile.open(directory, identity="shared", limit_bytes=10**6)
    assert tids(cache_file) == dict.fromkeys(range(6), 2)
    cache_file.close()
    assert len(os.listdir(directory)) == 1
