"""Which definition a name in the source means, as far as the source alone can tell.

A name resolves to at most one definition, through the module's own
definitions, its imports, and for ``self.x`` the class and its bases.  What
does not resolve that way (builtins, local variables, attributes of unknown
objects) stays unresolved: an edge of the graph is never a guess.

A definition is written ``module`` or ``module:qualname``.
"""

from __future__ import annotations

from collections.abc import Sequence

from zodbcache.demo.stdlib import ClassFacts
from zodbcache.demo.stdlib import FunctionFacts
from zodbcache.demo.stdlib import ModuleFacts

# A re-export of a re-export is common, a chain of more is a cycle.
_LONGEST_CHAIN = 4


class Resolver:
    """Resolves names against the modules given; holds no persistent object."""

    def __init__(self, modules: Sequence[ModuleFacts]) -> None:
        self._bindings = {module.name: dict(module.bindings) for module in modules}
        self._functions = {
            f"{module.name}:{function.qualname}"
            for module in modules
            for function in module.functions
        }
        self._classes = {
            f"{module.name}:{klass.qualname}": klass
            for module in modules
            for klass in module.classes
        }

    def imports(self, module: ModuleFacts) -> tuple[str, ...]:
        """The known modules that *module* imports, itself excepted."""
        return tuple(
            name for name in module.imports if name in self._bindings and name != module.name
        )

    def bases(self, module: str, klass: ClassFacts) -> tuple[str, ...]:
        """The known classes among the bases of *klass*."""
        found = (self.definition(module, base) for base in klass.bases)
        return tuple(name for name in found if name in self._classes)

    def calls(
        self, module: str, function: FunctionFacts
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """``(definitions, names that did not resolve)`` of what *function* calls."""
        found: set[str] = set()
        unresolved: list[str] = []
        for call in function.calls:
            definition = self._call(module, function, call)
            if definition and ":" in definition:
                found.add(definition)
            else:
                unresolved.append(call)
        return tuple(sorted(found)), tuple(unresolved)

    def definition(self, module: str, dotted: str, depth: int = 0) -> str:
        """What *dotted*, written in *module*, stands for; "" when unknown."""
        own = f"{module}:{dotted}"
        if own in self._functions or own in self._classes:
            return own
        first, _, rest = dotted.partition(".")
        target = self._bindings.get(module, {}).get(first)
        if target is None or depth == _LONGEST_CHAIN:
            return ""
        return self._absolute(f"{target}.{rest}" if rest else target, depth + 1)

    def _absolute(self, dotted: str, depth: int) -> str:
        if dotted in self._bindings:
            return dotted
        module, _, rest = dotted.rpartition(".")
        while module and module not in self._bindings:
            module, _, part = module.rpartition(".")
            rest = f"{part}.{rest}"
        return self.definition(module, rest, depth) if module else ""

    def _call(self, module: str, function: FunctionFacts, call: str) -> str:
        first, _, attribute = call.partition(".")
        if function.owner and first in ("self", "cls"):
            return self._method(module, function.owner, attribute, depth=0)
        return self.definition(module, call)

    def _method(self, module: str, owner: str, attribute: str, depth: int) -> str:
        own = f"{module}:{owner}.{attribute}"
        if own in self._functions:
            return own
        klass = self._classes.get(f"{module}:{owner}")
        if klass is None or depth == _LONGEST_CHAIN:
            return ""
        for base in self.bases(module, klass):
            base_module, _, base_owner = base.partition(":")
            if found := self._method(base_module, base_owner, attribute, depth + 1):
                return found
        return ""
