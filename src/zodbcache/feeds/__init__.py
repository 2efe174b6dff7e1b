"""Where a base storage's changes come from.

``push``: the storage calls back.  ``poll``: the instances of a native MVCC
storage look, and ``snapshots`` tells what each sees.  ``catchup``: asking what
changed since a checkpoint.  One strategy for each kind of storage, in one table.
"""

from __future__ import annotations

from zodbcache.feeds.catchup import CannotCatchUp
from zodbcache.feeds.catchup import CatchUp
from zodbcache.feeds.catchup import Changes
from zodbcache.feeds.catchup import Unsettled
from zodbcache.feeds.catchup import catch_up_for
from zodbcache.feeds.poll import PollFeed
from zodbcache.feeds.push import PushFeed
from zodbcache.feeds.snapshots import Snapshots
from zodbcache.feeds.snapshots import snapshots_of

__all__ = [
    "CannotCatchUp",
    "CatchUp",
    "Changes",
    "PollFeed",
    "PushFeed",
    "Snapshots",
    "Unsettled",
    "catch_up_for",
    "snapshots_of",
]
