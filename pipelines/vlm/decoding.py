"""Text from a language model, each record independent of the others in its batch.

`transformers` samples all rows from one global generator and applies the repetition
penalty to padding; both would make an answer depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from generators.decoding.sampling import NO_NUMBERS, NumberCheck, drawn, uniforms
from generators.decoding.texts import Finish


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen."""

    temperature: float = 0.0
    """0 takes the likeliest token."""
    top_p: float = 1.0
    top_k: int = 0
    repetition_penalty: float = 1.0


@dataclass(frozen=True, slots=True)
class Completion:
    """The text a model wrote for one record, as tokens."""

    ids: tuple[int, ...]
    """Token ids without the one that ended the text."""
    finish: Finish
    num_tokens: int
    """Tokens written, the ending one included."""


def complete(
    model: Any,
    inputs: Any,
    limits: Sequence[int],
    sampling: Sampling,
    seeds: Sequence[int] | None = None,
) -> list[Completion]:
    """Continue each left-padded row of `inputs` by at most `limits[row]` tokens.

    `inputs` is what a processor returns, with input_ids of shape (rows, length);
    `seeds`, one a row, are needed when the temperature is above 0.
    """
    start = inputs["input_ids"].shape[1]
    check = NumberCheck()
    written = model.generate(
        **inputs,
        max_new_tokens=max(limits),
        do_sample=False,
        logits_processor=[check, *_processors(inputs["attention_mask"], sampling, seeds)],
    )
    ends = end_ids(model.generation_config)
    rows = zip(written[:, start:].tolist(), check.rows, limits, strict=True)
    return [_completion(r[:n], numbers, ends) for r, numbers, n in rows]


def plain_generation(model: Any, tokenizer: Any) -> GenerationConfig:
    """A generation config with the checkpoint's special tokens and nothing else of it.

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
    """The tokens that end a text, of a generation config or a tokenizer."""
    ends = holder.eos_token_id
    return set(ends) if isinstance(ends, list | tuple) else {ends} - {None}


def _completion(row: list[int], numbers: list[bool], ends: set[int]) -> Completion:
    end = next((i for i, token in enumerate(row) if token in ends), None)
    length = len(row) if end is None else end + 1
    finish: Finish = "length" if end is None else "stop"
    if not all(numbers[:length]):
        finish = NO_NUMBERS
    return Completion(tuple(row[:end]), finish, length)


def required(seeds: Sequence[int] | None) -> Sequence[int]:
    """The seeds; ValueError where there are none."""
    if seeds is None:
        raise ValueError("sampling needs a seed for each record")
    return seeds


def _processors(
    attention_mask: torch.Tensor, sampling: Sampling, seeds: Sequence[int] | None
) -> LogitsProcessorList:
    processors = LogitsProcessorList()
    if sampling.repetition_penalty != 1.0:
        processors.append(RepetitionPenalty(sampling.repetition_penalty, attention_mask))
    if sampling.temperature == 0:
        return processors
    processors.append(TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k:
        processors.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        processors.append(TopPLogitsWarper(sampling.top_p))
    processors.append(DrawToken(required(seeds)))
    return processors


def draw(scores: torch.Tensor, generators: Iterable[torch.Generator]) -> torch.Tensor:
    """A token for each row of scores (rows, vocabulary), by the row's own generator.

    It inverts the cumulative distribution over the vocabulary, in vocabulary order.
    """
    return drawn(scores.double().softmax(-1), uniforms(generators))


class RepetitionPenalty(LogitsProcessor):  # type: ignore[misc]
    """The penalty of Keskar et al. (2019) on all tokens of a row but its padding.

    The padding token often is an end token too: penalised with the padding, a row would
    end later the longer its neighbours are.
    """

    def __init__(self, penalty: float, attention_mask: torch.Tensor) -> None:
        self._penalise = RepetitionPenaltyLogitsProcessor(penalty)
        self._padding = attention_mask == 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores (rows, vocabulary) after the penalty."""
        ids = input_ids.clone()
        prompt = ids[:, : self._padding.shape[1]]
        last = prompt[:, -1:].expand_as(prompt)
        prompt[self._padding] = last[self._padding]
        penalised: torch.Tensor = self._penalise(ids, scores)
        return penalised


class DrawToken(LogitsProcessor):  # type: ignore[misc]
    """Samples each row's token with the row's own generator and leaves no other choice."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores (rows, vocabulary) that are 0 at the sampled token and -inf elsewhere."""
        columns = draw(scores, self._generators)
        return torch.full_like(scores, -torch.inf).scatter(1, columns[:, None], 0.0)
