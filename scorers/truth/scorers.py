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
from functools import lru_cache
from typing import ClassVar

from plait.generators.base import NotApplicable, Outcome, Result, Unscored
from plait.generators.document import Candidate, Document, Query, Score
from plait.generators.settings import unkeyed
from plait.scorers.base import (
    NO_TRUE_IMAGE,
    NO_TRUTH,
    DocumentSettings,
    NoScore,
    Preset,
    Presets,
    Scorer,
)
from plait.scorers.parts import PartScale, PartTable
from plait.scorers.truth.text_reader import read_text, reason_without_truth

NOT_APPLICABLE = "not_applicable"
UNSCORED = "unscored"
"""Names in the stage's `parts` of a reason that stands in place of a value."""
OTHER_WORLD = "the ground truth is not of the miniature world"
SHOWN = "shown"
"""Name in `parts` of what each image of the document shows, in words."""


@lru_cache(maxsize=1024)
def _reason_without_truth(text: str) -> str:
    """`reason_without_truth` of a text that is read for every answer to a query."""
    return reason_without_truth(read_text(text))


class TruthSettings(DocumentSettings):
    """How documents of the miniature world are read."""

    stage: ClassVar[str] = "truth"
    target: ClassVar[str] = "plait.scorers.truth.stage:TruthReader"

    batch_size: int = unkeyed(64, ge=1)
    """Documents read at once."""


@dataclass(frozen=True, slots=True)
class TruthScorer(Scorer):
    """Scores one comparison of a document with what is known to be true."""

    presets: ClassVar[Presets] = {
        f"truth:{part}": Preset(TruthSettings())
        for part in ("answer", "image", "match", "text")
    }
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("precision", "share", "0-1"),
        PartScale("recall", "share", "0-1"),
        PartScale("attributes/*/*", "attributes"),
        PartScale("each/*"),
    )
    scale: str = "0-100"
    unit: str = "F1"

    @property
    def part(self) -> str:
        """`text`, `image`, `match` or `answer`."""
        return self.name.removeprefix("truth:")

    def query_refusal(self, query: Query) -> NoScore | None:
        """All but the match need a ground truth that can be read."""
        if self.part == "match":
            return None
        if query.reference is None:
            return NotApplicable(NO_TRUTH)
        if why := _reason_without_truth(query.reference.text):
            return NotApplicable(f"{OTHER_WORLD}: {why}")
        lacking = self.part == "image" and not query.reference.images
        return NotApplicable(NO_TRUE_IMAGE) if lacking else None

    def candidate(self, query: Query, document: Document) -> Candidate:
        """Return the document and the ground truth, the same for all scorers of truth."""
        return Candidate(document, reference=query.reference)

    def read(self, outcome: Outcome[Score]) -> Outcome[Score]:
        """Return the value of this comparison, or why it has none."""
        if not isinstance(outcome, Result):
            return outcome
        part = dict(outcome.value.parts[self.part])
        if NOT_APPLICABLE in part:
            return NotApplicable(part[NOT_APPLICABLE])
        if UNSCORED in part:
            return Unscored(part[UNSCORED])
        value = part.pop("value")
        return Result(Score(value, part | {SHOWN: outcome.value.parts[SHOWN]}))


@dataclass(frozen=True, slots=True)
class ImageTruthScorer(TruthScorer):
    """One of those that look at images."""

    images_only: bool = True
