"""KeyboardInterrupt at each place where CPython would raise it.

A signal that comes in the main thread is handled when a function begins, and
when a call has returned.  Those are the moments a profiler is told of.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from inspect import CO_GENERATOR
from types import FrameType
from typing import Any

import zodbcache

_SOURCES = (os.path.dirname(zodbcache.__file__), contextlib.__file__)

Place = tuple[str, int, str]
"""File, line, and what happened there."""


def places(function: Callable[[], object]) -> list[Place]:
    """Those that *function* passes, each once."""
    found: dict[Place, None] = {}
    _profiled(function, lambda place: found.setdefault(place))
    return list(found)


def interrupt(function: Callable[[], object], at: Place) -> bool:
    """Call *function* and interrupt it at this place; whether it was passed."""
    passed = False

    def check(place: Place) -> None:
        nonlocal passed
        if place == at and not passed:
            passed = True
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        _profiled(function, check)
    return passed


def _profiled(function: Callable[[], object], at_place: Callable[[Place], object]) -> None:
    def profile(frame: FrameType, event: str, argument: Any) -> None:
        place = _place(frame, event)
        if place is not None:
            at_place(place)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(before)


def _place(frame: FrameType, event: str) -> Place | None:
    if event in ("c_call", "c_exception"):
        return None
    if event == "return":
        if frame.f_code.co_flags & CO_GENERATOR or frame.f_back is None:
            return None  # a generator that yields looks for no signal
        frame = frame.f_back  # it has returned there
    path = frame.f_code.co_filename
    if not path.startswith(_SOURCES):
        return None
    return path, frame.f_lineno, event
