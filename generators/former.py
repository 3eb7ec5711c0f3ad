"""Names that users' code may still have: of modules, and of what READMEs show."""

from __future__ import annotations

import ast
import importlib
import linecache
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from plait.generators.errors import PlaitWarning

ROOMS = ("generators", "pipelines", "scorers", "cluster", "benchmarks")
"""Once packages of their own; now in `plait`."""


def current_name(target: str) -> str:
    """Return `module:Class` of a stage of plait, as an older run names it, as it is now."""
    return f"plait.{target}" if target.partition(".")[0] in ROOMS else target


def former_names(module: str, current: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module whose names `current` maps former ones to.

    Who uses a former one is warned of what to write; it goes with version 0.3.
    """

    def find(name: str) -> Any:
        if name not in current:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        new = current[name]
        told = f"{module}.{name} is now called {new}, and has only that name from 0.3 on"
        warnings.warn(told, PlaitWarning, stacklevel=2)
        return getattr(importlib.import_module(module), new)

    return find


def import_to_write(error: ModuleNotFoundError) -> str | None:
    """Return what to write where a user's module imports a former package.

    None where it is another module that was not found.
    """
    if (error.name or "").partition(".")[0] not in ROOMS:
        return None
    frame = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(frame.filename, frame.lineno or 0).strip()
    place = f"{Path(frame.filename).name}, line {frame.lineno}: {line!r}"
    lines = [f"`{new}`" for new in _lines_of(line, str(error.name))]
    return f"{place}: plait is one package now, so write {' and '.join(lines)}"


def _lines_of(line: str, module: str) -> list[str]:
    """Return the imports to write in the place of a line that imports `module`."""
    import plait

    try:
        (statement,) = ast.parse(line).body
    except (SyntaxError, ValueError):  # it goes on in the next line
        return [f"from plait.{module} import ..."]
    if not isinstance(statement, ast.ImportFrom):
        return [f"import plait.{module}"]
    public: list[str] = []
    others: list[str] = []
    for alias in statement.names:
        # With its other name, if it has one: `Query as Asked`.
        names = public if alias.name in plait.__all__ else others
        names.append(ast.unparse(alias))
    lines = []
    if public:
        lines.append(f"from plait import {', '.join(public)}")
    if others:
        lines.append(f"from plait.{statement.module} import {', '.join(others)}")
    return lines
