"""One process of a run: ``python -m tests.consistency.worker '{...}'``, the fields of Job.

It lives several lives, one after the other: it opens the storage, its threads
use it, and it closes the storage.  Or one of its threads kills it.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from . import faults
from . import plan
from .bases import base_of
from .journal import Journal
from .objects import Layout
from .plan import Choices
from .sessions import EXPECTED
from .sessions import Session
from .sessions import Writer
from .sessions import broken
from .sessions import kill_process

ONCE_A_LIFE = 2
"""Of the objects that a thread may store once, so many for each life."""

OPENING_ATTEMPTS = 20
"""A connection may be ended just while a storage is opened."""


@dataclass(frozen=True)
class Job:
    """What one process is to do.

    *cache*: ``zodbcache``, ``none``, or the name of a fault.  *directory*: of
    the journals and the cache file.  *first_life*: how many were lived before
    by processes that were killed.  *reads*: how many each thread makes.
    *backend*, *memory_mb*, *write_seconds*: see plan.life().
    """

    kind: str
    address: str
    keep_history: bool
    cache: str
    directory: str
    seed: int
    process: int
    processes: int
    threads: int
    first_life: int
    reads: int
    time_limit_seconds: float
    backend: str | None
    memory_mb: float | None
    write_seconds: float | None

    @property
    def layout(self) -> Layout:
        return Layout(self.processes * self.threads)

    def text(self) -> str:
        return json.dumps(asdict(self))


class Process:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.base = base_of(job.kind, job.address, keep_history=job.keep_history, layout=job.layout)
        if not self.base.records_itself:
            self.base.found(Random(job.seed))
        self._reads_left = job.reads

    def run(self) -> None:
        number = self.job.first_life
        while self._reads_left > 0:
            life = plan.life(
                self.job.seed,
                self.job.process,
                number,
                reads=self.job.reads,
                kills=self.base.records_itself,
                backend=self.job.backend,
                memory_mb=self.job.memory_mb,
                write_seconds=self.job.write_seconds,
            )
            self._live(life)
            self._reads_left -= life.reads_a_thread
            number += 1

    def _live(self, life: plan.Life) -> None:
        journal = Journal(Path(self.job.directory) / f"{life.name}.journal")
        journal.write("did", what="lives", settings=asdict(life))
        storage = self._open(life, journal)
        threads = [Thread(self, life, storage, number) for number in range(self.job.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        try:
            journal.write("stats", stats=_stats(storage), is_silent=life.is_silent)
            storage.close()
        except Exception:
            broken(journal, "close")
        journal.close()

    def _open(self, life: plan.Life, journal: Journal) -> Any:
        for attempt in range(OPENING_ATTEMPTS):
            try:
                base = self.base.open(**self._base_options(life))
                return self._wrap(base, life)
            except (*EXPECTED, *self.base.errors()) as error:
                if attempt == OPENING_ATTEMPTS - 1:
                    raise
                journal.write("failed", error=f"opening: {error!r}"[:200])
        raise AssertionError

    def _base_options(self, life: plan.Life) -> dict[str, int]:
        """RelStorage's own cache is not on trial: without ours it is off."""
        return life.base_options if self.job.cache == "zodbcache" else {"cache_local_mb": 0}

    def _wrap(self, base: Any, life: plan.Life) -> Any:
        if self.job.cache == "none":
            return base
        if self.job.cache == "zodbcache":
            import zodbcache

            directory = os.path.join(self.job.directory, "cache")
            return zodbcache.wrap(base, cache_local_dir=directory, **life.cache_options())
        return faults.plant(self.job.cache, base, Random(life.name))


