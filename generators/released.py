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
    texts_by_digest = {}
    for text in _texts(module):
        # A literal of Python may hold halves of surrogate pairs, which UTF-8 has not.
        data = text.encode("utf-8", "surrogatepass")
        texts_by_digest[hashlib.sha256(data).hexdigest()] = text
    texts = {}
    missing = []
    for name, digest in digests.items():
        if digest in texts_by_digest:
            texts[name] = texts_by_digest[digest]
        else:
            missing.append(f"{name!r} (sha256 {digest[:12]}...)")
    if missing:
        raise UsageError(f"{file} does not hold the published prompts {', '.join(missing)}")
    return texts


def _texts(module: ast.Module) -> Iterator[str]:
    """Yield the texts that a module writes, those of names at its top level inserted."""
    named: dict[str, str] = {}
    for statement in module.body:
        if isinstance(statement, ast.Assign) and (text := _text(statement.value, named)):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    named[target.id] = text
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
