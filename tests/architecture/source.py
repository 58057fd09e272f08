"""Source files as the rules of this folder see them: modules, with what they import and say."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
_ROOTS = {
    "stado": REPOSITORY,
    "stado_agent": REPOSITORY / "agent",
    "stado_coordinator": REPOSITORY / "coordinator",
}


@dataclass(frozen=True, slots=True)
class Module:
    """A module by its dotted name (that of its folder, for an `__init__.py`)."""

    name: str
    tree: ast.Module

    def is_in(self, *names: str) -> bool:
        return is_in(self.name, *names)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rule is broken, and how."""

    module: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.what}"


def is_in(name: str, *packages: str) -> bool:
    """Whether a dotted name is one of the packages or lies in one."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def parse(name: str, text: str) -> Module:
    return Module(name, ast.parse(text))


@cache
def product_modules() -> tuple[Module, ...]:
    """Everything that is installed."""
    return tuple(
        parse(_dotted_name(path, root), path.read_text(encoding="utf-8"))
        for package, root in _ROOTS.items()
        for path in sorted((root / package).rglob("*.py"))
    )


@cache
def _packages() -> frozenset[str]:
    return frozenset(
        ".".join(path.parent.relative_to(root).parts)
        for package, root in _ROOTS.items()
        for path in (root / package).rglob("__init__.py")
    )


def imports(module: Module) -> Iterator[tuple[int, str]]:
    """Line and dotted name of each module that is imported, wherever in the file it is."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _imported_from(node)


def _imported_from(node: ast.ImportFrom) -> Iterator[tuple[int, str]]:
    package = "." * node.level + (node.module or "")
    for alias in node.names:
        # `from package import module` names a module, `from module import name` does not.
        name = f"{package}.{alias.name}" if package in _packages() else package
        yield node.lineno, name


def literals(module: Module) -> Iterator[tuple[int, str]]:
    """Line and text of each string in the code: f-strings by their parts, docstrings left out."""
    docstrings = {
        id(node.value)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            if isinstance(node.value, str):
                yield node.lineno, node.value
            elif isinstance(node.value, bytes):
                yield node.lineno, node.value.decode("latin-1")


def names_used(module: Module) -> Iterator[tuple[int, str]]:
    """Line and dotted text of each attribute (`os.environ`) and of each name imported from a
    module (`from os import environ`)."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute):
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def _dotted_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
