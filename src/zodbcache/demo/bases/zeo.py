"""ZEO: its server on a free port of the loopback address, over a FileStorage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zodbcache.demo.bases.base import Base


@dataclass(frozen=True)
class ZEOAddress:
    address: tuple[str, int]

    def open_storage(self) -> Any:
        import ZEO

        return ZEO.client(self.address, cache_size=0)


@contextmanager
def _serve(directory: Path) -> Iterator[ZEOAddress]:
    import ZEO

    before = os.getcwd()
    os.chdir(directory)  # ZEO.server() writes its configuration to the working directory
    try:
        address, stop = ZEO.server(path=str(directory / "Data.fs"))
    finally:
        os.chdir(before)
    try:
        yield ZEOAddress(address)
    finally:
        stop()


BASE = Base(
    name="zeo",
    title="a ZEO server",
    modules=("ZEO",),
    own_cache_mb=0.0,
    own_cache_remark="ZEO's own cache is set to hold nothing.",
    serve=_serve,
)
