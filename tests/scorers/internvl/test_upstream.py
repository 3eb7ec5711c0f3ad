"""The judge against the original programs: see `internvl_upstream_helpers`."""

from __future__ import annotations

import internvl_upstream_helpers as upstream
import numpy as np
import pytest
import torch
from contents import turn_of
from internvl_helpers import picture

from plait.generators.images import decode
from plait.generators.loading.files import Files
from plait.scorers.internvl.models import load_tokenizer, normalise
from plait.scorers.internvl.prompts import closest_grid, count, cut
from plait.scorers.internvl.stage import MmieScore, replies
from plait.scorers.internvl.tokenizer import IMAGE_TOKEN, conversation, with_control_tokens

pytestmark = pytest.mark.models

models = pytest.mark.models
ARRAYS = np.load(upstream.ARRAYS)
REQUESTS = upstream.requests()
CHANGE = 220
"""The length above which a sequence is rotated by the long frequencies."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory) -> MmieScore:
    folder = tmp_path_factory.mktemp("upstream")
    upstream.checkpoint(folder, upstream.pieces())
    return MmieScore(
        model=str(folder),
        device="cpu",
        dtype="float32",
        fit_context=False,
        max_new_tokens=upstream.NEW_TOKENS,
    )


def test_grids_of_every_size_and_maximum():
    pairs = zip(ARRAYS["grid_sizes"].tolist(), ARRAYS["grids"].tolist(), strict=True)
    for size, grids in pairs:
        ours = [list(closest_grid(tuple(size), 1, most, 448)) for most in range(1, 13)]
        assert ours == grids, size


def as_read(i: int) -> torch.Tensor:
    """Upstream's tiles of image `i`, of which whole grey levels are kept."""
    return torch.from_numpy(ARRAYS[f"tiles{i}"].transpose(0, 2, 3, 1))


def test_tiles():
    for i, image in enumerate(upstream.pictures()):
        result = decode(image)
        grid = closest_grid(result.size, 1, 12, 28)
        ours = cut(result, grid, 28, thumbnail=True)
        assert len(ours) == count(grid, thumbnail=True)
        np.testing.assert_allclose(ours, as_read(i), atol=1)
    values = normalise(as_read(2))
    np.testing.assert_allclose(values, ARRAYS["tile_values"], atol=1e-6)


@pytest.mark.parametrize("name", upstream.TOKENIZERS)
def test_ids_of_the_slow_tokenizer(name, tmp_path):
    upstream.checkpoint(tmp_path, upstream.pieces(), **upstream.TOKENIZERS[name])
    tokenizer = load_tokenizer(Files(str(tmp_path)))
    image = picture(0, 28, 28)
    for j, text in enumerate(upstream.TEXTS):
        parts = with_control_tokens(conversation([turn_of(text, image, text)], "be clear"))
        at = parts.index(IMAGE_TOKEN)
        ids = tokenizer.encode([*parts[:at], *[IMAGE_TOKEN] * 3, *parts[at + 1 :]])
        theirs = ARRAYS[f"ids_{name}_{j}"].tolist()
        assert ids == theirs, text
        assert tokenizer.decode(theirs) == str(ARRAYS[f"decoded_{name}"][j])


@models
@pytest.mark.parametrize("i", range(len(upstream.SIZES)))
def test_features(stage, i):
    ours = stage.judge.features(as_read(i), at_once=3)
    np.testing.assert_allclose(ours, ARRAYS[f"features{i}"], atol=2e-5)


@models
@pytest.mark.parametrize("r", range(len(REQUESTS)))
def test_prompts_first_scores_and_ids(stage, r):
    pictures = stage.decode([REQUESTS[r]])
    prompt = stage.prompt(REQUESTS[r], pictures)
    assert list(prompt.ids) == ARRAYS[f"prompt{r}"].tolist()
    (inputs,) = stage.embed([prompt], pictures)
    ours = first_scores(stage, inputs)
    np.testing.assert_allclose(ours, ARRAYS[f"logits{r}"], atol=1e-4)
    [reply] = replies(stage.judge, [inputs], [upstream.NEW_TOKENS], stage.end)
    # transformers 4.37 sets the beginning of a sequence before what it generates.
    written = [1, *reply.ids, *[stage.end] * (reply.stop == "stop")]
    assert written == ARRAYS[f"out{r}"].tolist()


def first_scores(stage: MmieScore, inputs: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode(), stage.judge.rope.prompts(len(inputs) > CHANGE):
        hidden = stage.judge.decoder(inputs_embeds=inputs[None]).last_hidden_state
        return stage.judge.logits(hidden[:, -1])[0]


@models
def test_replies_of_all_requests_at_once(stage):
    texts = [outcome.value.text for outcome in stage(REQUESTS)]
    assert texts == [str(ARRAYS[f"reply{r}"]) for r in range(len(REQUESTS))]
