"""I7 of what lies on the disk: bits flipped in every page, a torn WAL, and files that
cannot be written."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import pytest

from zodbcache.cachefile.connection import PAGE_SIZE_BYTES as PAGE_BYTES
from zodbcache.errors import CacheFileError

from .operations import IDENTITY
from .operations import OPERATIONS
from .operations import Operation
from .operations import filled
from .operations import left_behind
from .operations import open_file
from .pages import structure
from .record import Record
from .record import make_record
from .sweep import judge

FRAME_BYTES = PAGE_BYTES + 24


@pytest.fixture(scope="module")
def record() -> Record:
    return make_record()


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory, record: Record) -> Path:
    """The directory of a file that was closed, its rows in a tree of several pages."""
    directory = tmp_path_factory.mktemp("closed")
    filled(directory, record)
    return directory


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, record: Record) -> Path:
    """The directory of a file whose user was killed: its last changes are in the WAL."""
    directory = tmp_path_factory.mktemp("killed")
    left_behind(directory, record)
    return directory


OPERATION = Operation("use", lambda use: None)
(GOLDEN,) = (one for one in OPERATIONS if one.name == "migrate from version 1")


class Copies:
    """Copies of one directory, each damaged in its own way and judged."""

    def __init__(
        self,
        template: Path,
        directory: Path,
        record: Record,
        operation: Operation = OPERATION,
    ) -> None:
        self._operation = operation
        self._template = template
        self._directory = directory
        self._record = record

    def content(self, suffix: str = ".sqlite3") -> bytes:
        (path,) = self._template.glob(f"*{suffix}")
        return path.read_bytes()

    def judge(
        self,
        content: bytes,
        what: str,
        suffix: str = ".sqlite3",
        first: Callable[[Path, Record, Operation], None] | None = None,
    ) -> None:
        """*first*: what is done before anybody looks."""
        shutil.rmtree(self._directory, ignore_errors=True)
        shutil.copytree(self._template, self._directory)
        (path,) = self._directory.glob(f"*{suffix}")
        path.write_bytes(content)
        try:
            if first is not None:
                first(self._directory, self._record, self._operation)
            proven = self._operation.later if first is not None else self._operation.proven
            operation = replace(self._operation, proven=proven)
            judge(self._directory, self._record, operation, may_be_damaged=True)
        except BaseException as exc:
            raise AssertionError(what) from exc


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a file of version 1 that was opened and closed."""
    directory = tmp_path_factory.mktemp("migrated")
    GOLDEN.prepare(directory, GOLDEN.make_record())
    open_file(directory, identity=GOLDEN.identity).close()
    return directory


@pytest.fixture
def copies(tmp_path: Path, closed: Path, record: Record) -> Copies:
    return Copies(closed, tmp_path / "copy", record)


@pytest.fixture
def killed_copies(tmp_path: Path, killed: Path, record: Record) -> Copies:
    return Copies(killed, tmp_path / "copy", record)


