"""Every public object has an example in its docstring, which gives what it says."""

from __future__ import annotations

import doctest
import inspect
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import TESTS

import plait
from plait import api

RECORDED = TESTS / "data" / "quickstart.zip"
"""`plait pack`, without the page, of a run of mini models on `miniature:12`."""
OF_MODELS = {"LocalScorer", "LocalStage", "LocalSystem", "scorer", "stage", "system"}
"""Examples that load models."""
TESTED = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def documented() -> Iterator[tuple[str, object]]:
    """The public objects by name, and the public members of classes that have examples."""
    for name in api.__all__:
        value = getattr(plait, name)
        yield name, value
        for member, inner in vars(value).items() if inspect.isclass(value) else ():
            function = getattr(inner, "fget", None) or getattr(inner, "__func__", inner)
            if not member.startswith("_") and ">>>" in (function.__doc__ or ""):
                yield f"{name}.{member}", function


@pytest.mark.parametrize("name", api.__all__)
def test_every_public_object_has_an_example(name: str) -> None:
    assert ">>>" in (getattr(plait, name).__doc__ or "")


def example(name: str, value: object) -> object:
    of_models = name.partition(".")[0] in OF_MODELS
    marks = [pytest.mark.models] if of_models else []
    return pytest.param(name, value, marks=marks, id=name)


@pytest.mark.models
@pytest.mark.parametrize(("name", "value"), [example(*pair) for pair in documented()])
def test_examples_give_what_they_say(
    name: str, value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with zipfile.ZipFile(RECORDED) as file:
        file.extractall(tmp_path / "runs" / "quickstart")
    text = value.__doc__ or ""
    found = doctest.DocTestParser().get_doctest(text, {"plait": plait}, name, name, 0)
    said: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=TESTED)
    runner.run(found, out=said.append)
    assert not said, "".join(said)
