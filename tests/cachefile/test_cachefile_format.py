"""What the format page says, and that files of every version are read."""

from __future__ import annotations

import doctest
import os
import re
import runpy
import shutil
from pathlib import Path

import apsw

from zodbcache.cachefile import ROW_OVERHEAD_BYTES
from zodbcache.cachefile import CacheFile
from zodbcache.cachefile import checksum
from zodbcache.cachefile import schema
from zodbcache.cachefile.quarantine import file_name
from zodbcache.cachefile.tier import Tier

TESTS = Path(__file__).parent.parent
GOLDEN = TESTS / "golden"
PAGE = TESTS.parent / "docs" / "file-format.rst"


def test_golden_v1(directory):
    fixed = runpy.run_path(str(GOLDEN / "make_v1.py"))
    directory.mkdir()
    name = file_name(identity=fixed["IDENTITY"], prefix="", sequence=0)
    shutil.copy(GOLDEN / "v1.sqlite3", directory / name)
    cache_file = CacheFile.open(directory, identity=fixed["IDENTITY"], limit_bytes=1_000_000)
    with cache_file.snapshot() as snapshot:
        assert snapshot.checkpoint == fixed["CHECKPOINT"]
        assert snapshot.generation == 1
        assert snapshot.witnesses == fixed["WITNESSES"]
        assert list(snapshot.rows(fixed["CHECKPOINT"], 1_000_000)) == fixed["ROWS"]
        assert (snapshot.row_count, snapshot.skipped) == (4, 0)
    cache_file.close()
    assert os.listdir(directory) == [name]


def test_every_version_has_a_golden_file():
    assert sorted(path.name for path in GOLDEN.glob("v*.sqlite3")) == [
        f"v{version}.sqlite3" for version in range(1, schema.VERSION + 1)
    ]


def test_golden_v1_says_version_1(tmp_path):
    shutil.copy(GOLDEN / "v1.sqlite3", tmp_path)
    connection = apsw.Connection(str(tmp_path / "v1.sqlite3"))
    assert connection.pragma("user_version") == 1
    assert connection.pragma("application_id") == 0x5A4F4463
    connection.close()


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
    assert file_name(identity="example", prefix="", sequence=0) in page


def test_largest_and_smallest_ids(tmp_path):
    """Oids and tids use the whole range of their eight bytes."""
    cache_file = CacheFile.open(tmp_path, identity="x", limit_bytes=10_000)
    rows = [(-(2**63), 1, 0, b"a"), (2**63 - 1, 2**63 - 1, 0, b"b")]
    cache_file.advance(2**63 - 1, 1, lambda since: [], rows, [(-(2**63), 2**63 - 1)])
    with cache_file.snapshot() as snapshot:
        assert list(snapshot.rows(2**63 - 1, 10_000)) == rows
        assert snapshot.witnesses == [(-(2**63), 2**63 - 1)]
    cache_file.close()
