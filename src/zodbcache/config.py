"""What users configure: one frozen object, checked once, built alike from every side.

ZConfig, URI parameters, the command line and Python keywords all end in
:class:`CacheOptions`.  A value that cannot be used is a ConfigurationError
which names the option as the user wrote it.  A directory that cannot be used
is no error here: the cache goes without its file.  Nor are options of
RelStorage's cache that this one has no use for: they are ignored, with a
warning that says what to do instead.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from ZConfig.datatypes import SuffixMultiplier

from zodbcache.errors import ConfigurationError

logger = logging.getLogger(__name__)

MB = 1_000_000
"""Bytes in one megabyte of an ``-mb`` option, as RelStorage counts them."""

LARGEST_SHARE = 8
"""An object may take at most one part in this many of the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions:
    """Every option of the cache.  Raises ConfigurationError for a value that cannot be used.

    *cache_local_mb*: memory for the process's cache, its bookkeeping
    included, in units of 1,000,000 bytes: 1 to 8,000.  But see *cache_backend*.
    *cache_local_object_max*: states longer than this many bytes are not kept.
    *cache_local_dir*: where the shared cache file lies, str or os.PathLike;
    absolute afterwards.  None: memory only.
    *cache_prefix*: keeps apart the files of databases that share a directory
    and cannot be told apart otherwise.
    *cache_delta_size_limit*: how many changed objects the process remembers
    before it forgets the oldest changes.
    *cache_file_mb*: bound of the states in the file, in units of 1,000,000
    bytes.  None: four times *cache_local_mb*.
    *cache_write_seconds*: what is new is in the file after about so long, or
    earlier when it is much; 0: only when the storage is closed.
    *cache_backend*: where the process's cache is: ``memory``, or ``sqlite`` for
    a temporary database.  Then *cache_local_mb* bounds its size on disk, 1 to
    32,000.
    """

    cache_local_mb: float = 100
    cache_local_object_max: int = 1_048_576
    cache_local_dir: str | None = None
    cache_prefix: str = ""
    cache_delta_size_limit: int = 100_000
    cache_file_mb: float | None = None
    cache_write_seconds: float = 2
    cache_backend: str = "memory"

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))
        _SIZES[self.cache_backend]("cache_local_mb", self.cache_local_mb)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object]) -> CacheOptions:
        """Build from names as users write them, with dashes or underscores, and values or text.

        A name that RelStorage's cache has and this one has no use for is one
        warning in the log.  Raises ConfigurationError for an unknown name, a
        name given in two spellings, or a value that cannot be used.
        """
        written: dict[str, str] = {}
        values: dict[str, Any] = {}
        for option, value in mapping.items():
            name = option_name(option)
            if name in written:
                raise ConfigurationError(
                    f"is given twice, also as {written[name]}", option=option, remedy="Give it once"
                )
            written[name] = option
            if name in _IGNORED:
                logger.warning("%s is ignored: %s", option, _spell(_IGNORED[name], option))
            else:
                values[name] = _parse(name, option, value) if isinstance(value, str) else value
        try:
            return cls(**values)
        except ConfigurationError as error:
            raise ConfigurationError(
                error.problem, option=written[error.option or ""], remedy=error.remedy
            ) from None

    @property
    def limit_bytes(self) -> int:
        """What the memory tier may use, bookkeeping included (I5)."""
        return int(self.cache_local_mb * MB)

    @property
    def object_max_bytes(self) -> int:
        """The longest state that is kept: the option, bounded by an eighth of the memory."""
        return min(self.cache_local_object_max, self.limit_bytes // LARGEST_SHARE)

    @property
    def file_limit_bytes(self) -> int:
        """What the states in the cache file may add up to."""
        if self.cache_file_mb is None:
            return 4 * self.limit_bytes
        return int(self.cache_file_mb * MB)


def _number(
    minimum: int, maximum: int, remedy: str, quantity: str = "size"
) -> Callable[[str, object], float]:
    """A check for an int or float from *minimum* to *maximum*."""

    def check(option: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ConfigurationError(f"{value!r} is not a number", option=option, remedy=remedy)
        if math.isnan(value):
            raise ConfigurationError(f"NaN is not a {quantity}", option=option, remedy=remedy)
        if value < minimum:
            raise ConfigurationError(f"{value!r} is too small", option=option, remedy=remedy)
        if value > maximum:
            raise ConfigurationError(f"{value!r} is too large", option=option, remedy=remedy)
        return value

    return check


def _count(remedy: str) -> Callable[[str, object], int]:
    """A check for a whole number from 1."""

    def check(option: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigurationError(
                f"{value!r} is not a whole number", option=option, remedy=remedy
            )
        if value < 1:
            raise ConfigurationError(f"{value!r} is too small", option=option, remedy=remedy)
        return value

    return check


def _one_of(*words: str) -> Callable[[str, object], str]:
    """A check for one of these words."""
    remedy = f"Write {' or '.join(words)}"

    def check(option: str, value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ConfigurationError(f"{value!r} is not known", option=option, remedy=remedy)
        return value

    return check


def _or_none(check: Callable[[str, object], Any]) -> Callable[[str, object], Any]:
    return lambda option, value: None if value is None else check(option, value)


def _directory(option: str, value: object) -> str:
    remedy = "Name a directory, or leave the option out to cache in memory only"
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str):
        raise ConfigurationError(f"{value!r} is not a path", option=option, remedy=remedy)
    if not path or "\0" in path:
        raise ConfigurationError(f"{path!r} names no directory", option=option, remedy=remedy)
    return os.path.abspath(os.path.expanduser(path))


def _text(option: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(
            f"{value!r} is not text", option=option, remedy="Write a short name"
        )
    return value


_MEMORY = "Write a number of megabytes from 1 to 8000"
_DISK = "Write a number of megabytes from 1 to 32000"
_FILE = "Write a number of megabytes from 1 to 1000000, or leave it out for 4 times the memory"
_SECONDS = "Write a number of seconds from 0 to 3600; 0 means only when the storage is closed"
_BYTES = "Write a number of bytes from 1, such as 1048576"
_ENTRIES = "Write a number of objects from 1, such as 100000"

_SIZES = {"memory": _number(1, 8_000, _MEMORY), "sqlite": _number(1, 32_000, _DISK)}
"""Checks of *cache_local_mb*, by *cache_backend*."""

_CHECKS: dict[str, Callable[[str, object], Any]] = {
    "cache_local_object_max": _count(_BYTES),
    "cache_local_dir": _or_none(_directory),
    "cache_prefix": _text,
    "cache_delta_size_limit": _count(_ENTRIES),
    "cache_file_mb": _or_none(_number(1, 1_000_000, _FILE)),
    "cache_write_seconds": _number(0, 3_600, _SECONDS, "time"),
    "cache_backend": _one_of(*_SIZES),
}

_byte_size = SuffixMultiplier({"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30})

_PARSERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "cache_local_mb": (float, _MEMORY),
    "cache_local_object_max": (_byte_size, _BYTES),
    "cache_delta_size_limit": (int, _ENTRIES),
    "cache_file_mb": (float, _FILE),
    "cache_write_seconds": (float, _SECONDS),
}


def _parse(name: str, option: str, text: str) -> Any:
    """The value that *text* writes; text itself where the option is text."""
    if name not in _PARSERS:
        return text
    parser, remedy = _PARSERS[name]
    try:
        return parser(text)
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is not a number", option=option, remedy=remedy
        ) from None


OPTIONS = tuple(field.name for field in fields(CacheOptions))
"""The names of all options, with underscores."""

_IGNORED = {
    "cache_local_compression": "records are kept as the storage gives them. Leave it out, and "
    "allow for the size in cache_local_mb",
    "cache_local_dir_compress": "records are kept as the storage gives them. Leave it out, and "
    "allow for the size in cache_file_mb",
    "cache_local_dir_count": "all processes of a machine share one file. Leave it out",
    "cache_local_dir_read_count": "all processes of a machine share one file. Leave it out",
    "cache_local_dir_write_max_size": "bound the file by cache_file_mb instead",
    "cache_local_storage": "there is nothing to choose from. Leave it out",
    "cache_module_name": "memcached is not used. Leave it out",
    "cache_servers": "memcached is not used. Give the processes of a machine the same "
    "cache_local_dir instead",
}
"""Options of RelStorage's cache, up to 4.3, that mean nothing here: what to do instead."""

_ELSEWHERE = {
    "cache_path": "It names the file of ZEO's own client cache: write it in <clientstorage>",
    "cache_size": "It bounds ZEO's own client cache in <zeoclient>, or counts the objects of a "
    "connection in <zodb>: write it there. This cache has cache_local_mb",
    "client": "It keeps ZEO's own client cache between restarts: leave it out, for this cache "
    "has cache_local_dir, or write it in <zeoclient>",
    "var": "It is where ZEO keeps its own client cache: write it in <zeoclient>. This cache has "
    "cache_local_dir",
}
"""Options that would have an effect in another place, where they belong."""


def is_option(option: str) -> bool:
    """Whether *option*, with dashes or underscores, is accepted, be it with a warning."""
    name = _underscored(option)
    return name in OPTIONS or name in _IGNORED


def option_name(option: str) -> str:
    """*option* with underscores if it is accepted; ConfigurationError otherwise."""
    if is_option(option):
        return _underscored(option)
    raise ConfigurationError(
        "is not an option of the cache", option=option, remedy=_advice_on(option)
    )


def suggestion(option: str, names: Iterable[str]) -> str:
    """A sentence with that one of *names* which *option* may stand for, or nothing."""
    close = get_close_matches(_underscored(option), list(names), n=1)
    return f"Did you mean {_spell(close[0], option)}? " if close else ""


def _advice_on(option: str) -> str:
    name = _underscored(option)
    if name in _ELSEWHERE:
        return _spell(_ELSEWHERE[name], option)
    return suggestion(option, OPTIONS) + f"There are {_spell(', '.join(OPTIONS), option)}"


def _underscored(option: str) -> str:
    return option.replace("-", "_")


def _spell(text: str, option: str) -> str:
    """*text*, the names in it with dashes if *option* has them, as the user writes them."""
    return text.replace("_", "-") if "-" in option else text
