"""The released rubrics, read as data from the user's own copy of prompts.py.

Nothing of the file is executed, and nothing but the exact released text is taken.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from generators.errors import UsageError
from scorers.judging.rubric import PROMPTS
from scorers.judging.rubrics import TOP, Rubric

DIGESTS: Mapping[str, str] = MappingProxyType(
    {
        "SA": "e49cdc6b2562f7c4e3bd991604b58da6ffade636e41475f699dcccf70a54c32e",
        "PBL": "c7d412eea004ba231ec61b9a0ccea9838b1a0d546ef5eb6e6a7fe8133317ead7",
        "MSR": "2af55d36a90e680764061b912ca3fa9f58103b0037b60ee827079a7289d22ddb",
    }
)
"""SHA-256 of what `get_prompt` of Lillianwei-h/MMIE@eb0fd6e returns, by category."""

_FORM = f"### Score\n<an integer from 0 to {TOP}>"


def read_published(file: Path) -> dict[str, Rubric]:
    """The released rubrics by category, from the user's copy of prompts.py.

    UsageError where the file cannot be read, is not Python, holds no template for a
    category, or holds another text than the released one.
    """
    templates = _templates(_parsed(file))
    return {category: _checked(category, templates, file) for category in DIGESTS}


def _parsed(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_text("utf-8"))
    except OSError as error:
        raise UsageError(
            f"rubric {str(file)!r}: {error.strerror}; it must be {PROMPTS} of "
            "github.com/Lillianwei-h/MMIE, or the folder it lies in"
        ) from None
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"rubric {str(file)!r} is not Python: {error}") from None


def _checked(category: str, templates: Mapping[str, str], file: Path) -> Rubric:
    template = templates.get(category)
    if template is None:
        raise UsageError(
            f"rubric {str(file)!r}: get_prompt returns no text for {category!r} ids"
        )
    digest = hashlib.sha256(template.encode()).hexdigest()
    if digest != DIGESTS[category]:
        raise UsageError(
            f"rubric {str(file)!r}: the text for {category} is not the released one; its "
            f"sha256 is {digest}, expected {DIGESTS[category]} (commit eb0fd6e)"
        )
    return Rubric(f"official:{category}", template, _FORM)


def _templates(module: ast.Module) -> dict[str, str]:
    """What `get_prompt` returns, by the letters it looks for in an id."""
    named: dict[str, str] = {}
    for node in module.body:
        if isinstance(node, ast.Assign) and (text := _text(node.value, named)) is not None:
            named |= {t.id: text for t in node.targets if isinstance(t, ast.Name)}
    functions = [n for n in module.body if isinstance(n, ast.FunctionDef)]
    branches = (b for f in functions if f.name == "get_prompt" for b in _branches(f))
    templates: dict[str, str] = {}
    for category, value in branches:
        if (text := _text(value, named)) is not None:
            templates.setdefault(category, text)
    return templates


def _branches(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr | None]]:
    """(letters, returned expression) of each `if "LETTERS" in ...: return ...`."""
    for node in ast.walk(function):
        if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare):
            continue
        letters, ended = node.test.left, node.body[-1]
        if isinstance(letters, ast.Constant) and isinstance(ended, ast.Return):
            yield str(letters.value), ended.value


def _text(node: ast.expr | None, named: Mapping[str, str]) -> str | None:
    """The string that constants, names and `+` come to; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        return named.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left, named), _text(node.right, named)
        return None if left is None or right is None else left + right
    return None
