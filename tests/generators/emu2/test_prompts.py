"""Emu2's prompts, the composition of Chat's text and Gen's images, keys and memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from natives import asked, turn
from picture_helpers import smooth

from plait.generators.content import display_text
from plait.generators.document import Document, Draft, ImageRequest, Query, Request, Text
from plait.generators.emu2.draft import chat_parts
from plait.generators.emu2.models import toy_tokens
from plait.generators.emu2.network import ADDED, ADDED_CHAT, Emu2Tokens
from plait.generators.emu2.settings import Emu2Composition, Emu2DraftSettings
from plait.generators.errors import CheckpointError, UsageError
from plait.generators.natives import native
from plait.generators.rounds import compose, fill_template

pytestmark = pytest.mark.models

FIRST, SECOND = smooth(1), smooth(2)
SYSTEM = (
    "You are a helpful assistant, dedicated to delivering comprehensive and "
    "meticulous responses."
)
DIALOGUE = Request((turn("user", "Hi"), turn("assistant", "Yes."), turn("user", "Why?")))


def prompt(request: Request, **changes) -> str:
    return display_text(chat_parts(request, Emu2DraftSettings(**changes)))


def test_templates():
    """Written down from emu/chat.py and the Hub's modeling_emu.py."""
    one = asked("Hi", FIRST, "there")
    assert prompt(one, system_message="Be brief.").startswith("Be brief. [USER]: Hi")
    assert prompt(one, system_message="").startswith(" [USER]: Hi")
    instructed = Request((turn("system", "Draw."), *one.turns))
    assert prompt(instructed).startswith(f"{SYSTEM} Draw. [USER]: Hi")
    assert prompt(instructed, template="hf").startswith("Draw.[USER]: Hi")


def test_documents_so_far():
    so_far = turn("assistant", "One.", SECOND, "Two.")
    request = Request((turn("user", "Tell."), so_far))
    usual = prompt(request, system_message="")
    assert usual == " [USER]: Tell. One. Two. [ASSISTANT]:"
    images = prompt(request, system_message="", feed_images=True)
    assert images == " [USER]: Tell. One. <image> Two. [ASSISTANT]:"
    own = prompt(request, system_message="", continuation="answer")
    assert own == " [USER]: Tell. [ASSISTANT]: One. Two."
    assert prompt(DIALOGUE) == prompt(DIALOGUE, continuation="answer")


def query(*content, wants_images: bool = True) -> Query:
    about = {"id": "1", "category": "SA", "field": "Art", "wants_images": wants_images}
    return Query(turns=asked(*content).turns, reference=Document(), **about)


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
    usual = native("emu2", "tiny", {"compose": {"rounds": 2}})
    assert usual.rounds == 2
    assert [s.digest for s in usual.stages] == [s.digest for s in system.stages]


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"image_prompt": "no place for it"}, "{text}"),
        ({"rounds": 0}, "rounds in models.emu2.compose"),
        ({"model": "x"}, "draft.model"),
        ({"revision": "x"}, "condition.revision"),
        ({"quantization": "int5"}, "quantization"),
        ({"render": {"negative_prompt": "blurry"}}, "negative_prompt"),
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


# Ids: where text is cut, what is stripped, what is no special token --------------------

T = toy_tokens(ADDED_CHAT)
KEEPING = toy_tokens(ADDED_CHAT, strip=False)


def piece(text: str) -> list[int]:
    return T.pieces.encode(text)


def test_special_tokens_have_the_published_ids():
    """After LLaMA's 32,000 pieces: 32272 tokens in Gen, 32274 in Chat."""
    chat, gen = toy_tokens(ADDED_CHAT, 32_000), toy_tokens(ADDED, 32_000)
    assert (chat.rows, gen.rows) == (32_274, 32_272)
    told = {"[PAD]": 32000, "[IMG]": 32001, "[/IMG]": 32002, "<image>": 32003}
    told |= {"[EOC]": 32006, "<grounding>": 32008, "<REC>": 32014, "[USER]": 32272}
    told |= {"<patch_index_0000>": 32015, "<patch_index_0256>": 32271, "</s>": 2}
    assert {name: chat[name] for name in told} == told
    with pytest.raises(CheckpointError, match=r"'\[USER\]'"):
        gen["[USER]"]


