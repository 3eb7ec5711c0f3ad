"""`plait uncertainty`: what a judge's own error adds to the numbers of a run.

A pilot: some answers of the run are judged by several judges, in several wordings, several
times. Where the variance of the scores comes from (`scorers/statistics/components.py`) says
how far the mean of a system would move with another judge, equally fit; the run's tables
then show that interval beside the usual one.

Requests are records like any others, kept in the folder `uncertainty` of the run: what the
run itself has asked already is not asked again, and a pilot that stops goes on later.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from plait.benchmarks.results.files.reading import RunResults
from plait.benchmarks.results.files.schema import FOLDER
from plait.benchmarks.results.files.writing import keep_judge_errors
from plait.benchmarks.results.table import json_text, markdown_page
from plait.benchmarks.runs.config import RunConfig, with_settings
from plait.benchmarks.runs.display import Display
from plait.benchmarks.runs.experiment import engine_options
from plait.benchmarks.runs.opening import open_results
from plait.benchmarks.runs.requirements import refuse_missing
from plait.benchmarks.runs.resolving import models_of, scorer_of
from plait.benchmarks.runs.run_directory import former_config, refuse_pack
from plait.benchmarks.studies.asking import ask_missing
from plait.benchmarks.studies.uncertainty_tables import PilotResult
from plait.benchmarks.tasks.controls import is_reference
from plait.benchmarks.tasks.published import as_asked
from plait.benchmarks.wording import quantity
from plait.cluster.counts import count
from plait.cluster.lock import RunLock
from plait.cluster.plan import (
    EngineOptions,
    Plan,
    final_lookup,
    lookup_in,
)
from plait.cluster.store import Store
from plait.cluster.walks import Lookup, Pending, first_of, read
from plait.generators.base import Outcome, Result, StageSpec, Walk, WeightsName
from plait.generators.buckets import AnyPath
from plait.generators.checkpoints import pinning
from plait.generators.document import Document, Query, Score, key_of
from plait.generators.errors import UsageError
from plait.generators.files import write_whole
from plait.generators.names import unknown
from plait.scorers.base import bounds
from plait.scorers.judging.judge import ChatJudge
from plait.scorers.judging.resolve import refuse_mini_lvlm
from plait.scorers.judging.wordings import MOST, walk_in_wording

PLACE = "uncertainty"
QUERIES = 40
"""By default; of these the variance between queries is known to a quarter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotOptions:
    """What the pilot asks."""

    scorer: str
    """Whose scores in the run it is about."""
    judges: tuple[str, ...] = ()
    """Others that are asked the same."""
    wordings: int = 2
    repeats: int = 2
    queries: int = QUERIES
    systems: tuple[str, ...] = ()
    seed: int = 0
    """By which queries are drawn."""
    difference: float | None = None
    """Of two systems, to be made visible; by default that of the two best."""
    weights: WeightsName | None = None
    address: str | None = None
    settings: tuple[str, ...] = ()
    dry_run: bool = False


@dataclass(frozen=True, kw_only=True)
class PilotItem:
    """One answer, judged once. Implements `plait.scorers.base.PlanItem`."""

    query: Query
    system: str
    document: Document
    judge: ChatJudge
    wording: int
    repeat: int

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """Those of the judge."""
        return self.judge.stages

    @property
    def rounds(self) -> int:
        """How often the walk may go through the stages."""
        return self.judge.rounds

    def walk(self) -> Walk[JudgedAnswer]:
        """Walk to the score."""
        judge = replace(self.judge, seed=self.judge.seed + self.repeat)
        score = yield from walk_in_wording(judge, self.wording, self.query, self.document)
        return Result(JudgedAnswer(Result(self.document), (score,)))


class JudgedAnswer(NamedTuple):
    """An answer and its score. Implements `plait.scorers.base.ItemOutcome`."""

    subject: Outcome[Document]
    verdicts: tuple[Outcome[Score], ...]


class PilotAnswer(NamedTuple):
    """An answer that is judged."""

    query: Query
    system: str
    document: Document


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """A pilot with all names resolved."""

    options: PilotOptions
    results: RunResults
    config: RunConfig
    judges: Sequence[ChatJudge]
    """The run's own first."""
    answers: Sequence[PilotAnswer]
    """Those that are judged."""
    missing_weights: tuple[str, ...] = ()
    remarks: Sequence[str] = ()

    @cached_property
    def items(self) -> list[PilotItem]:
        """Everything that is asked."""
        items = []
        for judge in self.judges:
            # One that draws nothing at random says the same each time.
            repeats = self.options.repeats if judge.stage.seeded else 1
            for wording in range(self.options.wordings):
                for repeat in range(repeats):
                    for answer in self.answers:
                        item = PilotItem(
                            query=answer.query,
                            system=answer.system,
                            document=answer.document,
                            judge=judge,
                            wording=wording,
                            repeat=repeat,
                        )
                        items.append(item)
        return items

    @property
    def query_ids(self) -> set[str]:
        """The queries of the answers."""
        return {answer.query.id for answer in self.answers}

    @property
    def about(self) -> dict[str, Any]:
        """For the manifest."""
        options = self.options
        return {
            "plait": 1,
            "scorer": options.scorer,
            "judges": [judge.name for judge in self.judges],
            "wordings": options.wordings,
            "repeats": options.repeats,
            "queries": len(self.query_ids),
            "systems": sorted({answer.system for answer in self.answers}),
            "seed": options.seed,
        }


