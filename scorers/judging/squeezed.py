"""Images as OpenING's GPT_score_A.py shows them: squeezed to a square, as JPEG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from PIL import Image as Pillow

from generators.base import Outcome, Result, Skip
from generators.document import Image, ImageRequest


class Squeezed:
    """ImageRequest with one image as context -> that image as JPEG of side x side pixels.

    One that cannot be saved as JPEG, such as any with alpha or a palette, is skipped.
    """

    def __init__(self, side: int, **_: Any) -> None:
        self.side = side

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Image]]:
        """Return one outcome for each image."""
        return [self._squeezed(request) for request in inputs]

    def _squeezed(self, request: ImageRequest) -> Outcome[Image]:
        (image,) = (s for s in request.context if isinstance(s, Image))
        file = io.BytesIO()
        try:
            with Pillow.open(io.BytesIO(image.read())) as pil_image:
                pil_image.resize((self.side, self.side)).save(file, "JPEG")
        except Exception as error:
            # As the released program does, whatever the error.
            return Skip(f"the released program leaves it out: {error}")
        return Result(Image.of(file.getvalue()))
