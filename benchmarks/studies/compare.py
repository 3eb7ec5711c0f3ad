"""`plait compare`: have pairs of a run's documents judged, and count the verdicts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, is_dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.runs.config import parsed_setting, with_settings
from benchmarks.runs.display import Display
from benchmarks.runs.experiment import Experiment, refuse_missing, reopen
from benchmarks.runs.run_directory import folder_written, refuse_pack
from benchmarks.studies.compare_page import Judged, report
from benchmarks.studies.rulings import FOLDER, RULINGS, lvlm_of, rulings, write_rulings
from benchmarks.tasks.controls import TRUTH
from benchmarks.tasks.published import PREFIX, as_asked, is_published, published
from cluster.counts import count
from cluster.lock import RunLock
from cluster.plan import Plan, lookup_in
from cluster.records import RecordRow
from cluster.run import MANIFEST, execute
from cluster.store import Store
from cluster.walks import Lookup, Pending, read
from generators.base import RANDOM, Fault, Outcome, Result, Skip, StageSpec, WeightsName
from generators.buckets import AnyPath
from generators.checkpoints import pinning
from generators.document import Document, Malformed, Sample
from generators.errors import UsageError
from generators.keys import digest
from generators.names import unknown
from generators.system import System
from pipelines.systems import Models, chat_spec
from scorers.features import gpt_tokens
from scorers.judging.resolve import JUDGES, refuse_mini_lvlm, resolve_judge
from scorers.judging.resolve import PREFIX as JUDGE
from scorers.judging.sources import OWN_WORDING, Mode, RubricSource
from scorers.pairwise import resolve_protocol
from scorers.pairwise.games import Judgement
from scorers.pairwise.matchup import Matchup, PairComparison
from scorers.pairwise.mmrb2 import repaired_json
from scorers.pairwise.protocol import Pairwise


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Systems to be compared, the protocol and the judge."""

    protocol: str
    judge: str
    """Name of a judge or chat model, with or without `judge:`."""
    baseline: str | None = None
    """A system of the run, `gt`, or `published:NAME`; all are paired without one."""
    systems: tuple[str, ...] = ()
    """Only these; by default all of the run."""
    mode: Mode = "corrected"
    rubric: RubricSource = OWN_WORDING
    """Source of the wording: ours, or a checkout of the benchmark, or its prompts."""
    weights: WeightsName | None = None
    """Of the judge; by default the run's."""
    judgings: int = 1
    """Times that the judge is asked about each pair, with different seeds."""
    address: str | None = None
    settings: tuple[str, ...] = ()
    """`models.NAME.key=value` for the judge."""


@dataclass(frozen=True, kw_only=True)
class PreparedComparison:
    """A comparison with all names resolved."""

    options: CompareOptions
    experiment: Experiment
    protocol: Pairwise
    chat: StageSpec
    systems: Mapping[str, System]
    matchups: Sequence[Matchup]
    identities: Mapping[str, str]
    missing_weights: tuple[str, ...] = ()

    @cached_property
    def items(self) -> list[PairComparison]:
        """All match-ups, as often as the judge is asked."""
        config = self.experiment.config
        return [
            PairComparison(
                matchup=matchup,
                protocol=self.protocol,
                chat=self.chat,
                seed=config.seed,
                draw=matchup.repeat + judging * config.repeats,
            )
            for judging in range(self.options.judgings)
            for matchup in self.matchups
        ]

    @cached_property
    def series(self) -> dict[str, Any]:
        """What all rulings share, and the model that writes, by system."""
        return {
            "protocol": self.protocol.name,
            "mode": self.protocol.mode,
            "wording": wording_digest(self.protocol),
            "judge": self.options.judge.removeprefix(JUDGE),
            "stage": self.chat.digest[:12],
            "writers": {name: lvlm_of(system) for name, system in self.systems.items()},
        }

    @property
    def about(self) -> dict[str, Any]:
        """For the manifest and the tables' head."""
        config, series = self.experiment.config, self.series
        return {
            "plait": 1,
            **{name: series[name] for name in ("protocol", "mode", "wording")},
            "rubric": str(self.options.rubric),
            "baseline": self.options.baseline,
            "judge": series["judge"],
            "judge_model": self.chat.identity or self.chat.target,
            "judge_weights": self.chat.weights,
            "judge_stage": series["stage"],
            "judge_settings": dict(self.chat.settings),
            "judgings": self.options.judgings,
            "seed": config.seed,
            "systems": list(self.systems),
            "weights": config.weights,
            "data": dict(self.experiment.task.about),
            "identities": dict(self.identities),
        }

    @property
    def name(self) -> str:
        """A digest of all that a comparison depends on: no file replaces another's."""
        played = sorted({(m.first, m.second) for m in self.matchups})
        seed, options = self.experiment.config.seed, self.options
        return digest(self.series, seed, options.judgings, options.baseline, played)[:12]