def uncertainty(root: AnyPath, options: PilotOptions, console: Console) -> int:
    """Ask what is not asked yet, and show where the variance of the scores comes from.

    Tables go to `RUN/uncertainty.{json,md}`, and what the judge adds into the run's
    results. UsageError for names that are not valid, RunInUse while the run is under way.
    """
    refuse_pack(root)
    pilot = pilot_of(open_results(root), options)
    place = root / PLACE
    of_run = final_lookup(Store(root))
    items = [item for item in pilot.items if not _is_judged(item, of_run)]
    plan = Plan(
        systems=(), queries=_queries(items), scorers=(), prompt=as_asked, comparisons=items
    )
    console.print(_about_design(pilot, len(items)), soft_wrap=True)
    for remark in pilot.remarks:
        console.print(f"note: {remark}", soft_wrap=True)
    display = Display(console)
    with closing(display):
        if options.dry_run:
            display.starting(count(plan, Store(place)))
            return 0
        run = ask_missing(plan, place, root, pilot.about, display, partial(_prepare, pilot))
    store = Store(place)
    lookup = first_of(final_lookup(store), of_run, lookup_in(store))
    result = result_of(pilot, lookup)
    for table in result.tables:
        console.print(table.rich)
    _keep(pilot, result)
    console.print(f"uncertainty {root / f'{PLACE}.md'} (and json)", soft_wrap=True)
    return run.exit_status


def _prepare(pilot: Pilot) -> EngineOptions:
    """Return how the judges are asked; UsageError where one cannot be."""
    address = pilot.options.address or pilot.config.address
    options = engine_options(pilot.config, address=address)
    stages = [judge.stage for judge in pilot.judges]
    refuse_missing(stages, pilot.missing_weights, options)
    return options


def _queries(items: Sequence[PilotItem]) -> list[Query]:
    """Return the queries of the items, each once, in their order."""
    by_id = {item.query.id: item.query for item in items}
    return [*by_id.values()]


def _is_judged(item: PilotItem, of_run: Lookup) -> bool:
    """Return whether the run itself has asked the judge the same."""
    return not isinstance(read(item.walk(), of_run), Pending)


def _about_design(pilot: Pilot, new: int) -> str:
    """Say what is asked, how much of it is known, and what the rest may cost."""
    options = pilot.options
    answers = quantity(len(pilot.answers), "answer")
    shape = ", ".join(
        [
            f"{answers} to {quantity(len(pilot.query_ids), 'query')}",
            quantity(len(pilot.judges), "judge"),
            quantity(options.wordings, "wording"),
            quantity(options.repeats, "repeat"),
        ]
    )
    price = _price(pilot) * new
    costs = f", about {price:.2f} at what one has cost in the run" if price else ""
    known = len(pilot.items) - new
    in_run = f", {known:,} of them judged in the run already" if known else ""
    return f"pilot: {shape}: {len(pilot.items):,} judgements{in_run}{costs}"


def _price(pilot: Pilot) -> float:
    """Return what a judgement of the run has cost; 0 where that is not known."""
    board = pilot.results.board
    name = pilot.options.scorer
    made = int((board.is_score & board.column["scorer"].is_(name)).sum())
    return board.spent.get(name, {}).get("cost", 0.0) / made if made else 0.0


def pilot_of(results: RunResults, options: PilotOptions) -> Pilot:
    """Resolve `options` for a run; UsageError for what is not valid or not there."""
    _refuse_sizes(options)
    there = [scorer.name for scorer in results.scorers]
    if options.scorer not in there:
        raise unknown("scorer of the run", options.scorer, there)
    changes = with_settings({}, options.settings)
    if options.weights is not None:
        changes["weights"] = options.weights
    about = {"config": results.about.config}
    config = former_config(results.root, about, changes)
    names = [*dict.fromkeys((options.scorer, *options.judges))]
    with pinning(dict(results.about.identities)) as pins:
        judges = [_judge_named(name, config) for name in names]
    if any(bounds(judge.scale) is None for judge in judges):
        told = ", ".join(f"{judge.name} {judge.scale}" for judge in judges)
        raise UsageError(f"judges are compared on bounded scales, not: {told}")
    return Pilot(
        options=options,
        results=results,
        config=config,
        judges=judges,
        answers=[*_answers(results, options)],
        missing_weights=pins.missing,
        remarks=[*_remarks(judges, options)],
    )


