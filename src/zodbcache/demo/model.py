"""The cross-reference graph of the demo, as persistent objects in BTrees.

Every module, class and function is an object of its own; what imports,
inherits from or calls what are references between them, so that reading the
graph loads objects as an application does.
"""

from __future__ import annotations

from typing import Any

from BTrees.OOBTree import OOBTree
from BTrees.OOBTree import OOTreeSet
from persistent import Persistent

from zodbcache.demo.stdlib import ClassFacts
from zodbcache.demo.stdlib import FunctionFacts
from zodbcache.demo.stdlib import ModuleFacts

ROOT_KEY = "crossreference"


class Entry(Persistent):
    """A module, a class or a function.

    *revision*: how often the demo has changed it.
    """

    def __init__(self, name: str, docstring: str) -> None:
        self.name = name
        self.docstring = docstring
        self.revision = 0

    def value(self) -> tuple[int, str, str]:
        """What two readings of the same version agree on."""
        return (self.revision, self.name, self.docstring)


class Module(Entry):
    """*classes*, *functions*: by qualname, methods and nested ones included."""

    def __init__(self, facts: ModuleFacts) -> None:
        super().__init__(facts.name, facts.docstring)
        self.imports: tuple[Module, ...] = ()
        self.classes: Any = OOBTree()
        self.functions: Any = OOBTree()


class Class(Entry):
    """*bases*: those that are in the graph."""

    def __init__(self, module: Module, facts: ClassFacts) -> None:
        super().__init__(facts.qualname, facts.docstring)
        self.module = module
        self.line = facts.line
        self.bases: tuple[Class, ...] = ()


class Function(Entry):
    """*owner*: the class whose body it is in, or None.

    *calls*: the functions and classes it calls; *unresolved*: the names of
    what else it calls, as written.
    """

    def __init__(self, module: Module, owner: Class | None, facts: FunctionFacts) -> None:
        super().__init__(facts.qualname, facts.docstring)
        self.module = module
        self.owner = owner
        self.line = facts.line
        self.arguments = facts.arguments
        self.calls: tuple[Function | Class, ...] = ()
        self.unresolved: tuple[str, ...] = ()


class CrossReference(Persistent):
    """The whole graph.

    *modules*: by name.  *callers*: from ``module:qualname`` to the set of
    the functions calling it, written the same way.
    """

    def __init__(self) -> None:
        self.modules: Any = OOBTree()
        self.callers: Any = OOBTree()

    def add_caller(self, called: str, caller: str) -> None:
        callers = self.callers.get(called)
        if callers is None:
            callers = self.callers[called] = OOTreeSet()
        callers.add(caller)
