"""How much of a prompt text encoders read, counted by hand and against the pipelines."""

from __future__ import annotations

import inspect

import pytest
import torch
from diffusion_helpers import REQUESTS, pipeline_of, shared, stage

from plait.generators.diffusion.builds import small_tokenizer
from plait.generators.diffusion.designs import DESIGNS
from plait.generators.diffusion.prompts import PromptReader, readers_of
from plait.generators.diffusion.settings import DiffusionSettings

pytestmark = pytest.mark.models

CLIP_ALONE = {"text_encoder": 77}
CLIP_TWICE = {**CLIP_ALONE, "text_encoder_2": 77}
SD3 = {**CLIP_TWICE, "text_encoder_3": 256}
LANGUAGE = {"text_encoder": 512}
LIMITS = {
    "sd15": CLIP_ALONE,
    "sd21": CLIP_ALONE,
    "sdxl": CLIP_TWICE,
    "emu2": {},
    "sdxl-turbo": CLIP_TWICE,
    "sd3": SD3,
    "sd3.5-medium": SD3,
    "sd3.5-large": SD3,
    "flux": {**CLIP_ALONE, "text_encoder_2": 512},
    "flux2-klein": LANGUAGE,
    "flux2-klein-9b": LANGUAGE,
    "flux2-dev": {},
    "z-image": LANGUAGE,
    "z-image-base": LANGUAGE,
    "qwen-image": LANGUAGE,
    "qwen-image-2512": LANGUAGE,
    "qwen-image-edit": LANGUAGE,
    "qwen-image-edit-2511": LANGUAGE,
    "instruct-pix2pix": CLIP_ALONE,
    "pixart-sigma": {"text_encoder": 300},
    "sana": {"text_encoder": 300},
    "glm-image": {"text_encoder": 2048},
    "cosmos3": {},
}


@pytest.mark.parametrize("architecture", DESIGNS)
def test_lengths_the_pipelines_cut_to(architecture):
    """A setting changes those of T5 and of language models, never of CLIP."""
    pipeline, limits = pipeline_of(architecture), LIMITS[architecture]
    for given_length in (None, 100):
        settings = DiffusionSettings(model="a/b", max_sequence_length=given_length)
        readers = {r.name: r.limit for r in readers_of(pipeline, settings)}
        changed = {n: 77 if limit == 77 else 100 for n, limit in limits.items()}
        assert readers == (limits if given_length is None else changed)


CLIP = PromptReader("text_encoder", small_tokenizer("clip"), 77)
T5 = PromptReader("text_encoder_3", small_tokenizer("t5"), 10)


@pytest.mark.parametrize(
    ("reader", "prompt", "kept", "dropped", "cut"),
    [
        # CLIP: one token per byte that is no space; 77 less the start and end are 75.
        (CLIP, "a cat", 4, 0, ""),
        (CLIP, "x" * 75, 75, 0, ""),
        (CLIP, "x" * 75 + " y", 75, 1, "y"),
        (CLIP, "Ab " * 40, 75, 5, "b " + "Ab " * 2),
        (CLIP, "x" * 74 + "\u4f60\u597d", 75, 5, "\u4f60\u597d"),
        # T5: a gap and its letters each cost one: `_a _cat _dog` is 10, of which 9 fit.
        (T5, "a cat dog", 9, 1, "g"),
    ],
)
def test_readings_by_hand(reader, prompt, kept, dropped, cut):
    expected = {"kept": kept, "dropped": dropped, "cut": cut, "limit": reader.limit}
    assert reader.read(prompt) == expected


def test_encoders_are_given_exactly_what_is_noted():
    """The ids that reach SD3's three encoders, against the counts in the notes."""
    drawing = stage("sd3")
    components, seen = drawing.drawer.pipeline.components, {}
    for number in ("", "_2", "_3"):
        special = torch.tensor(components[f"tokenizer{number}"].all_special_ids)

        def count(_, given, name=f"text_encoder{number}", special=special):
            seen.setdefault(name, int((~torch.isin(given[0][:1], special)).sum()))

        components[f"text_encoder{number}"].register_forward_pre_hook(count)
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


@pytest.mark.parametrize("name", [d.preset for d in DESIGNS.values() if d.template])
def test_language_models_read_exactly_what_is_noted(name):
    """The last kept character changes what they make of a prompt, the next one does not."""
    drawing = shared(name)
    (reader,) = drawing.readers
    prompt = "x" * 700
    kept = reader.read(prompt)["kept"]
    assert 200 < kept < reader.limit
    texts = (prompt, prompt[:kept] + "y" * 300, prompt[: kept - 1] + "y" * 300)
    plain, behind, last = (
        embedded(drawing.drawer.pipeline, text, reader.limit) for text in texts
    )
    assert torch.equal(plain, behind)
    assert not torch.equal(plain, last)


def test_instruction_of_sana_can_be_left_out():
    pipeline, arguments = pipeline_of("sana"), {"complex_human_instruction": []}
    for given_arguments, kept in (({}, 298), (arguments, 299)):
        settings = DiffusionSettings(model="a/b", arguments=given_arguments)
        assert readers_of(pipeline, settings)[0].read("x" * 400)["kept"] == kept
