"""Scorers of known truth: what an answer of the miniature world says and shows.

`truth:text` and `truth:image` compare an answer's text and images with the ground
truth's, `truth:answer` both together, and `truth:match` each image with what the text
beside it says. The value is F1 over attributes (colour, shape, size, place, background), 0
to 100; where the ground truth answers how many, where or yes or no, over that fact.

The ground truth is read from the reference by the same readers. What cannot be read is
Unscored. An attribute that is not clear is missed, and never wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from generators.base import (
    Job,
    Kind,
    NotApplicable,
    Result,
    Unscored,
    Walk,
)
from generators.document import Candidate, Document, Sample, Score
from generators.settings import WeightlessSettings, unkeyed
from scorers.base import Direction, OneStage

NOT_APPLICABLE, UNSCORED = "not_applicable", "unscored"
"""Names in the stage's `parts` of a reason that stands in place of a value."""
SHOWN = "shown"
"""Name in `parts` of what each image of the document shows, in words."""


class TruthSettings(WeightlessSettings):
    """How documents of the miniature world are read."""

    kind: ClassVar[Kind] = Kind.SCORE
    stage: ClassVar[str] = "truth"
    target: ClassVar[str] = "scorers.truth.stage:TruthReader"

    batch_size: int = unkeyed(64, ge=1)
    """Documents read at once."""
    num_cpus: float = unkeyed(0.5, ge=0)
    """CPU cores of one replica."""


OF_PICTURES = ("image", "match")
"""Scorers that do not apply where a query asks for no images."""


@dataclass(frozen=True, slots=True)
class TruthScorer(OneStage):
    """Scores one comparison of a document with what is known to be true."""

    settings = TruthSettings
    scale: str = "0-100"
    direction: Direction = "higher"

    @property
    def part(self) -> str:
        """`text`, `image`, `match` or `answer`."""
        return self.name.removeprefix("truth:")

    def judge(self, sample: Sample, document: Document) -> Walk[Score]:
        """Return one job per document, which all scorers of truth share."""
        if self.part in OF_PICTURES and not sample.wants_images:
            return NotApplicable("the query asks for no pictures")
        candidate = Candidate(document, reference=sample.reference)
        outcome = (yield [Job(self.stage, candidate, sample.id)])[0]
        if not isinstance(outcome, Result):
            return outcome
        part = dict(outcome.value.parts[self.part])
        if NOT_APPLICABLE in part:
            return NotApplicable(part[NOT_APPLICABLE])
        if UNSCORED in part:
            return Unscored(part[UNSCORED])
        value = part.pop("value")
        return Result(Score(value, part | {SHOWN: outcome.value.parts[SHOWN]}))
