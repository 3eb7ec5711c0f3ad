"""Against torchmetrics on the same weights: where it agrees, and where it is wrong."""

from __future__ import annotations

import html

import numpy as np
import pytest
import torch
from clipscore_helpers import (
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
