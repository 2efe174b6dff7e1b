"""Catch-up: asking the base storage what changed since a checkpoint.

A strategy names every object changed after the checkpoint or raises
CannotCatchUp; it never leaves one out.  ``_STRATEGIES`` says which kind of
storage has which; a new kind is one class and one row.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from time import monotonic
from typing import Any
from typing import NamedTuple

from ZODB.interfaces import IStorageIteration
from ZODB.MappingStorage import MappingStorage
from ZODB.POSException import POSKeyError
from ZODB.utils import maxtid
from zope.interface import implementer

from zodbcache.feeds.wrapped import innermost
from zodbcache.feeds.wrapped import is_demo
from zodbcache.feeds.wrapped import is_instance_of
from zodbcache.feeds.wrapped import is_zeo
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

    *named*: ``(oids, tid)`` pairs, each tid an upper bound.  *exact*: the last
    tid of an object there is its revision's.
    """

    through: int
    named: list[tuple[list[bytes], int]]
    exact: bool = False

    def doubting(self, witnesses: list[tuple[int, int]], shared: int) -> Changes:
        """The same, and the witnesses newer than *shared*, which are not what they were."""
        doubted = [to_bytes(oid) for oid, tid in witnesses if tid > shared]
        return self._replace(named=[*self.named, (doubted, self.through)], exact=False)


@implementer(ICatchUp)
class CatchUp:
    """A storage of which nothing more can be known: whatever happened, start empty."""

    def __init__(self, base: Any) -> None:
        self.base = base

    asks_for_many = False
    """Whether shared_through() asks about many witnesses at once."""

    @property
    def undo_goes_back(self) -> bool:
        """Whether undoing may make a revision current again that was so before."""
        return is_demo(innermost(self.base))

    @contextmanager
    def conversation(self) -> Iterator[None]:
        """What is asked inside may be asked over one connection."""
        yield

    def identity(self) -> str | None:
        """The same text whenever the same records are; None if nothing can be known again."""
        return identity_of(self.base)

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

    def _last_tid_after(self, since: int) -> int:
        """last_tid(), which must not lie before *since*: nobody can undo the future."""
        last = self.last_tid()
        if last < since:
            raise CannotCatchUp("the database is older than what was cached of it")
        return last

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

    def shared_through(self, checkpoint: int, witnesses: list[tuple[int, int]]) -> int:
        """Through which tid the database has the history that a tier knows; 0 if nowhere known.

        A transaction of the tier's checkpoint confirms.  Else the witnesses
        do, newest first: the same current tid confirms, a lower one refutes,
        a higher one or none says nothing.
        """
        if self.has_transaction(checkpoint):
            return checkpoint
        for oid, tid in witnesses:
            current = self.current_tid(oid)
            if current == tid:
                return min(tid, checkpoint)
            if current is not None and current < tid:
                return 0
        return 0


class IteratorCatchUp(CatchUp):
    """A storage with IStorageIteration: its transactions name their objects."""

    def quick_changes(self, since: int) -> Changes | None:
        return self.changes(since)

    def changes(self, since: int) -> Changes:
        through = self._last_tid_after(since)
        named: list[tuple[list[bytes], int]] = []
        if through > since:
            deadline = monotonic() + BUDGET_SECONDS
            for transaction in _transactions(self.base, since + 1, None):
                named.append(([record.oid for record in transaction], to_int(transaction.tid)))
                if monotonic() > deadline:
                    raise CannotCatchUp(f"more changed than {BUDGET_SECONDS:.0f} s can iterate")
        return Changes(through, named, exact=True)

    def has_transaction(self, tid: int) -> bool:
        found = list(islice(_transactions(self.base, tid, tid), 1))
        return bool(found) and to_int(found[0].tid) == tid


class ZEOCatchUp(IteratorCatchUp):
    """ZEO's ClientStorage: the server's invalidation queue first, then its iterator.

    The queue reaches back as many transactions as the server's
    ``invalidation-queue-size``; the iterator ships every state.
    """

    def is_ready(self) -> bool:
        return bool(self.base.is_connected())

    def last_tid(self) -> int:
        """The client's last tid, if it is the server's.

        The server's answer follows every push up to it on the same wire.  A
        client that is behind after it has lost a push, perhaps because a
        wrapper inside ours had no database yet to pass it to.
        """
        on_server = to_int(innermost(self.base)._call("lastTransaction"))
        in_client = super().last_tid()
        if in_client < on_server:
            raise Unsettled(f"{self.identity()} is behind its server")
        return in_client

    def quick_changes(self, since: int) -> Changes | None:
        last = self._last_tid_after(since)
        if last == since:
            return Changes(last, [])
        answer = innermost(self.base)._call("getInvalidations", to_bytes(since))
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


def identity_of(base: Any) -> str | None:
    """A text for the records of *base*; None where a later process cannot know them again."""
    inner = innermost(base)
    if isinstance(inner, MappingStorage) or is_demo(inner):
        return None
    if is_zeo(inner):
        identity = f"zeo:{inner._addr}:{inner._storage}"
    elif isinstance(getattr(inner, "_file_name", None), str):
        identity = f"file:{os.path.realpath(inner._file_name)}"
    else:
        identity = f"{_kind(inner)}:{inner.getName()}"
    return with_wrappers(base, identity)


def with_wrappers(base: Any, identity: str) -> str:
    """*identity* of what is innermost, as *base* gives it: wrappers may give other bytes."""
    inner = innermost(base)
    while base is not inner:
        identity = f"{_kind(base)}({identity})"
        base = base.base
    return identity


def _kind(base: Any) -> str:
    return f"{type(base).__module__}.{type(base).__name__}"


def _relstorage_catch_up(base: Any) -> CatchUp:
    from zodbcache.feeds.relstorage import RelStorageCatchUp

    return RelStorageCatchUp(base)


_STRATEGIES: tuple[tuple[Callable[[Any], bool], Callable[[Any], CatchUp]], ...] = (
    (
        lambda base: is_instance_of(innermost(base), "relstorage.storage", "RelStorage"),
        _relstorage_catch_up,
    ),
    (lambda base: is_zeo(innermost(base)), ZEOCatchUp),
    (IStorageIteration.providedBy, IteratorCatchUp),
    (lambda base: True, CatchUp),
)


def catch_up_for(base: Any) -> CatchUp:
    """The strategy for this storage: the first row of the table that fits."""
    return next(strategy(base) for fits, strategy in _STRATEGIES if fits(base))
