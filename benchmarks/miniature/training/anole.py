"""The mini Anole: a Chameleon of 64 codes an image that writes and draws answers.

    python -m plait.benchmarks.miniature.training.anole --out FOLDER

First the VQ model learns to draw through its codes (van den Oord et al. 2017). The codebook
begins as latents of the first images, once the autoencoder draws without it; codes that no
image uses are replaced until the rate falls. Then the language model learns sequences of
text and codes. Beside it a linear layer reads scenes from its states where an image begins
and ends: it learns sooner so to carry a scene from words to codes and back. That layer is
not kept.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import typer
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import ChameleonConfig, ChameleonForConditionalGeneration

from plait.benchmarks.miniature.training import scenes
from plait.benchmarks.miniature.training.loop import Out, TrainingPlan, save_weights, train
from plait.benchmarks.miniature.training.scenes import centre, images_of
from plait.benchmarks.tasks.miniature.queries import (
    Category,
    MiniatureQuery,
    SceneImage,
    query,
)
from plait.benchmarks.tasks.mmie.prompts import PROMPTS, QUESTION
from plait.generators.anole.checkpoints import VQ_PREFIX
from plait.generators.anole.codec import vq_model
from plait.generators.anole.vocabulary import AnoleVocabulary
from plait.generators.loading.taming import taming_layout
from plait.generators.mini.table import SHIPPED
from plait.scorers.truth.language import sentence, statement, step
from plait.scorers.truth.scene import Scene

MODEL = SHIPPED / "anole"
CONFIG = ChameleonConfig.from_pretrained(MODEL, dtype=torch.float32)
VQ = CONFIG.vq_config.to_dict()
"""Its normalisation has 32 groups and no layer fewer than 64 channels: with 32 each would
stand alone, and the mean colour of an image would be lost."""
VQ_PLAN = TrainingPlan(steps=1800, rate=2e-3, warmup=50, average=0.99)
BATCH = 8
PLAIN = 150
"""So many steps come first, which leave the latents as they are."""
RENEW_EVERY = 25
"""Steps between renewals of codes."""
PLAN = TrainingPlan(steps=2600, rate=2.5e-3, warmup=60, decay=0.05, average=0.99)
PAIRS = 0.5
"""Share of the steps that learn from single images and sentences alone, first."""
SINGLE = {"drawing": 20, "reading": 10}
MIXED = {"drawing": 8, "SA": 6, "PBL": 5, "MSR": 5}
"""Sequences of a step, then and afterwards."""
READ_AT = 3
READING = 0.5
"""After how many layers scenes are read, and the weight of that loss."""
POOL: Mapping[Category, int] = {"SA": 2400, "PBL": 1600, "MSR": 1600}
"""Queries of each category that the model sees."""
EARLY_CODES = 0.3
"""Weight of codes that no text says beforehand."""
FORGETFUL = 0.1
"""Share of answers without their text, for guidance by the images alone."""


def vq_loss(model: Any, images: Tensor, *, plain: bool) -> Tensor:
    """Return how far images change through their codes, and latents by becoming codes."""
    with torch.autocast("cpu", torch.bfloat16):
        latents = model.encode(images).latents
    latents = latents.float()  # (images, channels, height, width)
    codes = latents
    ties = latents.new_zeros(())
    if not plain:
        book = model.quantize.embedding
        ids = torch.cdist(_rows(latents).detach(), book.weight).argmin(1)
        nearest = book(ids).view(latents.movedim(1, 3).shape).movedim(3, 1)
        # The codebook moves to the latents, and these a quarter as fast to their codes.
        ties = F.mse_loss(nearest, latents.detach())
        ties = ties + 0.25 * F.mse_loss(latents, nearest.detach())
        # The value of the code with the gradient of the latent: straight through.
        codes = latents + (nearest - latents).detach()
    with torch.autocast("cpu", torch.bfloat16):
        drawn = model.decoder(model.post_quant_conv(codes))
    loss: Tensor = scenes.image_loss(drawn, images) + ties
    return loss


def _rows(latents: Tensor) -> Tensor:
    """Return (images, channels, height, width) as (images x height x width, channels)."""
    return latents.movedim(1, 3).flatten(0, 2)


@torch.no_grad()
def renew_codes(model: Any, images: Tensor, *, every: bool) -> None:
    """Put latents of `images` in the place of codes that none of these uses, or of all.

    Latents far from every code are those it lacks; most of an image is background.
    """
    rows = _rows(model.encode(images).latents)
    book = model.quantize.embedding.weight
    distances, used = torch.cdist(rows, book).min(1)
    unused = torch.ones(len(book), dtype=torch.bool)
    if every:
        # All codes go, so that distances to them tell nothing; the median is background.
        distances = (rows - rows.median(0).values).norm(dim=1)
    else:
        unused[used] = False
    if unused.any():
        # Above 0, so that there are enough to draw where most latents are codes already.
        weights = distances.square() + 1e-9
        book[unused] = rows[torch.multinomial(weights, int(unused.sum()))]


@torch.no_grad()
def codes_of(model: Any, images: Tensor) -> Tensor:
    """Return codes (images, 64) of uint8 images, in rows from the top left."""
    codes = []
    for part in torch.split(images, 64):
        latents = model.encode(centre(part)).latents
        _, _, (_, _, ids) = model.quantize(latents)
        codes.append(ids.view(len(part), -1))
    return torch.cat(codes)


def train_vq(state: Path, plan: TrainingPlan, images: int) -> Any:
    """Return the VQ model, rounded to the half precision in which it will be stored."""
    drawn = images_of(scenes.random_scenes(images, seed=21))
    torch.manual_seed(plan.seed)
    model = vq_model(VQ)

    def draw_images(count: int) -> Tensor:
        return centre(drawn[torch.randint(images, (count,))])

    def loss(step: int) -> Tensor:
        if PLAIN <= step < plan.steps // 2 and step % RENEW_EVERY == 0:
            renew_codes(model, draw_images(4 * BATCH), every=step == PLAIN)
        return vq_loss(model, draw_images(BATCH), plain=step < PLAIN)

    train({"vq": model}, loss, state, plan)
    return model.half().float().requires_grad_(False)


@dataclass(frozen=True)
class Row:
    """A sequence of tokens, and the marks of images at which a scene is known."""

    ids: list[int]
    weights: list[float]
    """Of each token as a target."""
    marks: list[tuple[int, Scene]]
    """The position of each mark, and what the image there shows."""


class SequenceWriter:
    """Random sequences of queries whose images are coded."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        queries: Mapping[Any, Sequence[MiniatureQuery]],
        codes: Mapping[SceneImage, Sequence[int]],
    ) -> None:
        self._tokenizer = tokenizer
        self._queries = queries
        self._codes = codes
        self._images = list(codes)
        self._own = AnoleVocabulary.of(tokenizer.get_vocab(with_added_tokens=True))

    def __call__(self, kind: str, rng: random.Random) -> Row:
        """Draw a sentence and its image, an image and its sentence, or a query's answer."""
        if kind not in self._queries:
            image = rng.choice(self._images)
            if kind == "drawing":
                return self._row((describe(image.scene, rng), 0), (image, 1))
            return self._row((image, EARLY_CODES), (statement(image.scene), 1))
        asked = rng.choice(self._queries[kind])
        row = self._row(*parts_in_words(asked), *((part, 1) for part in asked.answer))
        row.ids.append(self._own.eos)
        row.weights.append(1)
        if not asked.wants_images or rng.random() >= FORGETFUL:
            return row
        without_text = Row([], [], [])
        for token, weight in zip(row.ids, row.weights, strict=True):
            if token in self._own.guiding:
                without_text.ids.append(token)
                without_text.weights.append(weight)
        return without_text

    def _row(self, *parts: tuple[str | SceneImage, float]) -> Row:
        """Return the sequence of parts, each with its weight as a target."""
        row = Row([self._own.bos], [0], [])
        own = self._own
        for part, weight in parts:
            if isinstance(part, str):
                ids = self._tokenizer.encode(part, add_special_tokens=False).ids
                row.ids.extend(ids)
                row.weights.extend([weight] * len(ids))
                continue
            if weight == 1:
                # What text before an image says is known where the image begins.
                row.marks.append((len(row.ids), part.scene))
            codes = own.tokens(self._codes[part])
            row.ids.extend([own.begin_image, *codes, own.end_image])
            # The mark that ends an image is set, not written.
            row.weights.extend([weight] * (1 + len(codes)) + [0])
            row.marks.append((len(row.ids) - 1, part.scene))
        return row


