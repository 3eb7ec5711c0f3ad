"""Systems, stages and scorers in the current process, without Ray and without a store.

paint = LocalSystem.named("qwen2-vl-7b+sdxl-turbo", weights="tiny")
paint("Draw a cat.")                # a document, with its images
judge = LocalScorer.named("clipscore", weights="tiny")
judge(question("Draw a cat."), document)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from plait.benchmarks.results.notebook import NotebookDocument
from plait.benchmarks.runs.answers import NoDocument, QueryAnswer, ScorerVerdict, TaskQuery
from plait.benchmarks.runs.requirements import refuse_missing
from plait.benchmarks.runs.resolving import scorer_named
from plait.benchmarks.tasks.published import as_asked, unicode_only
from plait.benchmarks.tasks.reading.rules import brief
from plait.cluster.loading import load_stage
from plait.cluster.local import LocalStages
from plait.cluster.plan import EngineOptions
from plait.cluster.store import BlobReader
from plait.cluster.walks import drive, together
from plait.generators.base import Kind, Outcome, StageInput, StageSpec, WeightsName
from plait.generators.catalogue import is_custom
from plait.generators.checkpoints import pinning
from plait.generators.custom import custom_spec
from plait.generators.document import (
    Document,
    Image,
    Malformed,
    Query,
    Text,
    Turn,
    replace_parts,
)
from plait.generators.errors import UsageError
from plait.generators.images import PICTURE_FORMS, ImageError, Picture, image_of, is_picture
from plait.generators.names import unknown
from plait.generators.own_code import giving
from plait.generators.system import Prompter, Repetition, System
from plait.generators.unicode import trouble, valid_text
from plait.pipelines.systems import Models, is_lvlm, is_t2i, lvlm_spec, resolve, t2i_spec
from plait.scorers.base import Scorer, admit
from plait.scorers.judging.resolve import refuse_mini_lvlm

T = TypeVar("T")
Settings = Mapping[str, Mapping[str, Any]]
"""Settings by the model's name, as `[models.NAME]` of a config."""
PARTS = ("draft", "condition", "render")


def question(*parts: str | Picture, id: str = "query") -> Query:
    """Return a query of text and images in order; `id` decides the seeds of its answer.

    UsageError where there is nothing, or something that is neither text nor image.

    Examples:
        >>> from PIL import Image
        >>> asked = plait.query("What is this?", Image.new("RGB", (64, 64), "red"))
        >>> [type(part).__name__ for part in asked.question]
        ['Text', 'Image']
    """
    if not parts:
        raise UsageError("a query needs text or an image")
    turns = (Turn("user", tuple(map(_part, parts))),)
    return Query(id=id, category="query", field="query", turns=turns)


