"""The mini CLIP: OpenAI's architecture and tokenizer at 64 pixels, in open_clip's layout.

Contrastive learning (Radford et al. 2021) with hard negatives: a batch holds groups of
scenes that differ in one attribute. Beside it both towers' features are read by the same
linear layers for what stands where, which they learn much sooner than from contrast alone;
these layers are not kept.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from open_clip import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.miniature.training.clip.data import (
    ClipBatch,
    ScenePool,
    full_text,
    padded,
)
from benchmarks.miniature.training.labels import CLASSES, Labels, reading_loss
from benchmarks.miniature.training.loop import Trainer, TrainingPlan
from benchmarks.miniature.training.options import training_parser
from benchmarks.miniature.training.saved import save_halves, write_measured
from benchmarks.miniature.variants import ATTRIBUTES, variant
from generators.files import write_whole
from scorers.clip.model import build
from scorers.truth.drawing import draw
from scorers.truth.scene import Scene, random_scene

CONFIG: Mapping[str, Any] = {
    "embed_dim": 64,
    "quick_gelu": True,
    "vision_cfg": {
        "image_size": 64, "patch_size": 16, "width": 96, "head_width": 24, "layers": 4,
    },
    "text_cfg": {
        "context_length": 77, "vocab_size": 49408, "width": 48, "heads": 4, "layers": 3,
    },
}  # fmt: skip
PLAN = TrainingPlan(steps=1000, rate=2e-3, warmup=100, average=0.995, save_every=200)
GROUPS, POOL = 48, 16_000
"""Groups of a batch, and of all pictures drawn for the training."""
SHARPEST = 30.0
"""Largest factor of cosines: without it matched cosines would stay small."""
READING = 0.5
"""Weight of the linear layers' loss."""


class ClipLearner:
    """The model, the layers that read its features, and the loss of a batch."""

    def __init__(
        self, config: Mapping[str, Any], pool: ScenePool, groups: int, seed: int
    ) -> None:
        torch.manual_seed(seed)
        self.model = build(config, "float32").requires_grad_(True).train()
        self.readers = nn.Linear(config["embed_dim"], sum(CLASSES))
        self._pool, self._groups, self._seed = pool, groups, seed

    def loss(self, step: int) -> Tensor:
        """Contrast, and what both towers' features tell about the scenes."""
        batch = self._pool.batch(self._seed * 1_000_003 + step, self._groups)
        # Flash attention's backward pass takes three times as long on a CPU.
        with sdpa_kernel(SDPBackend.MATH), torch.autocast("cpu", torch.bfloat16):
            pictures = self.model.encode_image(worn(pixels(batch.pictures)))
            texts = encoded_texts(self.model, torch.from_numpy(batch.tokens))
        pictures = F.normalize(pictures.float(), dim=-1)
        texts = F.normalize(texts.float(), dim=-1)
        reading = self._reading(pictures, batch.shown) + self._reading(texts, batch.said)
        return self._contrast(pictures, texts, batch) + READING * reading

    def _contrast(self, pictures: Tensor, texts: Tensor, batch: ClipBatch) -> Tensor:
        scale = self.model.logit_scale.exp().clamp(max=SHARPEST)
        logits = scale * texts @ pictures.T
        # What is true of another picture too is no mistake.
        also = torch.from_numpy(batch.true())
        also.fill_diagonal_(False)
        logits = logits.masked_fill(also, -torch.inf)
        pairs = torch.arange(len(logits))
        return (F.cross_entropy(logits, pairs) + F.cross_entropy(logits.T, pairs)) / 2

    def _reading(self, features: Tensor, labels: Labels) -> Tensor:
        return reading_loss(self.readers, features * features.shape[-1] ** 0.5, labels)


def pixels(pictures: npt.NDArray[np.uint8]) -> Tensor:
    """(pictures, 3, side, side) as CLIP's preprocessing gives them."""
    values = torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 255
    mean = torch.tensor(OPENAI_DATASET_MEAN).view(3, 1, 1)
    return (values - mean) / torch.tensor(OPENAI_DATASET_STD).view(3, 1, 1)


def worn(values: Tensor) -> Tensor:
    """Pictures with soft edges and noise, as models draw them; half of them unchanged."""
    rows = (torch.rand(len(values)) < 0.5).nonzero()[:, 0]
    chosen = values[rows]
    count = (len(chosen), 1, 1, 1)
    soft = F.avg_pool2d(chosen, 3, stride=1, padding=1, count_include_pad=False)
    chosen = torch.lerp(chosen, soft, torch.rand(count))
    noise = torch.randn_like(chosen) * (0.25 * torch.rand(count))
    return values.index_copy(0, rows, chosen + noise)


