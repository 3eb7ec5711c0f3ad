"""PickScore and HPSv2 against their published programs' arithmetic, on tiny weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from clipscore_helpers import LONG, picture, pixels, save_transformers_clip
from contents import document, query_of
from stages import StagesHere
from torchvision.transforms import (
    CenterCrop,
    Compose,
    InterpolationMode,
    Normalize,
    Resize,
    ToTensor,
)
from torchvision.transforms import functional as F
from transformers import BertTokenizer

from plait.cluster.walks import drive
from plait.generators.architectures import config_of
from plait.generators.base import Failure, NotApplicable
from plait.generators.document import Image
from plait.generators.errors import CheckpointError
from plait.scorers import resolve_scorer
from plait.scorers.clip.model import TINY, build
from plait.scorers.imagereward import ImageReward

pytestmark = pytest.mark.models

STAGES = StagesHere()
SIZES = [(32, 32), (90, 31), (31, 47), (200, 33), (35, 32)]
TEXTS = ["a cat on a table", "The QUICK  fox; jumps,\nover 12 dogs.", "été &amp; Co", LONG]


def scored(scorer: Any, text: str, *images: Image) -> Any:
    walk = scorer.judge(query_of(text), document(*images))
    return drive(walk, STAGES.outcomes)


def values(scorer: Any, text: str, images: Sequence[Image]) -> list[float]:
    outcome = scored(scorer, text, *images)
    assert outcome.value.value == pytest.approx(np.mean(outcome.value.parts["images"]))
    return outcome.value.parts["images"]


IMAGES = [picture(i, size) for i, size in enumerate(SIZES)]
PIXELS = [pixels(i, size) for i, size in enumerate(SIZES)]


def test_pickscore_is_what_its_authors_program_computes(tmp_path: Path) -> None:
    """README of yuvalkirstain/PickScore, with transformers 5's `pooler_output`."""
    model, processor = save_transformers_clip(tmp_path, 4)
    model.logit_scale.data.fill_(3.5)
    model.save_pretrained(tmp_path)
    settings = {"model": str(tmp_path), "architecture": None}
    for text in TEXTS:
        own = values(resolve_scorer("pickscore", "pretrained", settings), text, IMAGES)
        sizes = {"padding": True, "truncation": True, "max_length": 77}
        asked = processor.tokenizer(text, return_tensors="pt", **sizes)
        shown = _slow(processor, PIXELS)
        with torch.no_grad():
            image_embs = model.get_image_features(shown).pooler_output
            image_embs = image_embs / torch.norm(image_embs, dim=-1, keepdim=True)
            text_embs = model.get_text_features(**asked).pooler_output
            text_embs = text_embs / torch.norm(text_embs, dim=-1, keepdim=True)
            scores = model.logit_scale.exp() * (text_embs @ image_embs.T)[0]
        np.testing.assert_allclose(own, scores.numpy(), atol=1e-4)
        assert np.ptp(own) > 0.5


def _slow(processor: Any, images: Sequence[Any]) -> torch.Tensor:
    """Pixels by Pillow, as transformers prepared them when the checkpoint was published."""
    from transformers import CLIPImageProcessorPil

    sizes = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    prepared = CLIPImageProcessorPil(**sizes)(images, return_tensors="pt")
    return prepared["pixel_values"]


@pytest.fixture
def hps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, dict[str, Any]]:
    """A toy model, and the settings of its weights under a name as HPSv2's."""
    monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, "toy", TINY)
    torch.manual_seed(12)
    model = build(TINY, "float32")
    torch.save({"state_dict": model.state_dict()}, tmp_path / "HPS_v2.1_compressed.pt")
    return model, {"model": str(tmp_path), "architecture": "toy"}


