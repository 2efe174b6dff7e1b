"""A process that reads the graph once for each phase it is given, and times it."""

from __future__ import annotations

import time
from typing import Any

from zodbcache.demo.clients import fresh_connection
from zodbcache.demo.clients import open_database
from zodbcache.demo.clients import plain_database
from zodbcache.demo.messages import ChunkRead
from zodbcache.demo.messages import Closed
from zodbcache.demo.messages import Compared
from zodbcache.demo.messages import Opened
from zodbcache.demo.messages import PhaseRead
from zodbcache.demo.messages import ReaderJob
from zodbcache.demo.parent import Parent
from zodbcache.demo.walk import Walked
from zodbcache.demo.walk import walk

_COUNTERS = ("hits", "misses", "file_hits")


def main() -> None:
    parent = Parent()
    job: ReaderJob = parent.receive()
    begun_s = time.monotonic()
    database = open_database(job.address, job.cache)
    opened_s = time.monotonic()
    parent.send(Opened(_ms(job.started_s, begun_s), _ms(begun_s, opened_s)))
    parent.receive()  # Go
    parent.exit_when_gone()
    for phase in job.phases:
        walked = _read(parent, database, job, phase)
    if job.compare:
        parent.send(_compare(parent, job, walked))
    begun_s = time.monotonic()
    database.close()
    parent.send(Closed(_ms(begun_s, time.monotonic())))


def _ms(begun_s: float, ended_s: float) -> float:
    return (ended_s - begun_s) * 1000


def _read(parent: Parent, database: Any, job: ReaderJob, phase: str) -> Walked:
    with fresh_connection(database) as connection:
        before = _counters(database)
        walked = _walk(parent, connection, job)
        after = _counters(database)
    parent.send(
        PhaseRead(
            phase=phase,
            objects=walked.objects,
            chunks_ms_per_500=walked.chunks_ms_per_500,
            read_s=walked.read_s,
            checksum=walked.checksum,
            **{name: after[name] - before[name] for name in _COUNTERS},
        )
    )
    return walked


def _walk(parent: Parent, connection: Any, job: ReaderJob) -> Walked:
    return walk(
        connection,
        objects=job.objects,
        seed=job.seed,
        on_chunk=lambda objects: parent.send(ChunkRead(objects)),
    )


def _counters(database: Any) -> dict[str, int]:
    """The cache's counters; all 0 without one."""
    stats: dict[str, int] = getattr(database.storage, "cache_stats", dict)()
    return {name: stats.get(name, 0) for name in _COUNTERS}


def _compare(parent: Parent, job: ReaderJob, walked: Walked) -> Compared:
    with plain_database(job.address) as database, fresh_connection(database) as connection:
        right = _walk(parent, connection, job).versions
    return Compared(
        changed=sum(1 for _, value in walked.versions.values() if value and value[0]),
        wrong=sum(
            1
            for oid in walked.versions.keys() | right.keys()
            if walked.versions.get(oid) != right.get(oid)
        ),
    )


if __name__ == "__main__":
    main()
