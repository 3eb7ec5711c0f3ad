"""The two stages on tiny weights: prompts, limits, notes; sizes of the published model."""

from __future__ import annotations

import functools
import io

import numpy as np
import pytest
import torch
from PIL import Image as Pillow

from generators.base import Result
from generators.diffusion.designs import DESIGNS
from generators.document import Image, ImageRequest, Request, Text, Turn
from generators.minigpt5.draft import MiniGPT5Draft
from generators.minigpt5.models import language_model, llama_config, picture_encoder
from generators.minigpt5.prompts import display_text, prompt_parts
from generators.minigpt5.render import MiniGPT5Render, empty_mapper
from generators.minigpt5.settings import (
    MiniGPT5DraftSettings,
    MiniGPT5RenderSettings,
)
from generators.minigpt5.sizes import FULL
from generators.minigpt5.vision import encoder_pixels, padded

pytestmark = pytest.mark.models

VIST = (
    "Give the following images in <Img>ImageContent</Img> format. You will be able to see "
    "the images once I provide it to you. Please understanding images and generate story."
)


def png(width: int = 30, height: int = 20, colour=(200, 30, 30)) -> Image:
    file = io.BytesIO()
    Pillow.new("RGB", (width, height), colour).save(file, "PNG")
    return Image.of(file.getvalue())


def user(*content: str | Image, seed: int | None = 1) -> Request:
    return Request((turn("user", *content),), seed)


def turn(role, *content: str | Image) -> Turn:
    return Turn(role, tuple(Text(c) if isinstance(c, str) else c for c in content))


@functools.cache
def stage(**settings) -> MiniGPT5Draft:
    return MiniGPT5Draft(weights="tiny", device="cpu", **settings)


@functools.cache
def render(**settings) -> MiniGPT5Render:
    small = {"device": "cpu", "steps": 2, "height": 64, "width": 64}
    return MiniGPT5Render(weights="tiny", **(small | settings))


def read(*content: str | Image, **settings) -> str:
    return display_text(prompt_parts(user(*content), MiniGPT5DraftSettings(**settings)))


# Prompts ------------------------------------------------------------------------------


def test_the_template_of_each_checkpoint():
    """Written out from VISTDataset, MMDialogDataset and CC3MDataset (dataloader.py)."""
    picture = "<Img><ImageHere></Img>"
    assert read("my story.", png(), "then") == (
        f"{VIST}###Human:my story.{picture}then Tell me the next scene with image. "
        "###Assistant:"
    )
    assert read("first", png(), "second", png()) == (
        f"{VIST}###Human:first{picture}second{picture}\n Tell me the next scene "
        "with image. ###Assistant:"
    )
    for other in ("mmdialog", "none"):
        assert read("hello", png(), finetuned=other).endswith(f"{picture} ###Assistant:")
    system = VIST.replace("understanding images and generate story", "@").replace(
        "@", "generate conversations with appropriate images"
    )
    assert read("hello", finetuned="mmdialog") == f"{system} ###Human: hello ###Assistant:"
    assert read("a cat", finetuned="none") == (
        "You will be able to generate image according to command.###Human: a cat "
        "###Assistant:"
    )


def test_every_text_of_the_template_is_a_setting():
    texts = {
        "system_prompt": "S",
        "human": "H",
        "request": "R",
        "assistant": "A",
        "before_image": "(",
        "after_image": ")",
        "after_last_image": "E",
    }
    assert read("x", png(), **texts) == "SHx(<ImageHere>)ERA"
    assert read(png(), "x", **texts) == "SH(<ImageHere>)xRA"
    assert read("x", system_prompt="") == read("x").removeprefix(VIST)


def test_turns_of_a_conversation():
    request = Request(
        (
            turn("system", "Be brief."),
            turn("user", "one"),
            turn("assistant", "two", png()),
            turn("user", "three"),
        ),
        1,
    )
    text = display_text(
        prompt_parts(request, MiniGPT5DraftSettings(system_prompt="S", request="R"))
    )
    assert text == (
        "S Be brief.###Human:one ###Assistant: two<Img><ImageHere></Img> ###Human:three"
        "R###Assistant:"
    )


