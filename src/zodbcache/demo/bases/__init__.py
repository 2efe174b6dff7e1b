"""The databases that the demo can run on: one module each, and the table of them.

Importing this package, or any module in it, needs none of the distributions
that the databases need: these are imported where a database is served or
opened.
"""

from __future__ import annotations

from zodbcache.demo.bases import postgresql
from zodbcache.demo.bases import sqlite
from zodbcache.demo.bases import zeo
from zodbcache.demo.bases.base import Address
from zodbcache.demo.bases.base import Base

__all__ = ["BASES", "DEFAULT_BASE", "Address", "Base"]

BASES = {base.name: base for base in (zeo.BASE, postgresql.BASE, sqlite.BASE)}
"""By the name that ``--base`` has for it."""

DEFAULT_BASE = zeo.BASE.name
