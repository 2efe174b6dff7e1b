"""The whole demo: parse, serve, store, read in every phase, change, read again.

Everything it starts has stopped and everything it wrote to its workspace is
gone when it returns or raises, on Ctrl-C too.
"""

from __future__ import annotations

import contextlib
import platform
import random
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path
from types import FrameType

import transaction
from rich.console import Console

from zodbcache.demo.bases import Address
from zodbcache.demo.bases import Base
from zodbcache.demo.build import store_graph
from zodbcache.demo.children import Children
from zodbcache.demo.clients import fresh_connection
from zodbcache.demo.clients import plain_database
from zodbcache.demo.errors import DemoError
from zodbcache.demo.messages import CachePlace
from zodbcache.demo.messages import ParserJob
from zodbcache.demo.messages import ServerJob
from zodbcache.demo.messages import Serving
from zodbcache.demo.model import Entry
from zodbcache.demo.phases import Plan
from zodbcache.demo.phases import run_changed
from zodbcache.demo.phases import run_phases
from zodbcache.demo.progress import ProgressBars
from zodbcache.demo.results import DemoResult
from zodbcache.demo.results import GraphResult
from zodbcache.demo.stdlib import ModuleFacts
from zodbcache.demo.stdlib import stdlib_sources
from zodbcache.demo.walk import walk

_PARSERS = 2
_QUICK_MODULES = 40
_CHANGING_TRANSACTIONS = 5
_CACHE_LIMIT_MB = 200
_SEED = 1


@dataclass(frozen=True)
class DemoOptions:
    """*base*: what to run it on.  *objects*: how many each phase reads.

    *quick*: only a small part of the library.  *keep*: a directory to leave
    the database and the cache's file in; None for a temporary one.
    """

    base: Base
    objects: int
    quick: bool
    keep: Path | None


def run(options: DemoOptions, console: Console) -> DemoResult:
    """Run the demo, showing progress on *console*.

    Raises DemoError, KeyboardInterrupt on Ctrl-C, SystemExit on SIGTERM.
    """
    begun = time.perf_counter()
    with (
        _one_interrupt(),
        _workspace(options.keep) as directory,
        Children(directory) as children,
        ProgressBars(console) as bars,
    ):
        result = _run(options, children, directory, bars)
    return replace(result, total_s=time.perf_counter() - begun)


def _run(
    options: DemoOptions, children: Children, directory: Path, bars: ProgressBars
) -> DemoResult:
    parse_s = -time.perf_counter()
    modules, skipped = _parse(children, _QUICK_MODULES if options.quick else None, bars)
    parse_s += time.perf_counter()
    server = children.start("zodbcache.demo.server", [ServerJob(options.base, str(directory))])
    address = server.wait_for(Serving)[0].address
    store_s = -time.perf_counter()
    stored, database_bytes = _store(address, options.base, modules, bars)
    store_s += time.perf_counter()
    cache_directory = directory / "cache"
    plan = Plan(
        address=address,
        cache=CachePlace(str(cache_directory), _CACHE_LIMIT_MB),
        objects=min(options.objects, stored),
        seed=_SEED,
    )
    phases, close_ms = run_phases(children, plan, bars)
    cache_bytes = sum(path.stat().st_size for path in cache_directory.iterdir())
    objects_changed = _change_half(plan, bars)
    return DemoResult(
        base=options.base.name,
        own_cache_mb=options.base.own_cache_mb,
        python=platform.python_version(),
        objects=phases[0].objects,
        graph=GraphResult(
            modules=len(modules),
            functions=sum(len(module.functions) for module in modules),
            classes=sum(len(module.classes) for module in modules),
            skipped=skipped,
            objects=stored,
            parse_s=parse_s,
            store_s=store_s,
            database_bytes=database_bytes,
        ),
        phases=tuple(phases),
        changed=run_changed(children, plan, bars, objects_changed),
        close_ms=close_ms,
        cache_bytes=cache_bytes,
        total_s=0.0,
    )


@contextlib.contextmanager
def _one_interrupt() -> Iterator[None]:
    """Let the first signal end the block, and no further one disturb the tidying up."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals come to the main thread alone, which is not ours
        return
    signals = (signal.SIGINT, signal.SIGTERM)

    def end(number: int, frame: FrameType | None) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    before = [signal.signal(each, end) for each in signals]
    try:
        yield
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)


@contextlib.contextmanager
def _workspace(keep: Path | None) -> Iterator[Path]:
    """A directory for the run: *keep*, or one that is removed afterwards."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise DemoError(f"{keep} is not empty. Name a new or an empty directory with --keep")
        yield keep.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="zodbcache-demo-") as directory:
        yield Path(directory)


def _parse(
    children: Children, limit: int | None, bars: ProgressBars
) -> tuple[list[ModuleFacts], int]:
    """The facts of all modules, by name, and how many files are not valid Python."""
    jobs = [ParserJob(first, _PARSERS, limit) for first in range(_PARSERS)]
    group = children.start("zodbcache.demo.parser", jobs)
    modules = []
    skipped = 0
    with bars.part("Parse the standard library", len(stdlib_sources(limit))) as advance:
        for parsed in group.messages():
            advance(1)
            if parsed.facts is None:
                skipped += 1
            else:
                modules.append(parsed.facts)
    return sorted(modules, key=lambda module: module.name), skipped


def _store(
    address: Address, base: Base, modules: Sequence[ModuleFacts], bars: ProgressBars
) -> tuple[int, int]:
    """Store the graph in the database; return how many objects and bytes that has then."""
    with (
        bars.part(f"Store it: {base.title}", 2 * len(modules)) as advance,
        plain_database(address) as database,
        fresh_connection(database) as connection,
    ):
        for done in store_graph(connection, modules):
            advance(done)
        objects = len(connection._cache)  # of a storage, len() may be an estimate
    with plain_database(address) as database:
        return objects, database.storage.getSize()


def _change_half(plan: Plan, bars: ProgressBars) -> int:
    """Change half as many objects as a phase reads, all among those it reads.

    Done by a client without the cache while nobody has the cache's file open.
    """
    with (
        bars.part("Change half of the objects", plan.objects) as advance,
        plain_database(plan.address) as database,
        fresh_connection(database) as connection,
    ):
        read = walk(connection, objects=plan.objects, seed=plan.seed, on_chunk=advance)
        entries = [connection.get(oid) for oid in sorted(read.versions)]
        changeable = [entry for entry in entries if isinstance(entry, Entry)]
        chosen = random.Random(plan.seed).sample(changeable, read.objects // 2)
        for start in range(_CHANGING_TRANSACTIONS):
            for entry in chosen[start::_CHANGING_TRANSACTIONS]:
                entry.revision += 1
            transaction.commit()
        return len(chosen)
