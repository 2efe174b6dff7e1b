"""Some dozens of kills; ``python -m tests.crash`` makes them as many as you like."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("seed", "processes"),
    [
        pytest.param(1, 1, id="one"),
        pytest.param(2, 1, id="one-trimming"),
        pytest.param(3, 3, id="three"),
        pytest.param(4, 3, id="three-trimming"),
    ],
)
def test_nothing_is_wrong_after_kills(seed: int, processes: int, tmp_path: Path) -> None:
    """From a process that has nothing but this to do, for it forks."""
    command = ["--kills", "30", "--seed", str(seed), "--processes", str(processes)]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.crash", *command, "--keep", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    print(ended.stdout)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.rstrip().endswith("broken=0")
