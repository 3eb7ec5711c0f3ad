"""Against torchmetrics on the same weights: where it agrees, and where it is wrong."""

from __future__ import annotations

import html

import numpy as np
import open_clip
import pytest
import torch
from clipscore_helpers import (
    LONG,
    candidate,
    cosines,
    picture,
    pixels,
    save_transformers_clip,
)

from scorers.clip.stage import ClipScore

pytestmark = pytest.mark.models

TEXTS = ["a cat", "The QUICK brown fox; jumps over 12 dogs.", "rain &amp; sun", "x " * 75]


class Tensors(torch.nn.Module):
    """transformers 5 returns an output object where torchmetrics 1.9 wants the tensor."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.config = model.config

    def get_image_features(self, *args):
        return self.model.get_image_features(*args).pooler_output

    def get_text_features(self, *args):
        return self.model.get_text_features(*args).pooler_output


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The stage, the transformers model and its processor, with the same weights."""
    folder = tmp_path_factory.mktemp("clip")
    model, processor = save_transformers_clip(folder)
    return ClipScore(model=str(folder), prefix=""), model, processor


def torchmetrics_score(both, text, image) -> float:
    from torchmetrics.functional.multimodal import clip_score

    _, model, processor = both
    tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    with torch.no_grad():
        value = clip_score(tensor, text, lambda: (Tensors(model), processor))
    return float(value)


def ours(both, text, image) -> float:
    return cosines(both[0]([candidate(text, image)])[0])[0]


def test_equal_for_text_that_fits_the_context(both):
    """torchmetrics clamps at 0, and does no cleaning of HTML: its texts are clean here."""
    seen = []
    for i, text in enumerate(TEXTS * 3):
        value = ours(both, text, picture(i))
        theirs = torchmetrics_score(both, html.unescape(text), pixels(i))
        assert 100 * max(value, 0) == pytest.approx(theirs, abs=2e-4)
        seen.append(theirs)
    assert sum(s > 1 for s in seen) >= 4
    assert np.ptp(seen) > 5


def test_resizing_differs_by_the_resampler_only(both):
    """Pillow's bicubic on bytes here, torchvision's on floats there."""
    for i in (0, 2, 4, 5):
        value = ours(both, "a cat", picture(i, (90, 64)))
        theirs = torchmetrics_score(both, "a cat", pixels(i, (90, 64)))
        assert theirs > 1
        assert 100 * value == pytest.approx(theirs, abs=0.02)


def features(both, ids) -> np.ndarray:
    tokens = torch.tensor([ids])
    with torch.no_grad():
        output = both[1].get_text_features(tokens, torch.ones_like(tokens))
    return output.pooler_output[0].double().numpy()


def test_long_text_is_pooled_at_its_end_and_not_at_its_start(both):
    long = LONG
    other = "Completely different words about the sea and nothing else. " * 20
    image = picture(0)
    vector = both[0].encoder.images([image])[image.digest]

    for text in (long, other):
        ids = [49406, *open_clip.SimpleTokenizer().encode(text)]
        truncated = features(both, [*ids[:76], 49407])
        expected = truncated @ vector / np.linalg.norm(truncated)
        assert ours(both, text, image) == pytest.approx(expected, abs=2e-6)

        start = features(both, [49406, 49407])
        cut = features(both, ids[:77])
        assert not np.allclose(cut, truncated, atol=1e-3)
        assert not np.allclose(start, truncated, atol=1e-3)
    assert abs(ours(both, long, image) - ours(both, other, image)) > 1e-3


def test_torchmetrics_gives_all_long_texts_one_score(both):
    """The reason why its truncation is not ours."""
    image = next(i for i in range(50) if torchmetrics_score(both, LONG, pixels(i)) > 1)
    other = "Completely different words about the sea and nothing else. " * 20
    theirs = [torchmetrics_score(both, t, pixels(image)) for t in (LONG, other)]
    assert theirs[0] == pytest.approx(theirs[1], abs=1e-5)
