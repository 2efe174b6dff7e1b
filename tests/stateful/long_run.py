"""Drive the cache at random for as long as you like: ``python -m tests.stateful.long_run --help``.

Prints what was done, or the seed and the operations that went wrong.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from random import Random

from .random_operations import RandomOperations
from .world import Operation
from .world import World

STEPS_A_WORLD = 2000

BACKENDS = {"memory": ("memory",), "sqlite": ("sqlite",), "both": ("memory", "sqlite", "sqlite")}
"""Of the processes, in the order in which they are opened."""


class Totals:
    """*steps*, *reads*, *hits*, *restored* over all the worlds of a run; what went *wrong*."""

    def __init__(self) -> None:
        self.steps = self.reads = self.hits = self.restored = self.worlds = 0
        self.wrong: list[str] = []

    def __str__(self) -> str:
        return (
            f"worlds {self.worlds}, steps {self.steps}, reads {self.reads}, hits {self.hits},"
            f" restored rows {self.restored}, wrong={len(self.wrong)}"
        )


def run(
    steps: int,
    seed: int,
    *,
    processes: int = 2,
    backend: str = "memory",
    stop_at_first: bool = False,
) -> Totals:
    """Take *steps* steps, in worlds of their own seeds: ``seed``, ``seed + 1`` and so on."""
    totals = Totals()
    while totals.steps < steps:
        _run_world(
            totals,
            seed + totals.worlds,
            min(steps - totals.steps, STEPS_A_WORLD),
            processes,
            BACKENDS[backend],
        )
        if totals.wrong and stop_at_first:
            break
    return totals


def _run_world(
    totals: Totals, seed: int, steps: int, processes: int, backends: Sequence[str]
) -> None:
    random = Random(seed)
    operations = RandomOperations(random, processes)
    world = World(processes, queue_length=random.choice((1, 5, 20)), backends=backends)
    last: list[Operation] = []
    try:
        while world.steps < steps:
            last = [*last[-5:], operations.operation()]
            world.do(last[-1])
        world.close_all()
    except AssertionError as error:
        totals.wrong.append(f"seed {seed}, step {world.steps}: {error}; last {last}")
    finally:
        world.end()
        totals.worlds += 1
        totals.steps += world.steps
        totals.reads += world.reads
        totals.hits += world.hits
        totals.restored += world.restored


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--backend", choices=BACKENDS, default="memory")
    arguments = parser.parse_args()
    logging.getLogger("zodbcache").setLevel(logging.CRITICAL)
    started = time.monotonic()
    totals = run(
        arguments.steps, arguments.seed, processes=arguments.processes, backend=arguments.backend
    )
    for wrong in totals.wrong:
        print(wrong)
    print(f"{totals} in {time.monotonic() - started:.0f} s")
    return 1 if totals.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
