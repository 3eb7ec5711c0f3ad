"""Settings of images that a multimodal model draws by its own `generate`. No torch."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from generators.base import Kind
from generators.settings import ModelSettings, unkeyed


class GeneratedImagesSettings(ModelSettings):
    """Any class of transformers whose `output_modalities` have `image`.

    None stands for what is published with the model's class.
    """

    kind: ClassVar[Kind] = Kind.RENDER
    stage: ClassVar[str] = "generated-images"
    target: ClassVar[str] = "pipelines.vlm.images:GeneratedImages"
    seeded: ClassVar[bool] = True

    batch_size: int = unkeyed(4, ge=1)
    """Of Emu3, whose images are drawn together; others are drawn one at a time."""
    guidance: float | None = Field(default=None, ge=1)
    """Scale of classifier-free guidance: Janus 5, Emu3 3; 1 for none."""
    greedy: bool = False
    temperature: float = Field(default=1.0, gt=0)
    top_k: int | None = Field(default=None, ge=0)
    """Only so many of the likeliest codes: Emu3 2048, others all, which is 0."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    prompt_suffix: str | None = None
    """Put after every prompt; Emu3 has one."""
    negative_prompt: str | None = None
    """What guidance leads away from (Emu3 alone)."""
    ratio: str = Field(default="1:1", pattern=r"^\d+:\d+$")
    """Width to height (Emu3 alone)."""
    image_area: int = Field(default=518_400, ge=64)
    """Pixels of an image (Emu3 alone)."""
