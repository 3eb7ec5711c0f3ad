"""The two stages end to end, as the engine calls them."""

import io

import numpy as np
import pytest
from PIL import Image as Pillow

from generators.anole.draft import AnoleDraft
from generators.anole.settings import AnoleDraftSettings, AnoleRenderSettings
from generators.base import Result, Skip
from generators.document import Image, ImageRequest, Request, Text, Turn

models = pytest.mark.models


@pytest.fixture(scope="module")
def draft():
    return AnoleDraft(weights="tiny", device="cpu", context=600)


def picture(seed: int = 0) -> Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (70, 90, 3)).astype(np.uint8)
    file = io.BytesIO()
    Pillow.fromarray(pixels).save(file, "PNG")
    return Image.of(file.getvalue())


def request(*content: Text | Image, seed: int | None = 1) -> Request:
    return Request((Turn("user", content),), seed)


@models
def test_text_is_clean_and_usage_counts(draft):
    for seed, outcome in enumerate(
        draft([request(Text("A red house"), seed=s) for s in range(8)])
    ):
        segments = outcome.value.segments
        texts = [s.text for s in segments if isinstance(s, Text)]
        assert all(t.strip() and "<" not in t and "IMG" not in t for t in texts), seed
        usage = outcome.usage
        assert usage["images"] == len(outcome.value.requests)
        assert usage["image_tokens"] == 64 * usage["images"]
        assert usage["input_images"] == 0
        assert outcome.notes["prompt"] == "A red house"
        assert outcome.notes["stop"] in ("end of sequence", "context full")
        words = usage["output_tokens"] - 66 * usage["images"]
        assert words >= len(" ".join(texts).split()) - 1


@models
def test_prompt_has_no_template(draft):
    """`<s>`, then each segment: text as raw ids, a picture between its marks."""
    language = draft.language
    v = language.vocabulary
    ids = draft.prompt(request(Text("A red"), picture(), Text(" house"))).ids
    text = [
        language.tokenizer.encode(t, add_special_tokens=False).ids
        for t in ("A red", " house")
    ]
    assert ids[0] == v.bos
    assert list(ids[1 : 1 + len(text[0])]) == text[0]
    rest = list(ids[1 + len(text[0]) :])
    assert rest[0] == v.begin_image
    assert set(rest[1:65]) <= set(v.image)
    assert rest[65] == v.end_image
    assert rest[66:] == text[1]


@models
def test_turns_are_set_apart(draft):
    content = (Text("Answer."),), (Text("What is it?"),), (Text(" A bird"), picture())
    turns = [
        Turn(r, c) for r, c in zip(("system", "user", "assistant"), content, strict=True)
    ]
    prompt = draft.prompt(Request(tuple(turns), 1))
    assert prompt.shown == "Answer.\nWhat is it?\n A bird<image>"
    assert prompt.images == 1


@models
def test_too_many_pictures_are_skipped_with_the_limit(draft):
    nine = draft([request(*(picture(i) for i in range(9)), Text("What now?"))])[0]
    assert isinstance(nine, Skip)
    assert "9 pictures of 66" in nine.reason
    assert "context holds 600" in nine.reason
    assert "at most 9 pictures" in nine.reason
    ten = draft([request(*(picture(i) for i in range(10)))])[0]
    assert isinstance(ten, Skip)
    assert "takes 661 tokens" in ten.reason


@models
def test_a_prompt_needs_room_for_one_token(draft):
    filler = Text("." * (600 - 2 - 8 * 66))
    eight = [picture(i) for i in range(8)]
    assert isinstance(draft([request(*eight, filler)])[0], Result)
    assert isinstance(draft([request(*eight, filler, Text("."))])[0], Skip)


@models
def test_blank_text_between_pictures_is_left_out(draft):
    language = draft.language
    v = language.vocabulary
    blank, word = (language.tokenizer.encode(t).ids for t in (" \n", " boat"))
    code = [v.begin_image, *v.image[:64], v.end_image]
    segments = draft._segments([*blank, *code, *blank, *code, *word])
    assert [type(s) for s in segments] == [ImageRequest, ImageRequest, Text]
    assert segments[2] == Text(" boat")


def test_what_enters_the_key():
    usual = AnoleDraftSettings()
    keyed = usual.keyed("pretrained")
    assert {"text_top_p", "guidance_image", "max_images", "context", "dtype"} <= set(keyed)
    assert not {"device", "batch_size", "model", "revision"} & set(keyed)
    assert AnoleRenderSettings().keyed("pretrained") == {"dtype": "float32"}


def test_one_gpu_per_replica_and_memory_before_loading():
    spec = AnoleDraftSettings().spec("a", "dummy", gpu_gib=24.0)
    assert spec.placement.num_gpus == 1
    # 7.08 billion weights of two bytes and a fifth more, 24 streams of 2 GiB.
    assert spec.placement.gpu_memory_gib == pytest.approx(15.8 + 48, abs=0.1)
    single = AnoleDraftSettings(batch_size=1).spec("a", "dummy").placement
    assert single.gpu_memory_gib == pytest.approx(21.8, abs=0.1)
    assert AnoleDraftSettings().spec("a", "tiny").placement.num_gpus == 0
    assert AnoleRenderSettings().spec("a", "dummy").placement.num_gpus == 1
