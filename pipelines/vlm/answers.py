"""How likely an LVLM's reply begins with each of some given answers, in batches.

Nothing is sampled: the tokens of an answer are put into the reply, and the model's
distribution before each is read. All answers of one token come from a single forward pass
over the prompt; a longer one adds a row to the batch, and steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
        within = set[Ids]()
        for path in before:
            within.update(path[:n] for n in range(len(path)))
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
        encode = self._tokenizer.encode
        answers = {
            answer: tuple(encode(answer, add_special_tokens=False))
            for answer in request.answers
        }
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
        rows: list[tuple[int, Ids]] = []
        for number, prompt in enumerate(prompts):
            rows += [(number, path) for path in prompt.paths]
        prompt_of_row = [prompts[number] for number, _ in rows]
        if len(rows) > len(prompts):
            inputs = self._prompts.encode(prompt_of_row)
        images = [prompt.image_digests for prompt in prompt_of_row]
        reader = AnswerReader([(prompts[number].answers, path) for number, path in rows])
        # One step more than the path has: what may follow its last token is read too.
        limits = [len(path) + 1 for _, path in rows]
        seeds = [0] * len(rows)  # of which nothing is sampled
        tracks = self._write(PromptBatch(inputs, images, limits, seeds, reader))
        known: list[dict[Ids, float]] = [{} for _ in prompts]
        broken = set[int]()
        for (number, _), logprobs, track in zip(rows, reader.logprobs, tracks, strict=True):
            known[number] |= logprobs
            if track.stop == NO_NUMBERS:
                broken.add(number)
        outcomes: list[Outcome[Logprobs]] = []
        for number, prompt in enumerate(prompts):
            if number in broken:
                outcomes.append(no_numbers(SCORES, self._model.dtype))
            else:
                outcomes.append(_result(prompt, known[number], lengths[number]))
        return outcomes


class AnswerReader:
    """Reads what it is asked for from each row's logits, and leads the row on its path."""

    def __init__(self, rows: Sequence[tuple[dict[str, Ids], Ids]]) -> None:
        """`rows` are a question's answers, and the tokens that are put into its reply."""
        self._wanted = [_beginnings_along(path, answers) for answers, path in rows]
        # One step more than any row has: a row that has ended may be asked once more.
        steps = max(len(beginnings) for beginnings in self._wanted) + 1
        most = max(len(step) for row in self._wanted for step in row)
        self._tokens = torch.zeros(len(rows), steps, dtype=torch.long)
        """The path of each row, then any token that it asks for: (rows, steps)."""
        self._columns = torch.zeros(len(rows), steps, most, dtype=torch.long)
        """The tokens whose logarithms are read: (rows, steps, tokens)."""
        for row, (_, path) in enumerate(rows):
            for step, beginnings in enumerate(self._wanted[row]):
                asked = torch.tensor([ids[-1] for ids in beginnings])
                self._columns[row, step, : len(asked)] = asked
                self._tokens[row, step] = path[step] if step < len(path) else asked[0]
        self._values = torch.zeros(len(rows), steps, most)
        self._steps = torch.zeros(len(rows), dtype=torch.long)

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
        found: list[dict[Ids, float]] = []
        for row, steps in zip(self._values.tolist(), self._wanted, strict=True):
            own: dict[Ids, float] = {}
            for values, beginnings in zip(row, steps, strict=False):
                own |= zip(beginnings, values, strict=False)
            found.append(own)
        return found


def _beginnings_along(path: Ids, answers: Mapping[str, Ids]) -> list[list[Ids]]:
    """Return the beginnings of answers to be read before each token of `path` and after.

    At step n the reply has n tokens of the path: the distribution of the next token is read
    for every answer that begins with these and goes on.
    """
    steps = []
    for n in range(len(path) + 1):
        going_on = [ids for ids in answers.values() if ids[:n] == path[:n] and len(ids) > n]
        steps.append(sorted({ids[: n + 1] for ids in going_on}))
    return steps


def _token_logprobs(ids: Ids, known: Mapping[Ids, float]) -> tuple[float, ...]:
    """Return that of each token of an answer, by the beginnings that end in them."""
    return tuple(known[ids[:n]] for n in range(1, len(ids) + 1))


def _result(
    prompt: AnswerPrompt, logprobs: dict[Ids, float], length: int
) -> Result[Logprobs]:
    answers = {
        answer: AnswerTokens(ids, _token_logprobs(ids, logprobs))
        for answer, ids in prompt.answers.items()
    }
    notes: dict[str, Any] = {"prompt": prompt.text}
    if prompt.neutralised:
        notes["neutralised"] = list(prompt.neutralised)
    usage = {"input_tokens": length, "images": len(prompt.images)}
    return Result(Logprobs(answers), usage, notes)