def compare(
    root: AnyPath, options: CompareOptions, console: Console, out: Path | None = None
) -> int:
    """Judge what has not been judged, and write `compare-PROTOCOL-NAME.{json,md}`.

    Tables go to the run's folder, or to `out`; records are kept in the run.
    Documents are used as the run has them; none is made. UsageError for names that are not
    valid, RunInUse while the run itself is under way.
    """
    refuse_pack(root)
    place = root / FOLDER / options.protocol.replace(":", "-")
    match = resolve_comparison(root, place, options)
    before = Store(place).rows(match.chat)
    plan, display = plan_of(match.items), Display(console)
    with RunLock(root), closing(display):
        if any(c.to_run for c in count(plan, Store(place))):
            refuse_missing([match.chat], match.missing_weights)
        address = options.address or match.experiment.config.address
        engine_options = match.experiment.engine_options(address=address)
        run = execute(plan, place, engine_options, match.about, display)
    store = Store(place)
    judged = _judged(match, store, place / RULINGS.replace("*", match.name))
    games = [m.game(outcome, match.protocol) for m, outcome in judged]
    parts = {name: system.stages for name, system in match.systems.items()}
    with folder_written(root, out) as folder:
        report(
            folder / f"compare-{match.protocol.name}-{match.name}",
            about=match.about,
            table=match.protocol.aggregate(games, options.baseline),
            judged=judged,
            run=run,
            asked=_asked(before, store.rows(match.chat)),
            stages=parts | {f"judge {match.series['judge']}": [match.chat]},
            console=console,
        )
    none_read = run.counts["unscored"] and not run.counts["scored"]
    return run.exit_status or int(none_read and match.chat.weights not in RANDOM)


def plan_of(items: Sequence[PairComparison]) -> Plan:
    """Return the plan that has every match-up of valid queries judged."""
    valid = [i for i in items if isinstance(i.matchup.query, Sample)]
    queries = list({i.matchup.query.id: i.matchup.query for i in valid}.values())
    return Plan(systems=(), samples=queries, scorers=(), prompt=as_asked, comparisons=valid)


