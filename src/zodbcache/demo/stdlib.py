"""What the standard library's source says: modules, classes, functions, imports, calls.

Pure functions from source to frozen dataclasses.  Nothing is imported or
executed.  The same Python gives the same facts in the same order.
"""

from __future__ import annotations

import ast
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path

_NOT_STDLIB = frozenset({"site-packages", "dist-packages", "__pycache__"})
_FunctionNode = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Source:
    """One file: the dotted name it is imported by, and where it is."""

    module: str
    path: str
    is_package: bool


@dataclass(frozen=True)
class ClassFacts:
    """*bases*: dotted names as written."""

    qualname: str
    line: int
    docstring: str
    bases: tuple[str, ...]


@dataclass(frozen=True)
class FunctionFacts:
    """*owner*: the qualname of the class whose body it is in, or "".

    *calls*: the dotted names it calls, as written, each once, sorted.
    """

    qualname: str
    line: int
    docstring: str
    owner: str
    arguments: tuple[str, ...]
    calls: tuple[str, ...]


@dataclass(frozen=True)
class ModuleFacts:
    """*bindings*: ``(local name, dotted target)`` of every import in the module.

    *imports*: the dotted names of the modules it may import; of ``from a
    import b`` both ``a`` and ``a.b``, since b may be a module.
    Qualnames are unique among the classes and among the functions: a second
    definition of a name has its line appended, as in ``C.size@31``.
    """

    name: str
    docstring: str
    imports: tuple[str, ...]
    bindings: tuple[tuple[str, str], ...]
    classes: tuple[ClassFacts, ...]
    functions: tuple[FunctionFacts, ...]


def stdlib_sources(limit: int | None = None) -> list[Source]:
    """The running Python's own ``.py`` files, by path; the first *limit* if given."""
    root = Path(sysconfig.get_path("stdlib"))
    sources = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if _NOT_STDLIB.isdisjoint(parts):
            is_package = parts[-1] == "__init__" and len(parts) > 1
            name = ".".join(parts[:-1] if is_package else parts)
            sources.append(Source(name, str(path), is_package))
    return sources[:limit]


def parse_file(source: Source) -> ModuleFacts | None:
    """The facts of one file; None when it is not valid Python 3.

    The library's own tests contain files that are broken on purpose.
    """
    try:
        text = Path(source.path).read_bytes()
        return parse_source(text, source.module, is_package=source.is_package)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):
        return None


def parse_source(text: bytes | str, module: str, *, is_package: bool = False) -> ModuleFacts:
    """The facts of *text*, the source of *module*.  Raises what ``ast.parse`` raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's strings
        tree = ast.parse(text)
    bindings = dict(_bindings(tree, module if is_package else module.rpartition(".")[0]))
    collector = _Collector()
    collector.collect(tree, qualname="", owner="", calls=set())
    return ModuleFacts(
        name=module,
        docstring=ast.get_docstring(tree) or "",
        imports=_imports(bindings, tree),
        bindings=tuple(sorted(bindings.items())),
        classes=tuple(collector.classes.values()),
        functions=tuple(collector.functions.values()),
    )


class _Collector:
    """Gathers definitions in source order."""

    def __init__(self) -> None:
        self.classes: dict[str, ClassFacts] = {}
        self.functions: dict[str, FunctionFacts] = {}

    def collect(self, node: ast.AST, *, qualname: str, owner: str, calls: set[str]) -> None:
        """Gather what is below *node*; calls made outside any inner function go to *calls*."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, _FunctionNode):
                self._function(child, qualname, owner)
            elif isinstance(child, ast.ClassDef):
                self._class(child, qualname, calls)
            else:
                if isinstance(child, ast.Call) and (name := _dotted(child.func)):
                    calls.add(name)
                self.collect(child, qualname=qualname, owner=owner, calls=calls)

    def _function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, prefix: str, owner: str
    ) -> None:
        plain = prefix + node.name
        qualname = plain if plain not in self.functions else f"{plain}@{node.lineno}"
        facts = FunctionFacts(
            qualname=qualname,
            line=node.lineno,
            docstring=ast.get_docstring(node) or "",
            owner=owner,
            arguments=_arguments(node.args),
            calls=(),
        )
        self.functions[qualname] = facts  # before the inner ones, so that the order is the source's
        calls: set[str] = set()
        # A nested function sees the method's own `self`, so the owner stays.
        self.collect(node, qualname=f"{plain}.<locals>.", owner=owner, calls=calls)
        self.functions[qualname] = replace(facts, calls=tuple(sorted(calls)))

    def _class(self, node: ast.ClassDef, prefix: str, calls: set[str]) -> None:
        plain = prefix + node.name
        qualname = plain if plain not in self.classes else f"{plain}@{node.lineno}"
        self.classes[qualname] = ClassFacts(
            qualname=qualname,
            line=node.lineno,
            docstring=ast.get_docstring(node) or "",
            bases=tuple(name for base in node.bases if (name := _dotted(base))),
        )
        self.collect(node, qualname=f"{plain}.", owner=qualname, calls=calls)


def _arguments(node: ast.arguments) -> tuple[str, ...]:
    named = [argument.arg for argument in (*node.posonlyargs, *node.args, *node.kwonlyargs)]
    rest = [argument.arg for argument in (node.vararg, node.kwarg) if argument]
    return (*named, *rest)


def _dotted(node: ast.expr) -> str:
    """``a.b.c`` for a chain of names, "" for any other expression."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def _bindings(tree: ast.Module, package: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (top, top)
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(node, package)
            for alias in node.names:
                if alias.name != "*" and origin:
                    yield alias.asname or alias.name, f"{origin}.{alias.name}"


def _origin(node: ast.ImportFrom, package: str) -> str:
    """The absolute name that ``from <this> import`` means inside *package*."""
    if not node.level:
        return node.module or ""
    parents = package.split(".")[: len(package.split(".")) - (node.level - 1)]
    return ".".join([*parents, node.module] if node.module else parents)


def _imports(bindings: dict[str, str], tree: ast.Module) -> tuple[str, ...]:
    whole = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    origins = {target.rpartition(".")[0] for target in bindings.values()} - {""}
    return tuple(sorted(whole | origins | set(bindings.values())))