def test_an_answer_begun_is_continued():
    request = Request((turn("user", "one"), turn("assistant", "two")), 1)
    text = display_text(
        prompt_parts(request, MiniGPT5DraftSettings(system_prompt="S", request="R"))
    )
    assert text == "S###Human:oneR ###Assistant: two"


def test_white_space_beside_a_picture_is_stripped():
    """As upstream's slow tokenizer does beside its added token; not elsewhere."""
    settings = {"before_image": " ", "after_image": "\n"}
    parts = prompt_parts(
        user(" a ", png(), png(), " b "), MiniGPT5DraftSettings(**settings)
    )
    texts = [p for p in parts if isinstance(p, str)]
    assert texts[0].endswith("###Human: a")
    assert texts[1].startswith("b ")
    assert len(parts) == 4


def test_prompt_pieces_are_tokenized_separately():
    writer = stage().writer
    prompt = stage().prompt(user("the river", png(), "the river", png()))
    encode = writer.vocabulary.tokenizer.encode
    words = [p for p in prompt.pieces if isinstance(p, list)]
    assert words[1] == encode("</Img>the river<Img>")
    assert prompt.length == 1 + sum(map(len, words)) + 2 * 4
    vectors = stage().embed([prompt])[0]
    assert vectors.shape == (prompt.length, 64)
    at = 1 + len(words[0])
    vectors_of_pictures = writer.encoder(torch.stack(prompt.pixels))
    torch.testing.assert_close(
        vectors[at : at + 4], vectors_of_pictures[0], atol=1e-6, rtol=0
    )
    table = writer.language.model.embed_tokens.weight
    assert torch.equal(vectors[0], table[writer.vocabulary.bos])
    assert torch.equal(vectors[1:at], table[words[0]])


# Pictures in --------------------------------------------------------------------------


def test_a_padded_picture_is_in_the_middle_of_white():
    picture = Pillow.new("RGB", (28, 14), (10, 20, 30))
    values = np.asarray(padded(picture, 28))
    assert (values[:7] == 255).all()
    assert (values[-7:] == 255).all()
    assert (values[7:21] == (10, 20, 30)).all()


@pytest.mark.parametrize("fit", ["pad", "crop"])
@pytest.mark.parametrize("size", [(1, 1), (3, 700), (20_000, 9), (9, 9000)])
def test_pictures_of_any_shape_are_read(size, fit):
    assert encoder_pixels(png(*size), 28, fit).shape == (3, 28, 28)


# Outcomes -----------------------------------------------------------------------------


def test_a_result_notes_its_prompt_and_why_it_ended():
    (outcome,) = stage()([user("what comes next", png(), seed=7)])
    assert outcome.notes["prompt"] == read("what comes next", png())
    assert outcome.notes["stop"] == "### reached"
    requests = outcome.value.requests
    assert outcome.usage["images"] == len(requests)
    assert outcome.usage["output_tokens"] > len(requests)
    assert not any("###" in s.text for s in outcome.value.segments if isinstance(s, Text))


def test_ids_that_are_not_text_are_noted():
    """[IMG3] and <ImageHere> are neither words nor pictures."""
    vocabulary = stage().vocabulary
    (outcome,) = stage()([user("x")])
    track = stage()._interleave([torch.zeros(2, 64)], [0])[0]
    track.ids = [*track.ids[:2], vocabulary.vokens[3], vocabulary.rows - 1, 300]
    track.pictures = []
    track.ids = [i for i in track.ids if i != vocabulary.begin_image]
    result = stage().result(stage().prompt(user("x")), track)
    assert result.notes["left out"] == {"[IMG3]": 1, "<ImageHere>": 1}
    assert "IMG" not in result.value.text
    assert "left out" not in outcome.notes


# Settings -----------------------------------------------------------------------------


