"""What a stage is, the outcomes it can give, and how a job names its result.

A stage is one plain class: `__init__` loads the model, `__call__(inputs)` returns one
outcome per input, in order; raising fails the batch. It knows nothing of Ray, files or
other stages. A `concurrent` stage takes calls from several threads. One with a ceiling on
its usage has `continue_from(usage)`, which is called once it is loaded, with what its
records have used before. Standard library only.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from types import ModuleType
from typing import Any, Generic, Literal, Protocol, TypeVar

from plait.generators.document import (
    Candidate,
    Embedding,
    EmbedInput,
    ImageRequest,
    LogprobsRequest,
    Request,
    Text,
    TransformRequest,
    content_of_turns,
)
from plait.generators.errors import UsageError
from plait.generators.extras import Extra
from plait.generators.files import safe_name
from plait.generators.former import import_to_write
from plait.generators.keys import canonical_text, digest, digest_of_texts, input_text
from plait.generators.work import Work

Weights = Literal["pretrained", "dummy", "tiny"]
"""How a loader fills an architecture."""
WeightsName = Literal["pretrained", "mini", "dummy", "tiny"]
"""What a user may name. `mini` is a pretrained folder before any loader sees it
(`plait.generators.mini.resolve`)."""
RANDOM: tuple[WeightsName, ...] = ("dummy", "tiny")
"""Kinds of weights whose output is meaningless."""
SCHEMA_VERSION = 1
"""Bumped when the stored form of a result changes."""

StageInput = (
    Request | ImageRequest | TransformRequest | Candidate | LogprobsRequest | EmbedInput
)
T = TypeVar("T")


class Kind(StrEnum):
    """The kinds of stage, each with one stored form (`plait.cluster.records`)."""

    DRAFT = "draft"
    """Request -> Draft: an LVLM, a native model's LM, a judge."""
    CONDITION = "condition"
    """ImageRequest -> Payload: turns a request into its decoder's input (Emu2)."""
    RENDER = "render"
    """ImageRequest -> Image: a text-to-image model or a native image decoder."""
    TRANSFORM = "transform"
    """TransformRequest -> Image: changes an image that is there, without a model."""
    SCORE = "score"
    """Candidate -> Score."""
    LOGPROBS = "logprobs"
    """LogprobsRequest -> Logprobs: an LVLM that says how likely it gives each answer."""
    EMBED = "embed"
    """Image, Text or WindowedText -> Embedding."""


class Fault(StrEnum):
    """Why a record failed. The first three are final, the others are tried again."""

    BAD_INPUT = "bad input"
    REFUSED = "refused"
    UNSAFE = "blocked by safety checker"
    ERROR = "error"
    TIMEOUT = "timeout"
    DIED = "worker died"
    OUT_OF_MEMORY = "out of memory"
    ENDPOINT = "endpoint failure"
    BUDGET = "budget reached"
    NOT_LOADED = "stage could not be loaded"
    UNREAD = "replies cannot be read"

    @property
    def final(self) -> bool:
        """True if running again would fail the same way."""
        return self in (Fault.BAD_INPUT, Fault.REFUSED, Fault.UNSAFE)


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    """A stage's answer to one input."""

    value: T
    usage: Mapping[str, float] = field(default_factory=dict)
    """Countable cost: input_tokens, output_tokens, images, steps, ..."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Details for readers of the result: the exact prompt, truncation, ..."""


@dataclass(frozen=True, slots=True)
class Skip:
    """The system cannot take this query, as published (LLaVA and several images)."""

    reason: str
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """The stage should have answered and did not."""

    reason: str
    fault: Fault = Fault.BAD_INPUT
    usage: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unscored:
    """A judgement that cannot be read, or a document with nothing to judge."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unread(Unscored):
    """A judgement that was given and cannot be read, or is no number."""

    parts: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What of it can be read, where it has parts."""


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """The scorer does not apply to such queries (CLIPScore on reasoning)."""

    reason: str


