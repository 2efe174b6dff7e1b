"""Operations for :class:`.world.World`, made by a seeded random generator."""

from __future__ import annotations

from random import Random

from .world import DELTAS_MAX
from .world import MOMENTS
from .world import OIDS
from .world import SIZES
from .world import Operation

DEPTH = 2
"""How deep operations may happen in the middle of others."""

_EVERYWHERE = {"load": 40, "deliver": 12, "foreign": 7, "commit": 7, "announced": 3, "mend": 4}
_CONNECTION = {"disconnect": 0.2, "step": 4, "reconnect": 0.3}
_AT_THE_TOP = {"save": 0.4, "pack": 0.1, "pack_elsewhere": 0.2, "make_garbage": 0.2, "open": 4}
_RARELY = {
    "collect_elsewhere": 0.1,
    "close": 0.5,
    "crash": 0.1,
    "restart_server": 0.02,
    "copy_database": 0.05,
    "swap_database": 0.03,
}
_NESTED = {**_EVERYWHERE, **_CONNECTION}
_TOP = {**_NESTED, **_AT_THE_TOP, **_RARELY}


def _more(factor: float, *names: str) -> dict[str, float]:
    return {name: weight * factor if name in names else weight for name, weight in _TOP.items()}


PROFILES = (
    _TOP,
    {**_more(30, "reconnect"), "mend": 15},
    _more(20, *_RARELY),
    {**_NESTED, "load": 20, "close": 1, "open": 6, "copy_database": 0.5, "swap_database": 0.7},
)
"""Weights of the operations at the top: a bit of all, reconnections, restarts, restored copies."""


class RandomOperations:
    def __init__(self, random: Random, processes: int) -> None:
        self._random = random
        self._processes = processes
        self._weights = random.choice(PROFILES)
        self._nested = {name: self._weights[name] for name in _NESTED}

    def operation(self, depth: int = DEPTH) -> Operation:
        weights = self._weights if depth == DEPTH else self._nested
        (name,) = self._random.choices(list(weights), list(weights.values()))
        return (name, *getattr(self, f"_{name}", self._number)(depth))

    def _meanwhile(self, depth: int, most: int = 4) -> list[Operation]:
        if depth == 0 or self._random.random() < 0.6:
            return []
        return [self.operation(depth - 1) for _ in range(self._random.randint(1, most))]

    def _loads(self, depth: int) -> list[Operation]:
        """What may happen in a callback: reading."""
        count = self._random.choice((0, 0, 1, 3)) if depth else 0
        return [("load", *self._load(0)) for _ in range(count)]

    def _number(self, depth: int = 0) -> Operation:
        return (self._random.randrange(self._processes),)

    def _nothing(self, depth: int) -> Operation:
        return ()

    _pack_elsewhere = _collect_elsewhere = _restart_server = _copy_database = _nothing

    def _written(self) -> list[tuple[int, int]]:
        oids = self._random.sample(OIDS, self._random.choice((1, 1, 1, 2, 3, len(OIDS))))
        return [(oid, self._size()) for oid in oids]

    def _size(self) -> int:
        return 0 if self._random.random() < 0.04 else self._random.choice(SIZES)

    def _gap(self) -> int:
        return self._random.choice((1, 1, 2, 3))

    def _load(self, depth: int) -> Operation:
        age = self._random.choice((0, 0, 0, 0, 1, 2, self._random.randrange(20)))
        stale = self._random.random() < 0.2
        return (
            *self._number(),
            self._random.choice(OIDS),
            age,
            stale,
            self._meanwhile(depth),
            self._meanwhile(depth),
        )

    def _commit(self, depth: int) -> Operation:
        ways = "store", "store", "store", "resolve", "undo", "restore", "abort"
        return (
            *self._number(),
            self._written(),
            self._random.choice(ways),
            self._gap(),
            self._random.random() < 0.5,
            self._loads(depth),
            self._meanwhile(depth),
        )

    def _foreign(self, depth: int) -> Operation:
        return self._written(), self._gap()

    def _announced(self, depth: int) -> Operation:
        return *self._number(), *self._foreign(depth), self._loads(depth), self._loads(depth)

    def _deliver(self, depth: int) -> Operation:
        return *self._number(), self._random.choice((1, 1, 2, 99))

    def _step(self, depth: int) -> Operation:
        return *self._number(), self._random.random() < 0.5

    def _mend(self, depth: int) -> Operation:
        return *self._number(), self._random.random() < 0.8, self._meanwhile(depth, 12)

    def _reconnect(self, depth: int) -> Operation:
        missed = [self._written() for _ in range(self._random.choice((0, 1, 2, 7)))]
        return *self._number(), missed, self._random.random() < 0.5

    def _save(self, depth: int) -> Operation:
        return *self._number(), self._random.choice(MOMENTS), self._meanwhile(depth)

    def _open(self, depth: int) -> Operation:
        return *self._number(), self._random.choice(DELTAS_MAX), self._meanwhile(depth, 12)

    def _make_garbage(self, depth: int) -> Operation:
        return (self._gap(),)

    def _swap_database(self, depth: int) -> Operation:
        committed = [self._written() for _ in range(self._random.choice((0, 1, 1, 3, 8)))]
        return self._random.randrange(2), committed
