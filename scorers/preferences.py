"""How well images fit the question, by models that mostly are trained on preferences.

Each scores one image of one question; a document's value is the mean over its images.

`pickscore` (Kirstain et al., NeurIPS 2023): the cosine of image and text, times the scale
that the checkpoint has learned; about 20.

`hpsv2`, `hpsv2.1` (Wu et al. 2023, arXiv 2306.09341): the plain cosine, about 0.2 to 0.35.
Images are not cropped but padded with black.

`siglip2` (Tschannen et al. 2025, arXiv 2502.14786): the plain cosine of a model that was
not trained on preferences but, unlike CLIP, on each pair by itself: sigmoid(e^t * cos + b),
t and b learned, is its probability that text and image are a pair, in the same order.

They read the records of `scorers.embeddings`, in which each image and each question is
encoded once, whatever the number of answers, systems and metrics.

`imagereward` (Xu et al., NeurIPS 2023): a BLIP reads the question beside the image. Its
value is in standard deviations around the mean reward of its training data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from generators.base import Kind, NotApplicable, Result, Unscored, Walk
from generators.document import Candidate, Document, Embedding, Image, Sample, Score, Text
from generators.settings import unkeyed
from scorers.base import Preset, Scorer
from scorers.clipscore import NO_IMAGE
from scorers.embeddings.records import alone, directions, values_of, vectors
from scorers.embeddings.settings import ClipSettings, ImageModelSettings, SiglipSettings


class ImageRewardSettings(ImageModelSettings):
    """ImageReward's checkpoint, and how it is run."""

    kind: ClassVar[Kind] = Kind.SCORE
    stage: ClassVar[str] = "imagereward"
    target: ClassVar[str] = "scorers.imagereward:ImageReward"
    companions: ClassVar[tuple[str, ...]] = ("tokenizer",)

    model: str = unkeyed("THUDM/ImageReward")
    """A Hub id or folder with `ImageReward.pt` and `med_config.json`."""
    tokenizer: str = unkeyed("google-bert/bert-base-uncased")
    """A Hub id or folder with the `tokenizer.json` of BERT, which is not published beside
    the weights."""
    dtype: Literal["float32"] = "float32"
    """As the official code computes."""
    params_b: float | None = unkeyed(0.448, gt=0)

    def flops(self) -> float:
        """Three quarters of the parameters meet the image's 197 tokens, the others 35."""
        return 2e9 * (self.params_b or 0.0) * 157


_SIZE: Mapping[str, Any] = {"architecture": "ViT-H-14", "params_b": 0.986}
_HPS: Mapping[str, Any] = {"model": "xswu/HPSv2", "processor": "hpsv2"}
_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "pickscore": {"model": "yuvalkirstain/PickScore_v1", "processor": "transformers"},
    "hpsv2": {**_HPS, "file": "HPS_v2_compressed.pt"},
    "hpsv2.1": {**_HPS, "file": "HPS_v2.1_compressed.pt"},
}
_SCORES: Mapping[str, Mapping[str, Any]] = {
    "pickscore": {
        "scale": "-100-100",
        "unit": "cosine times the learned scale",
        "licence": "MIT (code)",
        "scaled": True,
    }
}
"""What differs from a plain cosine."""


@dataclass(frozen=True, slots=True)
class PromptScorer(Scorer):
    """Scores each image of a document against the question that asked for it."""

    images_only: bool = True

    def jobs(self, query: Sample, images: int = 1) -> int:
        """Return one for each image, and one for the question."""
        return images + 1

    def judge(self, query: Sample, document: Document) -> Walk[Score]:
        """Walk to the mean over the images; `parts` holds the value of each."""
        if self.images_only and not query.wants_images:
            return NotApplicable("the query asks for no images")
        asked = Document(query.question).text
        if not asked.strip():
            return NotApplicable("the question holds no text")
        if not document.images:
            return Unscored(NO_IMAGE)
        inputs = self.inputs(asked, document.images)
        made = yield from values_of(self.stage, inputs, query.id)
        if not isinstance(made, list):
            return made
        values = self.values(made)
        return Result(Score(sum(values) / len(values), {"images": values}))

    def inputs(self, asked: str, images: Sequence[Image]) -> list[Candidate]:
        """Return what the stage is given."""
        raise NotImplementedError

    def values(self, results: Sequence[Any]) -> list[float]:
        """Return the value of each image."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class CosineScorer(PromptScorer):
    """Scores by the cosine of image and question."""

    scale: str = "-1-1"
    unit: str = "cosine"
    licence: str = "Apache-2.0"
    scaled: bool = False
    """Whether cosines are multiplied by the scale that the checkpoint has learned."""

    @classmethod
    def preset(cls, name: str) -> Preset:
        """Return the published weights of that name."""
        if name == "siglip2":
            return Preset(SiglipSettings(), name)
        settings = ClipSettings(**_SIZE, **_PRESETS[name])
        return Preset(settings, name, _SCORES.get(name, {}))

    def inputs(self, asked: str, images: Sequence[Image]) -> list[Candidate]:
        """Return the question and every image, each by itself."""
        return [alone(Text(asked)), *map(alone, images)]

    def values(self, results: Sequence[Embedding]) -> list[float]:
        """Return the cosine of each image, scaled where the metric is."""
        read = vectors if self.scaled else directions
        (text,) = read(results[:1])
        cosines: list[float] = (directions(results[1:]) @ text).tolist()
        return cosines


@dataclass(frozen=True, slots=True)
class ImageRewardScorer(PromptScorer):
    """Scores by the reward of each image for the question."""

    settings = ImageRewardSettings
    unit: str = "standard deviations of rewards"
    licence: str = "Apache-2.0"

    def inputs(self, asked: str, images: Sequence[Image]) -> list[Candidate]:
        """Return each image with the question."""
        return [Candidate(Document((image,)), (Text(asked),)) for image in images]

    def values(self, results: Sequence[Score]) -> list[float]:
        """Return the rewards."""
        return [result.value for result in results]
