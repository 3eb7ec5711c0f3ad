"""`plait compare`: have pairs of a run's documents judged, and count the verdicts.

The documents are those of the run's results. Where everything is judged already, nothing
else of the run is needed, and only the results change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import cached_property, partial
from itertools import combinations, product
from pathlib import Path
from typing import Any

from rich.console import Console

from plait.benchmarks.results.files.about import Facts, facts_of_stage, stage_of
from plait.benchmarks.results.files.reading import RunResults
from plait.benchmarks.results.files.rulings import (
    COMPARE,
    RULINGS,
    TABLE,
    Ruling,
    ruling_of,
    write_rulings,
)
from plait.benchmarks.results.files.schema import FOLDER
from plait.benchmarks.results.files.writing import keep_comparison
from plait.benchmarks.runs.config import RunConfig, parse_setting, with_settings
from plait.benchmarks.runs.display import Display
from plait.benchmarks.runs.experiment import engine_options
from plait.benchmarks.runs.opening import open_results
from plait.benchmarks.runs.queries import read_task
from plait.benchmarks.runs.requirements import refuse_missing
from plait.benchmarks.runs.run_directory import folder_written, former_config, refuse_pack
from plait.benchmarks.studies.asking import ask_missing
from plait.benchmarks.studies.compare_page import Judged, report
from plait.benchmarks.studies.rulings import lvlm_of, rulings
from plait.benchmarks.tasks.controls import TRUTH
from plait.benchmarks.tasks.published import (
    PREFIX,
    as_asked,
    is_published,
    system_of_writer,
)
from plait.benchmarks.tasks.task_set import TaskError, TaskSet
from plait.cluster.counts import totals_of
from plait.cluster.lock import RunLock
from plait.cluster.plan import (
    EngineOptions,
    Plan,
    final_lookup,
    lookup_in,
)
from plait.cluster.records import RecordRow
from plait.cluster.run import MANIFEST
from plait.cluster.store import Store, StoreError
from plait.cluster.walks import Lookup, Pending, first_of, read
from plait.generators.base import (
    RANDOM,
    Fault,
    Outcome,
    Result,
    Skip,
    StageSpec,
    WeightsName,
)
from plait.generators.buckets import AnyPath
from plait.generators.catalogue import Named, by_name, is_custom
from plait.generators.checkpoints import pinning
from plait.generators.document import Document, Query, key_of
from plait.generators.errors import UsageError, WriteError
from plait.generators.given import AnswersAtHand, GroundTruth
from plait.generators.keys import digest
from plait.generators.names import unknown
from plait.generators.settings import StageSettings
from plait.generators.system import DescribedSystem
from plait.pipelines.systems import Models, chat_spec
from plait.scorers.judging.resolve import PREFIX as JUDGE
from plait.scorers.judging.resolve import refuse_mini_lvlm, resolve_judge
from plait.scorers.judging.sources import OWN_WORDING, Mode, RubricSource
from plait.scorers.pairwise import official_options, resolve_protocol
from plait.scorers.pairwise.games import Judgement
from plait.scorers.pairwise.matchup import Matchup, PairComparison
from plait.scorers.pairwise.protocol import Pairwise


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
    """`models.NAME.key=value` for the judge, `protocol.key=value` for the protocol."""

    @cached_property
    def protocol_settings(self) -> Mapping[str, Any]:
        """How the protocol counts, as far as that is said; UsageError for a bare value."""
        settings: dict[str, Any] = {}
        for setting in self.settings:
            own = parse_setting(setting).get("protocol", {})
            if not isinstance(own, Mapping):
                raise UsageError(f"--set {setting!r} names no key of the protocol")
            settings |= own
        return settings


@dataclass(frozen=True, kw_only=True)
class PreparedComparison:
    """A comparison with all names resolved."""

    options: CompareOptions
    results: RunResults
    config: RunConfig
    protocol: Pairwise
    chat: StageSpec
    systems: Mapping[str, DescribedSystem]
    matchups: Sequence[Matchup]
    identities: Mapping[str, str]
    missing_weights: tuple[str, ...] = ()
    unloadable: UsageError | None = None
    """Why the judge, which is known from its judgements, can be asked no more."""

    @cached_property
    def items(self) -> list[PairComparison]:
        """All match-ups, as often as the judge is asked."""
        config = self.config
        items = []
        for judging, matchup in product(range(self.options.judgings), self.matchups):
            item = PairComparison(
                matchup=matchup,
                protocol=self.protocol,
                chat=self.chat,
                seed=config.seed,
                # A number of its own for each repeat and judging, so that no two have the
                # same seed; those of the first judging stay what they are alone.
                draw=matchup.repeat + judging * config.repeats,
            )
            items.append(item)
        return items

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
        config = self.config
        series = self.series
        about: dict[str, Any] = {"plait": 1}
        for name in ("protocol", "mode", "wording"):
            about[name] = series[name]
        if self.options.protocol_settings:
            about["protocol_settings"] = self.options.protocol_settings
        return about | {
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
            "data": dict(self.results.about.data),
            "identities": dict(self.identities),
        }

    @property
    def name(self) -> str:
        """A digest of all that a comparison depends on: no file replaces another's."""
        pairs = sorted({(matchup.first, matchup.second) for matchup in self.matchups})
        seed = self.config.seed
        options = self.options
        contents = [self.series, seed, options.judgings, options.baseline, pairs]
        # Left out where empty: comparisons of earlier versions keep their names.
        if options.protocol_settings:
            contents.append(dict(options.protocol_settings))
        return digest(*contents)[:12]


