"""Storages that are wrong now and then, to prove that the judge finds it out."""

from __future__ import annotations

from random import Random
from typing import Any

SHARE = 0.01
"""How often a fault shows, where it can."""


class _Root:
    """The storage whose instances have the fault."""

    def __init__(self, storage: Any, fault: type[Instance], random: Random) -> None:
        self._base = storage
        self._fault = fault
        self._random = random
        self._past: dict[bytes, tuple[bytes, bytes]] = {}

    def new_instance(self) -> Instance:
        return self._fault(self._base.new_instance(), self._random, self._past)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._base, name)


class Instance:
    """*past*: of each object the revision that some instance saw first."""

    def __init__(self, base: Any, random: Random, past: dict[bytes, tuple[bytes, bytes]]) -> None:
        self._base = base
        self._random = random
        self._past = past

    def _shows(self) -> bool:
        return self._random.random() < SHARE

    def __getattr__(self, name: str) -> Any:
        return getattr(self._base, name)


class StaleRevisions(Instance):
    """Serves a revision that is not the current one any more."""

    def load(self, oid: bytes, version: str = "") -> tuple[bytes, bytes]:
        found: tuple[bytes, bytes] = self._base.load(oid)
        first = self._past.setdefault(oid, found)
        return first if self._shows() else found


class OtherBytes(Instance):
    """Serves the bytes of another revision under the right tid."""

    def load(self, oid: bytes, version: str = "") -> tuple[bytes, bytes]:
        state, tid = self._base.load(oid)
        first, _ = self._past.setdefault(oid, (state, tid))
        return (first if self._shows() else state), tid


class LostInvalidations(Instance):
    """Forgets to tell that an object changed."""

    def poll_invalidations(self) -> Any:
        changed = self._base.poll_invalidations()
        if changed and self._random.random() < SHARE * 10:
            changed = list(changed)[1:]
        return changed


class OldViews(Instance):
    """Does not sync when asked to."""

    _skips = False

    def sync(self, force: bool = True) -> None:
        self._skips = self._random.random() < SHARE * 10
        if not self._skips:
            self._base.sync(force)

    def poll_invalidations(self) -> Any:
        return [] if self._skips else self._base.poll_invalidations()

    def afterCompletion(self) -> None:
        """Nothing, so that the view stays."""


class MovingViews(Instance):
    """Moves its view on within a transaction."""

    def load(self, oid: bytes, version: str = "") -> tuple[bytes, bytes]:
        if self._shows():
            self._base.sync()
            self._base.poll_invalidations()
        found: tuple[bytes, bytes] = self._base.load(oid)
        return found


FAULTS: dict[str, type[Instance]] = {
    "stale-revisions": StaleRevisions,
    "other-bytes": OtherBytes,
    "lost-invalidations": LostInvalidations,
    "old-views": OldViews,
    "moving-views": MovingViews,
}


def plant(fault: str, storage: Any, random: Random) -> Any:
    """*storage*, with the fault of that name in its instances."""
    return _Root(storage, FAULTS[fault], random)
