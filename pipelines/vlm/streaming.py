"""Completions of Qwen2-VL, Qwen2.5-VL and LLaVA-NeXT, written by streams.

Prompts are not padded, beginnings that they share are read once, and a text that ends
makes room for the next. The tokens are those that `generate` would write, up to rounding:
a near tie of two tokens in float32 may fall the other way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from generators.decoding.sampling import nucleus, penalised, read_tokens, shortlist
from generators.decoding.streams import Stream, Streams
from generators.decoding.texts import TextTrack, TextWriter
from pipelines.vlm.decoding import Completion, Sampling, draw, end_ids, required
from pipelines.vlm.reading import EmbeddedPromptReader, ReadPrompt

_FAMILIES = frozenset({"qwen2_vl", "qwen2_5_vl", "llava_next"})
_DECODERS = frozenset({"qwen2_vl_text", "qwen2_5_vl_text", "llama", "mistral", "qwen2"})
_CHANGING_ROPE = frozenset({"dynamic", "longrope"})
"""Rules whose frequencies depend on the longest text of a batch."""


def is_streamable(config: Any) -> bool:
    """Whether streams write what `generate` would, by the model's configuration.

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


class StreamedModel:
    """A model whose texts are written by streams."""

    def __init__(self, model: Any, rows: int) -> None:
        """At most `rows` texts are written at a time."""
        self._model = model
        self._rows = rows
        self._reader = EmbeddedPromptReader(model)

    @torch.inference_mode()
    def complete(
        self,
        inputs: Any,
        pictures: Sequence[Sequence[str]],
        limits: Sequence[int],
        sampling: Sampling,
        seeds: Sequence[int] | None = None,
    ) -> list[Completion]:
        """Continue each row of `inputs` by at most `limits[row]` tokens.

        `inputs` is what a processor returns; `pictures` are the digests of each row's
        pictures; `seeds`, one a row, are needed when the temperature is above 0.
        """
        prompts = self._reader(inputs, pictures)
        longest = max(len(p.ids) + n for p, n in zip(prompts, limits, strict=True))
        streams = Streams(self._model.model.language_model, longest, self._reader.axes)

        def opened(records: list[int]) -> list[Stream]:
            new = [prompts[record] for record in records]
            return streams.open([p.embeddings for p in new], [p.places for p in new])

        write = TextWriter(
            streams,
            opened,
            TokenChooser(self._model.lm_head, sampling, prompts, seeds),
            self._embedded,
            end_ids(self._model.generation_config),
            self._rows,
        )
        return [_completion(track) for track in write(limits)]

    def _embedded(self, tokens: list[int]) -> Tensor:
        embedding = self._model.get_input_embeddings()
        ids = torch.tensor(tokens, device=embedding.weight.device)
        embeddings: Tensor = embedding(ids)
        return embeddings


def _completion(track: TextTrack) -> Completion:
    assert track.stop is not None
    return Completion(tuple(track.ids), track.stop, track.tokens)


class TokenChooser:
    """The next token of each record, as `generate` chooses with plait's processors."""

    def __init__(
        self,
        lm_head: Any,
        sampling: Sampling,
        prompts: Sequence[ReadPrompt],
        seeds: Sequence[int] | None,
    ) -> None:
        self._lm_head = lm_head
        self._sampling = sampling
        self._generators: list[torch.Generator] = []
        if sampling.temperature > 0:
            self._generators = [torch.Generator().manual_seed(s) for s in required(seeds)]
        self._seen: Tensor | None = None
        if sampling.repetition_penalty != 1.0:
            size, device = len(lm_head.weight), lm_head.weight.device
            self._seen = torch.zeros(len(prompts), size, dtype=torch.bool, device=device)
            for row, prompt in zip(self._seen, prompts, strict=True):
                row[prompt.ids] = True

    def __call__(self, states: Tensor, records: list[int]) -> list[int]:
        """Of hidden states (records, width) after the last norm."""
        scores = raw = self._lm_head(states).float()
        if self._seen is not None:
            seen = self._seen[records]
            scores = penalised(scores, seen, self._sampling.repetition_penalty)
        tokens = read_tokens(self._chosen(scores, records), raw)
        if self._seen is not None:
            self._seen[records, tokens] = True
        return tokens

    def _chosen(self, scores: Tensor, records: list[int]) -> Tensor:
        s = self._sampling
        if s.temperature == 0:
            return scores.argmax(dim=-1)
        limited = nucleus(shortlist(scores / s.temperature, s.top_k), s.top_p)
        generators = (self._generators[record] for record in records)
        return draw(limited, generators)
