"""Judgements as the stage reads and writes them: token ids and pixels, in batches."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image as Pillow
from PIL import ImageFilter
from torch import Tensor

from benchmarks.miniature.training.judge.corruptions import Damaged, ShownScene
from benchmarks.miniature.training.judge.verdicts import caption, reply
from benchmarks.miniature.training.judge.wording import CAPTION
from benchmarks.tasks.miniature.queries import ScenePicture
from generators.document import Content, Document, Image, Sample, Text, Turn
from scorers.internvl.settings import SYSTEM
from scorers.internvl.tokenizer import END, IMAGE_TOKEN, PhiTokenizer, conversation, marked
from scorers.judging.corrected import Corrected
from scorers.judging.replies import RubricQuestion
from scorers.judging.rubrics import OWN
from scorers.truth.drawing import SIDE, draw
from scorers.truth.scene import Scene, Split, random_scene

Pixels = npt.NDArray[np.uint8]
"""Grey levels (side, side, 3)."""
Levels = npt.NDArray[np.floating[Any]]
"""The same before they are rounded."""


@dataclass(frozen=True, slots=True)
class LearnedJudgement:
    """A request and the reply to it."""

    ids: tuple[int, ...]
    """Of both, with as many image tokens as the pictures take."""
    prompt: int
    """How many of them are the request's."""
    pictures: tuple[Pixels, ...]


class Album:
    """The pictures of one request, known by placeholders until their pixels are needed."""

    def __init__(self, rng: random.Random) -> None:
        """`rng` wears the pictures a little."""
        self._rng = rng
        self._pixels: dict[str, Pixels] = {}

    def add(self, scene: Scene, seed: int, spoiled: bool = False) -> Image:
        """A placeholder of the picture."""
        picture = draw(scene, seed)
        change = _spoiled if spoiled else _worn
        image = Image(str(len(self._pixels)))
        self._pixels[image.digest] = change(self._rng, picture)
        return image

    def pixels(self, content: Content) -> tuple[Pixels, ...]:
        """Of the pictures in `content`, in order."""
        return tuple(self._pixels[s.digest] for s in content if isinstance(s, Image))


