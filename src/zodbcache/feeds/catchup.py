"""Catch-up: asking the base storage what changed since a checkpoint.

A strategy names every object changed after the checkpoint or raises
CannotCatchUp; it never leaves one out.  ``_STRATEGIES`` says which kind of
storage has which; a new kind is one class and one row.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Iterator
from itertools import islice
from time import monotonic
from typing import Any
from typing import NamedTuple

from ZODB.interfaces import IStorageIteration
from ZODB.POSException import POSKeyError
from ZODB.utils import maxtid
from zope.interface import implementer

from zodbcache.ids import to_bytes
from zodbcache.ids import to_int
from zodbcache.interfaces import ICatchUp

BUDGET_SECONDS = 10.0
"""How long an iteration may take before starting empty is the better road."""


class CannotCatchUp(Exception):
    """The base storage cannot tell what changed, or not within the budget."""


class Unsettled(Exception):
    """The base storage's client is behind its server, and cannot vouch for what it pushed."""


class Changes(NamedTuple):
    """Every object changed after some checkpoint, up to *through* at least.

    *named*: ``(oids, tid)`` pairs, each tid an upper bound.
    """

    through: int
    named: list[tuple[list[bytes], int]]


@implementer(ICatchUp)
class CatchUp:
    """A storage of which nothing more can be known: whatever happened, start empty."""

    is_quick = True
    """False: changes() may take long, and belongs on a thread of its own."""

    def __init__(self, base: Any) -> None:
        self.base = base

    def identity(self) -> str:
        """The same text whenever the same database is opened."""
        return f"{type(self.base).__module__}.{type(self.base).__name__}:{self.base.getName()}"

    def is_ready(self) -> bool:
        """False while the storage is not connected; invalidateCache() will follow then."""
        return True

    def last_tid(self) -> int:
        """The newest tid; every later change will be pushed to who registered before.

        Raises Unsettled where that cannot be said now; it can after the next push.
        """
        return to_int(self.base.lastTransaction())

    def quick_changes(self, since: int) -> Changes | None:
        """What changed after *since*, if that can be had at once."""
        return None

    def changes(self, since: int) -> Changes:
        """What changed after *since*.  Raises CannotCatchUp."""
        raise CannotCatchUp(f"{self.identity()} cannot tell what changed")

    def has_transaction(self, tid: int) -> bool:
        """Whether the database has this very transaction.  False says nothing."""
        return False

    def current_tid(self, oid: int) -> int | None:
        """The tid of the object's current revision; None if it has none."""
        try:
            found = self.base.loadBefore(to_bytes(oid), maxtid)
        except POSKeyError:
            return None
        return None if found is None else to_int(found[1])


class IteratorCatchUp(CatchUp):
    """A storage with IStorageIteration: its transactions name their objects."""

    def identity(self) -> str:
        file_name = getattr(self.base, "_file_name", None)
        if isinstance(file_name, str):
            return f"file:{os.path.realpath(file_name)}"
        return super().identity()

    def quick_changes(self, since: int) -> Changes | None:
        return self.changes(since)

    def changes(self, since: int) -> Changes:
        through = self.last_tid()
        named: list[tuple[list[bytes], int]] = []
        if through > since:
            deadline = monotonic() + BUDGET_SECONDS
            for transaction in _transactions(self.base, since + 1, None):
                named.append(([record.oid for record in transaction], to_int(transaction.tid)))
                if monotonic() > deadline:
                    raise CannotCatchUp(f"more changed than {BUDGET_SECONDS:.0f} s can iterate")
        return Changes(through, named)

    def has_transaction(self, tid: int) -> bool:
        found = list(islice(_transactions(self.base, tid, tid), 1))
        return bool(found) and to_int(found[0].tid) == tid


class ZEOCatchUp(IteratorCatchUp):
    """ZEO's ClientStorage: the server's invalidation queue first, then its iterator.

    The queue reaches back as many transactions as the server's
    ``invalidation-queue-size``; the iterator ships every state.
    """

    is_quick = False

    def identity(self) -> str:
        client = _innermost(self.base)
        return f"zeo:{client._addr}:{client._storage}"

    def is_ready(self) -> bool:
        return bool(self.base.is_connected())

    def last_tid(self) -> int:
        """The client's last tid, if it is the server's.

        The server's answer follows every push up to it on the same wire.  A
        client that is behind after it has lost a push, perhaps because a
        wrapper inside ours had no database yet to pass it to.
        """
        on_server = to_int(_innermost(self.base)._call("lastTransaction"))
        in_client = super().last_tid()
        if in_client < on_server:
            raise Unsettled(f"{self.identity()} is behind its server")
        return in_client

    def quick_changes(self, since: int) -> Changes | None:
        last = self.last_tid()
        if last == since:
            return Changes(last, [])
        answer = _innermost(self.base)._call("getInvalidations", to_bytes(since))
        if answer is None:
            return None
        through, oids = to_int(answer[0]), list(answer[1])
        return Changes(through, [(oids, through)]) if through >= last else None

    def changes(self, since: int) -> Changes:
        quick = self.quick_changes(since)
        if quick is not None:
            return quick
        if not IStorageIteration.providedBy(self.base):
            raise CannotCatchUp(f"{self.identity()} has forgotten, and cannot iterate")
        return super().changes(since)


def _transactions(base: Any, start: int, stop: int | None) -> Iterator[Any]:
    """The base's transactions from *start* to *stop*, the iterator closed at the end."""
    iterator = base.iterator(to_bytes(start), None if stop is None else to_bytes(stop))
    try:
        yield from iterator
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


def _innermost(base: Any) -> Any:
    """The storage inside wrappers such as zc.zlibstorage, which call it ``base``."""
    while not _is_zeo(base) and hasattr(base, "base") and not hasattr(base, "changes"):
        base = base.base
    return base


def _is_zeo(base: Any) -> bool:
    return any(
        cls.__module__ == "ZEO.ClientStorage" and cls.__name__ == "ClientStorage"
        for cls in type(base).__mro__
    )


_STRATEGIES: tuple[tuple[Callable[[Any], bool], type[CatchUp]], ...] = (
    (lambda base: _is_zeo(_innermost(base)), ZEOCatchUp),
    (IStorageIteration.providedBy, IteratorCatchUp),
    (lambda base: True, CatchUp),
)


def catch_up_for(base: Any) -> CatchUp:
    """The strategy for this storage: the first row of the table that fits."""
    return next(strategy(base) for fits, strategy in _STRATEGIES if fits(base))
