"""The long run, short: every process's memory and the shared file against the naive model."""

from __future__ import annotations

import pytest

from .long_run import run


@pytest.mark.parametrize(
    ("seed", "processes", "backend", "steps"),
    [
        (1, 1, "memory", 20_000),
        (1000, 2, "memory", 20_000),
        (2000, 3, "memory", 20_000),
        (3000, 1, "sqlite", 2_000),
        (4000, 3, "both", 2_000),
    ],
)
def test_no_wrong_revision(seed: int, processes: int, backend: str, steps: int) -> None:
    totals = run(steps, seed, processes=processes, backend=backend)
    assert totals.wrong == []
    assert totals.steps >= steps
    assert totals.hits > totals.reads / 20, "a cache that answers nothing cannot be wrong"
    assert totals.restored > 0, "nothing came back from the file"
