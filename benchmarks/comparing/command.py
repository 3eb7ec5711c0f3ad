"""`plait compare`: have pairs of a run's documents judged, count, and show."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from benchmarks.board import RANDOM
from benchmarks.comparing.judgements import Ruling, rulings, write_rulings
from benchmarks.comparing.match import Match, matched
from benchmarks.comparing.request import Comparison
from benchmarks.comparing.shown import grids
from benchmarks.display import Display
from benchmarks.files import write_whole
from benchmarks.grid import page
from cluster.counts import count
from cluster.lock import RunLock
from cluster.options import EngineOptions
from cluster.plan import lookup_in
from cluster.run import RunResult, execute
from cluster.store import Store
from generators.base import StageSpec
from generators.names import UsageError
from scorers.pairwise.protocol import Game
from scorers.pairwise.table import Table

FOLDER = "compare"
"""Inside a run directory: judgements by protocol, each a store of its own."""
RULINGS = "judgements-*.jsonl"

FINISHED, FAILED_RECORDS, INTERRUPTED = 0, 1, 130


def compare(root: Path, wanted: Comparison, console: Console) -> int:
    """Judge what has not been judged, and write `compare-PROTOCOL.{json,md}`.

    Documents are taken as the run has them; none is made. UsageError for names that mean
    nothing, RunInUse while the run itself is under way.
    """
    place = root / FOLDER / wanted.protocol
    match = matched(root, place, wanted)
    with RunLock(root):
        result = _judged(match, place, console)
    store = Store(place)
    lookup, referee = lookup_in(store), match.referee
    games, told = list[Game](), list[Ruling]()
    for judging in range(wanted.judgings):
        for duel in match.found:
            outcome = referee.outcome(duel, judging, lookup)
            told += rulings(match.series, duel, judging, outcome)
            # Repeats of a judgement measure the judge; they are not more evidence.
            games += [] if judging else [duel.game(outcome)]
    write_rulings(told, place / f"judgements-{match.name}.jsonl")
    table = match.protocol.aggregate(games, wanted.baseline)
    _conclude(root, match, table, result, console)
    if result.interrupted:
        return INTERRUPTED
    return FAILED_RECORDS if result.failed else FINISHED


def _judged(match: Match, place: Path, console: Console) -> RunResult:
    plan = match.plan
    if any(c.to_run for c in count(plan, Store(place))):
        _refuse_what_is_missing(match.referee.chat, match.missing_weights)
    config = match.experiment.config
    options = EngineOptions(
        address=match.wanted.address or config.address,
        placement_timeout_s=config.engine.placement_timeout_s,
        grace_s=config.engine.grace_s,
    )
    display = Display(console)
    try:
        return execute(plan, place, options, match.about(), display)
    finally:
        display.close()


def _refuse_what_is_missing(chat: StageSpec, weights: Sequence[str]) -> None:
    """UsageError for weights and keys that cannot be had, once there is need of them."""
    public = (chat.placement.endpoint or "").startswith("https:")
    lines = [
        f"{chat.name} needs the environment variable {key}"
        for key in chat.secrets
        if public and not os.environ.get(key)
    ]
    if lines or weights:
        raise UsageError("\n".join([*lines, *weights]))


def _conclude(
    root: Path, match: Match, table: Table, result: RunResult, console: Console
) -> None:
    about = match.about()
    written = root / f"compare-{match.protocol.name}"
    content = about | {"counts": dict(result.counts), "table": table.as_json()}
    text = json.dumps(content, indent=2, ensure_ascii=False)
    write_whole(written.with_suffix(".json"), text + "\n")
    shown = list(grids(table))
    write_whole(written.with_suffix(".md"), page(_title(about), _remarks(match), shown))
    for grid in (g for g in shown if g.head[0] != "group"):
        console.print(grid.rich)
    for remark in _remarks(match):
        console.print(escape(remark), soft_wrap=True)
    console.print(f"{result.made:,} judgements asked in {result.seconds:.0f} s")
    if result.interrupted:
        console.print("Stopped. Issue the same command again to go on from here.")
    place = escape(str(written.with_suffix(".md")))
    console.print(f"comparison {place}", soft_wrap=True)


def _title(about: Mapping[str, Any]) -> str:
    against = f" against {about['baseline']}" if about["baseline"] else ""
    judged = f"{about['mode']} mode, judged by {about['judge']}"
    return f"Comparison by {about['protocol']}{against}, {judged}"


def _remarks(match: Match) -> list[str]:
    about = match.about()
    random = {str(about[k]) for k in ("weights", "judge_weights")} & set(RANDOM)
    remarks = [
        "Values with 95% bootstrap intervals by question. Unread and failed replies are "
        "counted and enter no value."
    ]
    if match.protocol.mode == "official":
        remarks = ["Numbers as the released program computes them."]
    if random:
        kinds = ", ".join(sorted(random))
        remarks.append(
            f"Attention: made with random weights ({kinds}): numbers mean nothing."
        )
    return remarks