def _worn(rng: random.Random, picture: Pillow.Image) -> Pixels:
    """As artists, decoders and files leave a picture: not quite in place, soft, noisy."""
    if rng.random() < 0.4:
        picture = _moved(rng, picture)
    if rng.random() < 0.3:
        picture = picture.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 1.1)))
    levels: Levels = np.asarray(picture, dtype=np.float32)
    if rng.random() < 0.5:
        noise = np.random.default_rng(rng.randrange(2**31))
        levels = levels + noise.normal(0, rng.uniform(1, 10), levels.shape)
        # Tints that differ from place to place.
        tints = noise.normal(0, 5, (4, 4, 3)).repeat(SIDE // 4, 0).repeat(SIDE // 4, 1)
        levels = levels + tints
    rounded: Pixels = levels.clip(0, 255).astype(np.uint8)
    return rounded


def _moved(rng: random.Random, picture: Pillow.Image) -> Pillow.Image:
    """Turned, scaled and moved by a little around its centre, as a whole."""
    angle, scale = rng.uniform(-0.08, 0.08), rng.uniform(0.93, 1.07)
    cosine, sine, middle = scale * math.cos(angle), scale * math.sin(angle), SIDE / 2
    x = middle - middle * (cosine + sine) + rng.uniform(-1.5, 1.5)
    y = middle - middle * (cosine - sine) + rng.uniform(-1.5, 1.5)
    matrix = (cosine, sine, x, -sine, cosine, y)
    return picture.transform(
        picture.size,
        Pillow.Transform.AFFINE,
        matrix,
        Pillow.Resampling.BILINEAR,
        fillcolor=picture.getpixel((0, 0)),
    )


def _spoiled(rng: random.Random, picture: Pillow.Image) -> Pixels:
    """Nothing can be made out: blurred beyond its shapes, or drowned in noise."""
    noise = np.random.default_rng(rng.randrange(2**31))
    radius, deviation = rng.choice(((14.0, 4.0), (10.0, 30.0), (3.0, 110.0)))
    blurred = picture.filter(ImageFilter.GaussianBlur(radius))
    levels: Levels = np.asarray(blurred, dtype=np.float32)
    levels = levels + noise.normal(0, deviation, levels.shape)
    rounded: Pixels = levels.clip(0, 255).astype(np.uint8)
    return rounded


class JudgementWriter:
    """Writes requests and replies as token ids, through the stage's own prompt code."""

    def __init__(self, tokenizer: PhiTokenizer, tile_tokens: int) -> None:
        """A picture takes `tile_tokens`."""
        self._tokenizer, self._tile_tokens = tokenizer, tile_tokens
        self._end, self._image = tokenizer.id(END), tokenizer.id(IMAGE_TOKEN)
        self._examiner = Corrected(OWN)

    def judged(self, rng: random.Random, answer: Damaged) -> LearnedJudgement:
        """The judgement of an answer."""
        album = Album(rng)
        sample = sample_of(answer, album)
        question = self._examiner.ask(sample, document_of(rng, answer, album))
        if not isinstance(question, RubricQuestion):
            raise TypeError(f"the rubrics do not apply to {answer.query.id}")
        return self._written(question.content, reply(answer), album)

    def captioned(self, rng: random.Random, split: Split) -> LearnedJudgement:
        """The description of a random picture."""
        album, scene = Album(rng), random_scene(rng, split)
        image = album.add(scene, rng.randrange(2**31))
        content = (Text("Image-0: "), image, Text(f"\n{CAPTION}"))
        return self._written(content, caption(scene), album)

    def _written(self, content: Content, answer: str, album: Album) -> LearnedJudgement:
        parts = conversation((Turn("user", content),), SYSTEM)
        prompt = [*self._expanded(self._tokenizer.encode(marked(parts)))]
        ids = (*prompt, *self._tokenizer.chunk(answer), self._end)
        return LearnedJudgement(ids, len(prompt), album.pixels(content))

    def _expanded(self, ids: Sequence[int]) -> Iterator[int]:
        for i in ids:
            yield from [i] * (self._tile_tokens if i == self._image else 1)


def sample_of(answer: Damaged, album: Album) -> Sample:
    """The query, its pictures in `album`."""
    asked = answer.query
    question = [
        album.add(p.scene, p.seed) if isinstance(p, ScenePicture) else Text(p)
        for p in asked.question
    ]
    truth = tuple(Text(p) for p in asked.answer if isinstance(p, str))
    return Sample(
        id=asked.id,
        category=asked.category,
        field=asked.field,
        turns=(Turn("user", tuple(question)),),
        reference=Document(truth),
    )


_APART = 0.1
"""Share of answers whose pictures all follow their texts."""


def document_of(rng: random.Random, answer: Damaged, album: Album) -> Document:
    """The answer: each text before its picture, or all texts before all pictures."""
    if answer.query.category == "MSR":
        return Document((Text(answer.text),) if answer.text else ())
    pairs: list[tuple[Content, Content]] = [
        ((Text(p.told.text),) if p.told else (), _picture(p.shown, album))
        for p in answer.parts
    ]
    texts, pictures = zip(*pairs, strict=True)
    if all(pictures) and rng.random() < _APART:
        return Document(tuple(s for group in (*texts, *pictures) for s in group))
    return Document(tuple(s for text, picture in pairs for s in (*text, *picture)))


def _picture(shown: ShownScene | None, album: Album) -> Content:
    return (album.add(shown.scene, shown.seed, shown.spoiled),) if shown else ()


@dataclass(frozen=True, slots=True)
class JudgementBatch:
    """Judgements of one length class, filled up at the end."""

    ids: Tensor
    """(rows, positions)."""
    asked: Tensor
    """(rows, positions): whether the token at the next position is the judge's own."""
    tiles: Tensor
    """(pictures, side, side, 3) of all rows, in order."""


def batched(judgements: Sequence[LearnedJudgement], fill: int) -> JudgementBatch:
    """Judgements together, `fill` behind the shorter ones."""
    longest = max(len(j.ids) for j in judgements)
    ids = torch.full((len(judgements), longest), fill)
    asked = torch.zeros(ids.shape, dtype=torch.bool)
    for row, judgement in enumerate(judgements):
        ids[row, : len(judgement.ids)] = torch.tensor(judgement.ids)
        asked[row, judgement.prompt - 1 : len(judgement.ids) - 1] = True
    pictures = [pixels for j in judgements for pixels in j.pictures]
    return JudgementBatch(ids, asked, torch.from_numpy(np.stack(pictures)))
