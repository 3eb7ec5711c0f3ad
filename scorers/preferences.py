"""How well images fit the question, by models that mostly are trained on preferences.

Each scores one image of one question; a document's value is the mean over its images.

`pickscore` (Kirstain et al., NeurIPS 2023): the cosine of image and text, times the scale
that the checkpoint has learned; about 20.

`hpsv2`, `hpsv2.1` (Wu et al. 2023, arXiv 2306.09341): the plain cosine, about 0.2 to 0.35.
Images are not cropped but padded with black.

`siglip2` (Tschannen et al. 2025, arXiv 2502.14786): the plain cosine of a model that was
not trained on preferences but, unlike CLIP, on each pair by itself: sigmoid(e^t * cos + b),
t and b learned, is its probability that text and image are a pair, in the same order.

`aesthetic` (LAION's predictor v2, Schuhmann 2022): a linear head on ViT-L/14's embedding,
trained on ratings from 1 to 10. It does not see the question.

They read the records of `plait.scorers.embeddings`, in which each image and each question
is encoded once, whatever the number of answers, systems and metrics.

`imagereward` (Xu et al., NeurIPS 2023): a BLIP reads the question beside the image. Its
value is in standard deviations around the mean reward of its training data.

`hpsv3` (Ma et al., ICCV 2025, arXiv 2508.03789): a Qwen2-VL does, with instructions. Its
value is the mean of the distribution of rewards that it expects.

`editreward` (Wu et al., ICLR 2026, arXiv 2509.26346): a Qwen2.5-VL does, of an edit beside
its original. Its value is the mean of two such rewards: how the edit follows its
instruction, and how it looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import field_validator

from plait.generators.base import (
    Failure,
    Job,
    Kind,
    Result,
    StageInput,
    StageSpec,
    Unscored,
    Walk,
    Weights,
)
from plait.generators.checkpoints import with_revision
from plait.generators.document import (
    Candidate,
    Document,
    Embedding,
    Image,
    Query,
    Score,
    Text,
)
from plait.generators.settings import ModelSettings, unkeyed
from plait.generators.work import SCORED, FigureRange, Work
from plait.scorers.base import NoScore, Preset, Presets, Scorer
from plait.scorers.clipscore import refusal_of_blank
from plait.scorers.editing import edit_of, without_original
from plait.scorers.embeddings.records import directions, values_of, vectors
from plait.scorers.embeddings.settings import (
    EMBEDDED,
    READING_S,
    ClipSettings,
    ImageModelSettings,
    SiglipSettings,
)
from plait.scorers.parts import PartScale, PartTable


class AestheticSettings(ClipSettings):
    """How images are encoded, and the head that reads their embeddings."""

    model: str = unkeyed("ViT-L-14:openai")
    head: str = unkeyed("trl-lib/ddpo-aesthetic-predictor")
    """A Hub id, `ID@REVISION` or folder with the head: by default the copy that TRL reads
    of sac+logos+ava1-l14-linearMSE.pth, which its authors publish on GitHub alone."""
    head_file: str = unkeyed("aesthetic-model.pth")
    """The file of the head there."""

    def options(self, weights: Weights) -> dict[str, Any]:
        """Return those of the stage, which has no head."""
        options = super().options(weights)
        return {k: v for k, v in options.items() if k not in ("head", "head_file")}


class AestheticHeadSettings(ModelSettings):
    """Where the head is."""

    kind: ClassVar[Kind] = Kind.EMBED
    stage: ClassVar[str] = "aesthetic-head"
    target: ClassVar[str] = "plait.scorers.imagereward:AestheticHead"

    file: str
    """The file of weights in the folder or the Hub repository."""
    dtype: Literal["float32"] = "float32"
    num_gpus: float | None = unkeyed(0.0, ge=0)
    params_b: float | None = unkeyed(0.00093, gt=0)

    def _work(self) -> Work:
        """Measured: 0.01 ms on a CPU core, since the head is read once."""
        return Work(cpu_s=FigureRange.between(5e-6, 2e-5), usage=EMBEDDED)


class ImageRewardSettings(ImageModelSettings):
    """ImageReward's checkpoint, and how it is run."""

    kind: ClassVar[Kind] = Kind.SCORE
    stage: ClassVar[str] = "imagereward"
    target: ClassVar[str] = "plait.scorers.imagereward:ImageReward"
    companions: ClassVar[tuple[str, ...]] = ("tokenizer",)

    model: str = unkeyed("THUDM/ImageReward")
    """A Hub id or folder with `ImageReward.pt` and `med_config.json`."""
    tokenizer: str = unkeyed("google-bert/bert-base-uncased")
    """A Hub id or folder with the `tokenizer.json` of BERT, which is not published beside
    the weights."""
    dtype: Literal["float32"] = "float32"
    """As the official code computes."""
    params_b: float | None = unkeyed(0.448, gt=0)
    tokens: ClassVar[float] = 157
    """Three quarters of the parameters meet the image's 197 tokens, the others 35."""


