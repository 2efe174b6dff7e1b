"""Every snippet of ``docs/zope-plone-pyramid.rst``, used as it stands.

Only paths and what needs a foreign server are replaced: ZEO's address by that
of a server in this process, PostgreSQL by SQLite.
"""

from __future__ import annotations

import atexit
import re
import sys
import textwrap
from collections.abc import Callable
from collections.abc import Iterator
from configparser import BasicInterpolation
from configparser import ConfigParser
from configparser import Interpolation
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from typing import NamedTuple

import pytest
import transaction
import ZConfig
import ZODB

import zodbcache
from zodbcache import config
from zodbcache import zconfig
from zodbcache.zodburi import resolver

PAGE = Path(__file__).parent.parent / "docs" / "zope-plone-pyramid.rst"
TEXT = PAGE.read_text(encoding="utf-8")

SCHEMA = """
<schema>
  <import package="ZODB"/>
  <sectiontype name="zodb_db" extends="zodb" implements="ZODB.database"
               datatype="ZODB.config.ZODBDatabase">
    <multikey name="mount-point" attribute="mount_points" required="yes"/>
  </sectiontype>
  <multisection type="ZODB.database" name="+" attribute="databases"/>
</schema>
"""
"""Of Zope's schema, what the snippets use."""

ADDRESS = "db.example.org:8100"


def snippets(language: str) -> list[str]:
    """The code blocks of the page in *language*, in their order."""
    blocks = re.findall(rf"\.\. code-block:: {language}\n\n((?:    .*\n|\n)+)", TEXT)
    return [textwrap.dedent(block) for block in blocks]


ZEO_CONF, RELSTORAGE_CONF = snippets("xml")
BUILDOUT_ZEO, BUILDOUT_RELSTORAGE, PYRAMID_INI = snippets("ini")
PYRAMID_MAIN, GUNICORN_CONF = snippets("python")


def ini(text: str, interpolation: Interpolation | None = None, **defaults: str) -> ConfigParser:
    parser = ConfigParser(
        defaults, interpolation=interpolation, delimiters=["="], inline_comment_prefixes=None
    )
    parser.read_string(text)
    return parser


def zope_conf(text: str) -> Any:
    """The database that a ``zope.conf`` defines, not open yet."""
    schema = ZConfig.loadSchemaFile(StringIO(SCHEMA))
    [database] = ZConfig.loadConfigFile(schema, StringIO(text))[0].databases
    assert database.config.mount_points == ["/"]
    return database


def on_sqlite(text: str, directory: Path) -> str:
    """*text* with SQLite where PostgreSQL is."""
    found = re.subn(
        r"<postgresql>.*?</postgresql>",
        f"<sqlite3>\ndata-dir {directory}/db\n</sqlite3>",
        text,
        flags=re.DOTALL,
    )
    assert found[1] == 1
    return found[0]


def replaced(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


def use(open_database: Callable[[], Any], directory: Path) -> None:
    """Store something, open the database again and read it; see what is in *directory*."""
    for value in (1, 2):
        db = open_database()
        try:
            assert db.storage.cache_stats()["limit_bytes"] == 200_000_000
            with transaction.manager, db.transaction() as connection:
                assert connection.root().get("value", 1) == value
                connection.root()["value"] = value + 1
        finally:
            db.close()
        assert [path.suffix for path in directory.iterdir()] == [".sqlite3"]
        assert directory.stat().st_mode & 0o777 == 0o700


class Base(NamedTuple):
    """What was seen of a storage when it was wrapped."""

    zeo_cache_bytes: int | None
    relstorage_options: Any


@pytest.fixture
def bases(monkeypatch: pytest.MonkeyPatch) -> list[Base]:
    """The storages that sections and URIs have wrapped."""
    seen: list[Base] = []

    def wrap(base: Any, **options: Any) -> Any:
        cache_bytes = getattr(base._cache, "maxsize", None)
        seen.append(Base(cache_bytes, getattr(base, "_options", None)))
        return zodbcache.wrap(base, **options)

    monkeypatch.setattr(zconfig, "wrap", wrap)
    return seen


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "var").mkdir()
    return tmp_path


