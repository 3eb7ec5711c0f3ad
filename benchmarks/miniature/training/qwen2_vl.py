"""The mini Qwen2-VL, which answers the miniature queries in words and outlines.

    python -m plait.benchmarks.miniature.training.qwen2_vl --out FOLDER

It learns from the very prompts that its stage sends. Beside the text, a linear layer reads
from the tokens of an image what stands where: language alone teaches the vision tower
slowly. That layer is not kept.
"""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import typer
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration, Qwen2VLProcessor

from plait.benchmarks.miniature.training.loop import Out, TrainingPlan, train
from plait.benchmarks.miniature.training.scenes import ITEM_CLASSES, labels_of, reading_loss
from plait.benchmarks.tasks.miniature.queries import MiniatureQuery, query
from plait.benchmarks.tasks.miniature.reader import sample_of
from plait.benchmarks.tasks.mmie.prompts import prompts
from plait.generators.document import Request, Text, Turn
from plait.generators.images import encode
from plait.generators.mini.table import SHIPPED
from plait.generators.system import Repetition
from plait.pipelines.chat.settings import ChatSettings
from plait.pipelines.systems import Models, resolve
from plait.pipelines.vlm.prompts import ChatPrompt, ChatPromptWriter
from plait.scorers.truth.drawing import draw
from plait.scorers.truth.language import CAPTION_PROMPT, LEADS, description
from plait.scorers.truth.scene import Scene, random_scene

PLAN = TrainingPlan(steps=4000, rate=1.5e-3, warmup=200, save_every=300)
EARLY_STEPS = 400
EARLY = {"SA": 2, "PBL": 2, "MSR": 12, "caption": 16}
"""Rows of each kind in the first batches, which teach the vision tower to see."""
LATE = {"SA": 8, "PBL": 8, "MSR": 11, "SA@outline": 1, "PBL@outline": 2, "caption": 2}
"""Rows of each kind in later batches."""
READING = 0.3
"""Weight of the linear layer's loss."""
TOKENS = 16
"""Of an image."""
QUARTERS = torch.tensor([[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]])
"""The tokens of each of `PLACES`, in the 4 x 4 tokens of an image."""
MARKS = ("<image>", "</image>")
MODEL = SHIPPED / "qwen2-vl"
"""All square images become 112 x 112. Tokens are whole phrases of the prompts and words of
the world, else bytes. The base of the rotary positions is far below the published one, with
which four columns of an image would look alike: in heads of 32 dimensions the slowest
frequencies are theirs. Smaller still, words far apart would not find each other."""
SYSTEMS = {
    rule: resolve(f"qwen2-vl-7b+openjourney@{rule}", Models(weights="tiny"))
    for rule in ("mmie", "outline")
}


def request_of(example: MiniatureQuery, rule: str) -> Request:
    """Return what the LVLM of a composite is sent under the protocol `rule`."""
    sample = sample_of(replace(example, answer=()))
    (job,) = next(SYSTEMS[rule or "mmie"].answer(sample, Repetition(prompts())))
    assert isinstance(job.input, Request)
    return job.input


def write_answer(example: MiniatureQuery, rule: str) -> str:
    """Return the right answer: its texts, and in outlines its images between marks."""
    lines = []
    for part in example.answer:
        if isinstance(part, str):
            lines.append(part)
        elif rule == "outline":
            lines.append(f"{MARKS[0]}{description(part.scene)}{MARKS[1]}")
    return "\n".join(lines)


class Row(NamedTuple):
    """A request, the answer to it, and the scene of its image."""

    request: Request
    answer: str
    scene: Scene