def _part(part: str | Picture) -> Text | Image:
    if isinstance(part, str):
        return Text(part)
    if is_picture(part):
        try:
            return image_of(part)
        except ImageError as error:
            raise UsageError(str(error)) from error
    raise UsageError(
        "queries and answers are made of texts and images "
        f"({PICTURE_FORMS}), not of {type(part).__name__}"
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class LocalSystem:
    """A system whose stages are loaded in this process when they are first asked.

    Examples:
        >>> illustrate = plait.system("qwen2-vl-7b+sdxl-turbo", weights="tiny")
        >>> answers = illustrate.answers([plait.query("A cat."), plait.query("A dog.")])
        >>> [answer.outcome for answer in answers]
        ['done', 'done']
    """

    system: System
    seed: int = 0
    prompt: Prompter = as_asked
    """Wording of queries that bring none of their own."""
    stages: LocalStages = field(default_factory=LocalStages, repr=False)

    @classmethod
    def named(
        cls,
        name: str | Callable[[Any], Any],
        *,
        weights: WeightsName = "pretrained",
        models: Settings | None = None,
        seed: int = 0,
        prompt: Prompter = as_asked,
        gpu_memory_gib: float = 80.0,
    ) -> "LocalSystem":
        """Return the system `name`, or one of your own, to be called in this process.

        Args:
            name: As `plait list systems` shows it, `module:Class`, or your own class, an
                instance of it, or a function.
            weights: `pretrained`, `mini`, `dummy` or `tiny`.
            models: Settings by model, such as `{"sdxl-turbo": {"steps": 2}}`.
            seed: Seed of all sampling and noise.
            prompt: The wording of queries that bring none of their own.
            gpu_memory_gib: Memory of one GPU.

        Raises:
            UsageError: For unknown names, missing weights and keys.

        Examples:
            >>> illustrate = plait.system("qwen2-vl-7b+sdxl-turbo", weights="tiny")
            >>> document = illustrate("A cat on a mat.")
            >>> len(document.pictures)
            1
        """
        asked = Models(weights=weights, overrides=models or {}, gpu_gib=gpu_memory_gib)
        with giving(name) as (known,):
            system = available(lambda: resolve(known, asked), lambda s: s.stages)
        return cls(system=system, seed=seed, prompt=prompt)

    def __call__(self, *query: str | Picture | Query | TaskQuery) -> NotebookDocument:
        """Return the document that answers one query; NoDocument where there is none.

        The query is text and images, a `Query`, or a query of a run: that is asked in
        the words, and with the seeds, of the run where both have the same seed.
        """
        (made,) = self.answers([_query(query)])
        if made.document is None:
            raise NoDocument(f"{made.system}: {made.outcome}: {made.reason}")
        return made.document

    def answers(self, queries: Sequence[Query | TaskQuery]) -> list[QueryAnswer]:
        """One answer per query, whatever came of it; all advance together, in batches."""
        asked = [self._with_wording(query) for query in queries]
        walks = []
        for query in asked:
            # None is malformed, or `_with_wording` would have refused it.
            if isinstance(query.sample, Query):
                repetition = Repetition(query.prompt, self.seed)
                walks.append(self.system.answer(query.sample, repetition))
        outcomes = drive(together(walks), self.stages.outcomes)
        answers = []
        for query, outcome in zip(asked, outcomes, strict=True):
            answers.append(QueryAnswer.of(self.system.name, query, outcome))
        return answers

    def _with_wording(self, query: Query | TaskQuery) -> TaskQuery:
        """Return a query with its wording; UsageError for one that cannot be asked."""
        own = _valid_query(query)
        if isinstance(query, TaskQuery):
            return query
        return TaskQuery(id=own.id, sample=own, prompt=self.prompt, read=BlobReader())


def _query(
    parts: tuple[str | Picture | Query | TaskQuery, ...],
) -> Query | TaskQuery:
    if len(parts) == 1 and isinstance(parts[0], Query | TaskQuery):
        return parts[0]
    if any(isinstance(part, Query | TaskQuery) for part in parts):
        raise UsageError("give one query alone, or text and images")
    return question(*parts)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True, eq=False)
class LocalScorer:
    """A scorer whose stages are loaded in this process when they are first asked.

    Examples:
        >>> plait.scorer("clipscore", weights="tiny").scale
        '0-2.5, higher is better'
    """

    scorer: Scorer
    stages: LocalStages = field(default_factory=LocalStages, repr=False)

    @classmethod
    def named(
        cls,
        name: str | Callable[[Any], Any],
        *,
        weights: WeightsName = "pretrained",
        models: Settings | None = None,
        gpu_memory_gib: float = 80.0,
        **settings: Any,
    ) -> "LocalScorer":
        """Return the scorer `name`, or one of your own, to be called in this process.

        Args:
            name: As `plait list scorers` shows it, `module:Class`, or your own class, an
                instance of it, or a function.
            weights: `pretrained`, `mini`, `dummy` or `tiny`.
            models: Settings of models that it asks, by their names.
            gpu_memory_gib: Memory of one GPU.
            **settings: Its own.

        Raises:
            UsageError: For unknown names, missing weights and keys.

        Examples:
            >>> bleu = plait.scorer("bleu", weights="tiny")
            >>> run = plait.open_run("runs/quickstart")
            >>> verdict = bleu(run.queries["SA-0001"], run.answer("SA-0001", "gt"))
            >>> print(verdict.outcome, verdict)
            scored 100
        """
        asked = Models(weights=weights, overrides=models or {}, gpu_gib=gpu_memory_gib)
        with giving(name) as (known,):
            refuse_mini_lvlm(known, weights)
            own = {**asked.of(known), **settings}
            scorer = available(lambda: scorer_named(known, own, asked), lambda s: s.stages)
        if scorer.opponent:
            raise UsageError(
                f"{known} judges an answer beside that of another system, so it is a "
                "scorer of whole runs: plait.run(scorers=[...], baseline=...)"
            )
        return cls(scorer=scorer)

    @property
    def scale(self) -> str:
        """The values' range, and which of them are better."""
        return f"{self.scorer.scale}, {self.scorer.direction} is better"

    def __call__(
        self,
        sample: Query | TaskQuery | str,
        document: Document | QueryAnswer | Sequence[str | Picture],
    ) -> ScorerVerdict:
        """Return the score of one document, or the reason why there is none.

        The document may be a plain list of texts and images.
        """
        walk = self.scorer.judge(_valid_query(sample), _document(document))
        outcome = drive(walk, self.stages.outcomes)
        return ScorerVerdict.of(admit(outcome, self.scorer.scale))


