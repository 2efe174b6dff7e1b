"""The locks of a cached storage, whatever they are called."""

from __future__ import annotations

import gc
import threading
from types import MethodType
from typing import Any

LOCKS = (type(threading.Lock()), type(threading.RLock()))
_CONTAINERS = (dict, list, tuple, set, MethodType)


def locks_of(storage: Any) -> list[Any]:
    """All that can be reached from *storage* through objects of zodbcache."""
    found: list[Any] = []
    seen: set[int] = set()
    waiting = [vars(storage)]
    while waiting:
        thing: Any = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, LOCKS):
            found.append(thing)
        elif isinstance(thing, _CONTAINERS) or _is_ours(thing):
            waiting += (each for each in gc.get_referents(thing) if not isinstance(each, type))
    return found


def _is_ours(thing: Any) -> bool:
    module = type(thing).__module__
    return module.startswith("zodbcache") or module == "threading"