def encoded_texts(model: Any, ids: Tensor) -> Tensor:
    """As `model.encode_text`, without computing what lies behind the longest text."""
    length = ids.shape[1]
    states = model.token_embedding(ids) + model.positional_embedding[:length]
    states = model.transformer(states, attn_mask=model.attn_mask[:length, :length])
    ends = model.ln_final(states)[torch.arange(len(ids)), ids.argmax(dim=-1)]
    projected: Tensor = ends @ model.text_projection
    return projected


def save_clip(model: Any, config: Mapping[str, Any], folder: Path) -> None:
    """open_clip's layout in float16; words that no text of the world has become zeros."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {n: t.detach().to(torch.float16) for n, t in model.state_dict().items()}
    used = sorted(_vocabulary())
    table = tensors["token_embedding.weight"]
    tensors["token_embedding.weight"] = torch.zeros_like(table)
    tensors["token_embedding.weight"][used] = table[used]
    limit = torch.tensor(SHARPEST).log().to(torch.float16)
    tensors["logit_scale"] = tensors["logit_scale"].clamp(max=limit)
    save_halves(tensors, folder / "open_clip_model.safetensors")
    about = json.dumps({"model_cfg": config, "preprocess_cfg": {}}, indent=2)
    write_whole(folder / "open_clip_config.json", f"{about}\n".encode())


def _vocabulary() -> set[int]:
    """Tokens of many texts: the grammar has few words."""
    pool, rng = ScenePool(0, 0), random.Random(0)
    scenes = [random_scene(rng, "train") for _ in range(2000)]
    return {0} | {i for scene in scenes for i in pool.writer(scene, rng)[0]}


@torch.no_grad()
def cosines(model: Any, pictures: Sequence[Scene], texts: Sequence[Scene]) -> Tensor:
    """(scenes,): of each picture and the text about the scene beside it."""
    writer, rng = ScenePool(0, 0).writer, random.Random(0)
    drawn = np.stack([np.asarray(draw(s, 10_000 + i)) for i, s in enumerate(pictures)])
    windows = [writer.tokens(full_text(scene, rng).text) for scene in texts]
    seen = F.normalize(model.encode_image(pixels(drawn)), dim=-1)
    said = F.normalize(encoded_texts(model, torch.from_numpy(padded(windows))), dim=-1)
    return (seen * said).sum(-1)


def measured(model: Any, scenes: int = 400, seed: int = 7) -> dict[str, float]:
    """AUC of matched against mismatched pairs of test scenes, at random and by attribute.

    The text of a pair is replaced: by another scene's, or by one of the same scene with
    one attribute changed.
    """
    rng = random.Random(seed)
    shown = [random_scene(rng, "test") for _ in range(scenes)]
    right = cosines(model, shown, shown)
    others = shown[1:] + shown[:1]
    values = {"cosine": float(right.mean())}
    values["random"] = auc(right, cosines(model, shown, others))
    for attribute in ATTRIBUTES:
        pairs = [(s, variant(s, attribute, rng)) for s in shown]
        kept = [(s, v) for s, v in pairs if v is not None]
        own = cosines(model, [s for s, _ in kept], [s for s, _ in kept])
        wrong = cosines(model, [s for s, _ in kept], [v for _, v in kept])
        values[attribute] = auc(own, wrong)
        values[f"{attribute}, pair by pair"] = float((own > wrong).float().mean())
    return values


def auc(right: Tensor, wrong: Tensor) -> float:
    """How often a value of `right` is above one of `wrong`; ties count half."""
    gaps = right[:, None] - wrong[None]
    return float((gaps > 0).float().mean() + (gaps == 0).float().mean() / 2)


def train(
    folder: Path,
    plan: TrainingPlan = PLAN,
    groups: int = GROUPS,
    pool: int = POOL,
    exam_size: int = 1000,
) -> Any:
    """Train, or go on with, the model; write it to `folder`/clip and return it."""
    learner = ClipLearner(CONFIG, ScenePool(pool, plan.seed + 1), groups, plan.seed)
    modules = {"clip": learner.model, "readers": learner.readers}
    state = folder / "state" / "clip"
    trainer = Trainer(modules, learner.loss, state, plan)
    trainer.run(every=500, look=lambda _: _shown(measured(learner.model)))
    with trainer:
        save_clip(learner.model, CONFIG, folder / "clip")
        results = measured(learner.model, exam_size)
    write_measured(state, {**results, **trainer.progress()})
    print(_shown(results), flush=True)
    return learner.model


def _shown(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in values.items())


def main(arguments: Sequence[str] | None = None) -> None:
    """The command `python -m benchmarks.miniature.training clip`."""
    options = training_parser("clip", __doc__, PLAN.steps).parse_args(arguments)
    train(options.out, replace(PLAN, steps=options.steps))
