"""What counts as an edit of a user's own class."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from plait.cluster.own_source import own_source

FILES = {
    "owned.py": """
import json
import numpy
from plait.generators.base import Result
from pack import late as later
import aside.deep

class Own:
    def __call__(self, inputs):
        from lazy import WORD
        return [f"{WORD} {x!r:>{later.WIDTH}}" for x in inputs]
""",
    "lazy.py": "WORD = 'a'\n",
    "unused.py": "OTHER = 1\n",
    "pack/__init__.py": "from . import inner\n",
    "pack/inner.py": "def far():\n    from ..beyond import more\nFACTOR = 1\n",
    "pack/late.py": "import owned\nWIDTH = 3\n",
    "aside/deep.py": "LIMIT = 4\n",
}
MODULES = {"aside.deep", "lazy", "owned", "pack", "pack.inner", "pack.late"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    # They come from another folder in each test.
    for name in (*MODULES, "aside"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def changed(before: Mapping[str, str]) -> set[str]:
    after = own_source("owned:Own")
    return {name for name, _ in before.items() ^ after.items()}


def test_modules_of_the_users_own_folders_are_seen(folder: Path) -> None:
    """Also those that are imported when they are needed; none of them is run for it."""
    (folder / "lazy.py").write_text("raise SystemExit\n")
    assert set(own_source("owned:Own")) == MODULES


@pytest.mark.parametrize(
    ("file", "old", "new", "seen"),
    [
        ("lazy.py", "'a'", "'b'", {"lazy"}),
        ("lazy.py", "WORD = 'a'", "WORD = 'a'\nWORD += 'a'", {"lazy"}),
        ("pack/inner.py", "1", "1.0", {"pack.inner"}),
        ("pack/late.py", "3", "True", {"pack.late"}),
        ("aside/deep.py", "4", "5", {"aside.deep"}),
        ("owned.py", "import aside.deep", "", {"owned", "aside.deep"}),
        ("owned.py", "class Own", "@staticmethod\nclass Own", {"owned"}),
        ("owned.py", "!r", "!s", {"owned"}),
        ("unused.py", "1", "2", set()),
        ("lazy.py", "'a'", '("a")  # as it was', set()),
        ("lazy.py", "WORD", '"""Words."""\n\n\nWORD', set()),
        ("aside/deep.py", "4\n", '4\n"""What it is."""\n', set()),
        ("owned.py", "Own:", 'Own:\n    """Words,\n    and more."""\n', set()),
        ("owned.py", "inputs):", 'inputs):\n        "Words."\n', set()),
        ("owned.py", "later.WIDTH", "( later . WIDTH )", set()),
    ],
)
def test_edits_count_that_may_change_a_result(
    folder: Path, file: str, old: str, new: str, seen: set[str]
) -> None:
    before, path = own_source("owned:Own"), folder / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert changed(before) == seen


def test_a_tree_may_be_deeper_than_the_stack(folder: Path) -> None:
    before = own_source("owned:Own")
    (folder / "lazy.py").write_text("WORD = 'a'" + ".strip()" * 600)
    assert changed(before) == {"lazy"}


@pytest.mark.parametrize(
    "target",
    ["json:JSONDecoder", "owned:Lost", "lost:Own", "plait.generators.custom:AsDrawn"],
)
def test_where_there_is_no_source_nothing_is_said(folder: Path, target: str) -> None:
    assert own_source(target) == {}


def test_of_a_class_of_a_script_the_class_alone_counts(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", sys.modules[__name__])
    assert set(own_source("__main__:OfScript")) == {"__main__:OfScript"}


class OfScript:
    """A class that its script names `__main__:OfScript`."""