def flips(content: bytes, page_bytes: int = PAGE_BYTES) -> Iterator[tuple[str, bytes]]:
    """What was flipped, and *content* with that: one bit of each place that matters."""
    for page in range(len(content) // page_bytes):
        start = page * page_bytes
        for offset in structure(content[start : start + page_bytes], is_first=not page):
            flipped = bytearray(content)
            bit = (0, 6, 3, 5)[offset % 4]
            flipped[start + offset] ^= 1 << bit
            yield f"bit {bit} at {offset} of page {page + 1}", bytes(flipped)


def test_a_bit_flipped_in_every_page(copies: Copies) -> None:
    for what, content in islice(flips(copies.content()), 0, None, 5):
        copies.judge(content, what)


def test_changed_rows_deleted_after_a_bit_flipped(copies: Copies) -> None:
    """Nobody has read the file before it is written: a row that changed must not stay."""
    for what, content in islice(flips(copies.content()), 0, None, 2):
        copies.judge(content, what, first=delete_changed_rows)


def test_changed_rows_deleted_from_a_migrated_file(tmp_path: Path, migrated: Path) -> None:
    """The pages of a file that was migrated are compared as those of a new one are."""
    copies = Copies(migrated, tmp_path / "copy", GOLDEN.make_record(), GOLDEN)
    content = copies.content()
    page_bytes = int.from_bytes(content[16:18], "big")
    for what, flipped in islice(flips(content, page_bytes), 0, None, 2):
        copies.judge(flipped, what, first=delete_changed_rows)


def delete_changed_rows(directory: Path, record: Record, operation: Operation) -> None:
    """Raise the checkpoint, as a process does that has none of the new revisions."""
    try:
        file = open_file(directory, identity=operation.identity)
    except CacheFileError:
        return
    try:
        with suppress(CacheFileError):
            with file.snapshot() as snapshot:
                generation = snapshot.generation
            through = operation.later
            file.advance(through, generation, record.names_since(through), [], [])
        with suppress(CacheFileError):
            record.judge_file(file, proven=operation.later)
    finally:
        with suppress(CacheFileError):
            file.close()


def test_a_bit_flipped_in_the_text_of_the_schema(copies: Copies) -> None:
    content = copies.content()
    for word in (b"CREATE TABLE record", b"frequency", b"identity TEXT", b"witness"):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[content.index(word) + 3] ^= 1 << bit
            copies.judge(bytes(flipped), f"bit {bit} in {word!r}")


def test_a_bit_flipped_in_the_wal(killed_copies: Copies) -> None:
    content = killed_copies.content("-wal")
    for frame in range(len(content) // FRAME_BYTES):
        start = 32 + frame * FRAME_BYTES
        for offset in (0, 5, 9, 17, 23, 24, 30, 40, 8000, FRAME_BYTES - 1):
            flipped = bytearray(content)
            flipped[start + offset] ^= 4
            what = f"a bit at {offset} of frame {frame}"
            killed_copies.judge(bytes(flipped), what, suffix="-wal")


def test_a_truncated_wal(killed_copies: Copies) -> None:
    content = killed_copies.content("-wal")
    lengths = {0, 10, 31, 32, 40, len(content) - 1}
    for frame in range(len(content) // FRAME_BYTES + 1):
        end = 32 + frame * FRAME_BYTES
        lengths |= {end, end + 24, end + 5000}
    for length in sorted(lengths):
        if length < len(content):
            killed_copies.judge(content[:length], f"{length} bytes left", suffix="-wal")


def test_a_wal_of_another_file(killed_copies: Copies, closed: Path, tmp_path: Path) -> None:
    """The file was put back from a copy, its WAL was not."""
    other = tmp_path / "other"
    left_behind(other, make_record())
    (wal,) = other.glob("*-wal")
    killed_copies.judge(wal.read_bytes(), "another WAL", suffix="-wal")
    (file,) = closed.glob("*.sqlite3")
    killed_copies.judge(file.read_bytes(), "another file")


def test_a_file_truncated_at_every_page(copies: Copies, killed_copies: Copies) -> None:
    for where in (copies, killed_copies):
        content = where.content()
        for length in range(0, len(content), PAGE_BYTES // 2):
            where.judge(content[:length], f"{length} bytes left")


class ReadOnlyFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int]) -> None:
        flags[0] = flags[0] & ~apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_READONLY
        super().__init__("unix", name, flags)


class ReadOnlyVFS(apsw.VFS):
    """As the system does for a user who may read but not write, whoever runs the test."""

    def __init__(self) -> None:
        super().__init__("read only", base="unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        if flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            return ReadOnlyFile(name, flags)
        raise apsw.CantOpenError("read only")


@pytest.fixture
def read_only(tmp_path: Path, closed: Path) -> Iterator[Path]:
    """A directory with a file in it, neither of them writable."""
    directory = tmp_path / "cache"
    shutil.copytree(closed, directory)
    vfs = ReadOnlyVFS()
    yield directory
    vfs.unregister()


def test_a_file_that_cannot_be_written(read_only: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = {path.name: path.read_bytes() for path in read_only.iterdir()}
    with pytest.raises(CacheFileError) as caught:
        open_file(read_only)
    assert not caught.value.recoverable
    (name,) = before
    assert (read_only / name).read_bytes() == before[name]
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert any(name in one and "right to" in one for one in said)


def test_a_file_put_in_the_place_of_a_used_one(tmp_path: Path, record: Record) -> None:
    """By somebody who restores a backup under a running process: a later open uses it."""
    used, other = tmp_path / "used", tmp_path / "other"
    filled(other, record)
    user = open_file(used)
    record.advance(user, 10)
    (replacement,) = other.iterdir()
    os.replace(replacement, user.path)
    with pytest.raises(CacheFileError):
        record.advance(user, 15, since=10)
    user.close()
    judge(used, record, OPERATION)
    assert IDENTITY in open_identity(used)


def open_identity(directory: Path) -> str:
    file = open_file(directory)
    try:
        with file.snapshot() as snapshot:
            return snapshot.identity
    finally:
        file.close()
