"""How likely an LVLM's reply begins with each of some given answers, in batches.

Nothing is sampled: the tokens of an answer are put into the reply, and the model's
distribution before each is read. All answers of one token come from a single forward pass
over the prompt; a longer one adds a row to the batch, and steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

from plait.generators.base import Failure, Outcome, Result, Skip
from plait.generators.content import answer_all, empty
from plait.generators.decoding.sampling import NO_NUMBERS, sound_tokens
from plait.generators.document import LogprobsRequest, Request, Turn
from plait.generators.logprobs import AnswerTokens, Logprobs
from plait.generators.overflow import SCORES, no_numbers
from plait.pipelines.vlm.decoding import PromptBatch
from plait.pipelines.vlm.prompts import ChatPrompt
from plait.pipelines.vlm.stage import PromptedModel

Ids = tuple[int, ...]
"""Tokens of an answer, or of its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPrompt(ChatPrompt):
    """A question with its images, and the tokens of its possible answers."""

    answers: dict[str, Ids]

    @property
    def paths(self) -> list[Ids]:
        """The fewest beginnings of answers that lead to every token's distribution."""
        before = {ids[:-1] for ids in self.answers.values()}
        # A path leads past the distributions of every shorter one that it begins with.
        within = set[Ids]()
        for path in before:
            within.update(path[:length] for length in range(len(path)))
        return sorted(before - within)


class AnswerProbabilities(PromptedModel[AnswerPrompt, Logprobs]):
    """LogprobsRequest -> Logprobs: how likely each of a question's possible answers is.

    The user's turn is what is shown, then the question. The logarithms are of probabilities
    after the prompt and the tokens before, by a log-softmax in float32 of the model's
    logits, without temperature or penalty. Answers are encoded as they are written, without
    special tokens.
    """

    def __call__(self, inputs: Sequence[LogprobsRequest]) -> list[Outcome[Logprobs]]:
        """Return the probabilities of each request's answers, in order."""
        return answer_all([self._prompt(request) for request in inputs], self._answer)

    def _prompt(self, request: LogprobsRequest) -> AnswerPrompt | Skip | Failure:
        if failure := empty(request.question):
            return failure
        answers: dict[str, Ids] = {}
        for answer in request.answers:
            ids = self._tokenizer.encode(answer, add_special_tokens=False)
            answers[answer] = tuple(ids)
        if not answers or not all(answers.values()):
            return Failure(f"each answer needs a token at least: {request.answers}")
        content = (*request.shown, *request.question)
        prompt = self._prompts(Request((Turn("user", content),)))
        if not isinstance(prompt, ChatPrompt):
            return prompt
        return AnswerPrompt(
            text=prompt.text,
            images=prompt.images,
            neutralised=prompt.neutralised,
            request=prompt.request,
            answers=answers,
        )

    def _read(
        self, prompts: list[AnswerPrompt], inputs: Any, lengths: list[int]
    ) -> list[Outcome[Logprobs]]:
        rows = _rows_of(prompts)
        if len(rows) > len(prompts):
            inputs = self._prompts.encode([row.prompt for row in rows])
        reader = AnswerReader(rows)
        tracks = self._write(_batch_of(rows, inputs, reader))
        logprobs: list[dict[Ids, float]] = [{} for _ in prompts]
        broken = set[int]()
        for row, read, track in zip(rows, reader.logprobs, tracks, strict=True):
            logprobs[row.place] |= read
            if track.stop == NO_NUMBERS:
                broken.add(row.place)
        outcomes: list[Outcome[Logprobs]] = []
        for place, prompt in enumerate(prompts):
            if place in broken:
                outcomes.append(no_numbers(SCORES, self._model.dtype))
            else:
                outcomes.append(_result(prompt, logprobs[place], lengths[place]))
        return outcomes


class AnswerRow(NamedTuple):
    """A row of a batch: one of the paths along which a prompt's answers are read."""

    place: int
    """Of the prompt in the batch before it had more rows than one."""
    prompt: AnswerPrompt
    path: Ids
    """The tokens that are put into the reply."""


def _rows_of(prompts: Sequence[AnswerPrompt]) -> list[AnswerRow]:
    """Return a row for every path of every prompt."""
    rows: list[AnswerRow] = []
    for place, prompt in enumerate(prompts):
        for path in prompt.paths:
            rows.append(AnswerRow(place, prompt, path))
    return rows


