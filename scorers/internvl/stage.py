"""The MMIE-Score model as a chat stage: text and images in, one text out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from plait.generators.base import Failure, Outcome, Result, Weights
from plait.generators.content import answer_all
from plait.generators.decoding.sampling import NO_NUMBERS, sound_tokens
from plait.generators.decoding.streams import Stream, Streams
from plait.generators.decoding.texts import TextTrack, TextWriter
from plait.generators.document import Draft, Image, Request, Text
from plait.generators.overflow import SCORES, no_numbers
from plait.scorers.internvl.models import JudgeModel, load
from plait.scorers.internvl.prompts import (
    DecodedImages,
    Grid,
    JudgePrompt,
    PromptWriter,
    cut,
)
from plait.scorers.internvl.settings import MmieScoreSettings
from plait.scorers.internvl.tokenizer import END, IMAGE_TOKEN


def replies(
    judge: JudgeModel, prompts: Sequence[Tensor], limits: Sequence[int], end: int
) -> list[TextTrack]:
    """Return replies to prompts of embeddings (positions, width), all decoded together."""
    streams = Streams(judge.decoder, judge.positions)

    def open_streams(records: list[int]) -> list[Stream]:
        return _open_streams(judge, streams, [prompts[record] for record in records])

    def best(states: Tensor, records: Tensor) -> Tensor:
        logits = judge.logits(states[0])
        return sound_tokens(logits.argmax(dim=-1), logits)

    return TextWriter(streams, open_streams, best, judge.embeddings, {end})(limits)


def _open_streams(
    judge: JudgeModel, streams: Streams, prompts: Sequence[Tensor]
) -> list[Stream]:
    """Return the stream of each prompt. Long ones are read apart: see `LongRope`."""
    places: dict[bool, list[int]] = {False: [], True: []}
    for place, prompt in enumerate(prompts):
        places[judge.rope.is_long(len(prompt))].append(place)
    opened: dict[int, Stream] = {}
    for long, group in places.items():
        with judge.rope.prompts(long):
            begun = streams.open([prompts[place] for place in group])
        opened |= zip(group, begun, strict=True)
    return [opened[place] for place in range(len(prompts))]


GridFeatures = dict[tuple[str, Grid], Tensor]
"""Features (positions, width) of an image in a grid, by its digest."""


class MmieScore:
    """Answers as the judge does, greedily; takes the fields of `MmieScoreSettings`.

    In float32, replies do not depend on the batch; in bfloat16, rounding may decide between
    tokens that are nearly equal (`batch_size = 1` rules it out). Equal images of a batch
    (a question's, judged with several answers) are read by the vision model once.
    """

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        """Load the model; CheckpointError when a published checkpoint does not fit."""
        self.settings = MmieScoreSettings(**settings)
        self.judge: JudgeModel = load(weights, self.settings)
        new_tokens = self.settings.new_tokens(weights)
        self.prompt = PromptWriter(self.judge, self.settings, new_tokens)
        self._threads = ThreadPoolExecutor(self.settings.readers, "images")
        self.end = self.judge.tokenizer.id(END)
        self._image_id = self.judge.tokenizer.id(IMAGE_TOKEN)

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        """Return one draft of one text per request, in order.

        A prompt that fills the model's positions is skipped; a request without content
        or with an unreadable image fails.
        """
        decoded = self.decode(inputs)

        def answer(ready: list[JudgePrompt]) -> Iterable[Result[Draft] | Failure]:
            limits = [prompt.budget.reply for prompt in ready]
            written = replies(self.judge, self.embed(ready, decoded), limits, self.end)
            return map(self.draft_of, ready, written)

        return answer_all([self.prompt(request, decoded) for request in inputs], answer)

    def decode(self, inputs: Iterable[Request]) -> DecodedImages:
        """Return the images of requests; decoding starts at once."""
        return DecodedImages(inputs, self._threads)

    @torch.inference_mode()
    def embed(self, prompts: Sequence[JudgePrompt], decoded: DecodedImages) -> list[Tensor]:
        """Return what the decoder reads: (positions, width) of each prompt."""
        features_of = self._features(prompts, decoded)
        embedded = []
        for prompt in prompts:
            ids = torch.tensor(prompt.ids)
            inputs = self.judge.embeddings(ids)
            features: list[Tensor] = []
            for image, grid in zip(prompt.images, prompt.budget.grids, strict=True):
                features.append(features_of[image.digest, grid])
            if features:
                # An image's placeholder stands as often as the image has positions.
                is_of_image = (ids == self._image_id).to(inputs.device)
                inputs[is_of_image] = torch.cat(features)
            embedded.append(inputs)
        return embedded

    def _features(
        self, prompts: Iterable[JudgePrompt], decoded: DecodedImages
    ) -> GridFeatures:
        """Return the features of all prompts' images, each read once in each grid."""
        images: dict[tuple[str, Grid], Image] = {}
        for prompt in prompts:
            for image, grid in zip(prompt.images, prompt.budget.grids, strict=True):
                images[image.digest, grid] = image
        if not images:
            return {}

        def cut_image(key: tuple[str, Grid]) -> Tensor:
            _, grid = key
            image = decoded(images[key])
            return cut(image, grid, self.judge.tile_side, self.settings.thumbnail)

        tiles = list(self._threads.map(cut_image, images))
        features = self.judge.features(torch.cat(tiles), self.settings.tiles_at_once)
        of_images = torch.split(features, [len(own) for own in tiles])
        by_image: GridFeatures = {}
        for key, own in zip(images, of_images, strict=True):
            # (tiles, tokens, width) of an image become (positions, width).
            by_image[key] = own.flatten(0, 1)
        return by_image

    def draft_of(self, prompt: JudgePrompt, reply: TextTrack) -> Result[Draft] | Failure:
        """Return a written reply as the stage returns it."""
        if reply.stop == NO_NUMBERS:
            return no_numbers(SCORES, self.judge.model.dtype)
        usage = {
            "input_tokens": len(prompt.ids),
            "input_images": len(prompt.images),
            "output_tokens": reply.tokens,
        }
        # As upstream's `chat`: up to the end token's name, without white space around.
        text = self.judge.tokenizer.decode(reply.ids).partition(END.name)[0].strip()
        return Result(Draft((Text(text),)), usage, self._notes(prompt, reply))

    def _notes(self, prompt: JudgePrompt, reply: TextTrack) -> dict[str, Any]:
        tokens = len(prompt.ids) + reply.tokens
        notes: dict[str, Any] = {
            "prompt": prompt.shown,
            "finish": reply.stop,
            "input_tokens": len(prompt.ids),
            "context": self.settings.context,
            "over_context": tokens > self.settings.context,
        }
        if prompt.images:
            notes["image_sizes"] = [list(size) for size in prompt.sizes]
            notes["tiles"] = list(prompt.budget.tiles)
            notes["max_tiles"] = prompt.budget.max_tiles
        if prompt.spelled:
            notes["neutralised"] = list(prompt.spelled)
        return notes
