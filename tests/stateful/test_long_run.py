"""The long run, short: every process's memory and the shared file against the naive model."""

from __future__ import annotations

import pytest

from .long_run import run


@pytest.mark.parametrize(("seed", "processes"), [(1, 1), (1000, 2), (2000, 3)])
def test_no_wrong_revision(seed: int, processes: int) -> None:
    totals = run(20_000, seed, processes=processes)
    assert totals.wrong == []
    assert totals.steps >= 20_000
    assert totals.hits > totals.reads / 20, "a cache that answers nothing cannot be wrong"
    assert totals.restored > 0, "nothing came back from the file"
