"""What can stop the demo; each message is one line that names the remedy."""

from __future__ import annotations

from zodbcache.errors import ZODBCacheError


class DemoError(ZODBCacheError):
    """The demo cannot go on."""


class MissingExtraError(DemoError):
    """A distribution that only the demo needs is not installed."""

    def __init__(self, module: str, base: str) -> None:
        super().__init__(
            f"The demo with --base {base} needs {module}. "
            "Install it with: pip install zodbcache[demo]"
        )
