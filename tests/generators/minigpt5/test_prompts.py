"""MiniGPT-5's prompts: templates, conversations, images; and what of them is keyed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from natives import asked, tiny
from picture_helpers import smooth
from PIL import Image as Pillow

from generators.document import Image, Request, Text, Turn
from generators.minigpt5.draft import prompt_parts
from generators.minigpt5.settings import MiniGPT5DraftSettings
from generators.minigpt5.vision import encoder_pixels, padded

pytestmark = pytest.mark.models

VIST = (
    "Give the following images in <Img>ImageContent</Img> format. You will be able to see "
    "the images once I provide it to you. Please understanding images and generate story."
)
SHORT = {"system_prompt": "S", "request": "R"}


def shown(request: Request, /, **settings) -> str:
    parts = prompt_parts(request, MiniGPT5DraftSettings(**settings))
    return "".join("<ImageHere>" if isinstance(p, Image) else p for p in parts)


def turn(role, *content: str | Image) -> Turn:
    return Turn(role, tuple(Text(c) if isinstance(c, str) else c for c in content))


def test_the_template_of_each_checkpoint():
    """Written out from VISTDataset, MMDialogDataset and CC3MDataset (dataloader.py)."""
    image, mmdialog = "<Img><ImageHere></Img>", "generate conversations with appropriate"
    conversing = VIST.replace("understanding images and generate story", mmdialog)
    expected = {
        "vist": f"{VIST}###Human:first{image}then{image}\n Tell me the next scene with "
        "image. ###Assistant:",
        "mmdialog": f"{conversing.removesuffix('.')} images. ###Human: first{image}then"
        f"{image} ###Assistant:",
        "none": "You will be able to generate image according to command.###Human: first"
        f"{image}then{image} ###Assistant:",
    }
    asking = asked("first", smooth(), "then", smooth())
    assert {k: shown(asking, finetuned=k) for k in expected} == expected
    ends = f"{image}then Tell me the next scene with image. ###Assistant:"
    assert shown(asked(smooth(), "then")).endswith(ends)


def test_every_text_of_the_template_is_a_setting():
    texts = {"human": "H", "assistant": "A", "after_last_image": "E"}
    texts |= {"before_image": "(", "after_image": ")"}
    assert shown(asked("x", smooth()), **SHORT, **texts) == "SHx(<ImageHere>)ERA"
    assert shown(asked(smooth(), "x"), **SHORT, **texts) == "SH(<ImageHere>)xRA"
    plain = shown(asked("x"))
    assert shown(asked("x"), system_prompt="") == plain.removeprefix(VIST)


def test_turns_of_a_conversation_and_an_answer_begun():
    turns = (
        turn("system", "Be brief."),
        turn("user", "one"),
        turn("assistant", "two", smooth()),
        turn("user", "three"),
    )
    assert shown(Request(turns), **SHORT) == (
        "S Be brief.###Human:one ###Assistant: two<Img><ImageHere></Img> ###Human:three"
        "R###Assistant:"
    )
    begun = Request((turn("user", "one"), turn("assistant", "two")))
    assert shown(begun, **SHORT) == "S###Human:oneR ###Assistant: two"


def test_pieces_are_tokenized_separately_and_stripped_beside_images():
    """As upstream's slow tokenizer does beside its added token; not elsewhere."""
    stage = tiny("minigpt5", before_image=" ", after_image="\n", system_prompt="S")
    request = asked(" a ", smooth(), smooth(1), " b ", smooth(2), "the river")
    prompt = stage.prompt(request)
    texts = ["S###Human: a", "b", "the river Tell me the next scene with image. "]
    encode = stage.vocabulary.tokenizer.encode
    words = [p for p in prompt.pieces if isinstance(p, list)]
    assert words == [[stage.vocabulary.bos], *map(encode, [*texts[:2], texts[2] + ASSIST])]
    assert prompt.length == sum(map(len, words)) + 3 * 4
    vectors = stage.embed([prompt])[0]
    at = len(words[0]) + len(words[1])
    images = torch.stack(prompt.pixels)
    torch.testing.assert_close(
        vectors[at : at + 8].view(2, 4, -1), stage.encoder(images)[:2], atol=1e-6, rtol=0
    )
    assert torch.equal(vectors[:at], stage.embeddings([*words[0], *words[1]]))


ASSIST = "###Assistant:"


def test_images_are_padded_with_white_whatever_their_shape():
    values = np.asarray(padded(Pillow.new("RGB", (28, 14), (10, 20, 30)), 28))
    assert (values[[*range(7), *range(21, 28)]] == 255).all()
    assert (values[7:21] == (10, 20, 30)).all()
    for width, height in ((1, 1), (3, 700), (20_000, 9)):
        for fit in ("pad", "crop"):
            image = smooth(0, width=width, height=height)
            assert encoder_pixels(image, 28, fit).shape == (3, 28, 28)


def test_ids_that_are_not_text_are_noted():
    """[IMG3] and <ImageHere> are neither words nor images."""
    stage, prompt = tiny("minigpt5"), tiny("minigpt5").prompt(asked("x"))
    track = stage.track(prompt)
    for token in (300, stage.vocabulary.vokens[3], stage.vocabulary.rows - 1, 301):
        track.take(token)
    result = stage.result(prompt, track)
    assert result.notes["left out"] == {"[IMG3]": 1, "<ImageHere>": 1}
    assert "IMG" not in result.value.text


def test_the_template_enters_the_key():
    defaults = MiniGPT5DraftSettings()
    keyed = defaults.keyed("tiny")
    assert keyed["system_prompt"] == VIST
    assert MiniGPT5DraftSettings(system_prompt=VIST).keyed("tiny") == keyed
    assert MiniGPT5DraftSettings(finetuned="mmdialog").keyed("tiny")["request"] == " "
    rebuilt = MiniGPT5DraftSettings(**keyed, **defaults.options("tiny"))
    assert rebuilt.wording == defaults.wording
