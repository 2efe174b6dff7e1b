"""The ``<cachedstorage>`` section of a ZConfig file (``component.xml`` is its schema).

Each key is checked as it is read, its name and its value, so that ZConfig can
add the line and the file to the error.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

from zodbcache.config import OPTIONS
from zodbcache.config import CacheOptions
from zodbcache.config import option_name
from zodbcache.storage import wrap


def key_name(key: str) -> str:
    """The keytype of the section: the name of an option with dashes, or ConfigurationError."""
    return option_name(key.lower()).replace("_", "-")


def _key(option: str, **others: str) -> Callable[[str], Any]:
    """The datatype of one key: text in, checked value out, ConfigurationError otherwise.

    *others*: options with which the most is allowed.
    """

    def datatype(text: str) -> Any:
        return getattr(CacheOptions.from_mapping({**others, option: text}), option_name(option))

    return datatype


cache_local_mb = _key("cache-local-mb", cache_backend="sqlite")
cache_local_object_max = _key("cache-local-object-max")
cache_local_dir = _key("cache-local-dir")
cache_prefix = _key("cache-prefix")
cache_delta_size_limit = _key("cache-delta-size-limit")
cache_file_mb = _key("cache-file-mb")
cache_write_seconds = _key("cache-write-seconds")
cache_backend = _key("cache-backend")


def open_wrapped(open_base: Callable[[], Any], options: Mapping[str, Any]) -> Any:
    """Open a storage and wrap it.  Closes it again if that fails."""
    base = open_base()
    try:
        return wrap(base, **options)
    except BaseException:
        base.close()
        raise


class CachedStorage:
    """A storage factory, as ZODB's configuration wants it: ``name`` and ``open()``."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.name = config.getSectionName()
        CacheOptions.from_mapping({key_name(name): value for name, value in self._given().items()})

    def open(self) -> Any:
        """Open the storage inside and wrap it.  Closes it again if that fails."""
        return open_wrapped(self.config.base.open, self._options())

    def _options(self) -> dict[str, Any]:
        """The options that the section has; the others keep their defaults.

        Those that mean nothing here are passed on, so that the warning comes
        when logging has been set up.
        """
        return {**self._given(), **self.config.ignored}

    def _given(self) -> dict[str, Any]:
        values = {name: getattr(self.config, name) for name in OPTIONS}
        return {name: value for name, value in values.items() if value is not None}
