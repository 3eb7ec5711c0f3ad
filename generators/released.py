"""Texts of released programs, read from the user's copy of their files.

Nothing of such a file is executed, and only the exact released texts are accepted.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping

from plait.generators.buckets import AnyPath
from plait.generators.errors import MissingInput, UsageError

OFFICIAL = "official:"
"""Stands before the path of a released program's prompts."""


def file_in(path: AnyPath, inside: str) -> AnyPath:
    """Return `path`, or where it is a folder the file `inside` it."""
    path = path.expanduser()
    return path / inside if path.is_dir() else path


def read_published(file: AnyPath, digests: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of a Python file that have these SHA-256 `digests`, by name.

    A text is a string literal, or several and names of such joined by `+`. Raises
    UsageError where the file cannot be read, is not Python, or lacks a text.
    """
    try:
        module = ast.parse(file.read_text("utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        reason = getattr(error, "strerror", None) or f"it is not Python: {error}"
        kind = MissingInput if isinstance(error, OSError) else UsageError
        raise kind(
            f"official prompts {str(file)!r}: {reason}; give the file of the released "
            "program, or the checkout that holds it"
        ) from None
    found = {text: text.encode("utf-8", "surrogatepass") for text in _texts(module)}
    texts = {hashlib.sha256(data).hexdigest(): text for text, data in found.items()}
    if missing := [name for name, digest in digests.items() if digest not in texts]:
        named = ", ".join(f"{name!r} (sha256 {digests[name][:12]}...)" for name in missing)
        raise UsageError(f"{file} does not hold the published prompts {named}")
    return {name: texts[digest] for name, digest in digests.items()}


def _texts(module: ast.Module) -> Iterator[str]:
    named: dict[str, str] = {}
    for statement in module.body:
        if isinstance(statement, ast.Assign) and (text := _text(statement.value, named)):
            names = (t.id for t in statement.targets if isinstance(t, ast.Name))
            named |= dict.fromkeys(names, text)
    for node in ast.walk(module):
        if isinstance(node, ast.expr) and (text := _text(node, named)):
            yield text


def _text(node: ast.expr, named: Mapping[str, str]) -> str | None:
    """The value of a string expression of constants, names and `+`; None for any other."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        return named.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left = _text(node.left, named)
        right = _text(node.right, named)
        return None if left is None or right is None else left + right
    return None
