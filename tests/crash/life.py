"""What one process is to do, and how it ends: the same for the same seed."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from random import Random
from typing import Any

OIDS = range(1, 601)
SAMPLE = 150
"""So many are read by each process before anything else."""

CALLS = 400
"""A process that reads and writes for a while makes about so many that change a file."""


class End(enum.Enum):
    """How a life ends."""

    AT_A_MOMENT = "killed at a moment"
    AT_A_CALL = "killed at a call"
    WELL = "closed"


@dataclass(frozen=True)
class Life:
    """*moment*: when it is killed, in lengths of an average life.

    *call*: how many calls that change the cache file are made before.
    """

    seed: str
    options: dict[str, Any]
    steps: int
    end: End
    moment: float
    call: int


def life(seed: int, number: int, *, write_seconds: float | None, memory_mb: float) -> Life:
    random = Random(f"life {seed} {number}")
    if write_seconds is None:
        write_seconds = random.choice((0.0, 0.01, 0.1))
    return Life(
        seed=f"{seed} {number}",
        options={
            "cache_local_mb": memory_mb,
            "cache_file_mb": 50 if seed % 2 else 1,
            "cache_write_seconds": write_seconds,
        },
        steps=random.randrange(5, 30),
        end=random.choices(list(End), (5, 5, 1))[0],
        moment=random.uniform(0, 1.2),
        call=int(random.expovariate(3 / CALLS)) if random.random() < 0.7 else random.randrange(30),
    )
