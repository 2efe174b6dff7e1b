"""Whether a directory lies on another machine's disk.

The processes that share a file coordinate through memory that they share, so
they must be on one machine; and locks over a network are not to be relied on.
"""

from __future__ import annotations

import logging
import os
import re
from functools import lru_cache
from typing import Final

logger = logging.getLogger(__name__)

MOUNTS: Final = "/proc/self/mountinfo"

_REMOTE: Final = frozenset(
    {
        "9p",
        "afs",
        "ceph",
        "cifs",
        "coda",
        "fuse.ceph",
        "fuse.glusterfs",
        "fuse.s3fs",
        "fuse.sshfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "smb3",
        "smbfs",
        "virtiofs",
    }
)


@lru_cache(maxsize=64)
def warn_of_network(directory: str) -> None:
    """Warn once a process if *directory* is on a network file system."""
    kind = file_system(os.path.realpath(directory))
    if kind in _REMOTE:
        logger.warning(
            "The cache file in %s is on a network file system (%s): it works for the processes"
            " of one machine at most, and slowly. Set cache-local-dir to a local disk.",
            directory,
            kind,
        )


def file_system(path: str) -> str | None:
    """The type of the file system that the absolute *path* is on, if the system tells."""
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as lines:
            mounts = [_mount(line) for line in lines]
    except OSError:
        return None  # another system than Linux
    kind, longest = None, -1
    for mount in mounts:
        # Of several at one place the last one hides the others.
        if mount and _is_in(path, mount[0]) and len(mount[0]) >= longest:
            longest, kind = len(mount[0]), mount[1]
    return kind


def _mount(line: str) -> tuple[str, str] | None:
    """Mount point and type, as proc(5) writes them."""
    before, separator, after = line.partition(" - ")
    fields = before.split()
    if not separator or len(fields) < 5:
        return None
    point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), fields[4])
    return point, after.split()[0]


def _is_in(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")
