"""How much of a prompt text encoders read, counted by hand and against the pipelines."""

from __future__ import annotations

import inspect

import pytest
import torch
from diffusion_helpers import REQUESTS, shared, stage, tiny_pipeline
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from generators.diffusion.prompts import PromptReader, readers_of, readings
from generators.diffusion.tokenizers import small_tokenizer
from generators.document import ImageRequest

pytestmark = pytest.mark.models


@pytest.mark.parametrize(
    ("architecture", "limits"),
    [
        ("sd15", {"text_encoder": 77}),
        ("sdxl", {"text_encoder": 77, "text_encoder_2": 77}),
        ("sd3", {"text_encoder": 77, "text_encoder_2": 77, "text_encoder_3": 256}),
        ("flux", {"text_encoder": 77, "text_encoder_2": 512}),
        ("flux2-klein", {"text_encoder": 512}),
        ("z-image", {"text_encoder": 512}),
        ("qwen-image", {"text_encoder": 512}),
        ("pixart-sigma", {"text_encoder": 300}),
        ("sana", {"text_encoder": 300}),
    ],
)
def test_lengths_the_pipelines_cut_to(architecture, limits):
    readers = readers_of(tiny_pipeline(architecture), None)
    assert {r.name: r.limit for r in readers} == limits


def test_setting_changes_t5_and_leaves_clip():
    readers = readers_of(tiny_pipeline("flux"), 100)
    assert {r.name: r.limit for r in readers} == {"text_encoder": 77, "text_encoder_2": 100}


CLIP = PromptReader("text_encoder", small_tokenizer("clip"), 77)
T5 = PromptReader("text_encoder_3", small_tokenizer("t5"), 10)


@pytest.mark.parametrize(
    ("prompt", "kept", "cut"),
    [
        ("a cat", 4, ""),
        ("x" * 75, 75, ""),
        ("x" * 75 + " y", 75, "y"),
        ("Ab " * 40, 75, "b " + "Ab " * 2),
        ("x" * 74 + "\u4f60\u597d", 75, "\u4f60\u597d"),
    ],
)
def test_clip_by_hand(prompt, kept, cut):
    """One token per byte that is no space; 77 less the start and end tokens are 75."""
    read = CLIP.read(prompt)
    letters = len(prompt.replace(" ", "").encode())
    assert (read.kept, read.dropped, read.cut) == (kept, letters - kept, cut)


def test_t5_by_hand():
    """A gap and its letters each cost one: `_a _cat _dog` is 10, of which 9 fit."""
    read = T5.read("a cat dog")
    assert (read.kept, read.dropped, read.cut) == (9, 1, "g")


@given(st.text(st.characters(codec="ascii", categories=["L", "Zs"]), max_size=160))
def test_kept_and_cut_account_for_the_whole_prompt(prompt):
    """What is kept equals what the tokenizer keeps when it truncates by itself."""
    tokens = CLIP.tokenizer(prompt, truncation=True, max_length=77)["input_ids"]
    read = CLIP.read(prompt)
    assert read.kept == len(tokens) - 2
    assert prompt.endswith(read.cut)
    assert read.dropped == len(read.cut.replace(" ", ""))


def test_encoders_are_given_exactly_what_is_noted():
    """The ids that reach SD3's three encoders, against the counts in the notes."""
    drawing = stage("sd3")
    seen: dict[str, int] = {}
    for name in ("text_encoder", "text_encoder_2", "text_encoder_3"):
        encoder = drawing.drawer.pipeline.components[name]

        def count(_, given, name=name):
            ids, tokenizer = given[0][:1], drawing.drawer.pipeline.components["tokenizer"]
            if name == "text_encoder_3":
                tokenizer = drawing.drawer.pipeline.tokenizer_3
            special = torch.tensor(sorted(set(tokenizer.all_special_ids)))
            seen.setdefault(name, int((~torch.isin(ids, special)).sum()))

        encoder.register_forward_pre_hook(count)
    noted = drawing([REQUESTS[1]])[0].notes["text_encoders"]
    assert seen == {name: about["kept"] for name, about in noted.items()}
    assert noted["text_encoder_3"]["dropped"] > 0


def embedded(pipeline, prompt, limit):
    """What the pipeline's language model makes of a prompt, as its call asks for it."""
    defaults = inspect.signature(pipeline.__call__).parameters
    given = {"prompt": [prompt], "max_sequence_length": limit}
    for name in ("do_classifier_free_guidance", "complex_human_instruction"):
        if name in inspect.signature(pipeline.encode_prompt).parameters:
            given[name] = defaults[name].default if name in defaults else False
    with torch.no_grad():
        states = pipeline.encode_prompt(**given)[0]
    return states[0] if isinstance(states, list) else states


@pytest.mark.parametrize("name", ["flux2-klein", "z-image-turbo", "qwen-image", "sana"])
def test_language_models_read_exactly_what_is_noted(name):
    """The last kept character changes what they make of a prompt, the next one does not."""
    drawing = shared(name)
    (reader,) = drawing.readers
    prompt = "x" * 700
    kept = reader.read(prompt).kept
    assert 200 < kept < reader.limit
    texts = (prompt, prompt[:kept] + "y" * 300, prompt[: kept - 1] + "y" * 300)
    plain, behind, last = (
        embedded(drawing.drawer.pipeline, text, reader.limit) for text in texts
    )
    assert torch.equal(plain, behind)
    assert not torch.equal(plain, last)


def test_instruction_of_sana_can_be_left_out():
    drawing = stage("sana", arguments={"complex_human_instruction": []})
    assert drawing.readers[0].read("x" * 400).kept == 299
    assert shared("sana").readers[0].read("x" * 400).kept == 298


def test_cut_text_does_not_change_the_picture():
    """Of SD-1.5, whose only encoder is CLIP. The cut falls between two words here: inside
    one, the last kept letter would become the end of its word.
    """
    long, kept = "a " * 80 + "cat", "a " * 75
    drawn = shared("openjourney")(
        [ImageRequest(prompt=text, seed=5) for text in (long, kept)]
    )
    notes = [d.notes["text_encoders"]["text_encoder"] for d in drawn]
    assert notes[0]["cut"] == "a " * 5 + "cat"
    assert notes[1]["dropped"] == 0
    assert (drawn[0].value.pixels == drawn[1].value.pixels).all()


def test_any_tokenizer_of_transformers():
    words = {"[UNK]": 0, "one": 1, "two": 2, "three": 3}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    read = readings([PromptReader("text_encoder", fast, 2)], "one  two three")
    assert read == {"text_encoder": {"kept": 2, "dropped": 1, "cut": "three", "limit": 2}}