def compare(
    root: AnyPath, options: CompareOptions, console: Console, out: Path | None = None
) -> int:
    """Judge what has not been judged, and write `compare-PROTOCOL-NAME.{json,md}`.

    Tables go to the run's folder, or to `out`; records are kept in the run.
    Documents are used as the run has them; none is made. UsageError for names that are not
    valid, RunInUse while the run itself is under way.
    """
    refuse_pack(root)
    place = root / COMPARE / options.protocol.replace(":", "-")
    # Before a run is opened, which may take a while.
    protocol = protocol_of(options)
    match = resolve_comparison(open_results(root), place, options, protocol)
    before = dict(Store(place).rows(match.chat))
    # Pairs that a scorer of the run has had judged already are not asked about again.
    of_run = _lookup_in_run(match)
    items = match.items
    if of_run is not None:
        items = [item for item in items if not _is_judged(item, of_run)]
    plan = plan_of(items)
    prepare = partial(_prepare, match)
    display = Display(console)
    with closing(display):
        run = ask_missing(plan, place, root, match.about, display, prepare)
    store = Store(place)
    # What is final in either store goes before a failure that may be tried again.
    lookup = first_of(final_lookup(store), of_run, lookup_in(store))
    judged = _judgements(match, lookup)
    said = list(_rulings(match, judged, store))
    _keep(match, place, said, made=bool(run.made))
    if len(items) < len(match.items):
        # The run counts what it was given, which is not all.
        run = replace(run, counts=_totals(match, lookup))
    # Further judgings measure the judge; the table counts each pair once.
    first = judged[: len(match.matchups)]
    games = [matchup.game(outcome, match.protocol) for matchup, outcome in first]
    stages = {name: system.stages for name, system in match.systems.items()}
    stages[f"judge {match.series['judge']}"] = (match.chat,)
    with folder_written(root, out) as folder:
        report(
            folder / f"compare-{match.protocol.name}-{match.name}",
            about=match.about,
            table=match.protocol.aggregate(games, options.baseline),
            judged=first,
            run=run,
            asked=_count_asked(before, store.rows(match.chat)),
            stages=stages,
            console=console,
        )
    # Nobody expects a reply of random weights that can be read.
    none_read = run.counts["unscored"] and not run.counts["scored"]
    return run.exit_status or int(none_read and match.chat.weights not in RANDOM)


