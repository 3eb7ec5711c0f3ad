"""Settings of a stage: those that enter the keys of results, and those that do not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from plait.generators.base import Kind, Placement, StageSpec, Weights
from plait.generators.checkpoints import identity, with_revision
from plait.generators.extras import Extra
from plait.generators.work import SCORED, FigureRange, Work, usage_of_writing

Dtype = Literal["float32", "bfloat16", "float16"]
SMALL_BATCH = 16
"""Records that a small model computes at once: `tiny` and `mini` weights."""


def unkeyed(default: Any, **constraints: Any) -> Any:
    """Declare a field that may change between runs without changing any result's key."""
    return Field(default, json_schema_extra={"keyed": False}, **constraints)


class StageSettings(BaseModel):
    """Settings of every stage. Subclasses add fields, which enter the key."""

    # A command uses a few of the classes: what checks their values is made when it does.
    model_config = ConfigDict(
        extra="forbid", frozen=True, protected_namespaces=(), defer_build=True
    )

    kind: ClassVar[Kind]
    stage: ClassVar[str]
    """Name of the stage in result keys: it never changes, even if its class moves."""
    target: ClassVar[str]
    """`module:Class` of the stage; its constructor takes these fields by name."""
    extra: ClassVar[Extra | None] = None
    """Extra of plait with the packages that the class imports."""
    version: ClassVar[int] = 1
    """Bumped by hand when the stage's results change."""
    superseded: ClassVar[Mapping[int, str]] = {}
    """What was wrong with former versions: `{1: "which counted non-answers"}`."""
    seeded: ClassVar[bool] = False
    placed: ClassVar[frozenset[str]] = frozenset(
        {"batch_size", "workers", "num_gpus", "num_cpus", "memory_gib"}
        | {"batch_timeout_s", "load_timeout_s"}
    )
    """Fields that go to the placement and not to the constructor."""

    batch_size: int = unkeyed(8, ge=1)
    """Records computed at once."""
    workers: int | None = unkeyed(None, ge=1)
    """Most replicas at a time; by default as many as fit and have work."""
    num_gpus: float | None = unkeyed(None, ge=0)
    """GPUs of one replica; by default by a model's memory estimate, none for `tiny`."""
    num_cpus: float = unkeyed(1.0, ge=0)
    """CPU cores of one replica."""
    memory_gib: float = unkeyed(0.0, ge=0)
    """Host memory one replica reserves."""
    batch_timeout_s: float = unkeyed(1800.0, gt=0)
    """A batch that computes for longer counts as its worker's death."""
    load_timeout_s: float = unkeyed(3600.0, gt=0)
    """A model that loads for longer counts as not loadable."""

    @field_validator("num_gpus")
    @classmethod
    def _whole(cls, num_gpus: float | None) -> float | None:
        """Ray gives a share of one GPU, or whole ones."""
        if num_gpus is not None and num_gpus > 1 and num_gpus != int(num_gpus):
            raise ValueError(
                f"{num_gpus:g} is not a valid number of GPUs: up to 1, or a whole one"
            )
        return num_gpus

    def key_fields(self, weights: Weights) -> dict[str, Any]:
        """Return the fields that enter the key, in plain JSON form."""
        keyed = {}
        for name, value in self.model_dump(mode="json").items():
            if _is_keyed(self, name):
                keyed[name] = value
        return keyed

    def options(self, weights: Weights) -> dict[str, Any]:
        """Return the constructor arguments that do not enter the key."""
        others = {}
        for name, value in self.model_dump(mode="json", exclude=set(self.placed)).items():
            if not _is_keyed(self, name):
                others[name] = value
        return others

    def identity(self, weights: Weights) -> str:
        """Return which model exactly; CheckpointError when it cannot be pinned."""
        return ""

    def memory_estimate_gib(self, weights: Weights) -> float:
        """Return the device memory of one replica with its working memory; 0 if unknown."""
        return 0.0

    def work(self, weights: Weights) -> Work | None:
        """Return what one record takes; None where that is not known."""
        return None

    def is_seeded(self) -> bool:
        """Return whether results depend on the input's seed."""
        return self.seeded

    def results_version(self) -> int:
        """Return the version that names the results; by default that of the stage."""
        return self.version

    def former_faults(self) -> dict[int, str]:
        """Return what was wrong with former versions of the results, by version."""
        current = self.results_version()
        faults = {}
        for version, fault in self.superseded.items():
            if version < current:
                faults[version] = fault
        return faults

    def placement(self, weights: Weights, gpu_gib: float) -> Placement:
        """Return how the stage is run on GPUs of `gpu_gib` GiB each."""
        estimate = self.memory_estimate_gib(weights)
        # Not `self.placed`: subclasses add fields that a placement does not have.
        given: dict[str, Any] = {name: getattr(self, name) for name in StageSettings.placed}
        given["num_gpus"] = self._num_gpus(weights, estimate, gpu_gib)
        longest_first = self.kind is Kind.DRAFT
        return Placement(**given, gpu_memory_gib=estimate, longest_first=longest_first)

    def _num_gpus(self, weights: Weights, estimate: float, gpu_gib: float) -> float:
        # A stage without a model has a GPU only on request.
        return self.num_gpus or 0.0

    def spec(self, name: str, weights: Weights, gpu_gib: float = 80.0) -> StageSpec:
        """Return the stage that these settings describe, shown to people as `name`."""
        return StageSpec(
            name=name,
            kind=self.kind,
            stage=self.stage,
            target=self.target,
            extra=self.extra,
            version=self.results_version(),
            superseded=self.former_faults(),
            identity=self.identity(weights),
            weights=weights,
            settings=self.key_fields(weights),
            options=self.options(weights) | {"weights": weights},
            seeded=self.is_seeded(),
            placement=self.placement(weights, gpu_gib),
            work=self.work(weights),
        )


