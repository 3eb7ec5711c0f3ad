"""The interleaved loop against a batch-1, uncached program in float64, and its limits."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from minigpt5_upstream_helpers import upstream_loop

from generators.decoding.sampling import Sampler
from generators.minigpt5.loop import MiniGPT5Interleaver, MiniGPT5Limits, MiniGPT5Rules
from generators.minigpt5.models import random_writer
from generators.minigpt5.settings import MiniGPT5DraftSettings
from generators.minigpt5.sizes import TINY

pytestmark = pytest.mark.models

CPU = torch.device("cpu")
LENGTHS = (3, 40, 1, 17, 8, 25)


@functools.cache
def writer():
    return random_writer(TINY, CPU, torch.float32)


@functools.cache
def exact():
    return copy.deepcopy(writer().language).double()


def prompts() -> list[torch.Tensor]:
    """Ragged runs of words as vectors."""
    table = writer().language.model.embed_tokens.weight
    generator = torch.Generator().manual_seed(5)
    return [table[torch.randint(300, 400, (n,), generator=generator)] for n in LENGTHS]


def answered(settings: MiniGPT5DraftSettings, prompts, seeds, context: int = 2048):
    limits = MiniGPT5Limits(
        context=context,
        max_new_tokens=settings.max_new_tokens,
        max_images=settings.max_images,
        end_id=settings.end_id,
        force_image=settings.force_image,
    )
    sampler = Sampler(settings.temperature, settings.top_p, settings.greedy, settings.top_k)
    rules = MiniGPT5Rules(sampler, settings.repetition_penalty, settings.leading_id)
    loop = MiniGPT5Interleaver(writer().language, writer().vocabulary, limits, rules)
    return loop(prompts, seeds)


CASES = [
    {},
    {"greedy": True, "max_new_tokens": 60, "repetition_penalty": 1.05},
    {"force_image": True, "max_images": 2},
    {"top_k": 7, "top_p": 0.6, "temperature": 1.7, "max_new_tokens": 70},
    {"top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0, "max_new_tokens": 50},
    {"max_images": 0},
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(c) or "defaults")
def test_a_batch_answers_as_the_uncached_program_one_by_one(case):
    settings = MiniGPT5DraftSettings(**case)
    seeds = list(range(70, 70 + len(LENGTHS)))
    tracks = answered(settings, prompts(), seeds)
    for track, prompt, seed in zip(tracks, prompts(), seeds, strict=True):
        args = (exact(), writer().vocabulary, settings, prompt, seed)
        ids, pictures = upstream_loop(*args, cached=False)
        assert track.ids == ids
        assert len(track.pictures) == len(pictures)
        for ours, theirs in zip(track.pictures, pictures, strict=True):
            torch.testing.assert_close(
                torch.stack(ours).double(), theirs, atol=1e-4, rtol=0
            )


def test_the_cases_draw_several_pictures_and_stop_in_several_ways():
    tracks = answered(MiniGPT5DraftSettings(), prompts(), range(70, 76))
    assert max(len(t.pictures) for t in tracks) > 1
    tracks += answered(MiniGPT5DraftSettings(**CASES[4]), prompts(), range(70, 76))
    assert len({t.stop for t in tracks}) > 1


def test_the_cached_batch_1_loop_is_the_same_program():
    """What the benchmark compares with."""
    settings = MiniGPT5DraftSettings(max_new_tokens=80)
    for seed, prompt in enumerate(prompts()):
        args = (writer().language, writer().vocabulary, settings, prompt, seed)
        assert upstream_loop(*args)[0] == upstream_loop(*args, cached=False)[0]


def test_a_picture_begun_by_the_last_token_has_its_states():
    """Upstream fails with an IndexError there."""
    settings = MiniGPT5DraftSettings(force_image=True, max_new_tokens=1)
    longer = MiniGPT5DraftSettings(force_image=True, max_new_tokens=9)
    (cut,) = answered(settings, prompts()[:1], [0])
    (whole,) = answered(longer, prompts()[:1], [0])
    assert cut.ids == [writer().vocabulary.begin_image]
    assert str(cut.stop) == "token budget reached"
    assert len(cut.pictures) == 1
    assert len(cut.pictures[0]) == 8
    for a, b in zip(cut.pictures[0], whole.pictures[0], strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


@pytest.mark.parametrize("context", range(45, 60))
def test_no_answer_passes_the_context(context):
    settings = MiniGPT5DraftSettings(force_image=True, end_id=3, repetition_penalty=1.0)
    for track in answered(settings, prompts(), range(6), context):
        assert track.length <= context
        if str(track.stop) == "context full":
            assert track.length == context
        assert all(len(states) == 8 for states in track.pictures)


def test_no_picture_begins_that_would_not_fit():
    settings = MiniGPT5DraftSettings(force_image=True, max_new_tokens=5)
    fits, full = (answered(settings, prompts()[1:2], [1], 40 + room)[0] for room in (8, 7))
    assert len(fits.pictures) == 1
    assert fits.length == 48
    assert not full.pictures


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_pictures_are_limited(limit):
    begin = writer().vocabulary.begin_image
    settings = MiniGPT5DraftSettings(max_images=limit, repetition_penalty=1.0)
    tracks = answered(settings, prompts(), range(30, 36))
    assert max(len(t.pictures) for t in tracks) == limit
    for track in tracks:
        assert track.ids.count(begin) == len(track.pictures) <= limit


def test_the_leading_id_is_penalised_like_a_generated_one():
    plain = MiniGPT5DraftSettings(greedy=True, repetition_penalty=1e6, max_new_tokens=30)
    (track,) = answered(plain, prompts()[:1], [0])
    assert len(set(track.ids)) == len(track.ids)
    banned = plain.model_copy(update={"leading_id": track.ids[0]})
    (other,) = answered(banned, prompts()[:1], [0])
    assert other.ids[0] != track.ids[0]


def test_an_end_id_ends_the_answer():
    (free,) = answered(MiniGPT5DraftSettings(greedy=True), prompts()[:1], [0])
    settings = MiniGPT5DraftSettings(greedy=True, end_id=free.ids[2])
    (ended,) = answered(settings, prompts()[:1], [0])
    assert ended.ids == free.ids[:3]
    assert str(ended.stop) == "end of sequence"