@pytest.fixture
def zeo_address(zeo_server: Any) -> str:
    host, port = zeo_server.address
    return f"{host}:{port}"


class TestZope:
    def test_zeo(self, home: Path, zeo_address: str, bases: list[Base]) -> None:
        text = replaced(replaced(ZEO_CONF, "/srv/zope", str(home)), ADDRESS, zeo_address)
        use(zope_conf(text).open, home / "var" / "zodbcache")
        assert [base.zeo_cache_bytes for base in bases] == [1 << 20, 1 << 20]

    def test_relstorage_is_read(self) -> None:
        pytest.importorskip("relstorage")
        section = zope_conf(RELSTORAGE_CONF).config.storage.config
        assert section.cache_local_mb == 200
        assert section.base.config.cache_local_mb == 10
        assert "host='db.example.org'" in section.base.config.adapter.config.dsn

    def test_relstorage(self, home: Path, bases: list[Base]) -> None:
        pytest.importorskip("relstorage")
        text = on_sqlite(replaced(RELSTORAGE_CONF, "/srv/zope", str(home)), home)
        use(zope_conf(text).open, home / "var" / "zodbcache")
        assert [base.relstorage_options.cache_local_mb for base in bases] == [10, 10]
        assert bases[0].relstorage_options.cache_local_dir is None


def as_the_recipe_does(options: Any, storage: str) -> str:
    """The ``zope.conf`` of plone.recipe.zope2instance 9.1 by these options."""
    imports = "\n".join(f"%import {name}" for name in options["zope-conf-imports"].split())
    wrapped = options["storage-wrapper"] % storage
    return f"{imports}\n<zodb_db main>\ncache-size 30000\n{wrapped}\nmount-point /\n</zodb_db>\n"


class TestPlone:
    @pytest.fixture
    def options(self, home: Path) -> Any:
        text = replaced(BUILDOUT_ZEO, "${buildout:directory}", str(home))
        options = ini(text)["instance"]
        assert options["recipe"] == "plone.recipe.zope2instance"
        assert "zodbcache" in options["eggs"].split()
        return options

    def test_zeo(self, options: Any, home: Path, zeo_address: str, bases: list[Base]) -> None:
        assert options["zeo-client"] == "on"
        text = as_the_recipe_does(
            options,
            f"<zeoclient>\nserver {options['zeo-address']}\n"
            f"cache-size {options['zeo-client-cache-size']}\n</zeoclient>",
        )
        text = replaced(text, ADDRESS, zeo_address)
        use(zope_conf(text).open, home / "var" / "zodbcache")
        assert [base.zeo_cache_bytes for base in bases] == [1 << 20, 1 << 20]

    def test_relstorage(self, options: Any, home: Path, bases: list[Base]) -> None:
        pytest.importorskip("relstorage")
        lines = ini(BUILDOUT_RELSTORAGE)["instance"]["rel-storage"].split("\n")
        given = dict(line.split(None, 1) for line in lines if line)
        assert given.pop("type") == "postgresql"
        of_relstorage = [f"{key} {value}" for key, value in given.items() if "-" in key]
        assert len(of_relstorage) == 2
        text = as_the_recipe_does(
            options,
            "%import relstorage\n<relstorage>\n" + "\n".join(of_relstorage) + "\n"
            "<postgresql>\ndsn dbname='zodb'\n</postgresql>\n</relstorage>",
        )
        use(zope_conf(on_sqlite(text, home)).open, home / "var" / "zodbcache")
        assert [base.relstorage_options.cache_local_mb for base in bases] == [10, 10]
        assert bases[0].relstorage_options.keep_history is False