class WeightlessSettings(StageSettings):
    """Settings of a stage that computes without a model."""

    cpu_s: ClassVar[FigureRange] = FigureRange.between(0.002, 0.05)
    """Of a document: 2.8 ms were measured for BLEU, 33 ms for known truth."""

    def work(self, weights: Weights) -> Work:
        """Return the time on a CPU core."""
        return Work(cpu_s=self.cpu_s, usage=SCORED)

    def spec(self, name: str, weights: Weights, gpu_gib: float = 80.0) -> StageSpec:
        """Return the stage, without weights."""
        spec = super().spec(name, weights, gpu_gib)
        return replace(spec, weights=None, options={})


class ModelSettings(StageSettings):
    """Settings of a stage that loads published weights."""

    extra: ClassVar[Extra | None] = "models"

    model: str = unkeyed(...)
    """Hub id or local folder."""
    revision: str | None = unkeyed(None)
    """Hub branch, tag or commit; resolved to a commit before anything runs."""
    device: str = unkeyed("auto")
    """`auto` is the first visible GPU, else the CPU."""
    params_b: float | None = unkeyed(None, gt=0)
    """Published parameter count in billions, for memory estimates."""
    dtype: Dtype = "bfloat16"
    """Precision of the weights; tiny weights are always float32."""

    placed: ClassVar[frozenset[str]] = StageSettings.placed | {"params_b"}
    companions: ClassVar[tuple[str, ...]] = ()
    """Fields, each `unkeyed`, that name further checkpoints this one is used with: a
    folder, a Hub id, or `ID@REVISION`. None where one is not used."""
    index: ClassVar[str | None] = None
    """The file that a checkpoint's folder is known by; None where one file is taken too."""
    spans_gpus: ClassVar[bool] = True
    """True if a replica takes as many GPUs as its estimate fills. If not, the weights fit
    one, and the stage halves a batch whose caches do not."""

    def _num_gpus(self, weights: Weights, estimate: float, gpu_gib: float) -> float:
        if self.num_gpus is not None:
            return self.num_gpus
        if weights == "tiny":
            return 0.0
        return float(max(1, math.ceil(estimate / gpu_gib))) if self.spans_gpus else 1.0

    def per_record_gib(self) -> float:
        """Return the device memory of each record of a batch besides the weights."""
        return 0.0

    def key_fields(self, weights: Weights) -> dict[str, Any]:
        """Return the fields that enter the key; tiny weights are always float32."""
        settings = super().key_fields(weights)
        return settings | {"dtype": "float32"} if weights == "tiny" else settings

    def identity(self, weights: Weights) -> str:
        """Return the pinned checkpoint, or the architecture's name for random weights."""
        if weights == "pretrained":
            return "+".join([self.checkpoint_identity(), *self._companions().values()])
        return self.model

    def checkpoint_identity(self) -> str:
        """Return the pinned checkpoint of `model` alone, without its companions."""
        return identity(self.model, self.revision, self.index)

    def _companions(self) -> dict[str, str]:
        """Return the identity of each companion in use, by the field that names it."""
        identities = {}
        for name in self.companions:
            model = getattr(self, name)
            if model is not None:
                identities[name] = identity(*with_revision(model))
        return identities

    def options(self, weights: Weights) -> dict[str, Any]:
        """Return the options, with revisions pinned to their commits."""
        options = super().options(weights)
        if weights != "pretrained":
            return options
        # An identity of a folder is a digest, by which nothing can be loaded.
        if (own := self.checkpoint_identity()).startswith("hub:"):
            options["revision"] = own.rpartition("@")[2]
        for name, pinned in self._companions().items():
            if pinned.startswith("hub:"):
                options[name] = pinned.removeprefix("hub:")
        return options

    def memory_estimate_gib(self, weights: Weights) -> float:
        """Return the weights with a fifth for working memory, and a batch's records."""
        if weights == "tiny" or self.params_b is None:
            return 0.0
        weights_gib = self.weight_bytes * 1.2 / 2**30
        return weights_gib + self.per_record_gib() * self.batch_size

    @property
    def weight_bytes(self) -> float:
        """Size of the weights; 0 where the number of parameters is not known."""
        return (self.params_b or 0.0) * 1e9 * (4 if self.dtype == "float32" else 2)

    def work(self, weights: Weights) -> Work | None:
        """Return what one record takes of published weights, or of dummy ones."""
        known = weights != "tiny" and self.params_b is not None
        return self._work() if known else None

    def _work(self) -> Work | None:
        return None

    def _decoding(
        self,
        read: FigureRange,
        answer: FigureRange,
        *,
        most: float = math.inf,
        streams: int = 1,
        blocks: int = 0,
        payload_bytes: float = 0.0,
    ) -> Work:
        """Return the work of reading a prompt and decoding an answer, in tokens.

        Every parameter multiplies and adds once for a token. On average, the caches of a
        record are half full. An answer is cut at `most` tokens; `blocks` are the layers
        of a model whose kernels the host launches one by one.
        """
        each = 2e9 * (self.params_b or 0.0)
        return Work(
            weight_bytes=self.weight_bytes,
            flops=read * (each * streams),
            steps=answer,
            most_steps=most,
            blocks=blocks,
            step_flops=each * streams,
            cache_bytes=self.per_record_gib() * 2**30 / 2,
            usage=usage_of_writing(read, answer, payload_bytes),
        )


def with_small_batch(overrides: Mapping[str, Any], weights: Weights) -> Mapping[str, Any]:
    """Return the user's `overrides` of a model, with larger batches of tiny weights.

    The defaults are what the memory of a GPU has room for besides the published weights.
    """
    return {"batch_size": SMALL_BATCH} | dict(overrides) if weights == "tiny" else overrides


def _is_keyed(settings: StageSettings, name: str) -> bool:
    extra = type(settings).model_fields[name].json_schema_extra
    return not (isinstance(extra, dict) and extra.get("keyed") is False)
