"""Starts the children, kills them, and judges the file after each."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.utils import p64
from ZODB.utils import z64

from tests.processes.children import Server

from .child import live
from .child import word
from .life import OIDS
from .life import End
from .life import Life
from .life import life
from .record import FileJudge
from .record import Record

FIRST_LIFE_SECONDS = 0.3
"""How long a life is thought to last before one has."""


@dataclass
class Totals:
    """What happened; *broken*: what should never be, with the life it was found after."""

    counts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return self.counts[End.AT_A_MOMENT.value] + self.counts[End.AT_A_CALL.value]

    def __str__(self) -> str:
        counts = [f"{name}: {number}" for name, number in sorted(self.counts.items())]
        return ", ".join([f"kills: {self.kills}", *counts, f"broken: {len(self.broken)}"])


class Process:
    """A child, from its fork to its end."""

    def __init__(self, job: dict[str, Any], plan: Life, seconds: float) -> None:
        """*seconds*: when it is to be killed, if it is."""
        self.life = plan
        self.events: list[dict[str, Any]] = []
        self.began = time.monotonic()
        self.kill_at = self.began + seconds if plan.end is End.AT_A_MOMENT else float("inf")
        self._unread = b""
        self.pipe, writer = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            os._exit(live(job, plan, writer))
        os.close(writer)

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        self.kill_at = float("inf")

    def hear(self) -> bool:
        """Read what it has told; False once it has ended."""
        told = os.read(self.pipe, 1 << 16)
        *lines, self._unread = (self._unread + told).split(b"\n")
        self.events += map(json.loads, lines)
        return told != b""

    def end(self) -> int:
        """Its exit status, the negative signal's number if it was killed."""
        os.close(self.pipe)
        _, status = os.waitpid(self._pid, 0)
        return os.waitstatus_to_exitcode(status)

    @property
    def phase(self) -> str:
        """What it was at."""
        phases = [event["name"] for event in self.events if event["event"] == "phase"]
        return phases[-1] if phases else "starting"

    @property
    def stats(self) -> dict[str, int]:
        """As it told them last."""
        told = [event["stats"] for event in self.events if event["event"] == "stats"]
        return told[-1] if told else {}

    @property
    def changing(self) -> set[int]:
        """What it tried to commit."""
        tried = (event["oids"] for event in self.events if event["event"] == "committing")
        return set().union(*tried)


class Run:
    """One database, one cache directory, and the processes that use both."""

    def __init__(
        self,
        directory: Path,
        *,
        seed: int,
        processes: int,
        write_seconds: float | None,
        memory_mb: float,
        progress: Callable[[str], None],
    ) -> None:
        """*processes*: how many at once; only one needs no server."""
        self.totals = Totals()
        self._directory = directory
        self._random = Random(f"run {seed}")
        self._processes = processes
        self._lives = (
            life(seed, number, write_seconds=write_seconds, memory_mb=memory_mb)
            for number in count()
        )
        self._progress = progress
        self._data = directory / "Data.fs"
        self._cache = directory / "cache"
        self._record = Record(self._data)
        self._judge = FileJudge(self._record, keeps_all=bool(seed % 2))
        self._job: dict[str, Any] = {"cache": str(self._cache), "file": str(self._data)}
        self._living: list[Process] = []
        self._seconds = FIRST_LIFE_SECONDS * processes

    def kill(self, kills: int) -> None:
        """So many processes."""
        _found(self._data, self._random)
        server = None
        if self._processes > 1:
            server = Server(self._data)
            self._job = {"cache": str(self._cache), "zeo": server.port}
        try:
            while self.totals.kills < kills and not self.totals.broken:
                while len(self._living) < self._processes:
                    self._start()
                self._wait()
        finally:
            for process in self._living:
                process.kill()
                process.end()
            if server is not None:
                server.kill()

    def _start(self) -> None:
        plan = next(self._lives)
        self._living.append(Process(self._job, plan, plan.moment * self._seconds))

    def _wait(self) -> None:
        """Until somebody tells something, has ended, or is to be killed."""
        first = min(process.kill_at for process in self._living)
        timeout = None if first == float("inf") else max(0.0, first - time.monotonic())
        told, _, _ = select.select([process.pipe for process in self._living], [], [], timeout)
        for process in list(self._living):
            if process.kill_at <= time.monotonic():
                process.kill()
            if process.pipe in told and not process.hear():
                self._living.remove(process)
                self._ended(process)

    def _ended(self, process: Process) -> None:
        status = process.end()
        was_killed = status == -signal.SIGKILL
        counts = self.totals.counts
        if was_killed:
            counts[process.life.end.value] += 1
            counts[f"while {process.phase}"] += 1
        else:
            counts[End.WELL.value] += 1
            self._seconds = 0.8 * self._seconds + 0.2 * (time.monotonic() - process.began)
        found = list(self._wrong(process))
        if not was_killed and (status or process.phase != "closed"):
            found.append(f"ended with status {status} while {process.phase}")
        found += self._wrong_file(process)
        name = f"life {process.life.seed}"
        self.totals.broken += [f"after {name}: {what}" for what in found]
        self._progress(f"{name}: {process.life.end.value}, while {process.phase}; wrong: {found}")

    def _wrong(self, process: Process) -> Iterator[str]:
        """What it has told that should not be."""
        self._record.update()
        for event in process.events:
            if event["event"] == "broken":
                yield event["what"]
            elif event["event"] == "committed":
                self.totals.counts["commits"] += 1
                for oid, crc in event["changed"]:
                    if not self._record.has(oid, event["tid"], crc):
                        yield f"nobody has committed {oid} at {event['tid']}"
        for name in ("hits", "misses", "file_hits", "file_writes", "restored"):
            self.totals.counts[name] += process.stats.get(name, 0)

    def _wrong_file(self, ended: Process) -> Iterator[str]:
        """Judge the file as it lies there; nobody but the next child repairs it."""
        files = sorted(self._cache.glob("*.sqlite3"))
        if len(files) > 1:
            yield f"there are {len(files)} files"
        for path in files[:1]:
            if not self._living:
                path = self._copy(path)
            changing = set().union(*(process.changing for process in [ended, *self._living]))
            yield from self._judge.judge(path, changing)

    def _copy(self, path: Path) -> Path:
        """What is there of the file now, elsewhere."""
        copies = self._directory / "copy"
        shutil.rmtree(copies, ignore_errors=True)
        copies.mkdir()
        for name in (path.name, f"{path.name}-wal"):
            if (path.parent / name).exists():
                shutil.copy(path.parent / name, copies)
        return copies / path.name


def _found(path: Path, random: Random) -> None:
    """A database with a first revision of each object."""
    storage = FileStorage(str(path))
    transaction = TransactionMetaData()
    storage.tpc_begin(transaction)
    for oid in OIDS:
        storage.store(p64(oid), z64, word(oid, "founder", random).encode(), "", transaction)
    storage.tpc_vote(transaction)
    storage.tpc_finish(transaction)
    storage.close()
