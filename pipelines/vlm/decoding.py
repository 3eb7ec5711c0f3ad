"""Text from a language model, each record independent of the others in its batch.

Qwen2-VL, Qwen2.5-VL, LLaVA-NeXT and Janus write by streams: prompts are not padded,
beginnings that they share are read once, and a text that ends makes room for the next.
Other models write by the library's `generate`, padded on the left. The tokens are the same
up to rounding: a near tie of two tokens in float32 may fall the other way.

`generate` samples all rows from one global generator and applies the repetition penalty to
padding; both would make an answer depend on its neighbours. So `TokenChooser` chooses for
both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from plait.generators.decoding.sampling import (
    NONE,
    Numbers,
    draw_tokens,
    mark_seen,
    nucleus,
    penalise,
    seen_ids,
    shortlist,
    sound_tokens,
)
from plait.generators.decoding.streams import Stream, Streams
from plait.generators.decoding.texts import TextTrack, TextWriter
from plait.generators.memo import Memo
from plait.pipelines.chat.settings import ChatSettings

ImageInput = dict[str, Tensor]
"""The vision model's inputs for one image, by the names of the processor."""

_IMAGES_AT_ONCE = 16
"""More at once take longer on a CPU, where their states then exceed its caches."""
_REMEMBERED_BYTES = 2**30
"""Of images' features, kept in the host's memory."""
_PER_TOKEN = ("input_ids", "attention_mask", "mm_token_type_ids")
_FAMILIES = frozenset({"qwen2_vl", "qwen2_5_vl", "llava_next", "janus"})
_DECODERS = frozenset({"qwen2_vl_text", "qwen2_5_vl_text", "llama", "mistral", "qwen2"})
_CHANGING_ROPE = frozenset({"dynamic", "longrope"})
"""Rules whose frequencies depend on the longest text of a batch."""


LogitsChooser = Callable[[Tensor, Tensor], Tensor]
"""Next tokens (rows,), or NONE, from float32 logits (rows, vocabulary) and the numbers
(rows,) of these rows in the batch."""


@dataclass(frozen=True, slots=True)
class PromptBatch:
    """The prompts of a batch, one a row."""

    inputs: Any
    """What a processor returns, padded on the left."""
    images: Sequence[Sequence[str]]
    """Digests of each row's images."""
    limits: Sequence[int]
    """Most tokens that may follow each row."""
    seeds: Sequence[int]
    """Read where tokens are sampled."""
    choose: LogitsChooser | None = None
    """Chooses in the place of a `TokenChooser` of the settings."""

    def chooser(self, settings: ChatSettings, ids: Sequence[Tensor]) -> LogitsChooser:
        """Return what chooses each row's tokens; `ids` are the rows' without padding."""
        return self.choose or TokenChooser(settings, ids, self.seeds)


Writer = Callable[[PromptBatch], list[TextTrack]]
"""Writes what follows each row."""


def writer_of(model: Any, settings: ChatSettings) -> Writer:
    """Return the streams where they serve the model, else `generate`."""
    if is_streamable(model.config):
        return partial(by_streams, model, EmbeddedPromptReader(model), settings)
    return partial(by_generate, model, settings)


def is_streamable(config: Any) -> bool:
    """Return whether streams write what `generate` would, by the model's configuration.

    They attend over every position of a text, by masks that transformers' `sdpa` reads.
    """
    text = config.get_text_config()
    rope = getattr(text, "rope_parameters", None) or {}
    return (
        config.model_type in _FAMILIES
        and text.model_type in _DECODERS
        and text._attn_implementation == "sdpa"
        and getattr(text, "sliding_window", None) is None
        and "sliding_attention" not in (getattr(text, "layer_types", None) or ())
        and rope.get("rope_type") not in _CHANGING_ROPE
    )


@dataclass(frozen=True, slots=True)
class ReadPrompt:
    """A prompt as the decoder reads it."""

    embeddings: Tensor
    """(positions, width)."""
    position_ids: Tensor
    """(positions, axes); see `plait.generators.decoding.streams`."""
    ids: Tensor
    """(positions,); those of an image's positions are all its placeholder's."""