def _prepare(match: PreparedComparison) -> EngineOptions:
    """Return how the judge is asked; UsageError where it cannot be."""
    if match.unloadable is not None:
        raise match.unloadable
    address = match.options.address or match.config.address
    options = engine_options(match.config, address=address)
    refuse_missing([match.chat], match.missing_weights, options)
    return options


def plan_of(items: Sequence[PairComparison]) -> Plan:
    """Return the plan that has every match-up of valid queries judged."""
    valid = []
    queries = {}
    for item in items:
        query = item.matchup.query
        if isinstance(query, Query):
            valid.append(item)
            queries[query.id] = query
    return Plan(
        systems=(),
        queries=[*queries.values()],
        scorers=(),
        prompt=as_asked,
        comparisons=valid,
    )


def _is_judged(item: PairComparison, of_run: Lookup) -> bool:
    """Return whether the run itself has all that a judge says of a pair."""
    if not isinstance(item.matchup.pair, Result):
        return False
    return not isinstance(read(item.walk(), of_run), Pending)


def _lookup_in_run(match: PreparedComparison) -> Lookup | None:
    """Look up what a scorer of pairs has had the judge asked; None where nothing was."""
    store = Store(match.results.root)
    return final_lookup(store) if len(store.rows(match.chat)) else None


def _judgements(match: PreparedComparison, lookup: Lookup) -> Judged:
    """Return what is recorded of every pair, all first judgements first.

    Repeats of a judgement measure the judge; they are not additional evidence.
    """
    return [(item.matchup, judgement_of(item, lookup)) for item in match.items]


def _totals(match: PreparedComparison, lookup: Lookup) -> Mapping[str, int]:
    """Return the outcomes of all pairs, whoever had them judged."""
    outcomes = []
    for item in plan_of(match.items).comparisons:
        outcome = read(item.walk(), lookup)
        if isinstance(outcome, Pending):
            outcomes.append(outcome)
        elif isinstance(outcome, Result):
            outcomes.append(outcome.value)
    return totals_of(outcomes)


def _rulings(match: PreparedComparison, judged: Judged, store: Store) -> Iterator[Ruling]:
    """Yield the rulings of all judgements, those of the first judging first."""
    pairs = len(match.matchups)
    for place, (matchup, outcome) in enumerate(judged):
        judging = place // pairs
        yield from rulings(match.series, matchup, judging, outcome, store)


def _is_kept(match: PreparedComparison, said: Iterable[Ruling]) -> bool:
    """Return whether the results hold the rulings, perhaps as of an earlier version."""
    kept = []
    for row in match.results.rows(TABLE, among={"series": [match.name]}):
        kept.append(_as_formerly(ruling_of(row)))
    return kept == [_as_formerly(ruling) for ruling in said]


def _as_formerly(ruling: Ruling) -> Ruling:
    """Return a ruling without what results of earlier versions do not have."""
    return replace(ruling, fault="", jobs=())


def _keep(
    match: PreparedComparison, place: AnyPath, said: Sequence[Ruling], *, made: bool
) -> None:
    """Write the rulings beside their records and into the run's results, unless they are.

    `made` says whether any of them is new. WriteError or StoreError where they are new and
    cannot be written.
    """
    if not made and _is_kept(match, said):
        return
    try:
        _write(match, place, said)
    except (WriteError, StoreError):
        # All of it is there to be read again, where nothing was made.
        if made:
            raise


def _write(match: PreparedComparison, place: AnyPath, said: Sequence[Ruling]) -> None:
    """Write the rulings into both places, with the run locked."""
    chat = match.chat
    root = match.results.root
    judges = {}
    if is_custom(chat.target):
        judges[chat.folder] = facts_of_stage(chat)
    with RunLock(root):
        write_rulings(said, place / RULINGS.replace("*", match.name))
        keep_comparison(root / FOLDER, match.name, said, judges)


def judgement_of(item: PairComparison, lookup: Lookup) -> Outcome[Judgement]:
    """Return a judgement as far as it is recorded."""
    outcome = read(item.walk(), lookup)
    if isinstance(outcome, Pending):
        return Skip("not judged yet")
    return outcome.value.judgement if isinstance(outcome, Result) else outcome


