"""The cached, batched loop against a program that recomputes everything, one by one."""

from types import SimpleNamespace

import anole_helpers as helpers
import numpy as np
import pytest
import torch

from generators.anole.loop import AnoleInterleaver, AnoleRules
from generators.anole.tokens import AnoleLimits, AnoleStop
from generators.decoding.sampling import Sampler
from generators.decoding.streams import Streams

pytestmark = pytest.mark.models

DEFAULTS = {
    "max_text_tokens": 4096,
    "max_images": 3,
    "repetition_penalty": 1.2,
    "text_temperature": 1.0,
    "text_top_p": 0.9,
    "text_greedy": False,
    "image_temperature": 0.7,
    "image_top_p": 0.9,
    "image_greedy": False,
    "guidance_text": 3.0,
    "guidance_image": 1.2,
}


def settings(**changes) -> SimpleNamespace:
    return SimpleNamespace(**DEFAULTS | changes)


def interleaver(own, context: int) -> AnoleInterleaver:
    language = helpers.language()
    limits = AnoleLimits(context, helpers.SIDE**2, own.max_text_tokens, own.max_images)
    rules = AnoleRules(
        Sampler(own.text_temperature, own.text_top_p, own.text_greedy),
        Sampler(own.image_temperature, own.image_top_p, own.image_greedy),
        own.repetition_penalty,
        own.guidance_text,
        own.guidance_image,
    )
    return AnoleInterleaver(language.model, language.vocabulary, limits, rules)


def prompts() -> list[list[int]]:
    """Of several lengths, with none, one and two pictures."""
    language = helpers.language()
    v = language.vocabulary
    random = np.random.default_rng(0)

    def text(words: str) -> list[int]:
        return language.tokenizer.encode(words, add_special_tokens=False).ids

    def picture() -> list[int]:
        codes = random.integers(0, len(v.image), helpers.SIDE**2).tolist()
        return [v.begin_image, *v.tokens(codes), v.end_image]

    return [
        [v.bos, *text(" a red house near the river")],
        [v.bos, *text(" old"), *picture(), *text(" then what stands here")],
        [v.bos],
        [v.bos, *picture(), *picture(), *text(".")],
        [v.bos, *text("Tell me something about the small bird in the quiet garden.")],
    ]


def answers(own, chosen, seeds, context=4096) -> list[list[int]]:
    return [t.generated for t in interleaver(own, context)(chosen, seeds)]


@pytest.mark.parametrize(
    ("changes", "context", "records"),
    [
        ({"text_greedy": True, "image_greedy": True}, 240, [0, 1]),
        ({"max_images": 2}, 400, [0, 1, 2, 3, 4]),
        (
            {"text_top_p": 1.0, "image_top_p": 0.5, "repetition_penalty": 1.7},
            230,
            [0, 1, 4],
        ),
        (
            {"guidance_text": 1.5, "guidance_image": 2.0, "image_temperature": 1.3},
            230,
            [1, 2],
        ),
        ({"max_text_tokens": 7}, 400, [0, 1, 2, 3]),
    ],
)
def test_ids_equal_the_naive_program(changes, context, records):
    own = settings(**changes)
    chosen_prompts = [prompts()[i] for i in records]
    seeds = [[11, 12, 17, 14, 16][i] for i in records]
    ours = answers(own, chosen_prompts, seeds, context)
    for prompt, seed, tokens in zip(chosen_prompts, seeds, ours, strict=True):
        assert tokens == helpers.naive_answer(own, prompt, seed, context)
    assert sum(helpers.language().vocabulary.begin_image in t for t in ours) >= 1


def test_pictures_are_whole_and_end_of_image_is_forced():
    v = helpers.language().vocabulary
    count = helpers.SIDE**2
    pictures = 0
    for tokens in answers(settings(), prompts(), [30, 31, 32, 33, 34]):
        for at in (i for i, t in enumerate(tokens) if t == v.begin_image):
            codes = tokens[at + 1 : at + 1 + count]
            assert set(codes) <= set(v.image)
            assert tokens[at + 1 + count] == v.end_image
            pictures += 1
        outside = [t for t in tokens if t not in set(v.image)]
        allowed = {*v.text, v.begin_image, v.end_image, v.eos}
        assert set(outside) <= allowed
    assert pictures >= 4


def test_no_picture_begins_where_none_fits():
    own = settings()
    own.max_images = 99
    v = helpers.language().vocabulary
    longest = 0
    for track in interleaver(own, 200)([prompts()[0]] * 24, list(range(24))):
        begins = [i for i, t in enumerate(track.ids) if t == v.begin_image]
        assert all(i < 200 - 66 for i in begins)
        assert len(track.ids) <= 200
        longest = max(longest, *begins, 0)
    assert longest > 100, "some picture must begin late, or the ban is not tried"


def test_context_end_and_budget():
    quiet = settings(max_images=0)
    tracks = interleaver(quiet, 40)(prompts()[:1] * 12, list(range(12)))
    full = [t for t in tracks if t.stop is AnoleStop.CONTEXT]
    assert full
    assert all(len(t.ids) == 40 for t in full)
    short = settings(max_images=0, max_text_tokens=4)
    tracks = interleaver(short, 400)(prompts()[:1] * 12, list(range(12)))
    assert {len(t.generated) for t in tracks if t.stop is AnoleStop.BUDGET} == {4}


def test_guidance_before_the_first_picture_takes_one_stream(monkeypatch):
    """Its two contexts are then the same, so one stream serves as both."""
    opened, owners = [], set()
    usual = Streams.open

    def noted(self, prompts):
        opened.extend(prompts)
        owners.add(self)
        return usual(self, prompts)

    monkeypatch.setattr(Streams, "open", noted)
    own = settings(max_images=2)
    tracks = interleaver(own, 4096)([prompts()[0]], [42])
    assert tracks[0].images == 2
    v = helpers.language().vocabulary
    embed = helpers.language().model.model.embed_tokens
    nothing = embed(torch.tensor([v.bos, v.begin_image]))
    assert sum(torch.equal(prompt, nothing) for prompt in opened) == 2
    assert len(opened) == 1 + 1 + 2
    assert [len(streams) for streams in owners] == [0], "every stream has left"