def describe(scene: Scene, rng: random.Random) -> str:
    """Return the scene in the answers' words, at times in other order and words."""
    text = statement(scene) if rng.random() < 0.7 else sentence(scene, rng)
    return step(rng.randint(1, 2), text) if rng.random() < 0.4 else text


def parts_in_words(asked: MiniatureQuery) -> list[tuple[str | SceneImage, float]]:
    """Return the parts of a query in MMIE's wording, as the stage forms it."""
    before, after = PROMPTS[asked.category]["interleaved"].split(QUESTION)
    image, text = asked.question
    return [(before, 0), (image, 0), (f"\n{text}{after}", 0)]


def images_in(queries: Iterable[MiniatureQuery]) -> list[SceneImage]:
    """Return the images of questions and answers, each once, as they first come."""
    images: dict[SceneImage, None] = {}
    for asked in queries:
        for part in (*asked.question, *asked.answer):
            if isinstance(part, SceneImage):
                images[part] = None
    return list(images)


def sequence_loss(model: Any, reader: nn.Linear, rows: Sequence[Row]) -> Tensor:
    """Return the mean loss of the weighted tokens, and of the reader at the marks."""
    # (rows, longest), padded with 0 on the right, where no token is a target.
    ids = pad_sequence([torch.tensor(row.ids) for row in rows], batch_first=True)
    weights = pad_sequence([torch.tensor(row.weights) for row in rows], batch_first=True)
    # Each token is told from the state before it.
    targets = ids[:, 1:]
    target_weights = weights[:, 1:]
    wanted = target_weights > 0
    with torch.autocast("cpu", torch.bfloat16):
        # The model's own `forward` forbids image tokens, so its parts are called.
        states = model.model(input_ids=ids, use_cache=False, output_hidden_states=True)
        logits = model.lm_head(states.last_hidden_state[:, :-1][wanted])
    losses = F.cross_entropy(logits.float(), targets[wanted], reduction="none")
    weights = target_weights[wanted]
    row_numbers = []
    positions = []
    known = []
    for number, row in enumerate(rows):
        for position, scene in row.marks:
            row_numbers.append(number)
            positions.append(position)
            known.append(scene)
    early = states.hidden_states[READ_AT][row_numbers, positions].float()
    told = reader(F.layer_norm(early, early.shape[-1:]))
    reading = scenes.reading_loss(told, scenes.labels_of(*known))
    return (losses * weights).sum() / weights.sum() + READING * reading


