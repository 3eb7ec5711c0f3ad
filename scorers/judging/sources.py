"""Whose wording judges are given: this project's, or a released program's, read as data.

parse_rubric("own")                  # this project's wording
parse_rubric("official:MMIE/")       # the user's copy of a released program's prompts
parse_mode("official")               # that program's layout, limits and reader, unchanged

Nothing of a released file is executed, and only the exact released texts are accepted.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from generators.errors import UsageError
from generators.files import write_whole
from generators.names import unknown
from scorers.judging.rubrics import TOP, Rubric

Mode = Literal["corrected", "official"]
"""`official`: layout, constants and quirks of a released program; `corrected`: ours."""
MODES: tuple[Mode, ...] = get_args(Mode)
DEFAULT_MODE: Mode = "corrected"

OWN = "own"
OFFICIAL = "official:"
"""Prefix of a rubric before the path of a released program's prompts."""
PROMPTS = "prompts.py"
"""MMIE's file of prompts, and the name of a run's own copy of it."""


@dataclass(frozen=True, slots=True)
class RubricSource:
    """Where a judge's wording comes from; written as `own` or `official:PATH`."""

    path: Path | None = None
    """The released prompts, or the folder that holds them; None for our wording."""

    def __str__(self) -> str:
        return OWN if self.path is None else f"{OFFICIAL}{self.path}"

    @property
    def absolute(self) -> RubricSource:
        """The same source, named so that it means the same in any working directory."""
        if self.path is None:
            return self
        return RubricSource(self.path.expanduser().resolve())

    def file(self, inside: str = PROMPTS) -> Path | None:
        """Return the file of prompts: `path`, or `inside` in it where it is a folder."""
        if self.path is None:
            return None
        path = self.path.expanduser()
        return path / inside if path.is_dir() else path

    def keep(self, folder: Path) -> None:
        """Copy the released prompts into `folder`, unless it has them already.

        Records are named by their requests, so a run cannot be read without the texts it
        was judged by. Every accepted file holds the same texts.
        """
        copy, file = folder / PROMPTS, self.file()
        if file is not None and not copy.exists():
            write_whole(copy, file.read_bytes())

    def or_copy_in(self, folder: Path) -> RubricSource:
        """This source, or the copy kept in `folder` where the user's file is gone."""
        copy, file = folder / PROMPTS, self.file()
        gone = file is not None and not file.is_file() and copy.is_file()
        return replace(self, path=copy) if gone else self


OWN_WORDING = RubricSource()
"""This project's own rubrics."""


def parse_rubric(text: str | None) -> RubricSource:
    """Return the source that `text` names; our wording for None.

    Raises UsageError for anything but `own` and `official:PATH`. The file is not read.
    """
    if text is None or text == OWN:
        return OWN_WORDING
    if not text.startswith(OFFICIAL):
        raise UsageError(
            f"rubric {text!r} is not valid; a rubric is 'own' or 'official:PATH'"
        )
    path = text.removeprefix(OFFICIAL)
    if not path.strip():
        raise UsageError(
            f"rubric {text!r} is not valid: 'official:' must be followed by the path "
            "of the released prompts"
        )
    return RubricSource(Path(path))


def parse_mode(text: str | None) -> Mode:
    """Return the mode that `text` names, `corrected` for None; UsageError for others."""
    named: dict[str | None, Mode] = {None: DEFAULT_MODE, **{mode: mode for mode in MODES}}
    if text not in named:
        raise unknown("mode", str(text), MODES)
    return named[text]


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
    """Return the released rubrics by category, from the user's copy of prompts.py.

    UsageError where the file cannot be read, is not Python, holds no template for a
    category, or holds another text than the released one.
    """
    texts = checked(_templates(_parsed(file)), DIGESTS, file)
    return {c: Rubric(f"official:{c}", text, _FORM) for c, text in texts.items()}


def _parsed(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_text("utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        reason = getattr(error, "strerror", None) or f"it is not Python: {error}"
        raise UsageError(
            f"official prompts {str(file)!r}: {reason}; give the file of the released "
            "program, or the checkout that holds it"
        ) from None


def _templates(module: ast.Module) -> dict[str, str]:
    """Return what `get_prompt` returns, by the letters it looks for in an id."""
    strings: dict[str, str] = {}
    for node in module.body:
        text = _text(node.value, strings) if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.Assign) and text is not None:
            strings |= {t.id: text for t in node.targets if isinstance(t, ast.Name)}
    functions = [n for n in module.body if isinstance(n, ast.FunctionDef)]
    branches = (b for f in functions if f.name == "get_prompt" for b in _branches(f))
    templates: dict[str, str] = {}
    for category, value in branches:
        if (text := _text(value, strings)) is not None:
            templates.setdefault(category, text)
    return templates


def _branches(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield (letters, returned expression) of each `if "LETTERS" in ...: return ...`."""
    for node in ast.walk(function):
        if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare):
            continue
        letters, last = node.test.left, node.body[-1]
        if isinstance(letters, ast.Constant) and isinstance(last, ast.Return):
            yield str(letters.value), last.value


def _text(node: ast.expr | None, strings: Mapping[str, str]) -> str | None:
    """The value of a string expression of constants, names and `+`; None for any other."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        return strings.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left, strings), _text(node.right, strings)
        return None if left is None or right is None else left + right
    return None


def constants(path: Path, inside: str) -> dict[str, Any]:
    """Module-level literals of a Python file by name, as data.

    `path` is the file, or a checkout that holds it at `inside`. `name[key] = literal`
    is read as an entry of the dictionary `name`; anything that is not a literal is
    skipped. Raises UsageError where the file is missing or is not Python.
    """
    tree = _parsed(path / inside if path.is_dir() else path)
    literals: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            _assign(literals, node.targets[0], node.value)
    return literals


def _assign(literals: dict[str, Any], target: ast.expr, value: ast.expr) -> None:
    try:
        literal = ast.literal_eval(value)
        if isinstance(target, ast.Name):
            literals[target.id] = literal
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            entries = literals.setdefault(target.value.id, {})
            entries[ast.literal_eval(target.slice)] = literal
    except (ValueError, TypeError):
        return  # Computed when the module runs: not a literal.


def checked(
    texts: Mapping[str, Any], digests: Mapping[str, str], where: Path
) -> dict[str, str]:
    """The texts named in `digests`; UsageError for one that is not the published one."""
    for name, expected in digests.items():
        text = texts.get(name)
        if not isinstance(text, str):
            raise UsageError(f"{where} has no prompt {name!r}")
        digest = hashlib.sha256(text.encode()).hexdigest()
        if digest != expected:
            raise UsageError(
                f"prompt {name!r} of {where} is not the published one: its sha256 begins "
                f"with {digest[:12]}, not with {expected[:12]}"
            )
    return {name: texts[name] for name in digests}
