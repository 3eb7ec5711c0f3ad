"""The native model that the README of the generators adds works as it says."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from paths import CHECKOUT

from plait.generators.base import Result, import_target
from plait.generators.catalogue import Entry, Named, by_name
from plait.generators.document import Request, Text, Turn
from plait.generators.natives import native

README = CHECKOUT / "generators" / "README.md"


def test_the_native_model_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "echo.py").write_text(example)
    monkeypatch.syspath_prepend(tmp_path)
    entry = Entry.of(Named.NATIVE, "echo", help="says it again", make="echo:echo")
    monkeypatch.setitem(by_name(Named.NATIVE), "echo", entry)
    importlib.invalidate_caches()
    system = native("echo", "tiny", {"draft": {"repeats": 2}})
    assert system.stages[0].digest != native("echo", "tiny", {}).stages[0].digest
    draft, render = (
        import_target(spec.target)(**spec.settings, **spec.options)
        for spec in system.stages
    )
    (outcome,) = draft([Request((Turn("user", (Text("a red house"),)),))])
    assert isinstance(outcome, Result)
    text, request = outcome.value.segments
    assert text == Text("a red house a red house")
    (drawn,) = render([request])
    assert (drawn.value.pixels == len("a red house")).all()


def test_the_readme_names_what_exists() -> None:
    for name in re.findall(r"`([a-z0-9_]+(?:\.py|/))`", README.read_text()):
        assert (README.parent / name).exists(), name
