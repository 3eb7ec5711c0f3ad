"""CLIPScore and consistency: images against texts, and against each other.

Pairs, settings and scorers; the model is in `scorers.clip`. `clipscore` and `consistency`
read the same record: with equal settings they share every forward pass, and either makes
the other's records.

`clipscore` (Hessel et al., EMNLP 2021): a pair's value is 2.5 * max(cos, 0), a document's
the mean over its pairs. An image belongs to all text since the image before it. Images
with no text between them share one text. A document that opens with images gives them the
text that follows, up to the next image. A document without text has pairs without text,
which are counted and not scored.

`clipscore-prompt`: the same of every image and the whole text of the question, as metrics
of text-to-image models are computed; for answers that are images alone.

`consistency`: the mean cosine over all pairs of a document's images, from -1 to 1: style
and subject kept from image to image, as criterion 6 of the MMIE paper asks (appendix
A.9). It sees neither text nor order: images all copied from one other answer score as
well.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from pydantic import model_validator

from generators.base import Kind, Outcome, Result, Unscored, Weights
from generators.checkpoints import identity, looks_like_path
from generators.document import Candidate, Document, Image, Sample, Score, Text
from generators.errors import CheckpointError
from generators.names import unknown
from generators.settings import Dtype, unkeyed
from generators.work import SCORED, FigureRange, Work
from scorers.base import Scorer, SmallModelSettings

LongText = Literal["truncate", "mean", "max"]
Processor = Literal["open_clip", "transformers", "hpsv2"]
NO_IMAGE = "the document holds no image"


class PublishedClip(NamedTuple):
    """A checkpoint of open_clip's list of pretrained weights: see `published.toml`."""

    repo: str
    architecture: str
    params_b: float


PUBLISHED: Mapping[str, PublishedClip] = {
    name: PublishedClip(**about)
    for name, about in tomllib.loads(
        (Path(__file__).parent / "clip" / "published.toml").read_text(encoding="utf-8")
    ).items()
}
"""By name (`architecture:tag`)."""


_CONTEXT = 77
READING_S = FigureRange.between(0.02, 0.1)
"""Seconds of a CPU core to decode an image and resize it: measured for PNG of 1024 x 1024
pixels, on an idle machine and on a busy one."""


class ClipModelSettings(SmallModelSettings):
    """Which CLIP model, and how it is run."""

    kind: ClassVar[Kind] = Kind.SCORE
    weights_file: ClassVar[str | None] = None
    """The file of weights, where it does not have one of the usual names."""
    prepares_as: ClassVar[Processor] = "open_clip"
    """Whose preparation of images is followed."""

    batch_size: int = unkeyed(32, ge=1)
    """Records computed at once."""
    model: str = unkeyed("ViT-B-32:openai")
    """A name in PUBLISHED, a Hub id, a folder, or a weights file."""
    dtype: Dtype = "float32"
    """The official code computes in float16 on a GPU and in float32 on a CPU; float32
    everywhere keeps a score from depending on the machine."""
    architecture: str | None = None
    """Configuration of open_clip to build (`ViT-B-32-quickgelu`). Needed for a weights
    file, and for `dummy` weights of a Hub id; by default the checkpoint's own."""
    forward_size: int = unkeyed(64, ge=1)
    """Most images or texts in one forward pass."""
    decoders: int = unkeyed(4, ge=1)
    """Threads that decode and resize images, which takes longer than a GPU's pass."""
    remembered: int = unkeyed(4096, ge=0)
    """Features kept from earlier batches, of images and of texts each."""

    @model_validator(mode="after")
    def _names_weights(self) -> "ClipModelSettings":
        is_path = looks_like_path(self.model)
        if self.model not in PUBLISHED and "/" not in self.model and not is_path:
            choices = [*PUBLISHED, "a Hub id `org/name`", "a folder", "a weights file"]
            raise unknown("CLIP weights", self.model, choices)
        is_file = is_path and Path(self.model).expanduser().is_file()
        if is_file and self.architecture is None:
            raise ValueError(
                f"weights file {self.model!r} does not say what it holds: set "
                "`architecture`, such as 'ViT-B-32-quickgelu' for OpenAI's weights"
            )
        return self

    @property
    def built(self) -> str | None:
        """Configuration of open_clip to build; None to read it from the checkpoint."""
        if self.architecture is None and self.model in PUBLISHED:
            return PUBLISHED[self.model].architecture
        return self.architecture

    def identity(self, weights: Weights) -> str:
        """Return the pinned checkpoint; for `dummy` weights the architecture's name."""
        if weights == "pretrained":
            return super().identity(weights)
        if weights == "dummy" and self.built is None:
            raise CheckpointError(
                f"dummy weights of {self.model!r} need `architecture`, such as 'ViT-L-14'"
            )
        return self.built or self.model

    def checkpoint_identity(self) -> str:
        """Of the Hub repository behind one of open_clip's names, too."""
        return identity(self.hub_id or self.model, self.revision)

    @property
    def hub_id(self) -> str | None:
        """The Hub repository of the weights; None when they are a file or folder."""
        if self.model in PUBLISHED:
            return PUBLISHED[self.model].repo
        return None if looks_like_path(self.model) else self.model

    def memory_estimate_gib(self, weights: Weights) -> float:
        """Return weights plus a fifth, by the published size where none is given."""
        return super(ClipModelSettings, self._sized).memory_estimate_gib(weights)

    def work(self, weights: Weights) -> Work | None:
        """Return the work of a document with one image, by the published size likewise."""
        return super(ClipModelSettings, self._sized).work(weights)

    @property
    def _sized(self) -> "ClipModelSettings":
        if self.params_b is not None or self.model not in PUBLISHED:
            return self
        return self.model_copy(update={"params_b": PUBLISHED[self.model].params_b})

    def _work(self) -> Work:
        """Two thirds of the parameters meet the patches of an image, the others a text.

        GPUs multiply float32 as TF32 at half the rate of 16 bits.
        """
        named = re.fullmatch(r"ViT-\w+-(\d+)(?:-(\d+))?(?:-.*)?", self.built or "")
        patch, side = named.groups(default="224") if named else ("14", "224")
        tokens = ((int(side) / int(patch)) ** 2 * 2 + _CONTEXT) / 3
        passes = 2 if self.dtype == "float32" else 1
        flops = 2e9 * (self.params_b or 0.0) * tokens * passes
        return Work(
            weight_bytes=self.weight_bytes,
            flops=FigureRange.exact(flops),
            cpu_s=READING_S,
            usage=SCORED,
        )


