"""``zodbcache+`` URIs: who gets which part of the query, and what is refused in which words."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transaction
import ZODB
from ZODB.FileStorage import FileStorage

import zodbcache
from zodbcache import zconfig
from zodbcache.config import CacheOptions
from zodbcache.errors import ConfigurationError
from zodbcache.zodburi import RESOLVERS
from zodbcache.zodburi import resolver

zodburi = pytest.importorskip("zodburi")

SCHEMES = ["file", "memory", "mysql", "oracle", "postgres", "postgresql", "sqlite", "zeo"]
ENTRY_POINTS = {
    "zodbcache": "zodbcache.zodburi:resolver",
    **{f"zodbcache+{scheme}": "zodbcache.zodburi:resolver" for scheme in SCHEMES},
}

Register = Callable[[dict[str, str]], None]


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Register:
    """Installs a distribution that has nothing but entry points."""

    def install(resolvers: dict[str, str]) -> None:
        site = tmp_path / "site"
        info = site / "schemes-1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: schemes\nVersion: 1\n")
        lines = [f"{name} = {value}" for name, value in resolvers.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{RESOLVERS}]", *lines]))
        monkeypatch.syspath_prepend(str(site))

    return install


@pytest.fixture
def installed(register: Register) -> None:
    """This package's own entry points."""
    register(ENTRY_POINTS)


