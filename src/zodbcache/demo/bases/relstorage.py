"""What the bases that are read through RelStorage have in common."""

from __future__ import annotations

from typing import Any

OWN_CACHE_MB = 1.0
"""Not 0: RelStorage's conflict resolution leans on its cache."""

OWN_CACHE_REMARK = (
    f"RelStorage's own cache is set to {OWN_CACHE_MB:.0f} MB: little, but not nothing, "
    "since its conflict resolution leans on it."
)


def options() -> Any:
    """RelStorage's Options: its defaults, but for its cache."""
    from relstorage.options import Options

    return Options(cache_local_mb=OWN_CACHE_MB)
