"""Where images and answers of MiniGPT-5 begin and end."""

from __future__ import annotations

import pytest
import torch
from natives import tiny

from generators.decoding.drafting import NativePrompt, Stop

pytestmark = pytest.mark.models

LENGTHS = (3, 40, 1, 17, 8, 25)
GREEDY = {"greedy": True, "max_new_tokens": 30}


def prompts(count: int = 6, seed: int = 0) -> list[NativePrompt]:
    """Ragged runs of words."""
    generator = torch.Generator().manual_seed(5)
    runs = [torch.randint(300, 400, (n,), generator=generator).tolist() for n in LENGTHS]
    numbered = list(enumerate(runs[:count], start=seed))
    return [NativePrompt((ids,), "", len(ids), 0, i) for i, ids in numbered]


def tracks(count: int = 6, seed: int = 0, **settings):
    return tiny("minigpt5", **settings).tracks(prompts(count, seed))


def test_an_image_begun_by_the_last_token_has_its_states():
    """Upstream fails with an IndexError there."""
    (cut,) = tracks(1, force_image=True, max_new_tokens=1)
    (whole,) = tracks(1, force_image=True, max_new_tokens=9)
    assert cut.ids == [tiny("minigpt5").vocabulary.begin_image]
    assert cut.stop is Stop.TOKENS
    assert [len(states) for states in cut.images] == [8]
    for a, b in zip(cut.images[0], whole.images[0], strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


@pytest.mark.parametrize("context", [45, 47, 48, 52, 59])
def test_no_answer_passes_the_context_and_images_are_whole(context):
    settings = {"force_image": True, "end_id": 3, "repetition_penalty": 1.0}
    answers = tracks(context=context, **settings)
    full = [t for t in answers if t.stop is Stop.CONTEXT]
    assert full
    assert all(t.length == context for t in full)
    assert all(t.length <= context for t in answers)
    assert all(len(states) == 8 for t in answers for states in t.images)
    assert bool(answers[1].images) == (context >= 40 + 8)


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_images_are_limited(limit):
    begin = tiny("minigpt5").vocabulary.begin_image
    answers = tracks(seed=30, max_images=limit, repetition_penalty=1.0)
    assert max(len(t.images) for t in answers) == limit
    assert all(t.ids.count(begin) == len(t.images) for t in answers)


def test_the_leading_id_is_penalised_like_a_generated_one():
    settings = GREEDY | {"repetition_penalty": 1e6}
    (track,) = tracks(1, **settings)
    assert len(set(track.ids)) == len(track.ids)
    (other,) = tracks(1, **settings, leading_id=track.ids[0])
    assert other.ids[0] != track.ids[0]


def test_an_end_id_ends_the_answer():
    (free,) = tracks(1, **GREEDY)
    (ended,) = tracks(1, **GREEDY, end_id=free.ids[2])
    assert ended.ids == free.ids[:3]
    assert ended.stop is Stop.END
