"""A writer with everything in memory and nothing in the file, and others beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..stepping import Database
from ..stepping import Worker
from .writer import Open
from .writer import Writer
from .writer import X
from .writer import Y
from .writer import Z
from .writer import write_one_by_one


@pytest.fixture
def database() -> Database:
    return Database({3: [Z], 5: [X], 8: [Y]})


@pytest.fixture
def opened(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """``opened(Writer)``: a process of its own over the file; readers see at once what is new."""
    monkeypatch.setattr("zodbcache.cachefile.reader.RENEW_SECONDS", 0.0)
    workers: list[Worker] = []

    def open_one(kind: type[Worker] = Worker) -> Worker:
        workers.append(kind(database, tmp_path, starts_at=database.last_tid))
        assert workers[-1].persistence.restore(quickly=False)
        return workers[-1]

    yield open_one
    for worker in workers:
        worker.close()


@pytest.fixture
def a(opened: Open) -> Writer:
    """Has everything in memory, and nothing in the file."""
    worker: Writer = opened(Writer)
    worker.read_all()
    assert worker.cache.writer._thread is not None, "started by the first miss"
    return worker


one_by_one = pytest.fixture(write_one_by_one)
