"""The conditioning stage of BAGEL: texts and images in, the latents of an image out.

A request is read as `interleave_inference` reads its input (inferencer.py of
ByteDance-Seed/Bagel@056b5fd). A record's own seed gives its noise, and its neighbours
change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image as Pillow
from torch import Tensor

from plait.generators.bagel.contexts import (
    ImagePiece,
    Piece,
    TextPiece,
    length_of,
    see,
    typical,
)
from plait.generators.bagel.flow import Flow, FlowContexts, steps_of
from plait.generators.bagel.models import Autoencoder, load, load_autoencoder
from plait.generators.bagel.pixels import places_of, to_patches, to_tensor
from plait.generators.bagel.settings import BagelConditionSettings, terms_of
from plait.generators.bagel.writing import (
    THINK_AND_DRAW,
    BagelPrompt,
    BagelWriting,
    display,
)
from plait.generators.base import Failure, Outcome, Result, Skip, Weights
from plait.generators.content import answer_all, empty
from plait.generators.decoding.drafting import context_of, too_long
from plait.generators.decoding.payloads import pack
from plait.generators.decoding.sampling import NO_NUMBERS
from plait.generators.document import Content, Image, ImageRequest, Payload, Text, Turn
from plait.generators.errors import CheckpointError
from plait.generators.images import ImageError, decode
from plait.generators.overflow import SCORES, no_numbers


@dataclass(frozen=True, slots=True)
class DrawingPrompt:
    """A request before its images are encoded."""

    terms: tuple[list[int] | Pillow.Image, ...]
    """Ids of texts, and images at the sides of those that are drawn."""
    system: int
    """How many of the first texts are not the request's."""
    shown: str
    length: int
    """Positions of all terms."""
    height: int
    width: int
    seed: int


@dataclass(slots=True)
class _Canvas:
    """An image that is being drawn."""

    prompt: DrawingPrompt
    whole: list[Piece]
    """What it is drawn from."""
    without_text: list[Piece]
    without_images: list[Piece]
    generator: torch.Generator
    thought: str = ""
    thought_tokens: int = 0
    stop: str | None = None

    @property
    def contexts(self) -> FlowContexts:
        """What it is drawn from, and what guidance leads away from."""
        return FlowContexts(
            whole=tuple(self.whole),
            without_text=tuple(self.without_text),
            without_images=tuple(self.without_images),
        )