@dataclass(frozen=True, slots=True)
class SetMember:
    """What a document adds to a metric of sets of images, which has no value of one.

    Scorers give it and stages do not, so that it has no record.
    """

    reason: str
    """Why the document has no value of its own."""
    answer: tuple[Embedding, ...] = ()
    truth: tuple[Embedding, ...] = ()


class OutcomeName(StrEnum):
    """Everything that can come of a document or of a judgement, as tables name it."""

    DONE = "done"
    """A document that is there."""
    SCORED = "scored"
    """A judgement with a value."""
    FAILED = "failed"
    SKIPPED = "skipped"
    UNSCORED = "unscored"
    NOT_APPLICABLE = "not_applicable"
    MISSING = "missing"
    """Not made yet."""
    NO_DOCUMENT = "no_document"
    """A judgement that was not asked for, since there is no document."""

    @property
    def of_scores(self) -> str:
        """Its name among counts of judgements: `failed_scores` beside failed documents."""
        return f"{self}_scores" if self in (self.FAILED, self.SKIPPED) else str(self)


DOCUMENT_OUTCOMES = tuple(map(OutcomeName, ("done", "failed", "skipped", "missing")))
SCORE_OUTCOMES = tuple(
    map(OutcomeName, ("scored", "unscored", "not_applicable", "failed", "skipped"))
)
"""What a document, and a judgement that was asked for, can come to, in tables' order."""
VALUED = (OutcomeName.DONE, OutcomeName.SCORED, OutcomeName.NOT_APPLICABLE)
"""Of which nothing is missing: that a scorer does not apply to a query is no loss."""


_NAMES: Mapping[type, OutcomeName] = {
    Result: OutcomeName.DONE,
    Failure: OutcomeName.FAILED,
    Skip: OutcomeName.SKIPPED,
    NotApplicable: OutcomeName.NOT_APPLICABLE,
    # Tables have no name of its own for it: they show why there is no value.
    SetMember: OutcomeName.NOT_APPLICABLE,
}


def outcome_name(outcome: Outcome[Any]) -> OutcomeName:
    """Return `done`, `failed`, `skipped`, `unscored` or `not_applicable`."""
    return _NAMES.get(type(outcome), OutcomeName.UNSCORED)


PEAKS = frozenset({"peak_memory_mb"})
"""Names of usage of which the largest counts and not the sum."""


def add_usage(total: MutableMapping[str, float], usage: Mapping[str, float]) -> None:
    """Count `usage` towards `total`."""
    for name, amount in usage.items():
        before = total.get(name, 0.0)
        total[name] = max(before, amount) if name in PEAKS else before + amount


Outcome = Result[T] | Skip | Failure | Unscored | NotApplicable | SetMember


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCommand:
    """A server that every worker of a stage starts for itself and ends with itself.

    Nothing here enters a key: what names the results is part of the stage's identity.
    """

    name: str
    """Shown to people, and the beginning of its log's name."""
    argv: tuple[str, ...]
    """The program and its arguments; `{port}` in them stands for the port."""
    env: tuple[tuple[str, str], ...] = ()
    """Environment variables besides those of the worker, by name."""
    port: int = 0
    """0 for a free one."""
    health: str = "/health"
    """Path that answers with status 200 once requests are taken."""
    path: str = "/v1"
    """What follows host and port in the URL that requests go to."""
    start_timeout_s: float = 1800.0
    stop_timeout_s: float = 10.0
    """Between SIGTERM and SIGKILL."""
    hung_after_s: float = 120.0
    """A server whose health path gives no answer for so long counts as dead."""
    software: str = ""
    """Name of the program, as `vllm`; empty where it is not known."""
    version: str = ""
    """Version that the running server must report, if it reports one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """How a stage is run: nothing here may change a result, nothing enters a key."""

    batch_size: int = 8
    workers: int | None = None
    """Most replicas at a time; None for as many as fit and have work."""
    num_gpus: float = 0.0
    num_cpus: float = 1.0
    memory_gib: float = 0.0
    """Host memory that one replica reserves."""
    gpu_memory_gib: float = 0.0
    """Estimate of device memory over all GPUs of one replica, for `plait plan`."""
    batch_timeout_s: float = 1800.0
    """A batch that computes for longer is treated as its worker's death."""
    load_timeout_s: float = 3600.0
    longest_first: bool = False
    """Batch long inputs with their like (text models); else first come first served."""
    endpoint: str | None = None
    """Base URL of a remote stage; all stages of one endpoint share its limit."""
    concurrency: int = 1
    """Requests in flight at the endpoint, or at the server of each worker."""
    batch_api: bool = False
    """Whether a run hands requests in to a batch of the provider, and collects the replies
    under a later command."""
    server: ServerCommand | None = None
    """The server that each worker starts, which then is the stage's endpoint."""

    @property
    def remote(self) -> bool:
        """Whether an endpoint that somebody else runs does the work."""
        return self.endpoint is not None and self.server is None

    @property
    def asks(self) -> bool:
        """Whether a worker only waits for a server, and takes several batches at a time."""
        return self.endpoint is not None or self.concurrency > 1


