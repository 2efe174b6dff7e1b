"""The process's cache in a SQLite temporary database instead of its memory.

The same contract over the C core's other kind of store; ``docs/backends.rst``
says when to choose it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw
from zope.interface import implementer

from zodbcache._core import _store
from zodbcache._core.lending import lend_sqlite
from zodbcache.forking import call_after_fork
from zodbcache.interfaces import IStore

if TYPE_CHECKING:
    from typing_extensions import Self


@implementer(IStore)
class TempStore(_store.TempStore):
    """Revisions in a SQLite temporary database of *limit_bytes*, all bookkeeping included (I5).

    It lies where SQLite puts temporary files: in the directory that the
    environment variable SQLITE_TMPDIR or TMPDIR names, else in /var/tmp.  It
    is gone when the process ends, however that happens.  In a fork's child it
    is empty at first.
    """

    def __new__(cls, limit_bytes: int, object_max_bytes: int) -> Self:
        lend_sqlite()
        self = super().__new__(cls, limit_bytes, object_max_bytes)
        call_after_fork(self._renew)
        return self

    @property
    def fault(self) -> str:
        """What went wrong last, and what to do."""
        code = self.last_fault
        name = apsw.mapping_extended_result_codes.get(code) or apsw.mapping_result_codes.get(code)
        return (
            f"the temporary database of cache-backend sqlite failed ({name or code}). Look"
            " whether the disk of temporary files is full, or name another directory by the"
            " environment variable SQLITE_TMPDIR"
        )

    def _renew(self) -> None:
        """In a fork's child: the database is the parent's."""
        self.abandon()
