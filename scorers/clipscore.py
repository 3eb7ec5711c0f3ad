"""CLIPScore (Hessel et al., EMNLP 2021): images against the text beside them.

`clipscore`: a pair's value is 2.5 * max(cos, 0), a document's the mean over its pairs. An
image belongs to all text since the image before it. Images with no text between them share
one text. A document that opens with images gives them the text that follows, up to the
next image. A document without text has pairs without text, which are counted and not
scored.

`clipscore-prompt`: the same of every image and the whole text of the question, as metrics
of text-to-image models are computed; for answers that are images alone.

`consistency`, `consistency-dino`: how alike the images of one answer are, as criterion 6 of
the MMIE paper asks (appendix A.9): the mean cosine over all pairs of a document's images,
-1 to 1. DINOv2 tells single subjects of a kind apart where CLIP sees the kind (Ruiz et al.,
CVPR 2023, section 4, of DINO). They see neither text nor order: images all copied from one
other answer score as well.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from plait.generators.base import (
    Job,
    Kind,
    NotApplicable,
    Outcome,
    Result,
    Unscored,
    Walk,
    Weights,
)
from plait.generators.document import (
    Document,
    Embedding,
    Image,
    Query,
    Score,
    Text,
    WindowedText,
)
from plait.generators.settings import unkeyed
from plait.scorers.base import NO_QUESTION, NoScore, Preset, Presets, Scorer
from plait.scorers.embeddings.records import directions, values_of, vectors
from plait.scorers.embeddings.settings import ClipSettings, DinoSettings
from plait.scorers.parts import PartScale, PartTable

if TYPE_CHECKING:
    from plait.scorers.embeddings.records import Vectors

LongText = Literal["truncate", "mean", "max"]
HESSEL_WEIGHT = 2.5
"""w of CLIP-S = w * max(cos, 0): Hessel et al. 2021, section 3."""
EXCERPT = 100
"""Characters of a pair's text shown in its parts; the whole is in the document."""


class ClipScoreSettings(ClipSettings):
    """How pairs of text and image are compared."""

    placed: ClassVar[frozenset[str]] = ClipSettings.placed | {"prefix", "long_text"}

    # They enter keys by the texts that the model is given.
    prefix: str = unkeyed("A photo depicts ")
    """Words before every text, as in the official code; torchmetrics has none."""
    long_text: LongText = unkeyed("truncate")
    """Text beyond the context: cut after its first tokens as in the official code, or
    read in windows whose features are averaged (`mean`) or whose best counts (`max`)."""


@dataclass(frozen=True, slots=True)
class ImageTextPair:
    """An image and the text it should show."""

    position: int
    """Which image of the document it is, from 0."""
    image: Image
    text: str
    """Empty when the document holds no text."""


def pairs_of(
    document: Document, clean: Callable[[str], str] = str.strip
) -> list[ImageTextPair]:
    """Return one pair per image, in order.

    Text that `clean` leaves empty does not count: it separates no images. Several runs of
    text in a row are joined by line breaks, as in `Document.text`.
    """
    pieces: list[str | Image] = []
    for segment in document.segments:
        if isinstance(segment, Image):
            pieces.append(segment)
        elif clean(segment.text) and segment.text.strip():
            pieces.append(segment.text.strip())
    # Texts and images in turn: a run of either, then one of the other.
    runs: list[list[str | Image]] = []
    for _, alike in groupby(pieces, key=lambda piece: isinstance(piece, str)):
        runs.append([*alike])
    pairs: list[ImageTextPair] = []
    for i, run in enumerate(runs):
        beside: list[str | Image] = []
        if i > 0:
            beside = runs[i - 1]
        elif len(runs) > 1:
            # Images that open a document have the text that follows them.
            beside = runs[1]
        text = "\n".join(piece for piece in beside if isinstance(piece, str))
        for piece in run:
            if isinstance(piece, Image):
                pairs.append(ImageTextPair(len(pairs), piece, text))
    return pairs


