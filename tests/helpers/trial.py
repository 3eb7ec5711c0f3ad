"""Runs of the stages in `stages.py`: as functions for tests, as a process to be killed.

python tests/helpers/trial.py RUN --samples 40 --address ADDRESS
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

import stages as _stages  # noqa: F401  (a cluster is sent what the driver has imported)
import typer

from plait.cluster import workers
from plait.cluster.counts import StageCount
from plait.cluster.executors.simulated import World
from plait.cluster.placement import Node, Resources
from plait.cluster.plan import (
    EngineOptions,
    Plan,
    evaluations,
    final_lookup,
)
from plait.cluster.records import Item, encode
from plait.cluster.run import RUN_DIGEST, RunResult, execute
from plait.cluster.shard import Shard
from plait.cluster.store import Store
from plait.cluster.walks import Lookup, Pending, read
from plait.cluster.watcher import RunProgress, StageProgress, Watcher, WorkerFailure
from plait.generators.base import (
    Job,
    Kind,
    Outcome,
    Placement,
    StageSpec,
    import_target,
    outcome_name,
)
from plait.generators.buckets import AnyPath
from plait.generators.document import (
    Candidate,
    Content,
    Document,
    Image,
    Query,
    Text,
    Turn,
)
from plait.generators.rendering import Critic, Rendering
from plait.generators.staged import StagedSystem
from plait.generators.text_to_image import TextToImageAlone
from plait.generators.writing import (
    ComposedSystem,
    NativeSystem,
    PlannedSystem,
    as_drafted,
)
from plait.pipelines.critic import CriticReview, CriticSettings
from plait.scorers.base import Scorer

LIGHT = Placement(num_cpus=0.1, batch_size=4)


def writer(placement: Placement = LIGHT, **settings: Any) -> StageSpec:
    log = settings.pop("log", None)
    options = {} if log is None else {"log": str(log)}
    return StageSpec(
        name="writer",
        kind=Kind.DRAFT,
        target="stages:Writer",
        settings=settings,
        options=options,
        placement=placement,
    )


def calls(log: Path) -> list[int]:
    """Batch sizes that a writer with this log was called with."""
    return [int(x.split()[1]) for x in log.read_text().splitlines() if x.startswith("call")]


def painter(hue: int = 0, placement: Placement = LIGHT, **options: Any) -> StageSpec:
    return StageSpec(
        name=f"painter{hue}",
        kind=Kind.RENDER,
        target="stages:Painter",
        settings={"hue": hue},
        options=options,
        seeded=True,
        placement=placement,
    )


CONDITIONER = StageSpec(
    name="conditioner", kind=Kind.CONDITION, target="stages:Conditioner", placement=LIGHT
)


_OF_RENDERING = tuple(own.name for own in fields(Rendering))


def system_of_stages(
    name: str = "s", draft: StageSpec | None = None, **about: Any
) -> StagedSystem:
    """A system of stages, of the kind that has what it is given.

    Fields of its `Rendering` are given beside its own; `critic` is a stage, with its
    `review`. What a kind has no field for is left out.
    """
    drawing = {key: about.pop(key) for key in _OF_RENDERING if key in about}
    review = about.pop("review", None)
    if review is not None:
        drawing["critic"] = Critic(drawing["critic"], review)
    if drawing.get("render") is not None:
        about["rendering"] = Rendering(**drawing)
    kind: type[StagedSystem] = NativeSystem
    if draft is None:
        kind = TextToImageAlone
    elif about.get("planner") is not None:
        kind = PlannedSystem
    elif about.get("instruction") or about.get("variant", "interleaved") != "interleaved":
        about.setdefault("compose", as_drafted)
        kind = ComposedSystem
    own = {field.name for field in fields(kind)}
    given = {"name": name, "draft": draft, **about}
    return kind(**{key: value for key, value in given.items() if key in own})


def rebuild(system: StagedSystem, **changes: Any) -> StagedSystem:
    """A system with other fields, of which some may make it one of another kind."""
    flat = {own.name: getattr(system, own.name) for own in fields(system)}
    rendering = flat.pop("rendering")
    if rendering is not None:
        drawing = {key: getattr(rendering, key) for key in _OF_RENDERING}
        if (critic := drawing.pop("critic")) is not None:
            drawing |= {"critic": critic.stage, "review": critic.review}
        flat |= drawing
    return system_of_stages(**{**flat, **changes})


def reviewed(system: StagedSystem, **settings: Any) -> StagedSystem:
    """`system` with a critic."""
    look = StageSpec(
        name="look", kind=Kind.LOGPROBS, target="stages:Looker", placement=LIGHT
    )
    review = CriticReview(CriticSettings(**settings), "probability")
    return rebuild(system, critic=look, review=review)


def measure_spec(placement: Placement = LIGHT, **options: Any) -> StageSpec:
    return StageSpec(
        name="measure",
        kind=Kind.SCORE,
        target="stages:Measure",
        options=options,
        placement=placement,
    )


@dataclass(frozen=True)
class Measuring(Scorer):
    """A scorer without a model."""

    name: str = "measure"
    stage: StageSpec = field(default_factory=measure_spec)
    scale: str = "0-1"

    def candidate(self, query: Query, document: Document) -> Candidate:
        return Candidate(document)


def sample(number: int, text: str = "", images: Sequence[Image] = ()) -> Query:
    content: Content = (Text(f"query {number} {text}".strip()), *images)
    turns = (Turn("user", content),)
    category = ("SA", "PBL", "MSR")[number % 3]
    return Query(id=f"{category}-{number}", category=category, field="Art", turns=turns)


def talk(i: int) -> Query:
    """A conversation of two questions, the first of which has a published answer."""
    turns = sample(i).turns
    published = Turn("assistant", (Text("a published answer"),))
    return replace(sample(i), turns=(*turns, published, Turn("user", (Text("And then?"),))))


def as_asked(sample: Query, variant: str) -> tuple[Turn, ...]:
    return sample.turns


def plan_of(
    samples: Sequence[Query],
    *,
    write: StageSpec | None = None,
    paint: Sequence[StageSpec] = (),
    measure: Placement = LIGHT,
    seed: int = 0,
    repeats: int = 1,
    **measure_options: Any,
) -> Plan:
    write = write or writer()
    paints = paint or (painter(0), painter(1))
    systems = [
        system_of_stages(name=f"{write.name}+{p.name}", draft=write, render=p, t2i=p.name)
        for p in paints
    ]
    scorers = [Measuring(stage=measure_spec(measure, **measure_options))]
    return Plan(
        systems=systems,
        queries=samples,
        scorers=scorers,
        prompt=as_asked,
        seed=seed,
        repeats=repeats,
    )


def stage_of(spec: StageSpec) -> Any:
    """The stage itself, in this process."""
    return import_target(spec.target)(**spec.settings)


def answering(records: dict[str, Outcome[Any]] | None = None) -> Lookup:
    """A lookup that asks the stages themselves, without engine or store."""
    stages: dict[str, Any] = {}
    known: dict[str, Outcome[Any]] = {} if records is None else records

    def lookup(job: Job) -> Outcome[Any]:
        if job.key not in known:
            stage = stages.setdefault(job.spec.digest, stage_of(job.spec))
            known[job.key] = stage([job.input])[0]
        return known[job.key]

    return lookup


def missing(plan: Plan, store: Store, *kinds: Kind) -> Job | None:
    """The next job (of these kinds) that a run of `plan` would have to do."""
    for walk in plan.walks():
        outcome = read(walk, final_lookup(store))
        if isinstance(outcome, Pending) and outcome.missing[0].spec.kind in (kinds or Kind):
            return outcome.missing[0]
    return None


def filled(plan: Plan, root: Path, *kinds: Kind) -> Store:
    """A store with every record of `plan`, or every one of these kinds."""
    store, records = Store(root), dict[str, Outcome[Any]]()
    lookup = answering(records)
    for walk in plan.walks():
        read(walk, lookup)
    while job := missing(plan, store, *kinds):
        item = Item(job.key, job.label, job.input)
        store.commit(job.spec, encode(job.spec.kind, [item], [records[job.key]], 0.0))
    return store


class Witness(Watcher):
    """Keeps what a run tells."""

    def __init__(self) -> None:
        self.counts: Sequence[StageCount] = ()
        self.progress = RunProgress("running", 0.0, ())
        self.notices: list[str] = []
        self.turns = 0
        self.failures: list[WorkerFailure] = []
        self.loaded: list[str] = []

    @property
    def stages(self) -> Sequence[StageProgress]:
        return self.progress.stages

    def starting(self, counts: Sequence[StageCount]) -> None:
        self.counts = counts

    def turn(self, progress: RunProgress) -> None:
        self.progress = progress
        self.turns += 1

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def worker_failed(self, failure: WorkerFailure) -> None:
        self.failures.append(failure)

    def worker_ready(self, folder: str, seconds: float, taken_over: bool) -> None:
        self.loaded.append(folder)


def run(
    plan: Plan, root: Path, witness: Watcher | None = None, **options: Any
) -> RunResult:
    settings = EngineOptions(**options)
    return execute(plan, root, settings, {"config": {}}, witness or Witness())


def drive(
    plan: Plan,
    root: AnyPath,
    shard: Shard | None = None,
    run: str = "trial",
    **options: Any,
) -> RunResult:
    """One command on a virtual clock; `run` is the digest of what it makes."""
    world = World([Node("n", Resources(cpus=8, gpus=8), "address of n")])
    with world.driver() as driver:
        about = {"config": {}, RUN_DIGEST: run}
        given = EngineOptions(executor=nullcontext(driver), shard=shard, **options)
        return execute(plan.part(shard), root, given, about, Witness())


def outcomes(plan: Plan, root: AnyPath) -> dict[tuple[str, str], Any]:
    """(system, query id) -> outcome of the document; fails where one is missing."""
    documents = {}
    for evaluation in evaluations(plan, Store(root)):
        assert evaluation.complete, f"missing: {evaluation}"
        documents[evaluation.system, evaluation.query.id] = evaluation.document
    return documents


def board(plan: Plan, root: AnyPath) -> str:
    """All results of a run, as text that is equal when the results are."""
    lines = []
    for evaluation in evaluations(plan, Store(root)):
        assert evaluation.complete, f"missing: {evaluation}"
        document = getattr(evaluation.document, "value", None)
        digests = [i.digest for i in document.images] if document else []
        score = evaluation.scores.get("measure")
        value = getattr(score, "value", None)
        lines.append(
            [
                evaluation.system,
                evaluation.query.id,
                outcome_name(evaluation.document),
                document.text if document else "",
                digests,
                value.value if value else None,
            ]
        )
    return json.dumps(lines, indent=0)


def write_board(plan: Plan, root: Path) -> None:
    """leaderboard.json and its companions."""
    from boards import stored_board

    from plait.benchmarks.results.leaderboard_files import write_leaderboard

    board = stored_board(
        evaluations(plan, Store(root)),
        systems=plan.systems,
        scorers=plan.scorers,
        categories={},
        fields=("Art",),
        weights="tiny",
    )
    write_leaderboard(board, root)


def main(
    root: Path,
    samples: int = 36,
    address: Annotated[str | None, typer.Option(envvar="TRIAL_RAY")] = None,
    sleep: float = 0.0,
    spread: Annotated[
        bool, typer.Option("--spread", help="Two workers a stage, of two CPUs each.")
    ] = False,
    poison: Annotated[
        bool, typer.Option("--poison", help="Some samples misbehave.")
    ] = False,
    log: Path | None = None,
    gate: Annotated[
        Path | None, typer.Option(help="Each writer's second batch waits for this file.")
    ] = None,
    asks_after: Annotated[
        float | None, typer.Option(help="Seconds without CPUs; then it asks who has them.")
    ] = None,
) -> None:
    """One run of the stages in stages.py, as a process that can be killed."""
    if asks_after is not None:
        workers._PLACED_WITHIN_S = asks_after
    place = replace(LIGHT, num_cpus=2, workers=2) if spread else LIGHT
    words = {5: "!raise", 11: "!refuse", 17: "!skip"} if poison else {}
    write, own = writer(place, log=log), {"sleep_s": sleep, "gate": gate and str(gate)}
    plan = plan_of(
        [sample(i, words.get(i, "")) for i in range(samples)],
        write=replace(write, options=dict(write.options) | own),
        paint=[painter(0, place, sleep_s=sleep), painter(1, place)],
    )
    result = run(plan, root, address=address)
    write_board(plan, root)
    print(json.dumps({"counts": dict(result.counts), "made": result.made}))
    raise typer.Exit(result.exit_status)


if __name__ == "__main__":
    typer.run(main)
