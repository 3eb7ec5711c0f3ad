"""Anole against results of the original program, kept in `anole_upstream.npz`."""

import functools

import anole_upstream_helpers as upstream
import numpy as np
import pytest
import torch
from picture_helpers import png

from generators.anole.codec import Codec, encoder_input, pack_codes
from generators.anole.draft import AnoleDraft
from generators.anole.render import AnoleRender
from generators.decoding.streams import Streams
from generators.document import ImageRequest, Request, Turn

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return upstream.checkpoint(tmp_path_factory.mktemp("anole") / "published")


@pytest.fixture(scope="module")
def arrays():
    with np.load(upstream.ARRAYS) as stored:
        return dict(stored)


@pytest.fixture(scope="module")
def stage(folder):
    @functools.cache
    def make(**settings) -> AnoleDraft:
        told = {"device": "cpu", "dtype": "float32", "max_images": 9} | settings
        return AnoleDraft(weights="pretrained", model=str(folder), **told)

    return make


def prompts(stage) -> list[tuple[int, ...]]:
    requests = [Request((Turn("user", tuple(c)),), seed=0) for c in upstream.contents()]
    return [stage.prompt(r).ids for r in requests]


@pytest.mark.parametrize("name", upstream.PICTURES)
def test_pictures_are_prepared_as_upstream(name, arrays):
    image = png(upstream.picture(*upstream.PICTURES[name]))
    expected = (arrays[f"picture_{name}"] / 255.0 * 2 - 1).astype(np.float32)
    assert np.array_equal(encoder_input(image, 64).numpy(), expected)


@pytest.mark.parametrize("name", upstream.PICTURES)
def test_pictures_become_the_same_codes(name, arrays, stage):
    image = png(upstream.picture(*upstream.PICTURES[name]))
    codec: Codec = stage().codec
    assert (
        codec.encode(encoder_input(image, 64)).ravel().tolist()
        == arrays[f"codes_{name}"].tolist()
    )


def test_prompts_are_the_same_ids(arrays, stage):
    for i, ids in enumerate(prompts(stage())):
        assert list(ids) == arrays[f"prompt_{i}"].tolist()


def next_logits(model, prompts) -> torch.Tensor:
    """Logits after each prompt, (prompts, vocabulary)."""
    streams = Streams(model.model, 4096)
    streams.open([model.model.embed_tokens(torch.tensor(prompt)) for prompt in prompts])
    return model.lm_head(streams.step()).detach()


def test_first_logits(arrays, stage):
    for i in range(3):
        logits = next_logits(stage().language.model, [arrays[f"prompt_{i}"].tolist()])
        assert np.abs(logits[0].numpy() - arrays[f"logits_{i}"]).max() < 1e-4


def test_first_logits_of_a_picture(arrays, stage):
    """Three streams, guidance, allow-list, temperature and top-p, in upstream's words."""
    language = stage().language
    vocabulary = language.vocabulary
    kept = {*vocabulary.image, vocabulary.bos, vocabulary.begin_image, vocabulary.end_image}
    sampler = stage().rules.image
    for i in range(3):
        full = [*arrays[f"prompt_{i}"].tolist(), vocabulary.begin_image]
        contexts = [full, [t for t in full if t in kept], [vocabulary.bos, full[-1]]]
        a, b, c = next_logits(language.model, contexts)[:, list(vocabulary.image)]
        mixed = (c + 1.2 * (b - c) + 3.0 * (a - b)) / sampler.temperature
        expected = arrays[f"image_logits_{i}"]
        kept_there = np.isfinite(expected)
        assert 1 < kept_there.sum() < 128
        assert np.abs(mixed.numpy() - expected)[kept_there].max() < 2e-4


@pytest.mark.parametrize("run", range(len(upstream.RUNS)))
def test_answers_are_the_same_ids(run, arrays, stage):
    settings = dict(upstream.RUNS[run])
    seed = settings.pop("seed")
    ours = stage(**settings)._interleave(prompts(stage()), [seed] * 3)
    for i, track in enumerate(ours):
        assert track.generated == arrays[f"ids_{i}_{run}"].tolist()


def test_runs_cover_pictures_and_every_stop(arrays, stage):
    stops, images = set(), 0
    for run in upstream.RUNS:
        settings = {k: v for k, v in run.items() if k != "seed"}
        tracks = stage(**settings)._interleave(prompts(stage()), [run["seed"]] * 3)
        stops |= {str(t.stop) for t in tracks}
        images += sum(t.images for t in tracks)
    assert stops == {"end of sequence", "context full", "text budget reached"}
    assert images > 20


def test_pixels(arrays, folder):
    render = AnoleRender(weights="pretrained", model=str(folder), device="cpu")
    requests = [ImageRequest(payload=pack_codes(c)) for c in upstream.codes()]
    ours = np.stack([r.value.pixels for r in render(requests)])
    differences = np.abs(ours.astype(int) - arrays["pixels"].astype(int))
    # Values are truncated to 8 bits, so noise of 1e-6 can move a pixel by one level.
    assert differences.max() <= 1
    assert (differences > 0).mean() < 1e-3


def test_the_arrays_belong_to_these_weights(stage, arrays):
    """Should the frozen generators ever change, say so before anything else does."""
    total = sum(v.double().sum().item() for v in upstream.taming().values())
    assert total == pytest.approx(TAMING_SUM, abs=1e-6)
    state = {k: v for k, v in upstream.state().items() if v is not None}
    total = sum(torch.as_tensor(v).double().sum().item() for v in state.values())
    assert total == pytest.approx(STATE_SUM, abs=1e-6)


TAMING_SUM, STATE_SUM = 1949.9863520108088, 1784.5572312889287