class Thread(threading.Thread):
    """Uses its instances in turn, until it has made its share of the reads."""

    def __init__(self, process: Process, life: plan.Life, storage: Any, number: int) -> None:
        super().__init__(name=f"{life.name}t{number}")
        self._job = process.job
        self._base = process.base
        self._life = life
        self._storage = storage
        self._number = number
        self._layout = process.job.layout
        self._choices = Choices(process.job.seed, life.name, number)
        self._journal = Journal(Path(process.job.directory) / f"{self.name}.journal")
        writer = process.job.process * process.job.threads + number
        first = life.number * ONCE_A_LIFE
        self._writer = Writer(
            self._layout.pulses[writer],
            self._layout.once(writer)[first : first + ONCE_A_LIFE],
        )
        self._instances = 0
        self._steps = 0
        self._reads = 0

    def run(self) -> None:
        try:
            self._sessions = [self._session() for _ in range(self._life.instances_a_thread)]
            while self._reads < self._life.reads_a_thread:
                self._steps += 1
                self._point("between")
                self._step(self._choices.random.randrange(len(self._sessions)))
            for session in self._sessions if self._life.releases else ():
                session.close()
        except Exception:
            broken(self._journal, self.name)
        finally:
            self._journal.close()

    def _session(self) -> Session:
        self._instances += 1
        return Session(
            self._storage.new_instance(),
            f"{self.name}i{self._instances}",
            self._journal,
            self._choices,
            self._layout,
            self._writer,
            self._point,
            reads_on=self._base.keeps_unasked_changes,
        )

    def _point(self, name: str) -> None:
        if (
            name == self._life.kill_point
            and self._number == 0
            and self._steps >= self._life.kill_step
        ):
            self._journal.write("did", what="kills")
            kill_process()

    def _step(self, which: int) -> None:
        """A transaction of one session, or a part of one; or something that befalls them all."""
        session = self._sessions[which]
        try:
            if self._choices.happens(0.03):
                self._befall()
            elif self._choices.happens(0.02):
                session.close()
                self._sessions[which] = self._session()
            else:
                self._use(session)
        except (*EXPECTED, *self._base.errors()) as error:
            session.fail(error)

    def _use(self, session: Session) -> None:
        if not session.is_viewing:
            session.begin()
            if self._choices.happens(0.4):
                self._read(session, self._layout.pulses)
        oids = self._choices.oids(self._layout.changing, self._choices.read_count())
        if self._choices.happens(0.3):
            oids += self._choices.oids(self._layout.all_once, 10)
        if self._choices.happens(0.1):
            session.prefetch(oids)
        if self._choices.happens(0.02):
            session.drop_connection()
        self._read(session, oids[::2])
        self._point("reading")
        self._read(session, oids[1::2])
        if self._choices.happens(0.3):
            return  # and go on with this view later
        if self._choices.happens(0.5):
            self._read(session, self._layout.pulses)
        if self._choices.happens(0.5):
            self._commit(session)
        else:
            session.end()

    def _read(self, session: Session, oids: Any) -> None:
        self._reads += session.read(oids)

    def _commit(self, session: Session) -> None:
        kind = self._choices.commit_kind()
        can_undo = self._base.records_itself and self._base.keep_history
        session.commit("finish" if kind == "undo" and not can_undo else kind)

    def _befall(self) -> None:
        happening: Callable[[], str | None] = self._choices.random.choice(
            (self._pack, self._disconnect, self._clear, self._disconnect, self._clear)
        )
        what = happening()
        if what is not None:
            self._journal.write("did", what=what)

    def _pack(self) -> str | None:
        """One thread of one process packs."""
        if self._job.process or self._number:
            return None
        self._journal.write("did", what="packs begun")
        self._storage.pack(time.time(), self._base.references())
        return "packs"

    def _disconnect(self) -> str | None:
        return "connections ended" if self._base.disconnect(self._choices.random) else None

    def _clear(self) -> str | None:
        """Empty the memory tier under everybody's feet; the file gets all of it before."""
        if self._job.cache != "zodbcache" or self._life.is_silent:
            return None
        self._storage._cache.clear()
        return "clears"


def _stats(storage: Any) -> dict[str, Any]:
    own = getattr(storage, "cache_stats", None)
    if own is not None:
        return dict(own())
    relstorages = getattr(storage, "_cache", None)
    return dict(relstorages.stats()) if relstorages is not None else {}


def _end_with_parent() -> None:
    """Whoever started this process holds the other end of its input."""

    def watch() -> None:
        os.read(0, 1)
        os._exit(3)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    logging.disable(logging.CRITICAL)
    faulthandler.dump_traceback_later(job.time_limit_seconds, exit=True)
    _end_with_parent()
    Process(job).run()


if __name__ == "__main__":
    main()