class BagelCondition:
    """Turns requests into latents; takes the fields of `BagelConditionSettings`.

    All images of a batch are drawn together, each in up to three contexts (guidance).
    """

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = own = BagelConditionSettings(**settings)
        self.bagel = load(own, weights, True, own.think)
        self.encoder: Autoencoder = load_autoencoder(own, weights, "encoder")
        self.decoder = self.bagel.network.language_model.model
        self.table: Tensor = self.decoder.embed_tokens.weight
        most = self.decoder.config.max_position_embeddings
        self.context = context_of(own.context, most)
        longest = self.bagel.size.drawn.longest
        stride = self.bagel.size.drawn.stride
        self.height = own.height or longest
        self.width = own.width or longest
        for name, side in (("height", self.height), ("width", self.width)):
            if side % stride or side > longest:
                raise CheckpointError(
                    f"{name} is {side}; {own.model!r} draws multiples of {stride} up to "
                    f"{longest}"
                )
        if own.think:
            self.writer = BagelWriting()
            self.writer.write_with(self.bagel, own, own.max_think_tokens)

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Payload]]:
        """Return one payload per request, in order.

        It holds `latents` (patches, values), by row, and `grid`, the rows and columns of
        patches. A request too long for the context is skipped; an empty one, or one
        without a seed or with an unreadable image, fails.
        """
        return answer_all([self.prompt(request) for request in inputs], self._payloads)

    def prompt(self, request: ImageRequest) -> DrawingPrompt | Skip | Failure:
        """Return the request as the model reads it, or why it cannot be drawn."""
        asked: Content = (*request.context, Text(request.prompt or ""))
        if failure := empty(asked):
            return failure
        if request.seed is None:
            return Failure("the request has no seed to draw its noise from")
        # A prompt is a text of its own, also after a text.
        content = terms_of(Turn("user", (segment,)) for segment in asked)
        system: Content = (Text(THINK_AND_DRAW),) if self.settings.think else ()
        try:
            terms = tuple(self._term(segment) for segment in (*system, *content))
        except ImageError as error:
            return Failure(str(error))
        images = [term for term in terms if isinstance(term, Pillow.Image)]
        # What edits an image has its size (`interleave_inference`).
        width, height = images[-1].size if images else (self.width, self.height)
        of_images = [self._positions(*image.size) for image in images]
        of_texts = sum(len(term) for term in terms if isinstance(term, list))
        length = of_texts + sum(of_images)
        longest = self.bagel.size.drawn.longest
        each = typical(of_images, self._positions(longest, longest))
        room = self._room(height, width)
        if skip := too_long(length, len(images), each, self.context, room):
            return skip
        return DrawingPrompt(
            terms,
            system=len(system),
            shown=display((*system, *content)),
            length=length,
            height=height,
            width=width,
            seed=request.seed,
        )

    def _term(self, segment: Text | Image) -> list[int] | Pillow.Image:
        if isinstance(segment, Text):
            return self.bagel.encode(segment.text)
        return self.bagel.size.drawn.resize(decode(segment))

    def _room(self, height: int, width: int) -> int:
        """Return the positions behind a request: the image's, with marks, and a thought."""
        room = height * width // self.bagel.size.drawn.stride**2 + 2
        if self.settings.think:
            room += self.settings.max_think_tokens + 2
        return room

    def _positions(self, width: int, height: int) -> int:
        """Return the positions of an image: its latents, and what is seen of it."""
        latents = width * height // self.bagel.size.drawn.stride**2
        seen_width, seen_height = self.bagel.size.seen.fit(width, height)
        patches = seen_width * seen_height // self.bagel.size.seen.stride**2
        # Two marks around each.
        return latents + patches + 4

    @torch.inference_mode()
    def _payloads(
        self, prompts: Sequence[DrawingPrompt]
    ) -> list[Result[Payload] | Failure]:
        canvases = [self._canvas(prompt) for prompt in prompts]
        if self.settings.think:
            self._think(canvases)
        drawable = [canvas for canvas in canvases if canvas.stop != NO_NUMBERS]
        drawn = iter(self._draw(drawable))
        payloads: list[Result[Payload] | Failure] = []
        for canvas in canvases:
            if canvas.stop == NO_NUMBERS:
                payloads.append(no_numbers(SCORES, self.table.dtype))
            else:
                payloads.append(self._payload(canvas, next(drawn)))
        return payloads

    def _canvas(self, prompt: DrawingPrompt) -> _Canvas:
        """Return the contexts of a request; its images' latents are the first draws."""
        generator = torch.Generator().manual_seed(prompt.seed)
        whole: list[Piece] = []
        without_text: list[Piece] = []
        without_images: list[Piece] = []
        for place, term in enumerate(prompt.terms):
            if isinstance(term, Pillow.Image):
                whole += [self._latents(term, generator), see(term, self.bagel)]
                without_text = [*whole]
                continue
            text = TextPiece(term)
            # Guidance leads away from what precedes the last text, if that comes last.
            if place >= prompt.system:
                without_text = [*whole]
            whole.append(text)
            without_images.append(text)
        return _Canvas(prompt, whole, without_text, without_images, generator)

    def _latents(self, image: Pillow.Image, generator: torch.Generator) -> ImagePiece:
        latents = self.encoder.encode(to_tensor(image), generator)
        patch = self.bagel.size.patch
        rows, columns = (side // patch for side in latents.shape[1:])
        places = places_of(rows, columns, self.bagel.size.network.side)
        return ImagePiece(to_patches(latents, patch), places, latents=True)

    def _think(self, canvases: Sequence[_Canvas]) -> None:
        """Have a thought written to each request; it is read as a text of its own."""
        prompts: list[BagelPrompt] = []
        for canvas in canvases:
            prompt = BagelPrompt(
                pieces=(),
                shown="",
                # With the mark that the thought begins with.
                length=length_of(canvas.whole) + 1,
                images=0,
                # Another seed than that of the noise.
                seed=(canvas.prompt.seed + 1) % 2**63,
                read=tuple(canvas.whole),
            )
            prompts.append(prompt)
        for canvas, track in zip(canvases, self.writer.tracks(prompts), strict=True):
            canvas.stop = track.stop
            canvas.thought = self.writer.text_of(track)
            canvas.thought_tokens = len(track.ids)
            # The thought is encoded again from its text, as upstream does.
            canvas.whole.append(TextPiece(self.bagel.encode(canvas.thought)))

    def _draw(self, canvases: Sequence[_Canvas]) -> list[Tensor]:
        """Return the latents (patches, values) of each image."""
        if not canvases:
            return []
        grids: list[tuple[int, int]] = []
        noise: list[Tensor] = []
        for canvas in canvases:
            rows, columns = self._grid(canvas.prompt)
            shape = (rows * columns, self.bagel.size.network.values)
            grids.append((rows, columns))
            noise.append(torch.randn(shape, generator=canvas.generator))
        contexts = [canvas.contexts for canvas in canvases]
        flow = Flow(self.bagel, self.settings, contexts, noise, grids)
        for step in steps_of(self.settings):
            flow.advance(step)
        return flow.latents

    def _grid(self, prompt: DrawingPrompt) -> tuple[int, int]:
        """Return the rows and columns of patches of the image that is drawn."""
        stride = self.bagel.size.drawn.stride
        return prompt.height // stride, prompt.width // stride

    def _payload(self, canvas: _Canvas, latents: Tensor) -> Result[Payload] | Failure:
        prompt = canvas.prompt
        usage: dict[str, float] = {
            "input_tokens": prompt.length,
            "input_images": sum(isinstance(term, Pillow.Image) for term in prompt.terms),
            "output_tokens": canvas.thought_tokens,
            "steps": self.settings.num_timesteps - 1,
            "images": 0,
        }
        notes: dict[str, Any] = {
            "prompt": prompt.shown,
            "size": [prompt.width, prompt.height],
        }
        if self.settings.think:
            notes["thought"] = canvas.thought
        if not latents.isfinite().all():
            return no_numbers("the image's latents", self.table.dtype, usage, notes)
        grid = torch.tensor(self._grid(prompt), dtype=torch.int32)
        return Result(pack(latents=latents, grid=grid), usage, notes)
