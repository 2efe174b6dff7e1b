"""What has to be done around a ``fork()`` (I9).

A lock that another thread of the parent held would never be released in the
child.  And a file that SQLite has open at the fork cannot be used in the child
at all, not even over a new connection: SQLite would believe to hold there the
locks that its parent has, since the two ask for them by one table.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakMethod

Method = Callable[[], None]


class _Around(NamedTuple):
    before: WeakMethod[Method]
    in_parent: WeakMethod[Method]


_in_children: list[WeakMethod[Method]] = []
_around: list[_Around] = []
_prepared: list[_Around] = []


def call_after_fork(method: Method) -> None:
    """Call this bound method in every child forked while its object lives."""
    _in_children[:] = [known for known in _in_children if known() is not None]
    _in_children.append(WeakMethod(method))


def call_around_fork(before: Method, in_parent: Method) -> None:
    """Call these bound methods of one object in the parent, before and after each fork."""
    _around[:] = [known for known in _around if known.before() is not None]
    _around.append(_Around(WeakMethod(before), WeakMethod(in_parent)))


def _before() -> None:
    for known in _around:
        method = known.before()
        if method is not None:
            _prepared.append(known)
            method()


def _in_parent() -> None:
    while _prepared:
        method = _prepared.pop().in_parent()
        if method is not None:
            method()


def _in_child() -> None:
    _prepared.clear()
    for reference in _in_children:
        method = reference()
        if method is not None:
            method()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