def _refuse_sizes(options: PilotOptions) -> None:
    if not 1 <= options.wordings <= MOST:
        raise UsageError(f"--wordings is from 1 to {MOST}, not {options.wordings}")
    if options.repeats < 1 or options.queries < 2:
        raise UsageError("a pilot needs at least 2 queries and 1 repeat")


def _judge_named(name: str, config: RunConfig) -> ChatJudge:
    """Return a judge as the run's config has it; UsageError for what asks no chat model."""
    refuse_mini_lvlm(name, config.weights or "pretrained")
    scorer = scorer_of(name, config, models_of(config))
    if not isinstance(scorer, ChatJudge):
        raise UsageError(
            f"{name} asks no chat model about single answers, so neither its wording nor "
            "its replies vary; name a judge such as judge:mmie-score"
        )
    return scorer


def _remarks(judges: Sequence[ChatJudge], options: PilotOptions) -> Iterator[str]:
    """Say what the pilot cannot tell, and what can still be had."""
    if len(judges) == 1:
        yield (
            "one judge alone says nothing of what another would have given: add --judges "
            "NAME; its wordings and repeats are measured"
        )
    if len(judges) == 2:
        yield (
            "two judges tell little of how far judges differ: in simulations the interval "
            "with the judge's error then holds the mean in 89% of cases instead of 95% (in "
            "95% and more with three)"
        )
    if options.wordings == 1:
        yield "one wording: what the wording changes is not measured (--wordings 2)"
    fixed = [judge.name for judge in judges if not judge.stage.seeded]
    if fixed and options.repeats > 1:
        yield f"asked once, since they draw nothing at random: {', '.join(fixed)}"


def _answers(results: RunResults, options: PilotOptions) -> Iterator[PilotAnswer]:
    """Yield the answers that are judged: of queries drawn among those all have answered.

    UsageError for unknown systems, and where fewer than two queries are left.
    """
    names = []
    for described in results.systems:
        if not is_reference(described.name):
            names.append(described.name)
    for name in options.systems:
        if name not in names:
            raise unknown("system", name, names)
    wanted = [*options.systems] or names
    found: dict[str, dict[str, PilotAnswer]] = {}
    for made in results.evaluations(systems={*wanted}, repeat=1):
        if isinstance(made.query, Query) and isinstance(made.document, Result):
            answer = PilotAnswer(made.query, made.system, made.document.value)
            found.setdefault(key_of(made.query), {})[made.system] = answer
    # Sorted, so that a seed draws the same whatever the order of the data.
    shared = sorted(key for key, own in found.items() if len(own) == len(wanted))
    if len(shared) < 2:
        raise UsageError(
            f"{len(shared)} queries are answered by all of {', '.join(wanted)}; a pilot "
            "needs 2 at least: name fewer systems with --system"
        )
    drawn = random.Random(options.seed).sample(shared, min(options.queries, len(shared)))
    for key in sorted(drawn):
        for system in wanted:
            yield found[key][system]


def result_of(pilot: Pilot, lookup: Lookup) -> PilotResult:
    """Return what the scores that are there say; UsageError where there are too few."""
    first = bounds(pilot.judges[0].scale)
    assert first is not None
    columns: dict[str, list[Any]] = {"system": [], "query": [], "judge": [], "wording": []}
    values = []
    lost: dict[str, int] = {}
    for item in pilot.items:
        outcome = read(item.walk(), lookup)
        score = outcome.value.verdicts[0] if isinstance(outcome, Result) else None
        if not isinstance(score, Result):
            reason = "not asked yet" if score is None else getattr(score, "reason", "")
            lost[reason] = lost.get(reason, 0) + 1
            continue
        # Other judges' scores on the scale of the run's own.
        low, high = bounds(item.judge.scale) or first
        share = (score.value.value - low) / (high - low)
        values.append(first[0] + share * (first[1] - first[0]))
        columns["system"].append(item.system)
        columns["query"].append(item.query.id)
        columns["judge"].append(item.judge.name)
        columns["wording"].append(item.wording)
    if len(values) < 2 or len({*columns["query"]}) < 2:
        reasons = "; ".join(f"{n:,} {why}" for why, n in lost.items())
        raise UsageError(f"{len(values)} judgements have a score ({reasons}): too few")
    return PilotResult(
        scorer=pilot.options.scorer,
        board=pilot.results.board,
        values=np.array(values),
        factors=columns,
        lost=lost,
        difference=pilot.options.difference,
    )


def _keep(pilot: Pilot, result: PilotResult) -> None:
    """Write the tables, and what the judge adds into the run's results."""
    root = pilot.results.root
    content = pilot.about | result.as_json
    with RunLock(root):
        write_whole(root / f"{PLACE}.json", json_text(content))
        title = f"What the judge adds: {pilot.options.scorer}"
        write_whole(root / f"{PLACE}.md", markdown_page(title, (), result.tables))
        facts = content | {"errors": result.errors.as_json}
        keep_judge_errors(root / FOLDER, pilot.options.scorer, facts)
