"""The stage that draws: any text-to-image pipeline of diffusers, batched over requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PIL.Image import Image as Pillow

from plait.generators.base import Failure, Fault, Outcome, Result, Skip, Weights
from plait.generators.content import answer_all, prompt_and_seed
from plait.generators.diffusion.drawer import Drawer
from plait.generators.diffusion.inputs import SEEING, unseen
from plait.generators.diffusion.prompts import readers_of, readings
from plait.generators.document import Image, ImageRequest
from plait.generators.errors import UsageError
from plait.generators.images import Drawing, ImageError, decode
from plait.pipelines.presets import TextToImageSettings


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request that can be drawn."""

    prompt: str
    seed: int
    images: tuple[Pillow, ...]
    digests: tuple[str, ...]
    """Of the images, as the request names them."""


class TextToImage:
    """ImageRequest -> Drawing: uint8 pixels of shape (height, width, 3).

    Images of a row start from the same noise where two models have latents of one shape
    and dtype (openjourney and sdxl-turbo at 512, sd3 and flux at equal dtype). The images
    of a request's context are given to the pipelines that draw from images too (SEEING).
    """

    def __init__(self, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = own = TextToImageSettings(**settings)
        self.drawer = self.plain = Drawer(own, weights)
        self.pipeline = type(self.drawer.pipeline).__name__
        """The class that the checkpoint names."""
        if own.input_images and (reason := unseen(self.pipeline, own.input_images)):
            raise UsageError(f"{own.model!r}: {reason}")
        self.sight = SEEING.get(self.pipeline)
        if self.sight is not None and self.sight.plain is not None:
            self.plain = self.drawer.of_class(self.sight.plain)
        self.readers = readers_of(self.plain.pipeline, own)

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        """Return one image per request; a request that cannot be drawn fails alone."""
        return answer_all([self._read(request) for request in inputs], self._draw)

    def forget(self) -> None:
        """Forget what earlier prompts were encoded as; for measurements."""
        for drawer in (self.drawer, self.plain):
            if drawer.encoder is not None:
                drawer.encoder.forget()

    def _read(self, request: ImageRequest) -> _Asked | Skip | Failure:
        sources = [part for part in request.context if isinstance(part, Image)]
        if sources and (reason := unseen(self.pipeline, len(sources))):
            return Failure(reason, Fault.BAD_INPUT)
        read = prompt_and_seed(request, self.settings.prompt_prefix, images=True)
        if isinstance(read, Failure):
            return read
        if not sources and self.sight and self.sight.needed and not self.sight.plain:
            return Skip(f"{self.pipeline} draws from an image, and there is none so far")
        size = self.drawer.input_size
        images = []
        try:
            for source in sources:
                image = decode(source)
                images.append(image.resize(size) if size else image)
        except ImageError as error:
            return Failure(str(error), Fault.BAD_INPUT)
        prompt, seed = read
        digests = [source.digest for source in sources]
        return _Asked(prompt, seed, tuple(images), tuple(digests))

    def _draw(self, asked: Sequence[_Asked]) -> list[Outcome[Drawing]]:
        """Draw those without images and those with images in a batch each."""
        drawn: dict[int, Outcome[Drawing]] = {}
        for seeing in (False, True):
            places: list[int] = []
            alike: list[_Asked] = []
            for place, one in enumerate(asked):
                if bool(one.images) == seeing:
                    places.append(place)
                    alike.append(one)
            if alike:
                outcomes = self._draw_alike(alike, seeing)
                drawn |= zip(places, outcomes, strict=True)
        return [drawn[place] for place in range(len(asked))]

    def _draw_alike(self, asked: Sequence[_Asked], seeing: bool) -> list[Outcome[Drawing]]:
        """Draw requests that all have images (`seeing`), or all have none."""
        seeds = [one.seed for one in asked]
        notes = dict[str, Any]()
        if seeing and self.sight is not None:
            conditions = self.sight.conditions([(one.prompt, one.images) for one in asked])
            outcomes = self.drawer(conditions, seeds, alone=not self.sight.in_batches)
        else:
            outcomes = self.plain({"prompt": [one.prompt for one in asked]}, seeds)
            if self.plain is not self.drawer:
                notes["pipeline"] = type(self.plain.pipeline).__name__
        with_notes: list[Outcome[Drawing]] = []
        for outcome, one in zip(outcomes, asked, strict=True):
            with_notes.append(self._note(outcome, one, notes))
        return with_notes

    def _note(
        self, outcome: Outcome[Drawing], one: _Asked, notes: Mapping[str, Any]
    ) -> Outcome[Drawing]:
        if not isinstance(outcome, Result | Failure):
            return outcome
        about: dict[str, Any] = {"prompt": one.prompt, "seed": one.seed}
        if one.images:
            about["input_images"] = list(one.digests)
        # With an image, Qwen-Image-Edit cuts no prompt.
        if not one.images or self.plain is self.drawer:
            about["text_encoders"] = readings(self.readers, one.prompt)
        return replace(outcome, notes={**about, **notes, **outcome.notes})