def test_the_template_enters_the_key():
    defaults = MiniGPT5DraftSettings()
    assert defaults.keyed("tiny")["system_prompt"] == VIST
    same = MiniGPT5DraftSettings(system_prompt=VIST)
    assert defaults.keyed("tiny") == same.keyed("tiny")
    other = MiniGPT5DraftSettings(finetuned="mmdialog")
    assert other.keyed("tiny")["request"] == " "
    rebuilt = MiniGPT5DraftSettings(**defaults.keyed("tiny"), **defaults.options("tiny"))
    assert rebuilt.wording == defaults.wording


def test_upstreams_defaults():
    """`MiniGPT5_Model.generate` (model.py) and diffusers' pipeline of its time."""
    draft, drawing = MiniGPT5DraftSettings(), MiniGPT5RenderSettings()
    sampling = (draft.temperature, draft.top_k, draft.top_p, draft.repetition_penalty)
    assert sampling == (1.0, 50, 0.9, 2.0)
    assert draft.max_new_tokens == 256
    assert (drawing.guidance, drawing.steps) == (7.5, 50)
    assert (drawing.height, drawing.width) == (512, 512)
    assert drawing.safety_checker == "off"


def test_plans_name_memory_and_companions():
    settings = MiniGPT5DraftSettings(batch_size=4)
    # 7.83 billion values of 2 bytes with a fifth more, and four caches of 1 GiB.
    assert settings.memory_estimate_gib("dummy") == pytest.approx(21.5, abs=0.1)
    assert settings.placement("dummy", 80.0).num_gpus == 1
    assert MiniGPT5RenderSettings().memory_estimate_gib("dummy") > 4


# Sizes --------------------------------------------------------------------------------


def count(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_full_size_has_the_published_parameter_counts():
    """Vicuna-7B with 9 rows more; EVA-ViT-g, Q-Former, queries; 768 -> 4096."""
    language = language_model(llama_config(FULL, 32_009))
    assert count(language) == 6_738_415_616 + 2 * 9 * 4096
    encoder = picture_encoder(FULL.vision, FULL.qformer, FULL.queries, 4096)
    parts = 985_952_256 + 105_137_664 + 32 * 768
    assert count(encoder) == parts + 768 * 4096 + 4096
    assert {p.device.type for p in (*language.parameters(), *encoder.parameters())} == {
        "meta"
    }
    total = count(language) + count(encoder)
    assert total / 1e9 == pytest.approx(MiniGPT5DraftSettings().params_b, abs=0.01)


def test_stage_files_have_the_published_sizes():
    """Bytes of the files of KZ-ucsc/MiniGPT5; names and headers take what is over."""
    out = DESIGNS["sd21"].config("unet", tiny=False)["cross_attention_dim"]
    mapper = empty_mapper(4096, out, 4, 4 * out, 77)
    tables = 2 * 32_009 * 4096
    stage_1 = 4 * (tables + count(mapper))
    assert 0 < 1_540_697_487 - stage_1 < 300_000
    updates = 32 * 2 * 2 * 8 * 4096
    stage_2 = 4 * (tables + count(mapper.transformer) + updates)
    assert 0 < 1_536_289_349 - stage_2 < 400_000


def test_dummy_weights_write_and_draw(monkeypatch):
    """The path of dummy weights at toy size: the same code on what fits a test."""
    from dataclasses import replace

    from generators.minigpt5 import models, render, sizes

    small = replace(sizes.TINY, pieces=500)
    monkeypatch.setattr(models, "FULL", small)
    drafting = MiniGPT5Draft(
        weights="dummy", device="cpu", dtype="bfloat16", max_new_tokens=30, force_image=True
    )
    (outcome,) = drafting([user("go on", png())])
    assert outcome.value.requests
    monkeypatch.setattr(render, "FULL", small)
    config = type(DESIGNS["sd21"]).config
    monkeypatch.setattr(
        type(DESIGNS["sd21"]), "config", lambda self, name, tiny: config(self, name, True)
    )
    size = {"height": 64, "width": 64, "steps": 2, "dtype": "bfloat16"}
    drawing = MiniGPT5Render(weights="dummy", device="cpu", **size)
    request = ImageRequest(payload=outcome.value.requests[0].payload, seed=1)
    assert isinstance(drawing([request])[0], Result)
