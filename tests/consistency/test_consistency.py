"""Processes and threads over one database and one cache file: no read sees a wrong revision.

The runs are short here; ``python -m tests.consistency`` makes them as long as you like.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .faults import FAULTS
from .run import Totals
from .run import run

pytest_plugins = ["servers"]

READS = 100_000
"""In each run over the cache."""

SHARED_READS = 40_000

FAULTY_READS = 20_000
"""Enough for each fault to show many times."""

Runs = Callable[..., Totals]


@pytest.fixture
def runs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Runs]:
    """``runs(kind, keep_history=..., ...)``: run() over a database of its own."""
    pytest.importorskip("relstorage")
    server: Any = None
    databases: list[str] = []

    def start(kind: str, *, keep_history: bool, **options: Any) -> Totals:
        nonlocal server
        address = str(tmp_path / "database")
        if kind == "postgresql":
            server = request.getfixturevalue("postgresql_server")
            databases.append(server.create(keep_history))
            address = server.dsn(databases[-1])
        return run(
            kind=kind,
            address=address,
            keep_history=keep_history,
            directory=tmp_path,
            **{"cache": "zodbcache", "seed": 1, "processes": 3, "threads": 3, **options},
        )

    yield start
    for database in databases:
        server.drop(database)


def check(totals: Totals, reads: int) -> None:
    """Nothing was wrong, and enough happened for that to mean something."""
    print(totals)
    assert totals.broken == []
    assert [str(wrong) for wrong in totals.wrong] == []
    assert totals["reads"] >= reads
    assert totals["commits"] > reads / 500
    assert totals["failed: ConflictError"] > 0


@pytest.mark.parametrize("keep_history", [True, False], ids=["history", "no-history"])
@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_no_wrong_revision(runs: Runs, kind: str, keep_history: bool) -> None:
    totals = runs(kind, keep_history=keep_history, reads=READS)
    check(totals, READS)
    assert totals["hits"] > totals["reads"] / 5, "a cache that answers nothing cannot be wrong"
    assert totals["restored"] > 0, "nothing came back from the file"
    for event in ("kills", "packs begun", "clears"):
        assert totals[event] > 0
    if kind == "postgresql":
        assert totals["connections ended"] > 0


def test_no_wrong_revision_while_the_file_is_shared(runs: Runs) -> None:
    """Memories that hold little, and a file that all go on writing: most comes from there."""
    totals = runs(
        "sqlite",
        keep_history=True,
        reads=SHARED_READS,
        processes=4,
        threads=2,
        memory_mb=1,
        write_seconds=0.05,
    )
    check(totals, SHARED_READS)
    assert totals["file_writes"] > 0
    assert totals["shared"] > 0, "nobody has read what another wrote"


def test_no_wrong_revision_over_native_mapping(runs: Runs) -> None:
    totals = runs("mvccmapping", keep_history=True, reads=READS, processes=1)
    check(totals, READS)
    assert totals["hits"] > totals["reads"] / 5


@pytest.mark.parametrize("keep_history", [True, False], ids=["history", "no-history"])
def test_base_itself_is_right(runs: Runs, keep_history: bool) -> None:
    """Whatever is found to be wrong with the cache is not wrong without it."""
    check(runs("sqlite", keep_history=keep_history, reads=FAULTY_READS, cache="none"), FAULTY_READS)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("stale-revisions", "revision"),
        ("other-bytes", "bytes"),
        ("lost-invalidations", "invalidation"),
        ("old-views", "view"),
        ("moving-views", "revision"),
    ],
)
def test_fault_is_found(runs: Runs, fault: str, kind: str) -> None:
    totals = runs("sqlite", keep_history=False, reads=FAULTY_READS, cache=fault)
    assert totals.broken == []
    assert kind in {wrong.kind for wrong in totals.wrong}


def test_every_fault_is_tested() -> None:
    (parameters,) = (mark for mark in test_fault_is_found.pytestmark)
    assert {fault for fault, _ in parameters.args[1]} == set(FAULTS)
