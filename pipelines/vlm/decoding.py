"""Text from a language model, each record independent of the others in its batch.

Qwen2-VL, Qwen2.5-VL and LLaVA-NeXT write by streams: prompts are not padded, beginnings
that they share are read once, and a text that ends makes room for the next. Other models
write by the library's `generate`, padded on the left. The tokens are the same up to
rounding: a near tie of two tokens in float32 may fall the other way.

`generate` samples all rows from one global generator and applies the repetition penalty to
padding; both would make an answer depend on its neighbours. So `TokenChooser` chooses for
both.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from generators.decoding.sampling import (
    drawn,
    nucleus,
    penalised,
    read_tokens,
    shortlist,
    uniforms,
)
from generators.decoding.streams import Stream, Streams
from generators.decoding.texts import TextTrack, TextWriter
from pipelines.chat.settings import ChatSettings
from pipelines.vlm.reading import EmbeddedPromptReader

_FAMILIES = frozenset({"qwen2_vl", "qwen2_5_vl", "llava_next"})
_DECODERS = frozenset({"qwen2_vl_text", "qwen2_5_vl_text", "llama", "mistral", "qwen2"})
_CHANGING_ROPE = frozenset({"dynamic", "longrope"})
"""Rules whose frequencies depend on the longest text of a batch."""


class Writer(Protocol):
    """Continues the prompts of a batch."""

    def __call__(
        self,
        inputs: Any,
        images: Sequence[Sequence[str]],
        limits: Sequence[int],
        seeds: Sequence[int],
    ) -> list[TextTrack]:
        """Return what follows each row of `inputs`, at most `limits[row]` tokens.

        `inputs` is what a processor returns, padded on the left; `images` are the digests
        of each row's images; `seeds`, one a row, are read where tokens are sampled.
        """


def writer_of(model: Any, settings: ChatSettings, may_stream: bool = True) -> Writer:
    """Return the streams where they serve the model, else `generate`."""
    if may_stream and is_streamable(model.config):
        return StreamedWriter(model, settings)
    return GenerateWriter(model, settings)


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


class StreamedWriter:
    """Writes by streams, at most `rows` texts at a time."""

    def __init__(self, model: Any, settings: ChatSettings) -> None:
        self._model = model
        self._settings = settings
        self._reader = EmbeddedPromptReader(model)

    @torch.inference_mode()
    def __call__(
        self,
        inputs: Any,
        images: Sequence[Sequence[str]],
        limits: Sequence[int],
        seeds: Sequence[int],
    ) -> list[TextTrack]:
        """As `Writer` says."""
        prompts = self._reader(inputs, images)
        longest = max(len(p.ids) + n for p, n in zip(prompts, limits, strict=True))
        streams = Streams(self._model.model.language_model, longest, self._reader.axes)
        chooser = TokenChooser(self._settings, [p.ids for p in prompts], seeds)

        def opened(records: list[int]) -> list[Stream]:
            new = [prompts[record] for record in records]
            return streams.open([p.embeddings for p in new], [p.position_ids for p in new])

        def chosen(states: Tensor, records: list[int]) -> list[int]:
            return chooser(self._model.lm_head(states).float(), records)

        ends = end_ids(self._model.generation_config)
        rows = self._settings.rows
        write = TextWriter(streams, opened, chosen, self._embedded, ends, rows)
        return write(limits)

    def _embedded(self, tokens: list[int]) -> Tensor:
        embedding = self._model.get_input_embeddings()
        ids = torch.tensor(tokens, device=embedding.weight.device)
        embeddings: Tensor = embedding(ids)
        return embeddings


class GenerateWriter:
    """Writes by `generate`, all rows at once."""

    def __init__(self, model: Any, settings: ChatSettings) -> None:
        self._model = model
        self._settings = settings

    def __call__(
        self,
        inputs: Any,
        images: Sequence[Sequence[str]],
        limits: Sequence[int],
        seeds: Sequence[int],
    ) -> list[TextTrack]:
        """As `Writer` says."""
        inputs = inputs.to(self._model.device, dtype=self._model.dtype)
        rows = zip(inputs["input_ids"], inputs["attention_mask"].bool(), strict=True)
        chooser = TokenChooser(self._settings, [ids[real] for ids, real in rows], seeds)
        tracks = [TextTrack(limit) for limit in limits]
        ends = end_ids(self._model.generation_config)
        self._model.generate(
            **inputs,
            max_new_tokens=max(limits),
            do_sample=False,
            logits_processor=LogitsProcessorList([ChosenTokens(chooser, tracks, ends)]),
        )
        return tracks


class ChosenTokens(LogitsProcessor):  # type: ignore[misc]
    """Gives every track its next token, and leaves `generate` no other choice."""

    def __init__(
        self, chooser: TokenChooser, tracks: Sequence[TextTrack], ends: Collection[int]
    ) -> None:
        self._chooser = chooser
        self._tracks = tracks
        self._ends = ends

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return scores (rows, vocabulary) that are 0 at the token and -inf elsewhere."""
        live = [row for row, track in enumerate(self._tracks) if track.stop is None]
        tokens = [min(self._ends, default=0)] * len(self._tracks)
        for row, token in zip(live, self._chooser(scores[live], live), strict=True):
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
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self._seen: Tensor | None = None
        """Of each record, which tokens it has: (records, vocabulary)."""

    def __call__(self, logits: Tensor, records: Sequence[int]) -> list[int]:
        """Return the records' tokens by their logits (records, vocabulary).

        NONE stands where these are no numbers.
        """
        penalty = self._settings.repetition_penalty
        if penalty == 1.0:
            return read_tokens(self._chosen(logits, records), logits)
        if self._seen is None:
            self._seen = self._of_prompts(logits)
        scores = penalised(logits, self._seen[records], penalty)
        tokens = read_tokens(self._chosen(scores, records), logits)
        self._seen[records, tokens] = True
        return tokens

    def _of_prompts(self, logits: Tensor) -> Tensor:
        shape = len(self._prompts), logits.shape[1]
        seen = torch.zeros(shape, dtype=torch.bool, device=logits.device)
        for row, ids in zip(seen, self._prompts, strict=True):
            row[ids] = True
        return seen

    def _chosen(self, scores: Tensor, records: Sequence[int]) -> Tensor:
        s = self._settings
        if s.temperature == 0:
            return scores.argmax(dim=-1)
        limited = nucleus(shortlist(scores / s.temperature, s.top_k), s.top_p)
        generators = (self._generators[record] for record in records)
        # In vocabulary order, in float64.
        return drawn(limited.double().softmax(-1), uniforms(generators))


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
    return set(ends) if isinstance(ends, list | tuple) else {ends} - {None}
