"""The file is busy, or cannot be written."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import apsw
import pytest

from zodbcache.errors import CacheFileError

from ..stepping import at_moment
from ..stepping import check_file
from ..stepping import check_reads
from ..stepping import file_rows
from .writer import ALL
from .writer import BETWEEN
from .writer import Open
from .writer import Writer
from .writer import X
from .writer import Y
from .writer import Z
from .writer import loads
from .writer import unsaved


@pytest.fixture
def stranger(a: Writer) -> Iterator[apsw.Connection]:
    """Somebody else's connection; nobody waits long for what it holds."""
    a.file._connection._sqlite.set_busy_timeout(1)
    connection = apsw.Connection(a.file.path)
    yield connection
    connection.close()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


@pytest.mark.parametrize("is_long", [False, True])
def test_file_is_busy(
    a: Writer,
    opened: Open,
    stranger: apsw.Connection,
    is_long: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A warning if it lasts, however often it is tried; all is saved once it is free."""
    if is_long:
        monkeypatch.setattr("zodbcache.attachment.LOCKED_SECONDS", 0)
    file, before = a.file, unsaved(a)
    with a.writing("begun"):
        stranger.execute("BEGIN IMMEDIATE")
    for _ in range(3):
        a.write()
        assert unsaved(a) == before
        check_reads(a)
    assert len(warnings(caplog)) == is_long
    assert a.file is file, "not let go"
    assert a.persistence.is_settled
    stranger.execute("COMMIT")
    a.write()
    assert check_file(a) == (8, ALL)
    assert unsaved(a) == 0
    assert len(warnings(caplog)) == is_long
    assert loads(opened(), ALL, 9) == 0


@pytest.mark.usefixtures("one_by_one")
def test_file_is_busy_between_two_transactions(
    a: Writer, stranger: apsw.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """What changes while nothing can be written is not written as current later."""
    with a.writing(BETWEEN):
        stranger.execute("BEGIN IMMEDIATE")
    before = file_rows(a.file)
    assert len(before[1]) == 1
    a.database.commit(9, [X, Y])
    a.hear(9)
    a.load(X, 10)
    a.write()
    assert file_rows(a.file) == before
    stranger.execute("COMMIT")
    a.write()
    assert check_file(a) == (9, {X: 9, Z: 3})
    assert unsaved(a) == 0
    assert warnings(caplog) == []
    check_reads(a)


@pytest.mark.parametrize("moment", ["packing", "packed", "inserted"])
@pytest.mark.parametrize("is_recoverable", [False, True])
def test_file_fails(
    a: Writer,
    opened: Open,
    moment: str,
    is_recoverable: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As on a full disk, or a broken one: what was packed is unsaved again."""
    file, before = a.file, unsaved(a)

    def fail() -> None:
        raise CacheFileError(
            file.path, "advance", cause="a fault", remedy="Wait.", recoverable=is_recoverable
        )

    at_moment(a, moment, fail)
    a.write()
    assert len(warnings(caplog)) == 1
    assert unsaved(a) == before
    assert a.persistence.is_settled == is_recoverable
    if is_recoverable:
        assert a.file is file, "not let go"
    else:
        a.persistence.retry_now()
        assert a.persistence.restore(quickly=False)
        assert a.file is not file
    a.write()
    assert check_file(a) == (8, ALL)
    assert unsaved(a) == 0
    assert len(warnings(caplog)) == 1
    assert loads(opened(), ALL, 9) == 0
