"""`plait plan`: the jobs of a run, what is shared and done, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.runs.experiment import Experiment, superseded
from cluster.counts import StageCount, count
from cluster.store import Store
from pipelines.chat.presets import retirements


def show_plan(experiment: Experiment, console: Console, *, remake: bool) -> bool:
    """Show what a run would do; return whether it would refuse to start.

    It refuses where keys or weights are missing, or where records would be made again and
    `remake` is not given.
    """
    config = experiment.config
    store = Store(config.root)
    counts = count(experiment.plan, store)
    console.print(f"run directory {escape(str(config.root))}", soft_wrap=True)
    documents = len(experiment.plan)
    console.print(
        f"{documents:,} documents: {len(experiment.samples):,} queries"
        f"{f' ({experiment.selection})' if experiment.selection else ''}, "
        f"{len(experiment.systems)} systems, {config.repeats} repeats"
    )
    console.print(_plan_table(counts))
    missing, again = _missing(experiment, counts), _made_again(experiment, store)
    for line in (*missing, *again, *_plan_remarks(experiment, counts)):
        console.print(line, soft_wrap=True)
    return bool(missing or (again and not remake))


def _plan_table(counts: Sequence[StageCount]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("stage", no_wrap=True)
    table.add_column("kind")
    for name in ("asked", "shared", "done", "to run", "then up to", "batch"):
        table.add_column(name, justify="right")
    table.add_column("one worker needs")
    for tally in counts:
        placement = tally.spec.placement
        table.add_row(
            tally.spec.name,
            tally.spec.kind.value,
            f"{tally.asked:,}",
            f"{tally.asked - tally.distinct:,}",
            f"{tally.done:,}",
            f"{tally.distinct - tally.done:,}",
            f"{tally.later:,}",
            str(placement.batch_size),
            _need(tally),
        )
    return table


def _need(tally: StageCount) -> str:
    placement = tally.spec.placement
    if placement.endpoint:
        return f"{placement.endpoint}, {placement.concurrency} at a time"
    parts = [f"{placement.num_gpus:g} GPU"] if placement.num_gpus else []
    parts += [f"{placement.num_cpus:g} CPU"] if placement.num_cpus else []
    if placement.gpu_memory_gib:
        parts.append(f"about {placement.gpu_memory_gib:.0f} GiB")
    return ", ".join(parts)


def _missing(experiment: Experiment, counts: Sequence[StageCount]) -> list[str]:
    """Missing keys and weights that jobs need."""
    left = {c.spec.name for c in counts if c.to_run}
    needs = [
        f"{stage} needs {', '.join(names)} in the environment"
        for stage, names in experiment.missing_keys.items()
        if stage in left
    ]
    weights = experiment.missing_weights if left else ()
    return [f"[red]missing[/red] {escape(text)}" for text in (*needs, *weights)]


def _made_again(experiment: Experiment, store: Store) -> list[str]:
    return [
        f"[yellow]made again[/yellow] {escape(str(change))}"
        for change in superseded(experiment, store)
    ]


def _plan_remarks(experiment: Experiment, counts: Sequence[StageCount]) -> list[str]:
    malformed = dict(experiment.task.about).get("malformed") or {}
    lines = [
        f"[yellow]retired model[/yellow] {escape(text)}"
        for text in retirements(experiment.plan.stages, date.today())
    ]
    if malformed:
        rules = ", ".join(f"{n:,} {rule}" for rule, n in malformed.items())
        lines.append(
            f"[yellow]malformed rows[/yellow] {escape(rules)}; they count as failed"
        )
    shared = [c for c in counts if c.asked > c.distinct]
    lines += [
        f"{escape(c.spec.name)}: asked for {c.asked:,} times, made once each "
        f"({c.distinct:,} records)"
        for c in shared
    ]
    return lines
