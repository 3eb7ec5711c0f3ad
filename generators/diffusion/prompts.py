"""What the text encoders of a pipeline read of a prompt, and what they cut off."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

_UNLIMITED = 1_000_000
"""Tokenizers without a limit of their own declare a huge one."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How much of one prompt one text encoder read."""

    kept: int
    """Tokens of the prompt itself, without the start and end tokens."""
    dropped: int
    cut: str = ""
    """The prompt from the first dropped token on."""


@dataclass(frozen=True, slots=True)
class Reader:
    """One text encoder's tokenizer and the length the pipeline cuts prompts to."""

    name: str
    """The text encoder's name in the pipeline."""
    tokenizer: Any
    limit: int
    """In tokens, start and end tokens included."""

    def read(self, prompt: str) -> Reading:
        """Count the tokens of `prompt` as the pipeline does, and find where it cuts."""
        tokens = self.tokenizer(prompt, truncation=False, verbose=False)["input_ids"]
        special = self.tokenizer.num_special_tokens_to_add(pair=False)
        count = len(tokens) - special
        kept = min(count, self.limit - special)
        if kept == count:
            return Reading(kept, 0)
        return Reading(kept, count - kept, self._after(prompt, kept))

    def _after(self, prompt: str, kept: int) -> str:
        plain = {"truncation": False, "add_special_tokens": False, "verbose": False}
        if not self.tokenizer.is_fast:
            rest = self.tokenizer(prompt, **plain)["input_ids"][kept:]
            return str(self.tokenizer.decode(rest))
        spans = self.tokenizer(prompt, return_offsets_mapping=True, **plain)
        return prompt[spans["offset_mapping"][kept][0] :]


def readers_of(pipeline: Any, max_sequence_length: int | None) -> tuple[Reader, ...]:
    """The readers of a pipeline, one for each text encoder that has a tokenizer.

    CLIP towers are cut at the pipeline's `tokenizer_max_length`, or at their tokenizer's
    own; other encoders at `max_sequence_length`, or at the pipeline's default for it
    (diffusers, `encode_prompt` of the pipelines).
    """
    found = []
    for name, tokenizer in pipeline.components.items():
        encoder_name = name.replace("tokenizer", "text_encoder")
        encoder = pipeline.components.get(encoder_name)
        if not name.startswith("tokenizer") or tokenizer is None or encoder is None:
            continue
        limit = _limit(pipeline, tokenizer, encoder, max_sequence_length)
        if limit < _UNLIMITED:
            found.append(Reader(encoder_name, tokenizer, limit))
    return tuple(found)


def _limit(pipeline: Any, tokenizer: Any, encoder: Any, told: int | None) -> int:
    own = int(tokenizer.model_max_length)
    if type(encoder).__name__.startswith("CLIPText"):
        return int(getattr(pipeline, "tokenizer_max_length", own))
    if told is not None:
        return told
    parameter = inspect.signature(pipeline.__call__).parameters.get("max_sequence_length")
    default = parameter.default if parameter else None
    return default if isinstance(default, int) else own


def readings(readers: Sequence[Reader], prompt: str) -> dict[str, dict[str, Any]]:
    """What each text encoder read of `prompt`, by the encoder's name, as plain data."""
    return {r.name: asdict(r.read(prompt)) | {"limit": r.limit} for r in readers}
