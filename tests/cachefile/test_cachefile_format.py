"""What the format page says, and that files of every version are read."""

from __future__ import annotations

import doctest
import os
import re
import runpy
import shutil
import struct
from pathlib import Path

import apsw
import pytest
from cachefile_helpers import LATEST
from cachefile_helpers import advance
from cachefile_helpers import check_totals
from cachefile_helpers import log_of
from cachefile_helpers import query
from cachefile_helpers import row

from zodbcache.cachefile import ROW_OVERHEAD_BYTES
from zodbcache.cachefile import CacheFile
from zodbcache.cachefile import checksum
from zodbcache.cachefile import schema
from zodbcache.cachefile.connection import PAGE_SIZE_BYTES
from zodbcache.cachefile.connection import Connection
from zodbcache.cachefile.quarantine import file_name
from zodbcache.cachefile.tier import Tier

TESTS = Path(__file__).parent.parent
GOLDEN = TESTS / "golden"
PAGE = TESTS.parent / "docs" / "file-format.rst"


@pytest.fixture
def golden(directory):
    """Open the golden file of a version, and what it was made of."""
    opened = []

    def opener(version, *, limit_bytes=1_000_000):
        fixed = runpy.run_path(str(GOLDEN / f"make_v{version}.py"))
        name = file_name(identity=fixed["IDENTITY"], prefix="", sequence=0)
        if not directory.exists():
            directory.mkdir()
            shutil.copy(GOLDEN / f"v{version}.sqlite3", directory / name)
        opened.append(
            CacheFile.open(directory, identity=fixed["IDENTITY"], limit_bytes=limit_bytes)
        )
        assert opened[-1].path == str(directory / name)
        return fixed, opened[-1]

    yield opener
    for cache_file in opened:
        cache_file.close()


def check_contents(fixed, cache_file, frequencies):
    with cache_file.snapshot() as snapshot:
        assert snapshot.checkpoint == fixed["CHECKPOINT"]
        assert snapshot.generation == 1
        assert snapshot.witnesses == fixed["WITNESSES"]
        assert list(snapshot.rows(fixed["CHECKPOINT"], 1_000_000)) == [
            (oid, tid, frequencies[oid], state) for oid, tid, _, state in fixed["ROWS"]
        ]
        assert (snapshot.row_count, snapshot.skipped) == (4, 0)


def check_version(path):
    """Nothing of an older version is left, and the file is whole."""
    assert query(path, "PRAGMA user_version") == [(schema.VERSION,)]
    assert query(path, "PRAGMA application_id") == [(schema.APPLICATION_ID,)]
    assert dict(query(path, "SELECT name, sql FROM sqlite_schema")) == schema.TABLES
    assert query(path, "PRAGMA auto_vacuum") == [(2,)], "incremental"
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
    check_totals(path)


def test_golden_v1(golden, directory):
    """Migrated when it is opened, and it loses nothing."""
    fixed, cache_file = golden(1)
    frequencies = {oid: frequency for oid, _, frequency, _ in fixed["ROWS"]}
    check_contents(fixed, cache_file, frequencies)
    check_version(cache_file.path)
    cache_file.close()
    assert os.listdir(directory) == [os.path.basename(cache_file.path)]
    check_contents(fixed, golden(1)[1], frequencies)


def test_golden_v1_goes_on(golden):
    """What a file of the first version could not do: heat, and shrinking."""
    fixed, cache_file = golden(1, limit_bytes=10_000)
    names = log_of((0, fixed["CHECKPOINT"] + 1))
    assert advance(cache_file, fixed["CHECKPOINT"] + 1, row(9, 5), names=names).deleted == 1
    cache_file.warm(1, [(1, 0x0400000000000002, 7)])
    check_totals(cache_file.path)
    assert cache_file.trim() == 1
    check_version(cache_file.path)
    with cache_file.snapshot() as snapshot:
        found = {oid: frequency for oid, _, frequency, _ in snapshot.rows(LATEST, 1_000_000)}
    assert found == {-1: 14, 1: 6, 9: 0}


def test_golden_v2(golden):
    fixed, cache_file = golden(2)
    check_version(cache_file.path)
    check_contents(fixed, cache_file, fixed["FREQUENCIES"])
    with cache_file.snapshot() as snapshot:
        assert snapshot.age == fixed["AGE"]
    assert {oid for (oid,) in query(cache_file.path, "SELECT oid FROM heat")} == {0, 1}