def clean_text(text: str) -> str:
    """Return what OpenAI's tokenizer keeps of a text, before it collapses white space."""
    import ftfy

    return html.unescape(html.unescape(ftfy.fix_text(text))).strip()


@dataclass(frozen=True, slots=True)
class ClipScorer(Scorer):
    """Scores the images of a document against the text beside them.

    A score's `parts` hold the value as `clipscore_hessel`, the mean of 100 * cos (not
    clamped) as `cosine_100`, and every pair: `text` (its beginning), `windows`, `cos`, and
    both scalings; null where the image has no text.
    """

    presets: ClassVar[Presets] = {"clipscore": Preset(ClipScoreSettings(), stage="clip")}
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("clipscore_hessel"),
        PartScale("cosine_100", "100 * cosine", "-100-100"),
        PartScale("scored_pairs", "pairs"),
        PartScale("unscored_pairs", "pairs"),
        PartScale("likeness", "cosine", "-1-1"),
        PartScale("pairs/*/image", "number of an image"),
        PartScale("pairs/*/windows", "windows"),
        PartScale("pairs/*/cos", "cosine", "-1-1"),
        PartScale("pairs/*/clipscore_hessel"),
        PartScale("pairs/*/cosine_100", "100 * cosine", "-100-100"),
    )
    former = "clipscore"
    no_text: ClassVar[str] = "the document holds no text to compare its images with"
    scale: str = "0-2.5"
    unit: str = "2.5 * cosine"
    licence: str = "MIT"
    images_only: bool = True
    prefix: str = ""
    long_text: LongText = "truncate"

    @classmethod
    def derive_fields(
        cls, settings: ClipScoreSettings, name: str, weights: Weights, gpu_gib: float
    ) -> Mapping[str, Any]:
        """Return how texts are read."""
        return {"prefix": settings.prefix, "long_text": settings.long_text}

    def jobs(self, query: Query, images: int = 1) -> int:
        """Return one for each image, and one for the text of each."""
        return 2 * images

    def content_to_pair(self, query: Query, document: Document) -> Document:
        """Return the texts and images that are paired."""
        return document

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Walk to the mean over the pairs with text."""
        content = self.content_to_pair(query, document)
        if self.stage.kind is Kind.SCORE:
            # A run of an earlier version, with one record for each document.
            return (yield from self.whole(query, content))
        pairs = pairs_of(content, clean_text)
        scored = [pair for pair in pairs if pair.text]
        if not scored:
            return Unscored(ClipScorer.no_text)
        # Images that share a text share its record.
        texts = list(dict.fromkeys(pair.text for pair in scored))
        jobs = []
        for text in texts:
            jobs.append(Job(self.stage, self._input_of(text), query.id))
        for pair in scored:
            jobs.append(Job(self.stage, pair.image, query.id))
        made = yield from values_of(jobs)
        if not isinstance(made, list):
            return made
        images = directions(made[len(texts) :])
        windows = {}
        # The texts come first among what was made.
        for text, embedding in zip(texts, made, strict=False):
            windows[text] = _windows(embedding, images)
        compared = {}
        for pair, image in zip(scored, images, strict=True):
            own = windows[pair.text]
            compared[pair.position] = _Compared(self._cosine(image, own), len(own))
        return _score(pairs, compared)

    def _input_of(self, text: str) -> Text | WindowedText:
        if self.long_text == "truncate":
            return Text(self.prefix + text)
        return WindowedText(text, self.prefix)

    def _cosine(self, image: Vectors, windows: Vectors) -> float:
        if self.long_text == "max":
            return float((windows @ image).max())
        # A mean of unit vectors is shorter than 1: the cosine takes its length off.
        mean = windows.mean(axis=0)
        return float(mean @ image / (mean @ mean) ** 0.5)


def refusal_of_blank(query: Query) -> NoScore | None:
    """Return why a question without text is not compared with images; None with text."""
    blank = not Document(query.question).text.strip()
    return NotApplicable(NO_QUESTION) if blank else None


@dataclass(frozen=True, slots=True)
class PromptClipScorer(ClipScorer):
    """Scores the images of a document against the question that asked for them."""

    presets: ClassVar[Presets] = {
        "clipscore-prompt": Preset(ClipScoreSettings(), stage="clip")
    }

    no_text: ClassVar[str] = ""

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs the text of the question."""
        return refusal_of_blank(query)

    def content_to_pair(self, query: Query, document: Document) -> Document:
        """Return the text of the question with the images of the document."""
        return Document((Text(Document(query.question).text), *document.images))


