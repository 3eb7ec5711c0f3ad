"""How alike the images of one answer are: style and subject kept from image to image.

The mean cosine over all pairs of a document's images, from -1 to 1, as criterion 6 of the
MMIE paper asks (appendix A.9): `consistency` by CLIP, `consistency-dino` by DINOv2, which
tells single subjects of a kind apart where CLIP sees the kind (Ruiz et al., CVPR 2023,
section 4, of DINO). It sees neither text nor order: images all copied from one other
answer score as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from generators.base import Job, Kind, NotApplicable, Outcome, Result, Unscored, Walk
from generators.document import Document, Sample, Score
from scorers.base import Preset, Scorer
from scorers.embeddings.records import alone, directions, values_of
from scorers.embeddings.settings import ClipSettings, DinoSettings


@dataclass(frozen=True, slots=True)
class ConsistencyScorer(Scorer):
    """Scores how alike the images of a document are."""

    former = "clipscore"
    scale: str = "-1-1"
    unit: str = "cosine"
    images_only: bool = True

    @classmethod
    def preset(cls, name: str) -> Preset:
        """Return the model of that name."""
        if name == "consistency-dino":
            return Preset(DinoSettings(), "dinov2", {"licence": "Apache-2.0"})
        return Preset(ClipSettings(), "clip", {"licence": "MIT"})

    def jobs(self, query: Sample, images: int = 1) -> int:
        """Return one for each image."""
        return images

    def read(self, outcome: Outcome[Score]) -> Outcome[Score]:
        """Return the score in a former record: of the images that have text beside them."""
        if not isinstance(outcome, Result):
            return outcome
        parts = outcome.value.parts
        if parts["likeness"] is None:
            return Unscored("fewer than two images have text beside them")
        return Result(Score(parts["likeness"], {"images": parts["scored_pairs"]}))

    def judge(self, query: Sample, document: Document) -> Walk[Score]:
        """Walk to the mean over pairs of images."""
        if not query.wants_images:
            return NotApplicable("the query asks for no images")
        if (n := len(document.images)) < 2:
            return Unscored("the document holds fewer than two images")
        if self.stage.kind is Kind.SCORE:
            return (yield from self.whole(query, document))
        jobs = [Job(self.stage, alone(image), query.id) for image in document.images]
        made = yield from values_of(jobs)
        if not isinstance(made, list):
            return made
        total = directions(made).sum(axis=0)
        # The square of the sum holds each pair twice, and each image with itself.
        return Result(Score(float(total @ total - n) / (n * (n - 1)), {"images": n}))
