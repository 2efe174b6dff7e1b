"""What others have published, for orientation: other machines, years ago.

RelStorage's pull request 243 (June 2019) moved its cache of a process from
memory into a temporary SQLite database, measured both, and kept the memory.
"""

from __future__ import annotations

PULL_REQUEST_243_MS = {
    "memory": {"pop_eq": 1040, "pop_ne": 1110, "epop": 950, "read": 370, "mix": 1320},
    "sqlite": {"pop_eq": 3130, "pop_ne": 3660, "epop": 2620, "read": 1140, "mix": 4230},
}
"""Its micro benchmarks, 100 MB of small objects, one thread, a laptop of 2018."""
