"""The mini judge, in InternVL2's architecture and the layout of MMIE-Score.

    python -m plait.benchmarks.miniature.training.mmie_score --out FOLDER

It learns from answers of known content alone (`benchmarks/miniature/damaged.py`), never
from a system's answer. Its reply says what it sees, then gives a verdict per criterion.
What a criterion means in the miniature world, in the order of the rubrics:

    SA, PBL  1  ENOUGH of the text is right, and no text is repeated
             2  ENOUGH of the images is right, and none is missing or spoiled
             3  every image shows exactly what its text tells
             4  MOST of the answer is right
             5  NEARLY_ALL of the answer is right
             6  all of the answer is right
    MSR      1  the answer speaks of what is asked      4  at most one word of it is wrong
             2, 3, 5, 6  it is right

Shares are F1 over attributes, so that the sum of the verdicts follows the truth.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import astuple, replace
from typing import Any, NamedTuple

import numpy as np
import torch
import typer
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import InternVLForConditionalGeneration

from plait.benchmarks.miniature import damaged as answers
from plait.benchmarks.miniature.damaged import Damaged, wear
from plait.benchmarks.miniature.training.loop import Out, TrainingPlan, save_weights, train
from plait.benchmarks.tasks.miniature.reader import sample_of
from plait.generators.document import Content, Image, Text, Turn
from plait.generators.images import decode
from plait.generators.loading.files import Files, read_json
from plait.generators.mini.table import SHIPPED
from plait.scorers.internvl import tokenizer as phi
from plait.scorers.internvl.config import layout_of, model_config
from plait.scorers.internvl.models import LongRope, load_tokenizer, normalise
from plait.scorers.internvl.settings import SYSTEM
from plait.scorers.judging.mmie import Corrected
from plait.scorers.judging.replies import RubricQuestion
from plait.scorers.judging.rubrics import OWN
from plait.scorers.truth.comparison import AttributeCounts, compare_scene
from plait.scorers.truth.drawing import draw
from plait.scorers.truth.language import CAPTION_PROMPT, noun
from plait.scorers.truth.reading import ItemReading, Reading
from plait.scorers.truth.scene import PLACES, Scene, SceneItem, random_scene

Scenes = list[Scene | None]
PLAN = TrainingPlan(steps=4200, rate=2e-3, average=0.995, save_every=400)
CAPTIONS_FIRST = 250
"""Steps of captions alone, which teach the vision model cheaply."""
GROUPS = {"SA": 8, "PBL": 6, "MSR": 6}
"""Judgements of each category in a step."""
CAPTIONS = 4
"""Descriptions of single images beside them."""
CAPTIONS_ALONE = 48
"""The same in the steps of captions alone."""
ENOUGH = 0.85
MOST = 0.8
NEARLY_ALL = 0.92
"""Shares (F1) of an answer that criteria ask for, as the table above has them."""
TILE_TOKENS = 4
"""An image is one tile of four tokens: one for each place of a scene."""
MODEL = SHIPPED / "mmie-score"
REMARKS = (
    "The final answer is correct.",
    "The final answer is partly wrong.",
    "The final answer is wrong.",
    "This does not answer the question.",
    "There is no answer.",
)
"""What is said of reasoning answers, from right to none."""


def reply(answer: Damaged) -> str:
    """Return the reply to learn, in the form that the rubric of its category asks for."""
    rubric = OWN[answer.query.category]
    values = verdicts(answer)
    lines = ["### Feedback", feedback(answer), "### Verdicts"]
    for number, (name, value) in enumerate(zip(rubric.criteria, values, strict=True), 1):
        lines.append(f"{number}. {name}: {value}")
    if rubric.penalty:
        lines.append(f"{len(values) + 1}. {rubric.penalty} (penalty): 0")
    lines += ["### Score", str(sum(values))]
    return "\n".join(lines)


def verdicts(answer: Damaged) -> list[int]:
    """Return 0 or 1 for each of the six criteria."""
    if answer.query.category == "MSR":
        asked, partly, right = _reasoning(answer)
        met = (asked, right, right, partly, right, right)
    else:
        told, seen = contents(answer)
        texts = counts(answer, told)
        images = counts(answer, seen)
        written = [part.told.text for part in answer.parts if part.told]
        whole = (texts + images).f1
        met = (
            texts.f1 >= ENOUGH and len(set(written)) == len(written),
            images.f1 >= ENOUGH and None not in seen,
            None not in told and told == seen,
            whole >= MOST,
            whole >= NEARLY_ALL,
            whole == 1,
        )
    return [int(one) for one in met]


def contents(answer: Damaged) -> tuple[Scenes, Scenes]:
    """Return what text and image of each part tell; None where they tell nothing."""
    told: Scenes = []
    seen: Scenes = []
    for part in answer.parts:
        told.append(part.told.scene if part.told else None)
        is_clear = part.shown is not None and not part.shown.spoiled
        seen.append(part.shown.scene if part.shown and is_clear else None)
    return told, seen


def counts(answer: Damaged, scenes: Scenes) -> AttributeCounts:
    """Count the attributes of `scenes` that are as the query expects them."""
    total = AttributeCounts()
    for scene, expected in zip(scenes, answer.expected, strict=True):
        total += compare_scene(_reading(scene), _reading(expected))
    return total


def _reading(scene: Scene | None) -> Reading:
    if scene is None:
        return Reading()
    return Reading(scene.background or None, tuple(map(ItemReading.of, scene.items)))


# Answers as `scorers/truth/language.py` words them, by their kind; the groups are what they
# speak of. A count, the last of them, has an empty kind.
TOPICS = (
    re.compile(r"(?P<kind>The) (?P<thing>\w+ \w+) is at .*"),
    re.compile(r"There is (?P<kind>a) .* at the (?P<thing>.*)\."),
    re.compile(r"There (?:is|are) \w+ (?P<thing>\w+?)s? (?P<kind>and) \w+ (\w+?)s?,.*"),
    re.compile(r"There (?P<kind>)(?:is|are) \w+ (?P<thing>\w+?|\w+ \w+?)s?\."),
)


def topic(answer: str) -> tuple[str, ...]:
    """Return what a reasoning answer speaks of, not what it says; empty without one."""
    for pattern in TOPICS:
        match = pattern.fullmatch(answer)
        if match:
            return match.groups()
    return ()


def _reasoning(answer: Damaged) -> tuple[bool, bool, bool]:
    """Tell if it speaks of what is asked, at most one word is wrong, and none is."""
    right = str(answer.query.answer[0])
    text = answer.text
    words = text.split(" ")
    right_words = right.split(" ")
    wrong = sum(own != other for own, other in zip(words, right_words, strict=False))
    # Where things are counted, no word may be wrong.
    counting = topic(right)[:1] == ("",)
    partly = not counting and len(words) == len(right_words) and wrong == 1
    return topic(text) == topic(right), partly or text == right, text == right


def feedback(answer: Damaged) -> str:
    """Write what the answer should hold and what it holds, in one line."""
    if answer.query.category == "MSR":
        asked, partly, right = _reasoning(answer)
        # Of the remarks, the first that applies.
        applies = (right, partly, asked, bool(answer.text), True)
        return f"{compare(answer)} {REMARKS[applies.index(True)]}"
    lines = []
    if answer.query.category == "PBL":
        lines.append(caption(answer.query.scenes[0]))
    image = 0
    for part, goal in zip(answer.parts, answer.expected, strict=True):
        told = part.told
        shown = part.shown
        tells = slots(told.scene, goal) if told and told.scene else "nothing"
        lines += [f"Expected {slots(goal)}.", f"The text tells {tells}."]
        if shown is None:
            lines.append("A picture is missing.")
            continue
        image += 1
        seen = "nothing definite" if shown.spoiled else slots(shown.scene, goal)
        lines.append(f"Image-{image} shows {seen}.")
    return " ".join(lines)


def caption(scene: Scene) -> str:
    """Return what the judge says of an image alone."""
    return f"Image-0 shows {slots(scene)}."


def compare(answer: Damaged) -> str:
    """Return the correct reasoning answer and the given one, with other words marked."""
    right = str(answer.query.answer[0]).split(" ")
    words = answer.text.split(" ")
    if len(right) == len(words):
        for place, expected in enumerate(right):
            if words[place] != expected:
                words[place] = f"{words[place]} (wrong),"
    return f"Expected {' '.join(right)} The text tells {' '.join(words) or 'nothing.'}"


def slots(scene: Scene, goal: Scene | None = None) -> str:
    """Say what is at each place, then the background; marked where it is not `goal`'s."""
    parts = []
    for place in PLACES:
        item = scene.at(place)
        mark = _mark(item, goal.at(place)) if goal else ""
        parts.append(f"{noun(item) if item else 'nothing'}{mark}")
    mark = " (wrong)" if goal and scene.background != goal.background else ""
    return f"{', '.join(parts)}, on {scene.background or 'nothing'}{mark}"


