"""What has to be made anew in the child of a ``fork()`` (I9).

A lock that another thread of the parent held would never be released there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from weakref import WeakMethod

_methods: list[WeakMethod[Callable[[], None]]] = []


def call_after_fork(method: Callable[[], None]) -> None:
    """Call this bound method in every child forked while its object lives."""
    _methods[:] = [known for known in _methods if known() is not None]
    _methods.append(WeakMethod(method))


def _in_child() -> None:
    for reference in _methods:
        method = reference()
        if method is not None:
            method()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
