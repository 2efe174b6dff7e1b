"""CacheOptions: what is accepted, what is refused and in which words."""

from __future__ import annotations

import dataclasses
import logging
import math
from pathlib import Path
from typing import Any

import pytest
from ZODB.MappingStorage import MappingStorage

import zodbcache
from zodbcache.config import OPTIONS
from zodbcache.config import CacheOptions
from zodbcache.config import is_option
from zodbcache.config import option_name
from zodbcache.errors import ConfigurationError
from zodbcache.errors import ZODBCacheError

NUMBERS = ["cache_local_mb", "cache_local_object_max", "cache_delta_size_limit", "cache_file_mb"]


def refused(**values: object) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        CacheOptions.from_mapping(values)
    return caught.value


class TestDefaults:
    def test_values(self) -> None:
        options = CacheOptions()
        assert options.limit_bytes == 100_000_000
        assert options.object_max_bytes == 1_048_576
        assert options.file_limit_bytes == 400_000_000
        assert options.cache_delta_size_limit == 100_000
        assert options.cache_local_dir is None
        assert options.cache_prefix == ""

    def test_an_empty_mapping_gives_them(self) -> None:
        assert CacheOptions.from_mapping({}) == CacheOptions()

    def test_frozen(self) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            CacheOptions().cache_local_mb = 5  # type: ignore[misc]

    def test_keywords_only(self) -> None:
        with pytest.raises(TypeError):
            CacheOptions(5)  # type: ignore[misc]


class TestSizes:
    def test_megabytes_are_millions_of_bytes(self) -> None:
        assert CacheOptions(cache_local_mb=1.5).limit_bytes == 1_500_000

    def test_the_file_follows_the_memory(self) -> None:
        assert CacheOptions(cache_local_mb=10).file_limit_bytes == 40_000_000
        assert CacheOptions(cache_local_mb=10, cache_file_mb=2).file_limit_bytes == 2_000_000

    def test_objects_are_bounded_by_an_eighth_of_the_memory(self) -> None:
        assert CacheOptions(cache_local_mb=8).object_max_bytes == 1_000_000
        assert CacheOptions(cache_local_mb=8, cache_local_object_max=7).object_max_bytes == 7

    @pytest.mark.parametrize("value", [1, 8_000, 1.0, 7_999.5])
    def test_memory_within_bounds(self, value: float) -> None:
        assert CacheOptions(cache_local_mb=value).cache_local_mb == value

    def test_a_temporary_database_may_be_larger_than_memory(self) -> None:
        options = CacheOptions(cache_local_mb=32_000, cache_backend="sqlite")
        assert options.limit_bytes == 32_000_000_000
        with pytest.raises(ConfigurationError, match=r"cache_local_mb: .*1 to 32000"):
            CacheOptions(cache_local_mb=32_001, cache_backend="sqlite")

    @pytest.mark.parametrize("value", ["", "SQLite", "disk", None, 1])
    def test_unknown_backends(self, value: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"cache_backend: .*Write memory or sqlite"):
            CacheOptions(cache_backend=value)

    @pytest.mark.parametrize("value", [0, -1, 0.99, 8_001, math.inf, -math.inf, math.nan])
    def test_memory_out_of_bounds(self, value: float) -> None:
        with pytest.raises(ConfigurationError, match=r"cache_local_mb: .*1 to 8000"):
            CacheOptions(cache_local_mb=value)

    @pytest.mark.parametrize("name", NUMBERS)
    @pytest.mark.parametrize("value", [0, -1, True, False, b"1", [], math.nan])
    def test_no_option_takes_these(self, name: str, value: object) -> None:
        error = refused(**{name: value})
        assert error.option == name
        assert error.remedy.startswith("Write a number of ")

    @pytest.mark.parametrize("name", NUMBERS[:-1])
    def test_none_is_no_number(self, name: str) -> None:
        assert "None is not a" in str(refused(**{name: None}))

    def test_none_is_the_default_where_it_is_one(self) -> None:
        assert CacheOptions(cache_file_mb=None, cache_local_dir=None) == CacheOptions()

    @pytest.mark.parametrize("name", ["cache_local_object_max", "cache_delta_size_limit"])
    def test_whole_numbers(self, name: str) -> None:
        assert f"{name}: 1.5 is not a whole number" in str(refused(**{name: 1.5}))

    def test_the_constructor_takes_no_text(self) -> None:
        with pytest.raises(ConfigurationError, match="'5' is not a number"):
            CacheOptions(cache_local_mb="5")  # type: ignore[arg-type]


