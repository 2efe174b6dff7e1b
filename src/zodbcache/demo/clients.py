"""Connections to the demo's database, with and without the cache."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import ZODB
from ZODB.Connection import resetCaches

import zodbcache
from zodbcache.demo.bases import Address
from zodbcache.demo.messages import CachePlace

# Connections keep all they read: what is measured is the first read of every object.
_CONNECTION_CACHE_OBJECTS = 10_000_000


def open_database(address: Address, cache: CachePlace | None) -> ZODB.DB:
    """A DB on the database at *address*; closing it closes the cache and the storage."""
    storage = address.open_storage()
    if cache is not None:
        storage = zodbcache.wrap(
            storage, cache_local_mb=cache.limit_mb, cache_local_dir=cache.directory
        )
    return ZODB.DB(storage, cache_size=_CONNECTION_CACHE_OBJECTS)


@contextlib.contextmanager
def plain_database(address: Address) -> Iterator[ZODB.DB]:
    """A DB without the cache, closed at the end."""
    database = open_database(address, None)
    try:
        yield database
    finally:
        database.close()


@contextlib.contextmanager
def fresh_connection(database: ZODB.DB) -> Iterator[Any]:
    """A Connection whose object cache is empty."""
    resetCaches()
    connection = database.open()
    try:
        yield connection
    finally:
        connection.close()
