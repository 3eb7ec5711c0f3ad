"""Whether an edit has kept what it was to leave alone: all outside a mask of the query.

In the edit, the masked region is replaced by the original's, so that both differ outside it
alone; then both are compared as a whole, in the size of the original.

`kept-ssim`, `kept-lpips`: as `ssim` and `lpips` compare an image with the ground truth.
`kept-dino`: the cosine of both by DINOv2 (Oquab et al., arXiv:2304.07193).

A value depends on how large the mask is: compare systems on the same queries.
"""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from plait.generators.base import (
    Failure,
    Fault,
    Job,
    Kind,
    NotApplicable,
    Outcome,
    Placement,
    Result,
    Skip,
    StageSpec,
    Unscored,
    Walk,
)
from plait.generators.document import (
    Candidate,
    Document,
    Image,
    Query,
    Score,
    TransformRequest,
)
from plait.generators.work import SCORED, FigureRange, Work
from plait.scorers.base import NoScore, Preset, Presets, Scorer
from plait.scorers.editing import edit_of, without_original
from plait.scorers.embeddings.records import directions, values_of
from plait.scorers.embeddings.settings import DinoSettings
from plait.scorers.parts import PartScale, PartTable
from plait.scorers.ssim import LpipsSettings, SsimSettings

MASK = "edit_mask"
"""Metadata of a query: its mask as base64 of PNG, white where the edit may be."""
NO_MASK = "the query has no mask of the region to edit"
_WHITE = 128
"""The least level of grey that counts as white."""

KEPT = StageSpec(
    name="kept",
    kind=Kind.TRANSFORM,
    keyed_as=Kind.RENDER,
    target="plait.scorers.kept:Kept",
    stage="kept",
    placement=Placement(batch_size=32),
    work=Work(cpu_s=FigureRange.between(0.01, 0.2), usage=SCORED),
)
"""Puts the masked region of an edit back."""


def mask_text(mask: Image | bytes) -> str:
    """Return a mask as metadata have it; ImageError for what is no image."""
    from plait.generators.images import decode

    grey = decode(mask).convert("L")
    file = io.BytesIO()
    grey.point(_WHITEN).convert("1").save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


_WHITEN = [0] * _WHITE + [255] * (256 - _WHITE)
"""By level of grey, black or white."""


def mask_of(query: Query) -> Image | None:
    """Return the mask of a query; None where it has none, or another text stands there."""
    try:
        data = base64.b64decode(query.metadata.get(MASK, ""), validate=True)
    except (binascii.Error, ValueError):
        return None
    return Image.of(data) if data else None


class Kept:
    """TransformRequest of an edit, by its original and a mask -> the edit, as PNG.

    It has the size of the original, whose pixels it has where the mask is white. Skipped
    where the mask leaves nothing.
    """

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[TransformRequest]) -> list[Outcome[Image]]:
        """Return one outcome for each edit."""
        return [self._put_back(request) for request in inputs]

    def _put_back(self, request: TransformRequest) -> Outcome[Image]:
        from PIL.Image import Resampling

        from plait.generators.images import ImageError, decode

        try:
            edited, original, mask = map(decode, request.images)
        except ImageError as error:
            return Failure(f"edit, original or mask: {error}", Fault.BAD_INPUT)
        if edited.size != original.size:
            edited = edited.resize(original.size, Resampling.BICUBIC)
        # Without new shades along the edge, which would then count as black or white.
        region = mask.convert("L").resize(original.size, Resampling.NEAREST)
        region = region.point(_WHITEN)
        if region.getextrema()[0] == 255:  # the darkest pixel is white
            return Skip("the mask leaves nothing of the image")
        edited.paste(original, mask=region)
        file = io.BytesIO()
        edited.save(file, "PNG")
        return Result(Image.of(file.getvalue()))


@dataclass(frozen=True, slots=True)
class KeptScorer(Scorer):
    """Scores how alike an edit and its original are outside the mask of the query."""

    presets: ClassVar[Presets] = {
        "kept-ssim": Preset(SsimSettings(), {"scale": "-1-1", "unit": "SSIM"}),
        "kept-lpips": Preset(
            LpipsSettings(),
            {"direction": "lower", "unit": "LPIPS (AlexNet)", "licence": "BSD-2-Clause"},
        ),
        "kept-dino": Preset(
            DinoSettings(),
            {"scale": "-1-1", "unit": "cosine", "licence": "Apache-2.0"},
            "dinov2",
        ),
    }
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("pairs/*"), PartScale("unpaired/*", "images")
    )
    images_only: bool = True

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """The stage that puts the masked region back, and the one that compares."""
        return (KEPT, self.stage)

    def jobs(self, query: Query, images: int = 1) -> int:
        """Return two: of DINOv2 both images."""
        return 2

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs an image to edit and a mask of it."""
        if mask_of(query) is None:
            return NotApplicable(NO_MASK)
        return without_original(query)

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Walk from the edit with its region put back to the score."""
        edit = edit_of(query, document)
        if isinstance(edit, Unscored):
            return edit
        mask = mask_of(query)
        assert mask is not None
        request = TransformRequest(edit.edited, (edit.original, mask))
        (kept,) = yield [Job(KEPT, request, query.id)]
        if isinstance(kept, Skip):
            # No fault of the system's: the query's mask leaves nothing to compare.
            return Unscored(kept.reason)
        if not isinstance(kept, Result):
            return kept
        if self.stage.kind is Kind.SCORE:
            truth = Document((edit.original,))
            candidate = Candidate(Document((kept.value,)), reference=truth)
            return self.read((yield [Job(self.stage, candidate, query.id)])[0])
        pair = (kept.value, edit.original)
        made = yield from values_of([Job(self.stage, i, query.id) for i in pair])
        if not isinstance(made, list):
            return made
        own, original = directions(made)
        return Result(Score(float(own @ original)))
