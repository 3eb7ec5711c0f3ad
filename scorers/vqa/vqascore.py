"""VQAScore (Lin et al., ECCV 2024): how likely an LVLM says that an image shows a text.

The question and the answer are those of linzhiqiu/t2v_metrics@880a5b8; the text is that of
the query's question. The value is the geometric mean of the probabilities of the answer's
tokens, 0 to 1, and of a document the mean over its images. The paper's own model,
CLIP-FlanT5, is not one of plait's LVLMs: name the LVLM beside every figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pydantic import Field

from generators.base import Outcome, Result
from generators.document import Document, Sample, Score
from scorers.vqa.questions import (
    YES_NO,
    AnswerRecord,
    Question,
    QuestionScorer,
    WordedSettings,
)


class VqaScoreSettings(WordedSettings):
    """The wording."""

    question: str = 'Does this figure show "{}"? Please answer Yes or No.'
    """What is asked, with `{}` in the place of the text."""
    answer: str = Field(default="Yes", min_length=1)
    """Whose probability is the value."""


@dataclass(frozen=True, kw_only=True)
class VqaScorer(QuestionScorer):
    """Scores the images of a document against the text of the question."""

    settings_of = VqaScoreSettings
    about = "0-1; a probability; higher is better"
    options: VqaScoreSettings

    @classmethod
    def scale_of(cls, options: Any) -> str:
        """Return the scale of a probability."""
        return "0-1"

    def questions(self, query: Sample) -> Sequence[Question]:
        """Ask whether the image shows the text."""
        text = Document(query.question).text
        answer = self.options.answer
        answers = YES_NO if answer in YES_NO else (answer,)
        return [Question(self.options.question.replace("{}", text), answers)]

    def score(
        self, query: Sample, images: Sequence[Sequence[AnswerRecord]]
    ) -> Outcome[Score]:
        """Return the mean over the images."""
        values = [record.geometric_mean(self.options.answer) for (record,) in images]
        return Result(Score(fmean(values), {"images": values}))
