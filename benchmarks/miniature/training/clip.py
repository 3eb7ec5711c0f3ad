"""The mini CLIP: OpenAI's architecture and tokenizer at 64 pixels, in open_clip's layout.

    python -m plait.benchmarks.miniature.training.clip --out FOLDER

Contrastive learning (Radford et al. 2021) with hard negatives: a batch holds groups of
scenes that differ in one attribute. Beside it one linear layer, which is not kept, reads
both towers' features for what stands where: they learn that sooner than from contrast.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import torch
import typer
from open_clip import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.transforms import v2 as transforms
from torchvision.transforms.functional import normalize

from plait.benchmarks.miniature import scene_edits
from plait.benchmarks.miniature.training import scenes as world
from plait.benchmarks.miniature.training.loop import Out, TrainingPlan, save_weights, train
from plait.benchmarks.miniature.training.scenes import UNSAID, labels_of, reading_loss
from plait.generators.mini.table import SHIPPED
from plait.scorers.clip.model import build
from plait.scorers.clip.text import ClipText
from plait.scorers.clipscore import ClipScoreSettings
from plait.scorers.truth.language import LEADS, list_words, phrase, step
from plait.scorers.truth.scene import PLACES, Scene, random_scene

CONFIG = json.loads((SHIPPED / "clip" / "open_clip_config.json").read_text())["model_cfg"]
PLAN = TrainingPlan(steps=1000, rate=2e-3, warmup=100, average=0.995)
GROUP = 4
"""Scenes of a group: one, and others that differ from it in one attribute each."""
PARTIAL = 0.25
"""Share of texts that mention some of the items, or no background."""
SHARPEST = 30.0
"""Largest factor of cosines: without it matched cosines would stay small."""
READING = 0.5
"""Weight of the linear layer's loss."""
CONTEXT = 77
EDITS = (
    *2 * (scene_edits.recoloured, scene_edits.reshaped, scene_edits.resized),
    *2 * (scene_edits.move, scene_edits.exchange, scene_edits.repaint),
    *(scene_edits.one_more, scene_edits.one_fewer),
)
"""Each as often as it is listed."""
WORN = transforms.RandomApply(
    [transforms.GaussianBlur(3, (0.1, 1.0)), transforms.GaussianNoise(sigma=0.05)]
)
"""Half of the images get soft edges and noise, as models draw them."""


def group_of(rng: random.Random) -> list[Scene]:
    """Draw a scene and GROUP - 1 variants of it, whose items still look different."""
    group = [random_scene(rng, "train")]
    while len(group) < GROUP:
        changed = rng.choice(EDITS)(group[0], rng)
        if changed is None or changed in group or changed.split != "train":
            continue
        looks = {(item.colour, item.shape) for item in changed.items}
        if len(looks) == len(changed.items):
            group.append(changed)
    return group


def draw_text(scene: Scene, rng: random.Random) -> tuple[str, Tensor]:
    """Draw a text about the scene, or about a part of it, and the labels that it fixes."""
    labels = labels_of(scene)[0]
    whole = rng.random() >= PARTIAL
    count = len(scene.items) if whole else rng.randint(1, len(scene.items))
    items = rng.sample(scene.items, count)
    text = list_words([phrase(item) for item in items])
    said = torch.full_like(labels, UNSAID)
    for item in items:
        first = 3 * PLACES.index(item.place)
        said[first : first + 3] = labels[first : first + 3]
    if whole or rng.random() < 0.3:
        text = f"{text} on a {scene.background} background"
        said[-1] = labels[-1]
    if rng.random() < 0.8:
        text = f"{rng.choice(LEADS)} {text}."
    return step(rng.randint(1, 3), text) if rng.random() < 0.2 else text, said


PREFIX = ClipScoreSettings().prefix
READER = ClipText()


def text_batch(scenes: list[Scene], rng: random.Random) -> tuple[Tensor, Tensor]:
    """Draw a text for each scene: ids (scenes, CONTEXT), and labels (scenes, labels)."""
    ids = torch.zeros(len(scenes), CONTEXT, dtype=torch.long)
    labels = []
    for row, scene in zip(ids, scenes, strict=True):
        text, said = draw_text(scene, rng)
        labels.append(said)
        # As CLIPScore gives texts to CLIP, most of them with its prefix.
        prefix = PREFIX if rng.random() < 0.85 else ""
        window = READER.read(prefix + text).windows[0]
        row[: len(window)] = torch.tensor(window)
    return ids, torch.stack(labels)


def contrast(logits: Tensor, said: Tensor, shown: Tensor) -> Tensor:
    """Return the cross entropy in both directions of logits (texts, images).

    An image of which a text is true as well is no mistake.
    """
    # (texts, images): whether all that a text says is true of an image.
    is_true = ((said[:, None] == shown) | (said[:, None] == UNSAID)).all(-1)
    others = is_true.fill_diagonal_(False)
    logits = logits.masked_fill(others, -torch.inf)
    pairs = torch.arange(len(logits))
    return (F.cross_entropy(logits, pairs) + F.cross_entropy(logits.T, pairs)) / 2


def main(out: Out, steps: int = PLAN.steps, groups: int = 48, pool: int = 16_000) -> None:
    """Train the mini CLIP on batches of `groups` groups out of `pool`."""
    plan = replace(PLAN, steps=steps)
    torch.manual_seed(plan.seed)
    model = build(CONFIG, "float32").requires_grad_(True)
    reader = nn.Linear(CONFIG["embed_dim"], sum(world.CLASSES))
    rng = random.Random(1)
    # Embeddings of words that the world does not have become zeros, and stay so.
    texts, _ = text_batch([random_scene(rng, "train") for _ in range(2000)], rng)
    table = model.token_embedding.weight.data
    table *= torch.zeros(len(table), 1).index_fill(0, torch.unique(texts), 1)
    scenes: list[Scene] = []
    for _ in range(pool):
        scenes += group_of(rng)
    images = world.images_of(scenes)

    def loss(number: int) -> Tensor:
        rng = random.Random(number)
        rows: list[int] = []
        for group in rng.sample(range(pool), groups):
            rows += range(GROUP * group, GROUP * (group + 1))
        batch = [scenes[row] for row in rows]
        ids, said = text_batch(batch, rng)
        shown = labels_of(*batch)
        pixels = torch.stack([WORN(images[row] / 255) for row in rows])
        pixels = normalize(pixels, OPENAI_DATASET_MEAN, OPENAI_DATASET_STD)
        with torch.autocast("cpu", torch.bfloat16):
            seen = model.encode_image(pixels)
            read = model.encode_text(ids)
        seen = F.normalize(seen.float(), dim=-1)
        read = F.normalize(read.float(), dim=-1)
        model.logit_scale.data.clamp_(max=math.log(SHARPEST))
        scale = model.logit_scale.exp()
        # Features have the length 1: times this, each number is about 1.
        wide = CONFIG["embed_dim"] ** 0.5
        reading = reading_loss(reader(wide * seen), shown)
        reading = reading + reading_loss(reader(wide * read), said)
        return contrast(scale * read @ seen.T, said, shown) + READING * reading

    def export(number: int) -> None:
        save_weights(model.state_dict(), out, "clip")

    train({"clip": model, "reader": reader}, loss, out / "state" / "clip", plan, export)


if __name__ == "__main__":
    typer.run(main)
