"""The ``<cachedstorage>`` section, alone and inside ``<zodb>``."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
import transaction
import ZConfig
from ZODB import config as zodb_config
from ZODB.config import databaseFromString
from ZODB.config import storageFromString
from ZODB.FileStorage import FileStorage
from ZODB.interfaces import IStorage

import zodbcache
from zodbcache import zconfig
from zodbcache.config import CacheOptions
from zodbcache.zconfig import CachedStorage


def section(keys: str = "", base: str = "<mappingstorage>\n</mappingstorage>") -> str:
    return f"%import zodbcache\n<cachedstorage>\n{keys}\n{base}\n</cachedstorage>\n"


def filestorage(path: Path) -> str:
    return f"<filestorage>\npath {path}\nblob-dir {path}.blobs\n</filestorage>"


@pytest.fixture
def wrapped_with(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The options that the section gives to ``wrap``."""
    seen: dict[str, object] = {}

    def wrap(base: object, **options: object) -> object:
        seen.update(options)
        return zodbcache.wrap(base, **options)

    monkeypatch.setattr(zconfig, "wrap", wrap)
    return seen


def test_a_storage_around_a_filestorage(tmp_path: Path) -> None:
    storage = storageFromString(section("cache-local-mb 5", filestorage(tmp_path / "Data.fs")))
    try:
        assert IStorage.providedBy(storage)
        assert storage.getName() == str(tmp_path / "Data.fs")
        assert storage.cache_stats()["limit_bytes"] == 5_000_000
    finally:
        storage.close()


def test_within_a_database(tmp_path: Path) -> None:
    text = f"""
    %import zodbcache
    <zodb main>
      cache-size 100
      <cachedstorage>
        cache-local-mb 5
        cache-local-dir {tmp_path / "cache"}
        {filestorage(tmp_path / "Data.fs")}
      </cachedstorage>
    </zodb>
    """
    for value in (1, 2):
        db = databaseFromString(text)
        assert db.database_name == "main"
        with transaction.manager, db.transaction() as connection:
            assert connection.root().get("value", 1) == value
            connection.root()["value"] = value + 1
        db.close()


def test_every_option_arrives(tmp_path: Path, wrapped_with: dict[str, object]) -> None:
    keys = f"""
    cache-local-mb 5.5
    cache-local-object-max 100KB
    cache-local-dir {tmp_path}
    cache-prefix shop
    cache-delta-size-limit 500
    cache-file-mb 7
    cache-write-seconds 3
    cache-backend sqlite
    """
    storageFromString(section(keys)).close()
    assert wrapped_with == {
        "cache_local_mb": 5.5,
        "cache_local_object_max": 102_400,
        "cache_local_dir": str(tmp_path),
        "cache_prefix": "shop",
        "cache_delta_size_limit": 500,
        "cache_file_mb": 7,
        "cache_write_seconds": 3,
        "cache_backend": "sqlite",
    }


def test_what_is_too_much_memory_may_be_a_database() -> None:
    storage = storageFromString(section("cache-local-mb 9000\ncache-backend sqlite"))
    assert storage.cache_stats()["limit_bytes"] == 9_000_000_000
    storage.close()
    with pytest.raises(ZConfig.DataConversionError, match=r"cache-local-mb: .*1 to 8000"):
        storageFromString(section("cache-local-mb 9000"))


def test_defaults_are_left_to_the_options(wrapped_with: dict[str, object]) -> None:
    storageFromString(section()).close()
    assert wrapped_with == {}


def test_the_schema_has_every_option() -> None:
    schema = zodb_config.getStorageSchema()
    ZConfig.loadConfigFile(schema, StringIO(section()))
    keys = {
        info.attribute
        for _, info in schema.gettype("ZODB.storage").getsubtype("cachedstorage")
        if not info.issection()
    }
    assert keys == {*CacheOptions.__dataclass_fields__, "ignored"}


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("cache-local-mb many", "cache-local-mb: 'many' is not a number"),
        ("cache-local-mb 0", "cache-local-mb: 0.0 is too small"),
        ("cache-local-object-max 1.5", "cache-local-object-max: '1.5' is not a number"),
        ("cache-delta-size-limit -1", "cache-delta-size-limit: -1 is too small"),
        ("cache-file-mb nan", "cache-file-mb: NaN is not a size"),
        ("cache-local-dir", "cache-local-dir: '' names no directory"),
        ("cache-backend disk", "cache-backend: 'disk' is not known. Write memory or sqlite"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(key: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "zodb.conf"
    path.write_text(section(key))
    with pytest.raises(ZConfig.DataConversionError) as caught:
        zodb_config.storageFromURL(str(path))
    assert words in str(caught.value)
    assert caught.value.lineno == 3
    assert caught.value.url.endswith("zodb.conf")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("cache-local-md 5", "Did you mean cache-local-mb?"),
        ("cache-size 20MB", "write it there. This cache has cache-local-mb"),
        ("keep-history false", "There are cache-local-mb, "),
    ],
)
def test_an_unknown_key_is_named_with_its_place(key: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "zodb.conf"
    path.write_text(section(key))
    with pytest.raises(ZConfig.DataConversionError) as caught:
        zodb_config.storageFromURL(str(path))
    assert f"{key.split()[0]}: is not an option of the cache" in str(caught.value)
    assert words in str(caught.value)
    assert caught.value.lineno == 3
    assert caught.value.url.endswith("zodb.conf")


@pytest.mark.parametrize("key", ["cache_local_mb", "Cache-Local-MB"])
def test_a_key_is_known_in_any_spelling(key: str, wrapped_with: dict[str, object]) -> None:
    storageFromString(section(f"{key} 7")).close()
    assert wrapped_with == {"cache_local_mb": 7}


def test_a_key_given_twice() -> None:
    with pytest.raises(ZConfig.ConfigurationError, match="multiple values"):
        storageFromString(section("cache-local-mb 5\ncache_local_mb 6"))


def test_what_only_relstorage_has_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    factory = ZConfig.loadConfigFile(
        zodb_config.getStorageSchema(),
        StringIO(section("cache-servers a:1 b:2\ncache-local-mb 5\ncache-local-dir-count 3")),
    )[0].storage
    assert not caplog.records  # logging may not be set up yet
    storage = factory.open()
    assert storage.cache_stats()["limit_bytes"] == 5_000_000
    storage.close()
    assert sorted(record.getMessage().partition(":")[0] for record in caplog.records) == [
        "cache-local-dir-count is ignored",
        "cache-servers is ignored",
    ]


@pytest.mark.parametrize("base", ["", "<mappingstorage>\n</mappingstorage>\n" * 2])
def test_exactly_one_storage_inside(base: str) -> None:
    with pytest.raises(ZConfig.ConfigurationError):
        storageFromString(section(base=base))


def test_the_base_is_closed_when_it_cannot_be_wrapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def wrap(base: object, **options: object) -> object:
        opened.append(base)
        raise RuntimeError("no")

    monkeypatch.setattr(zconfig, "wrap", wrap)
    path = tmp_path / "Data.fs"
    with pytest.raises(RuntimeError):
        storageFromString(section(base=filestorage(path)))
    FileStorage(str(path)).close()  # its lock is free
    assert len(opened) == 1


def test_the_section_keeps_its_name() -> None:
    text = "%import zodbcache\n<cachedstorage warm>\n<mappingstorage/>\n</cachedstorage>\n"
    config, _ = ZConfig.loadConfigFile(zodb_config.getStorageSchema(), StringIO(text))
    assert isinstance(config.storage, CachedStorage)
    assert config.storage.name == "warm"