@pytest.fixture
def wrapped_with(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The base storage and the options that the factory gives to ``wrap``; it wraps nothing."""
    seen: dict[str, Any] = {}

    def wrap(base: Any, **options: Any) -> Any:
        seen.update(options, base=base)
        return base

    monkeypatch.setattr(zconfig, "wrap", wrap)
    return seen


def refused(uri: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        resolver(uri)
    return caught.value


def test_pyproject_registers_every_scheme() -> None:
    text = (Path(__file__).parent.parent / "pyproject.toml").read_text()
    _, _, block = text.partition(f'[project.entry-points."{RESOLVERS}"]\n')
    lines = re.findall(r'^"?([\w+]+)"? = "(.*)"$', block.partition("\n[")[0], re.MULTILINE)
    assert dict(lines) == ENTRY_POINTS


@pytest.mark.usefixtures("installed")
class TestThroughZodburi:
    def test_a_file_survives(self, tmp_path: Path) -> None:
        uri = (
            f"zodbcache+file://{tmp_path}/Data.fs?cache-local-mb=5&connection_cache_size=77"
            f"&cache-local-dir={tmp_path}/cache&database_name=shop"
        )
        for value in (1, 2):
            open_storage, keywords = zodburi.resolve_uri(uri)
            assert keywords == {"cache_size": 77, "database_name": "shop", "pool_size": 7}
            db = ZODB.DB(open_storage(), **keywords)
            assert db.storage.cache_stats()["limit_bytes"] == 5_000_000
            with transaction.manager, db.transaction() as connection:
                assert connection.root().get("value", 1) == value
                connection.root()["value"] = value + 1
            db.close()
        assert list((tmp_path / "cache").glob("zodbcache-*.sqlite3"))

    def test_zeo(self, zeo_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        zeo_cache_bytes = []

        def wrap(base: Any, **options: Any) -> Any:
            zeo_cache_bytes.append(base._cache.maxsize)
            return zodbcache.wrap(base, **options)

        monkeypatch.setattr(zconfig, "wrap", wrap)
        host, port = zeo_server.address
        uri = f"zodbcache+zeo://{host}:{port}?cache-local-mb=5&wait_timeout=20&cache_size=3MB"
        open_storage, _ = zodburi.resolve_uri(uri)
        db = ZODB.DB(open_storage())
        try:
            assert db.storage.cache_stats()["limit_bytes"] == 5_000_000
            assert zeo_cache_bytes == [3 << 20]
        finally:
            db.close()

    def test_memory(self) -> None:
        open_storage, _ = zodburi.resolve_uri("zodbcache+memory://shop?cache_local_mb=5")
        storage = open_storage()
        assert storage.getName() == "shop"
        assert storage.cache_stats()["limit_bytes"] == 5_000_000

    def test_each_call_opens_another(self) -> None:
        open_storage, _ = zodburi.resolve_uri("zodbcache+memory://shop")
        assert open_storage() is not open_storage()

    def test_inside_a_demo_storage(self, tmp_path: Path) -> None:
        uri = f"demo:(zodbcache+file://{tmp_path}/Data.fs?cache-local-mb=5)/(memory://changes)"
        open_storage, _ = zodburi.resolve_uri(uri)
        storage = open_storage()
        assert storage.base.cache_stats()["limit_bytes"] == 5_000_000
        storage.close()

    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_every_scheme_is_resolved(self, scheme: str) -> None:
        pytest.importorskip("relstorage")
        open_storage, _ = zodburi.resolve_uri(f"zodbcache+{scheme}://somewhere/db?cache-local-mb=5")
        assert callable(open_storage)

    def test_a_scheme_of_somebody_else(
        self, tmp_path: Path, register: Register, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "zodb_elsewhere.py").write_text(
            "from ZODB.MappingStorage import MappingStorage\n"
            "def resolve(uri):\n"
            "    return (lambda: MappingStorage(uri)), {'connection_pool_size': '3'}\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        other = tmp_path / "other"
        other.mkdir()
        info = other / "elsewhere-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[{RESOLVERS}]\nelse = zodb_elsewhere:resolve\n")
        monkeypatch.syspath_prepend(str(other))
        open_storage, keywords = zodburi.resolve_uri("zodbcache:else:a,b/c?x=%3F&cache-local-mb=5")
        assert keywords["pool_size"] == 3
        storage = open_storage()
        assert storage.getName() == "else:a,b/c?x=%3F"
        assert storage.cache_stats()["limit_bytes"] == 5_000_000


class TestOptions:
    def test_every_one_arrives(self, wrapped_with: dict[str, Any], tmp_path: Path) -> None:
        open_storage, keywords = resolver(
            "zodbcache+memory://x?cache-local-mb=5.5&cache_local_object_max=100KB"
            f"&cache-local-dir={tmp_path}/a%26b&cache-prefix=shop"
            "&cache_delta_size_limit=500&cache-file-mb=7"
        )
        open_storage()
        assert keywords == {}
        del wrapped_with["base"]
        assert CacheOptions(**wrapped_with) == CacheOptions(
            cache_local_mb=5.5,
            cache_local_object_max=102_400,
            cache_local_dir=f"{tmp_path}/a&b",
            cache_prefix="shop",
            cache_delta_size_limit=500,
            cache_file_mb=7,
        )

    def test_none_gives_the_defaults(self, wrapped_with: dict[str, Any]) -> None:
        resolver("zodbcache+memory://x")[0]()
        assert wrapped_with.pop("base").getName() == "x"
        assert CacheOptions(**wrapped_with) == CacheOptions()

    def test_relstorage_s_leftovers_are_one_warning_each(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        open_storage, _ = resolver("zodbcache+memory://x?cache-servers=a:1&cache_local_dir_count=2")
        open_storage().close()
        assert sorted(record.getMessage().partition(":")[0] for record in caplog.records) == [
            "cache-servers is ignored",
            "cache_local_dir_count is ignored",
        ]

    def test_the_base_is_closed_when_it_cannot_be_wrapped(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened = []

        def wrap(base: object, **options: object) -> object:
            opened.append(base)
            raise RuntimeError("no")

        monkeypatch.setattr(zconfig, "wrap", wrap)
        open_storage, _ = resolver(f"zodbcache+file://{tmp_path}/Data.fs")
        with pytest.raises(RuntimeError):
            open_storage()
        FileStorage(f"{tmp_path}/Data.fs").close()  # its lock is free
        assert len(opened) == 1


class TestRelStorage:
    @pytest.fixture
    def open_base(self, tmp_path: Path, wrapped_with: dict[str, Any]) -> Callable[[str], Any]:
        """Opens a RelStorage on SQLite by the query given, and returns it unwrapped."""
        pytest.importorskip("relstorage")

        def open_base(query: str) -> Any:
            uri = f"zodbcache+sqlite://localhost/?data_dir={tmp_path}/db&{query}"
            storage = resolver(uri)[0]()
            storage.close()
            return storage

        return open_base

    def test_its_own_cache_is_small(
        self, open_base: Callable[[str], Any], wrapped_with: dict[str, Any]
    ) -> None:
        base = open_base("cache-local-mb=500&cache-prefix=shop&cache-local-object-max=99")
        assert base._options.cache_local_mb == 10
        assert base._options.cache_local_dir is None
        assert base._options.cache_local_object_max != 99
        assert base._options.cache_prefix != "shop"
        assert wrapped_with["cache_local_mb"] == 500

    def test_its_own_cache_can_be_set(
        self, open_base: Callable[[str], Any], wrapped_with: dict[str, Any]
    ) -> None:
        base = open_base(
            "relstorage-cache-local-mb=20&relstorage_cache_local_object_max=32KB"
            "&relstorage-cache-prefix=a%26b&keep_history=false"
        )
        assert base._options.cache_local_mb == 20
        assert base._options.cache_local_object_max == 32 << 10
        assert base._options.cache_prefix == "a&b"
        assert base._options.keep_history is False
        assert wrapped_with["cache_local_mb"] == CacheOptions().cache_local_mb
        assert wrapped_with["cache_prefix"] == ""

    def test_it_is_not_told_what_the_cache_ignores(self, open_base: Callable[[str], Any]) -> None:
        assert open_base("cache_servers=a:1")._options.cache_servers == ()

    def test_wrapped(self, tmp_path: Path) -> None:
        pytest.importorskip("relstorage")
        uri = f"zodbcache+sqlite://localhost/?data_dir={tmp_path}/db&cache-local-mb=5"
        db = ZODB.DB(resolver(uri)[0]())
        assert db.storage.cache_stats()["limit_bytes"] == 5_000_000
        db.close()


class TestRefused:
    @pytest.mark.parametrize(
        ("query", "words"),
        [
            ("cache-local-mb=many", "cache-local-mb: 'many' is not a number"),
            ("cache_local_mb=0", "cache_local_mb: 0.0 is too small"),
            ("cache-local-dir=", "cache-local-dir: '' names no directory"),
            ("cache-local-mb=5#main", "cache-local-mb: '5#main' is not a number"),
            ("cache-local-mb=5&cache-local-mb=6", "cache-local-mb: is given twice"),
            ("cache-local-mb=5&cache_local_mb=6", "cache_local_mb: is given twice, also as"),
        ],
    )
    def test_a_value(self, query: str, words: str) -> None:
        assert str(refused(f"zodbcache+memory://x?{query}")).startswith(words)

    @pytest.mark.parametrize(
        ("query", "words"),
        [
            ("cache-local-md=5", "cache-local-md: is an option neither of the cache, nor of"),
            (
                "cache-local-md=5",
                "nor of zeo://, nor of the database. Did you mean cache-local-mb?",
            ),
            ("cache_dir=x", "Did you mean cache_local_dir? Leave it out"),
            ("connection_cache_sizes=5", "Did you mean connection_cache_size? Leave it out"),
            ("wait-timeout=5", "Leave it out, or write it with underscores"),
            ("relstorage-cache-local-mb=5", "relstorage-cache-local-mb: is an option neither"),
        ],
    )
    def test_a_name(self, query: str, words: str) -> None:
        assert words in str(refused(f"zodbcache+zeo://localhost:1?{query}"))

    @pytest.mark.parametrize(
        "uri", ["zodbcache://localhost:1", "zodbcache+://localhost", "zodbcache:/x", "zodbcache"]
    )
    def test_no_storage(self, uri: str) -> None:
        error = refused(uri)
        assert str(error).startswith("zodbcache: names no storage to cache. ")
        assert "zodbcache+zeo://" in error.remedy

    @pytest.mark.parametrize(
        ("uri", "remedy"),
        [
            ("zodbcache:demo:(file://x?y=1)/(memory://)", "demo:(zodbcache+zeo://"),
            ("zodbcache:zconfig:///etc/zodb.conf", "<cachedstorage>"),
        ],
    )
    def test_what_has_a_better_place(self, uri: str, remedy: str) -> None:
        assert remedy in refused(uri).remedy


class TestMissingPackages:
    def no_entry_points(self, **selected: str) -> list[Any]:
        return []

    @pytest.mark.parametrize(
        ("scheme", "remedy"),
        [
            ("postgres", "Install RelStorage"),
            ("postgresql", "Install RelStorage"),
            ("mysql", "Install RelStorage"),
            ("oracle", "Install RelStorage"),
            ("sqlite", "Install RelStorage"),
            ("zeo", "Install zodburi"),
            ("file", "Install zodburi"),
            ("memory", "Install zodburi"),
            ("neo", "Install the package that resolves neo://"),
        ],
    )
    def test_nobody_resolves_the_scheme(
        self, scheme: str, remedy: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(zodbcache.zodburi, "entry_points", self.no_entry_points)
        error = refused(f"zodbcache+{scheme}://localhost/db?cache-local-mb=5")
        assert error.option == f"zodbcache+{scheme}"
        assert error.remedy == remedy

    def test_a_resolver_that_cannot_be_imported(
        self, register: Register, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "zodb_broken.py").write_text("import package_that_is_not_there")
        monkeypatch.syspath_prepend(str(tmp_path))
        register({"broken": "zodb_broken:resolver"})
        error = refused("zodbcache:broken://x")
        assert error.option == "zodbcache:broken"
        assert "No module named 'package_that_is_not_there'" in error.problem
        assert error.remedy == "Install package_that_is_not_there"

    def test_no_zodburi(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(__import__("sys").modules, "zodburi", None)
        assert refused("zodbcache+memory://x").remedy == "Install zodburi"