_UNASKED = {Fault.BAD_INPUT, Fault.ENDPOINT, Fault.BUDGET, Fault.NOT_LOADED, Fault.UNREAD}
"""Faults of requests that did not reach a judge."""


def _count_asked(before: Mapping[str, RecordRow], after: Mapping[str, RecordRow]) -> str:
    """Say how many questions one command asked, by the judge's records around it.

    A question is asked that has a reply, a refusal, or a failure of the judge itself.
    """
    asked = 0
    unasked = 0
    for key, row in after.items():
        # A record that was made again has the key of the former one, and a later time.
        if key in before and before[key].at == row.at:
            continue
        if row.fault in _UNASKED:
            unasked += 1
        else:
            asked += 1
    lost = f", {unasked:,} could not be asked" if unasked else ""
    return f"{asked:,} judgements asked{lost}"


def protocol_of(options: CompareOptions) -> Pairwise:
    """Return the protocol that `options` name; UsageError where there is none."""
    if options.rubric.is_users:
        raise UsageError(
            f"rubric {options.rubric.path}: a rubric of your own is for single answers "
            "(plait score RUN --scorer judge:LVLM --rubric FILE.toml); pairs are compared "
            "by 'plait' or 'official:PATH'"
        )
    needed = official_options(options.protocol, options.mode)
    return resolve_protocol(
        options.protocol,
        options.mode,
        options.rubric.path,
        options.protocol_settings,
        **needed,
    )


def resolve_comparison(
    results: RunResults, place: AnyPath, options: CompareOptions, protocol: Pairwise
) -> PreparedComparison:
    """Resolve `options` for a run whose judgements are in `place`.

    UsageError for names and settings that are not valid.
    """
    about = results.about
    unloadable = None
    config = former_config(results.root, {"config": about.config})
    models = models_of(config, options)
    with pinning({**about.identities, **_former_identities(place)}) as pins:
        try:
            chat = judge_stage(options.judge, models)
        except UsageError as error:
            recorded = find_recorded_judge(options.judge, models, about.judges.values())
            if recorded is None:
                raise
            chat = recorded
            unloadable = error
    if options.judgings > 1 and not chat.seeded:
        raise UsageError(
            f"judge {options.judge!r} draws nothing at random, so asking it "
            f"{options.judgings} times gives one record; give it a temperature"
        )
    systems = _systems(results, config, options)
    pairs = list(combinations(systems, 2))
    baseline = options.baseline
    if baseline is not None:
        pairs = [(baseline, system) for system in systems if system != baseline]
    return PreparedComparison(
        options=options,
        results=results,
        config=config,
        protocol=protocol,
        chat=chat,
        systems=systems,
        matchups=list(matchups(results, systems, pairs)),
        identities=pins.known,
        missing_weights=pins.missing,
        unloadable=unloadable,
    )


