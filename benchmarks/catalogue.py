"""`plait list` and `plait fetch`: what can be named, and its weights on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.tasks.controls import CONTROLS
from generators.base import StageSpec
from generators.checkpoints import CheckpointError, first_line, looks_like_path, pinning
from generators.names import UsageError, unknown
from generators.natives import NATIVE
from pipelines.artists import T2IS
from pipelines.systems import (
    Models,
    artist_spec,
    chat_spec,
    is_writer,
    resolve,
    writer_spec,
)
from pipelines.writers import LVLMS, ChatSettings
from scorers import SCORERS, resolve_scorer
from scorers.judging.resolve import PREFIX as JUDGE

WEIGHTS = {
    "pretrained": "published checkpoints, from a folder or the Hub",
    "dummy": "full-size architecture, random values: speed and memory without a download",
    "tiny": "the same classes at toy size, random values: tests and the quickstart",
}


def show(what: str, console: Console) -> int:
    """Print the names of `systems`, `scorers` or `weights`."""
    tables = {"systems": _systems, "scorers": _scorers, "weights": _weights}
    if what not in tables:
        raise unknown("list", what, tables)
    for table in tables[what]():
        console.print(table)
    return 0


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def _systems() -> Iterator[Any]:
    natives = _table("Native interleaved models", "name", "model")
    for name in NATIVE:
        stages = resolve(name, Models(weights="tiny")).stages
        natives.add_row(name, ", ".join(dict.fromkeys(s.identity for s in stages)))
    yield natives
    writers = _table("LVLMs: the first half of LVLM+T2I", "name", "model", "settings")
    for name, settings in LVLMS.items():
        local = isinstance(settings, ChatSettings)
        notes = "local" if local else f"endpoint {settings.url}"  # type: ignore[union-attr]
        writers.add_row(name, settings.model, notes)
    writers.add_row("hf:ORG/NAME", "any AutoModelForImageTextToText", "local")
    writers.add_row("openai:MODEL", "any OpenAI-compatible endpoint", "OPENAI_BASE_URL")
    yield writers
    artists = _table("Text-to-image models: the second half", "name", "model", "settings")
    for name, drawn in T2IS.items():
        size = f"{drawn.width}x{drawn.height}"
        told = f"{drawn.steps} steps, guidance {drawn.guidance:g}, {size}"
        artists.add_row(name, drawn.model, told)
    artists.add_row("diffusers:ORG/NAME", "any AutoPipelineForText2Image", "its own")
    yield artists
    yield (
        "LVLM+T2I[@text|mmie|outline]: the default is mmie, one picture drawn from the "
        "whole text.\nAlso: gt, the ground truth as a system; controls made from it to "
        f"validate a judge, {', '.join(CONTROLS)}; module:Class, your own class."
    )


def _scorers() -> Iterator[Any]:
    table = _table("Scorers", "name", "scale")
    for name in SCORERS:
        table.add_row(name, resolve_scorer(name, "tiny", {}).scale)
    table.add_row("judge:mmie-score", "0-100")
    table.add_row("judge:NAME", "0-100; any LVLM above, hf:ORG/NAME, openai:MODEL, anole")
    table.add_row("module:Class", "a class of your own")
    yield table


def _weights() -> Iterator[Any]:
    table = _table("Weights", "name", "what")
    for name, what in WEIGHTS.items():
        table.add_row(name, what)
    yield table


def fetch(names: Sequence[str], console: Console) -> int:
    """Download the weights of systems, models and scorers into the Hub cache.

    UsageError for unknown names, CheckpointError where the Hub does not answer.
    """
    from huggingface_hub import snapshot_download

    wanted = {name: _repositories(name) for name in names}
    for name in (name for name, repositories in wanted.items() if not repositories):
        console.print(f"{escape(name)} has no weights to fetch")
    for repo, revision in dict.fromkeys(r for found in wanted.values() for r in found):
        console.print(f"fetching {escape(repo)} ({revision})")
        try:
            folder = snapshot_download(repo, revision=revision)
        except Exception as error:
            # As in `checkpoints`: the errors of whatever HTTP library is underneath.
            reason = first_line(error)
            raise CheckpointError(f"{repo!r} cannot be fetched: {reason}") from error
        console.print(f"  {escape(folder)}", soft_wrap=True)
    return 0


def _repositories(name: str) -> list[tuple[str, str]]:
    """(Hub id, revision) of everything a name needs."""
    with pinning({}) as pins:
        _stages(name)
    models = (pinned.rpartition("@") for pinned in pins.known)
    return [(model, r) for model, _, r in models if not looks_like_path(model)]


def _stages(name: str) -> tuple[StageSpec, ...]:
    models = Models(weights="pretrained")
    if name in SCORERS or name.startswith(JUDGE):
        return resolve_scorer(
            name, "pretrained", {}, chat=lambda model: chat_spec(model, models)
        ).stages
    if name in T2IS or name.startswith("diffusers:"):
        return (artist_spec(name, models),)
    if "+" not in name and is_writer(name):
        return (writer_spec(name, models),)
    if name in NATIVE or "+" in name:
        return resolve(name, models).stages
    raise UsageError(
        f"{name!r} names no weights; give a system, an LVLM, a text-to-image model or a "
        "scorer, as `plait list systems` and `plait list scorers` show them"
    )
