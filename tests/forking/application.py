"""A WSGI application for ``gunicorn --preload``, whose processes read through the cache.

``FORKING_JOB`` in the environment, as JSON: the database's *kind* and *address*; the
*cache*'s directory; *write_seconds*; the number of *workers*; the oids that are *warm*
before the fork; and who *opens* the database: ``parent``, the children using what
they inherit; ``children``; or ``both``, each child its own.

A request's body is ``[command, arguments, together]``.  *together*: all workers
answer one such request at the same time, each with the next of the *arguments*.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from collections.abc import Callable
from collections.abc import Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler
from wsgiref.simple_server import make_server

import zodbcache

from . import databases
from .forks import wait_until

JOB = json.loads(os.environ["FORKING_JOB"])
MEETING = multiprocessing.get_context("fork").Barrier(JOB["workers"])

storage: Any = None


def open_storage() -> None:
    global storage
    storage = zodbcache.wrap(
        databases.open_base(JOB["kind"], JOB["address"]),
        cache_local_mb=10,
        cache_local_dir=JOB["cache"],
        cache_write_seconds=JOB["write_seconds"],
    )
    storage._caretaker.wait()


class Commands:
    """What a process is asked to do."""

    @staticmethod
    def read(oids: list[int]) -> dict[str, Any]:
        """The words, and how the cache did."""
        before = storage.cache_stats()
        words = databases.read(storage, oids)
        after = storage.cache_stats()
        counted = {name: after[name] - before[name] for name in ("hits", "misses", "file_hits")}
        return {"words": words, **counted}

    @staticmethod
    def wait_for(word: str) -> None:
        """Until it sees that the object 1 has changed to *word*."""
        wait_until(lambda: databases.read(storage, [1])[1] == word)

    @staticmethod
    def settle(_: None) -> None:
        """Until the cache knows what changed since the fork."""
        storage._caretaker.wake()
        storage._caretaker.wait()

    @staticmethod
    def clear(_: None) -> None:
        """Save, and empty the memory."""
        storage._cache.clear()


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    command, arguments, together = json.loads(body)
    part = MEETING.wait(databases.WAIT_SECONDS) if together else 0
    answer = getattr(Commands, command)(arguments[part % len(arguments)])
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"pid": os.getpid(), "part": part, "answer": answer}).encode()]


# What gunicorn's configuration calls


class _Quiet(WSGIRequestHandler):
    def log_message(self, *args: object) -> None:
        """Nothing."""


def serve_parent() -> int:
    """Answer in this process, too, in a thread; return the port."""
    server = make_server("127.0.0.1", 0, application, handler_class=_Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def before_fork() -> None:
    if storage is not None:
        databases.let_go(storage)


def begin_child() -> None:
    if JOB["opens"] != "parent":
        open_storage()


if JOB["opens"] != "children":
    open_storage()
    databases.read(storage, JOB["warm"])
