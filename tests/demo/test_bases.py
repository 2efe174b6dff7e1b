"""What the demo can run on: each base serves an empty database and leaves nothing running."""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import transaction
import ZODB

import zodbcache
from zodbcache.demo.bases import BASES
from zodbcache.demo.bases import DEFAULT_BASE
from zodbcache.demo.bases import postgresql
from zodbcache.demo.bases import relstorage
from zodbcache.demo.errors import DemoError


def processes_that_name(directory):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # ended in between
            if os.fsencode(directory) in path.read_bytes():
                found.append(int(path.parent.name))
    return found


@pytest.fixture(params=BASES)
def base(request):
    base = BASES[request.param]
    for module in base.modules:
        pytest.importorskip(module)
    return base


@pytest.fixture
def needs_postgresql():
    for module in BASES["postgresql"].modules:
        pytest.importorskip(module)


def test_the_default_is_in_the_table():
    assert DEFAULT_BASE == "zeo"
    assert list(BASES) == ["zeo", "postgresql", "relstorage-sqlite"]


def test_what_one_storage_writes_another_reads(base, enterable_path):
    base = pickle.loads(pickle.dumps(base))  # as the serving process gets it
    with base.serve(enterable_path) as address:
        address = pickle.loads(pickle.dumps(address))  # as the readers get it
        for write in (True, False):
            database = ZODB.DB(address.open_storage())
            with database.transaction() as connection:
                if write:
                    connection.root()["word"] = "stored"
                assert connection.root()["word"] == "stored"
            assert database.storage.getSize() > 0
            database.close()
    if Path("/proc").exists():
        assert processes_that_name(enterable_path) == []


@pytest.mark.parametrize("name", ["postgresql", "relstorage-sqlite"])
def test_relstorage_s_own_cache_is_what_it_says(name):
    pytest.importorskip("relstorage")
    assert BASES[name].own_cache_mb == relstorage.options().cache_local_mb


def test_the_bases_need_nothing_until_they_serve():
    modules = sorted(module for base in BASES.values() for module in base.modules)
    script = (
        "import sys, zodbcache.demo.bases\n"
        f"print([name for name in {modules} if name in sys.modules])"
    )
    output = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(Path(zodbcache.__file__).parent.parent)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert output.strip() == "[]"


@pytest.mark.usefixtures("needs_postgresql")
class TestPostgreSQL:
    def test_it_lets_in_whoever_has_the_password_and_stops_under_a_client(self, enterable_path):
        psycopg2 = importlib.import_module("psycopg2")
        with pytest.raises(ZeroDivisionError), postgresql.BASE.serve(enterable_path) as address:
            assert address.password not in repr(address)
            with pytest.raises(psycopg2.OperationalError, match="password"):
                psycopg2.connect(address.dsn.replace(address.password, "wrong"))
            client = psycopg2.connect(address.dsn)
            raise ZeroDivisionError
        with pytest.raises(psycopg2.OperationalError):
            client.cursor().execute("SELECT 1")
        home = enterable_path / "postgresql"
        assert sorted(path.name for path in home.iterdir()) == ["data", "postgresql.log"]
        assert not (home / "data" / "postmaster.pid").exists()
        assert address.password not in (home / "postgresql.log").read_text()

    def test_a_server_that_does_not_start_says_why(self, enterable_path, monkeypatch):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            monkeypatch.setattr(postgresql, "_free_port", lambda: taken.getsockname()[1])
            with (
                pytest.raises(DemoError, match="could not create any TCP/IP sockets"),
                postgresql.BASE.serve(enterable_path),
            ):
                pytest.fail("it has started")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root runs it by another account")
    def test_root_hears_where_its_account_may_not_enter(self, enterable_path):
        workspace = enterable_path / "closed" / "workspace"
        workspace.mkdir(parents=True)
        (enterable_path / "closed").chmod(0o700)
        enterable_path.chmod(0o711)
        with (
            pytest.raises(DemoError, match=r"may not enter .*closed\. Set TMPDIR"),
            postgresql.BASE.serve(workspace),
        ):
            pytest.fail("it has started")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root runs it by another account")
    def test_root_lets_its_account_pass_and_nobody_else_look(self, enterable_path):
        before = os.umask(0o077)
        try:
            with postgresql.BASE.serve(enterable_path):
                assert enterable_path.stat().st_mode & 0o777 == 0o701
                assert (enterable_path / "postgresql").stat().st_mode & 0o777 == 0o700
        finally:
            os.umask(before)


@pytest.fixture(autouse=True)
def no_transaction_left():
    yield
    transaction.abort()
