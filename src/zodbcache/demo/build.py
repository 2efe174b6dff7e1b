"""From facts to persistent objects: first the definitions, then the edges between them.

Both passes work in batches of modules, one transaction a batch, so that the
objects have different serials and progress can be shown.  The two passes
are needed since a commit stores whatever its objects refer to.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import transaction

from zodbcache.demo.model import ROOT_KEY
from zodbcache.demo.model import Class
from zodbcache.demo.model import CrossReference
from zodbcache.demo.model import Entry
from zodbcache.demo.model import Function
from zodbcache.demo.model import Module
from zodbcache.demo.resolve import Resolver
from zodbcache.demo.stdlib import ModuleFacts

MODULES_PER_TRANSACTION = 50


def store_graph(connection: Any, modules: Sequence[ModuleFacts]) -> Iterator[int]:
    """Store the graph of *modules*; yield the number of modules done after each commit.

    Every module is done twice, once a pass.
    """
    builder = _Builder(modules)
    connection.root()[ROOT_KEY] = builder.graph
    for step in (builder.define, builder.link):
        for start in range(0, len(modules), MODULES_PER_TRANSACTION):
            batch = modules[start : start + MODULES_PER_TRANSACTION]
            for facts in batch:
                step(facts)
            transaction.commit()
            yield len(batch)


class _Builder:
    """Knows the object of every definition while the graph is made."""

    def __init__(self, modules: Sequence[ModuleFacts]) -> None:
        self.graph = CrossReference()
        self._resolver = Resolver(modules)
        self._entries: dict[str, Entry] = {}

    def define(self, facts: ModuleFacts) -> None:
        entry: Entry
        module = Module(facts)
        self.graph.modules[facts.name] = self._entries[facts.name] = module
        for klass in facts.classes:
            entry = Class(module, klass)
            module.classes[klass.qualname] = entry
            self._entries[f"{facts.name}:{klass.qualname}"] = entry
        for function in facts.functions:
            owner = module.classes.get(function.owner)
            entry = Function(module, owner, function)
            module.functions[function.qualname] = entry
            self._entries[f"{facts.name}:{function.qualname}"] = entry

    def link(self, facts: ModuleFacts) -> None:
        module: Any = self._entries[facts.name]
        if imports := self._resolver.imports(facts):
            module.imports = self._found(imports)
        for klass in facts.classes:
            if bases := self._resolver.bases(facts.name, klass):
                module.classes[klass.qualname].bases = self._found(bases)
        for function in facts.functions:
            calls, unresolved = self._resolver.calls(facts.name, function)
            if calls or unresolved:
                entry = module.functions[function.qualname]
                entry.calls = self._found(calls)
                entry.unresolved = unresolved
            for called in calls:
                self.graph.add_caller(called, f"{facts.name}:{function.qualname}")

    def _found(self, names: Sequence[str]) -> tuple[Entry, ...]:
        return tuple(self._entries[name] for name in names)
