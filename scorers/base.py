"""What a scorer is: a pure description of which stage judges what, and of its scale."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from plait.generators.base import (
    Failure,
    Fault,
    Job,
    Kind,
    NotApplicable,
    Outcome,
    Result,
    SetMember,
    StageSpec,
    Unread,
    Unscored,
    Walk,
    Weights,
)
from plait.generators.document import AnswerForm, Candidate, Document, Query, Score
from plait.generators.names import with_overrides
from plait.generators.settings import (
    ModelSettings,
    StageSettings,
    WeightlessSettings,
    unkeyed,
)
from plait.scorers.parts import KINDS, NO_PARTS, PartKind, PartTable, ScorePart
from plait.scorers.parts import UNBOUNDED as UNBOUNDED

if TYPE_CHECKING:
    from plait.scorers.statistics.estimate import Estimate

Direction = Literal["higher", "lower"]
"""Which values are better."""
DIRECTIONS: tuple[Direction, ...] = ("higher", "lower")
ReleasedSummary = Literal[
    "", "mmie", "opening", "specv", "gedit", "imgedit", "unison", "imug"
]
"""Which released program's summary stands beside a scorer's means; mostly none."""
MEMBER = "is of whole sets of images"
"""How the reason ends why a document that adds to a figure has no value."""
NO_IMAGE = "the document holds no image"
NO_TRUTH = "the query has no ground truth"
NO_TRUE_IMAGE = "the ground truth holds no image"
NO_QUESTION = "the question holds no text"
NoScore = NotApplicable | Unscored
"""Why a document has no score, where no stage has to look at it."""
_ENDS = re.compile(r"(-?\d+(?:\.\d+)?)-(-?\d+(?:\.\d+)?)")
_ROUNDING = 1e-6
"""Part of a scale by which a value may exceed its ends: cosines in float32 do."""


SHARE_OF_GPU = 0.2
"""Share of a GPU that a small model takes by default."""


class SmallModelSettings(ModelSettings):
    """Settings of a model that is small enough to share a GPU with those it scores."""

    def _num_gpus(self, weights: Weights, estimate: float, gpu_gib: float) -> float:
        shared = 0.0 if weights == "tiny" else SHARE_OF_GPU
        return shared if self.num_gpus is None else self.num_gpus


class DocumentSettings(WeightlessSettings):
    """Settings of a stage that scores documents without a model."""

    kind: ClassVar[Kind] = Kind.SCORE

    batch_size: int = unkeyed(256, ge=1)
    """Documents scored at once."""
    num_cpus: float = unkeyed(0.5, ge=0)
    """CPU cores of one replica."""


class Preset(NamedTuple):
    """What the name of a scorer stands for."""

    settings: StageSettings
    """Of its stage."""
    properties: Mapping[str, Any] = {}
    """Fields of the scorer."""
    stage: str = ""
    """Name of the stage, where it is not the one in keys."""


Presets = Mapping[str, Preset]
"""By the names of scorers of one class."""


@dataclass(frozen=True, slots=True)
class Scorer:
    """Scores documents, each against its query, by one stage.

    Most scorers say what the stage is given, in `candidate`; a judge has a walk of its own.
    """

    name: str
    """As the user names it: `clipscore`, `judge:mmie-score`."""
    stage: StageSpec
    scale: str = UNBOUNDED
    """The values' range as `LOW-HIGH`, such as `0-100`; any other text if unbounded.

    A value beyond it is not counted: see `admit`."""
    direction: Direction = "higher"
    """Whether `higher` or `lower` values are better."""
    unit: str = ""
    """What a value is: `cosine`, `logit`."""
    licence: str = ""
    """Of the published weights; empty where there are none, or the user names them."""
    images_only: bool = False
    """Whether it does not apply where a query asks for no images."""
    presets: ClassVar[Presets]
    declared_parts: ClassVar[PartTable] = NO_PARTS
    """What the numbers among a score's `parts` are."""
    least_images: ClassVar[int] = 1
    """An answer with fewer images has no score, of scorers of `images_only`."""
    too_few_images: ClassVar[str] = NO_IMAGE
    """Why it has none."""
    no_text: ClassVar[str] = ""
    """Why an answer without text has no score; empty where it may have one."""
    former: ClassVar[str] = ""
    """The stage that gave it one record for each document in earlier versions of plait.
    Runs of these are read: such a stage is of kind SCORE, today's is not."""

    @classmethod
    def of(
        cls,
        name: str,
        weights: Weights,
        overrides: Mapping[str, Any],
        gpu_gib: float = 80.0,
    ) -> Self:
        """Return the scorer as its preset says, but for `overrides` of settings."""
        usual, properties, stage = cls.presets[name]
        settings = with_overrides(usual, overrides, name)
        more = cls.derive_fields(settings, name, weights, gpu_gib)
        spec = settings.spec(stage or settings.stage, weights, gpu_gib)
        return cls(name, spec, **{**properties, **more})

    @classmethod
    def derive_fields(
        cls, settings: Any, name: str, weights: Weights, gpu_gib: float
    ) -> Mapping[str, Any]:
        """Return the fields that follow from the settings; by default none do."""
        return {}

    @property
    def of_sets(self) -> bool:
        """Whether a system has a figure of all its documents, which have no values."""
        return False

    def figure(self, members: Mapping[str, Sequence[SetMember]]) -> Estimate:
        """Return the figure of what the documents of each query add, by the query's key."""
        raise NotImplementedError

    @property
    def as_released(self) -> bool:
        """Whether it judges what a released program judges (`Malformed.released`)."""
        return False

    @property
    def released_summary(self) -> ReleasedSummary:
        """Whose summary of all scores stands beside the means (`judging/summaries.py`)."""
        return ""

    @property
    def criteria_are_shares(self) -> bool:
        """Whether a number under `criteria` says how far it is met, from 0 to 1.

        Else each is on a scale of its own, which only the scorer's author knows.
        """
        return True

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """The stages its walks may use, in chain order."""
        return (self.stage,)

    @property
    def superseded(self) -> str:
        """The version that made its records and what was wrong with it; mostly empty."""
        for stage in self.stages:
            if faults := stage.faults_of(stage.version):
                return f"version {stage.version}, {faults}"
        return ""

    @property
    def manner(self) -> str:
        """How it judges, where the user has a choice: `our rubrics, corrected mode`."""
        return ""

    @property
    def part_scales(self) -> PartTable:
        """What the numbers among its scores' `parts` are; mostly the same for a class."""
        return self.declared_parts

    def parts_of(
        self, judged: Score | Unread, kinds: Collection[PartKind] = KINDS
    ) -> tuple[ScorePart, ...]:
        """Return the numbers that a score was made of, or that could be read of it.

        Only those of `kinds`; the criteria in their rubric's order, and the others last.
        """
        return self.part_scales.read(judged.parts, self.unit, self.scale, kinds)

    @property
    def rounds(self) -> int:
        """How often a walk may go through the stages.

        More than once where a judge is asked again after a reply that cannot be read.
        """
        return 1

    def jobs(self, query: Query, images: int = 1) -> int:
        """Return the most jobs of one round for an answer of so many images."""
        return 1

    def candidate(self, query: Query, document: Document) -> Candidate | NoScore:
        """Return what the stage scores, or why there is nothing to score."""
        raise NotImplementedError

    def read(self, outcome: Outcome[Score]) -> Outcome[Score]:
        """Return the score in the stage's outcome."""
        return outcome

    def whole(self, query: Query, document: Document) -> Walk[Score]:
        """Walk to the score in the one record of a document."""
        return self.read((yield [Job(self.stage, Candidate(document), query.id)])[0])

    def refusal(self, query: Query, form: AnswerForm) -> NoScore | None:
        """Return why no answer to `query` of this form has a score; None where one may.

        A plan asks it of what a system's answers may hold at most, `judge` of an answer.
        """
        if self.images_only and not query.wants_images:
            return NotApplicable("the query asks for no images")
        if (refused := self.query_refusal(query)) is not None:
            return refused
        if self.images_only and form.images < self.least_images:
            return Unscored(self.too_few_images)
        return Unscored(self.no_text) if self.no_text and not form.text else None

    def query_refusal(self, query: Query) -> NoScore | None:
        """Return why no answer to `query` has a score, whatever it holds."""
        return None

    @property
    def opponent(self) -> str:
        """The system beside whose answers others are judged; empty where there is none."""
        return ""

    def judge_beside(
        self, query: Query, other: Document, answer: Document, repeat: int
    ) -> Walk[Score]:
        """Walk to the score of `answer` beside the opponent's, of scorers that have one.

        Both are of the repeat with this number, from 0.
        """
        raise NotImplementedError

    def judge(self, query: Query, document: Document) -> Walk[Score]:
        """Walk to the score of one document: pure functions between the stages' jobs."""
        if (refused := self.refusal(query, document.form)) is not None:
            return refused
        return (yield from self.walk(query, document))

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Walk to the score of a document that is not refused."""
        candidate = self.candidate(query, document)
        if not isinstance(candidate, Candidate):
            return candidate
        return self.read((yield [Job(self.stage, candidate, query.id)])[0])


@dataclass(frozen=True, slots=True)
class CustomScorer(Scorer):
    """Scores with a user's own stage of kind "score", named `module:Class`."""

    own_parts: PartTable = NO_PARTS
    """As the user's class declares them."""

    @property
    def criteria_are_shares(self) -> bool:
        """They are the user's numbers."""
        return False

    @property
    def part_scales(self) -> PartTable:
        """Those of the user's class."""
        return self.own_parts

    def candidate(self, query: Query, document: Document) -> Candidate:
        """Return an answer with its question, ground truth and criteria."""
        return Candidate(document, query.question, query.reference, query.criteria)


