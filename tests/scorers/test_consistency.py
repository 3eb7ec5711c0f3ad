"""Likeness of a document's pictures: float64 formula, shared records, what has none."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
from clipscore_helpers import LONG, candidate, fresh, picture, pixels, tiny

from cluster.walks import Pending, read
from generators.document import Sample, Text, Turn
from scorers.clipscore import clipscore, consistency

pytestmark = pytest.mark.models

TOLERANCE = 2e-6
"""Of cosines: float32 towers against float64 ones."""


def sample(wants_images: bool = True) -> Sample:
    turns = (Turn("user", (Text("Go on."),)),)
    about = {"category": "SA", "field": "Literature", "wants_images": wants_images}
    return Sample(id="SA-1", turns=turns, **about)


def judged(*segments, lookup=None, **about):
    document = candidate(*segments).document
    walk = consistency("tiny", {}).judge(sample(**about), document)
    return read(walk, lookup or (lambda job: tiny()([job.input])[0]))


def reference(seeds: list[int]) -> float:
    """Mean pairwise cosine in float64, pair by pair."""
    import torch
    from open_clip.transform import image_transform

    model = copy.deepcopy(tiny().encoder._clip.model).double()
    transform = image_transform(model.visual.image_size, is_train=False)
    with torch.no_grad():
        rows = [
            model.encode_image(transform(pixels(s))[None].double())[0].numpy()
            for s in seeds
        ]
    cosines = [
        a @ b / np.sqrt((a @ a) * (b @ b)) for a, b in itertools.combinations(rows, 2)
    ]
    return float(np.mean(cosines))


@pytest.mark.parametrize("seeds", [[1, 2], [1, 2, 3, 4], [5, 5, 6]])
def test_value_is_the_mean_pairwise_cosine_in_float64(seeds):
    segments = [part for s in seeds for part in (f"text {s}", picture(s))]
    result = judged(*segments)
    assert result.value.value == pytest.approx(reference(seeds), abs=TOLERANCE)
    assert result.value.parts == {"pictures": len(seeds)}


def test_equal_pictures_are_wholly_alike_and_order_does_not_matter():
    assert judged("a", picture(1), "b", picture(1)).value.value == pytest.approx(1.0)
    mixed = judged("a", picture(1), "b", picture(2), "c", picture(3)).value.value
    turned = judged("b", picture(3), picture(1), LONG, picture(2)).value.value
    assert mixed == pytest.approx(turned, abs=1e-12)
    assert mixed < 1 - 1e-3


def test_clipscore_and_consistency_share_every_record():
    document = candidate("a", picture(1), "b", picture(2)).document
    walks = [
        make("tiny", {}).judge(sample(), document) for make in (clipscore, consistency)
    ]
    pending = [read(walk, lambda job: None) for walk in walks]
    assert all(isinstance(p, Pending) for p in pending)
    first, second = (p.missing[0] for p in pending)
    assert first.key == second.key
    assert first.spec.folder == second.spec.folder
    assert first.spec.version == 2


def test_no_picture_goes_through_the_model_twice():
    stage = fresh()
    passes = []
    encode = stage.encoder._clip.model.encode_image

    def counted(batch):
        passes.append(len(batch))
        return encode(batch)

    stage.encoder._clip.model.encode_image = counted
    stage([candidate("a", picture(1), "b", picture(2), "c", picture(1))])
    assert sum(passes) == 2
