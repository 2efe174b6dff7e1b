"""The databases of a round: servers, a directory, the ZConfig file that zodbshootout reads."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path

from benchmarks import postgresql

HERE = Path(__file__).parent
ZEO_SERVER = HERE.parent / "zeo_server.py"
STOP_TIMEOUT_S = 10.0

NewDatabase = Callable[[str], str]
"""Makes the empty PostgreSQL database of this name; returns its DSN."""


@contextlib.contextmanager
def new_databases() -> Iterator[NewDatabase]:
    """A PostgreSQL server, started when it is first needed."""
    with contextlib.ExitStack() as stack:
        dsns: list[str] = []

        def new_database(name: str) -> str:
            if not dsns:
                dsns.append(stack.enter_context(postgresql.running()))
            return postgresql.new_database(dsns[0], name)

        yield new_database


@contextlib.contextmanager
def configured(
    storage: str, caches: Sequence[str], directory: Path, new_database: NewDatabase
) -> Iterator[Path]:
    """A ZConfig file with an empty database for each of *caches*, in this order.

    *directory*: an empty one, for all files.
    """
    with contextlib.ExitStack() as stack:
        defines = {"directory": str(directory)}
        for cache in caches:
            if storage == "relstorage":
                defines[f"{cache}_dsn"] = new_database(f"{directory.name}_{cache}")
            elif storage == "zeo":
                address = stack.enter_context(zeo_server(directory / f"server-{cache}"))
                defines[f"{cache}_address"] = address
        path = directory / "zodb.conf"
        lines = [f"%define {name} {value.replace('$', '$$')}" for name, value in defines.items()]
        lines += [f"%include {(HERE / f'{storage}-{cache}.conf').as_uri()}" for cache in caches]
        path.touch(mode=0o600)  # it has a password
        path.write_text("\n".join(lines) + "\n")
        yield path


@contextlib.contextmanager
def zeo_server(directory: Path) -> Iterator[str]:
    """A ZEO server over a new FileStorage; its address."""
    directory.mkdir()
    with subprocess.Popen(
        [sys.executable, ZEO_SERVER, directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield f"127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.stdin.close()
            try:
                server.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                server.kill()