def to_published(model: Any, vq: Any) -> dict[str, Tensor]:
    """Return the tensors of Hugging Face's layout of Anole, with the VQ model inside."""
    state = vq.state_dict()
    layout = taming_layout(state, len(VQ["channel_multiplier"]), VQ_PREFIX)
    tensors = {name: state[place.name] for name, place in layout.items()}
    for name, tensor in tensors.items():
        # The attention's matrices are 1 x 1 convolutions there.
        if ".attn_1." in name and tensor.ndim == 2:
            tensors[name] = tensor[:, :, None, None]
    return {**model.state_dict(), **tensors}


def main(
    out: Out, steps: int = PLAN.steps, vq_steps: int = VQ_PLAN.steps, images: int = 8_000
) -> None:
    """Train the VQ model on so many images, then the language model."""
    plan = replace(PLAN, steps=steps)
    vq_plan = replace(VQ_PLAN, steps=vq_steps)
    vq = train_vq(out / "state" / "anole-vq", vq_plan, images)
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    queries: dict[str, list[MiniatureQuery]] = {}
    for name, count in POOL.items():
        queries[name] = [query(i, 1, "train", name) for i in range(count)]
    shown = images_in(chain.from_iterable(queries.values()))
    pixels = images_of([image.scene for image in shown], [image.seed for image in shown])
    codes = dict(zip(shown, codes_of(vq, pixels).tolist(), strict=True))
    write = SequenceWriter(tokenizer, queries, codes)
    torch.manual_seed(plan.seed)
    model = ChameleonForConditionalGeneration(CONFIG)
    del model.model.vqmodel
    reader = nn.Linear(CONFIG.hidden_size, sum(scenes.CLASSES))

    def loss(step: int) -> Tensor:
        rng = random.Random(step)
        mix = SINGLE if step < PAIRS * plan.steps else MIXED
        rows: list[Row] = []
        for kind, count in mix.items():
            for _ in range(count):
                rows.append(write(kind, rng))
        return sequence_loss(model, reader, rows)

    def export(step: int) -> None:
        save_weights(to_published(model, vq), out, "anole")

    modules = {"language": model, "reader": reader}
    train(modules, loss, out / "state" / "anole", plan, export)


if __name__ == "__main__":
    typer.run(main)