def _valid_query(query: Query | TaskQuery | str) -> Query:
    """Return a query as systems and scorers take it; UsageError for a malformed one."""
    if isinstance(query, str):
        query = question(query)
    own = query.sample if isinstance(query, TaskQuery) else query
    checked = unicode_only(own, 0)
    if isinstance(checked, Malformed):
        raise UsageError(f"query {checked.id} is malformed: {checked.reason}")
    return checked


def _document(answered: Document | QueryAnswer | Sequence[str | Picture]) -> Document:
    """Return a document as scorers take it, its text as that of all answers."""
    if not isinstance(answered, Document | QueryAnswer):
        answered = Document(tuple(map(_part, answered)))
    if isinstance(answered, Document):
        segments: list[Text | Image] = []
        for segment in answered.segments:
            # A document that a user made may hold images of PIL, whatever its type says.
            segments.append(_part(segment) if is_picture(segment) else segment)
        document = Document(tuple(segments), answered.ends)
        return replace_parts(document, str, valid_text)
    if answered.document is None:
        raise UsageError(f"{answered.query.id} has no document: {answered.reason}")
    return answered.document.plain


def local_stage(
    name: str,
    part: str | None = None,
    *,
    weights: WeightsName = "pretrained",
    models: Settings | None = None,
    gpu_memory_gib: float = 80.0,
    **settings: Any,
) -> "LocalStage":
    """Return the loaded stage of a model: `stage(inputs) -> list of outcomes`, in order.

    `name` is an LVLM, a text-to-image model, `module:Class`, or a system of which `part`
    names the stage (`draft`, `condition` or `render`). UsageError names what is valid, and
    text in an input that is not Unicode.

    Examples:
        >>> paint = plait.stage("sdxl-turbo", weights="tiny")
        >>> paint.spec.kind.value
        'render'
        >>> plait.stage("anole", "draft", weights="tiny").spec.name
        'anole-draft'
    """
    overrides = dict(models or {})
    if settings:
        overrides[name] = {**overrides.get(name, {}), **settings}
    asked = Models(weights=weights, overrides=overrides, gpu_gib=gpu_memory_gib)
    spec = available(lambda: _spec(name, part, asked), lambda s: (s,))
    return LocalStage(spec, load_stage(spec))


@dataclass(frozen=True)
class LocalStage:
    """A loaded stage whose inputs come from a user's own code.

    Examples:
        >>> paint = plait.stage("sdxl-turbo", weights="tiny")
        >>> paint.spec.name, paint.spec.kind.value
        ('sdxl-turbo', 'render')
    """

    spec: StageSpec
    stage: Any = field(repr=False)
    """An instance of the stage's class."""

    def __call__(self, inputs: Sequence[StageInput]) -> Sequence[Outcome[Any]]:
        """Return one outcome per input, in order."""
        outcomes: Sequence[Outcome[Any]] = self.stage(replace_parts(inputs, str, _check))
        return outcomes

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stage, name)


def _check(text: str) -> str:
    if wrong := trouble(text):
        raise UsageError(f"{brief(text)} is not Unicode: it has {wrong}")
    return text


def _spec(name: str, part: str | None, models: Models) -> StageSpec:
    if part is None and is_t2i(name):
        return t2i_spec(name, models)
    if part is None and is_lvlm(name):
        return lvlm_spec(name, models)
    if part is None and is_custom(name):
        return custom_spec(name, models.weights, models.of(name), list(Kind))
    there: dict[str, StageSpec] = {}
    for role, stage in resolve(name, models).roles.items():
        if role in PARTS:
            there[role] = stage
    if part is None and len(there) == 1:
        return next(iter(there.values()))
    if part is None:
        raise UsageError(
            f"system {name!r} has several stages; name one: {', '.join(there)}"
        )
    if part not in there:
        raise unknown(f"part of system {name!r}", part, there)
    return there[part]


def available(make: Callable[[], T], stages: Callable[[T], Sequence[StageSpec]]) -> T:
    """What `make` gives; UsageError names weights and API keys that are not to be had."""
    with pinning({}) as pins:
        made = make()
    refuse_missing(stages(made), pins.missing, EngineOptions(executor="local"))
    return made