def _judged(match: PreparedComparison, store: Store, path: AnyPath) -> Judged:
    """Write all rulings to `path`; return the first judgement of each pair.

    Repeats of a judgement measure the judge; they are not additional evidence.
    """
    lookup, size = lookup_in(store), len(match.matchups)
    judged = [(item.matchup, judgement_of(item, lookup)) for item in match.items]
    lines = (
        ruling
        for i, (matchup, outcome) in enumerate(judged)
        for ruling in rulings(match.series, matchup, i // size, outcome)
    )
    write_rulings(lines, path)
    return judged[:size]


def judgement_of(item: PairComparison, lookup: Lookup) -> Outcome[Judgement]:
    """Return a judgement as far as it is recorded."""
    outcome = read(item.walk(), lookup)
    if isinstance(outcome, Pending):
        return Skip("not judged yet")
    return outcome.value.judgement if isinstance(outcome, Result) else outcome


_UNASKED = {Fault.BAD_INPUT, Fault.ENDPOINT, Fault.BUDGET, Fault.NOT_LOADED, Fault.UNREAD}
"""Faults of requests that did not reach a judge."""


def _asked(before: Mapping[str, RecordRow], after: Mapping[str, RecordRow]) -> str:
    """Say how many questions one command asked, by the judge's records around it.

    A question is asked that has a reply, a refusal, or a failure of the judge itself.
    """
    new = [r for key, r in after.items() if key not in before or before[key].at != r.at]
    unasked = sum(row.fault in _UNASKED for row in new)
    lost = f", {unasked:,} could not be asked" if unasked else ""
    return f"{len(new) - unasked:,} judgements asked{lost}"


def resolve_comparison(
    root: AnyPath, place: AnyPath, options: CompareOptions
) -> PreparedComparison:
    """Resolve `options` for the run in `root`, whose judgements are in `place`.

    UsageError for names and settings that are not valid.
    """
    needed = _OFFICIALLY.get(options.protocol, {}) if options.mode == "official" else {}
    arguments = {name: make() for name, make in needed.items()}
    protocol = resolve_protocol(
        options.protocol, options.mode, options.rubric.path, **arguments
    )
    experiment = reopen(root)
    with pinning({**experiment.identities, **_former_identities(place)}) as pins:
        chat = judge_stage(options.judge, models_of(experiment, options))
    if options.judgings > 1 and not chat.seeded:
        raise UsageError(
            f"judge {options.judge!r} draws nothing at random, so asking it "
            f"{options.judgings} times gives one record; give it a temperature"
        )
    systems = _systems(experiment, options)
    played = list(combinations(systems, 2))
    if options.baseline is not None:
        played = [(options.baseline, s) for s in systems if s != options.baseline]
    store = Store(root, strict=True)
    return PreparedComparison(
        options=options,
        experiment=experiment,
        protocol=protocol,
        chat=chat,
        systems=systems,
        matchups=list(matchups(experiment.plan, systems, played, store)),
        identities=pins.known,
        missing_weights=pins.missing,
    )


_OFFICIALLY: Mapping[str, Mapping[str, Callable[[], Any]]] = {
    "probench": {"count": gpt_tokens},
    "mmrb2": {"loads": repaired_json},
}
"""By protocol, what official mode takes from packages that plait does not need."""


def _former_identities(place: AnyPath) -> Mapping[str, str]:
    """Return the weights that earlier comparisons pinned, not to look them up again."""
    try:
        known = json.loads((place / MANIFEST).read_text())["identities"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return known if isinstance(known, dict) else {}


def _systems(experiment: Experiment, options: CompareOptions) -> dict[str, System]:
    """Return the systems to compare, by name, with the baseline.

    UsageError for unknown names, and when there are fewer than two.
    """
    known = {s.name: s for s in experiment.systems}
    names = list(options.systems) or [*known]
    if options.baseline is not None and options.baseline not in names:
        names.insert(0, options.baseline)
    known.setdefault(TRUTH, System(name=TRUTH, draft=None))
    systems = {}
    for name in names:
        if name not in known and not is_published(name):
            answers = (f"{PREFIX}{lvlm}" for lvlm in experiment.task.answers)
            raise unknown("system", name, [*known, *answers])
        systems[name] = known.get(name) or published(name, experiment.task)
    if len(systems) < 2:
        there = ", ".join(systems) or "none"
        raise UsageError(f"a comparison needs two systems, but there is {there}")
    return systems


def models_of(experiment: Experiment, options: CompareOptions) -> Models:
    """Return settings of the judge's model, from the run and the command.

    UsageError for `--set` of anything else, which would have no effect.
    """
    config, bare = experiment.config, options.judge.removeprefix(JUDGE)
    # A chat model has its own name; `judge:NAME` are settings of a rubric judge.
    name = f"{JUDGE}{bare}" if bare in JUDGES else bare
    for setting in options.settings:
        parsed = parsed_setting(setting)
        models = parsed.pop("models", None)
        if parsed or not isinstance(models, Mapping):
            raise UsageError(
                f"--set {setting!r} does not concern the judge; give models.NAME.key=value"
            )
        for named, values in models.items():
            if named != name:
                raise unknown("judge in --set models", named, [name])
            if not isinstance(values, Mapping):
                raise UsageError(f"--set {setting!r} names no key of {name!r}")
    values = with_settings({"models": config.models}, options.settings)
    return Models(
        weights=options.weights or config.weights or "pretrained",
        overrides=values["models"],
        gpu_gib=config.engine.gpu_memory_gib,
    )


def judge_stage(name: str, models: Models) -> StageSpec:
    """Return the stage of the judge `NAME` or `judge:NAME`, without any rubric.

    Raises UsageError for names that are neither a judge nor a chat model.
    """
    full = name if name.startswith(JUDGE) else f"{JUDGE}{name}"
    refuse_mini_lvlm(full, models.weights)
    about = full, models.weights, models.of(full), models.gpu_gib
    return resolve_judge(*about, chat=lambda model: chat_spec(model, models)).stage


def wording_digest(protocol: Pairwise) -> str:
    """Name a protocol's prompts, whatever the class that holds them is called."""
    wording = getattr(protocol, "wording", None)
    if is_dataclass(wording) and not isinstance(wording, type):
        wording = {"Wording": asdict(wording)}
    return digest(wording)[:12]


def matchups(
    plan: Plan,
    systems: Mapping[str, System],
    pairs: Sequence[tuple[str, str]],
    store: Store,
) -> Iterator[Matchup]:
    """Yield every pair on every query and repeat of `plan`, with their recorded answers."""
    lookup = lookup_in(store)

    def answer(system: System, query: Sample | Malformed, repeat: int) -> Outcome[Document]:
        outcome = read(plan.answer(system, query, repeat), lookup)
        return Skip("has not answered yet") if isinstance(outcome, Pending) else outcome

    for repeat in range(plan.repeats):
        for query in plan.samples:
            answers = {n: answer(system, query, repeat) for n, system in systems.items()}
            for first, second in pairs:
                both = answers[first], answers[second]
                yield Matchup(
                    query=query, repeat=repeat, first=first, second=second, answers=both
                )
