"""``python -m zodbcache``: the same as the ``zodbcache`` command."""

from __future__ import annotations

import sys

from zodbcache.cli import main

if __name__ == "__main__":
    sys.exit(main())
