"""The document that is made of Chat's text and Gen's pictures."""

import dataclasses

import pytest
from emu2_helpers import picture
from hypothesis import given
from hypothesis import strategies as st

from generators.document import Document, Draft, ImageRequest, Sample, Text, Turn
from generators.emu2.composition import Emu2Composition, compose, fill_template
from generators.errors import UsageError
from generators.natives import native

FIRST, SECOND = picture(1), picture(2)


def sample(*content, wants_images: bool = True) -> Sample:
    parts = tuple(Text(c) if isinstance(c, str) else c for c in content)
    about = {"id": "1", "category": "SA", "field": "Art", "wants_images": wants_images}
    return Sample(turns=(Turn("user", parts),), reference=Document(), **about)


def test_openings_recipe():
    query = sample("A bird", FIRST, "sings.", SECOND)
    draft = compose(Emu2Composition(), Draft((Text(" It flies. "),)), query)
    text, request = draft.segments
    assert text == Text(" It flies. ")
    assert request == ImageRequest(
        prompt="The prompt for this generation is: It flies.. "
        "The context of this task is: A bird sings..",
        context=(FIRST,),
    )


def test_reasoning_stays_text():
    query = sample("1 + 1", FIRST, wants_images=False)
    draft = Draft((Text("2"),))
    assert compose(Emu2Composition(), draft, query) == draft


def test_nothing_written_is_still_drawn():
    draft = compose(Emu2Composition(), Draft((Text(" "),)), sample("A bird"))
    (request,) = draft.segments
    assert "is: . The context" in request.prompt
    empty = compose(Emu2Composition(), Draft((Text(""),)), sample("?", wants_images=False))
    assert empty == Draft((Text(""),))


@pytest.mark.parametrize(("length", "kept"), [(1000, 1000), (1001, 900), (20_000, 900)])
def test_long_instructions_keep_their_ends(length, kept):
    question = "".join(chr(97 + i % 26) for i in range(length))
    settings = Emu2Composition(image_prompt="{text}|{instruction}")
    draft = compose(settings, Draft((Text("x"),)), sample(question))
    instruction = draft.requests[0].prompt.removeprefix("x|")
    assert len(instruction) == kept
    assert (question[:500], question[-400:]) == (instruction[:500], instruction[-400:])


def test_no_tail_means_no_tail():
    settings = Emu2Composition(
        image_prompt="{text}|{instruction}",
        instruction_limit=3,
        instruction_head=2,
        instruction_tail=0,
    )
    draft = compose(settings, Draft((Text("x"),)), sample("abcdef"))
    assert draft.requests[0].prompt == "x|ab"


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_first_pictures_are_the_context(count):
    query = sample(FIRST, "a", SECOND, FIRST)
    draft = compose(Emu2Composition(context_images=count), Draft((Text("x"),)), query)
    assert draft.requests[0].context == (FIRST, SECOND, FIRST)[:count]


@given(st.text(), st.text())
def test_braces_in_values_are_left_alone(text, instruction):
    template = "<{text}> [{instruction}] {other}"
    found = fill_template(template, {"text": text, "instruction": instruction})
    assert found == f"<{text}> [{instruction}] {{other}}"


def test_settings_of_the_composition():
    system = native("emu2", "tiny", {"rounds": 3, "image_prompt": "Draw {text}"})
    assert system.rounds == 3
    request = system.compose(Draft((Text("a bird"),)), sample("q")).requests[0]
    assert request.prompt == "Draw a bird"
    inner = native("emu2", "tiny", {"compose": {"rounds": 2}})
    assert inner.rounds == 2
    assert native("emu2", "tiny", {}).rounds == 1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"image_prompt": "no place for it"}, r"must contain \{text\}"),
        ({"rounds": 0}, "rounds in models.emu2.compose"),
        ({"compose": {"round": 2}}, "did you mean 'rounds'"),
        ({"roundz": 2}, "did you mean 'rounds'"),
        ({"model": "x"}, r"two checkpoints; set draft\.model"),
        ({"revision": "x"}, r"condition\.revision and render\.revision"),
    ],
)
def test_wrong_settings_are_refused(overrides, message):
    with pytest.raises(UsageError, match=message):
        native("emu2", "tiny", overrides)


def test_composition_changes_no_stage():
    usual = native("emu2", "tiny", {})
    other = native("emu2", "tiny", {"rounds": 2, "image_prompt": "{text}"})
    assert [s.digest for s in usual.stages] == [s.digest for s in other.stages]
    assert dataclasses.replace(other, rounds=1).name == "emu2"
