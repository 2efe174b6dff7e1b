"""What is compared, and what is asked of zodbshootout."""

from __future__ import annotations

from dataclasses import dataclass

BENCHMARKS = ("add", "update", "cold", "warm", "hot", "steamin")

NOISE = "steamin"
"""Reads objects that the connection has.  It never asks the storage; its ratio should be 1."""

NOISE_MAX = 1.1


@dataclass(frozen=True)
class Mode:
    """How many do it at the same time: zodbshootout's *options*."""

    title: str
    options: tuple[str, ...]


MODES = {
    "single": Mode("1 process", ("-c", "1")),
    "processes": Mode("5 processes", ("-c", "5")),
    "threads": Mode("5 threads", ("-c", "5", "--threads", "shared")),
}


@dataclass(frozen=True)
class Storage:
    """A kind of storage.

    *caches*: what it is compared with, each a ZConfig file and the name of
    the database in it; the first is the yardstick.  *modes*: those it can do.
    """

    title: str
    caches: tuple[str, ...]
    modes: tuple[str, ...] = tuple(MODES)


STORAGES = {
    "relstorage": Storage("RelStorage", ("none", "own", "cached")),
    # One process only can open a FileStorage, or the file of ZEO's own cache.
    "filestorage": Storage("FileStorage", ("none", "cached"), ("single", "threads")),
    "zeo": Storage("ZEO", ("none", "own", "cached"), ("single", "threads")),
}

CACHES = {"none": "no cache", "own": "its own cache", "cached": "zodbcache"}
"""What they are called in the tables."""
