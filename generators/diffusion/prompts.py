"""How much of a prompt the text encoders of a pipeline read, and what they cut off."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from plait.generators.diffusion.designs import DESIGNS
from plait.generators.diffusion.settings import DiffusionSettings

_UNLIMITED = 1_000_000
"""Tokenizers that have no limit declare a huge one."""
_TEMPLATES = {design.pipeline: design.template for design in DESIGNS.values()}
_MARK = "PROMPT"
_INSTRUCTION = "complex_human_instruction"


@dataclass(frozen=True, slots=True)
class PromptReader:
    """One text encoder's tokenizer and the length the pipeline cuts prompts to."""

    name: str
    """The text encoder's name in the pipeline."""
    tokenizer: Any
    limit: int
    """In tokens, start and end tokens included."""
    before: int = 0
    """Tokens of a chat template or an instruction that take their place in the limit."""

    def read(self, prompt: str) -> dict[str, Any]:
        """Return how many tokens of the prompt itself are `kept` and `dropped`.

        They are counted as the pipeline does; `cut` is the prompt from the first dropped
        one on.
        """
        tokens = self.tokenizer(prompt, truncation=False, verbose=False)["input_ids"]
        special = self.tokenizer.num_special_tokens_to_add(pair=False)
        count = len(tokens) - special
        kept = min(count, max(0, self.limit - special - self.before))
        cut = "" if kept == count else self._after(prompt, kept)
        return {"kept": kept, "dropped": count - kept, "cut": cut, "limit": self.limit}

    def _after(self, prompt: str, kept: int) -> str:
        plain = {"truncation": False, "add_special_tokens": False, "verbose": False}
        if not self.tokenizer.is_fast:
            rest = self.tokenizer(prompt, **plain)["input_ids"][kept:]
            return str(self.tokenizer.decode(rest))
        spans = self.tokenizer(prompt, return_offsets_mapping=True, **plain)
        return prompt[spans["offset_mapping"][kept][0] :]


def readers_of(pipeline: Any, settings: DiffusionSettings) -> tuple[PromptReader, ...]:
    """Return the readers of a pipeline, one for each text encoder that has a tokenizer.

    CLIP towers are cut at the pipeline's `tokenizer_max_length`, or at their tokenizer's
    own; other encoders at `max_sequence_length`, or at the pipeline's default for it
    (diffusers, `encode_prompt` of the pipelines). Language models read the prompt inside a
    template; what comes before it counts. A processor in a tokenizer's place is not read.
    """
    readers: list[PromptReader] = []
    for name, tokenizer in pipeline.components.items():
        encoder = name.replace("tokenizer", "text_encoder")
        if not name.startswith("tokenizer") or pipeline.components.get(encoder) is None:
            continue
        if not isinstance(tokenizer, PreTrainedTokenizerBase):
            continue
        limit = _limit(pipeline, tokenizer, pipeline.components[encoder], settings)
        if limit < _UNLIMITED:
            before = _before(pipeline, tokenizer, settings)
            readers.append(PromptReader(encoder, tokenizer, limit, before))
    return tuple(readers)


def _limit(pipeline: Any, tokenizer: Any, encoder: Any, settings: DiffusionSettings) -> int:
    """Return how many tokens the pipeline hands to a text encoder at most."""
    own = int(tokenizer.model_max_length)
    if type(encoder).__name__.startswith("CLIPText"):
        return int(getattr(pipeline, "tokenizer_max_length", own))
    if settings.max_sequence_length is not None:
        return settings.max_sequence_length
    parameter = inspect.signature(pipeline.__call__).parameters.get("max_sequence_length")
    default = parameter.default if parameter else None
    return default if isinstance(default, int) else own


def _before(pipeline: Any, tokenizer: Any, settings: DiffusionSettings) -> int:
    """Return the tokens put before the prompt that count towards the limit."""
    match _TEMPLATES.get(type(pipeline).__name__):
        case "chat":
            messages = [{"role": "user", "content": _MARK}]
            text = tokenizer.apply_chat_template(messages, tokenize=False)
            return _length(tokenizer, text.partition(_MARK)[0])
        case "own":
            text = pipeline.prompt_template_encode.partition("{}")[0]
            dropped: int = pipeline.prompt_template_encode_start_idx
            return max(0, _length(tokenizer, text) - dropped)
        case "instruction":
            # Of its instruction, the last token stays.
            default = inspect.signature(pipeline.__call__).parameters[_INSTRUCTION].default
            return int(bool(settings.arguments.get(_INSTRUCTION, default)))
    return 0


def _length(tokenizer: Any, text: str) -> int:
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


def readings(readers: Sequence[PromptReader], prompt: str) -> dict[str, dict[str, Any]]:
    """Return what each text encoder read of `prompt`, by the encoder's name."""
    return {reader.name: reader.read(prompt) for reader in readers}