@pytest.mark.parametrize("with_another_process", [False, True])
def test_a_migration_that_was_broken_off_is_taken_up(
    golden, directory, monkeypatch, with_another_process
):
    """At each of its steps; another process may have the file open meanwhile."""

    class Died(BaseException):
        pass

    def dying(method):
        def call(self, *arguments):
            nonlocal left
            left -= 1
            if left < 0:
                raise Died
            return method(self, *arguments)

        return call

    steps = 0
    while True:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        path = directory / file_name(identity="golden", prefix="", sequence=0)
        shutil.copy(GOLDEN / "v1.sqlite3", path)
        other = apsw.Connection(str(path)) if with_another_process else None
        if other is not None:
            other.pragma("user_version")
        left = steps
        with monkeypatch.context() as patch:
            for name in ("run", "vacuum"):
                patch.setattr(Connection, name, dying(getattr(Connection, name)))
            try:
                golden(1)
                finished = True
            except Died:
                finished = False
        fixed, cache_file = golden(1)
        check_contents(fixed, cache_file, {row[0]: row[2] for row in fixed["ROWS"]})
        check_version(path)
        cache_file.close()
        if other is not None:
            other.close()
        if finished:
            break
        steps += 1
    assert steps > 5


def test_every_version_has_a_golden_file():
    assert sorted(path.name for path in GOLDEN.glob("v*.sqlite3")) == [
        f"v{version}.sqlite3" for version in range(1, schema.VERSION + 1)
    ]


@pytest.mark.parametrize("version", range(1, schema.VERSION + 1))
def test_golden_files_are_of_their_version(tmp_path, version):
    path = shutil.copy(GOLDEN / f"v{version}.sqlite3", tmp_path)
    assert query(path, "PRAGMA user_version") == [(version,)]
    assert query(path, "PRAGMA application_id") == [(0x5A4F4463,)]
    assert query(path, "PRAGMA auto_vacuum") == [(0 if version == 1 else 2,)]
    assert Path(path).read_bytes()[20] == (0 if version == 1 else 8), "for the page's checksum"


def test_checksum_examples_of_the_page():
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert tried > 0 and failed == 0
    of_record, of_tier = re.findall(r"^ *(0x[0-9a-f]{8})$", PAGE.read_text(), re.MULTILINE)
    assert checksum(1, 0x0400000000000002, b"state") == int(of_record, 16)
    assert Tier(checkpoint=7, generation=1, identity="example").checksum == int(of_tier, 16)


def test_tables_and_numbers_of_the_page():
    page = " ".join(PAGE.read_text().split())
    for statement in schema.TABLES.values():
        assert " ".join(statement.split()) in page
    assert f"``0x{schema.APPLICATION_ID:08X}``" in page
    assert f"{ROW_OVERHEAD_BYTES} bytes a row" in page
    assert f"pages of {PAGE_SIZE_BYTES // 1024} KiB" in page
    assert f"the version of this format: {schema.VERSION}" in page
    assert file_name(identity="example", prefix="", sequence=0) in page


def test_page_checksums_are_as_the_page_says():
    """All of them, in a file that was closed."""
    data = (GOLDEN / "v2.sqlite3").read_bytes()
    assert len(data) % PAGE_SIZE_BYTES == 0
    for start in range(0, len(data), PAGE_SIZE_BYTES):
        *words, plain, weighted = struct.unpack_from(f"<{PAGE_SIZE_BYTES // 4}I", data, start)
        assert plain == sum(words) % 2**32
        assert weighted == sum(word * (2 * i + 1) for i, word in enumerate(words, 1)) % 2**32


def test_largest_and_smallest_ids(tmp_path):
    """Oids and tids use the whole range of their eight bytes."""
    cache_file = CacheFile.open(tmp_path, identity="x", limit_bytes=10_000)
    rows = [(-(2**63), 1, 0, b"a"), (2**63 - 1, 2**63 - 1, 0, b"b")]
    cache_file.advance(2**63 - 1, 1, lambda since: [], rows, [(-(2**63), 2**63 - 1)])
    with cache_file.snapshot() as snapshot:
        assert list(snapshot.rows(2**63 - 1, 10_000)) == rows
        assert snapshot.witnesses == [(-(2**63), 2**63 - 1)]
    cache_file.close()
