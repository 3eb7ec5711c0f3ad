"""Questions about images, and the probabilities that an LVLM gives their answers."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any, ClassVar, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator

from plait.generators.base import Job, NotApplicable, Outcome, Result, StageSpec, Walk
from plait.generators.document import Document, LogprobsRequest, Query, Score, Text
from plait.generators.keys import digest
from plait.generators.logprobs import Logprobs
from plait.generators.names import with_overrides
from plait.scorers.base import NoScore, Scorer
from plait.scorers.judging.sources import DEFAULT_MODE, Mode
from plait.scorers.parts import PartScale, PartTable


class Question(NamedTuple):
    """A question about an image, as the LVLM is asked."""

    text: str
    answers: tuple[str, ...]
    """Those whose probabilities are recorded."""


def forms(answer: str) -> tuple[str, ...]:
    """Return how a reply may begin with `answer`: two cases, with and without a space."""
    cases = (answer, answer.capitalize(), answer.lower())
    starts = (space + case for space, case in product(("", " "), cases))
    return tuple(dict.fromkeys(starts))


YES = forms("Yes")
NO = forms("No")
YES_NO = YES + NO
"""Recorded of every question that is answered by yes or no, whichever scorer asks."""


class VqaSettings(BaseModel):
    """Settings of a scorer that asks about images. They enter keys by the questions."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WordedSettings(VqaSettings):
    """The same of a scorer whose question may be worded."""

    holes: ClassVar[tuple[str, ...]] = ("{}",)
    """Which stand in `question` for what is asked about."""
    question: str

    @field_validator("question")
    @classmethod
    def _has_holes(cls, question: str) -> str:
        for hole in cls.holes:
            if hole not in question:
                raise ValueError(f"the question needs {hole} for what is asked about")
        return question


class ModeSettings(VqaSettings):
    """The same of a scorer whose benchmark has an evaluator of its own."""

    mode: Mode = DEFAULT_MODE
    """`official` computes as the released program does, `corrected` without its defects."""


@dataclass(frozen=True, kw_only=True)
class QuestionScorer(Scorer):
    """Asks questions about every image of a document; the value is the mean over images."""

    options: VqaSettings
    images_only: bool = True
    settings_of: ClassVar[type[VqaSettings]]
    about: ClassVar[str]
    """Scale, unit and direction, for lists."""

    @classmethod
    def asking(cls, name: str, stage: StageSpec, overrides: Mapping[str, Any]) -> Self:
        """Return the scorer that asks `stage`; UsageError for unknown settings."""
        options = with_overrides(cls.settings_of(), overrides, name)
        return cls(name=name, stage=stage, options=options, scale=cls.scale_of(options))

    @classmethod
    def scale_of(cls, options: Any) -> str:
        """Return the scale under these settings."""
        return "0-100"

    def questions(self, query: Query) -> Sequence[Question]:
        """Return what is asked about each image; nothing where it does not apply."""
        raise NotImplementedError

    def score(self, query: Query, images: Sequence[Sequence[Logprobs]]) -> Outcome[Score]:
        """Return the score by the record of each question, for every image."""
        raise NotImplementedError

    def jobs(self, query: Query, images: int = 1) -> int:
        """Return how many questions are asked about an image."""
        return len(self.questions(query))

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs questions about the query."""
        if self.questions(query):
            return None
        return NotApplicable("the query has no questions of this benchmark")

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Ask all questions about all images at once.

        What the stage fails or skips is returned as it is.
        """
        questions = self.questions(query)
        shown = [Document((image,)) for image in document.images]
        asked = [*product(shown, questions)]
        records = yield from self.records(query, asked)
        if not isinstance(records, list):
            return records
        # `product` has all questions about the first image, then those about the second.
        each = len(questions)
        firsts = range(0, len(records), each)
        images = [records[first : first + each] for first in firsts]
        return self.score(query, images)

    def records(
        self, query: Query, asked: Sequence[tuple[Document, Question]]
    ) -> Generator[list[Job], list[Outcome[Any]], list[Logprobs] | Outcome[Score]]:
        """Return the records of questions, each behind what is shown, or what has none."""
        jobs = []
        for shown, question in asked:
            content = (Text(question.text),)
            request = LogprobsRequest(shown.segments, content, question.answers)
            # One group for each image, so that it may be read once for all its questions.
            group = f"{query.id} {digest(shown)[:12]}"
            jobs.append(Job(self.stage, request, query.id, group))
        records = []
        for outcome in (yield jobs):
            if not isinstance(outcome, Result):
                return outcome
            records.append(outcome.value)
        return records


class VqaScoreSettings(WordedSettings):
    """The wording."""

    question: str = 'Does this figure show "{}"? Please answer Yes or No.'
    """What is asked, with `{}` in the place of the text."""
    answer: str = Field(default="Yes", min_length=1)
    """Whose probability is the value."""


@dataclass(frozen=True, kw_only=True)
class VqaScorer(QuestionScorer):
    """VQAScore (Lin et al., ECCV 2024): how likely an LVLM says that an image shows a text.

    The question and the answer are those of linzhiqiu/t2v_metrics@880a5b8; the text is that
    of the query's question. The value is the geometric mean of the probabilities of the
    answer's tokens, 0 to 1, and of a document the mean over its images. The paper's own
    model, CLIP-FlanT5, is not one of plait's LVLMs: name the LVLM beside every figure.
    """

    settings_of = VqaScoreSettings
    about = "0-1; a probability; higher is better"
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("images/*", "probability", "0-1")
    )
    options: VqaScoreSettings

    @classmethod
    def scale_of(cls, options: Any) -> str:
        """Return the scale of a probability."""
        return "0-1"

    def questions(self, query: Query) -> Sequence[Question]:
        """Ask whether the image shows the text."""
        text = Document(query.question).text
        answer = self.options.answer
        answers = YES_NO if answer in YES_NO else (answer,)
        return [Question(self.options.question.replace("{}", text), answers)]

    def score(self, query: Query, images: Sequence[Sequence[Logprobs]]) -> Outcome[Score]:
        """Return the mean over the images."""
        values = [record.geometric_mean(self.options.answer) for (record,) in images]
        return Result(Score(fmean(values), {"images": values}))


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of one value or more; 0 where one of them is 0."""
    return math.exp(fmean(map(math.log, values))) if all(values) else 0.0
