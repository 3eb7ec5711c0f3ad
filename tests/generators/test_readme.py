"""The native model that the README of the generators adds works as it says."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from paths import CHECKOUT

from generators.base import Result, imported
from generators.document import Request, Text, Turn
from generators.natives import NATIVE, native

README = CHECKOUT / "generators" / "README.md"


def test_the_native_model_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "echo.py").write_text(example)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(NATIVE, "echo", "echo:echo")
    importlib.invalidate_caches()
    system = native("echo", "tiny", {"draft": {"repeats": 2}})
    assert system.draft is not None
    assert system.render is not None
    assert system.draft.digest != native("echo", "tiny", {}).stages[0].digest
    draft, render = (
        imported(spec.target)(**spec.settings, **spec.options) for spec in system.stages
    )
    request = Request((Turn("user", (Text("a red house"),)),))
    (outcome,) = draft([request])
    assert isinstance(outcome, Result)
    text, picture = outcome.value.segments
    assert text == Text("a red house a red house")
    (drawn,) = render([picture])
    assert (drawn.value.pixels == len("a red house")).all()


def test_the_readme_is_a_page_and_names_what_exists() -> None:
    text = README.read_text()
    for name in re.findall(r"`([a-z0-9_]+(?:\.py|/))`", text):
        assert (README.parent / name).exists(), name
    assert set(NATIVE) == set(re.findall(r"`([a-z0-9]+)/`", text)) & set(NATIVE)
    assert max(map(len, text.splitlines())) <= 120
