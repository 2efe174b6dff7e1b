"""A process killed at each call that changes the file, and what another sees just then.

At every such call a copy of the files is made: that is what a kill there leaves
behind, for what a process has in its memory is gone, the index of the WAL
included.  The next process finds the file as it was before or as it is after.
And nobody has seen before what would be lost now: a row becomes visible with
all it depends on, the checkpoint and the absence of what had changed up to it.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from typing import NamedTuple

import pytest

from zodbcache.cachefile import CacheFile
from zodbcache.cachefile import Outcome
from zodbcache.cachefile.quarantine import file_name

from .calls import Calls
from .children import ROOT

IDENTITY = "golden"
LATEST = 2**63 - 1


class Contents(NamedTuple):
    """*rows*: ``{oid: tid}``."""

    checkpoint: int
    rows: dict[int, int]


class Moment(NamedTuple):
    """Just before a call: the files as they are, and what another process sees."""

    what: str
    image: Path
    seen: Contents | None


class Helper:
    """A process of onlooker."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.processes.onlooker", str(path)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def ask(self, command: str, argument: str | None = None) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([command, argument]).encode() + b"\n")
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate()


class Recorder:
    """Notes every moment of what is done to one file."""

    def __init__(self, directory: Path, path: Path, *, is_watched: bool) -> None:
        self.path = path
        self.moments: list[Moment] = []
        self._directory = directory
        self._copier = Helper(path)
        self.is_watched = is_watched
        self._onlooker = Helper(path) if is_watched else None

    @contextmanager
    def recording(self) -> Iterator[None]:
        calls = Calls(self._note)
        try:
            yield
        finally:
            calls.unregister()
        self._note("afterwards", str(self.path))

    def _note(self, what: str, path: str) -> None:
        if not path.startswith(str(self.path)):
            return
        image = self._directory / str(len(self.moments))
        self._copier.ask("copy", str(image))
        self.moments.append(Moment(f"{what} {Path(path).suffix}", image, self._seen()))

    def _seen(self) -> Contents | None:
        found = None if self._onlooker is None else self._onlooker.ask("look")
        return None if found is None else Contents(found[0], dict(found[1]))

    def end(self) -> None:
        self._copier.end()
        if self._onlooker is not None:
            self._onlooker.end()


@pytest.fixture
def cache_directory(tmp_path: Path) -> Path:
    directory = tmp_path / "cache"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture(params=[True, False], ids=["watched", "alone"])
def recorder(
    request: pytest.FixtureRequest, tmp_path: Path, cache_directory: Path
) -> Iterator[Recorder]:
    path = cache_directory / file_name(identity=IDENTITY, prefix="", sequence=0)
    recorder = Recorder(tmp_path / "images", path, is_watched=request.param)
    yield recorder
    recorder.end()


def opened(directory: Path, *, limit_bytes: int = 10**9) -> CacheFile:
    return CacheFile.open(directory, identity=IDENTITY, limit_bytes=limit_bytes)


def contents(file: CacheFile) -> Contents:
    with file.snapshot() as snapshot:
        rows = {oid: tid for oid, tid, _, _ in snapshot.rows(LATEST, LATEST)}
        assert snapshot.skipped == 0
        assert (snapshot.row_count, snapshot.state_bytes) == (
            len(rows),
            sum(len(state(oid, tid)) for oid, tid in rows.items()),
        )
        return Contents(snapshot.checkpoint, rows)


def state(oid: int, tid: int) -> bytes:
    """Some take many pages."""
    return b"%d at %d " % (oid, tid) * (3000 if oid % 40 == 0 else 10)


def advance(file: CacheFile, through: int, rows: dict[int, int], named: dict[int, int]) -> None:
    with file.snapshot() as snapshot:
        generation = snapshot.generation
    result = file.advance(
        through,
        generation,
        lambda since: [(oid, tid) for oid, tid in named.items() if tid > since],
        ((oid, tid, 0, state(oid, tid)) for oid, tid in sorted(rows.items())),
        list(rows.items())[:10],
    )
    assert result.outcome is Outcome.ADVANCED


