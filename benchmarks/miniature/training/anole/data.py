"""What the mini Anole reads and writes: sequences of text and codes, in tokens."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from benchmarks.miniature.training.anole.vq import codes_of
from benchmarks.miniature.training.labels import Labels, labels_of
from benchmarks.tasks.miniature.queries import (
    Category,
    MiniatureQuery,
    Parts,
    ScenePicture,
    query,
)
from benchmarks.tasks.mmie.prompts import PROMPTS, QUESTION
from generators.anole.tokens import AnoleVocabulary
from scorers.truth.drawing import draw
from scorers.truth.language import sentence, statement, step
from scorers.truth.scene import Scene

IGNORED = -100
"""Target of a position that nothing is learned from."""
POOL: Mapping[Category, int] = {"SA": 2400, "PBL": 1600, "MSR": 1600}
"""Queries of each category whose pictures are drawn and encoded once."""
EARLY_CODES = 0.3
"""Weight of codes that no text says beforehand."""
FORGETFUL = 0.1
"""Share of answers without their text, for guidance by the pictures alone."""

Codes = npt.NDArray[np.int16]


@dataclass(frozen=True)
class Sequences:
    """Token ids (rows, length), padded with 0, and the weight of each as a target."""

    ids: Tensor
    weights: Tensor
    marks: Tensor
    """(marks, 2): row and position of the marks of pictures that scenes are read from."""
    scenes: Labels
    """(marks, labels): what the picture of each mark shows."""


class Piece(NamedTuple):
    """Tokens, their weight as targets, and the scene of a picture."""

    ids: list[int]
    weight: float
    scene: Scene | None = None


class AnoleData:
    """Queries with coded pictures, and random sequences of them."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        queries: Mapping[Category, Sequence[MiniatureQuery]],
        coded: Mapping[tuple[Scene, int], Sequence[int]],
    ) -> None:
        self._tokenizer = tokenizer
        ids = tokenizer.get_vocab(with_added_tokens=True)
        self.vocabulary = AnoleVocabulary.of(ids)
        self._queries = queries
        self._coded = coded
        self._pictures = list(coded)

    def answers(self, rng: random.Random, category: Category, count: int) -> Sequences:
        """Queries with MMIE's wording and their right answers."""
        asked = rng.choices(self._queries[category], k=count)
        return self._padded([self._answer(q, rng) for q in asked])

    def drawings(self, rng: random.Random, count: int) -> Sequences:
        """A sentence, then the picture of it."""
        return self._padded([self._drawing(rng) for _ in range(count)])

    def readings(self, rng: random.Random, count: int) -> Sequences:
        """A picture, then the sentence about it."""
        return self._padded([self._reading(rng) for _ in range(count)])

    def prompt(self, asked: MiniatureQuery) -> list[int]:
        """The question's tokens as the drafting stage forms them."""
        return [i for piece in self._prompt(asked) for i in piece.ids]

    def _answer(self, asked: MiniatureQuery, rng: random.Random) -> list[Piece]:
        answer = [self._piece(part, 1.0) for part in asked.answer]
        end = Piece([self.vocabulary.eos], 1.0)
        pieces = [*self._prompt(asked), *answer, end]
        if asked.wants_images and rng.random() < FORGETFUL:
            kept = self.vocabulary.guiding
            return [Piece([i for i in p.ids if i in kept], p.weight) for p in pieces]
        return pieces

    def _prompt(self, asked: MiniatureQuery) -> list[Piece]:
        before, after = PROMPTS[asked.category]["interleaved"].split(QUESTION)
        picture, text = asked.question
        assert isinstance(text, str)
        words = [before, picture, f"\n{text}{after}"]
        return [self._begin(), *(self._piece(w, 0.0) for w in words)]

    def _drawing(self, rng: random.Random) -> list[Piece]:
        scene, seed = rng.choice(self._pictures)
        text = self._piece(_said(scene, rng), 0.0)
        picture = self._piece(ScenePicture(scene, seed), 1.0)
        return [self._begin(), text, picture]

    def _reading(self, rng: random.Random) -> list[Piece]:
        scene, seed = rng.choice(self._pictures)
        picture = self._piece(ScenePicture(scene, seed), EARLY_CODES)
        return [self._begin(), picture, self._piece(statement(scene), 1.0)]

    def _begin(self) -> Piece:
        return Piece([self.vocabulary.bos], 0.0)

    def _piece(self, part: str | ScenePicture, weight: float) -> Piece:
        if isinstance(part, str):
            ids = self._tokenizer.encode(part, add_special_tokens=False).ids
            return Piece(list(ids), weight)
        own = self.vocabulary
        codes = own.tokens(map(int, self._coded[part.scene, part.seed]))
        return Piece([own.begin_image, *codes, own.end_image], weight, part.scene)

    def _padded(self, rows: Sequence[Sequence[Piece]]) -> Sequences:
        ids, weights = (
            pad_sequence([torch.tensor(own) for own in values], batch_first=True)
            for values in ([_ids(row) for row in rows], [_weights(row) for row in rows])
        )
        # The mark that ends a picture is set, not written.
        weights[ids == self.vocabulary.end_image] = 0.0
        marks = [(k, *mark) for k, row in enumerate(rows) for mark in _marks(row)]
        places = torch.tensor([mark[:2] for mark in marks], dtype=torch.long)
        scenes = [labels_of(scene) for _, _, scene in marks]
        return Sequences(ids, weights, places.view(-1, 2), np.array(scenes, np.int64))


def _ids(row: Sequence[Piece]) -> list[int]:
    return [i for piece in row for i in piece.ids]


def _weights(row: Sequence[Piece]) -> list[float]:
    return [piece.weight for piece in row for _ in piece.ids]


def _marks(row: Sequence[Piece]) -> Iterator[tuple[int, Scene]]:
    """Positions of the marks that a scene is read from, with the scene."""
    after = 0
    for piece in row:
        at, after = after, after + len(piece.ids)
        if piece.scene is None:
            continue
        if piece.weight == 1.0:
            # What text before a picture says is known where the picture begins.
            yield at, piece.scene
        yield after - 1, piece.scene


def _said(scene: Scene, rng: random.Random) -> str:
    """The scene in the answers' words, at times in other order and words."""
    text = statement(scene) if rng.random() < 0.7 else sentence(scene, rng)
    return step(rng.randint(1, 2), text) if rng.random() < 0.4 else text


def pooled(counts: Mapping[Category, int]) -> dict[Category, list[MiniatureQuery]]:
    """So many queries of each category, of the train split."""
    return {
        category: [query(i, 1, "train", category) for i in range(count)]
        for category, count in counts.items()
    }


def pictures_in(queries: Iterable[MiniatureQuery]) -> list[ScenePicture]:
    """All pictures of questions and answers, each once."""
    parts: list[Parts] = [part for q in queries for part in (q.question, q.answer)]
    shown = (p for part in parts for p in part if isinstance(p, ScenePicture))
    return list(dict.fromkeys(shown))


def coded(
    model: Any, pictures: Sequence[ScenePicture], cache: Path | None = None
) -> dict[tuple[Scene, int], list[int]]:
    """Codes of each picture; read from and written to `cache` where one is named."""
    if cache is not None and cache.exists():
        codes: Codes = np.load(cache)
    else:
        drawn = np.stack([np.asarray(draw(p.scene, p.seed)) for p in pictures])
        codes = codes_of(model, drawn)
        if cache is not None:
            np.save(cache, codes)
    rows = zip(pictures, codes.tolist(), strict=True)
    return {(p.scene, p.seed): row for p, row in rows}
