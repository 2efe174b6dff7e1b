"""What kind of storage is inside the wrappers that may be around it."""

from __future__ import annotations

from typing import Any


def innermost(base: Any) -> Any:
    """The storage inside wrappers such as zc.zlibstorage, which call it ``base``."""
    while not is_zeo(base) and hasattr(base, "base") and not is_demo(base):
        base = base.base
    return base


def is_instance_of(base: Any, module: str, name: str) -> bool:
    """``isinstance``, by name: the package may not be installed."""
    return any(cls.__module__ == module and cls.__name__ == name for cls in type(base).__mro__)


def is_zeo(base: Any) -> bool:
    """ZEO's client."""
    return is_instance_of(base, "ZEO.ClientStorage", "ClientStorage")


def is_demo(base: Any) -> bool:
    """Its parts may be changed and laid over each other anew, and then share no history."""
    return hasattr(base, "base") and hasattr(base, "changes")