@dataclass(frozen=True, slots=True)
class ConsistencyScorer(Scorer):
    """Scores how alike the images of a document are."""

    presets: ClassVar[Presets] = {
        "consistency": Preset(ClipSettings(), {"licence": "MIT"}, "clip"),
        "consistency-dino": Preset(DinoSettings(), {"licence": "Apache-2.0"}, "dinov2"),
    }
    declared_parts: ClassVar[PartTable] = PartTable.of(PartScale("images", "images"))
    least_images: ClassVar[int] = 2
    too_few_images: ClassVar[str] = "the document holds fewer than two images"
    former = "clipscore"
    scale: str = "-1-1"
    unit: str = "cosine"
    images_only: bool = True

    def jobs(self, query: Query, images: int = 1) -> int:
        """Return one for each image."""
        return images

    def read(self, outcome: Outcome[Score]) -> Outcome[Score]:
        """Return the score in a former record: of the images that have text beside them."""
        if not isinstance(outcome, Result):
            return outcome
        parts = outcome.value.parts
        if parts["likeness"] is None:
            return Unscored("fewer than two images have text beside them")
        return Result(Score(parts["likeness"], {"images": parts["scored_pairs"]}))

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Walk to the mean over pairs of images."""
        n = len(document.images)
        if self.stage.kind is Kind.SCORE:
            # A run of an earlier version, with one record for each document.
            return (yield from self.whole(query, document))
        jobs = [Job(self.stage, image, query.id) for image in document.images]
        made = yield from values_of(jobs)
        if not isinstance(made, list):
            return made
        total = directions(made).sum(axis=0)
        # The square of the sum holds each pair twice, and each image with itself.
        return Result(Score(float(total @ total - n) / (n * (n - 1)), {"images": n}))


def _windows(text: Embedding, images: Vectors) -> Vectors:
    """Return the unit vectors (windows, width) that a text's record holds."""
    rows = vectors([text]).reshape(-1, images.shape[1])
    unit: Vectors = rows / (rows**2).sum(axis=1, keepdims=True) ** 0.5
    return unit


class _Compared(NamedTuple):
    """An image beside its text."""

    cosine: float | None
    """None where the image has no text."""
    windows: int
    """In which the text was read."""


def _score(pairs: list[ImageTextPair], compared: Mapping[int, _Compared]) -> Result[Score]:
    """Return the mean over pairs with text; `compared` are these by position."""
    values = []
    for one in compared.values():
        if one.cosine is not None:
            values.append(one.cosine)
    hessel = sum(map(_hessel, values)) / len(values)
    without_text = _Compared(None, 0)
    about = []
    for pair in pairs:
        about.append(_part(pair, compared.get(pair.position, without_text)))
    parts = {
        "clipscore_hessel": hessel,
        "cosine_100": 100 * sum(values) / len(values),
        "scored_pairs": len(values),
        "unscored_pairs": len(pairs) - len(values),
        "pairs": about,
    }
    return Result(Score(hessel, parts))


def _part(pair: ImageTextPair, compared: _Compared) -> dict[str, Any]:
    cosine = compared.cosine
    return {
        "image": pair.position,
        "text": pair.text[:EXCERPT],
        "windows": compared.windows,
        "cos": cosine,
        "clipscore_hessel": None if cosine is None else _hessel(cosine),
        "cosine_100": None if cosine is None else 100 * cosine,
    }


def _hessel(cosine: float) -> float:
    return HESSEL_WEIGHT * max(cosine, 0.0)
