"""A directory on a network file system is used, with one warning."""

from __future__ import annotations

import pytest

from zodbcache.cachefile import CacheFile
from zodbcache.cachefile import mounts

LINES = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/vda rw
22 21 0:30 / /mnt rw shared:2 - nfs4 server:/export rw
23 22 8:2 / /mnt/local\\040disk rw - xfs /dev/vdb rw
24 21 0:31 / /mnt/twice rw - ext4 /dev/vdc rw
25 24 0:32 / /mnt/twice rw - cifs //server/share rw
no mount at all
"""


@pytest.fixture
def mountinfo(tmp_path, monkeypatch):
    path = tmp_path / "mountinfo"
    monkeypatch.setattr(mounts, "MOUNTS", str(path))
    mounts.warn_of_network.cache_clear()
    yield path
    mounts.warn_of_network.cache_clear()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/var/cache", "ext4"),
        ("/mntx", "ext4"),
        ("/mnt", "nfs4"),
        ("/mnt/cache", "nfs4"),
        ("/mnt/local disk/cache", "xfs"),
        ("/mnt/twice/cache", "cifs"),
    ],
)
def test_file_system(mountinfo, path, kind):
    mountinfo.write_text(LINES)
    assert mounts.file_system(path) == kind


def test_where_the_system_does_not_tell(mountinfo):
    assert mounts.file_system("/mnt") is None


@pytest.mark.parametrize(("kind", "warnings"), [("nfs", 1), ("ext4", 0)])
def test_it_is_used_with_one_warning(mountinfo, tmp_path, caplog, kind, warnings):
    mountinfo.write_text(
        f"21 1 8:1 / / rw - ext4 /dev/vda rw\n22 21 0:1 / {tmp_path} rw - {kind} x rw\n"
    )
    for _ in range(2):
        cache_file = CacheFile.open(tmp_path / "cache", identity="x", limit_bytes=10_000)
        cache_file.advance(7, 1, lambda since: [], [(1, 5, 0, b"state")], [])
        cache_file.close()
    assert len(caplog.records) == warnings
    assert all("network file system (nfs)" in record.message for record in caplog.records)
