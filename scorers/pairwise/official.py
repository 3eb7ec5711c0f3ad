"""Prompts of a benchmark read from the user's own copy of its code, never executed."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from generators.names import UsageError


def constants(path: Path, inside: str) -> dict[str, Any]:
    """Module-level literals of a Python file by name, as data.

    `path` is the file, or a checkout in which it lies at `inside`. `name[key] = literal`
    is read as an entry of the dictionary `name`; anything that is no literal is passed
    over. Raises UsageError when there is no such file or it is no Python.
    """
    file = path / inside if path.is_dir() else path
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise UsageError(f"official prompts {file}: {error}") from error
    found: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            _assign(found, node.targets[0], node.value)
    return found


def _assign(found: dict[str, Any], target: ast.expr, value: ast.expr) -> None:
    try:
        literal = ast.literal_eval(value)
        if isinstance(target, ast.Name):
            found[target.id] = literal
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            entries = found.setdefault(target.value.id, {})
            entries[ast.literal_eval(target.slice)] = literal
    except (ValueError, TypeError):
        return  # Computed when the module runs, and none of our business.


def checked(
    texts: Mapping[str, Any], digests: Mapping[str, str], where: Path
) -> dict[str, str]:
    """The texts named in `digests`; UsageError for one that is not the published one."""
    for name, wanted in digests.items():
        text = texts.get(name)
        if not isinstance(text, str):
            raise UsageError(f"{where} has no prompt {name!r}")
        found = hashlib.sha256(text.encode()).hexdigest()
        if found != wanted:
            raise UsageError(
                f"prompt {name!r} of {where} is not the published one: its sha256 begins "
                f"with {found[:12]}, not with {wanted[:12]}"
            )
    return {name: texts[name] for name in digests}