def _former_identities(place: AnyPath) -> Mapping[str, str]:
    """Return the weights that earlier comparisons pinned, not to look them up again."""
    try:
        known = json.loads((place / MANIFEST).read_text())["identities"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return known if isinstance(known, dict) else {}


def _systems(
    results: RunResults, config: RunConfig, options: CompareOptions
) -> dict[str, DescribedSystem]:
    """Return the systems to compare, by name, with the baseline.

    UsageError for unknown names, and when there are fewer than two.
    """
    own = {system.name: system for system in results.systems}
    names = list(options.systems) or [*own]
    if options.baseline is not None and options.baseline not in names:
        names.insert(0, options.baseline)
    own.setdefault(TRUTH, GroundTruth(name=TRUTH))
    systems: dict[str, DescribedSystem] = {}
    for name in names:
        if name in own:
            systems[name] = own[name]
        elif is_published(name):
            systems[name] = system_of_writer(name, _task(name, config))
        else:
            writers = results.about.data.get("published_answers", {})
            published = [f"{PREFIX}{writer}" for writer in writers]
            raise unknown("system", name, [*own, *published])
    if len(systems) < 2:
        there = ", ".join(systems) or "none"
        raise UsageError(f"a comparison needs two systems, but there is {there}")
    return systems


def _task(name: str, config: RunConfig) -> TaskSet:
    """Read the data of a run, for answers that are no part of its results."""
    try:
        task, _ = read_task(config)
    except (UsageError, TaskError) as error:
        raise UsageError(
            f"{name} is no system of the run, so its answers are only in the data: {error}"
        ) from None
    return task


def models_of(config: RunConfig, options: CompareOptions) -> Models:
    """Return settings of the judge's model, from the run and the command.

    UsageError for `--set` of anything else, which would have no effect.
    """
    bare = options.judge.removeprefix(JUDGE)
    # A chat model has its own name; `judge:NAME` are settings of a rubric judge.
    name = f"{JUDGE}{bare}" if bare in by_name(Named.JUDGE) else bare
    for setting in options.settings:
        parsed = parse_setting(setting)
        if "protocol" in parsed:
            continue
        models = parsed.pop("models", None)
        if parsed or not isinstance(models, Mapping):
            raise UsageError(
                f"--set {setting!r} concerns neither the judge nor the protocol; give "
                "models.NAME.key=value or protocol.key=value"
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
    settings = models.of(full)
    chat = partial(chat_spec, models=models)
    return resolve_judge(full, models.weights, settings, models.gpu_gib, chat).stage


def find_recorded_judge(
    name: str, models: Models, judges: Iterable[Facts]
) -> StageSpec | None:
    """Return the stage of a judge of the user's own class, as it has judged before.

    None where it has not, with the same settings.
    """
    bare = name.removeprefix(JUDGE)
    settings = {**models.of(f"{JUDGE}{bare}"), **models.of(bare)}
    for key in StageSettings.placed:
        # Where a stage runs is no part of what it is.
        settings.pop(key, None)
    # A user's class has no mini weights, and runs on its own in a mini run.
    weights = "pretrained" if models.weights == "mini" else models.weights
    recorded = None
    # Of several the last one counts.
    for facts in judges:
        asked_alike = facts["settings"] == settings and facts["weights"] == weights
        if facts["class"] == bare and asked_alike:
            recorded = facts
    return None if recorded is None else stage_of(recorded)


def wording_digest(protocol: Pairwise) -> str:
    """Name a protocol's prompts, whatever the class that holds them is called."""
    wording = getattr(protocol, "wording", None)
    if is_dataclass(wording) and not isinstance(wording, type):
        wording = {"Wording": asdict(wording)}
    return digest(wording)[:12]


def matchups(
    results: RunResults,
    systems: Mapping[str, DescribedSystem],
    pairs: Sequence[tuple[str, str]],
) -> Iterator[Matchup]:
    """Yield every pair on every query and repeat of a run, with their answers."""
    queries = results.queries.values()
    of_run = systems.keys() & {system.name for system in results.systems}
    documents = {}
    for made in results.evaluations(systems=of_run):
        documents[made.repeat, key_of(made.query), made.system] = made.document
    # Truth and published answers come with the data: their walks end without any stage.
    given: dict[str, AnswersAtHand] = {}
    for name, system in systems.items():
        if isinstance(system, AnswersAtHand) and name not in of_run:
            given[name] = system
    plan = Plan(systems=(), queries=(), scorers=(), prompt=as_asked)
    for repeat in range(results.about.repeats):
        for query in queries:
            answers: dict[str, Outcome[Document]] = {}
            for name in of_run:
                document = documents.get((repeat, key_of(query), name))
                answers[name] = document or Skip("has not answered yet")
            for name, system in given.items():
                answer = read(plan.answer(system, query, repeat), lambda job: None)
                assert not isinstance(answer, Pending), "given answers ask for nothing"
                answers[name] = answer
            for first, second in pairs:
                both = answers[first], answers[second]
                yield Matchup(
                    query=query, repeat=repeat, first=first, second=second, answers=both
                )
