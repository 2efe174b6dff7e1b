"""The borrowed tests that cannot hold here or are run over another base, each with its reason.

A key is a pattern of ``file::class::test`` or ``file::test[case]``.
"""

from __future__ import annotations

import os

_LONG = "takes half a minute, and other bases run it"

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
    "test_zeo.py::*.test_prefetch]": ("counts what ZEO's own cache holds"),
    "test_zeo.py::MappingStorageTests::test_race_external_invalidate_vs_disconnect": _LONG,
    "test_zeo.py::LoadDelayedRaceTests::test_race_external_invalidate_vs_disconnect": _LONG,
}

if hasattr(os, "geteuid") and os.geteuid() == 0:
    DESELECTED["*blob_transaction_txt*"] = "expects that a read-only file cannot be written"
