"""What a cache file's tables are, and how an older file becomes a current one.

Guarantees: a migration and the version it leads to are committed together;
a file is judged without changing it; what the version says and what the
tables are agree, or the file is called malformed.
"""

from __future__ import annotations

import enum
from typing import Final

from zodbcache.cachefile.connection import Connection
from zodbcache.cachefile.tier import Tier
from zodbcache.cachefile.tier import insert_tier

#: "ZODc", at byte 68 of the file.
APPLICATION_ID: Final = 0x5A4F4463

_RECORD: Final = """\
CREATE TABLE record(
    oid INTEGER PRIMARY KEY,
    tid INTEGER NOT NULL,
    frequency INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    state BLOB NOT NULL
) STRICT"""

_TIER: Final = """\
CREATE TABLE tier(
    id INTEGER PRIMARY KEY CHECK (id = 1),
    checkpoint INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    age INTEGER NOT NULL,
    row_count INTEGER NOT NULL,
    state_bytes INTEGER NOT NULL,
    identity TEXT NOT NULL,
    checksum INTEGER NOT NULL
) STRICT"""

_WITNESS: Final = """\
CREATE TABLE witness(
    oid INTEGER PRIMARY KEY,
    tid INTEGER NOT NULL
) STRICT"""

_HEAT: Final = """\
CREATE TABLE heat(
    oid INTEGER PRIMARY KEY,
    frequency INTEGER NOT NULL
) STRICT"""

#: The statements that lead from version n to n + 1, at index n.
MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = ((_RECORD, _TIER, _WITNESS), (_HEAT,))

#: The ``user_version`` that this code writes.
VERSION: Final = len(MIGRATIONS)

#: What sqlite_schema says in a file of the present version.
TABLES: Final = {"record": _RECORD, "tier": _TIER, "witness": _WITNESS, "heat": _HEAT}


class Kind(enum.Enum):
    """What an openable SQLite file is to us."""

    EMPTY = "empty"
    CURRENT = "current"
    OLDER = "older"
    MALFORMED = "malformed"
    NEWER = "newer"
    FOREIGN = "foreign"


def kind_of(connection: Connection) -> Kind:
    """What the file is, by its header and its list of tables.  Changes nothing.

    Looks at one moment of the file: another process may be creating it.
    """
    with connection.transaction("open", write=False):
        application_id = connection.rows("PRAGMA application_id")[0][0]
        version = connection.rows("PRAGMA user_version")[0][0]
        tables = _tables(connection)
    if application_id == APPLICATION_ID:
        return _kind_of_ours(version, tables)
    if application_id == 0 and version == 0 and not tables:
        return Kind.EMPTY
    return Kind.FOREIGN


def _kind_of_ours(version: int, tables: dict[bytes, bytes]) -> Kind:
    if version > VERSION:
        return Kind.NEWER
    if version < 1:
        return Kind.MALFORMED
    if version < VERSION:
        return Kind.OLDER
    expected = {name.encode(): sql.encode() for name, sql in TABLES.items()}
    return Kind.CURRENT if tables == expected else Kind.MALFORMED


def _tables(connection: Connection) -> dict[bytes, bytes]:
    """Everything the schema holds by name, except what SQLite adds by itself.

    As bytes: a damaged text may be none.
    """
    return dict(
        connection.rows(
            "SELECT CAST(name AS BLOB), CAST(sql AS BLOB) FROM sqlite_schema"
            " WHERE substr(name, 1, 7) <> 'sqlite_'"
        )
    )


def migrate(connection: Connection, *, identity: str, generation: int) -> None:
    """Bring an empty or older file to the present version, in one transaction.

    A file that another process has brought there meanwhile is left as it is.
    *generation*: of an empty file.  Raises CacheFileError.
    """
    if connection.rows("PRAGMA user_version")[0][0] < VERSION and not connection.can_shrink:
        connection.vacuum()
    with connection.transaction("open", write=True):
        version = connection.rows("PRAGMA user_version")[0][0]
        if version >= VERSION:
            return
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                connection.run(statement)
        if version == 0:
            insert_tier(connection, Tier(generation=generation, identity=identity))
        connection.run(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.run(f"PRAGMA user_version = {VERSION}")