@dataclass(frozen=True, kw_only=True)
class StageSpec:
    """A stage before it is loaded: what it is, what names its results, how it is run."""

    name: str
    """Shown to people, in its folder and its progress bar."""
    kind: Kind
    target: str
    """`module:Class`, imported only where the stage is hosted."""
    extra: Extra | None = None
    """Extra of plait with the packages that the class imports; no part of the key."""
    stage: str = ""
    """Declared name of a built-in stage in result keys, so that its class may move or be
    renamed. A user's stage declares none: its `module:Class` is its name."""
    keyed_as: Kind | None = None
    """The kind in result keys of a stage that had another one in earlier versions of plait,
    whose records stay valid; None for one that has had no other."""
    version: int = 1
    """Bumped by hand when the class's results change."""
    superseded: Mapping[int, str] = field(default_factory=dict)
    """What was wrong with former versions: `{1: "which counted non-answers"}`."""
    identity: str = ""
    """Model id and revision, or folder fingerprint."""
    weights: WeightsName | None = None
    """None for stages without weights of their own (endpoints)."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Constructor arguments that change results; part of every key."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Constructor arguments that do not: paths, devices, names of API keys."""
    secrets: tuple[str, ...] = ()
    """Environment variables the stage needs; their values are never stored."""
    seeded: bool = False
    """Whether results depend on the input's seed."""
    placement: Placement = field(default_factory=Placement)
    work: Work | None = None
    """What one record takes, for a forecast; None where that is not known."""
    given: Any = field(default=None, repr=False, compare=False)
    """The class, instance or function that was given from Python and that no module has;
    else None. It is not part of the key."""
    recorded: str = ""
    """Digest under which a finished run keeps the stage's records. It replaces the computed
    one, so that the run stays readable after the stage's version has changed."""

    @cached_property
    def digest(self) -> str:
        """Names everything about the stage that can change a result."""
        if self.recorded:
            return self.recorded
        name = self.stage or self.target
        kind = self.keyed_as or self.kind
        # What enters, and in which order, is that of all records ever made: any change
        # here gives each of them another name.
        about = (kind, name, self.version, self.identity, self.weights)
        return digest(SCHEMA_VERSION, *about, self.settings)

    @property
    def params_b(self) -> float | None:
        """Parameters of its model in billions; None where that is not known."""
        # Bytes of a parameter: the other two precisions have half of float32's.
        width = 4 if self.settings.get("dtype") == "float32" else 2
        return None if self.work is None else self.work.weight_bytes / width / 1e9

    def was_of_kind(self, recorded: str) -> bool:
        """Return whether a run may have recorded this stage as of the kind `recorded`."""
        return recorded in (self.kind, self.keyed_as)

    def faults_of(self, version: int) -> str:
        """Return what was wrong with a former version, and all after it; mostly empty."""
        faults = []
        for superseded, fault in self.superseded.items():
            if superseded >= version:
                faults.append(fault)
        return " and ".join(faults)

    @property
    def shares_process(self) -> bool:
        """True if its process may host another stage before or after it.

        A user's class may change what all code of a process shares, a device's memory is
        surely free only when a process has ended, and nobody else may read secrets.
        """
        placed = self.placement
        alone = placed.num_gpus or placed.endpoint or placed.server or self.secrets
        return bool(self.stage) and not alone

    @property
    def folder(self) -> str:
        """Folder of the stage's records, `<name>-<digest>`."""
        return f"{safe_name(self.name)[:60]}-{self.digest[:12]}"