def left_behind(moment: Moment) -> Contents:
    """What the next process finds."""
    file = opened(moment.image)
    try:
        return contents(file)
    finally:
        file.close()


def check(recorder: Recorder, *stages: Contents) -> None:
    """At every moment the file is at one of *stages*, and never goes back to one before."""
    passed = [
        (moment.what, stages.index(left_behind(moment)), _stage(moment, stages))
        for moment in recorder.moments
    ]
    for (_, left, seen), (what, left_then, seen_then) in pairwise(passed):
        assert left <= left_then, f"{what}: a kill loses what it did not lose before"
        assert seen <= seen_then, f"{what}: seen before, and gone"
    for what, left, seen in passed:
        assert seen <= left, f"{what}: seen, and not in the file yet"
    assert passed[0][1] == 0
    assert passed[-1][1] == len(stages) - 1
    if recorder.is_watched:
        assert passed[-1][2] == len(stages) - 1


def _stage(moment: Moment, stages: tuple[Contents, ...]) -> int:
    """What another process sees; nothing is as good as the first stage."""
    return 0 if moment.seen is None else stages.index(moment.seen)


NOTHING = Contents(0, {})
FIRST = Contents(100, {oid: 10 + oid for oid in range(1, 90)})
NAMED = {oid: 101 + oid for oid in range(30, 60)}
CHANGED = {oid: tid for oid, tid in NAMED.items() if oid < 45}
NEW = dict.fromkeys(range(200, 500), 50)
SECOND = Contents(
    200,
    {**{oid: tid for oid, tid in FIRST.rows.items() if oid not in NAMED}, **CHANGED, **NEW},
)
"""Some changed, and of some of these the new revision is known; and others are new."""


@pytest.fixture
def filled(cache_directory: Path) -> Iterator[CacheFile]:
    file = opened(cache_directory)
    advance(file, FIRST.checkpoint, FIRST.rows, {})
    file.close()
    yield file


@pytest.fixture(autouse=True)
def no_warning(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whoever opens what was left behind finds nothing to be warned of."""
    yield
    assert [found for found in caplog.records if found.levelno >= logging.WARNING] == []


def test_file_is_made_and_filled(recorder: Recorder, cache_directory: Path) -> None:
    with recorder.recording():
        file = opened(cache_directory)
        advance(file, FIRST.checkpoint, FIRST.rows, {})
        file.close()
    check(recorder, NOTHING, FIRST)


@pytest.mark.usefixtures("filled")
def test_rows_come_and_go(recorder: Recorder, cache_directory: Path) -> None:
    with recorder.recording():
        file = opened(cache_directory)
        advance(file, SECOND.checkpoint, {**CHANGED, **NEW}, NAMED)
        file.close()
    check(recorder, FIRST, SECOND)


@pytest.mark.usefixtures("filled")
def test_only_the_checkpoint_is_raised(recorder: Recorder, cache_directory: Path) -> None:
    with recorder.recording():
        file = opened(cache_directory)
        advance(file, 101, {}, {})
        file.close()
    check(recorder, FIRST, Contents(101, FIRST.rows))


@pytest.mark.usefixtures("filled")
def test_file_is_emptied(recorder: Recorder, cache_directory: Path) -> None:
    with recorder.recording():
        file = opened(cache_directory)
        file.reset(1)
        file.close()
    check(recorder, FIRST, NOTHING)


@pytest.mark.usefixtures("filled")
def test_older_connection_goes_on(recorder: Recorder, cache_directory: Path) -> None:
    """Two batches, the second of which begins the WAL anew or goes on with it."""
    with recorder.recording():
        file = opened(cache_directory)
        advance(file, SECOND.checkpoint, {**CHANGED, **NEW}, NAMED)
        advance(file, 300, {}, {1: 250})
        file.close()
    third = {oid: tid for oid, tid in SECOND.rows.items() if oid != 1}
    check(recorder, FIRST, SECOND, Contents(300, third))
