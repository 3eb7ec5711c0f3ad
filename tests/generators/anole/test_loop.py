"""Where images and answers begin and end, and which streams guide an image."""

import pytest
import torch
from natives import asked, tiny

from generators.decoding.drafting import Stop
from generators.decoding.streams import Streams
from generators.document import ImageRequest, Request, Text, Turn

pytestmark = pytest.mark.models


def tracks(count: int, **settings):
    stage = tiny("anole", **settings)
    prompt = stage.prompt(asked("A red house", seed=0))
    requests = [stage.prompt(asked("A red house", seed=seed)) for seed in range(count)]
    assert prompt.length < stage.context
    return stage, stage.tracks(requests)


def test_images_are_whole_and_begin_only_where_they_fit():
    stage, answers = tracks(16, context=200, max_images=99)
    v, latest = stage.vocabulary, 0
    for track in answers:
        tokens = track.tokens
        assert len(tokens) <= 200
        for at in (i for i, t in enumerate(tokens) if t == v.begin_image):
            assert at < 200 - 66
            assert set(tokens[at + 1 : at + 65]) <= set(v.image)
            assert tokens[at + 65] == v.end_image
            latest = max(latest, at)
        outside = {t for t in track.ids if t not in set(v.image)}
        assert outside <= {*v.text, v.begin_image, v.end_image, v.eos}
    assert latest > 70, "some image must begin late, or the ban is not tried"


def test_context_end_and_budget():
    _, answers = tracks(12, context=40, max_images=0)
    full = [t for t in answers if t.stop is Stop.CONTEXT]
    assert full
    assert all(t.length == 40 for t in full)
    _, answers = tracks(12, context=400, max_images=0, max_text_tokens=4)
    assert {len(t.ids) for t in answers if t.stop is Stop.TEXT} == {4}


def test_guidance_before_the_first_image_takes_one_stream(monkeypatch):
    """Its two contexts are then the same, so one stream serves as both."""
    opened, owners = [], set()
    usual = Streams.open

    def noted(self, prompts):
        opened.extend(prompts)
        owners.add(self)
        return usual(self, prompts)

    monkeypatch.setattr(Streams, "open", noted)
    stage = tiny("anole", context=600, max_images=2)
    prompts = [stage.prompt(asked("A red house", seed=seed)) for seed in range(12)]
    answers = stage.tracks(prompts)
    v = stage.vocabulary
    nothing = stage.embeddings([v.bos, v.begin_image])
    images = [track.images for track in answers]
    assert 2 in images
    assert sum(torch.equal(p, nothing) for p in opened) == sum(images)
    later = sum(max(count - 1, 0) for count in images)
    assert len(opened) == len(prompts) + sum(images) + later
    assert [len(streams) for streams in owners] == [0], "every stream has left"


def test_a_prompt_has_no_template():
    """`<s>`, then each segment: text as raw ids, an image between its marks."""
    from picture_helpers import smooth

    stage, v = tiny("anole", context=600), tiny("anole").vocabulary
    turns = [
        Turn("system", (Text("A red"),)),
        Turn("user", (Text("What?"),)),
        Turn("assistant", (Text(" A bird"), smooth())),
    ]
    prompt = stage.prompt(Request(tuple(turns), 1))
    assert prompt.shown == "A red\nWhat?\n A bird<image>"
    encode = stage.language.tokenizer.encode
    pieces = ("A red", "\n", "What?", "\n", " A bird")
    text = [i for piece in pieces for i in encode(piece, add_special_tokens=False).ids]
    assert prompt.ids[: 1 + len(text)] == [v.bos, *text]
    first, *codes, last = prompt.ids[1 + len(text) :]
    assert (first, last, len(codes)) == (v.begin_image, v.end_image, 64)
    assert set(codes) <= set(v.image)


def test_blank_text_between_images_is_left_out():
    stage = tiny("anole", context=600)
    v, encode = stage.vocabulary, stage.language.tokenizer.encode
    track = stage.track(stage.prompt(asked("x")))
    image = [v.begin_image, *v.image[:64], v.end_image]
    for token in (*encode(" \n").ids, *image, *image, *encode(" boat").ids):
        track.take(token)
    segments = stage.result(stage.prompt(asked("x")), track).value.segments
    assert [type(s) for s in segments] == [ImageRequest, ImageRequest, Text]
    assert segments[2] == Text(" boat")
