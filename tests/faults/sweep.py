"""Every input and output call of an operation on a cache file, failed one after the other."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from contextlib import suppress
from pathlib import Path

from zodbcache.cachefile import CacheFile
from zodbcache.cachefile.mounts import warn_of_network
from zodbcache.errors import CacheFileError

from .injector import Call
from .injector import Disk
from .injector import Injector
from .injector import Way
from .operations import Operation
from .operations import Use
from .operations import open_file
from .record import Record


class Sweep:
    """Runs one operation again and again, each time from the same files."""

    def __init__(self, operation: Operation, injector: Injector, directory: Path) -> None:
        self._operation = operation
        self._injector = injector
        self._directory = directory
        self._template = directory.with_name("template")
        self._record = operation.make_record()
        self._template.mkdir()
        operation.prepare(self._template, self._record)

    def calls(self) -> list[Call]:
        """What is called when nothing fails."""
        use = self._begin()
        with self._injector.count() as calls:
            self._operation.act(use)
        self._operation.check(use)
        use.close()
        judge(self._directory, self._record, self._operation)
        return calls

    def fail(self, at: int, way: Way) -> bool:
        """Let call number *at*, of those it can begin at, fail; judge what comes of it.

        Return whether it was made: time may decide whether a snapshot is renewed.
        """
        self._injector.disk = Disk() if way.loses != "nothing" else None
        use = self._begin()
        try:
            was_made = self._act(use, at, way)
        finally:
            use.close()
        self._lose(at, way)
        judge(self._directory, self._record, self._operation, may_be_damaged=way.damages)
        return was_made

    def _act(self, use: Use, at: int, way: Way) -> bool:
        error: CacheFileError | None = None
        with self._injector.fail(at, way) as failed:
            try:
                self._operation.act(use)
            except CacheFileError as exc:
                error = exc
            if way.is_fatal:
                use.close()
        if not way.is_fatal:
            self._try_again(use, error, way)
        return bool(failed)

    def _begin(self) -> Use:
        shutil.rmtree(self._directory, ignore_errors=True)
        shutil.copytree(self._template, self._directory)
        warn_of_network.cache_clear()  # as in a process of its own
        use = Use(self._directory, self._record, self._operation.identity)
        self._operation.begin(use)
        return use

    def _try_again(self, use: Use, error: CacheFileError | None, way: Way) -> None:
        """What said that it can be tried again can."""
        try:
            self._operation.act(use)
        except CacheFileError:
            assert error is not None and not error.recoverable
        if use.peer is not None:
            with suppress(CacheFileError) if way.damages else nullcontext():
                self._record.judge_file(use.peer, proven=self._operation.proven)

    def _lose(self, at: int, way: Way) -> None:
        disk, self._injector.disk = self._injector.disk, None
        if disk is not None:
            chance = random.Random(at)
            disk.lose(lambda position: way.loses == "some" and chance.random() < 0.5)

    def run(self, way: Way) -> None:
        """Fail each call that can fail in this *way*, or one of every so many."""
        points = [call for call in self.calls() if way.can_begin_at(call)]
        assert points, "nothing can fail so"
        # Operations have calls in common: another one begins with another call.
        first = sum(self._operation.name.encode()) % min(way.every, len(points))
        tried = range(first, len(points), way.every)
        made = 0
        for at in tried:
            try:
                made += self.fail(at + 1, way)
            except BaseException as exc:
                where = f"{self._operation}: {way} at call {at + 1}, {points[at]}"
                raise AssertionError(where) from exc
        assert made >= 0.9 * len(tried), "the calls were not made again"


def judge(
    directory: Path, record: Record, operation: Operation, *, may_be_damaged: bool = False
) -> None:
    """Open the file anew, twice, and save more changes in between: no row is wrong.

    *may_be_damaged*: whoever opens it may find that out later, once; closing
    it then heals it.
    """

    for proven in (operation.proven, operation.later):

        def use(file: CacheFile, proven: int = proven) -> None:
            checkpoint = record.judge_file(file, proven=proven)
            record.advance(file, operation.later, since=checkpoint)

        try:
            _with_file(directory, operation, use)
        except CacheFileError:
            if not may_be_damaged:
                raise
            _with_file(directory, operation, use)


def _with_file(directory: Path, operation: Operation, use: Callable[[CacheFile], object]) -> None:
    file = open_file(directory, identity=operation.identity)
    try:
        use(file)
    finally:
        file.close()
