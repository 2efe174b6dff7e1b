"""What can go wrong, and what to do about it: every error names its remedy.

Only bad configuration reaches the caller.  A fault in the cache or in its
file is logged once, and the application goes on without the cache.
"""

from __future__ import annotations


class ZODBCacheError(Exception):
    """The root of all errors raised by this package."""


class ConfigurationError(ZODBCacheError, ValueError):
    """An option has a value that cannot be used.

    *option*: the option's name as the user wrote it, or None when the base
    storage itself is at fault.  *remedy*: what to write instead.
    """

    def __init__(self, problem: str, *, option: str | None, remedy: str) -> None:
        super().__init__(problem, option, remedy)
        self.problem = problem
        self.option = option
        self.remedy = remedy

    def __str__(self) -> str:
        subject = f"{self.option}: " if self.option else ""
        return f"{subject}{self.problem}. {self.remedy}"


class CacheFileError(ZODBCacheError):
    """The cache file could not be used for *operation*.

    *recoverable*: True when trying again later may succeed (a lock, a full
    disk), False when this file is lost to this process.  *busy*: somebody else
    holds it just now.
    """

    def __init__(
        self,
        path: str,
        operation: str,
        *,
        cause: str,
        remedy: str,
        recoverable: bool,
        busy: bool = False,
    ) -> None:
        super().__init__(path, operation, cause, remedy, recoverable)
        self.path = path
        self.operation = operation
        self.cause = cause
        self.remedy = remedy
        self.recoverable = recoverable
        self.busy = busy

    def __str__(self) -> str:
        return f"Cannot {self.operation} the cache file {self.path}: {self.cause}. {self.remedy}"
