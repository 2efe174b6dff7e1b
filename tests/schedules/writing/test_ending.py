"""The application packs, closes or is interrupted in the middle of a round."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from zodbcache.errors import CacheFileError

from ..stepping import MOMENTS
from ..stepping import Database
from ..stepping import Worker
from ..stepping import at_moment
from ..stepping import check_file
from ..stepping import check_reads
from ..stepping import file_rows
from .writer import ALL
from .writer import BETWEEN
from .writer import WAIT_SECONDS
from .writer import Open
from .writer import Writer
from .writer import X
from .writer import Y
from .writer import Z
from .writer import loads
from .writer import unsaved
from .writer import write_one_by_one


@pytest.mark.parametrize("moment", MOMENTS)
def test_everything_is_forgotten(a: Writer, opened: Open, moment: str) -> None:
    """As at an own pack: what the writer has in hand is gone with the rest."""
    forgetting = Thread(target=a.cache.forget)
    with a.writing(moment):
        forgetting.start()
    forgetting.join(WAIT_SECONDS)
    assert not forgetting.is_alive()
    assert file_rows(a.file) == (0, {})
    assert not any(a.is_held(oid, 8) for oid in ALL)
    a.write()
    assert file_rows(a.file) == (0, {})
    assert loads(opened(), ALL, 9) == len(ALL)
    assert loads(a, ALL, 9) == len(ALL)


def test_written_while_everything_is_forgotten(a: Writer) -> None:
    """The writer comes between the file and the memory."""
    forget_all = a.log.forget_all

    def late() -> None:
        a.write()
        forget_all()

    a.log.forget_all = late  # type: ignore[method-assign]
    a.cache.forget()
    a.log.forget_all = forget_all  # type: ignore[method-assign]
    a.write()
    assert not any(a.is_held(oid, 8) for oid in ALL)
    assert file_rows(a.file)[1] == {}


@pytest.fixture
def row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows come back by preload() only, one after the other."""
    monkeypatch.setattr("zodbcache.persistence.FEW_ROWS", 0)
    monkeypatch.setattr("zodbcache.cachefile.snapshot._BATCH_ROWS", 1)


@pytest.mark.usefixtures("row_by_row")
def test_rows_are_preloaded_while_everything_is_forgotten(a: Writer, opened: Open) -> None:
    """What is on its way back from the file is forgotten, too."""
    a.write()
    b = opened()
    assert b.persistence.wants_preload
    pauses = iter([b.cache.forget])
    b.persistence.preload(lambda: next(pauses, lambda: None)())
    assert next(pauses, None) is None, "it did happen"
    assert not any(b.is_held(oid, 8) for oid in ALL)


@pytest.mark.usefixtures("row_by_row")
def test_rows_are_preloaded_while_the_file_goes_ahead(a: Writer, opened: Open) -> None:
    """Each is judged by what is known when it comes."""
    a.write()
    b = opened()

    def change() -> None:
        a.database.commit(9, [X, Z])
        a.hear(9)
        a.write()
        b.hear(9)

    pauses = iter([change])
    b.persistence.preload(lambda: next(pauses, lambda: None)())
    assert b.is_held(Y, 9)
    assert not b.is_held(X, 9)
    assert not b.is_held(Z, 9)
    check_reads(b)


@pytest.mark.parametrize("moment", MOMENTS)
def test_closing_while_rows_are_written(a: Writer, opened: Open, moment: str) -> None:
    """It waits for the transaction, and saves what came meanwhile."""
    b = opened()
    closing = Thread(target=a.cache.close)
    with a.writing(moment):
        a.database.commit(9, [X, Y])
        a.finish(9)
        closing.start()
    closing.join(WAIT_SECONDS)
    assert not closing.is_alive()
    assert check_file(b) == (9, {X: 9, Y: 9, Z: 3})


@pytest.mark.usefixtures("one_by_one")
def test_closing_between_two_transactions(a: Writer, opened: Open) -> None:
    """The writer stops there; what is left is saved by who closes."""
    b = opened()
    closing = Thread(target=a.cache.close)
    with a.writing(BETWEEN):
        closing.start()
        assert a.cache.writer._stopping.wait(WAIT_SECONDS)
        assert len(check_file(b)[1]) == 1
    closing.join(WAIT_SECONDS)
    assert check_file(b) == (8, ALL)


@pytest.mark.parametrize("moment", [*MOMENTS, BETWEEN])
def test_interrupted_while_rows_are_written(
    database: Database, opened: Open, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal in the middle of a save loses nothing: the next one writes all."""
    if moment == BETWEEN:
        write_one_by_one(monkeypatch)
    a = opened()
    a.read_all()

    def interrupt() -> bool:
        raise KeyboardInterrupt

    if moment == BETWEEN:
        with pytest.raises(KeyboardInterrupt):
            a.persistence.save(interrupt)
        assert len(check_file(a)[1]) == 1
    else:
        at_moment(a, moment, interrupt)
        with pytest.raises(KeyboardInterrupt):
            a.persistence.save()
        assert check_file(a) == ((8, ALL) if moment == "committed" else (0, {}))
    assert a.persistence.save() == 8
    assert check_file(a) == (8, ALL)
    assert unsaved(a) == 0


def test_everything_is_forgotten_while_there_is_no_file(a: Writer) -> None:
    """Its rows do not come back when it does: the database may have forgotten them."""
    a.write()
    a.persistence._give_up(
        CacheFileError(a.file.path, "read", cause="a fault", remedy="Wait.", recoverable=False)
    )
    assert a.persistence._file is None
    a.cache.forget()
    a.persistence.retry_now()
    assert a.persistence.restore(quickly=False)
    assert not any(a.is_held(oid, 8) for oid in ALL)
    assert loads(a, ALL, 9) == len(ALL)


def test_log_forgets_while_it_takes_the_file_along(a: Writer, opened: Open) -> None:
    """More changes than it can name come while the file is confirmed: it asks again."""
    a.write()
    a.database.commit(9, [X])
    b = Worker(a.database, Path(a.file.path).parent, starts_at=9)
    advance = b.file.advance

    def late_advance(*arguments: Any) -> Any:
        b.file.advance = advance  # type: ignore[method-assign]
        b.log._deltas_max = 1
        a.database.commit(10, [Y, 98, 99])
        b.hear(10)
        return advance(*arguments)

    b.file.advance = late_advance  # type: ignore[assignment, method-assign]
    try:
        if not b.persistence.restore(quickly=False):
            assert b.persistence.wants_care or b.persistence.wants_restore
            assert b.persistence.restore(quickly=False)
        assert b.persistence.is_settled
        assert b.log.start == 10, "it did happen"
        check_reads(b)
        check_file(b)
    finally:
        b.close()
