"""Which models encode images and texts, and how they are run."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from pydantic import model_validator

from plait.generators.base import Kind, Weights
from plait.generators.checkpoints import identity, looks_like_path
from plait.generators.errors import CheckpointError
from plait.generators.names import unknown
from plait.generators.settings import Dtype, unkeyed
from plait.generators.work import SCORED, FigureRange, Work
from plait.scorers.base import SmallModelSettings

Processor = Literal["open_clip", "transformers", "hpsv2"]
READING_S = FigureRange.between(0.02, 0.1)
"""Seconds of a CPU core to decode an image and resize it: measured for PNG of 1024 x 1024
pixels, on an idle machine and on a busy one."""
EMBEDDED: Mapping[str, FigureRange] = {"disk_bytes": FigureRange.between(2000, 8000)}
"""Usage of a record that is a vector of 512 to 2048 numbers."""


class ImageModelSettings(SmallModelSettings):
    """Settings of a small model that looks at images."""

    batch_size: int = unkeyed(32, ge=1)
    """Records computed at once."""
    dtype: Dtype = "float32"
    """Of the model. The official code of CLIPScore computes in float16 on a GPU and in
    float32 on a CPU; float32 everywhere keeps a score from depending on the machine."""
    decoders: int = unkeyed(4, ge=1)
    """Threads that decode and resize images, which takes longer than a GPU's pass."""
    tokens: ClassVar[float] = 0
    """How many tokens of a record each parameter meets."""

    def flops(self) -> float:
        """Return the floating-point operations of a record, the parameters' size known."""
        return 2e9 * (self.params_b or 0.0) * self.tokens

    def _work(self) -> Work:
        """GPUs multiply float32 as TF32 at half the rate of 16 bits."""
        passes = 2 if self.dtype == "float32" else 1
        return Work(
            weight_bytes=self.weight_bytes,
            flops=FigureRange.exact(self.flops() * passes),
            cpu_s=READING_S,
            usage=EMBEDDED if self.kind is Kind.EMBED else SCORED,
        )


class EmbedSettings(ImageModelSettings):
    """Settings of every model that encodes images and perhaps texts."""

    kind: ClassVar[Kind] = Kind.EMBED

    forward_size: int = unkeyed(64, ge=1)
    """Most images or texts in one forward pass."""
    remembered: int = unkeyed(4096, ge=0)
    """Features kept from earlier batches, of images and of texts each."""


class PublishedClip(NamedTuple):
    """A checkpoint of open_clip's list of pretrained weights: see `published.toml`."""

    repo: str
    architecture: str
    params_b: float


def _read_published_clips() -> dict[str, PublishedClip]:
    text = Path(__file__).with_name("published.toml").read_text(encoding="utf-8")
    return {name: PublishedClip(**about) for name, about in tomllib.loads(text).items()}


PUBLISHED: Mapping[str, PublishedClip] = _read_published_clips()
"""By name (`architecture:tag`)."""
_CONTEXT = 77


class ClipSettings(EmbedSettings):
    """Which CLIP model, and how it is run.

    The default weights are those of CLIPScore's official code
    (github.com/jmhessel/clipscore).
    """

    stage: ClassVar[str] = "clip-embed"
    target: ClassVar[str] = "plait.scorers.clip.model:ClipEmbed"
    version: ClassVar[int] = 2
    superseded: ClassVar[Mapping[int, str]] = {
        1: "which read characters that are not in Unicode's form NFC as others"
    }

    model: str = unkeyed("ViT-B-32:openai")
    """A name in PUBLISHED, a Hub id, a folder, or a weights file."""
    architecture: str | None = None
    """Configuration of open_clip to build (`ViT-B-32-quickgelu`). Needed for a weights
    file, and for `dummy` weights of a Hub id; by default the checkpoint's own."""
    file: str | None = None
    """The file of weights in a folder or a Hub repository that does not have them under
    the usual names. It needs `architecture`."""
    processor: Processor = "open_clip"
    """Whose preparation is followed. `open_clip` resizes the shorter side of an image, cuts
    the middle out, and resolves HTML entities in texts, as OpenAI does; `transformers`
    rounds the middle down and takes texts as they are, in Unicode's form NFC; `hpsv2`
    resizes the longer side and adds black."""

    @model_validator(mode="after")
    def _names_weights(self) -> "ClipSettings":
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

    def results_version(self) -> int:
        """Return the version of texts that transformers reads; others never changed."""
        return self.version if self.processor == "transformers" else 1

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
        return super(ClipSettings, self._sized).memory_estimate_gib(weights)

    def work(self, weights: Weights) -> Work | None:
        """Return the work of an image or a text, by the published size likewise."""
        return super(ClipSettings, self._sized).work(weights)

    @property
    def _sized(self) -> "ClipSettings":
        if self.params_b is not None or self.model not in PUBLISHED:
            return self
        return self.model_copy(update={"params_b": PUBLISHED[self.model].params_b})

    def flops(self) -> float:
        """Return those of an image, in two thirds of the parameters, and of a text."""
        named = re.fullmatch(r"ViT-\w+-(\d+)(?:-(\d+))?(?:-.*)?", self.built or "")
        patch, side = named.groups(default="224") if named else ("14", "224")
        tokens = ((int(side) / int(patch)) ** 2 * 2 + _CONTEXT) / 3
        return 2e9 * (self.params_b or 0.0) * tokens


class InceptionSettings(EmbedSettings):
    """The Inception v3 of FID and KID, and how it is run."""

    stage: ClassVar[str] = "inception-embed"
    target: ClassVar[str] = "plait.scorers.embeddings.inception:InceptionEmbed"

    model: str = unkeyed(
        "https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/"
        "weights-inception-2015-12-05-6726825d.pth"
    )
    """The address of a weights file, whose name ends with its digest, or a file."""
    dtype: Literal["float32"] = "float32"
    params_b: float | None = unkeyed(0.024, gt=0)

    def flops(self) -> float:
        """Return two for each of the 5.7 billion products (Szegedy et al. 2016)."""
        return 11.4e9


class DinoSettings(EmbedSettings):
    """DINOv2's checkpoint, and how it is run."""

    stage: ClassVar[str] = "dinov2-embed"
    target: ClassVar[str] = "plait.scorers.embeddings.vision:DinoEmbed"

    model: str = unkeyed("facebook/dinov2-base")
    """A Hub id or folder of transformers' `Dinov2Model`."""
    params_b: float | None = unkeyed(0.087, gt=0)
    tokens: ClassVar[float] = 16 * 16 + 1


class SiglipSettings(EmbedSettings):
    """SigLIP's or SigLIP2's checkpoint of a fixed resolution, and how it is run."""

    stage: ClassVar[str] = "siglip-embed"
    target: ClassVar[str] = "plait.scorers.embeddings.vision:SiglipEmbed"

    model: str = unkeyed("google/siglip2-so400m-patch14-384")
    """A Hub id or folder of transformers' `SiglipModel`, with its tokenizer."""
    params_b: float | None = unkeyed(1.136, gt=0)
    tokens: ClassVar[float] = 0.4 * 27 * 27
    """An image's patches in two fifths of the parameters."""
