"""GILL against results of the original program, kept in `gill_upstream.npz`."""

import json

import gill_helpers as upstream
import numpy as np
import pytest
import torch

from plait.generators.decoding.drafting import Stop
from plait.generators.decoding.payloads import pack, unpack
from plait.generators.document import ImageRequest, Text

pytestmark = pytest.mark.models


@pytest.fixture
def draft(stage):
    return lambda **settings: stage("gill", **upstream.BASE | settings)


@pytest.fixture
def render(stage):
    settings = {"steps": upstream.STEPS, "guidance": upstream.GUIDANCE}
    return stage("gill", "render", **settings)


def prompts(stage, run: int = 0) -> list:
    """Of all conversations."""
    seeds = (upstream.seed_of(c, run) for c in range(4))
    return [stage.prompt(upstream.request(c, seed)) for c, seed in enumerate(seeds)]


@pytest.mark.parametrize("name", upstream.PICTURES)
def test_images_are_prepared_as_upstream(name, arrays, draft):
    """Squashed as by upstream's programs, and cropped as by its function alone."""
    vision = draft().vision
    for resize, kind in (("squash", "pixels"), ("crop", "cropped")):
        ours = vision.pixels(upstream.image(name), resize)
        assert np.abs(ours.numpy() - arrays[f"{kind}_{name}"]).max() < 1e-6


def test_prompts_and_first_logits(arrays, draft):
    """Ids, white space around image names, the BOS, and what images become."""
    for index, ours in enumerate(draft().embed(prompts(draft()))):
        expected = arrays[f"prefix_{index}"]
        assert ours.shape == expected.shape
        assert np.abs(ours.numpy() - expected).max() < 1e-5
        positions = torch.arange(len(ours))[None]
        hidden = (
            draft()
            .decoder(inputs_embeds=ours[None], position_ids=positions, use_cache=False)
            .last_hidden_state
        )
        logits = draft().logits(hidden[0, -1:])[0].detach().numpy()
        finite = np.isfinite(arrays[f"logits_{index}"])
        assert (~finite).sum() == upstream.VOKENS - 1
        assert np.abs(logits - arrays[f"logits_{index}"])[finite].max() < 1e-4


def test_answers_are_the_same_ids_and_documents(arrays, draft):
    """Ours end where upstream cuts its full length of ids afterwards.

    Texts are as upstream returns them, with the names of image tokens; images between.
    """
    expected = json.loads(str(arrays["texts"]))
    stops, images, opening = set(), 0, set()
    for run, settings in enumerate(upstream.RUNS):
        stage = draft(**settings)
        asked = prompts(stage, run)
        newline = stage.tokens.newline
        for index, track in enumerate(stage.tracks(asked)):
            theirs = arrays[f"ids_{index}_{run}"].tolist()
            assert track.ids == theirs[: len(track.ids)]
            line_ends = theirs.index(newline) if newline in theirs else 0
            if track.stop is Stop.LINE:
                assert len(track.ids) == line_ends > 0
            else:
                assert line_ends == 0 or line_ends >= len(track.ids)
            if track.stop is Stop.WORDS:
                assert len(track.ids) == len(theirs)
            segments = stage.result(asked[index], track).value.segments
            texts = [s.text for s in segments if isinstance(s, Text)]
            assert texts == expected[f"{index}_{run}"]
            drawn = [isinstance(s, ImageRequest) for s in segments]
            assert drawn == ([False, True] * len(texts) if any(drawn) else [False])
            stops.add(str(track.stop))
            images += len(track.images)
            opening |= {*track.ids[:1]}
    assert stops == {"end of line", "word budget reached", "image limit reached"}
    assert images > 50
    assert newline in opening


@pytest.mark.parametrize("run", [0, 2])
def test_states_are_those_of_the_uncached_program(run, arrays, draft):
    requests = [upstream.request(index, 0) for index in range(4)]
    for index, outcome in enumerate(draft(**upstream.RUNS[run])(requests)):
        expected = arrays.get(f"states_{index}_{run}", np.zeros((0, 8, 64)))
        ours = [unpack(r.payload, "states")[0] for r in outcome.value.requests]
        assert len(ours) == len(expected)
        for states, theirs in zip(ours, expected, strict=True):
            assert np.abs(states.numpy() - theirs).max() < 1e-4 * np.abs(expected).max()


def test_conditioning(arrays, render):
    states = np.stack([arrays[f"states_{c}_2"][0] for c in range(4)])
    ours = render.map_states(torch.from_numpy(states)).numpy()
    expected = np.stack([arrays[f"cond_{c}"] for c in range(4)])
    assert np.abs(ours - expected).max() < 1e-4


def test_pixels(arrays, render):
    cases = [c for c in range(4) if f"picture_{c}" in arrays]
    states = [torch.from_numpy(arrays[f"states_{c}_2"][0]) for c in cases]
    requests = [
        ImageRequest(payload=pack(states=s), seed=upstream.seed_of(c, 1))
        for c, s in zip(cases, states, strict=True)
    ]
    assert len(cases) >= 2
    for index, outcome in zip(cases, render(requests), strict=True):
        difference = outcome.value.pixels.astype(int) - arrays[f"picture_{index}"]
        assert np.abs(difference).max() <= 1
