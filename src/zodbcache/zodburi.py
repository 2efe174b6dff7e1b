"""URIs for zodburi, and so for pyramid_zodbconn: ``zodbcache+`` before the storage's own URI.

The query's names are shared out.  The cache takes its own options, and those
of RelStorage's cache that it ignores, with dashes or underscores.  A name
after ``relstorage-`` goes to RelStorage without it: so its own small cache
can be given other sizes.  All else is the storage's own, untouched, and what
its resolver leaves is the database's.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from importlib.metadata import entry_points
from typing import Any
from typing import NamedTuple
from urllib.parse import parse_qsl

from zodbcache.config import OPTIONS
from zodbcache.config import CacheOptions
from zodbcache.config import is_option
from zodbcache.config import suggestion
from zodbcache.errors import ConfigurationError
from zodbcache.zconfig import open_wrapped

Resolved = tuple[Callable[[], Any], dict[str, Any]]
"""What a resolver of zodburi returns: a storage factory, and keywords for the database."""

RESOLVERS = "zodburi.resolvers"
"""The group of entry points in which storages register their schemes."""

_ALIASES = {"postgresql": "postgres"}
"""Schemes as people write them, and as RelStorage registers them."""

_PACKAGES = {
    "file": "zodburi",
    "memory": "zodburi",
    "mysql": "RelStorage",
    "oracle": "RelStorage",
    "postgres": "RelStorage",
    "sqlite": "RelStorage",
    "zeo": "zodburi",
}
"""Which package resolves a scheme."""

_CANNOT_WRAP = {
    "demo": "Put the cache inside, as in demo:(zodbcache+zeo://localhost:8100)/(memory://)",
    "zconfig": "Write a <cachedstorage> section in the file, and zconfig:// before its path",
}
"""Schemes that have a better place for the cache."""

_TO_RELSTORAGE = ("relstorage-", "relstorage_")


def resolver(uri: str) -> Resolved:
    """Resolve ``zodbcache+<uri of a storage>``, or ``zodbcache:<uri>`` for any other scheme.

    Opens nothing.  Raises ConfigurationError for a scheme that nobody
    resolves, an option that nobody knows, and a value that cannot be used.
    """
    address, _, query = uri.partition("?")
    prefix, written, rest = _split(address)
    scheme = _ALIASES.get(written, written)
    resolve_base = _find(scheme, option=prefix + written)
    shared = _share_out(query)
    options = CacheOptions.from_mapping(shared.ours)
    open_base, keywords = resolve_base(_join(scheme, rest, shared.theirs))
    _check_keywords(keywords, scheme, shared.renamed)
    return partial(open_wrapped, open_base, asdict(options)), keywords


def _split(address: str) -> tuple[str, str, str]:
    """``('zodbcache+', 'zeo', '//host')``."""
    own = "zodbcache"
    prefix, base = address[: len(own) + 1], address[len(own) + 1 :]
    scheme, colon, rest = base.partition(":")
    if not colon or not scheme or "/" in scheme:
        raise ConfigurationError(
            "names no storage to cache",
            option=own,
            remedy="Write it with the storage's own URI, as in zodbcache+zeo://localhost:8100",
        )
    if scheme in _CANNOT_WRAP:
        raise ConfigurationError(
            "cannot be cached as a whole", option=prefix + scheme, remedy=_CANNOT_WRAP[scheme]
        )
    return prefix, scheme, rest


class _Query(NamedTuple):
    """*ours*: the cache's options as written.  *theirs*: ``name=value`` texts for the storage.

    *renamed*: how a name of theirs was written, where that differs.
    """

    ours: dict[str, str]
    theirs: list[str]
    renamed: dict[str, str]


def _share_out(query: str) -> _Query:
    """Each name of the query to whom it belongs; values still quoted where they are theirs."""
    shared = _Query({}, [], {})
    for text in query.split("&"):
        for option, value in parse_qsl(text, keep_blank_values=True):
            if is_option(option):
                if option in shared.ours:
                    raise ConfigurationError("is given twice", option=option, remedy="Give it once")
                shared.ours[option] = value
            elif option.startswith(_TO_RELSTORAGE):
                name = option[len("relstorage-") :].replace("-", "_")
                shared.renamed[name] = option
                shared.theirs.append(f"{name}={text.partition('=')[2]}")
            else:
                shared.theirs.append(text)
    return shared


def _join(scheme: str, rest: str, query: list[str]) -> str:
    return f"{scheme}:{rest}" + ("?" + "&".join(query) if query else "")


def _find(scheme: str, *, option: str) -> Callable[[str], Resolved]:
    """The resolver that a package has registered for *scheme*."""
    for entry_point in entry_points(group=RESOLVERS, name=scheme):
        try:
            resolve: Callable[[str], Resolved] = entry_point.load()
        except ImportError as error:
            raise ConfigurationError(
                f"cannot be resolved: {error}",
                option=option,
                remedy=f"Install {error.name or entry_point.module}",
            ) from error
        return resolve
    package = _PACKAGES.get(scheme, f"the package that resolves {scheme}://")
    raise ConfigurationError(
        f"nobody resolves {scheme}://", option=option, remedy=f"Install {package}"
    )


def _check_keywords(keywords: Iterable[str], scheme: str, renamed: dict[str, str]) -> None:
    """What the storage left must be the database's, by zodburi's own list."""
    known = _database_keywords()
    for name in keywords:
        if name not in known:
            option = renamed.get(name, name)
            or_else = ", or write it with underscores" if "-" in option else ""
            raise ConfigurationError(
                f"is an option neither of the cache, nor of {scheme}://, nor of the database",
                option=option,
                remedy=f"{suggestion(option, [*OPTIONS, *known])}Leave it out{or_else}",
            )


def _database_keywords() -> Iterable[str]:
    try:
        from zodburi import PARAMETERS  # type: ignore[import-untyped]
    except ImportError as error:
        raise ConfigurationError(
            "needs zodburi", option="zodbcache+", remedy="Install zodburi"
        ) from error
    return tuple(PARAMETERS)
