"""Inception, DINOv2 and SigLIP2 against direct calls of the published programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from clipscore_helpers import LONG, picture, pixels
from contents import document, query_of
from stages import StagesHere
from torchmetrics.image.fid import FrechetInceptionDistance
from transformers import (
    BitImageProcessorPil,
    Dinov2Model,
    SiglipImageProcessorPil,
    SiglipModel,
)

from plait.cluster.walks import drive
from plait.generators.document import Image, Text
from plait.generators.errors import CheckpointError
from plait.scorers import resolve_scorer
from plait.scorers.embeddings.inception import InceptionEmbed
from plait.scorers.embeddings.records import vectors
from plait.scorers.embeddings.vision import DinoEmbed, SiglipEmbed

pytestmark = pytest.mark.models

STAGES = StagesHere()
SIZES = [(32, 32), (90, 31), (31, 47), (200, 33), (36, 310)]
IMAGES = [picture(i, size) for i, size in enumerate(SIZES)]
PIXELS = [pixels(i, size) for i, size in enumerate(SIZES)]
TEXTS = ["a cat on a table", "The QUICK  fox;\nété", LONG]


def features(stage: Any, *parts: Image | str) -> np.ndarray:
    given = [Text(p) if isinstance(p, str) else p for p in parts]
    return vectors(outcome.value for outcome in stage(given))


def published(folder: Path, kind: str, stage: Any) -> dict[str, str]:
    """Save the weights of a tiny stage in the published layout; return their settings."""
    if kind == "inception":
        model = stage.encoder.encode
        classes = {"fc.weight": torch.zeros(1008, 2048), "fc.bias": torch.zeros(1008)}
        torch.save(model.state_dict() | classes, folder / "inception.pth")
        return {"model": str(folder / "inception.pth")}
    model = stage.encoder.encode.__closure__[0].cell_contents
    model.save_pretrained(folder)
    sizes = {"size": {"shortest_edge": 36}, "crop_size": {"height": 32, "width": 32}}
    processor: Any = BitImageProcessorPil(**sizes, image_mean=[0.5, 0.4, 0.3])
    if kind == "siglip":
        processor = SiglipImageProcessorPil(size={"height": 32, "width": 32}, resample=2)
    processor.save_pretrained(folder)
    return {"model": str(folder)}


def test_inception_gives_the_features_that_torchmetrics_takes(tmp_path: Path) -> None:
    pytest.importorskip("torch_fidelity")
    settings = published(tmp_path, "inception", InceptionEmbed(weights="tiny"))
    metric = FrechetInceptionDistance(feature_extractor_weights_path=settings["model"])
    theirs = [
        metric.inception(torch.from_numpy(np.array(p)).permute(2, 0, 1)[None])[0].numpy()
        for p in PIXELS
    ]
    own = features(InceptionEmbed(**settings), *IMAGES)
    assert own.shape == (len(IMAGES), 2048)
    assert np.ptp(theirs, axis=0).max() > 0.1
    np.testing.assert_allclose(own, theirs, rtol=1e-4, atol=1e-5)


def test_dinov2_is_transformers_own(tmp_path: Path) -> None:
    settings = published(tmp_path, "dinov2", DinoEmbed(weights="tiny"))
    model = Dinov2Model.from_pretrained(tmp_path).eval()
    processor = BitImageProcessorPil.from_pretrained(tmp_path)
    with torch.no_grad():
        given = [processor(p, return_tensors="pt")["pixel_values"] for p in PIXELS]
        theirs = torch.cat([model(p).last_hidden_state[:, 0] for p in given]).numpy()
    own = features(DinoEmbed(**settings), *IMAGES)
    assert np.ptp(theirs, axis=0).min() > 0.01
    np.testing.assert_allclose(own, theirs, atol=1e-5)


def siglip(folder: Path) -> dict[str, str]:
    stage = SiglipEmbed(weights="tiny")
    read = stage.encoder.texts.read
    tokenizer = next(c for c in read.__closure__ if hasattr(c.cell_contents, "encode"))
    tokenizer.cell_contents.save(str(folder / "tokenizer.json"))
    return published(folder, "siglip", stage)


def test_siglip2_is_the_cosine_behind_transformers_logits(tmp_path: Path) -> None:
    settings = siglip(tmp_path)
    model = SiglipModel.from_pretrained(tmp_path).eval()
    processor = SiglipImageProcessorPil.from_pretrained(tmp_path)
    shown = torch.cat([processor(p, return_tensors="pt")["pixel_values"] for p in PIXELS])
    for text in TEXTS:
        scorer = resolve_scorer("siglip2", "pretrained", settings)
        walk = scorer.judge(query_of(text), document(*IMAGES))
        own = drive(walk, STAGES.outcomes).value.parts["images"]
        octets = [4 + byte for byte in text.lower().encode()][:63]
        ids = torch.tensor([[*octets, 1, *[0] * (63 - len(octets))]])
        with torch.no_grad():
            logits = model(input_ids=ids, pixel_values=shown).logits_per_image[:, 0]
        cosines = (logits - model.logit_bias) / model.logit_scale.exp()
        np.testing.assert_allclose(own, cosines.detach().numpy(), atol=2e-6)
        assert np.ptp(own) > 1e-3


@pytest.mark.parametrize("kind", ["inception", "dinov2", "siglip"])
def test_other_keys_and_missing_files_are_named(kind: str, tmp_path: Path) -> None:
    of = {"inception": InceptionEmbed, "dinov2": DinoEmbed, "siglip": SiglipEmbed}[kind]
    stage = of(weights="tiny")
    settings = published(tmp_path, kind, stage)
    if kind == "inception":
        stored = torch.load(settings["model"])
        stored["extra"] = stored.pop("Mixed_7c.branch_pool.conv.weight")
        torch.save(stored, settings["model"])
        with pytest.raises(CheckpointError, match=r"missing: Mixed_7c.*unexpected: extra"):
            of(**settings)
        return
    if kind == "siglip":
        with pytest.raises(CheckpointError, match=r"no file 'tokenizer\.json'"):
            of(**settings)
    model = stage.encoder.encode.__closure__[0].cell_contents
    state = model.state_dict()
    state["extra"] = state.pop(next(iter(state)))
    model.save_pretrained(tmp_path, state_dict=state)
    with pytest.raises(CheckpointError, match=r"missing: 1.*unexpected: 1 \(extra\)"):
        of(**settings)


def test_weights_that_cannot_be_downloaded_say_where_to_put_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    place = tmp_path / "checkpoints" / "there-6726825d.pth"
    with pytest.raises(CheckpointError, match=f"cannot be downloaded to {place}"):
        InceptionEmbed(model="file:///not/there-6726825d.pth")
