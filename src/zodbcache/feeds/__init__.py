"""Where a base storage's changes come from.

``push``: the storage calls back.  ``catchup``: asking it what changed since a
checkpoint, one strategy for each kind of storage, in one table.
"""

from __future__ import annotations

from zodbcache.feeds.catchup import CannotCatchUp
from zodbcache.feeds.catchup import CatchUp
from zodbcache.feeds.catchup import Changes
from zodbcache.feeds.catchup import Unsettled
from zodbcache.feeds.catchup import catch_up_for
from zodbcache.feeds.push import PushFeed

__all__ = ["CannotCatchUp", "CatchUp", "Changes", "PushFeed", "Unsettled", "catch_up_for"]
