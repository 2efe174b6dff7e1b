"""Skip what stands in the one table of deselected tests."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from .deselected import DESELECTED

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            name = item.nodeid.rpartition("/")[2]
            for pattern, reason in DESELECTED.items():
                if fnmatchcase(name, pattern):
                    item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, fresh: borrowed tests write where they stand."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
