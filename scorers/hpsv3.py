"""The stage of HPSv3: a Qwen2-VL that reads a question beside an image, and a head.

As in inference.py, model/qwen2vl_trainer.py and dataset/data_collator_qwen.py of
MizzenAI/HPSv3@d232ff8 (MIT), whose instruction is read from the user's copy
(`plait.scorers.qwen_rewards`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from torch import nn

from plait.generators.base import Failure, Outcome, Result, Weights
from plait.generators.content import answer_all
from plait.generators.document import Candidate, Document, Score
from plait.generators.loading.strict import device_of
from plait.generators.overflow import SCORES, no_numbers
from plait.scorers.preferences import Hpsv3Settings
from plait.scorers.qwen_rewards import (
    Prompt,
    QwenRewardModel,
    QwenRewardStage,
    load_published,
    load_random,
    read_instructions,
    reward_head,
)

OWN = "Rate how good the image is, and how well it shows this: {text_prompt}\n"
"""The instruction to random weights, in our words."""
DIGESTS = {
    "INSTRUCTION": "0393599dad45a971903d1d62a3acf9bad3ccccdafa7f40f680523419e1f68b7a"
}
"""Of the instruction that the published weights were trained with."""
_SOURCE = "hpsv3/dataset/data_collator_qwen.py from github.com/MizzenAI/HPSv3"


class RewardModel(QwenRewardModel):
    """Qwen2-VL with one head."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.rm_head = reward_head(self.width)

    @property
    def heads(self) -> Mapping[str, nn.Module]:
        """The head, by what the names of its stored weights begin with."""
        return {"rm_head.": self.rm_head}


class Hpsv3:
    """Scores documents of one image each against their questions.

    The value is the mean of the reward; `parts["sigma"]` its standard deviation.
    """

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        config = Hpsv3Settings(**settings)
        if weights == "pretrained":
            read = read_instructions(config, DIGESTS, "hpsv3", _SOURCE)
            self._instruction = read["INSTRUCTION"]
            loaded = load_published(
                RewardModel, config, "HPSv3.safetensors", "Qwen2VLConfig"
            )
        else:
            self._instruction = OWN
            loaded = load_random(RewardModel, config, weights, "qwen2-vl-7b")
        self._model, processor = loaded
        self._stage = QwenRewardStage(self._model, processor, device_of(config.device))
        self._decoders = ThreadPoolExecutor(config.decoders, "decode")

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Score]]:
        """One reward per document, in order; Failure for a broken image."""
        return answer_all(list(self._decoders.map(self._prompt, inputs)), self._scores)

    def _prompt(self, given: Candidate) -> Prompt | Failure:
        asked = Document(given.question).text
        return self._stage.prompt(given.document.images[:1], self._instruction, asked)

    def _scores(self, prompts: Sequence[Prompt]) -> list[Outcome[Score]]:
        outputs, lengths = self._stage.outputs(self._model.rm_head, prompts)
        outcomes: list[Outcome[Score]] = []
        for (mean, spread), length in zip(outputs, lengths, strict=True):
            if math.isfinite(mean) and math.isfinite(spread):
                score = Score(mean, {"sigma": math.exp(spread)})
                outcomes.append(Result(score, {"input_tokens": length, "images": 1}))
            else:
                outcomes.append(no_numbers(SCORES, self._stage.dtype))
        return outcomes
