"""Which pipelines draw from images too, and how each is given them.

Read in the sources of diffusers 0.42.1. Plain data, so that a plan needs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plait.generators.diffusion.designs import DESIGNS


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInput:
    """How a pipeline is given the images that it draws from."""

    argument: str = "image"
    most: int | None = None
    """Most images for which it is meant; None where its authors name no limit."""
    mark: str = ""
    """What the prompt must hold for each image, where `{}` is its number from 1."""
    in_batches: bool = False
    """Whether one call draws several images, each from its own one."""
    needed: bool = False
    """Whether its call fails without an image."""
    plain: str | None = None
    """Class that draws without an image from the same components, where one is needed."""

    def conditions(self, rows: Sequence[tuple[str, Sequence[Any]]]) -> dict[str, list[Any]]:
        """Return the arguments of a call for pairs of a prompt and its images."""
        prompts: list[str] = []
        given: list[Any] = []
        for prompt, images in rows:
            prompts.append(self._marks(len(images)) + prompt)
            given.append(images[0] if self.most == 1 else list(images))
        return {"prompt": prompts, self.argument: given}

    def _marks(self, images: int) -> str:
        return "".join(self.mark.format(i + 1) for i in range(images))


SEEING: Mapping[str, ImageInput] = {
    "Flux2KleinPipeline": ImageInput(),
    "Flux2Pipeline": ImageInput(),
    "GlmImagePipeline": ImageInput(),
    "OmniGenPipeline": ImageInput(
        argument="input_images", mark="<img><|image_{}|></img>", most=3
    ),
    # Model card of Qwen-Image-Edit-2509: it works best with one to three images.
    "QwenImageEditPlusPipeline": ImageInput(most=3, needed=True, plain="QwenImagePipeline"),
    "StableDiffusionInstructPix2PixPipeline": ImageInput(
        most=1, needed=True, in_batches=True
    ),
}
"""By the pipeline's class."""


def unseen(pipeline: str, images: int) -> str | None:
    """Return why a pipeline of that class cannot draw from so many images, if it cannot."""
    sight = SEEING.get(pipeline)
    if sight is None:
        return f"{pipeline} draws from text alone; from images too draw {seeing_models()}"
    if sight.most is not None and images > sight.most:
        return f"{pipeline} draws from at most {sight.most} images, not {images}"
    return None


def seeing_models() -> str:
    """Return the names of the models that draw from images, and their classes."""
    names: list[str] = []
    for design in DESIGNS.values():
        if design.preset and design.pipeline in SEEING:
            names.append(design.preset)
    return f"{', '.join(names)} and diffusers:ORG/NAME of {', '.join(SEEING)}"
