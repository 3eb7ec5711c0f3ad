"""The drafting stage of Emu2: a conversation in, the text of Emu2-Chat out.

Beam search over embedded prompts is transformers', with upstream's scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from generators.base import Failure, Outcome, Result, Skip, Weights
from generators.content import display_text, unanswerable
from generators.decoding.sampling import NumberCheck
from generators.document import Draft, Request, Text
from generators.emu2.models import load
from generators.emu2.network import Emu2
from generators.emu2.prompts import PromptPart, chat_parts
from generators.emu2.reading import Emu2Prompt, context_of, embeddings, read_prompt
from generators.emu2.settings import Emu2DraftSettings
from generators.emu2.sizes import FULL_CHAT, TINY_CHAT
from generators.emu2.tokens import ADDED_CHAT
from generators.overflow import SCORES, no_numbers


class BeamSearch:
    """Writes the most probable continuation it finds of each prompt."""

    def __init__(self, model: Emu2, settings: Emu2DraftSettings) -> None:
        self._lm = model.network.lm
        self._settings = settings
        self._end = model.tokens["</s>"]
        self._config = self._generation_config(model)

    def _generation_config(self, model: Emu2) -> Any:
        from transformers import GenerationConfig

        own = self._settings
        return GenerationConfig(
            do_sample=False,
            num_beams=own.num_beams,
            num_return_sequences=own.num_beams,
            max_new_tokens=own.max_new_tokens,
            min_new_tokens=own.min_new_tokens or None,
            length_penalty=own.length_penalty if own.num_beams > 1 else None,
            bos_token_id=model.tokens["<s>"],
            eos_token_id=self._end,
            pad_token_id=model.tokens["[PAD]"],
            return_dict_in_generate=True,
            output_scores=True,
        )

    @torch.inference_mode()
    def __call__(self, prompts: Sequence[Tensor]) -> list[list[int] | None]:
        """New ids of each prompt (positions, hidden), with the end where it is reached.

        None where a score of any beam is no number.
        """
        if not prompts:
            return []
        # Padded on the left, so that all answers begin in the same column.
        padded = pad_sequence(list(prompts), batch_first=True, padding_side="left")
        lengths = torch.tensor([len(p) for p in prompts], device=padded.device)
        columns = torch.arange(padded.shape[1], device=padded.device)
        mask = columns >= padded.shape[1] - lengths[:, None]
        check = NumberCheck()
        output = self._lm.generate(
            inputs_embeds=padded,
            attention_mask=mask.long(),
            generation_config=self._config,
            logits_processor=[check, *self._processors()],
        )
        rows = [self._cut(row) for row in output.sequences.tolist()]
        beams = self._settings.num_beams
        scores = [0.0] * len(rows) if beams == 1 else output.sequences_scores.tolist()
        found = list(zip(rows, scores, check.rows, strict=True))
        return [self._best(found[i : i + beams]) for i in range(0, len(rows), beams)]

    def _processors(self) -> list[Any]:
        """The repetition penalty, as a logits processor.

        Given in the `GenerationConfig`, it misses the first tokens of an answer:
        transformers 5.23 skips as many as the embedded prompt has of padding.
        """
        from transformers import RepetitionPenaltyLogitsProcessor

        penalty = self._settings.repetition_penalty
        return [] if penalty == 1.0 else [RepetitionPenaltyLogitsProcessor(penalty)]

    def _cut(self, row: list[int]) -> list[int]:
        """The row without the padding after its end."""
        return row[: row.index(self._end) + 1] if self._end in row else row

    def _best(
        self, beams: Sequence[tuple[list[int], float, list[bool]]]
    ) -> list[int] | None:
        """The winner by the lengths transformers 4.31 counted, which upstream runs with.

        There an artificial `<s>` came first and the end was left out, so that answers cut
        by the token limit counted one token more than today.
        """
        longest = max(len(ids) for ids, _, _ in beams)
        if not all(all(numbers[:longest]) for _, _, numbers in beams):
            return None

        def score(beam: tuple[list[int], float, list[bool]]) -> float:
            ids, today, _ = beam
            if ids[-1] == self._end:
                return today
            return float(
                today * (len(ids) / (len(ids) + 1)) ** self._settings.length_penalty
            )

        return max(beams, key=score)[0]


class Emu2Draft:
    """Writes answers by beam search; takes the fields of `Emu2DraftSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = Emu2DraftSettings(**settings)
        strip = self.settings.strip_text
        sizes = (TINY_CHAT, FULL_CHAT)
        self.model = load(self.settings, weights, *sizes, ADDED_CHAT, strip)
        self.context = context_of(self.model, self.settings.context)
        self._search = BeamSearch(self.model, self.settings)

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        """One draft of text per request, in order.

        A request that leaves no room for an answer is skipped; one without content or
        with an unreadable picture fails.
        """
        parts = [chat_parts(request, self.settings) for request in inputs]
        prompts = [self._read(r, p) for r, p in zip(inputs, parts, strict=True)]
        ready = [prompt for prompt in prompts if isinstance(prompt, Emu2Prompt)]
        answers = iter(self._search(embeddings(self.model, ready)))
        return [
            self._drafted(prompt, display_text(part), next(answers))
            if isinstance(prompt, Emu2Prompt)
            else prompt
            for prompt, part in zip(prompts, parts, strict=True)
        ]

    def _read(
        self, request: Request, parts: list[PromptPart]
    ) -> Emu2Prompt | Skip | Failure:
        if failure := unanswerable(request, self.settings.is_seeded()):
            return failure
        return read_prompt(self.model, parts, self.settings.max_new_tokens, self.context)

    def _drafted(
        self, prompt: Emu2Prompt, prompt_text: str, ids: Sequence[int] | None
    ) -> Result[Draft] | Failure:
        if ids is None:
            return no_numbers(SCORES, self.model.network.lm.dtype)
        ended = bool(ids) and ids[-1] == self.model.tokens["</s>"]
        usage = {
            "input_tokens": len(prompt.ids),
            "input_images": len(prompt.pixels),
            "output_tokens": len(ids),
            "images": 0,
        }
        stop = "end of sequence" if ended else "token limit"
        text = self.model.tokens.decoded(ids)
        return Result(Draft((Text(text),)), usage, {"prompt": prompt_text, "stop": stop})
