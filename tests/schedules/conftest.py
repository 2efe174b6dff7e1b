"""Native databases with the process under test over them.

RelStorage runs over SQLite and PostgreSQL, with history and without.  A test module
that asks for these says ``pytest_plugins = ["servers"]``, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .native import OIDS
from .native import Copies
from .native import Site
from .native import commit

DATABASES = [
    pytest.param((kind, keep_history), id=f"{kind}-{'history' if keep_history else 'free'}")
    for kind in ("SQLite", "PostgreSQL")
    for keep_history in (True, False)
]


@pytest.fixture(params=DATABASES)
def site(request: pytest.FixtureRequest, open_relstorage: Any, tmp_path: Path) -> Iterator[Site]:
    """A database with the objects of OIDS."""
    kind, keep_history = request.param
    site = Site(
        lambda **options: open_relstorage(kind, keep_history=keep_history, **options),
        tmp_path / "cache",
    )
    commit(site.outside, OIDS)
    yield site
    site.close()


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Copies]:
    """One history-free SQLite database, to be copied and exchanged."""
    pytest.importorskip("relstorage")
    copies = Copies(tmp_path / "copies")
    yield copies
    copies.close()


@pytest.fixture
def town(copies: Copies, tmp_path: Path) -> Iterator[Site]:
    """A process over what ``copies`` points to."""
    site = Site(copies.open, tmp_path / "cache")
    commit(site.outside, OIDS)
    yield site
    site.close()