def test_hpsv2_is_what_its_authors_program_computes(hps: Any) -> None:
    """`hpsv2/img_score.py` and `ResizeMaxSize` of its `open_clip/transform.py`."""
    model, settings = hps
    for text in TEXTS:
        own = values(resolve_scorer("hpsv2.1", "pretrained", settings), text, IMAGES)
        with torch.no_grad():
            images = torch.stack([_padded(image) for image in PIXELS])
            image_features = model.encode_image(images, normalize=True)
            text_features = model.encode_text(open_clip.tokenize([text]), normalize=True)
            scores = (image_features @ text_features.T)[:, 0]
        np.testing.assert_allclose(own, scores.numpy(), atol=2e-6)
        assert np.ptp(own) > 0.01


def _padded(image: Any, side: int = 32) -> torch.Tensor:
    pixels = F.to_tensor(image)
    height, width = pixels.shape[1:]
    scale = side / float(max(height, width))
    if scale != 1.0:
        new_size = tuple(round(dim * scale) for dim in (height, width))
        pixels = F.resize(pixels, new_size, InterpolationMode.BICUBIC)
        pad_h, pad_w = side - new_size[0], side - new_size[1]
        ends = [pad_w // 2, pad_h // 2, pad_w - pad_w // 2, pad_h - pad_h // 2]
        pixels = F.pad(pixels, ends, fill=0)
    mean, std = open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD
    return F.normalize(pixels, mean, std)


@pytest.fixture
def rewards(tmp_path: Path) -> tuple[Any, dict[str, Any]]:
    """The tiny ImageReward saved in the published layout, and the settings that name it."""
    stage = ImageReward(weights="tiny")
    model, sizes = stage._model, config_of("imagereward", tiny=True)["text"]
    extra = {"blip.vision_proj.weight": torch.zeros(2, 64)}
    torch.save(model.state_dict() | extra, tmp_path / "ImageReward.pt")
    config = {"add_cross_attention": True, "encoder_width": 768, "hidden_act": "gelu"}
    (tmp_path / "med_config.json").write_text(json.dumps(sizes | config))
    stage._tokenizer.no_padding()
    stage._tokenizer.no_truncation()
    stage._tokenizer.save(str(tmp_path / "tokenizer.json"))
    return model, {"model": str(tmp_path), "tokenizer": str(tmp_path)}


def test_imagereward_is_what_its_authors_program_computes(rewards: Any) -> None:
    """`ImageReward.score` in ImageReward/ImageReward.py."""
    model, settings = rewards
    tokenizer = BertTokenizer.from_pretrained(settings["tokenizer"])
    preprocess = Compose(
        [
            Resize(32, interpolation=InterpolationMode.BICUBIC),
            CenterCrop(32),
            ToTensor(),
            Normalize(open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD),
        ]
    )
    sizes = {"padding": "max_length", "truncation": True, "max_length": 35}
    for text in TEXTS:
        own = values(resolve_scorer("imagereward", "pretrained", settings), text, IMAGES)
        asked = tokenizer(text, return_tensors="pt", **sizes)
        theirs = []
        for image in PIXELS:
            with torch.no_grad():
                image_embeds = model.blip.visual_encoder(preprocess(image)[None])
                image_atts = torch.ones(image_embeds.size()[:-1], dtype=torch.long)
                text_output = model.blip.text_encoder(
                    asked.input_ids,
                    attention_mask=asked.attention_mask,
                    encoder_hidden_states=image_embeds,
                    encoder_attention_mask=image_atts,
                )
                reward = model.mlp.layers(text_output.last_hidden_state[:, 0, :].float())
            theirs.append(((reward - 0.16717362830052426) / 1.0333394966054072).item())
        np.testing.assert_allclose(own, theirs, atol=1e-5)
        assert np.ptp(own) > 0.01


@pytest.fixture
def aesthetic(tmp_path: Path) -> tuple[Any, Any, dict[str, torch.Tensor], dict[str, str]]:
    """A toy CLIP with its processor, a head for it, and the settings that name both."""
    model, processor = save_transformers_clip(tmp_path, 4)
    sizes, generator = (24, 1024, 128, 64, 16, 1), torch.Generator().manual_seed(2)
    head = {}
    for i, n, m in zip((0, 2, 4, 6, 7), sizes, sizes[1:], strict=False):
        shapes = {"weight": (m, n), "bias": (m,)}
        for part, shape in shapes.items():
            values = torch.randn(shape, generator=generator) * n**-0.5
            head[f"layers.{i}.{part}"] = values
    torch.save(head, tmp_path / "head.pth")
    named = {"model": str(tmp_path), "head": str(tmp_path), "head_file": "head.pth"}
    return model, processor, head, named | {"processor": "transformers"}


def test_aesthetic_is_what_its_authors_program_computes(aesthetic: Any) -> None:
    """`simple_inference.py` of christophschuhmann/improved-aesthetic-predictor."""
    model, processor, head, settings = aesthetic
    own = values(resolve_scorer("aesthetic", "pretrained", settings), "", IMAGES)
    with torch.no_grad():
        features = model.get_image_features(_slow(processor, PIXELS)).pooler_output.numpy()
    norms = np.linalg.norm(features, 2, -1, keepdims=True)
    rows = torch.from_numpy(features / norms)
    for i in (0, 2, 4, 6, 7):
        weight, bias = head[f"layers.{i}.weight"], head[f"layers.{i}.bias"]
        rows = torch.nn.functional.linear(rows, weight, bias)
    np.testing.assert_allclose(own, rows[:, 0].numpy(), atol=2e-6)
    assert np.ptp(own) > 0.01


def test_aesthetic_reads_the_records_of_others_and_a_head_that_fits(
    aesthetic: Any, tmp_path: Path
) -> None:
    *_, head, settings = aesthetic
    scorer = resolve_scorer("aesthetic", "pretrained", settings)
    about = {"model": settings["model"], "processor": "transformers", "architecture": None}
    pick = resolve_scorer("pickscore", "pretrained", about)
    both = [next(s.judge(query_of("a cat"), document(IMAGES[0]))) for s in (scorer, pick)]
    assert both[0][-1].key == both[1][-1].key
    torch.save(head | {"layers.0.weight": torch.zeros(1024, 25)}, tmp_path / "wide.pth")
    wide = resolve_scorer("aesthetic", "pretrained", settings | {"head_file": "wide.pth"})
    assert isinstance(scored(wide, "", IMAGES[0]), Failure)
    torch.save(head | {"layers.8.weight": torch.zeros(1)}, tmp_path / "more.pth")
    more = resolve_scorer("aesthetic", "pretrained", settings | {"head_file": "more.pth"})
    with pytest.raises(CheckpointError, match=r"unexpected: layers\.8\.weight"):
        scored(more, "", IMAGES[0])


def test_other_keys_and_a_missing_file_are_named(hps: Any, tmp_path: Path) -> None:
    _, settings = hps
    stored = torch.load(tmp_path / "HPS_v2.1_compressed.pt")
    stored["state_dict"]["extra"] = stored["state_dict"].pop("logit_scale")
    torch.save(stored, tmp_path / "HPS_v2.1_compressed.pt")
    with pytest.raises(CheckpointError, match=r"missing: logit_scale.*unexpected: extra"):
        scored(resolve_scorer("hpsv2.1", "pretrained", settings), "a", IMAGES[0])
    with pytest.raises(CheckpointError, match=r"no file 'HPS_v2_compressed\.pt'"):
        scored(resolve_scorer("hpsv2", "pretrained", settings), "a", IMAGES[0])


@pytest.mark.parametrize(
    "name", ["hpsv2.1", "hpsv3", "imagereward", "pickscore", "siglip2"]
)
def test_a_question_without_text_is_not_asked_about(name: str) -> None:
    walk = resolve_scorer(name, "tiny", {}).judge(query_of(" "), document(IMAGES[0]))
    assert isinstance(drive(walk, list), NotApplicable)
