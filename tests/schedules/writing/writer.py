"""A process whose writer works in rounds that a test asks for, and can be held in the middle."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest

from zodbcache.persistence import Persistence

from ..stepping import Worker
from ..stepping import at_moment

X, Y, Z = 1, 2, 3
WAIT_SECONDS = 20
ALL = {X: 5, Y: 8, Z: 3}

BETWEEN = "between"
"""A moment between the first and the second transaction of a save."""


class Turns(Event):
    """What wakes the writer; *ended*: it has done its work and waits again."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = Event()
        self._is_at_work = False

    def wait(self, timeout: float | None = None) -> bool:
        if self._is_at_work:
            self._is_at_work = False
            self.ended.set()
        return super().wait()

    def clear(self) -> None:
        self._is_at_work = True
        super().clear()


class Writer(Worker):
    """A process with the thread, which does nothing by itself."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "write_seconds": 3600})
        writer = self.cache.writer
        writer._threshold = 2**40  # until a test says so
        self.turns = writer._woken = Turns()
        run = writer._run

        def run_and_tell() -> None:
            run()
            self.turns.ended.set()

        writer._run = run_and_tell  # type: ignore[method-assign]

    def begin_round(self) -> None:
        self.turns.ended.clear()
        self.cache.writer.heed()
        if self.cache.writer._thread is None:  # there was never anything to write
            self.turns.ended.set()
        self.turns.set()

    def end_round(self) -> None:
        assert self.turns.ended.wait(WAIT_SECONDS)

    def write(self) -> None:
        """One round, with nothing in between."""
        self.begin_round()
        self.end_round()

    @contextmanager
    def writing(self, moment: str) -> Iterator[None]:
        """One round, held at this moment."""
        reached, left = Event(), Event()

        def hold() -> None:
            reached.set()
            left.wait(WAIT_SECONDS)

        if moment == BETWEEN:
            self._hold_between(hold)
        else:
            at_moment(self, moment, hold)
        self.begin_round()
        assert reached.wait(WAIT_SECONDS)
        try:
            yield
        finally:
            left.set()
            self.end_round()

    def _hold_between(self, hold: Callable[[], None]) -> None:
        """Once, after a transaction."""
        save = self.persistence.save

        def held_save(pause: Callable[[], bool]) -> int:
            self.persistence.save = save  # type: ignore[method-assign]
            holds = iter([hold])

            def held_pause() -> bool:
                next(holds, lambda: None)()
                return pause()

            return save(held_pause)

        self.persistence.save = held_save  # type: ignore[method-assign]


Open = Callable[..., Any]


def write_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row has a transaction of its own."""
    assert Persistence.save.__kwdefaults__ is not None
    monkeypatch.setitem(Persistence.save.__kwdefaults__, "bytes_at_once", 1)


def unsaved(worker: Worker) -> int:
    return worker.store.unsaved_bytes


def loads(worker: Worker, oids: dict[int, int], before: int) -> int:
    """Read these; how often the database was asked."""
    asked = worker.database.loads
    for oid, tid in oids.items():
        found = worker.load(oid, before)
        assert found is not None and found[0] == tid
    return worker.database.loads - asked


def hear(worker: Worker) -> None:
    """Somebody else changes two of three objects."""
    worker.database.commit(9, [X, Y])
    worker.hear(9)


def commit(worker: Worker) -> None:
    """The process does."""
    worker.database.commit(9, [X, Y])
    worker.finish(9)