class ClipSettings(ClipModelSettings):
    """How pairs of text and image are compared.

    The default weights are those of the official code (github.com/jmhessel/clipscore).
    """

    stage: ClassVar[str] = "clipscore"
    target: ClassVar[str] = "scorers.clip.stage:ClipScore"
    version: ClassVar[int] = 2

    prefix: str = "A photo depicts "
    """Words before every text, as in the official code; torchmetrics has none."""
    long_text: LongText = "truncate"
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
    pieces = (s if isinstance(s, Image) else clean(s.text) for s in document.segments)
    grouped = groupby((p for p in pieces if p), key=lambda p: isinstance(p, str))
    runs = [list(group) for _, group in grouped]
    pairs: list[ImageTextPair] = []
    for i, run in enumerate(runs):
        beside = runs[i - 1] if i else runs[1] if len(runs) > 1 else []
        text = "\n".join(t for t in beside if isinstance(t, str))
        images = (image for image in run if isinstance(image, Image))
        pairs += [ImageTextPair(k, x, text) for k, x in enumerate(images, len(pairs))]
    return pairs


@dataclass(frozen=True, slots=True)
class ClipScorer(Scorer):
    """Scores the images of a document against the text beside them."""

    settings = ClipSettings
    scale: str = "0-2.5"
    unit: str = "2.5 * cosine"
    licence: str = "MIT"
    images_only: bool = True

    def candidate(self, query: Sample, document: Document) -> Candidate | Unscored:
        """Return the document, where it holds images."""
        return Candidate(document) if document.images else Unscored(NO_IMAGE)


@dataclass(frozen=True, slots=True)
class PromptClipScorer(ClipScorer):
    """Scores the images of a document against the question that asked for them."""

    def candidate(self, query: Sample, document: Document) -> Candidate | Unscored:
        """Return the text of the question with the images of the document."""
        asked = Text(Document(query.question).text)
        return ClipScorer.candidate(self, query, Document((asked, *document.images)))


@dataclass(frozen=True, slots=True)
class ConsistencyScorer(Scorer):
    """Scores how alike the images of a document are, as the record of `clipscore` tells.

    A document without text has no such record: it is Unscored.
    """

    settings = ClipSettings
    scale: str = "-1-1"
    unit: str = "cosine"
    licence: str = "MIT"
    images_only: bool = True

    def candidate(self, query: Sample, document: Document) -> Candidate | Unscored:
        """Return the document, where it holds several images."""
        if len(document.images) < 2:
            return Unscored("the document holds fewer than two images")
        return Candidate(document)

    def read(self, outcome: Outcome[Score]) -> Outcome[Score]:
        """Return the mean cosine of the images that have text beside them."""
        if not isinstance(outcome, Result):
            return outcome
        parts = outcome.value.parts
        if parts["likeness"] is None:
            return Unscored("fewer than two images have text beside them")
        return Result(Score(parts["likeness"], {"pictures": parts["scored_pairs"]}))
