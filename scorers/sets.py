"""Metrics of all images of a system: what one document adds to them, and their figures.

`fid` (Heusel et al., NeurIPS 2017): the Fréchet distance between the images and those of
the ground truth, on the features of an Inception v3; `clip-fid` (Kynkäänniemi et al., ICLR
2023): the same on CLIP's, whose images are resized and cropped, as clean-fid does it.

`kid`, `clip-kid` (Binkowski et al., ICLR 2018): the maximum mean discrepancy between the
same, by the cubic kernel of KID.

`diversity`: the mean of 1 - cosine over pairs of images: 0 where one is drawn for all.

A document has no value of its own. The figure of a system stands where the mean of other
scorers stands. All read the records of `plait.scorers.embeddings`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

from plait.generators.base import Job, NotApplicable, SetMember, Walk
from plait.generators.document import Document, Image, Query, Score
from plait.scorers.base import MEMBER, NO_TRUE_IMAGE, NoScore, Preset, Presets, Scorer
from plait.scorers.embeddings.records import values_of
from plait.scorers.embeddings.settings import ClipSettings, InceptionSettings

if TYPE_CHECKING:
    from plait.scorers.statistics.estimate import Estimate

_FID: Mapping[str, Any] = {"direction": "lower", "unit": "squared distance"}
_KID: Mapping[str, Any] = {"direction": "lower", "unit": "squared discrepancy"}
_DIVERSITY: Mapping[str, Any] = {"scale": "0-2", "unit": "1 - cosine"}


def _inception(about: Mapping[str, Any]) -> Preset:
    return Preset(InceptionSettings(), {"licence": "Apache-2.0", **about}, "inception")


def _clip(about: Mapping[str, Any]) -> Preset:
    return Preset(ClipSettings(), {"licence": "MIT", **about}, "clip")


@dataclass(frozen=True, slots=True)
class SetScorer(Scorer):
    """Scores all images of a system together."""

    presets: ClassVar[Presets] = {
        "fid": _inception(_FID),
        "kid": _inception(_KID),
        "clip-fid": _clip(_FID),
        "clip-kid": _clip(_KID),
        "diversity": _clip(_DIVERSITY),
    }
    images_only: bool = True

    def jobs(self, query: Query, images: int = 1) -> int:
        """Return one for each image of the answer and of the ground truth."""
        return images + (len(query.reference.images) if query.reference else 0)

    def _truth(self, query: Query) -> tuple[Image, ...]:
        """Return the images of the ground truth, where it compares with them."""
        compares = self.name != "diversity"
        return query.reference.images if query.reference and compares else ()

    def query_refusal(self, query: Query) -> NoScore | None:
        """All but the diversity need images of the ground truth."""
        lacking = self.name != "diversity" and not self._truth(query)
        return NotApplicable(NO_TRUE_IMAGE) if lacking else None

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Walk to what the document adds to the sets."""
        truth = self._truth(query)
        images = (*truth, *document.images)
        # All systems share the records of the ground truth.
        jobs = [Job(self.stage, image, query.id) for image in images]
        made = yield from values_of(jobs)
        if not isinstance(made, list):
            return made
        n = len(truth)
        return SetMember(f"{self.name} {MEMBER}", tuple(made[n:]), tuple(made[:n]))

    @property
    def of_sets(self) -> bool:
        """It has no values of single documents."""
        return True

    def figure(self, members: Mapping[str, Sequence[SetMember]]) -> Estimate:
        """Return the figure of what the documents of each query add; by the query's key."""
        from plait.scorers.statistics.estimate import Estimate
        from plait.scorers.statistics.image_sets import FIGURES

        keys = []
        answers = []
        truths = []
        for key, own in members.items():
            if not own:
                continue
            keys.append(key)
            answers.append([*chain.from_iterable(member.answer for member in own)])
            truths.append([*chain.from_iterable(member.truth for member in own)])
        if not keys:
            return Estimate(None, reason="no query with images")
        return FIGURES[self.name.removeprefix("clip-")](keys, answers, truths)
