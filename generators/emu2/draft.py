"""The drafting stage of Emu2: a conversation in, the text of Emu2-Chat out.

Beam search over embedded prompts is transformers', with upstream's scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, RepetitionPenaltyLogitsProcessor

from plait.generators.base import Failure, Skip, Weights
from plait.generators.content import unanswerable
from plait.generators.decoding.drafting import (
    Drafting,
    NativePrompt,
    Piece,
    Stop,
    Track,
    context_of,
    pieces_of,
)
from plait.generators.decoding.sampling import NO_NUMBERS, NumberCheck
from plait.generators.document import Request, Text, content_of_turns, texts_in
from plait.generators.emu2.models import load
from plait.generators.emu2.settings import Emu2DraftSettings
from plait.generators.rounds import continue_turns


class ChatTemplate(NamedTuple):
    """The marks around the turns of a conversation."""

    system: str
    user: str
    """Before a question."""
    assistant: str
    """Before an answer."""
    again: str = "</s>"
    """Between an answer and the next question's mark."""


TEMPLATES: Mapping[str, ChatTemplate] = {
    "native": ChatTemplate(
        "You are a helpful assistant, dedicated to delivering comprehensive and "
        "meticulous responses.",
        " [USER]: ",
        " [ASSISTANT]:",
    ),
    "hf": ChatTemplate("", "[USER]: ", "[ASSISTANT]:"),
}
"""`_prepare_chat_inputs` of emu/chat.py (baaivision/Emu), and `_prepare_chat_template` of
modeling_emu.py on the Hub, which takes one question only: the marks between turns are
the other's. A special token drops the spaces beside it (`Emu2Tokens`)."""


def chat_parts(request: Request, settings: Emu2DraftSettings) -> list[Piece]:
    """Return text and images of a conversation that the model continues.

    A last turn of the assistant is the answer so far, from an earlier round.
    """
    template = TEMPLATES[settings.template]
    said = [turn for turn in request.turns if turn.role != "system"]
    turns, answer = continue_turns(said, settings.continuation, settings.feed_images, " ")
    parts: list[Piece] = [_system(request, template, settings)]
    after_answer = False
    for turn in turns:
        if turn.role == "assistant":
            parts.append(template.assistant + " ")
        elif after_answer:
            parts.append(template.again + template.user.lstrip())
        else:
            parts.append(template.user)
        parts += pieces_of(turn.content)
        after_answer = turn.role == "assistant"
    return [*parts, template.assistant, *pieces_of(answer)]


def _system(request: Request, template: ChatTemplate, settings: Emu2DraftSettings) -> str:
    """Return the system message, and the texts of the request's own system turns."""
    own = template.system if settings.system_message is None else settings.system_message
    turns = [turn for turn in request.turns if turn.role == "system"]
    texts = [own, *texts_in(content_of_turns(turns))]
    return " ".join(filter(None, texts))


class Beam(NamedTuple):
    """One of the answers that beam search ends with."""

    ids: list[int]
    """Up to its end, where it has one."""
    score: float
    """That of transformers: the sum of logarithms by a power of the length."""
    numbers: list[bool]
    """Whether each step had numbers to choose by."""


class Emu2Draft(Drafting[Track]):
    """Writes answers by beam search; takes the fields of `Emu2DraftSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = own = Emu2DraftSettings(**settings)
        self.model = load(own, weights, "chat")
        self.dtype = self.model.network.lm.dtype
        self.context = context_of(own.context, self.model.context)
        self._end = self.model.tokens["</s>"]
        self._config = GenerationConfig(
            do_sample=False,
            num_beams=own.num_beams,
            # All of them: `_best` chooses by other lengths than `generate` does.
            num_return_sequences=own.num_beams,
            max_new_tokens=own.max_new_tokens,
            min_new_tokens=own.min_new_tokens or None,
            length_penalty=own.length_penalty if own.num_beams > 1 else None,
            bos_token_id=self.model.tokens["<s>"],
            eos_token_id=self._end,
            pad_token_id=self.model.tokens["[PAD]"],
            return_dict_in_generate=True,
            output_scores=True,
        )

    def prompt(self, request: Request) -> NativePrompt | Skip | Failure:
        """Return the request as the model reads it, or why it cannot be answered."""
        if failure := unanswerable(request, self.settings.is_seeded()):
            return failure
        parts = chat_parts(request, self.settings)
        return self.model.read(parts, self.settings.max_new_tokens, self.context)

    def tracks(self, prompts: Sequence[NativePrompt]) -> list[Track]:
        """Return the finished answer to each prompt."""
        answers = self._write(self.model.embeddings(prompts))
        tracks: list[Track] = []
        for prompt, ids in zip(prompts, answers, strict=True):
            track = Track(prompt, self.context)
            track.ids = ids or []
            if ids is None:
                track.stop = NO_NUMBERS
            else:
                track.stop = Stop.END if ids[-1:] == [self._end] else Stop.LIMIT
            tracks.append(track)
        return tracks

    @torch.inference_mode()
    def _write(self, prompts: Sequence[Tensor]) -> list[list[int] | None]:
        """Return new ids of each prompt (positions, hidden), with the end if reached.

        None where a score of any beam is no number.
        """
        # Padded on the left, so that all answers begin in the same column.
        padded = pad_sequence(list(prompts), batch_first=True, padding_side="left")
        lengths = torch.tensor([*map(len, prompts)], device=padded.device)
        columns = torch.arange(padded.shape[1], device=padded.device)
        mask = columns >= padded.shape[1] - lengths[:, None]
        processors: list[Any] = [check := NumberCheck()]
        if (penalty := self.settings.repetition_penalty) != 1.0:
            # Given in the `GenerationConfig`, it misses the first tokens of an answer:
            # transformers 5.23 skips as many as the embedded prompt has of padding.
            processors.append(RepetitionPenaltyLogitsProcessor(penalty))
        output = self.model.network.lm.generate(
            inputs_embeds=padded,
            attention_mask=mask.long(),
            generation_config=self._config,
            logits_processor=processors,
        )
        rows = [self._cut(row) for row in output.sequences.tolist()]
        beams = self.settings.num_beams
        # A greedy search gives no scores, and has nothing to choose among.
        scores = [0.0] * len(rows) if beams == 1 else output.sequences_scores.tolist()
        found = [Beam(*parts) for parts in zip(rows, scores, check.rows, strict=True)]
        # The beams of a prompt stand one after another.
        firsts = range(0, len(found), beams)
        return [self._best(found[first : first + beams]) for first in firsts]

    def _cut(self, row: list[int]) -> list[int]:
        """Return ids without the padding behind their end."""
        return row[: row.index(self._end) + 1] if self._end in row else row

    def _best(self, beams: Sequence[Beam]) -> list[int] | None:
        """Return the winner by the lengths that transformers 4.31 counted, as upstream.

        There an artificial `<s>` came first and the end was left out, so that answers cut
        by the token limit counted one token more than today.
        """
        longest = max(len(beam.ids) for beam in beams)
        for beam in beams:
            if not all(beam.numbers[:longest]):
                return None

        def score(beam: Beam) -> float:
            length = len(beam.ids)
            is_cut = beam.ids[-1] != self._end
            ratio = length / (length + 1) if is_cut else 1.0
            return float(beam.score * ratio**self.settings.length_penalty)

        return max(beams, key=score).ids

    def _segments(self, track: Track) -> list[Text]:
        return [Text(self.model.tokens.decode(track.ids))]
