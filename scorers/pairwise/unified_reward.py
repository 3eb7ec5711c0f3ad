"""UnifiedReward-Think: which of two images suits a caption better, after a thought.

Constants after UnifiedReward-Think/inference_qwen/UnifiedReward-Think-qwen3-inference/
qwen3_infer_cot_image_generation.py of CodeGoat24/UnifiedReward@ff6f520, and the reader of
benchmark_evaluation/vLLM_qwen3_evaluation/test_qwen3vl_genai_image.py there. That program
shows each pair in one order, drawn without a seed; here both are shown. By the released
text, an answer is its one image and a query its text; in our words both are shown whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from plait.generators.content import join_texts, space_out
from plait.generators.document import Document, Image, Query, Text, Turn
from plait.generators.released import read_published
from plait.scorers.judging.sources import Mode
from plait.scorers.pairwise.games import Aspect, Game, ParsedReply
from plait.scorers.pairwise.mmrb2 import share_of_judgements, share_of_questions
from plait.scorers.pairwise.prompts import OWN
from plait.scorers.pairwise.protocol import Pairwise
from plait.scorers.pairwise.readers import better_image, official_better_image
from plait.scorers.statistics.estimate import Estimate

NAME = "unified-reward-think"
_DIGESTS: Mapping[str, str] = OWN["released"][NAME]


@dataclass(frozen=True, slots=True)
class ThinkWording:
    """What stands before and after the caption."""

    before: str
    after: str


_OWN = ThinkWording(**OWN[NAME])


@dataclass(frozen=True, slots=True, kw_only=True)
class UnifiedRewardThink(Pairwise):
    """The protocol."""

    mode: Mode = "corrected"
    wording: ThinkWording = _OWN
    name: str = NAME
    FORM: ClassVar[str] = "image"

    @classmethod
    def wording_in(cls, path: Path) -> ThinkWording:
        """The texts of the user's file; UsageError unless published."""
        return ThinkWording(**read_published(path, _DIGESTS))

    def turns(
        self, aspect: Aspect, query: Query, first: Document, second: Document
    ) -> tuple[Turn, ...]:
        """Both images, then the task; in our words the task, then query and answers."""
        if self.wording == _OWN:
            content = (
                *(Text(self.wording.before.rstrip()), *query.question),
                *(Text("Image 1:"), *first.segments),
                *(Text("Image 2:"), *second.segments),
            )
            return (Turn("user", space_out(content)),)
        caption = Document(query.question).text.strip()
        text = f"{self.wording.before}{caption}{self.wording.after}"
        images = (_only_image(first), _only_image(second))
        return (Turn("user", join_texts((*images, Text(text)))),)

    def read(self, reply: str, aspect: Aspect = "preference") -> ParsedReply:
        """The first or the second."""
        if self.mode == "official":
            return official_better_image(reply)
        return better_image(reply)

    def values(self, games: Sequence[Game]) -> dict[str, Estimate]:
        """Return how often a system is preferred, as MMRB2's protocol counts it."""
        if self.mode == "official":
            return {"win_rate": share_of_judgements(games)}
        return {"win_rate": share_of_questions(games)}


def _only_image(answer: Document) -> Image:
    """Return the one image of an answer; ValueError where it has none or several."""
    if len(answer.images) != 1:
        raise ValueError(
            "UnifiedReward-Think compares single images, and an answer has "
            f"{len(answer.images)}"
        )
    return answer.images[0]
