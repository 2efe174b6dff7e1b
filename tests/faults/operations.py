"""What a cache file is asked to do while its input and output fail."""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path

import apsw

from zodbcache.cachefile import CacheFile
from zodbcache.cachefile import RowReader
from zodbcache.cachefile.quarantine import file_name
from zodbcache.cachefile.schema import VERSION
from zodbcache.errors import CacheFileError

from .record import LATEST
from .record import Record
from .record import make_record

IDENTITY = "a database whose file has faults"
GOLDEN = Path(__file__).parent.parent / "golden"
BUSY_TIMEOUT_MS = 10
INCREMENTAL = 2


def open_file(directory: Path, *, limit_bytes: int = 10**7, identity: str = IDENTITY) -> CacheFile:
    return CacheFile.open(
        directory, identity=identity, limit_bytes=limit_bytes, busy_timeout_ms=BUSY_TIMEOUT_MS
    )


@dataclass
class Use:
    """One run of an operation in a directory of its own."""

    directory: Path
    record: Record
    identity: str = IDENTITY
    file: CacheFile | None = None
    peer: CacheFile | None = None
    readers: list[RowReader] = field(default_factory=list)

    def open(self, **options: int) -> CacheFile:
        self.file = open_file(self.directory, identity=self.identity, **options)
        return self.file

    def the_file(self) -> CacheFile:
        assert self.file is not None
        return self.file

    def close(self) -> None:
        for reader in self.readers:
            with suppress(CacheFileError):
                reader.close()
        for file in (self.file, self.peer):
            if file is not None:
                with suppress(CacheFileError):
                    file.close()


@dataclass(frozen=True)
class Operation:
    """*prepare*: makes the directory.  *begin*: before the faults.  *act*: among them.
    *check*: that it has done what it is for, when nothing failed.

    *proven*: what the checkpoint may reach.  *later*: a tid with more changes.
    """

    name: str
    act: Callable[[Use], object]
    begin: Callable[[Use], object] = lambda use: None
    prepare: Callable[[Path, Record], object] = lambda directory, record: None
    check: Callable[[Use], object] = lambda use: None
    make_record: Callable[[], Record] = make_record
    identity: str = IDENTITY
    proven: int = 15
    later: int = 20

    def __str__(self) -> str:
        return self.name


def filled(directory: Path, record: Record) -> None:
    """A file that was closed at 10."""
    file = open_file(directory)
    record.advance(file, 10)
    file.close()


def left_behind(directory: Path, record: Record) -> None:
    """The file, at 15, of a process that was killed: all changes since 10 are in the WAL."""
    filled(directory / "used", record)
    file = open_file(directory / "used")
    record.advance(file, 15, since=10)
    for path in (directory / "used").iterdir():
        if not path.name.endswith("-shm"):
            shutil.copy(path, directory)
    file.close()
    shutil.rmtree(directory / "used")


def damaged(directory: Path, record: Record) -> None:
    """A file whose checkpoint was raised by accident."""
    filled(directory, record)
    connection = apsw.Connection(str(next(directory.iterdir())))
    connection.execute("UPDATE tier SET checkpoint = 15")
    connection.close()


_GOLDEN_V1 = runpy.run_path(str(GOLDEN / "make_v1.py"))


def golden_v1(directory: Path, record: Record) -> None:
    directory.mkdir(exist_ok=True)
    name = file_name(identity=_GOLDEN_V1["IDENTITY"], prefix="", sequence=0)
    shutil.copy(GOLDEN / "v1.sqlite3", directory / name)


def golden_v1_record() -> Record:
    states = {(oid, tid): state for oid, tid, _, state in _GOLDEN_V1["ROWS"]}
    states[7, _GOLDEN_V1["CHECKPOINT"]] = b"known by its witness only"
    states[2, _GOLDEN_V1["CHECKPOINT"] + 3] = b"a change that version 1 never saw"
    return Record(states)


def advance(use: Use) -> None:
    use.record.advance(use.the_file(), 15, since=10)


def fill(use: Use) -> None:
    use.record.advance(use.the_file(), 15)


def read_one_by_one(use: Use) -> None:
    reader = use.the_file().reader()
    use.readers.append(reader)
    for oid, ahead in ((3, 0), (41, 0), (20, 10), (60, 0), (1000, 0)):
        found = reader.read(oid, ahead=ahead)
        assert found.checkpoint <= 10
        use.record.judge(found.rows, found.checkpoint)


