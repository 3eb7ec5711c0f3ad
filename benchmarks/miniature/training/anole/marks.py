"""How well the mini Anole answers test queries, in truth's terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from benchmarks.miniature.training.anole.data import AnoleData
from benchmarks.miniature.training.anole.vq import pictures_of
from benchmarks.miniature.training.sheets import Pictures
from benchmarks.tasks.miniature.queries import MiniatureQuery, ScenePicture
from generators.anole.loop import AnoleInterleaver, AnoleRules
from generators.anole.tokens import AnoleLimits, AnoleTrack, TokenMode, split_runs
from generators.decoding.sampling import Sampler
from scorers.truth.picture_reader import read_picture
from scorers.truth.reading import Illegible, Reading
from scorers.truth.text_reader import read_text

CODES = 64


def rules(temperature: float = 0.7, guidance: float = 1.0) -> AnoleRules:
    """Text greedily, pictures sampled with guidance by their text."""
    return AnoleRules(
        text=Sampler(1.0, 1.0, greedy=True),
        image=Sampler(temperature, 0.9, greedy=temperature == 0),
        repetition_penalty=1.0,
        guidance_text=guidance,
        guidance_image=1.0,
    )


@dataclass
class AnoleMarks:
    """Counts over the queries that want pictures; unreadable ones count as wrong."""

    texts: int = 0
    texts_right: int = 0
    """Sentences that say the scene of the ground truth."""
    pictures: int = 0
    like_text: int = 0
    """Pictures whose whole scene is what their own text says."""
    like_truth: int = 0
    items: int = 0
    placed: int = 0
    """Items of the texts whose colour is at their place in the picture."""
    answers: int = 0
    answers_right: int = 0
    """Reasoning answers word by word, and all of them."""

    def line(self) -> str:
        """The shares, in one line."""
        return (
            f"sentences {self.texts_right}/{self.texts}, pictures as their text "
            f"{self.like_text}/{self.pictures}, as truth {self.like_truth}, right colour "
            f"at the right place {self.placed}/{self.items}, short answers "
            f"{self.answers_right}/{self.answers}"
        )

    def facts(self) -> dict[str, int]:
        """All counts by name."""
        return asdict(self)


class AnoleExaminer:
    """Asks a model test queries and reads its answers."""

    def __init__(
        self, data: AnoleData, tokenizer: Tokenizer, queries: Sequence[MiniatureQuery]
    ) -> None:
        self._data, self._tokenizer, self._queries = data, tokenizer, queries

    def __call__(
        self,
        model: Any,
        vq: Any,
        chosen: AnoleRules,
        keep: Callable[[Pictures], None] | None = None,
    ) -> AnoleMarks:
        """Marks of the model; `keep` gets the pictures that it drew."""
        limits = AnoleLimits(512, CODES, max_text_tokens=80, max_images=2)
        ask = AnoleInterleaver(model, self._data.vocabulary, limits, chosen)
        prompts = [self._data.prompt(query) for query in self._queries]
        tracks = ask(prompts, range(len(prompts)))
        marks, drawn = AnoleMarks(), []
        for query, track in zip(self._queries, tracks, strict=True):
            texts, pictures = self._parts(track, vq)
            drawn += [*pictures]
            _mark(marks, query, texts, pictures)
        if keep is not None and drawn:
            keep(np.stack(drawn))
        return marks

    def _parts(self, track: AnoleTrack, vq: Any) -> tuple[list[str], Pictures]:
        own = self._data.vocabulary
        runs = split_runs([i for i in track.generated if i != own.eos], own)
        texts = [self._tokenizer.decode([*ids]) for m, ids in runs if m is TokenMode.TEXT]
        grids = [own.codes(ids) for m, ids in runs if m is TokenMode.IMAGE]
        if not grids:
            return texts, np.empty((0, 1, 1, 3), np.uint8)
        return texts, pictures_of(vq, np.array(grids, np.int16))


def _mark(
    marks: AnoleMarks, query: MiniatureQuery, texts: Sequence[str], pictures: Pictures
) -> None:
    if not query.wants_images:
        marks.answers += 1
        marks.answers_right += " ".join(texts).strip() == query.answer[0]
        return
    truths = [part for part in query.answer if isinstance(part, ScenePicture)]
    for k, truth in enumerate(truths):
        meant = Reading.of_scene(truth.scene)
        said = _said(texts[k]) if k < len(texts) else None
        marks.texts += 1
        marks.texts_right += said == meant
        shown = read_picture(pictures[k]) if k < len(pictures) else None
        marks.pictures += 1
        marks.like_truth += shown == meant
        if said is None:
            continue
        marks.like_text += shown == said
        marks.items += len(said.items)
        if isinstance(shown, Reading):
            marks.placed += sum(_there(shown, i.place, i.colour) for i in said.items)


def _said(text: str) -> Reading | None:
    reading = read_text(text)
    if isinstance(reading, Illegible) or not reading.scenes:
        return None
    return reading.scenes[-1]


def _there(shown: Reading, place: str | None, colour: str | None) -> bool:
    item = shown.at(place) if place else None
    return item is not None and item.colour == colour
