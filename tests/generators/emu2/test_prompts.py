"""Emu2's templates, the composition of Chat's text and Gen's images, keys and memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from natives import asked
from picture_helpers import smooth

from generators.content import display_text
from generators.document import Document, Draft, ImageRequest, Request, Sample, Text, Turn
from generators.emu2.draft import chat_parts
from generators.emu2.settings import Emu2Composition, Emu2DraftSettings
from generators.errors import UsageError
from generators.natives import native
from generators.rounds import compose, fill_template

FIRST, SECOND = smooth(1), smooth(2)
SYSTEM = (
    "You are a helpful assistant, dedicated to delivering comprehensive and "
    "meticulous responses."
)
DIALOGUE = Request(
    (
        Turn("user", (Text("Hi"), FIRST)),
        Turn("assistant", (Text("Yes."),)),
        Turn("user", (Text("Why?"),)),
    )
)


def prompt(request: Request, **changes) -> str:
    return display_text(chat_parts(request, Emu2DraftSettings(**changes)))


def test_templates():
    """Written down from emu/chat.py and the Hub's modeling_emu.py."""
    one = asked("Hi", FIRST, "there")
    assert prompt(one) == f"{SYSTEM} [USER]: Hi<image>there [ASSISTANT]:"
    assert prompt(one, template="hf") == "[USER]: Hi<image>there[ASSISTANT]:"
    assert prompt(DIALOGUE) == (
        f"{SYSTEM} [USER]: Hi<image> [ASSISTANT]: Yes.</s>[USER]: Why? [ASSISTANT]:"
    )
    assert prompt(one, system_message="Be brief.").startswith("Be brief. [USER]: Hi")
    assert prompt(one, system_message="").startswith(" [USER]: Hi")
    instructed = Request((Turn("system", (Text("Draw."),)), *one.turns))
    assert prompt(instructed).startswith(f"{SYSTEM} Draw. [USER]: Hi")
    assert prompt(instructed, template="hf").startswith("Draw.[USER]: Hi")


def test_documents_so_far():
    so_far = Turn("assistant", (Text("One."), SECOND, Text("Two.")))
    request = Request((Turn("user", (Text("Tell."),)), so_far))
    usual = prompt(request, system_message="")
    assert usual == " [USER]: Tell. One. Two. [ASSISTANT]:"
    images = prompt(request, system_message="", feed_images=True)
    assert images == " [USER]: Tell. One. <image> Two. [ASSISTANT]:"
    own = prompt(request, system_message="", continuation="answer")
    assert own == " [USER]: Tell. [ASSISTANT]: One. Two."
    assert prompt(DIALOGUE) == prompt(DIALOGUE, continuation="answer")


def query(*content, wants_images: bool = True) -> Sample:
    about = {"id": "1", "category": "SA", "field": "Art", "wants_images": wants_images}
    return Sample(turns=asked(*content).turns, reference=Document(), **about)


def test_openings_recipe():
    asking = query("A bird", FIRST, "sings.", SECOND)
    draft = compose(Emu2Composition(), Draft((Text(" It flies. "),)), asking)
    text, request = draft.segments
    assert text == Text(" It flies. ")
    assert request == ImageRequest(
        prompt="The prompt for this generation is: It flies.. "
        "The context of this task is: A bird sings..",
        context=(FIRST,),
    )
    for count in (0, 1, 2, 5):
        settings = Emu2Composition(context_images=count)
        (request,) = compose(settings, Draft((Text(""),)), asking).requests
        assert request.context == (FIRST, SECOND)[:count]


def test_text_alone_and_images_alone():
    asking = query("1 + 1", FIRST, wants_images=False)
    for text in ("2", ""):
        draft = Draft((Text(text),))
        assert compose(Emu2Composition(), draft, asking) == draft
    draft = compose(Emu2Composition(), Draft((Text(" "),)), query("A bird"))
    (request,) = draft.segments
    assert "is: . The context" in request.prompt


@pytest.mark.parametrize(
    ("length", "limits", "kept"),
    [
        (1000, {}, (1000, 0)),
        (1001, {}, (500, 400)),
        (20_000, {}, (500, 400)),
        (6, {"limit": 3, "head": 2, "tail": 0}, (2, 0)),
    ],
)
def test_long_instructions_keep_their_ends(length, limits, kept):
    question = "".join(chr(97 + i % 26) for i in range(length))
    named = {f"instruction_{k}": v for k, v in limits.items()}
    settings = Emu2Composition(image_prompt="{text}|{instruction}", **named)
    (request,) = compose(settings, Draft((Text("x"),)), query(question)).requests
    head, tail = kept
    assert request.prompt == f"x|{question[:head]}{question[length - tail :]}"


@given(st.text(), st.text())
def test_braces_in_values_are_left_alone(text, instruction):
    template = "<{text}> [{instruction}] {other}"
    found = fill_template(template, {"text": text, "instruction": instruction})
    assert found == f"<{text}> [{instruction}] {{other}}"


def test_settings_of_the_composition_change_no_stage():
    system = native("emu2", "tiny", {"rounds": 3, "image_prompt": "Draw {text}"})
    assert system.rounds == 3
    request = system.compose(Draft((Text("a bird"),)), query("q")).requests[0]
    assert request.prompt == "Draw a bird"
    usual = native("emu2", "tiny", {})
    assert (native("emu2", "tiny", {"compose": {"rounds": 2}}).rounds, usual.rounds) == (
        2,
        1,
    )
    assert [s.digest for s in usual.stages] == [s.digest for s in system.stages]


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"image_prompt": "no place for it"}, "{text}"),
        ({"rounds": 0}, "rounds in models.emu2.compose"),
        ({"roundz": 2}, "'rounds'"),
        ({"model": "x"}, "draft.model"),
        ({"revision": "x"}, "condition.revision"),
        ({"draft": {"num_beam": 2}}, "'num_beams'"),
        ({"quantization": "int5"}, "quantization"),
        ({"render": {"negative_prompt": "blurry"}}, "negative_prompt"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
    ],
)
def test_wrong_settings_are_refused(overrides, field):
    with pytest.raises(UsageError) as raised:
        native("emu2", "tiny", overrides)
    assert field in str(raised.value)


def test_a_plan_names_the_memory_and_gpus_of_each_stage():
    chat, gen, unet = (
        stage.placement for stage in native("emu2", "dummy", {}, gpu_gib=80.0).stages
    )
    # 73.8 GB of weights and a twentieth; 4 x 5 and 8 contexts of 2048 at 1.6 MB each.
    assert chat.gpu_memory_gib == pytest.approx(72.2 + 20 * 3.05, abs=0.2)
    assert gen.gpu_memory_gib == pytest.approx(72.2 + 8 * 3.05, abs=0.2)
    assert 5 < unet.gpu_memory_gib < 40
    # One record has to fit; batches whose caches do not are halved.
    assert (chat.num_gpus, gen.num_gpus, unet.num_gpus) == (2, 1, 1)
    assert native("emu2", "dummy", {}, gpu_gib=40.0).draft.placement.num_gpus == 3
    four_bits = native("emu2", "dummy", {"quantization": "int4"}, gpu_gib=48.0)
    assert [s.placement.num_gpus for s in four_bits.stages] == [1, 1, 1]
    for kind, saved in (("int8", 32.1), ("int4", 46.15)):
        one = Emu2DraftSettings(quantization=kind, batch_size=1, num_beams=1)
        expected = (73.8 - saved) / 1.0737 * 1.05 + 3.05
        assert one.memory_estimate_gib("dummy") == pytest.approx(expected, abs=0.2)