def row_of(kind: str, index: int) -> Row:
    """Return a request, the answer to it, and the scene of its image."""
    category, _, rule = kind.partition("@")
    if category != "caption":
        example = query(index, 0, "train", category)  # type: ignore[arg-type]
        asked = request_of(example, rule)
        return Row(asked, write_answer(example, rule), example.scenes[0])
    rng = random.Random(f"caption 0 {index}")
    scene = random_scene(rng, "train")
    image = encode(draw(scene, rng.randrange(2**31)))
    request = Request((Turn("user", (image, Text(CAPTION_PROMPT))),))
    return Row(request, f"{LEADS[0]} {description(scene)}.", scene)


def rows_of(step: int) -> list[Row]:
    """Return the batch of a step."""
    shares = EARLY if step < EARLY_STEPS else LATE
    kinds: list[str] = []
    for kind, share in shares.items():
        kinds += [kind] * share
    # Numbers of rows go on from step to step, so that none comes twice.
    first = step * len(kinds)
    return [row_of(kind, first + place) for place, kind in enumerate(kinds)]


def batch_of(rows: list[Row], processor: Any) -> tuple[Any, Tensor]:
    """Return rows as the model's inputs, padded on the left, and where answers stand."""
    write = ChatPromptWriter(processor, ChatSettings(model="mini"))
    chats = []
    lengths = []
    for row in rows:
        chat = write(row.request)
        if not isinstance(chat, ChatPrompt):
            raise ValueError(f"the stage takes no such request: {chat}")
        ended = row.answer + processor.tokenizer.eos_token
        chats.append(replace(chat, text=chat.text + ended))
        lengths.append(len(processor.tokenizer(ended).input_ids))
    inputs = write.encode(chats)
    # Counted from the end, where answers stand: length, ..., 2, 1.
    places = torch.arange(inputs["input_ids"].shape[1], 0, -1)
    return inputs, places <= torch.tensor(lengths)[:, None]


def step_loss(
    model: Any, reader: nn.Linear, inputs: Any, answers: Tensor, scenes: list[Scene]
) -> Tensor:
    """Return the cross entropy of the answers' tokens, and of what images' tokens tell.

    A row weighs as the root of its answer's length, so that short answers count.
    """
    ids = inputs["input_ids"]
    wanted = answers[:, 1:]
    with torch.autocast("cpu", torch.bfloat16):
        output = model(**inputs, output_hidden_states=True, use_cache=False)
        seen = output.hidden_states[0][ids == model.config.image_token_id]
        tokens = seen.view(len(scenes), TOKENS, -1)[:, QUARTERS].flatten(2)
        reading = reading_loss(reader(tokens).flatten(1), labels_of(*scenes)[:, :-1])
    logits = output.logits[:, :-1][wanted].float()
    losses = F.cross_entropy(logits, ids[:, 1:][wanted], reduction="none")
    weights = (wanted / wanted.sum(1, keepdim=True).sqrt())[wanted]
    return (losses * weights).sum() / weights.sum() + READING * reading


def main(out: Out, steps: int = PLAN.steps) -> None:
    """Train the mini Qwen2-VL."""
    plan = replace(PLAN, steps=steps)
    folder = out / "qwen2-vl"
    processor: Any = Qwen2VLProcessor.from_pretrained(MODEL)
    torch.manual_seed(plan.seed)
    model = Qwen2VLForConditionalGeneration(Qwen2VLConfig.from_pretrained(MODEL))
    # On a CPU in bfloat16, plain attention is several times faster to learn.
    model.set_attn_implementation({"text_config": "eager"})
    width = model.config.get_text_config().hidden_size
    reader = nn.Linear(4 * width, sum(ITEM_CLASSES))

    def loss(step: int) -> Tensor:
        rows = rows_of(step)
        inputs, answers = batch_of(rows, processor)
        scenes = [row.scene for row in rows]
        return step_loss(model, reader, inputs, answers, scenes)

    def export(step: int) -> None:
        copy.deepcopy(model).half().save_pretrained(folder)
        processor.save_pretrained(folder)

    modules = {"qwen2-vl": model, "reader": reader}
    train(modules, loss, out / "state" / "qwen2-vl", plan, export)


if __name__ == "__main__":
    typer.run(main)
