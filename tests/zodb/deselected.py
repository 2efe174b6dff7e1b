"""The borrowed tests that cannot hold here or are run over another base, each with its reason.

A key is a pattern of ``file::class::test`` or ``file::test[case]``.
"""

from __future__ import annotations

import os

_LONG = "takes half a minute, and other bases run it"
_SERVER_CLOCK = "the server's clock makes the tids, and the test sets this process's"

DESELECTED: dict[str, str] = {
    "test_demostorage.py::OverFileStoragesTests::testPack*": (
        "a DemoStorage that is given its changes cannot be packed: it lacks _temporary_changes"
    ),
    "test_filestorage.py::CacheOverHexTests::testRestoreCopy": (
        "reads the file's bytes, and has only the outermost wrapper decode them"
    ),
    "test_databases.py::*passing_None_to_DB]": "prints the storage",
    "test_databases.py::*passing_a_file_name_to_DB]": "prints the storage",
    "test_databases.py::*doctest_readCurrent]": (
        "replaces a method of the base that ZODB's adapter has copied; ours is looked up each time"
    ),
    "test_databases.py::*testSomeDelegation]": "its base is a stub, and no storage",
    "test_databases.py::*DemoStorage_test]": "compares storages by identity and type",
    "test_zeo.py::*client-config_test]": "prints the storage's type",
    "test_zeo.py::*invalidation-age_txt]": (
        "needs objects in ZEO's own cache, and reads from ours never put them there"
    ),
    "test_zeo.py::*drop_cache_rather_than_verify_txt]": "counts what ZEO's own cache holds",
    "test_zeo.py::TimeoutTests::test_checkTimeoutAfterVote": (
        "looks into ZEO's own cache, where ours is found"
    ),
    "test_zeo.py::*.test_prefetch]": ("counts what ZEO's own cache holds"),
    "test_zeo.py::MappingStorageTests::test_race_external_invalidate_vs_disconnect": _LONG,
    "test_zeo.py::LoadDelayedRaceTests::test_race_external_invalidate_vs_disconnect": _LONG,
    "test_relstorage.py::*::test_tid_ordering_w_commit": (
        "uses one instance from several threads, which RelStorage forbids"
    ),
    "test_relstorage.py::*HistoryFreeTests::testWriteMethods": (
        "calls undo, which a database without history does not have"
    ),
    "test_relstorage.py::*::testTransactionalUndoIterator": (
        "RelStorage does not record where an undone state came from"
    ),
    "test_relstorage.py::*::testUndoMultipleConflictResolution*": (
        "RelStorage resolves no conflicts when it undoes"
    ),
    "test_relstorage.py::PostgreSQLHistoryPreservingTests::testPackUndoLog": _SERVER_CLOCK,
    "test_relstorage.py::MySQLHistoryPreservingTests::testPackUndoLog": _SERVER_CLOCK,
    "test_relstorage.py::*loadblob_tmpstore*": (
        "asks a closed RelStorage for its directory of temporary files"
    ),
    "test_relstorage.py::SQLiteHistoryFree*::test_race_external_invalidate_vs_disconnect": _LONG,
    "test_relstorage.py::PostgreSQL*::test_race_external_invalidate_vs_disconnect": _LONG,
    "test_relstorage.py::MySQL*::test_race_external_invalidate_vs_disconnect": _LONG,
    "test_relstorage.py::*Zlib*::test_race_*": "zlib changes bytes, not when they are seen",
}

if hasattr(os, "geteuid") and os.geteuid() == 0:
    DESELECTED["*blob_transaction_txt*"] = "expects that a read-only file cannot be written"
