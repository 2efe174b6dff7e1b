"""Connections that read and write objects: alone, or several at the same time.

Each reader has objects of its own, in a PersistentMapping under its number in
the root.  What is timed is an *action*, prepared before: a function without
arguments that returns its Span.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from typing import Any

import transaction
from persistent.mapping import PersistentMapping
from workloads import STATE_BYTES
from workloads import Item
from workloads import state_of
from ZODB.Connection import resetCaches

OBJECTS = 500

READERS = 5
"""How many do the same at the same time."""

BARRIER_TIMEOUT_S = 120.0


def loads(objects: int) -> int:
    """Loads of a connection without objects: these, their mapping, and the root twice.

    The first time the connection only wants to know the root's class.
    """
    return objects + 3


@dataclass(frozen=True)
class Span:
    """From when to when, on the clock that all processes of the machine share."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


Action = Callable[[], Span]

Doing = Callable[[str, Callable[[], Any]], Span]
"""Prepares what is named, calls what it is given, which returns when all are prepared, and acts."""

Member = Callable[[int], contextlib.AbstractContextManager[Doing]]
"""What one of several processes does, given its number.  It must be possible to pickle it."""


def timed(action: Callable[[], object]) -> Span:
    start = time.perf_counter()
    action()
    return Span(start, time.perf_counter())


def whole(spans: Sequence[Span]) -> float:
    """Seconds from the first start to the last end."""
    return max(span.end for span in spans) - min(span.start for span in spans)


# Databases and connections.


@contextlib.contextmanager
def closing(database: Any) -> Iterator[Any]:
    try:
        yield database
    finally:
        database.close()


@contextlib.contextmanager
def fresh_connection(database: Any) -> Iterator[Any]:
    """A connection that has no objects, its transaction begun."""
    resetCaches()
    manager = transaction.TransactionManager()
    connection = database.open(manager)
    try:
        yield connection
    finally:
        manager.abort()
        connection.close()


def new_items(count: int = OBJECTS) -> PersistentMapping:
    return PersistentMapping(
        {number: Item(state_of(number, STATE_BYTES)) for number in range(count)}
    )


def read(connection: Any, reader: int = 0, count: int = OBJECTS) -> None:
    """Read the state of every object that is *reader*'s."""
    size_bytes = sum(len(item.state) for item in connection.root()[reader].values())
    assert size_bytes == count * STATE_BYTES


# Actions.


def reading(connection: Any, reader: int = 0, count: int = OBJECTS) -> Action:
    """Read the reader's objects."""
    return lambda: timed(lambda: read(connection, reader, count))


def adding(connection: Any, holder: PersistentMapping, count: int = OBJECTS) -> Action:
    """Commit so many new objects, their mapping, and *holder*, into which this is put."""
    len(holder)  # in memory
    items = new_items(count)

    def put() -> None:
        holder["items"] = items

    return _committing(connection, put, stores=count + 2)


def updating(connection: Any, items: Sequence[Any]) -> Action:
    """Commit a change of these objects, which the connection has in memory, and nothing else."""
    state = state_of(len(items), STATE_BYTES)

    def change() -> None:
        for item in items:
            item.state = state

    return _committing(connection, change, stores=len(items))


def _committing(connection: Any, change: Callable[[], None], stores: int) -> Action:
    """From begin() to the end of commit().  Assert that there are so many stores, and no load."""
    manager = connection.transaction_manager

    def commit() -> None:
        manager.begin()
        change()
        manager.commit()

    def act() -> Span:
        connection.getTransferCounts(clear=True)
        span = timed(commit)
        counts = connection.getTransferCounts()
        assert counts == (0, stores), counts
        return span

    return act


# Several at the same time.


def act_as_threads(actions: Sequence[Action]) -> list[Span]:
    """Each in a thread of its own; all of them are there before any begins."""
    barrier = threading.Barrier(len(actions), timeout=BARRIER_TIMEOUT_S)
    spans: list[Span] = []

    def work(action: Action) -> None:
        barrier.wait()
        spans.append(action())

    threads = [threading.Thread(target=work, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(spans) == len(actions)
    return spans


@contextlib.contextmanager
def running_processes(member: Member, count: int) -> Iterator[Callable[[str], list[Span]]]:
    """So many processes; the function given has all of them do what is named."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(count, timeout=BARRIER_TIMEOUT_S)
    with contextlib.ExitStack() as stack:
        pipes = []
        for number in range(count):
            pipe, end = context.Pipe()
            process = context.Process(target=_serve, args=(end, barrier, member, number))
            process.start()
            end.close()
            stack.callback(process.join)
            pipes.append(stack.enter_context(pipe))

        def do(name: str) -> list[Span]:
            for pipe in pipes:
                pipe.send(name)
            return [pipe.recv() for pipe in pipes]

        yield do


def _serve(pipe: Pipe, barrier: Any, member: Member, number: int) -> None:
    """A process that does what it is told, until nobody wants it any more."""
    with member(number) as do, contextlib.suppress(EOFError):
        while True:
            name = pipe.recv()
            gc.collect()
            try:
                span = do(name, barrier.wait)
            except BaseException:
                barrier.abort()
                raise
            pipe.send(span)
