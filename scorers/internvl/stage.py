"""The MMIE-Score model as a chat stage: text and pictures in, one text out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from generators.base import Outcome, Result, Weights
from generators.document import Draft, Request, Text
from scorers.internvl.greedy import Reply, replies
from scorers.internvl.models import Judge, load
from scorers.internvl.prompts import Pictures, Prompt, PromptWriter
from scorers.internvl.settings import MmieScoreSettings
from scorers.internvl.template import END, IMAGE_TOKEN
from scorers.internvl.tiles import Grid, cut

Seen = dict[tuple[str, Grid], Tensor]
"""Features (positions, width) of a picture in a grid, by its digest."""


class MmieScore:
    """Answers as the judge does, greedily; takes the fields of `MmieScoreSettings`.

    Replies do not depend on the batch. Equal pictures of a batch (a question's, judged
    with several answers) are read by the vision model once.
    """

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        """Load the model; CheckpointError when a published checkpoint does not fit."""
        self.settings = MmieScoreSettings(**settings)
        self.judge: Judge = load(weights, self.settings)
        new_tokens = self.settings.new_tokens(weights)
        self._prompts = PromptWriter(self.judge, self.settings, new_tokens)
        self._end = self.judge.tokenizer.id(END)
        self._image_id = self.judge.tokenizer.id(IMAGE_TOKEN)

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        """One draft of one text per request, in order.

        A prompt that fills the model's positions is skipped; a request without content
        or with an unreadable picture fails.
        """
        pictures = Pictures()
        prompts = [self._prompts(request, pictures) for request in inputs]
        ready = [prompt for prompt in prompts if isinstance(prompt, Prompt)]
        answers = zip(ready, self._replies(ready, pictures), strict=True)
        results = iter([self._result(prompt, reply) for prompt, reply in answers])
        return [next(results) if isinstance(p, Prompt) else p for p in prompts]

    def _replies(self, prompts: Sequence[Prompt], pictures: Pictures) -> list[Reply]:
        seen = self._seen(prompts, pictures)
        return replies(
            self.judge,
            [self.embedded(prompt, seen) for prompt in prompts],
            [prompt.budget.reply for prompt in prompts],
            self._end,
        )

    def _seen(self, prompts: Iterable[Prompt], pictures: Pictures) -> Seen:
        """Features of all pictures of a batch, equal ones once."""
        wanted = {
            (image.digest, grid): image
            for prompt in prompts
            for image, grid in zip(prompt.images, prompt.budget.grids, strict=True)
        }
        side, thumbnail = self.judge.tile_side, self.settings.thumbnail
        tiles = [
            cut(pictures(image), grid, side, thumbnail)
            for (_, grid), image in wanted.items()
        ]
        if not tiles:
            return {}
        features = self.judge.features(torch.cat(tiles), self.settings.tiles_at_once)
        parts = torch.split(features, [len(t) for t in tiles])
        return {k: p.flatten(0, 1) for k, p in zip(wanted, parts, strict=True)}

    @torch.inference_mode()
    def embedded(self, prompt: Prompt, seen: Seen) -> Tensor:
        """What the decoder reads: (positions, width)."""
        ids = torch.tensor(prompt.ids)
        inputs = self.judge.embeddings(ids)
        if prompt.images:
            keys = zip(prompt.images, prompt.budget.grids, strict=True)
            features = [seen[image.digest, grid] for image, grid in keys]
            inputs[(ids == self._image_id).to(inputs.device)] = torch.cat(features)
        return inputs

    def _result(self, prompt: Prompt, reply: Reply) -> Result[Draft]:
        usage = {
            "input_tokens": len(prompt.ids),
            "input_images": len(prompt.images),
            "output_tokens": reply.tokens,
        }
        return Result(Draft((Text(self._text(reply)),)), usage, self._notes(prompt, reply))

    def _text(self, reply: Reply) -> str:
        """As upstream's `chat`: up to the end token's name, without white space around."""
        text = self.judge.tokenizer.decode(reply.ids)
        return text.partition(END.name)[0].strip()

    def _notes(self, prompt: Prompt, reply: Reply) -> dict[str, Any]:
        tokens = len(prompt.ids) + reply.tokens
        notes: dict[str, Any] = {
            "prompt": prompt.shown,
            "finish": "stop" if reply.ended else "length",
            "input_tokens": len(prompt.ids),
            "context": self.settings.context,
            "over_context": tokens > self.settings.context,
        }
        if prompt.images:
            notes["image_sizes"] = [list(size) for size in prompt.sizes]
            notes["tiles"] = list(prompt.budget.tiles)
            notes["max_tiles"] = prompt.budget.max_tiles
        if prompt.spelled:
            notes["neutralised"] = list(prompt.spelled)
        return notes