def _mark(item: SceneItem | None, goal: SceneItem | None) -> str:
    """Return the mark behind an item: how many of its attributes are not the goal's."""
    if item is None or goal is None:
        return "" if item == goal else " (wrong)"
    fields = zip(astuple(item), astuple(goal), strict=True)
    wrong = sum(own != expected for own, expected in fields)
    return f" ({wrong} wrong)" if wrong else ""


@torch.no_grad()
def new_model(tokenizer: phi.PhiTokenizer) -> Any:
    """Return an untrained judge, with weights that suit a narrow model."""
    config = model_config(read_json(MODEL / "config.json"), "the mini judge")
    config.image_token_id = tokenizer.id(phi.IMAGE_TOKEN)
    model = InternVLForConditionalGeneration(config)
    # On a CPU in bfloat16, plain attention learns faster than the fused one.
    model.set_attn_implementation("eager")
    for name, weight in model.named_parameters():
        if "lambda_" in name:
            weight.fill_(1.0)
        elif weight.ndim == 2 and "embed_tokens" not in name:
            weight.normal_(0.0, 0.7 / math.sqrt(weight.shape[1]))
        elif weight.ndim >= 2:
            weight.normal_(0.0, 0.05)
    rope = LongRope(config.text_config, torch.device("cpu"))
    model.model.language_model.rotary_emb = rope
    return model


