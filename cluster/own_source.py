"""Digests of the source of a user's own class, which tell that it has been edited.

Nothing here enters a key. `sources.py` keeps the digests beside the records.
"""

from __future__ import annotations

import ast
import importlib.util
import sysconfig
import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from plait.cluster.manifest import PACKAGE
from plait.generators.base import import_target
from plait.generators.former import ROOMS
from plait.generators.source import definition_of, tree_digest

_INSTALLED = {"site-packages", "dist-packages"}
_NOT_OWN = (
    Path(sysconfig.get_path("stdlib")).resolve(),
    PACKAGE.resolve(),
    *((PACKAGE / room).resolve() for room in ROOMS),
)
"""Folders of the standard library and of plait."""
_MOST_FILES = 1024
"""Whose answers are kept: the same few files stand in the traceback of every failure."""


def own_source(target: str) -> Mapping[str, str]:
    """Return by module the digest of the source of a user's class, `module:Class`.

    The class's module, and what it imports, at any depth, from files that are neither the
    standard library's, nor installed, nor plait's. Of a class of a script or notebook,
    that of the class alone. Empty where there is no source, or no such class here.
    """
    try:
        cls = import_target(target)
    except Exception:  # whatever a user's module raises
        return {}
    module = target.partition(":")[0]
    if module == "__main__":
        return _of_class(target, cls)
    digests: dict[str, str] = {}
    left = [module, getattr(cls, "__module__", module)]  # where it is named, and defined
    seen: set[str] = set()
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        spec = _locate(name)
        tree = None if spec is None else _parse(spec)
        if spec is not None and tree is not None:
            digests[name] = tree_digest(tree)
            left += _imports(tree, spec)
    return dict(sorted(digests.items()))


def _of_class(target: str, cls: Any) -> dict[str, str]:
    tree = definition_of(cls)
    return {} if tree is None else {target: tree_digest(tree)}


def _locate(name: str) -> ModuleSpec | None:
    """Return where a module is, without running it or a package that it is in."""
    # `importlib.util.find_spec` imports the packages that a module is in: only the
    # outermost is looked for by it, and each of the others in the one before it.
    first, *inner = _outer_names(name)
    try:
        spec = importlib.util.find_spec(first)
        for inner_name in inner:
            if spec is None:
                return None
            folders = spec.submodule_search_locations or []
            spec = PathFinder.find_spec(inner_name, folders)
    except (ImportError, ValueError):
        return None
    return spec


def _parse(spec: ModuleSpec) -> ast.Module | None:
    """Return the syntax tree of a module of the user's; None for any other."""
    if not spec.has_location or spec.origin is None:
        return None
    file = Path(spec.origin).resolve()
    if file.suffix != ".py" or not is_own_file(file):
        return None
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


@lru_cache(_MOST_FILES)
def is_own_file(file: str | Path) -> bool:
    """Return whether a file of code is a user's, or a cell of a notebook."""
    if str(file).startswith("<frozen"):
        return False
    path = Path(file).resolve()
    own = _INSTALLED.isdisjoint(path.parts)
    return own and not any(map(path.is_relative_to, _NOT_OWN))


def _imports(tree: ast.Module, spec: ModuleSpec) -> Iterator[str]:
    """Yield the names of modules that may be imported, and of packages they are in."""
    for name in _iter_imports(tree, spec):
        yield from _outer_names(name)


def _outer_names(name: str) -> Iterator[str]:
    """Yield the names of the packages that a module is in, the outermost first, and its."""
    words = name.split(".")
    for count in range(1, len(words) + 1):
        yield ".".join(words[:count])


def _iter_imports(tree: ast.Module, spec: ModuleSpec) -> Iterator[str]:
    """Yield what import statements name; of `from a import b`, both `a` and `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            try:
                relative = "." * node.level + (node.module or "")
                base = importlib.util.resolve_name(relative, spec.parent)
            except ImportError:  # beyond the outermost package
                continue
            yield base
            for alias in node.names:
                yield f"{base}.{alias.name}"  # a module, where it is no name in one