class QwenRewardSettings(ModelSettings):
    """A reward model on a Qwen-VL, and how it is run."""

    kind: ClassVar[Kind] = Kind.SCORE
    companions: ClassVar[tuple[str, ...]] = ("base",)
    tokens: ClassVar[float]
    """That are read for one value."""

    batch_size: int = unkeyed(8, ge=1)
    """Answers scored at once."""
    base: str
    """A Hub id or folder with the configuration and the processor of the model that was
    trained; its own weights are not read."""
    instruction: str | None = unkeyed(None)
    """Your copy of the file with the instruction that the weights were trained with."""
    decoders: int = unkeyed(4, ge=1)
    """Threads that decode and resize images."""

    @field_validator("instruction")
    @classmethod
    def _absolute(cls, file: str | None) -> str | None:
        return file and str(Path(file).expanduser().resolve())

    def _work(self) -> Work:
        flops = 2e9 * (self.params_b or 0.0) * self.tokens
        return Work(
            weight_bytes=self.weight_bytes,
            flops=FigureRange.exact(flops),
            cpu_s=READING_S,
            usage=SCORED,
        )


class Hpsv3Settings(QwenRewardSettings):
    """HPSv3's checkpoint, and how it is run."""

    stage: ClassVar[str] = "hpsv3"
    target: ClassVar[str] = "plait.scorers.hpsv3:Hpsv3"
    tokens: ClassVar[float] = 956
    """An image has 256 tokens, the instructions and a question about 700."""

    model: str = unkeyed("MizzenAI/HPSv3")
    """A Hub id or folder with `HPSv3.safetensors`."""
    base: str = unkeyed("Qwen/Qwen2-VL-7B-Instruct")
    """A Hub id or folder with the configuration and the processor of the model that was
    trained, which are not published beside the weights; its own weights are not read."""
    instruction: str | None = unkeyed(None)
    """Your copy of hpsv3/dataset/data_collator_qwen.py (github.com/MizzenAI/HPSv3), which
    holds the instruction that the published weights were trained with."""
    params_b: float | None = unkeyed(8.29, gt=0)


class EditRewardSettings(QwenRewardSettings):
    """EditReward's checkpoint, and how it is run."""

    stage: ClassVar[str] = "editreward"
    target: ClassVar[str] = "plait.scorers.editreward:EditReward"
    tokens: ClassVar[float] = 2 * 1050
    """Two images have 512 tokens, an instruction about 540; each edit is read twice."""

    model: str = unkeyed("TIGER-Lab/EditReward-Qwen2.5-VL-7B")
    """A Hub id or folder with `model.safetensors`. Of the authors' other checkpoint,
    TIGER-Lab/EditReward-MiMo-VL-7B-SFT-2508, the base is XiaomiMiMo/MiMo-VL-7B-SFT-2508."""
    base: str = unkeyed("Qwen/Qwen2.5-VL-7B-Instruct")
    """A Hub id or folder with the configuration and the processor of the Qwen2.5-VL that
    was trained; its own weights are not read."""
    instruction: str | None = unkeyed(None)
    """Your copy of EditReward/dataset/prompts.py (github.com/TIGER-AI-Lab/EditReward), with
    the instructions that the published weights were trained with."""
    params_b: float | None = unkeyed(8.29, gt=0)


_SIZE: Mapping[str, Any] = {"architecture": "ViT-H-14", "params_b": 0.986}
_HPS: Mapping[str, Any] = {**_SIZE, "model": "xswu/HPSv2", "processor": "hpsv2"}
_PICK: Mapping[str, Any] = {**_SIZE, "processor": "transformers"}

OF_IMAGES = PartTable.of(PartScale("images/*"))
"""The value of each image."""