def test_white_space_beside_special_tokens():
    """Dropped, or kept where the fast tokenizer kept it; always kept beside `<unk>`."""
    parts = ["a house . [USER]:  red \n", FIRST, "\n bird [ASSISTANT]:"]
    frame = [T["[IMG]"], *[T["<image>"]] * 3, T["[/IMG]"]]
    head, tail = [T["<s>"]], [T["[ASSISTANT]"], *piece(":")]
    stripped = [*piece("a house ."), T["[USER]"], *piece(":  red"), *frame, *piece("bird")]
    assert T.encode_prompt(parts, 3) == [*head, *stripped, *tail]
    kept = [*piece("a house . "), T["[USER]"], *piece(":  red \n"), *frame]
    assert KEEPING.encode_prompt(parts, 3) == [*head, *kept, *piece("\n bird "), *tail]
    unknown = [*head, *piece("  a "), T["<unk>"], *piece(" b  ")]
    assert T.encode_prompt(["  a <unk> b  "], 1) == unknown
    assert T.encode_prompt(["a bird \n"], 5, True) == [*head, *piece("a bird"), T["[IMG]"]]


def test_runs_of_text_have_a_space_of_their_own_and_adjoining_ones_are_one():
    assert T.encode_prompt(["house</s>ho", "use"], 1) == [
        *(T["<s>"], *piece("house"), T["</s>"], *piece("house"))
    ]
    assert piece("house") == [T.pieces.id_of("\u2581house")]
    assert T.encode_prompt(["a [US", "ER] b"], 1) == T.encode_prompt(["a [USER] b"], 1)


def test_text_does_not_mean_an_image():
    """An image mark spelt out in text would shift the vectors of the real images."""
    marks = ["[IMG]", "[/IMG]", "<image>", "[gIMG]", "[PAD]"]
    ids = T.encode_prompt([f"a {' '.join(marks)} b", FIRST], 2)
    assert [ids.count(T[m]) for m in marks] == [1, 1, 2, 0, 0]
    assert T.decode(ids) == f"a {' '.join(marks)} b"


def test_special_tokens_may_be_spelt_out_and_are_not_written_out():
    ids = T.encode_prompt(["<grounding><phrase>a bird</phrase><patch_index_0256>"], 1)
    named = ["<s>", "<grounding>", "<phrase>", "</phrase>", "<patch_index_0256>"]
    assert [i for i in ids if i not in piece("a bird")] == [T[n] for n in named]
    unspoken = (T[n] for n in ("[USER]", "</s>", "<image>", "[PAD]", "<unk>"))
    assert T.decode([*ids, *unspoken]) == "a bird"


@given(st.text(st.characters(codec="utf-8"), max_size=40), st.integers(0, 3))
def test_any_text_is_encoded_and_read_back(text, images):
    ids = T.encode_prompt([text, *[FIRST] * images], 4)
    assert ids[0] == T["<s>"]
    assert ids.count(T["<image>"]) == 4 * images
    assert max(ids) < T.rows
    plain = "[" not in text and "<" not in text and "\0" not in text
    if plain and "\u2581" not in text:
        assert T.decode(ids).strip() == text.strip()


def test_the_longest_name_wins():
    added = {"<a>": 500, "<a><b>": 501}
    names = {name: token.id for name, token in T.added.items()}
    ids = Emu2Tokens(T.pieces, names | added).encode_prompt(["x<a><b>y"], 1)
    assert 501 in ids
    assert 500 not in ids
