"""Anole against results of the original program, kept in `anole_upstream.npz`."""

import anole_helpers as upstream
import numpy as np
import pytest
import torch
from picture_helpers import png

from plait.generators.anole.codec import encoder_input
from plait.generators.decoding.drafting import NativePrompt
from plait.generators.decoding.payloads import pack
from plait.generators.decoding.streams import Streams
from plait.generators.document import ImageRequest, Request, Turn

pytestmark = pytest.mark.models


@pytest.fixture
def draft(stage):
    return lambda **settings: stage("anole/meta", max_images=9, **settings)


def prompts(stage, seed: int = 0) -> list[NativePrompt]:
    turns = [(Turn("user", tuple(content)),) for content in upstream.contents()]
    return [stage.prompt(Request(turn, seed)) for turn in turns]


@pytest.mark.parametrize("name", upstream.PICTURES)
def test_images_are_prepared_and_become_the_same_codes(name, arrays, draft):
    pixels = encoder_input(png(upstream.picture(*upstream.PICTURES[name])), 64)
    expected = (arrays[f"picture_{name}"] / 255.0 * 2 - 1).astype(np.float32)
    assert np.array_equal(pixels.numpy(), expected)
    codes = draft().codec.encode(pixels)
    assert codes.ravel().tolist() == arrays[f"codes_{name}"].tolist()


def test_prompts_are_the_same_ids(arrays, draft):
    for i, prompt in enumerate(prompts(draft())):
        assert prompt.ids == arrays[f"prompt_{i}"].tolist()


def next_logits(model, prompts) -> torch.Tensor:
    """Logits after each prompt, (prompts, vocabulary)."""
    streams = Streams(model.model, 4096)
    streams.open([model.model.embed_tokens(torch.tensor(prompt)) for prompt in prompts])
    return model.lm_head(streams.step()).detach()


def test_first_logits(arrays, draft):
    for i in range(3):
        logits = next_logits(draft().language.model, [arrays[f"prompt_{i}"].tolist()])
        assert np.abs(logits[0].numpy() - arrays[f"logits_{i}"]).max() < 1e-4


def test_answers_are_the_same_ids(arrays, draft):
    stops, images = set(), 0
    for run, settings in enumerate(upstream.RUNS):
        seed, others = settings["seed"], {k: v for k, v in settings.items() if k != "seed"}
        stage = draft(**others)
        for i, track in enumerate(stage.tracks(prompts(stage, seed))):
            assert track.ids == arrays[f"ids_{i}_{run}"].tolist(), (run, i)
            stops.add(str(track.stop))
            images += track.images
    assert stops == {"end of sequence", "context full", "text budget reached"}
    assert images > 20


def test_pixels(arrays, stage):
    codes = torch.from_numpy(upstream.codes())
    requests = [ImageRequest(payload=pack(codes=c)) for c in codes]
    drawn = stage("anole/meta", "render")(requests)
    ours = np.stack([r.value.pixels for r in drawn])
    differences = np.abs(ours.astype(int) - arrays["pixels"].astype(int))
    # Values are truncated to 8 bits, so noise of 1e-6 can move a pixel by one level.
    assert differences.max() <= 1
    assert (differences > 0).mean() < 1e-3
