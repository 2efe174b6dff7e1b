"""Many workers that start, and stop, at the same moment: ``fleet '{...}'``, see worker.

The job has ``"oids"``, a list for each worker of what it reads.  They are forked
when everything is imported, and wait for each other twice: before they open
the storage, and before they close it.  Prints one report a worker, a JSON
object a line, when all have ended.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from .worker import Worker

LONGEST_SECONDS = 100
"""A worker that takes longer hangs."""


class Warnings(logging.Handler):
    """What was logged that somebody would have to look at."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


class Gate:
    """Everyone who has come waits until all have."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._arrivals = os.pipe()
        self._opening = os.pipe()

    def wait(self) -> None:
        """In a worker."""
        os.close(self._opening[1])
        os.write(self._arrivals[1], b".")
        os.read(self._opening[0], 1)

    def open(self) -> None:
        """When all have come."""
        come = 0
        while come < self._count:
            come += len(os.read(self._arrivals[0], self._count))
        os.close(self._opening[1])


def work(job: dict[str, Any], oids: list[int], gates: tuple[Gate, Gate]) -> dict[str, Any]:
    faulthandler.dump_traceback_later(LONGEST_SECONDS, exit=True)
    warnings = Warnings()
    logging.getLogger("zodbcache").addHandler(warnings)
    start, stop = gates
    start.wait()
    worker = Worker(job)
    wrong = worker.read(oids)["wrong"]
    stats = worker.stats(None)
    stop.wait()
    worker.close(None)
    return {"wrong": wrong, "stats": stats, "warnings": warnings.texts}


def fork(function: Callable[[], dict[str, Any]]) -> tuple[int, int]:
    """The process, and the pipe from which its result can be read."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writer, json.dumps(function()).encode())
        os._exit(0)
    os.close(writer)
    return pid, reader


def main() -> None:
    job = json.loads(sys.argv[1])
    gates = Gate(len(job["oids"])), Gate(len(job["oids"]))
    workers = [fork(lambda oids=oids: work(job, oids, gates)) for oids in job["oids"]]
    for gate in gates:
        gate.open()
    for pid, reader in workers:
        with os.fdopen(reader) as pipe:
            told = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps({"status": status, **json.loads(told or "{}")}), flush=True)


if __name__ == "__main__":
    main()