def to_published(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors under their published names, attention's projections joined."""
    state = model.state_dict()
    tensors: dict[str, Tensor] = {}
    projections: dict[str, dict[str, Tensor]] = {}
    for name, place in layout_of(state).items():
        tensor = state[place.name]
        # `qkv.weight[q]` is the part of a published tensor that is a tensor of ours.
        part = re.search(r"\[([qkv])\]$", name)
        if part:
            projections.setdefault(name[: part.start()], {})[part[1]] = tensor
        else:
            tensors[name] = tensor
    for name, parts in projections.items():
        tensors[name] = torch.cat([parts[letter] for letter in "qkv"])
    return tensors


class Row(NamedTuple):
    """A request and the reply to be learnt."""

    ids: list[int]
    """Of the request, then of the reply."""
    asked: int
    """How many are the request's."""
    content: Content
    """Of the request: its images are read from here."""


def row_of(tokenizer: phi.PhiTokenizer, content: Content, answer: str) -> Row:
    """Return a request in the words of the stage, and the reply to it."""
    ids = tokenizer.encode(
        phi.with_control_tokens(phi.conversation((Turn("user", content),), SYSTEM))
    )
    image = tokenizer.id(phi.IMAGE_TOKEN)
    prompt: list[int] = []
    for id in ids:
        prompt += [id] * (TILE_TOKENS if id == image else 1)
    learned = [*tokenizer.chunk(answer), tokenizer.id(phi.END)]
    return Row([*prompt, *learned], len(prompt), content)


def judgement(tokenizer: phi.PhiTokenizer, rng: random.Random, answer: Damaged) -> Row:
    """Return the judgement of an answer; the judge is told the texts of the right one."""
    texts = [part for part in answer.query.answer if isinstance(part, str)]
    asked = replace(answer.query, answer=tuple(texts))
    sample = sample_of(asked, lambda image: wear(rng, decode(image)))
    put = Corrected(OWN).ask(sample, answers.document_of(rng, answer))
    if not isinstance(put, RubricQuestion):
        raise TypeError(f"the rubrics do not apply to {asked.id}")
    return row_of(tokenizer, put.content, reply(answer))


def describe_random(tokenizer: phi.PhiTokenizer, rng: random.Random) -> Row:
    """Return the description of a random image."""
    scene = random_scene(rng, "train")
    image = wear(rng, draw(scene, rng.randrange(2**31)))
    content = (Text("Image-0: "), image, Text(f"\n{CAPTION_PROMPT}"))
    return row_of(tokenizer, content, caption(scene))


def groups_of(tokenizer: phi.PhiTokenizer, step: int) -> list[list[Row]]:
    """Return the batch of a step, in groups of like length."""
    rng = random.Random(f"judge 0 {step}")
    if step < CAPTIONS_FIRST:
        return [[describe_random(tokenizer, rng) for _ in range(CAPTIONS_ALONE)]]
    groups = []
    for name, count in GROUPS.items():
        group = []
        for _ in range(count):
            # In turn: a judgement draws from `rng` before the next answer does.
            answer = answers.draw_damaged(rng, "train", name)
            group.append(judgement(tokenizer, rng, answer))
        groups.append(group)
    groups[-1] += [describe_random(tokenizer, rng) for _ in range(CAPTIONS)]
    return groups


def group_loss(model: Any, rows: Sequence[Row], end: int) -> Tensor:
    """Return the mean cross entropy of the replies' tokens."""
    longest = max(len(row.ids) for row in rows)
    ids = torch.full((len(rows), longest), end)
    # Where the next token is one of the reply.
    learned = torch.zeros(ids.shape, dtype=torch.bool)
    images = []
    for number, row in enumerate(rows):
        length = len(row.ids)
        ids[number, :length] = torch.tensor(row.ids)
        learned[number, row.asked - 1 : length - 1] = True
        for segment in row.content:
            if isinstance(segment, Image):
                images.append(np.asarray(decode(segment)))
    tiles = torch.from_numpy(np.stack(images))
    with torch.autocast("cpu", torch.bfloat16):
        # Padding is on the right, where causal attention does not look.
        output = model(input_ids=ids, pixel_values=normalise(tiles), use_cache=False)
    return F.cross_entropy(output.logits[learned].float(), ids.roll(-1, 1)[learned])


def main(out: Out, steps: int = PLAN.steps) -> None:
    """Train the mini judge."""
    plan = replace(PLAN, steps=steps)
    tokenizer = load_tokenizer(Files(str(MODEL)))
    torch.manual_seed(plan.seed)
    model = new_model(tokenizer)

    def loss(step: int) -> Tensor:
        groups = groups_of(tokenizer, step)
        losses = [group_loss(model, group, tokenizer.id(phi.END)) for group in groups]
        return torch.stack(losses).mean()

    def export(step: int) -> None:
        save_weights(to_published(model), out, "mmie-score")

    train({"judge": model}, loss, out / "state" / "mmie-score", plan, export)


if __name__ == "__main__":
    typer.run(main)
