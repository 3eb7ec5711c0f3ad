"""`plait compare`: have pairs of a run's documents judged, count, and show."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from benchmarks.runs.display import Display
from benchmarks.runs.experiment import missing_keys, refuse_missing
from benchmarks.studies.pairwise.judgements import (
    Judged,
    QuestionsAsked,
    Ruling,
    reasons_of,
    rulings,
    write_rulings,
)
from benchmarks.studies.pairwise.match import (
    CompareOptions,
    ResolvedComparison,
    judgement_of,
    resolve_comparison,
)
from benchmarks.studies.pairwise.pages import ComparisonResult, explain_missing, show, write
from cluster.counts import count
from cluster.lock import RunLock
from cluster.plan import EngineOptions, lookup_in
from cluster.run import RunResult, execute
from cluster.store import Store
from generators.base import RANDOM, Outcome
from scorers.pairwise.games import Judgement
from scorers.pairwise.matchup import Matchup

FOLDER = "compare"
"""Inside a run directory: judgements by protocol, each a store of its own."""
RULINGS = "judgements-*.jsonl"


def compare(root: Path, options: CompareOptions, console: Console) -> int:
    """Judge what has not been judged, and write `compare-PROTOCOL-NAME.{json,md}`.

    Documents are used as the run has them; none is made. UsageError for names that are not
    valid, RunInUse while the run itself is under way.
    """
    place = root / FOLDER / options.protocol.replace(":", "-")
    match = resolve_comparison(root, place, options)
    chat, before = match.judge.chat, Store(place).rows(match.judge.chat)
    with RunLock(root):
        result = _judged(match, place, console)
    store = Store(place)
    judged = _first_judgings(match, store, place)
    games = [m.game(outcome, match.protocol) for m, outcome in judged]
    table = match.protocol.aggregate(games, options.baseline)
    comparison = ComparisonResult(
        match=match,
        judged=judged,
        table=explain_missing(table),
        run=result,
        asked=QuestionsAsked.between(before, store.rows(chat)),
        why=reasons_of(judged),
    )
    show(comparison, write(comparison, root), console)
    none_read = result.counts["unscored"] and not result.counts["scored"]
    return result.exit_status or int(none_read and chat.weights not in RANDOM)


def _first_judgings(match: ResolvedComparison, store: Store, place: Path) -> Judged:
    """The first judgement of each pair; writes the rulings of all repeats.

    Repeats of a judgement measure the judge; they are not additional evidence.
    """
    lookup, lines = lookup_in(store), list[Ruling]()
    first: list[tuple[Matchup, Outcome[Judgement]]] = []
    for judging in range(match.options.judgings):
        for matchup in match.matchups:
            outcome = judgement_of(matchup, match.judge, judging, lookup)
            lines += rulings(match.series, matchup, judging, outcome)
            first += [] if judging else [(matchup, outcome)]
    write_rulings(lines, place / f"judgements-{match.name}.jsonl")
    return first


def _judged(match: ResolvedComparison, place: Path, console: Console) -> RunResult:
    plan = match.plan
    if any(c.to_run for c in count(plan, Store(place))):
        refuse_missing(missing_keys([match.judge.chat]), match.missing_weights)
    config = match.experiment.config
    engine_options = EngineOptions(
        executor=config.executor,
        address=match.options.address or config.address,
        placement_timeout_s=config.engine.placement_timeout_s,
        grace_s=config.engine.grace_s,
        max_cost=config.engine.max_cost,
    )
    display = Display(console)
    try:
        return execute(plan, place, engine_options, match.about(), display)
    finally:
        display.close()
