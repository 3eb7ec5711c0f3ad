"""The drafting stage of Emu2: a conversation in, the text of Emu2-Chat out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from generators.base import Failure, Outcome, Result, Skip, Weights
from generators.decoding.requests import unanswerable
from generators.document import Draft, Request, Text
from generators.emu2.loading import load
from generators.emu2.prompts import Part, chat_parts, shown
from generators.emu2.reading import Prompt, context_of, embedded, read
from generators.emu2.search import BeamSearch
from generators.emu2.settings import Emu2DraftSettings
from generators.emu2.sizes import FULL_CHAT, TINY_CHAT
from generators.emu2.tokens import ADDED_CHAT


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
        ready = [prompt for prompt in prompts if isinstance(prompt, Prompt)]
        answers = iter(self._search(embedded(self.model, ready)))
        return [
            self._drafted(prompt, shown(part), next(answers))
            if isinstance(prompt, Prompt)
            else prompt
            for prompt, part in zip(prompts, parts, strict=True)
        ]

    def _read(self, request: Request, parts: list[Part]) -> Prompt | Skip | Failure:
        if failure := unanswerable(request, self.settings.is_seeded()):
            return failure
        return read(self.model, parts, self.settings.max_new_tokens, self.context)

    def _drafted(self, prompt: Prompt, asked: str, ids: Sequence[int]) -> Result[Draft]:
        ended = bool(ids) and ids[-1] == self.model.tokens["</s>"]
        usage = {
            "input_tokens": len(prompt.ids),
            "input_images": len(prompt.pixels),
            "output_tokens": len(ids),
            "images": 0,
        }
        stop = "end of sequence" if ended else "token limit"
        text = self.model.tokens.decoded(ids)
        return Result(Draft((Text(text),)), usage, {"prompt": asked, "stop": stop})
