"""The database of each test, in a directory and with processes of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .children import Application


@pytest.fixture
def zeo(tmp_path: Path) -> Iterator[Application]:
    application = Application(tmp_path, is_zeo=True)
    yield application
    application.stop()


@pytest.fixture(params=["ZEO", "FileStorage"])
def application(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Application]:
    application = Application(tmp_path, is_zeo=request.param == "ZEO")
    yield application
    application.stop()