def import_target(target: str) -> Any:
    """Return the object `module:name`; ImportError or AttributeError if there is none.

    UsageError, with what to write, where its module imports a former package of plait.
    """
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def import_module(name: str) -> ModuleType:
    """Return a module; UsageError as of `import_target`."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if said := import_to_write(error):
            raise UsageError(said) from error
        raise


class Stage(Protocol):
    """What is hosted by workers, and what a class of one's own has to be.

    Further attributes, of the class, are read where they apply: `version` (raise it when
    results change), `seeded`, `placement`; of a judge `scale` and `direction`.
    """

    kind: str
    """`draft` (requests to drafts), `render` (image requests to images) or `score`
    (candidates to scores)."""

    def __call__(self, inputs: Sequence[Any], /) -> Sequence[Outcome[Any]]:
        """Return a result, skip or failure for each input, in order."""
        ...


_IMAGE_SIZE = 2000
"""Characters that an image counts as where inputs are batched with their like."""


@dataclass(frozen=True)
class Job:
    """One input for one stage."""

    spec: StageSpec
    input: StageInput
    label: str
    """The query's id, shown to people; not part of the key."""
    group: str = ""
    """Inputs of one group begin alike and are sent together where possible, so that what
    they share is computed once, here or by a server. Not part of the key."""
    readable: Callable[[Outcome[Any]], bool] | None = field(default=None, compare=False)
    """Whether the judgement that is asked for can be read in the outcome; None where no
    judgement is asked for. Not part of the key."""

    @cached_property
    def key(self) -> str:
        """Name of the result: never of batch size, world size or host."""
        return digest_of_texts(canonical_text(self.spec.digest), self._input_text)

    @cached_property
    def prompt(self) -> str:
        """Digest of the input alone, whichever stage has it."""
        return digest_of_texts(self._input_text)

    @property
    def _input_text(self) -> str:
        if isinstance(self.input, Request):
            return _text_of_request(self.input)
        return input_text(self.input)

    @property
    def keys(self) -> tuple[str, ...]:
        """`key`, and the one of earlier versions, which named payloads by their bytes."""
        if isinstance(self.input, ImageRequest) and self.input.payload is not None:
            return self.key, self._key_by_bytes
        return (self.key,)

    @cached_property
    def _key_by_bytes(self) -> str:
        assert isinstance(self.input, ImageRequest)
        assert self.input.payload is not None
        by_bytes = replace(self.input, payload=replace(self.input.payload, origin=None))
        return digest(self.spec.digest, by_bytes)

    @cached_property
    def size(self) -> int:
        """A rough length of the input in characters, to batch inputs of like length."""
        if not isinstance(self.input, Request):
            return 0
        size = 0
        for segment in content_of_turns(self.input.turns):
            size += len(segment.text) if isinstance(segment, Text) else _IMAGE_SIZE
        return size


@lru_cache(maxsize=64)
def _text_of_request(request: Request) -> str:
    # Systems ask their LVLMs for the same in turn.
    return canonical_text(request)


Walk = Generator[list[Job], list[Outcome[Any]], Outcome[T]]
"""A chain of stages as a generator: yields jobs, is sent their outcomes, in order.

The same walk plans (stops at the first unknown key), runs (waits there) and reads
(every key is known), so the three can never disagree about what a system does.
"""
