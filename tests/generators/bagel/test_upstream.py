"""BAGEL against results of the original program, kept in `bagel_upstream.npz`."""

from __future__ import annotations

import bagel_helpers as upstream
import numpy as np
import pytest
import torch
from natives import EXACT
from safetensors.torch import load

from plait.generators.bagel.contexts import ContextStreams
from plait.generators.bagel.flow import Flow, steps_of
from plait.generators.bagel.network import Decoder
from plait.generators.bagel.settings import BagelConditionSettings
from plait.generators.document import ImageRequest

pytestmark = pytest.mark.models
THINKS = pytest.mark.parametrize("think", [False, True])


def conditioned(run: dict) -> dict:
    """The settings of the original's, under our names."""
    if not run.get("think"):
        return run
    # The mark that a text begins with counts there.
    return run | {"max_think_tokens": upstream.THINKING["max_think_token_n"] - 1}


@THINKS
def test_first_logits(think, arrays, stage):
    ours = stage("bagel-7b-mot", think=think, max_new_tokens=24)
    prompts = [ours.prompt(request) for request in upstream.requests()]
    pieces = [ours.opening_of(prompt) for prompt in prompts]
    streams = ContextStreams(ours.decoder, ours.context, pieces)
    streams.open(ours.embed(prompts))
    with torch.inference_mode():
        logits = ours.bagel.network.language_model.lm_head(streams.step()).numpy()
    for i, own in enumerate(logits):
        expected = arrays[f"logits_{i}_{int(think)}"]
        assert np.abs(own - expected).max() < 1e-5 * np.abs(expected).max()


@THINKS
def test_texts_in_one_batch_are_those_of_single_calls(think, arrays, stage):
    ours = stage("bagel-7b-mot", think=think, max_new_tokens=24)
    prompts = [ours.prompt(request) for request in upstream.requests()]
    tracks = ours.tracks(prompts)
    expected = [str(arrays[f"text_{i}_{int(think)}"]) for i in range(len(prompts))]
    assert [ours.text_of(track) for track in tracks] == expected
    calls = [int(arrays[f"calls_{i}_{int(think)}"]) for i in range(len(prompts))]
    # At the limit the original computes one token more, which it drops.
    assert [len(track.ids) for track in tracks] == [min(n, 24) for n in calls]


@pytest.mark.parametrize("run", range(len(upstream.RUNS)))
def test_latents_in_one_batch_are_those_of_single_calls(run, arrays, stage, monkeypatch):
    settings = conditioned(upstream.RUNS[run])
    ours = stage("bagel-7b-mot", "condition", **settings)
    calls = []
    advance = Flow.advance
    monkeypatch.setattr(
        Flow, "advance", lambda self, step: (calls.append(step), advance(self, step))[1]
    )
    outcomes = ours(upstream.drawings())
    for i, outcome in enumerate(outcomes):
        latents = load(outcome.value.read())["latents"].numpy()
        expected = arrays[f"latents_{run}_{i}"]
        assert np.abs(latents - expected).max() < 1e-5 * np.abs(expected).max()
        assert outcome.usage["steps"] == arrays[f"steps_{run}_{i}"] == len(calls)
        if settings.get("think"):
            assert outcome.notes["thought"] == str(arrays[f"thought_{i}"])


def test_pixels_are_those_of_the_original(arrays, stage):
    outcomes = stage("bagel-7b-mot", "condition", **upstream.RUNS[0])(upstream.drawings())
    render = stage("bagel-7b-mot", "render")
    drawn = render([ImageRequest(payload=outcome.value) for outcome in outcomes])
    for i, outcome in enumerate(drawn):
        expected = arrays[f"picture_0_{i}"]
        assert outcome.value.pixels.shape == expected.shape
        # Values at the edge between two levels are cut off to either.
        difference = np.abs(outcome.value.pixels.astype(int) - expected)
        assert difference.max() <= 1
        assert (difference > 0).mean() < 1e-3
        assert expected.std() > 20


@pytest.mark.parametrize("times", [2, 24, 50])
def test_as_many_times_are_one_evaluation_less(times, stage, monkeypatch):
    """Every evaluation of the network counts, guided or not."""
    ours = stage("bagel-7b-mot", "condition", num_timesteps=times, height=16, width=16)
    evaluations = []
    forward = Decoder.forward

    def counted(self, *arguments, **named):
        evaluations.append(named.get("causal", True))
        return forward(self, *arguments, **named)

    monkeypatch.setattr(Decoder, "forward", counted)
    (outcome,) = ours([ImageRequest("a boat", seed=1)])
    # One reads the request; the others, which attend both ways, draw.
    assert evaluations.count(True) == 1
    assert evaluations.count(False) == outcome.usage["steps"] == times - 1


@pytest.mark.parametrize("shift", [1.0, 3.0])
def test_steps_are_those_of_the_formula(shift):
    settings = BagelConditionSettings(num_timesteps=24, timestep_shift=shift)
    steps = [*steps_of(settings)]
    even = np.linspace(1, 0, 24)
    times = shift * even / (1 + (shift - 1) * even)
    assert [s.time for s in steps] == pytest.approx(times[:-1], abs=1e-6)
    assert [s.length for s in steps] == pytest.approx(-np.diff(times), abs=1e-6)
    assert [s.guided for s in steps] == [0.4 < t <= 1.0 for t in times[:-1]]
    assert settings.timesteps() == pytest.approx(times, abs=1e-12)


def test_an_edit_does_not_depend_on_its_neighbours(stage):
    ours = stage("bagel-7b-mot", "condition", num_timesteps=4)
    requests = upstream.drawings()
    together = [load(o.value.read())["latents"] for o in ours(requests)]
    for request, latents in zip(requests, together, strict=True):
        (alone,) = ours([request])
        difference = load(alone.value.read())["latents"] - latents
        assert difference.abs().max() < 1e-5 * latents.abs().max()


def test_numbers_that_are_none_fail_alone(saved):
    from plait.generators.bagel.condition import BagelCondition

    place = saved("bagel-7b-mot", "condition")
    ours = BagelCondition(**place, **EXACT, num_timesteps=3)
    sound = ImageRequest("the old house", seed=1)
    (usual,) = ours([sound])
    # A mark of its own would be in every request.
    broken = ours.bagel.encode("a red boat")[3]
    assert broken not in ours.bagel.encode("the old house")
    ours.table[broken] = torch.nan
    failed, drawn = ours([ImageRequest("a red boat", seed=1), sound])
    assert "numbers" in failed.reason
    difference = load(drawn.value.read())["latents"] - load(usual.value.read())["latents"]
    assert difference.abs().max() < 1e-5


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"height": 96}, "height is 96"), ({"context": 9999}, "context 9999 exceeds")],
)
def test_sizes_beyond_the_models_are_refused(settings, reason, saved):
    from plait.generators.bagel.condition import BagelCondition
    from plait.generators.errors import CheckpointError

    place = saved("bagel-7b-mot", "condition")
    with pytest.raises(CheckpointError, match=reason):
        BagelCondition(**place, **EXACT, **settings)
