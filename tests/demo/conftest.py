"""Where the demo's databases can be put."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def enterable_path():
    """A directory of the test's own, in one that every account may enter.

    pytest's is not: and PostgreSQL, which does not run as root, could not
    get there when the tests do.
    """
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)
