"""Metrics of all images of a system: what one document adds to them, and their figures.

`clip-fid` (Kynkäänniemi et al., ICLR 2023): the Fréchet distance between the images and
those of the ground truth, on CLIP's features. Images are cropped; clean-fid squeezes them.

`clip-kid` (Binkowski et al., ICLR 2018): the maximum mean discrepancy between the same, by
the cubic kernel of KID.

`diversity`: the mean of 1 - cosine over pairs of images: 0 where one is drawn for all.

A document has no value of its own. The figure of a system stands where the mean of other
scorers stands. All read the records of `scorers.clip.embed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from generators.base import Job, NotApplicable, SetMember, Unscored, Walk
from generators.document import Candidate, Document, Sample, Score
from scorers.base import Direction, Preset, Scorer
from scorers.clipscore import NO_IMAGE
from scorers.preferences import ClipEmbedSettings, first_missing

if TYPE_CHECKING:
    from scorers.statistics.estimate import Estimate


@dataclass(frozen=True, slots=True)
class SetScorer(Scorer):
    """Scores all images of a system together."""

    settings = ClipEmbedSettings
    licence: str = "MIT"
    images_only: bool = True

    def jobs(self, query: Sample, images: int = 1) -> int:
        """Return one for each image of the answer and of the ground truth."""
        return images + (len(query.reference.images) if query.reference else 0)

    def judge(self, query: Sample, document: Document) -> Walk[Score]:
        """Walk to what the document adds to the sets."""
        if not query.wants_images:
            return NotApplicable("the query asks for no images")
        if not document.images:
            return Unscored(NO_IMAGE)
        truth = query.reference.images if query.reference else ()
        if self.compares and not truth:
            return NotApplicable("the ground truth holds no image")
        truth = truth if self.compares else ()
        images = (*truth, *document.images)
        inputs = [Candidate(Document((image,))) for image in images]
        outcomes = yield [Job(self.stage, given, query.id) for given in inputs]
        if missing := first_missing(outcomes):
            return missing
        made = tuple(outcome.value for outcome in outcomes)  # type: ignore[union-attr]
        n = len(truth)
        return SetMember(f"{self.name} is of whole sets of images", made[n:], made[:n])

    @property
    def of_sets(self) -> bool:
        """It has no values of single documents."""
        return True

    @property
    def compares(self) -> bool:
        """Whether images are compared with those of the ground truth."""
        return self.name != "diversity"

    def figure(self, members: Mapping[str, Sequence[SetMember]]) -> Estimate:
        """Return the figure of what the documents of each query add; by the query's key."""
        from scorers.statistics.estimate import Estimate
        from scorers.statistics.image_sets import FIGURES

        added = {key: own for key, own in members.items() if own}
        if not added:
            return Estimate(None, reason="no query with images")
        answer = [[e for m in own for e in m.answer] for own in added.values()]
        truth = [[e for m in own for e in m.truth] for own in added.values()]
        return FIGURES[self.name](list(added), answer, truth)

    @classmethod
    def preset(cls, name: str) -> Preset:
        """Return the metric of that name."""
        direction: Direction = "higher" if name == "diversity" else "lower"
        about = {"scale": _SCALES[name], "direction": direction, "unit": _UNITS[name]}
        return Preset(ClipEmbedSettings(), "clip", about)


_SCALES = {"clip-fid": "unbounded", "clip-kid": "unbounded", "diversity": "0-2"}
_UNITS = {
    "clip-fid": "squared distance",
    "clip-kid": "squared discrepancy",
    "diversity": "1 - cosine",
}