class TestDirectory:
    def test_becomes_absolute(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert CacheOptions(cache_local_dir="var/cache").cache_local_dir == str(
            tmp_path / "var" / "cache"
        )

    def test_home(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", "/home/someone")
        assert CacheOptions(cache_local_dir="~/cache").cache_local_dir == "/home/someone/cache"

    def test_a_path_object(self, tmp_path: Path) -> None:
        options = CacheOptions.from_mapping({"cache_local_dir": tmp_path})
        assert options.cache_local_dir == str(tmp_path)

    def test_need_not_exist_nor_be_a_directory(self) -> None:
        assert CacheOptions(cache_local_dir="/dev/null/no").cache_local_dir == "/dev/null/no"

    @pytest.mark.parametrize("value", ["", "a\0b", b"bytes", 5, True])
    def test_what_is_no_path(self, value: object) -> None:
        assert "memory only" in refused(cache_local_dir=value).remedy


class TestPrefix:
    def test_any_text(self) -> None:
        assert CacheOptions(cache_prefix="shop/é").cache_prefix == "shop/é"

    @pytest.mark.parametrize("value", [None, 5, b"x"])
    def test_only_text(self, value: object) -> None:
        assert "is not text" in refused(cache_prefix=value).problem


class TestFromMapping:
    def test_dashes_and_text(self) -> None:
        assert CacheOptions.from_mapping(
            {
                "cache-local-mb": "200",
                "cache-local-object-max": "64KB",
                "cache-local-dir": "/var/cache",
                "cache-prefix": "5",
                "cache-delta-size-limit": "1000",
                "cache-file-mb": "1.5",
            }
        ) == CacheOptions(
            cache_local_mb=200,
            cache_local_object_max=65_536,
            cache_local_dir="/var/cache",
            cache_prefix="5",
            cache_delta_size_limit=1000,
            cache_file_mb=1.5,
        )

    @pytest.mark.parametrize("name", NUMBERS)
    @pytest.mark.parametrize("text", ["", "many", "5 apples", "nan", "-3", "0", "None"])
    def test_text_that_is_no_such_number(self, name: str, text: str) -> None:
        error = refused(**{name: text})
        assert error.option == name
        assert error.remedy.startswith("Write a number of ")

    @pytest.mark.parametrize("option", ["cache-local-mb", "cache_local_mb", "cache-local_mb"])
    def test_the_option_is_named_as_it_was_written(self, option: str) -> None:
        assert refused(**{option: -5}).option == option
        assert refused(**{option: "x"}).option == option

    @pytest.mark.parametrize(
        ("option", "hint"),
        [
            ("cache-local-md", "Did you mean cache-local-mb? There are cache-local-mb, cache-"),
            ("cache_dir", "Did you mean cache_local_dir? There are cache_local_mb, cache_"),
            ("wait", "There are cache_local_mb, "),
        ],
    )
    def test_unknown(self, option: str, hint: str) -> None:
        error = refused(**{option: 1})
        assert str(error).startswith(f"{option}: is not an option of the cache. {hint}")

    def test_twice(self) -> None:
        error = refused(**{"cache_prefix": "a", "cache-prefix": "b"})
        assert "given twice, also as cache_prefix" in str(error)

    def test_the_error_is_a_value_error_and_ours(self) -> None:
        error = refused(cache_local_mb=0)
        assert isinstance(error, ValueError)
        assert isinstance(error, ZODBCacheError)


RELSTORAGE_ONLY = {
    "cache-local-compression": "cache-local-mb",
    "cache-local-dir-compress": "cache-file-mb",
    "cache-local-dir-count": "Leave it out",
    "cache-local-dir-read-count": "Leave it out",
    "cache-local-dir-write-max-size": "cache-file-mb",
    "cache-local-storage": "Leave it out",
    "cache-module-name": "Leave it out",
    "cache-servers": "cache-local-dir",
}
"""Keys of ``<relstorage>`` that mean nothing here, and what their warnings name."""


class TestOptionsOfRelStorage:
    @pytest.mark.parametrize(("option", "advice"), RELSTORAGE_ONLY.items())
    def test_ignored_with_one_warning(
        self, option: str, advice: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert CacheOptions.from_mapping({option: "7"}) == CacheOptions()
        [record] = caplog.records
        assert (record.name, record.levelno) == ("zodbcache.config", logging.WARNING)
        assert record.getMessage().startswith(f"{option} is ignored: ")
        assert advice in record.getMessage()

    def test_each_has_its_own(self, caplog: pytest.LogCaptureFixture) -> None:
        CacheOptions.from_mapping(dict.fromkeys(RELSTORAGE_ONLY, "7"))
        assert len(caplog.records) == len(RELSTORAGE_ONLY)

    def test_spelled_as_the_user_does(self, caplog: pytest.LogCaptureFixture) -> None:
        CacheOptions.from_mapping({"cache_local_dir_write_max_size": 10**8})
        assert "bound the file by cache_file_mb" in caplog.text

    def test_by_wrap(self, caplog: pytest.LogCaptureFixture) -> None:
        zodbcache.wrap(MappingStorage(), cache_servers="localhost:11211").close()
        assert caplog.text.count("cache_servers is ignored") == 1

    def test_no_warning_for_ours(self, caplog: pytest.LogCaptureFixture) -> None:
        CacheOptions.from_mapping({"cache-local-mb": "7", "cache-prefix": "shop"})
        assert not caplog.records

    def test_not_twice_either(self) -> None:
        error = refused(**{"cache_servers": "a", "cache-servers": "b"})
        assert "given twice, also as cache_servers" in str(error)

    def test_all_that_relstorage_has_are_known(self) -> None:
        from importlib.resources import files
        from xml.etree import ElementTree

        pytest.importorskip("relstorage")
        component = ElementTree.fromstring(
            files("relstorage").joinpath("component.xml").read_text()
        )
        section = next(s for s in component if s.get("name") == "relstorage")
        keys = [key.attrib["name"] for key in section.findall("key")]
        of_its_cache = [key for key in keys if key.startswith("cache-")]
        assert len(of_its_cache) > 10
        assert [key for key in of_its_cache if not is_option(key)] == []

    def test_all_that_its_options_have_are_known(self) -> None:
        options = pytest.importorskip("relstorage.options").Options
        names = [name for name in options.valid_option_names() if name.startswith("cache_")]
        assert len(names) > 10
        assert [name for name in names if not is_option(name)] == []


class TestOptionsOfOtherPlaces:
    @pytest.mark.parametrize(
        ("option", "words"),
        [
            ("cache-size", "ZEO's own client cache in <zeoclient>, or counts the objects"),
            ("cache_size", "This cache has cache_local_mb"),
            ("cache-path", "write it in <clientstorage>"),
            ("client", "this cache has cache_local_dir, or write it in <zeoclient>"),
            ("var", "This cache has cache_local_dir"),
        ],
    )
    def test_the_error_says_where(self, option: str, words: str) -> None:
        error = refused(**{option: "20MB"})
        assert error.option == option
        assert "is not an option of the cache" in str(error)
        assert words in error.remedy

    def test_dashes_in_the_advice(self) -> None:
        assert "This cache has cache-local-mb" in refused(**{"cache-size": "20MB"}).remedy


class TestNames:
    def test_with_underscores(self) -> None:
        assert option_name("cache-local-mb") == option_name("cache_local_mb") == "cache_local_mb"

    def test_all_fields(self) -> None:
        assert [field.name for field in dataclasses.fields(CacheOptions)] == list(OPTIONS)

    @pytest.mark.parametrize("option", ["cache-size", "client", "cache-local-md", ""])
    def test_no_option(self, option: str) -> None:
        assert not is_option(option)
        with pytest.raises(ConfigurationError):
            option_name(option)
