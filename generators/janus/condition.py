"""The conditioning stage of Janus: a prompt in, the codes of its image out.

`generate` of transformers' `JanusForConditionalGeneration` draws from the global random
state; here a record's own seed gives the samples, and its neighbours change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Any

import torch
from torch import Tensor

from plait.generators.base import Failure, Outcome, Result, Skip, Weights
from plait.generators.content import answer_all, empty
from plait.generators.decoding.drafting import (
    LimitedTrack,
    LimitedWriting,
    NativePrompt,
    too_long,
)
from plait.generators.decoding.payloads import pack
from plait.generators.decoding.sampling import NO_NUMBERS, Sampler
from plait.generators.decoding.streams import Stream, Streams
from plait.generators.document import ImageRequest, Payload, Text
from plait.generators.janus.draft import ANSWER
from plait.generators.janus.models import BEGIN_IMAGE, BOS, PAD, READING, USER, load
from plait.generators.janus.settings import JanusConditionSettings
from plait.generators.overflow import SCORES, no_numbers


class JanusCondition(LimitedWriting):
    """Turns prompts into codes; takes the fields of `JanusConditionSettings`.

    An image has two streams, one with the prompt and one in which padding stands for it;
    each code is chosen by both (classifier-free guidance) and fed to both.
    """

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = own = JanusConditionSettings(**settings)
        self.janus = load(own, weights, READING)
        self._use(self.janus.model.model.language_model, own.context)
        self.limit = self.codes = self.janus.image_tokens
        # Codes along a side of an image, which is square.
        self.side = isqrt(self.codes)
        choice = (own.image_temperature, own.image_top_p, own.image_greedy)
        self.sampler = Sampler(*choice, own.image_top_k)

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Payload]]:
        """Return one payload per request, in order: `codes` (side, side).

        A prompt too long for the context is skipped; an empty one, or one without a seed
        to sample from, fails.
        """
        read = [self.prompt(request) for request in inputs]
        return answer_all(read, lambda ready: map(self._payload, ready, self.tracks(ready)))

    def prompt(self, request: ImageRequest) -> NativePrompt | Skip | Failure:
        """Return the request as the model reads it, or why it cannot be drawn."""
        if failure := empty((Text(request.prompt or ""),)):
            return failure
        if request.seed is None and self.settings.is_seeded():
            return Failure("the request has no seed, but codes are sampled")
        shown = f"{USER}: {(request.prompt or '').strip()}\n\n{ANSWER}"
        bos = self.janus.id(BOS)
        begin = self.janus.id(BEGIN_IMAGE)
        ids = [bos, *self.janus.encode(shown), begin]
        if skip := too_long(len(ids), 0, 1, self.context, self.codes):
            return skip
        return NativePrompt((ids,), shown, len(ids), 0, request.seed or 0)

    def _payload(
        self, prompt: NativePrompt, track: LimitedTrack
    ) -> Result[Payload] | Failure:
        usage = {
            "input_tokens": prompt.length,
            "output_tokens": len(track.ids),
            "images": 0,
        }
        notes = {"prompt": prompt.shown}
        if track.stop == NO_NUMBERS:
            return no_numbers(SCORES, self.dtype, usage, notes)
        codes = torch.tensor(track.ids, dtype=torch.int32).view(self.side, self.side)
        return Result(pack(codes=codes), usage, notes)

    def _streams(self, prompts: Sequence[NativePrompt]) -> Streams:
        # No image takes fewer or more codes.
        longest = max(prompt.length for prompt in prompts)
        return Streams(self.decoder, longest + self.codes)

    def _open(
        self, prompts: Sequence[NativePrompt], streams: Streams
    ) -> Sequence[tuple[Stream, ...]]:
        ids = [prompt.ids for prompt in prompts]
        if self.settings.streams == 1:
            return [(one,) for one in streams.open(self._embed_all(ids))]
        # Opened together, in one pass over the decoder.
        free = [self._without_words(own) for own in ids]
        opened = streams.open(self._embed_all([*ids, *free]))
        return list(zip(opened[: len(ids)], opened[len(ids) :], strict=True))

    def _embed_all(self, prompts: Sequence[Sequence[int]]) -> list[Tensor]:
        """Return embeddings (positions, width) of each prompt's ids."""
        return [self.embeddings(ids) for ids in prompts]

    def _without_words(self, ids: Sequence[int]) -> list[int]:
        """Return a prompt of the same length, padding but for the marks at its ends."""
        kept = {self.janus.id(BOS), self.janus.id(BEGIN_IMAGE)}
        pad = self.janus.id(PAD)
        return [token if token in kept else pad for token in ids]

    def logits(self, states: Tensor) -> Tensor:
        """Return guided logits (records, codes) of states (streams, records, width)."""
        logits: Tensor = self.janus.model.model.generation_head(states).float()
        if self.settings.streams == 1:
            return logits[0]
        prompted, free = logits
        guided: Tensor = free + self.settings.guidance * (prompted - free)
        return guided

    def embed_written(self, ids: Tensor) -> Tensor:
        """Return embeddings (codes, width) of codes (codes,)."""
        fed: Tensor = self.janus.model.prepare_embeddings_for_image_generation(ids)
        return fed