def _batch_of(rows: Sequence[AnswerRow], inputs: Any, reader: AnswerReader) -> PromptBatch:
    """Return the batch of some rows, led and read by `reader`."""
    images: list[Sequence[str]] = []
    limits: list[int] = []
    for row in rows:
        images.append(row.prompt.image_digests)
        # One step more than the path has: what may follow its last token is read too.
        limits.append(len(row.path) + 1)
    # Nothing is sampled, so that no seed is read.
    return PromptBatch(inputs, images, limits, seeds=[0] * len(rows), choose=reader)


class AnswerReader:
    """Reads what it is asked for from each row's logits, and leads the row on its path."""

    def __init__(self, rows: Sequence[AnswerRow]) -> None:
        self._wanted = [_beginnings_along(row.path, row.prompt.answers) for row in rows]
        """By row and step, the beginnings of answers whose last token is read."""
        # One step more than any row has: a row that has ended may be asked once more.
        steps = max(map(len, self._wanted)) + 1
        # The most tokens that are read at one step of one row.
        most = max(map(len, chain.from_iterable(self._wanted)))
        self._tokens = torch.zeros(len(rows), steps, dtype=torch.long)
        """The path of each row, then any token that it asks for: (rows, steps)."""
        self._columns = torch.zeros(len(rows), steps, most, dtype=torch.long)
        """The tokens whose logarithms are read: (rows, steps, tokens)."""
        for number, row in enumerate(rows):
            for step, beginnings in enumerate(self._wanted[number]):
                asked = torch.tensor([ids[-1] for ids in beginnings])
                self._columns[number, step, : len(asked)] = asked
                is_last = step == len(row.path)
                self._tokens[number, step] = asked[0] if is_last else row.path[step]
        self._values = torch.zeros(len(rows), steps, most)
        """What is read: (rows, steps, tokens)."""
        self._steps = torch.zeros(len(rows), dtype=torch.long)
        """The step at which each row is: (rows,)."""

    def __call__(self, logits: Tensor, records: Tensor) -> Tensor:
        """Return the next token of each row's path; NONE where logits are no numbers."""
        if self._values.device != logits.device:
            self._move(logits.device)
        step = self._steps[records].clamp(max=self._tokens.shape[1] - 1)
        columns = self._columns[records, step]
        values = logits.log_softmax(-1).gather(1, columns)
        self._values[records, step] = values
        self._steps[records] = step + 1
        return sound_tokens(self._tokens[records, step], logits)

    def _move(self, device: torch.device) -> None:
        for name in ("_tokens", "_columns", "_values", "_steps"):
            setattr(self, name, getattr(self, name).to(device))

    @property
    def logprobs(self) -> list[dict[Ids, float]]:
        """By row: of each beginning of an answer, that of its last token."""
        rows: list[dict[Ids, float]] = []
        for steps, wanted in zip(self._values.tolist(), self._wanted, strict=True):
            logprobs: dict[Ids, float] = {}
            # There is room for the longest path, and for the most tokens of a step.
            for values, beginnings in zip(steps, wanted, strict=False):
                logprobs |= zip(beginnings, values, strict=False)
            rows.append(logprobs)
        return rows


def _beginnings_along(path: Ids, answers: Mapping[str, Ids]) -> list[list[Ids]]:
    """Return the beginnings of answers to be read before each token of `path` and after.

    At step n the reply has n tokens of the path: the distribution of the next token is read
    for every answer that begins with these and goes on.
    """
    steps: list[list[Ids]] = []
    for length in range(len(path) + 1):
        beginnings: set[Ids] = set()
        for ids in answers.values():
            if len(ids) > length and ids[:length] == path[:length]:
                beginnings.add(ids[: length + 1])
        steps.append(sorted(beginnings))
    return steps


def _result(
    prompt: AnswerPrompt, logprobs: dict[Ids, float], length: int
) -> Result[Logprobs]:
    """Return the record of a prompt of that length, by beginnings of its answers."""
    answers: dict[str, AnswerTokens] = {}
    for answer, ids in prompt.answers.items():
        of_tokens = [logprobs[ids[:end]] for end in range(1, len(ids) + 1)]
        answers[answer] = AnswerTokens(ids, tuple(of_tokens))
    notes: dict[str, Any] = {"prompt": prompt.text}
    if prompt.neutralised:
        notes["neutralised"] = list(prompt.neutralised)
    usage = {"input_tokens": length, "images": len(prompt.images)}
    return Result(Logprobs(answers), usage, notes)
