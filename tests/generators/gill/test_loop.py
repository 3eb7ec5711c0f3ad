"""The cached, batched loop against the original one: no cache, one record, float64."""

import gill_helpers as helpers
import pytest
import torch

from benchmarks.speed.upstream import GillLoop
from generators.vokens.mapper import unpack_states

pytestmark = pytest.mark.models

SETTINGS = [
    {"num_words": 40},
    {"num_words": 32, "max_num_rets": 1},
    {"num_words": 40, "min_word_tokens": 12, "gen_scale_factor": 1.2},
    {"num_words": 40, "temperature": 0.6, "top_p": 0.95},
    {"num_words": 30, "temperature": 1.0, "ret_scale_factor": 1.2},
]


def answers(stage, requests):
    """Tracks of the requests, run together."""
    prompts = [helpers.embed(stage, r) for r in requests]
    return stage._interleave(prompts, [r.seed for r in requests])


def without_tail(stage, ids: list[int], images: int) -> list[int]:
    """Upstream's ids without those after the last image that is returned."""
    if images < stage.settings.max_num_rets:
        return ids
    begun = [i for i, t in enumerate(ids) if t == stage.language.tokens.vokens[0]]
    return ids[: begun[images - 1] + len(stage.language.tokens.vokens)]


@pytest.mark.parametrize("settings", SETTINGS)
def test_batch_equals_the_uncached_loop(settings):
    """Ids are equal, states to 1e-4 of their size (float32 against float64)."""
    stage = helpers.tiny(**settings)
    images_compared = 0
    tracks = answers(stage, helpers.QUESTIONS)
    for request, track in zip(helpers.QUESTIONS, tracks, strict=True):
        prompt = helpers.embed(stage, request)
        ids, images = helpers.gill_uncached(stage, prompt, request.seed)
        assert track.ids == without_tail(stage, ids, len(images))
        assert len(track.images) == len(images)
        for ours, exact in zip(track.images, images, strict=True):
            assert (ours.double() - exact).abs().max() < 1e-4 * exact.abs().max()
        images_compared += len(images)
    assert images_compared >= 3


def test_an_image_at_the_last_step_is_finished():
    """Upstream fails there: it has not read the states of the image's tokens."""
    stage = helpers.tiny(num_words=1, gen_scale_factor=1e5)
    (track,) = answers(stage, helpers.QUESTIONS[:1])
    assert track.ids == list(stage.language.tokens.vokens)
    assert track.stop == "word budget reached"
    prompt = helpers.embed(stage, helpers.QUESTIONS[0])
    _, images = helpers.gill_uncached(stage, prompt, 0)
    assert torch.allclose(track.images[0].double(), images[0], rtol=1e-4, atol=1e-3)


def test_only_the_first_image_token_is_ever_chosen():
    stage = helpers.tiny(num_words=20, max_num_rets=9, gen_scale_factor=1e5)
    (track,) = answers(stage, helpers.QUESTIONS[:1])
    assert track.ids == list(stage.language.tokens.vokens) * 9
    assert track.stop == "image limit reached"


def test_an_image_waits_for_its_words():
    stage = helpers.tiny(num_words=9, min_word_tokens=7, gen_scale_factor=1e5)
    (track,) = answers(stage, helpers.QUESTIONS[:1])
    vokens = list(stage.language.tokens.vokens)
    assert track.ids[7:] == vokens * 2
    assert not set(track.ids[:7]) & set(vokens)


@pytest.mark.parametrize("room", range(1, 12))
def test_images_need_room_for_all_their_tokens(room):
    stage = helpers.tiny(num_words=20, gen_scale_factor=1e5)
    vokens = list(stage.language.tokens.vokens)
    ids = [stage.language.tokens.bos] * (stage.language.context - room)
    (track,) = stage._interleave([stage.language.embed(ids)], [0])
    assert track.ids[:8] == vokens if room >= 8 else not set(track.ids) & set(vokens)
    assert track.stop == "context full"
    assert len(track.ids) == room


def test_payloads_are_states_and_embeddings_added_up():
    stage = helpers.tiny(num_words=40)
    requests = helpers.QUESTIONS[:4]
    tracks = answers(stage, requests)
    vokens = stage.language.embeddings[-8:].double()
    images_compared = 0
    for request, track, outcome in zip(requests, tracks, stage(requests), strict=True):
        payloads = [unpack_states(r.payload) for r in outcome.value.requests]
        assert len(payloads) == len(track.images)
        for ours, states in zip(payloads, track.images, strict=True):
            assert ours.shape == (8, 64)
            assert abs(torch.from_numpy(ours) - (states + vokens)).max() < 1e-4
            images_compared += 1
        assert outcome.usage["images"] == len(track.images), request
    assert images_compared >= 3


@pytest.mark.parametrize("settings", SETTINGS[1::2])
def test_the_loop_that_speed_is_measured_against_gives_the_same(settings):
    stage = helpers.tiny(**settings)
    ours, theirs = stage(helpers.QUESTIONS), GillLoop(stage)(helpers.QUESTIONS)
    for a, b in zip(ours, theirs, strict=True):
        helpers.assert_same(a, b)
        assert (a.usage, a.notes) == (b.usage, b.notes)