@dataclass(frozen=True, slots=True)
class PromptScorer(Scorer):
    """Scores each image of a document against the question that asked for it."""

    declared_parts: ClassVar[PartTable] = OF_IMAGES
    images_only: bool = True

    def jobs(self, query: Query, images: int = 1) -> int:
        """Return one for each image, and one for the question."""
        return images + 1

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs the text of the question."""
        return refusal_of_blank(query)

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Walk to the mean over the images; `parts` holds the value of each."""
        asked = Document(query.question).text
        inputs = self.inputs(asked, document.images)
        made = yield from values_of([Job(self.stage, i, query.id) for i in inputs])
        if not isinstance(made, list):
            return made
        values = self.values(made)
        return Result(Score(sum(values) / len(values), {"images": values}))

    def inputs(self, asked: str, images: Sequence[Image]) -> Sequence[StageInput]:
        """Return what the stage is given."""
        raise NotImplementedError

    def values(self, results: Sequence[Any]) -> list[float]:
        """Return the value of each image."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class CosineScorer(PromptScorer):
    """Scores by the cosine of image and question."""

    presets: ClassVar[Presets] = {
        "siglip2": Preset(SiglipSettings(), stage="siglip2"),
        "pickscore": Preset(
            ClipSettings(**_PICK, model="yuvalkirstain/PickScore_v1"),
            {
                "scale": "-100-100",
                "unit": "cosine times the learned scale",
                "licence": "MIT (code)",
                "scaled": True,
            },
            "pickscore",
        ),
        "hpsv2": Preset(ClipSettings(**_HPS, file="HPS_v2_compressed.pt"), stage="hpsv2"),
        "hpsv2.1": Preset(
            ClipSettings(**_HPS, file="HPS_v2.1_compressed.pt"), stage="hpsv2.1"
        ),
    }
    scale: str = "-1-1"
    unit: str = "cosine"
    licence: str = "Apache-2.0"
    scaled: bool = False
    """Whether cosines are multiplied by the scale that the checkpoint has learned."""

    def inputs(self, asked: str, images: Sequence[Image]) -> Sequence[StageInput]:
        """Return the question and every image, each by itself."""
        return [Text(asked), *images]

    def values(self, results: Sequence[Embedding]) -> list[float]:
        """Return the cosine of each image, scaled where the metric is."""
        read = vectors if self.scaled else directions
        (text,) = read(results[:1])
        cosines: list[float] = (directions(results[1:]) @ text).tolist()
        return cosines


@dataclass(frozen=True, slots=True)
class RewardScorer(PromptScorer):
    """Scores by the reward of each image for the question."""

    presets: ClassVar[Presets] = {
        "hpsv3": Preset(Hpsv3Settings(), {"unit": "reward", "licence": "MIT"}),
        "imagereward": Preset(
            ImageRewardSettings(),
            {"unit": "standard deviations of rewards", "licence": "Apache-2.0"},
        ),
    }

    def inputs(self, asked: str, images: Sequence[Image]) -> Sequence[StageInput]:
        """Return each image with the question."""
        return [Candidate(Document((image,)), (Text(asked),)) for image in images]

    def values(self, results: Sequence[Score]) -> list[float]:
        """Return the rewards."""
        return [result.value for result in results]


@dataclass(frozen=True, slots=True)
class EditRewardScorer(Scorer):
    """Scores an edit of one image by the reward for its original and its instruction."""

    presets: ClassVar[Presets] = {
        "editreward": Preset(EditRewardSettings(), {"unit": "reward", "licence": "MIT"}),
    }
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("following"), PartScale("quality"), PartScale("sigma", "reward")
    )
    images_only: bool = True

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs one image to edit, and what to do with it."""
        return without_original(query) or refusal_of_blank(query)

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Walk to the reward, with what it is the mean of."""
        edit = edit_of(query, document)
        if isinstance(edit, Unscored):
            return edit
        asked = (edit.original, Text(edit.instruction))
        candidate = Candidate(Document((edit.edited,)), asked)
        (outcome,) = yield [Job(self.stage, candidate, query.id)]
        return outcome


@dataclass(frozen=True, slots=True)
class AestheticScorer(Scorer):
    """Scores the look of each image, whatever the question."""

    presets: ClassVar[Presets] = {
        "aesthetic": Preset(AestheticSettings(), stage="aesthetic")
    }
    declared_parts: ClassVar[PartTable] = OF_IMAGES
    unit: str = "rating of 1 to 10"
    licence: str = "Apache-2.0"
    images_only: bool = True
    head: StageSpec = field(kw_only=True)

    @classmethod
    def derive_fields(
        cls, settings: AestheticSettings, name: str, weights: Weights, gpu_gib: float
    ) -> Mapping[str, Any]:
        """Return the stage of the head."""
        model, revision = with_revision(settings.head)
        file = settings.head_file
        head = AestheticHeadSettings(model=model, revision=revision, file=file)
        return {"head": head.spec(f"{name}-head", weights, gpu_gib)}

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """The head, and the model that encodes images."""
        return (self.head, self.stage)

    def jobs(self, query: Query, images: int = 1) -> int:
        """Return one for each image, and the head."""
        return images + 1

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Walk to the mean over the images; `parts` holds the value of each."""
        # The head looks at no input: a candidate without content names its one record.
        jobs = [Job(self.head, Candidate(Document()), query.id)]
        jobs += [Job(self.stage, image, query.id) for image in document.images]
        made = yield from values_of(jobs)
        if not isinstance(made, list):
            return made
        # The head is one affine function of an embedding of length 1 (`AestheticHead`).
        *weights, bias = vectors(made[:1])[0]
        images = directions(made[1:])
        if len(weights) != images.shape[1]:
            return Failure(
                f"the head reads embeddings of {len(weights)} numbers; the model gives "
                f"{images.shape[1]}"
            )
        values: list[float] = (images @ weights + bias).tolist()
        return Result(Score(sum(values) / len(values), {"images": values}))
