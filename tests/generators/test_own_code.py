"""A user's own classes, instances and functions: their names, keys and mistakes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from plait.generators.base import Failure, Kind, Result, Skip, StageSpec
from plait.generators.custom import custom_spec
from plait.generators.document import Document, Draft, Image, ImageRequest, Score, Text
from plait.generators.errors import MissingInput, UsageError
from plait.generators.images import decode
from plait.generators.own_code import FunctionStage, giving, is_given
from plait.generators.returned import outcome_of

RED = Pillow.new("RGB", (3, 2), "red")
HERE = __name__


class Base:
    kind = "draft"

    def __call__(self, requests: list[Any]) -> list[Any]:
        return [["text"] for _ in requests]


class Echo(Base):
    def __init__(self, times: int = 1, **_: Any) -> None:
        self.times = times


class Set(Base):
    def __init__(self, model: object) -> None:
        self.settings = {"model": "v2", "sizes": [1, 2]}


class Forgetful(Base):
    def __init__(self, times: int = 1) -> None: ...


class Open(Base):
    def __init__(self, **options: Any) -> None: ...


@dataclass
class Declared(Base):
    steps: int
    folder: Any = None


def answer(query: Any) -> list[Any]:
    return ["text"]


def spec_of(thing: Any, kind: Kind = Kind.DRAFT, **settings: Any) -> StageSpec:
    with giving(thing) as (name,):
        return custom_spec(name, "tiny", settings, [kind])


@pytest.mark.parametrize(
    ("thing", "name", "settings"),
    [
        (f"{HERE}:Echo", "Echo", {}),
        (Echo, "Echo", {}),
        (Echo(), "Echo", {}),
        (Echo(2), "Echo(times=2)", {"times": 2}),
        (Set(object()), "Set(", {"model": "v2", "sizes": [1, 2]}),
        (Declared(4), "Declared(steps=4)", {"steps": 4}),
        (answer, "answer", {}),
    ],
)
def test_what_is_given_is_named_by_class_and_settings(
    thing: Any, name: str, settings: Mapping[str, Any]
) -> None:
    spec = spec_of(thing)
    assert (spec.name[: len(name)], spec.settings) == (name, settings)
    assert spec.target == f"{HERE}:{name.partition('(')[0]}"


def test_an_instance_has_the_key_of_its_class_with_these_settings() -> None:
    """And a class that a module has, or an instance without settings, that of its name."""
    assert spec_of(Echo(2)).digest == spec_of(f"{HERE}:Echo", times=2).digest
    assert spec_of(Echo()).digest == spec_of(Echo).digest == spec_of(f"{HERE}:Echo").digest
    assert spec_of(Echo).digest == "62daa5b9d4ff954a6a8ae76c4ba3ca56"
    assert spec_of(Echo(2)).digest != spec_of(Echo(3)).digest


def test_only_what_no_module_has_is_sent_by_value() -> None:
    class Inner(Base):
        pass

    assert spec_of(Echo).given is spec_of(answer).given is None
    assert spec_of(Inner).given is Inner
    echo = Echo(2)
    assert spec_of(echo).given is echo


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        (Forgetful(), "self.times"),
        (Open(), "self.options"),
        (Declared(4, folder=object()), r"test_own_code.py:\d+.*self.folder is .* object"),
        (SimpleNamespace(), "SimpleNamespace"),
        (lambda query: ["text"], "lambda"),
        (7, "int"),
    ],
)
def test_what_has_no_key_is_refused(thing: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said), giving(thing):
        pass


def test_two_of_one_name_are_refused() -> None:
    def make() -> type:
        class Twin(Base):
            pass

        return Twin

    with pytest.raises(UsageError, match="Twin"), giving(make(), make()):
        pass


@pytest.mark.parametrize("name", ["__main__:Echo", f"{HERE}:Echo(times=2)"])
def test_elsewhere_its_name_says_that_it_was_given_from_python(name: str) -> None:
    assert is_given(name)
    with pytest.raises(MissingInput, match="from Python"):
        custom_spec(name, "tiny", {}, [Kind.DRAFT])


def variants(style: str) -> Callable[[Any], Any]:
    def varied(query: Any) -> list[Any]:
        return [style]

    return varied


STYLE = "plain"


def styled(query: Any) -> list[Any]:
    return [STYLE, helper()]


def helper() -> str:
    return "helped"


def test_a_function_is_named_by_its_source_and_the_values_it_reads(monkeypatch) -> None:
    assert spec_of(answer).identity == spec_of(f"{HERE}:answer").identity != ""
    assert spec_of(variants("a")).digest != spec_of(variants("b")).digest
    before = spec_of(styled).identity
    monkeypatch.setattr(f"{HERE}.STYLE", "formal")
    formal = spec_of(styled).identity
    monkeypatch.setattr(f"{HERE}.helper", variants)
    assert len({before, formal, spec_of(styled).identity}) == 3


def test_an_api_key_that_a_function_reads_is_no_part_of_its_name(monkeypatch) -> None:
    monkeypatch.setattr(f"{HERE}.STYLE", "sk-abcdefgh12345678")
    before = spec_of(styled).identity
    monkeypatch.setattr(f"{HERE}.STYLE", "sk-zyxwvuts87654321")
    assert spec_of(styled).identity == before


class Mistakes:
    class NoCall:
        kind = "draft"

    class Generates(Base):
        def __call__(self, requests: Any) -> Any:
            yield from requests

    class Waits(Base):
        async def __call__(self, requests: Any) -> Any:
            return requests

    class TakesNone(Base):
        def __call__(self) -> Any:  # type: ignore[override]
            return []

    class Needs(Base):
        def __init__(self, folder: str) -> None: ...

    class KindOfFish(Base):
        kind = "fish"

    @staticmethod
    def generates(query: Any) -> Any:
        yield query

    @staticmethod
    def takes_two(query: Any, other: Any) -> Any:
        return [query, other]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NoCall", "__call__"),
        ("Generates", "generator"),
        ("Waits", "coroutine"),
        ("TakesNone", r"def __call__\(self\)"),
        ("Needs", "folder"),
        ("KindOfFish", "'fish'"),
        ("generates", "generator"),
        ("takes_two", "'other'"),
    ],
)
def test_what_cannot_be_called_is_refused_before_anything_runs(
    name: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        spec_of(getattr(Mistakes, name))
    assert "test_own_code.py:" in str(refused.value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def answer(query)\n    pass", r"SyntaxError.*broken_mine\.py, line 1"),
        ("\n1 / 0", r"ZeroDivisionError.*\(broken_mine\.py:2\)"),
        ("import nothing_such", "nothing_such"),
        ("answer = 7", "type int"),
        ("def other(query): ...", "Valid: other"),
    ],
)
def test_a_module_that_cannot_be_used_is_told_by_file_and_line(
    tmp_path: Path, monkeypatch, source: str, said: str
) -> None:
    (tmp_path / "broken_mine.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=said):
        spec_of("broken_mine:answer")


def test_settings_that_are_not_taken_are_refused() -> None:
    with pytest.raises(UsageError, match="times"):
        spec_of(Forgetful, tmes=2)
    for thing in (answer, Echo(2)):
        with pytest.raises(UsageError, match="times"):
            spec_of(thing, times=2)
        assert spec_of(thing, batch_size=3).placement.batch_size == 3


def test_a_class_is_given_weights_only_where_it_takes_them() -> None:
    assert (spec_of(Forgetful).options, spec_of(Echo).options) == ({}, {"weights": "tiny"})


@pytest.mark.parametrize(
    "returned",
    [
        ["a", RED],
        ("a", np.asarray(RED)),
        Result(["a", RED]),
        Draft(("a", RED)),  # type: ignore[arg-type]
        Document((Text("a"), RED)),  # type: ignore[arg-type]
        Result(Draft((Text("a"), RED))),  # type: ignore[arg-type]
    ],
)
def test_a_draft_is_a_list_of_texts_and_images(returned: Any) -> None:
    outcome = outcome_of(Kind.DRAFT, returned)
    assert isinstance(outcome, Result)
    text, image = outcome.value.segments
    assert text == Text("a")
    assert decode(image).getpixel((1, 1)) == (255, 0, 0)


def test_what_the_engine_knows_stays_as_it_is() -> None:
    draft = Result(Draft((Text("a"), Image("0"), ImageRequest("a cat"))), {"tokens": 1.0})
    for outcome in (draft, Skip("no"), Failure("no")):
        assert outcome_of(Kind.DRAFT, outcome) is outcome


@pytest.mark.parametrize(
    ("returned", "value"),
    [(7, 7.0), (np.float32(0.5), 0.5), (True, 1.0), (Score(3), 3.0), (Result(2), 2.0)],
)
def test_a_score_is_a_number(returned: Any, value: float) -> None:
    outcome = outcome_of(Kind.SCORE, returned)
    assert isinstance(outcome, Result)
    assert (type(outcome.value.value), outcome.value.value) == (float, value)


@pytest.mark.parametrize(
    ("kind", "returned"),
    [
        (Kind.DRAFT, "a text alone"),
        (Kind.DRAFT, RED),
        (Kind.DRAFT, None),
        (Kind.DRAFT, (x for x in "ab")),
        (Kind.DRAFT, [Text(7)]),  # type: ignore[arg-type]
        (Kind.DRAFT, [ImageRequest("a cat", seed=1)]),
        (Kind.RENDER, "a text"),
        (Kind.SCORE, "7"),
        (Kind.SCORE, Score(None)),  # type: ignore[arg-type]
    ],
)
def test_other_values_are_refused(kind: Kind, returned: Any) -> None:
    with pytest.raises(TypeError, match="returned"):
        outcome_of(kind, returned)


def test_what_a_function_raises_is_of_its_input_alone() -> None:
    counted = itertools.count()

    def second_fails(query: Any) -> Any:
        if next(counted) == 1:
            raise ValueError("the second")
        return "text"

    first, error, third = FunctionStage(second_fails)([1, 2, 3])  # type: ignore[arg-type]
    assert first == third == ["text"]
    assert isinstance(error, ValueError)