class EmbeddedPromptReader:
    """Reads what a processor has encoded for one of these models.

    An image that was read lately, with this prompt or another, is not read again.
    """

    def __init__(self, model: Any) -> None:
        """`model` is the `...ForConditionalGeneration` of transformers."""
        self._model = model.model
        self._embedding = model.get_input_embeddings()
        self._image_id: int = model.config.image_token_id
        self._has_mrope = hasattr(self._model, "get_rope_index")
        self.axes = 3 if self._has_mrope else 1
        """How many numbers say where a token stands."""
        self._features: Memo[str, ImageInput, Tensor] = Memo(
            self._read_images, _IMAGES_AT_ONCE, _REMEMBERED_BYTES, lambda f: f.nbytes
        )

    @torch.inference_mode()
    def __call__(self, inputs: Any, images: Sequence[Sequence[str]]) -> list[ReadPrompt]:
        """Read every prompt of `inputs`, which the processor has padded.

        `images` are the digests of each prompt's images.
        """
        digests = list(chain.from_iterable(images))
        image_inputs: dict[str, ImageInput] = {}
        if digests:
            image_inputs = dict(zip(digests, _inputs_of_images(inputs), strict=True))
        features = self._features(image_inputs)
        names = [name for name in _PER_TOKEN if name in inputs]
        prompts: list[ReadPrompt] = []
        for row, own_digests in enumerate(images):
            padded = {name: inputs[name][row] for name in names}
            own_features: list[Tensor] = []
            own_grids: list[Tensor | None] = []
            for digest in own_digests:
                own_features.append(features[digest])
                # Only Qwen2-VL and its like have a grid of patches.
                own_grids.append(image_inputs[digest].get("image_grid_thw"))
            prompts.append(self._prompt(padded, own_features, own_grids))
        return prompts

    def _prompt(
        self,
        padded: dict[str, Tensor],
        features: Sequence[Tensor],
        grids: Sequence[Tensor | None],
    ) -> ReadPrompt:
        """Return a prompt as the decoder reads it; `padded` has rows of `_PER_TOKEN`."""
        real = padded.pop("attention_mask").bool()
        tokens = {name: values[real].cpu() for name, values in padded.items()}
        ids = tokens["input_ids"]
        embeddings = self._embedding(ids.to(self._embedding.weight.device))
        if features:
            at = (ids == self._image_id).to(embeddings.device)
            embeddings[at] = torch.cat(list(features)).to(embeddings)
        return ReadPrompt(embeddings, self._position_ids(tokens, grids), ids)

    def _position_ids(
        self, tokens: dict[str, Tensor], grids: Sequence[Tensor | None]
    ) -> Tensor:
        """Return where each token stands: (positions, axes)."""
        ids = tokens["input_ids"]
        if not self._has_mrope:
            return torch.arange(len(ids))[:, None]
        grids_of_images = [grid for grid in grids if grid is not None]
        all_grids = torch.cat(grids_of_images).cpu() if grids_of_images else None
        # The function takes a batch, here of one prompt, and returns its numbers as
        # (axes, prompts, positions) with an offset for decoding.
        position_ids, _ = self._model.get_rope_index(
            ids[None],
            mm_token_type_ids=tokens["mm_token_type_ids"][None],
            image_grid_thw=all_grids,
        )
        of_prompt: Tensor = position_ids[:, 0].T
        return of_prompt

    def _read_images(self, images: list[ImageInput]) -> list[Tensor]:
        """Return features (positions, width) of each image, in the host's memory."""
        weight = self._embedding.weight
        inputs = {}
        for name in images[0]:
            values = torch.cat([image[name] for image in images])
            # Grids and sizes stay whole numbers.
            like = weight if values.is_floating_point() else weight.device
            inputs[name] = values.to(like)
        read = self._model.get_image_features(**inputs, return_dict=True)
        # Copies: parts of one tensor would keep all of it.
        return [features.to("cpu", copy=True) for features in read.pooler_output]


def _inputs_of_images(inputs: Any) -> Iterator[ImageInput]:
    """Yield what a processor has prepared of each image, in their order."""
    pixels = inputs["pixel_values"]
    if "image_grid_thw" in inputs:
        # Patches of all images, one after another, without a dimension for images.
        grids = inputs["image_grid_thw"]
        of_images = pixels.split(grids.prod(-1).tolist())
        for patches, grid in zip(of_images, grids, strict=True):
            yield {"pixel_values": patches, "image_grid_thw": grid[None]}
    elif "image_sizes" in inputs:
        for tiles, size in zip(pixels, inputs["image_sizes"], strict=True):
            yield {"pixel_values": tiles[None], "image_sizes": size[None]}
    else:
        for image in pixels:
            yield {"pixel_values": image[None]}


@torch.inference_mode()
def by_streams(
    model: Any, reader: EmbeddedPromptReader, settings: ChatSettings, prompts: PromptBatch
) -> list[TextTrack]:
    """Write by streams, at most `rows` texts at a time."""
    read = reader(prompts.inputs, prompts.images)
    longest = 0
    for prompt, limit in zip(read, prompts.limits, strict=True):
        longest = max(longest, len(prompt.ids) + limit)
    streams = Streams(model.model.language_model, longest, reader.axes)
    chooser = prompts.chooser(settings, [prompt.ids for prompt in read])
    embedding = model.get_input_embeddings()

    def open_streams(records: list[int]) -> list[Stream]:
        embeddings = [read[record].embeddings for record in records]
        position_ids = [read[record].position_ids for record in records]
        return streams.open(embeddings, position_ids)

    def choose(states: Tensor, records: Tensor) -> Tensor:
        logits = model.lm_head(states[0]).float()
        # The head may lie on another device than the first layer.
        return chooser(logits, records.to(logits.device)).to(records.device)

    def embed(tokens: Tensor) -> Tensor:
        return embedding(tokens)  # type: ignore[no-any-return]

    ends = end_ids(model.generation_config)
    write = TextWriter(streams, open_streams, choose, embed, ends, settings.rows)
    return write(prompts.limits)


