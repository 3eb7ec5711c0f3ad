"""The stage of EditReward: a Qwen2.5-VL reads an edit beside its original, twice.

As in inference_edit.py, model/qwen2_5_vl_trainer.py, dataset/data_collator_qwen_edit.py and
config/EditReward-Qwen2.5-7B-VL.yaml of TIGER-AI-Lab/EditReward@edb027e (MIT), whose two
instructions are read from the user's copy: one head reads how well the edit follows its
instruction, the other how good it looks, and the reward is the mean of both
(`pooling_strategy` "mean").
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import nn

from plait.generators.base import Failure, Outcome, Result, Weights
from plait.generators.content import answer_all
from plait.generators.document import Candidate, Document, Image, Score
from plait.generators.loading.strict import device_of
from plait.generators.overflow import SCORES, no_numbers
from plait.scorers.preferences import EditRewardSettings
from plait.scorers.qwen_rewards import (
    Prompt,
    QwenRewardModel,
    QwenRewardStage,
    load_published,
    load_random,
    read_instructions,
    reward_head,
)

ASPECTS = ("following", "quality")
"""What the heads read, in their order."""
OWN = {
    "following": "Rate how well the second image is the first one after: {text_prompt}\n",
    "quality": "Rate how good the second image looks, the first one after: {text_prompt}\n",
}
"""The instructions to random weights, in our words."""
NAMES = {
    "following": "INSTRUCTION_EDIT_FOLLOWING",
    "quality": "INSTRUCTION_EDIT_QUALITY",
}
"""What the instructions are called in the released file."""
DIGESTS = {
    "INSTRUCTION_EDIT_FOLLOWING": (
        "da5bfc26898cc8e0e534a29675ad78c3462d331b7feaebf13bae5aa50195864f"
    ),
    "INSTRUCTION_EDIT_QUALITY": (
        "89bbc5c2ac1bbea9c45a0fde298e9a97d1c079170a30780392c577fc1cd8d286"
    ),
}
"""Of the instructions that the published weights were trained with."""
_SOURCE = "EditReward/dataset/prompts.py from github.com/TIGER-AI-Lab/EditReward"


class EditRewardModel(QwenRewardModel):
    """Qwen2.5-VL with a head for each aspect."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.rm_heads = nn.ModuleDict()
        for number in range(len(ASPECTS)):
            self.rm_heads[f"head_{number}"] = reward_head(self.width)

    @property
    def heads(self) -> Mapping[str, nn.Module]:
        """The heads, by what the names of their stored weights begin with."""
        return {f"rm_heads.{name}.": head for name, head in self.rm_heads.items()}


class _Edit(NamedTuple):
    """The prompt of each aspect."""

    prompts: tuple[Prompt, ...]


@dataclass(slots=True)
class _HeadReadings:
    """What the heads make of one edit, in the order of `ASPECTS`."""

    means: list[float] = field(default_factory=list)
    spreads: list[float] = field(default_factory=list)
    """Logarithms of deviations."""
    tokens: int = 0


class EditReward:
    """Scores an edit against its original, which stands in the question, and instruction.

    The value is the mean of what both heads expect; `parts` hold what each expects, and
    `sigma`, the deviation: the exponential of the mean of their second outputs.
    """

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        config = EditRewardSettings(**settings)
        if weights == "pretrained":
            read = read_instructions(config, DIGESTS, "editreward", _SOURCE)
            self._instructions = {aspect: read[NAMES[aspect]] for aspect in ASPECTS}
            loaded = load_published(
                EditRewardModel, config, "model.safetensors", "Qwen2_5_VLConfig"
            )
        else:
            self._instructions = OWN
            loaded = load_random(EditRewardModel, config, weights, "qwen2.5-vl-7b-instruct")
        self._model, processor = loaded
        self._stage = QwenRewardStage(self._model, processor, device_of(config.device))
        self._decoders = ThreadPoolExecutor(config.decoders, "decode")

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Score]]:
        """One reward per edit, in order; Failure for a broken image."""
        return answer_all(list(self._decoders.map(self._edit, inputs)), self._scores)

    def _edit(self, given: Candidate) -> _Edit | Failure:
        originals = [part for part in given.question if isinstance(part, Image)]
        images = [*originals, *given.document.images]
        asked = Document(given.question).text
        prompts = []
        for aspect in ASPECTS:
            prompt = self._stage.prompt(images, self._instructions[aspect], asked)
            if isinstance(prompt, Failure):
                return prompt
            prompts.append(prompt)
        return _Edit(tuple(prompts))

    def _scores(self, edits: Sequence[_Edit]) -> list[Outcome[Score]]:
        """Return the reward of each edit; every head has read all of them."""
        readings = [_HeadReadings() for _ in edits]
        for number, head in enumerate(self._model.rm_heads.values()):
            prompts = [edit.prompts[number] for edit in edits]
            outputs, lengths = self._stage.outputs(head, prompts)
            for own, (mean, spread), length in zip(readings, outputs, lengths, strict=True):
                own.means.append(mean)
                own.spreads.append(spread)
                own.tokens += length
        return [self._score(own) for own in readings]

    def _score(self, read: _HeadReadings) -> Outcome[Score]:
        mean = sum(read.means) / len(read.means)
        spread = sum(read.spreads) / len(read.spreads)
        if not (math.isfinite(mean) and math.isfinite(spread)):
            return no_numbers(SCORES, self._stage.dtype)
        parts = dict(zip(ASPECTS, read.means, strict=True))
        score = Score(mean, {**parts, "sigma": math.exp(spread)})
        return Result(score, {"input_tokens": read.tokens, "images": 2})