def with_stage(scorer: Scorer, change: Callable[[StageSpec], StageSpec]) -> Scorer:
    """Return `scorer` with its stage replaced by `change(stage)`."""
    return replace(scorer, stage=change(scorer.stage))


def bounds(scale: str) -> tuple[float, float] | None:
    """Return the ends of a scale written `LOW-HIGH`; None for any other wording."""
    ends = _ENDS.fullmatch(scale)
    return (float(ends[1]), float(ends[2])) if ends else None


def scale_text(scale: str, direction: Direction) -> str:
    """Return the scale as headings show it: with the direction where lower is better."""
    if direction == "higher":
        return scale
    return "lower is better" if bounds(scale) is None else f"{scale}, lower is better"


def ends_of(scale: str) -> tuple[float, float]:
    """Return the ends of a scale; infinite ones where it declares none."""
    return bounds(scale) or (-math.inf, math.inf)


def admit(outcome: Outcome[Score], scale: str) -> Outcome[Score]:
    """`outcome`, or why its value is not a valid score on `scale`.

    A value that is not a finite number is Unread; a finite one beyond the scale is a
    Failure of the scorer, which declared the scale. The record that holds the value stays
    as it is. Rounding may exceed the ends by a millionth of the scale.
    """
    if not isinstance(outcome, Result):
        return outcome
    value = outcome.value.value
    if not math.isfinite(value):
        return Unread(f"the score {value} is not a finite number")
    if (ends := bounds(scale)) is None:
        return outcome
    low, high = ends
    slack = _ROUNDING * (high - low)
    if not low - slack <= value <= high + slack:
        reason = f"the score {value:g} is beyond the declared scale {scale}"
        return Failure(reason, Fault.ERROR)
    return outcome