def by_generate(
    model: Any, settings: ChatSettings, prompts: PromptBatch
) -> list[TextTrack]:
    """Write by `generate`, all rows at once."""
    inputs = prompts.inputs.to(model.device, dtype=model.dtype)
    ids_without_padding: list[Tensor] = []
    is_real = inputs["attention_mask"].bool()
    for row, ids in enumerate(inputs["input_ids"]):
        ids_without_padding.append(ids[is_real[row]])
    chooser = prompts.chooser(settings, ids_without_padding)
    tracks = [TextTrack(limit) for limit in prompts.limits]
    chosen = ChosenTokens(chooser, tracks, end_ids(model.generation_config))
    model.generate(
        **inputs,
        max_new_tokens=max(prompts.limits),
        do_sample=False,
        logits_processor=LogitsProcessorList([chosen]),
    )
    return tracks


class ChosenTokens(LogitsProcessor):  # type: ignore[misc]
    """Gives every track its next token, and leaves `generate` no other choice."""

    def __init__(
        self, chooser: LogitsChooser, tracks: Sequence[TextTrack], ends: Collection[int]
    ) -> None:
        self._chooser = chooser
        self._tracks = tracks
        self._ends = ends

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return scores (rows, vocabulary) that are 0 at the token and -inf elsewhere."""
        live = [row for row, track in enumerate(self._tracks) if track.stop is None]
        # A row that has ended gets such a token: `generate` stops once all rows have one.
        tokens = [min(self._ends, default=0)] * len(self._tracks)
        rows = torch.tensor(live, device=scores.device)
        chosen = self._chooser(scores[rows], rows).tolist()
        for row, token in zip(live, chosen, strict=True):
            self._tracks[row].take(token, self._ends)
            if self._tracks[row].stop is None:
                tokens[row] = token
        columns = torch.tensor(tokens, device=scores.device)[:, None]
        return torch.full_like(scores, -torch.inf).scatter(1, columns, 0.0)


class TokenChooser:
    """The next token of each record: by its own generator, and its own earlier tokens."""

    def __init__(
        self, settings: ChatSettings, prompts: Sequence[Tensor], seeds: Sequence[int]
    ) -> None:
        """`prompts` are the token ids of each record's prompt, without padding."""
        self._settings = settings
        self._prompts = prompts
        self._numbers = Numbers(seeds)
        self._seen: Tensor | None = None
        """Of each record, which tokens it has: (records, vocabulary)."""

    def __call__(self, logits: Tensor, records: Tensor) -> Tensor:
        """Return the tokens (rows,) of `records` (rows,) by logits (rows, vocabulary).

        NONE stands where these are no numbers.
        """
        penalty = self._settings.repetition_penalty
        if penalty == 1.0:
            return sound_tokens(self._choose(logits, records), logits)
        if self._seen is None:
            prompts = [ids.tolist() for ids in self._prompts]
            self._seen = seen_ids(prompts, logits.shape[1], logits.device)
        scores = penalise(logits, self._seen[records], penalty)
        tokens = sound_tokens(self._choose(scores, records), logits)
        mark_seen(self._seen, records, tokens, tokens != NONE)
        return tokens

    def _choose(self, scores: Tensor, records: Tensor) -> Tensor:
        settings = self._settings
        if settings.temperature == 0:
            return scores.argmax(dim=-1)
        scaled = scores / settings.temperature
        limited = nucleus(shortlist(scaled, settings.top_k), settings.top_p)
        # In vocabulary order, in float64.
        return draw_tokens(limited.double().softmax(-1), self._numbers.draw(records))


def plain_generation(model: Any, tokenizer: Any) -> GenerationConfig:
    """Return a generation config with the checkpoint's special tokens and nothing else.

    The sampling settings of a published `generation_config.json` would apply silently
    wherever plait's settings are at their defaults.
    """
    ends = end_ids(model.generation_config) | end_ids(tokenizer)
    return GenerationConfig(
        eos_token_id=sorted(ends) or None,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
    )


def end_ids(holder: Any) -> set[int]:
    """Return the tokens that end a text, of a generation config or a tokenizer."""
    ends = holder.eos_token_id
    if ends is None:
        return set()
    return set(ends) if isinstance(ends, list | tuple) else {ends}
