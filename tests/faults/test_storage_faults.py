"""I7 of a whole storage: whatever call on the file fails, and however, each open, load,
commit and close works, each load is right, and the log says it once."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

import zodbcache
from zodbcache.cachefile.mounts import warn_of_network

from .injector import Call
from .injector import Injector
from .injector import Way
from .injector import calls_of
from .vfs import BUSY
from .vfs import DEAD
from .vfs import ERROR
from .vfs import FLIPS
from .vfs import FULL
from .vfs import SHORT
from .vfs import TORN

OIDS = [p64(number) for number in range(40)]
DYING = replace(DEAD, begins=calls_of("xOpen", "xLock", "xWrite", "xSync", "xDelete"))
#: Of so many calls one is made to fail, in each way: all of them would take minutes.
WAYS = {ERROR: 11, TORN: 8, FULL: 8, DYING: 7, BUSY: 2, SHORT: 4, FLIPS[0]: 4, FLIPS[1]: 4}


class Scenario:
    """A database, and a storage that caches it, used as an application would.

    *said*: what went to the log, how often, while one storage was open.
    """

    def __init__(self, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
        self._directory = directory
        self._caplog = caplog
        self.file_hits = 0
        self.rests = 0

    @contextmanager
    def _storage(self) -> Iterator[Any]:
        self._caplog.clear()
        storage = zodbcache.wrap(
            FileStorage(str(self._directory / "Data.fs")),
            cache_local_mb=2,
            cache_local_dir=str(self._directory / "cache"),
            cache_write_seconds=0,
        )
        try:
            yield storage
            self.file_hits += storage.cache_stats()["file_hits"]
        finally:
            storage.close()
        self._judge_log()

    def _judge_log(self) -> None:
        records = self._caplog.records
        said = Counter(record.msg for record in records if record.levelno >= logging.WARNING)
        assert all(count == 1 for count in said.values()), said
        assert not [record for record in records if record.exc_info], "a traceback"

    def prepare(self) -> None:
        """A file with all objects in it."""
        with self._storage() as storage:
            for word in (b"first", b"second"):
                commit(storage, word, OIDS)
            self._load(storage)

    def write_behind(self) -> None:
        """What the writer does, between requests of the application."""
        rests: list[int] = []

        def pause() -> bool:
            rests.append(len(rests))
            self._load(storage)
            return False

        with self._storage() as storage:
            self._load(storage)
            for word in (b"third", b"fourth"):
                commit(storage, word, OIDS[:20])
                self._load(storage)
                storage._cache.persistence.save(pause, bytes_at_once=1000)
                storage._cache.persistence.tidy(pause)
                storage._cache.persistence.warm(pause)
            self.rests = len(rests)
        self.look()

    def play(self) -> None:
        with self._storage() as storage:
            self._load(storage)
            storage._cache.clear()
            self._load(storage)
            commit(storage, b"third", OIDS[3:6])
            self._load(storage)
            storage._persistence.save()
            commit(storage, b"fourth", OIDS[5:8])
            self._load(storage)
            storage._persistence.save()
        self.look()

    def look(self) -> None:
        with self._storage() as storage:
            self._load(storage)
            storage._cache.clear()
            self._load(storage)

    def _load(self, storage: Any) -> None:
        before = p64(u64(storage.lastTransaction()) + 1)
        for oid in OIDS:
            expected = storage._base.loadBefore(oid, before)
            assert storage.loadBefore(oid, before) == expected, f"I1: object {u64(oid)}"


def commit(storage: Any, word: bytes, oids: list[bytes]) -> None:
    transaction = TransactionMetaData()
    storage.tpc_begin(transaction)
    for oid in oids:
        try:
            serial = storage.load(oid)[1]
        except KeyError:
            serial = z64
        storage.store(oid, serial, word * 50 + oid, "", transaction)
    storage.tpc_vote(transaction)
    storage.tpc_finish(transaction)


PLAYS = {"use": Scenario.play, "write behind": Scenario.write_behind}


class Sweep:
    """Plays the scenario again and again, each time from the same files."""

    def __init__(
        self,
        injector: Injector,
        directory: Path,
        caplog: pytest.LogCaptureFixture,
        play: Callable[[Scenario], None],
    ) -> None:
        self._play = play
        self._injector = injector
        self._directory = directory
        self._template = directory.with_name("template")
        self._caplog = caplog
        self._template.mkdir()
        Scenario(self._template, caplog).prepare()

    def _begin(self) -> Scenario:
        shutil.rmtree(self._directory, ignore_errors=True)
        shutil.copytree(self._template, self._directory)
        warn_of_network.cache_clear()  # as in a process of its own
        return Scenario(self._directory, self._caplog)

    def calls(self) -> list[Call]:
        """What is called when nothing fails."""
        scenario = self._begin()
        with self._injector.count() as calls:
            self._play(scenario)
        assert scenario.file_hits >= 2 * len(OIDS), "the file was read"
        assert scenario.rests > 5 or self._play is Scenario.play, "in several transactions"
        assert not self._caplog.records
        return calls

    def fail(self, at: int, way: Way) -> bool:
        """Let call number *at*, of those it can begin at, fail; return whether it was made."""
        scenario = self._begin()
        with self._injector.fail(at, way) as failed:
            self._play(scenario)
        scenario.look()
        return bool(failed)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("play", PLAYS.values(), ids=PLAYS)
def test_sweep(
    play: Callable[[Scenario], None],
    way: Way,
    injector: Injector,
    run_directory: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sweep = Sweep(injector, run_directory, caplog, play)
    points = [call for call in sweep.calls() if way.can_begin_at(call)]
    tried = range(0, len(points), WAYS[way])
    made = 0
    for at in tried:
        try:
            made += sweep.fail(at + 1, way)
        except BaseException as exc:
            raise AssertionError(f"{way} at call {at + 1}, {points[at]}") from exc
    assert made >= 0.8 * len(tried) > 0, "the calls were not made again"
