"""Names of modules from before plait was one package."""

from __future__ import annotations

import ast
import linecache
import traceback
from pathlib import Path

ROOMS = ("generators", "pipelines", "scorers", "cluster", "benchmarks")
"""Once packages of their own; now in `plait`."""


def current_name(target: str) -> str:
    """Return `module:Class` of a stage of plait, as an older run names it, as it is now."""
    return f"plait.{target}" if target.partition(".")[0] in ROOMS else target


def import_to_write(error: ModuleNotFoundError) -> str | None:
    """Return what to write where a user's module imports a former package.

    None where it is another module that was not found.
    """
    if (error.name or "").partition(".")[0] not in ROOMS:
        return None
    frame = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(frame.filename, frame.lineno or 0).strip()
    place = f"{Path(frame.filename).name}, line {frame.lineno}: {line!r}"
    lines = " and ".join(f"`{new}`" for new in _lines_of(line, str(error.name)))
    return f"{place}: plait is one package now, so write {lines}"


def _lines_of(line: str, module: str) -> list[str]:
    import plait

    try:
        (statement,) = ast.parse(line).body
    except (SyntaxError, ValueError):  # it goes on in the next line
        return [f"from plait.{module} import ..."]
    if not isinstance(statement, ast.ImportFrom):
        return [f"import plait.{module}"]
    names = [ast.unparse(alias) for alias in statement.names]
    own = [name for name in names if name.partition(" ")[0] in plait.__all__]
    others = [name for name in names if name not in own]
    public = [f"from plait import {', '.join(own)}"] if own else []
    deeper = f"from plait.{statement.module} import {', '.join(others)}"
    return [*public, *([deeper] if others else [])]