class TestPyramid:
    @pytest.fixture
    def settings(self, home: Path) -> dict[str, str]:
        parser = ini(PYRAMID_INI, BasicInterpolation(), here=str(home))
        settings = {key: value for key, value in parser["app:main"].items() if key != "here"}
        assert set(settings) == {"zodbconn.uri", "zodbconn.uri.sessions"}
        return settings

    def test_postgres_is_resolved(self, settings: dict[str, str]) -> None:
        pytest.importorskip("relstorage")
        _, keywords = resolver(settings["zodbconn.uri"])
        assert keywords == {"connection_cache_size": "20000"}

    def test_relstorage(self, settings: dict[str, str], home: Path, bases: list[Base]) -> None:
        pytest.importorskip("relstorage")
        uri = replaced(
            settings["zodbconn.uri"],
            "postgres://app:secret@db.example.org/zodb?",
            f"sqlite://localhost/?data_dir={home}/db&",
        )
        open_storage, _ = resolver(uri)
        use(lambda: ZODB.DB(open_storage()), home / "var" / "zodbcache")
        assert [base.relstorage_options.cache_local_mb for base in bases] == [10, 10]
        assert bases[0].relstorage_options.keep_history is False

    def test_zeo(
        self, settings: dict[str, str], home: Path, zeo_address: str, bases: list[Base]
    ) -> None:
        open_storage, keywords = resolver(
            replaced(settings["zodbconn.uri.sessions"], ADDRESS, zeo_address)
        )
        assert keywords == {}
        db = ZODB.DB(open_storage())
        try:
            assert db.storage.cache_stats()["limit_bytes"] == 50_000_000
            assert [base.zeo_cache_bytes for base in bases] == [1 << 20]
        finally:
            db.close()
        assert (home / "var" / "zodbcache").is_dir()

    def test_the_demo_uri(self, zeo_address: str) -> None:
        [inner] = re.findall(r"``demo:\((.*)\)/\(memory://\)``", TEXT)
        storage = resolver(replaced(inner, ADDRESS, zeo_address))[0]()
        try:
            assert storage.cache_stats()["limit_bytes"] == 50_000_000
        finally:
            storage.close()

    def test_the_application_closes_its_databases(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("pyramid_zodbconn")
        at_exit: list[Callable[[], None]] = []
        monkeypatch.setattr(atexit, "register", at_exit.append)
        namespace: dict[str, Any] = {}
        exec(PYRAMID_MAIN, namespace)
        application = namespace["main"]({}, **{"zodbconn.uri": f"file://{home}/Data.fs"})
        [close] = at_exit
        assert close == application.registry._zodb_databases[""].close
        close()


class TestGunicorn:
    @pytest.fixture
    def databases(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
        """Two databases of one Zope, which is not there."""
        databases: dict[str, Any] = {}
        for name in ("main", "catalog"):
            open_storage, _ = resolver(
                f"zodbcache+file://{home}/{name}.fs?cache-local-dir={home}/cache&cache-prefix={name}"
            )
            ZODB.DB(open_storage(), databases=databases, database_name=name)
        monkeypatch.setitem(sys.modules, "Zope2", SimpleNamespace(DB=databases["main"]))  # type: ignore[arg-type]
        yield databases
        for db in databases.values():
            db.close()

    def test_a_worker_writes_all_files_as_it_exits(
        self, databases: dict[str, Any], home: Path
    ) -> None:
        assert sorted(databases) == ["catalog", "main"]
        namespace: dict[str, Any] = {}
        exec(GUNICORN_CONF, namespace)
        namespace["worker_exit"](None, None)
        files = [path.name.partition("-")[0] for path in (home / "cache").glob("*.sqlite3")]
        assert sorted(files) == ["catalog", "main"]


class TestTables:
    def test_every_option_is_on_the_page(self) -> None:
        for name in config.OPTIONS:
            assert f"``{name.replace('_', '-')}``" in TEXT

    def test_every_ignored_option_is_said_to_be(self) -> None:
        rows = TEXT.split("   * - ")
        for name in config._IGNORED:
            [row] = [row for row in rows if f"``{name.replace('_', '-')}``" in row]
            assert "ignored with a warning" in row

    def test_every_misplaced_option_is_on_the_page(self) -> None:
        [sentence] = re.findall(r"(?:``[a-z-]+``[,\s]+(?:and )?)+in\s``<cachedstorage>`` are", TEXT)
        assert set(re.findall(r"``([a-z-]+)``", sentence)) == {
            name.replace("_", "-") for name in config._ELSEWHERE
        }