def read_beside_a_writer(use: Use) -> None:
    """The transaction stays open over reads; it is renewed twice."""
    assert use.peer is not None
    reader = use.the_file().reader()
    use.readers.append(reader)
    for step in (lambda: None, lambda: use.record.advance(use.peer, 15, since=10), reader.renew):
        step()
        for oid, ahead in ((3, 0), (41, 0), (20, 10), (69, 10)):
            found = reader.read(oid, ahead=ahead)
            assert found.checkpoint in (0, 10, 15)
            use.record.judge(found.rows, found.checkpoint)


def newest_is_read(use: Use) -> None:
    found = use.readers[-1].read(70)
    assert found.checkpoint == 15 and [row[0] for row in found.rows] == [70]


def trim(use: Use) -> None:
    use.the_file().trim()


def is_trimmed(use: Use) -> None:
    with use.the_file().snapshot() as snapshot:
        assert 0 < snapshot.size_bytes <= use.the_file().limit_bytes


def warm(use: Use) -> None:
    file = use.the_file()
    with file.snapshot() as snapshot:
        generation = snapshot.generation
    file.warm(generation, [(oid, use.record.current(oid, 10), 3 + oid % 5) for oid in range(70)])


def is_warm(use: Use) -> None:
    (count,) = query(use, "SELECT count(*) FROM heat WHERE frequency > 0")
    assert count == 70


def is_migrated(use: Use) -> None:
    assert query(use, "PRAGMA user_version") == (VERSION,)
    assert query(use, "SELECT count(*) FROM record") == (len(_GOLDEN_V1["ROWS"]),)
    assert query(use, "PRAGMA auto_vacuum") == (INCREMENTAL,)


def query(use: Use, sql: str) -> tuple[int, ...]:
    """The first row that SQLite tells of the file."""
    connection = apsw.Connection(use.the_file().path)
    try:
        return next(connection.execute(sql))
    finally:
        connection.close()


def restore(use: Use) -> None:
    with use.the_file().snapshot() as snapshot:
        assert snapshot.checkpoint <= 10
        use.record.judge(snapshot.rows(LATEST, 10**9), snapshot.checkpoint)
        use.record.judge(snapshot.rows(LATEST, 10_000), snapshot.checkpoint)
        snapshot.newest(10)


def reset(use: Use) -> None:
    use.the_file().reset(1)


def with_peer(use: Use) -> None:
    use.open()
    use.peer = open_file(use.directory)


def with_unsaved_wal(use: Use) -> None:
    use.open()
    advance(use)


OPERATIONS = [
    Operation("open a new file", Use.open),
    Operation("open", Use.open, prepare=filled),
    Operation("open after a kill", Use.open, prepare=left_behind),
    Operation("open a damaged file", Use.open, prepare=damaged),
    Operation(
        "migrate from version 1",
        Use.open,
        prepare=golden_v1,
        check=is_migrated,
        make_record=golden_v1_record,
        identity=_GOLDEN_V1["IDENTITY"],
        proven=_GOLDEN_V1["CHECKPOINT"],
        later=_GOLDEN_V1["CHECKPOINT"] + 5,
    ),
    Operation("save new rows", fill, begin=Use.open),
    Operation("save changed rows", advance, begin=Use.open, prepare=filled),
    Operation("save beside a peer", advance, begin=with_peer, prepare=filled),
    Operation("read single rows", read_one_by_one, begin=Use.open, prepare=filled),
    Operation(
        "read beside a writer",
        read_beside_a_writer,
        begin=with_peer,
        prepare=filled,
        check=newest_is_read,
    ),
    Operation("restore", restore, begin=Use.open, prepare=filled),
    Operation("reset", reset, begin=with_peer, prepare=filled),
    Operation(
        "trim",
        trim,
        begin=lambda use: use.open(limit_bytes=15_000),
        prepare=filled,
        check=is_trimmed,
        proven=10,
    ),
    Operation("warm", warm, begin=Use.open, prepare=filled, check=is_warm, proven=10),
    Operation("close", lambda use: use.the_file().close(), begin=with_unsaved_wal, prepare=filled),
]
