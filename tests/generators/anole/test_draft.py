"""Anole's tokens by name, where images and answers begin and end, what guides an image."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from natives import asked, tiny, turn
from picture_helpers import smooth

from plait.generators.anole.draft import AnoleTrack, TokenMode
from plait.generators.anole.settings import AnoleDraftSettings
from plait.generators.anole.vocabulary import AnoleVocabulary
from plait.generators.decoding.drafting import NativePrompt, Stop
from plait.generators.decoding.streams import Streams
from plait.generators.document import ImageRequest, Request, Text
from plait.generators.errors import CheckpointError

pytestmark = pytest.mark.models

NAMES = ["<s>", "<pad>", "</s>", "<unk>", "<eoss>", "<racm3:break>", "<reserved08706>"]
CODES = [f"IMGIMG{letters}Z" for letters in ("A", "B", "C", "D")]
WORDS = ["<", "hello", "<div", "</", "Z", "IMG"]


def vocabulary(order: list[str]) -> AnoleVocabulary:
    return AnoleVocabulary.of({name: i for i, name in enumerate(order)})


@given(st.permutations([*NAMES, *CODES, *WORDS]))
def test_ids_follow_names_in_any_order(order):
    reordered = vocabulary(order)
    specials = (reordered.bos, reordered.eos, reordered.begin_image, reordered.end_image)
    assert [order[i] for i in specials] == ["<s>", "</s>", "<racm3:break>", "<eoss>"]
    assert [order[i] for i in reordered.image] == CODES
    assert reordered.codes(reordered.tokens([3, 0, 2])) == [3, 0, 2]
    # Every name that starts with "<" is left out, except "<" itself.
    assert {order[i] for i in reordered.text} == {"<", "hello", "Z", "IMG"}
    assert list(reordered.text) == sorted(reordered.text)


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        (["<s>", "<eoss>"], "lacks <s>, <eoss>"),
        *(
            (lost, r"tokens but not IMGIMG[A-D]Z")
            for lost in (CODES[:1], CODES[2:3], CODES)
        ),
    ],
)
def test_names_that_are_missing_are_listed(lost, message):
    with pytest.raises(CheckpointError, match=message):
        vocabulary([name for name in [*NAMES, *CODES] if name not in lost])


V = AnoleVocabulary(bos=0, eos=2, begin_image=9, end_image=8, text=(20, 21), image=(4, 5))


def test_an_answer_is_runs_of_text_and_whole_images():
    prompt = NativePrompt(([0, 20, 9, 4, 4, 4, 8],), "", 7, 1, 0)
    track = AnoleTrack(prompt, 100, V, AnoleDraftSettings(max_images=2), 3)
    for token in (20, 21, 9, 4, 5, 4, 8, 9, 5, 5, 5, 8, 21, 2):
        assert track.stop is None
        track.take(token)
    assert track.stop is Stop.END
    assert [(mode, ids) for mode, ids in track.runs if ids] == [
        (TokenMode.TEXT, [20, 21]),
        (TokenMode.IMAGE, [4, 5, 4]),
        (TokenMode.IMAGE, [5, 5, 5]),
        (TokenMode.TEXT, [21, 2]),
    ]
    assert track.guidance_prompts()[0] == (
        *(0, 9, 4, 4, 4, 8),
        *(9, 4, 5, 4, 8, 9, 5, 5, 5, 8),
    )
    assert not track.may_begin_image


@pytest.mark.models
def test_images_are_whole_and_begin_only_where_they_fit():
    stage = tiny("anole", context=200, max_images=99)
    v, latest = stage.vocabulary, 0
    for track in stage.tracks(
        [stage.prompt(asked("A red house", seed=s)) for s in range(9)]
    ):
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


@pytest.mark.models
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
    prompts = [stage.prompt(asked("A red house", seed=seed)) for seed in range(4)]
    images = [track.images for track in stage.tracks(prompts)]
    v = stage.vocabulary
    nothing = stage.embeddings([v.bos, v.begin_image])
    assert 2 in images
    assert sum(torch.equal(p, nothing) for p in opened) == sum(images)
    later = sum(max(count - 1, 0) for count in images)
    assert len(opened) == len(prompts) + sum(images) + later
    assert [len(streams) for streams in owners] == [0], "every stream has left"


@pytest.mark.models
def test_a_prompt_has_no_template():
    """`<s>`, then each segment: text as raw ids, an image between its marks."""
    stage, v = tiny("anole", context=600), tiny("anole").vocabulary
    turns = (turn("system", "A red"), turn("user", "What?"))
    prompt = stage.prompt(Request((*turns, turn("assistant", " A bird", smooth())), 1))
    assert prompt.shown == "A red\nWhat?\n A bird<image>"
    pieces = ("A red", "\n", "What?", "\n", " A bird")
    text = [i for ids in stage._tokenize(pieces) for i in ids]
    assert prompt.ids[: 1 + len(text)] == [v.bos, *text]
    first, *codes, last = prompt.ids[1 + len(text) :]
    assert (first, last, len(codes)) == (v.begin_image, v.end_image, 64)
    assert set(codes) <= set(v.image)


@pytest.mark.models
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
