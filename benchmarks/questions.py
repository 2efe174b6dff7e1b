"""The questions that the benchmarks ask, one script each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent

ONCE = ("-p", "1", "-n", "1")
ONE_VALUE = (*ONCE, "-w", "0", "-l", "1")
"""As ONCE, for a script that leaves it to pyperf."""


@dataclass(frozen=True)
class Question:
    """*quick*: the script's arguments for sizes at which times mean nothing.

    *full*: those for all others.  *is_sized*: the script knows ``--fast`` and
    ``--rigorous``, which come before *full*.
    """

    name: str
    title: str
    text: str
    quick: tuple[str, ...]
    full: tuple[str, ...] = ()
    is_sized: bool = True

    @property
    def script(self) -> Path:
        return SCRIPTS / f"bench_{self.name.replace('-', '_')}.py"


QUESTIONS = {
    question.name: question
    for question in (
        Question(
            "micro",
            "A hundred thousand sets and gets",
            "The workloads of RelStorage's pull request 243, for the store in memory, the one in a"
            " SQLite database, and RelStorage's cache in memory: 160,000 keys, values of 1,024"
            " bytes, a limit of 100 MB. By one thread, and by five that share one cache.",
            ("--keys", "4000", "--threads", "5", *ONCE),
        ),
        Question(
            "memory",
            "Memory",
            "What a cache takes beyond the states it holds, and whether it keeps to its limit.",
            ("--quick",),
            is_sized=False,
        ),
        Question(
            "store",
            "One operation in memory",
            "A hit, a miss, a set and an eviction, in nanoseconds, beside other caches.",
            (
                *("--operation", "hit", "set", "evict", "--keys", "2000"),
                *("--cache", "dict", "zodbcache store", "RelStorage client"),
                *ONE_VALUE,
            ),
        ),
        Question(
            "threads",
            "Threads that read one cache",
            "The throughput of eight threads beside one thread's, in turn in one process.",
            ("--keys", "500", "--pairs", "3", "--rounds", "8"),
            is_sized=False,
        ),
        Question(
            "file",
            "The cache file",
            "Saving, opening until the first hit, and bringing all of it back into memory.",
            ("--quick", "--backend", "memory", "sqlite"),
            (
                *("--backend", "memory", "sqlite", "--mb", "100", "500", "2000"),
                *("--peers-up-to", "100", "-p", "1", "-n", "3"),
            ),
        ),
        Question(
            "file-hits",
            "A hit in the cache file",
            "A load that finds its object in the file and not in memory, beside PostgreSQL.",
            ("--mb", "12.1", *ONCE),
        ),
        Question(
            "write-behind",
            "Writing in the background",
            "What it takes from threads that read, and what it saves when a process is killed.",
            ("--mb", "1", "--seconds", "0.1", "--kills", "1", *ONCE),
        ),
        Question(
            "workers",
            "Many workers, one file",
            "Workers that stop at the same time, that restart, and that share what they read.",
            (
                *("--workers", "2", "--worker-mb", "1", "--hottest-mb", "1"),
                *("--scale", "0.001", "--pace", "1e9", *ONCE),
            ),
        ),
        Question(
            "zodb",
            "500 cold objects over ZEO",
            "A connection that has no objects in memory reads all of them, the cache being where"
            " it is said to be.",
            ONE_VALUE,
        ),
        Question(
            "relstorage",
            "500 cold objects over RelStorage on PostgreSQL",
            "The same by one connection, five threads and five processes; and commits.",
            ("--question", "alone", "write", *ONCE),
        ),
        Question(
            "matrix",
            "Each storage, each cache, one reader and five",
            "500 objects: cold, hot, added and updated, over ZEO, RelStorage on PostgreSQL and on"
            " SQLite, and a FileStorage.",
            ("--quick",),
        ),
        Question(
            "restart",
            "A restart, from nothing to closed",
            "Opening, the first 500 objects, and closing, with a file of few and of many objects.",
            ("--objects", "500", *ONCE),
        ),
    )
}
"""In the order in which they are asked."""
