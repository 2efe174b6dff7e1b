"""Twenty workers that start at once on an empty directory, and stop at once."""

from __future__ import annotations

import json
from pathlib import Path

from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.utils import p64
from ZODB.utils import z64

from .children import Application
from .children import Child
from .test_processes import check_file

WORKERS = 20
OBJECTS_EACH = 300
"""That nobody else reads."""

SHARED_OBJECTS = 100
"""That all read."""

STATE_BYTES = 8000


def found(path: Path, count: int) -> None:
    """Objects 1 to *count*."""
    storage = FileStorage(str(path))
    transaction = TransactionMetaData()
    storage.tpc_begin(transaction)
    for oid in range(1, count + 1):
        state = (b"%d " % oid).ljust(STATE_BYTES, b".")
        storage.store(p64(oid), z64, state, "", transaction)
    storage.tpc_vote(transaction)
    storage.tpc_finish(transaction)
    storage.close()


def test_twenty_start_and_stop_at_once(tmp_path: Path) -> None:
    application = Application(tmp_path, is_zeo=False)
    count = SHARED_OBJECTS + WORKERS * OBJECTS_EACH
    found(application.path, count)
    shared = list(range(1, SHARED_OBJECTS + 1))
    job = {
        "file": str(application.path),
        "read_only": True,
        "cache": str(application.cache),
        "options": {"cache_local_mb": 10, "cache_file_mb": 200},
        "oids": [
            shared + list(range(first, first + OBJECTS_EACH))
            for first in range(SHARED_OBJECTS + 1, count + 1, OBJECTS_EACH)
        ],
    }
    fleet = Child("fleet", json.dumps(job))
    reports = [fleet.hear() for _ in range(WORKERS)]
    assert fleet.end() == 0
    for report in reports:
        assert report["status"] == 0
        assert report["wrong"] == []
        assert report["warnings"] == []
        assert report["stats"]["hits"] + report["stats"]["misses"] == len(shared) + OBJECTS_EACH
    assert len(list(application.cache.glob("*.sqlite3"))) == 1
    assert len(check_file(application)) == count, "what all of them had cached"
