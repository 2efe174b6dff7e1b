"""The ``<cachedstorage>`` section of a ZConfig file (``component.xml`` is its schema).

Each key is checked as it is read, so that ZConfig can add the line and the
file to the error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zodbcache.config import CacheOptions
from zodbcache.storage import wrap


def _key(option: str) -> Callable[[str], Any]:
    """The datatype of one key: text in, checked value out, ConfigurationError otherwise."""

    def datatype(text: str) -> Any:
        return getattr(CacheOptions.from_mapping({option: text}), option.replace("-", "_"))

    return datatype


cache_local_mb = _key("cache-local-mb")
cache_local_object_max = _key("cache-local-object-max")
cache_local_dir = _key("cache-local-dir")
cache_prefix = _key("cache-prefix")
cache_delta_size_limit = _key("cache-delta-size-limit")
cache_file_mb = _key("cache-file-mb")


class CachedStorage:
    """A storage factory, as ZODB's configuration wants it: ``name`` and ``open()``."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.name = config.getSectionName()

    def open(self) -> Any:
        """Open the storage inside and wrap it.  Closes it again if that fails."""
        base = self.config.base.open()
        try:
            return wrap(base, **self._options())
        except BaseException:
            base.close()
            raise

    def _options(self) -> dict[str, Any]:
        """The options that the section has; the others keep their defaults."""
        values = {name: getattr(self.config, name) for name in CacheOptions.__dataclass_fields__}
        return {name: value for name, value in values.items() if value is not None}
