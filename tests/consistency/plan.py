"""What is decided at random, and how often: the same for the same seed."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace
from random import Random
from typing import Any

LIVES_A_PROCESS = 5
"""So often, about, each process of a run opens its storage."""

KILLED_SHARE = 0.4
"""Of the lives of a process."""

BASE_OPTIONS = (
    {"cache_local_mb": 0, "cache_delta_size_limit": 20},
    {"cache_local_mb": 0, "cache_delta_size_limit": 100_000},
    {"cache_local_mb": 1, "cache_delta_size_limit": 100_000},
)
"""RelStorage's.  With a small delta limit its polls often answer None; but then
its own cache has been seen to serve outdated revisions."""

BACKENDS = ("memory", "sqlite")

READ_SIZES = (3, 10, 30, 60, 120)
COMMIT_SIZES = (1, 1, 1, 2, 3, 5, 8, 20)

KILL_POINTS = ("between", "reading", "stored", "voted", "finished")


@dataclass(frozen=True)
class Life:
    """From opening a storage to closing it, or to the end of the process.

    *kill_point*, *kill_step*: where the first thread kills the process; None: nobody does.
    *is_silent*: writes nothing into the file before its end, so that what it finds there
    was written by others.
    """

    name: str
    number: int
    reads_a_thread: int
    cache_backend: str
    cache_local_mb: float
    cache_write_seconds: float
    cache_delta_size_limit: int
    base_options: dict[str, int]
    instances_a_thread: int
    releases: bool
    kill_point: str | None
    kill_step: int
    is_silent: bool = False

    def cache_options(self) -> dict[str, Any]:
        return {
            "cache_backend": self.cache_backend,
            "cache_local_mb": self.cache_local_mb,
            "cache_write_seconds": self.cache_write_seconds,
            "cache_delta_size_limit": self.cache_delta_size_limit,
        }


def life(
    seed: int,
    process: int,
    number: int,
    *,
    reads: int,
    kills: bool,
    backend: str | None = None,
    memory_mb: float | None = None,
    write_seconds: float | None = None,
) -> Life:
    """*reads*: how many each thread makes in all its lives together.

    *backend*, *memory_mb*, *write_seconds*: of the cache; None: at random.
    """
    random = Random(f"life {seed} {process} {number}")
    killed = random.random() < KILLED_SHARE
    planned = Life(
        name=f"p{process}l{number}",
        number=number,
        reads_a_thread=max(1, int(reads / LIVES_A_PROCESS * random.uniform(0.5, 1.5))),
        cache_backend=backend or Random(f"backend {seed} {process} {number}").choice(BACKENDS),
        cache_local_mb=random.choice((1, 1, 2, 50)) if memory_mb is None else memory_mb,
        cache_write_seconds=(
            random.choice((0, 0.05, 0.5, 2)) if write_seconds is None else write_seconds
        ),
        cache_delta_size_limit=random.choice((1, 20, 300, 100_000)),
        base_options=random.choice(BASE_OPTIONS),
        instances_a_thread=random.choice((1, 2, 3)),
        releases=random.random() < 0.5,
        kill_point=random.choice(KILL_POINTS) if killed and kills else None,
        kill_step=random.randrange(20, 200),
    )
    return planned if process or number else _silent(planned)


def _silent(planned: Life) -> Life:
    """With room for what would have to be told to the file otherwise."""
    return replace(
        planned,
        cache_write_seconds=0,
        cache_delta_size_limit=100_000,
        kill_point=None,
        is_silent=True,
    )


class Choices:
    """A thread's decisions, one method each."""

    def __init__(self, seed: int, life: str, thread: int) -> None:
        self.random = Random(f"thread {seed} {life} {thread}")

    def happens(self, share: float) -> bool:
        return self.random.random() < share

    def oids(self, among: range, count: int) -> list[int]:
        """Some objects, the first ones of the range more often."""
        return [
            among[int(len(among) * self.random.random() ** 2)]
            if self.random.random() < 0.5
            else self.random.choice(among)
            for _ in range(count)
        ]

    def read_count(self) -> int:
        return self.random.choice(READ_SIZES)

    def commit_size(self) -> int:
        return self.random.choice(COMMIT_SIZES)

    def commit_kind(self) -> str:
        """How a transaction with changes goes."""
        kinds = {
            "finish": 80,
            "abort stored": 4,
            "abort voted": 4,
            "create": 5,
            "undo": 8,
        }
        (kind,) = self.random.choices(list(kinds), list(kinds.values()))
        return kind
