"""Requests as prompts of the judge: token ids, pictures and a budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from PIL import Image as Pillow

from generators.base import Failure, Skip
from generators.content import empty
from generators.document import Image, Request
from generators.pictures import PictureError, decode
from scorers.internvl.models import Judge
from scorers.internvl.settings import MmieScoreSettings
from scorers.internvl.template import (
    IMAGE_TOKEN,
    conversation,
    marked,
    shown,
    spelled_controls,
)
from scorers.internvl.tiles import Budget, budgeted


class Pictures:
    """The pictures of one batch, each decoded once however often it is asked for."""

    def __init__(self, requests: Iterable[Request], threads: Executor) -> None:
        """Those of `requests`, decoded by `threads`."""
        images = {image.digest: image for r in requests for image in r.images}
        self._decoded = {d: threads.submit(decode, image) for d, image in images.items()}

    def __call__(self, image: Image) -> Pillow.Image:
        """The picture; PictureError when it cannot be read."""
        return self._decoded[image.digest].result()


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request, ready to be read by the model."""

    ids: tuple[int, ...]
    """With as many image tokens for each picture as its tiles take."""
    images: tuple[Image, ...]
    sizes: tuple[tuple[int, int], ...]
    """Width and height of each picture, in pixels."""
    budget: Budget
    shown: str
    """For people: the template filled in, with a mark for each picture."""
    spelled: tuple[str, ...]
    """Control tokens whose names the texts spell out."""


class PromptWriter:
    """Writes the prompts of a judge."""

    def __init__(self, judge: Judge, settings: MmieScoreSettings, new_tokens: int) -> None:
        """For replies of at most `new_tokens`."""
        self._judge, self._settings, self._new_tokens = judge, settings, new_tokens
        self._image_id = judge.tokenizer.id(IMAGE_TOKEN)

    def __call__(self, request: Request, pictures: Pictures) -> Prompt | Skip | Failure:
        """The prompt of a request, or why there is none."""
        content = [s for t in request.turns if t.role != "system" for s in t.content]
        if failure := empty(content):
            return failure
        try:
            sizes = tuple(pictures(image).size for image in request.images)
        except PictureError as error:
            return Failure(str(error))
        parts = conversation(request.turns, self._settings.system)
        ids = self._judge.tokenizer.encode(marked(parts))
        budget = self._budget(sizes, len(ids) - len(sizes))
        if budget.reply < 1:
            return Skip(self._too_long(budget))
        spelled = spelled_controls(request.turns, self._judge.tokenizer.names)
        all_ids = tuple(self._expanded(ids, budget.tiles))
        images = request.images
        return Prompt(all_ids, images, sizes, budget, shown(parts), tuple(spelled))

    def _budget(self, sizes: Sequence[tuple[int, int]], words: int) -> Budget:
        judge = self._judge
        return budgeted(
            sizes,
            words,
            self._settings,
            new_tokens=self._new_tokens,
            side=judge.tile_side,
            tile_tokens=judge.tile_tokens,
            positions=judge.positions,
        )

    def _expanded(self, ids: Sequence[int], tiles: Sequence[int]) -> Iterator[int]:
        """Ids with one image token a picture, as ids with all of them."""
        counts = iter(tiles)
        for i in ids:
            times = next(counts) * self._judge.tile_tokens if i == self._image_id else 1
            yield from [i] * times

    def _too_long(self, budget: Budget) -> str:
        pictures = self._judge.tile_tokens * sum(budget.tiles)
        return (
            f"the prompt takes {budget.prompt} tokens ({len(budget.tiles)} pictures in "
            f"{sum(budget.tiles)} tiles of {self._judge.tile_tokens}, and "
            f"{budget.prompt - pictures} of text); the model holds "
            f"{self._judge.positions}, the reply included"
        )
