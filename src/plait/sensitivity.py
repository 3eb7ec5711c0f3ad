"""`plait sensitivity`: run a small design around a text-to-image system, and compare.

plait sensitivity sdxl@t2i --data prompts:prompts.txt --steps 20,50 --guidance 3,7
plait sensitivity t2i.toml --system flux@t2i --size 512,1024 --seeds 4
plait sensitivity geneval2/2026 --data geneval2:GenEval2      around a pinned protocol
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from plait import commands
from plait.benchmarks.protocols.pinned import find_protocol, protocols
from plait.benchmarks.results.board import Board
from plait.benchmarks.results.table import json_text, markdown_page
from plait.benchmarks.runs.config import RunConfig, load_config
from plait.benchmarks.studies.sensitivity import (
    VARIED,
    Factor,
    Level,
    SensitivityDesign,
    as_json,
    design_of,
    parse_levels,
    sensitivity_of,
    tables_of,
)
from plait.generators.buckets import AnyPath
from plait.generators.checkpoints import pinning
from plait.generators.errors import UsageError
from plait.generators.files import write_whole
from plait.options import data_choices_of, flags_of, forecast_of
from plait.pipelines.systems import is_t2i

FILE = "sensitivity.json"
PAGE = "sensitivity.md"
_QUERIES = 16
"""Asked where nothing limits them."""
_SCORERS = ("clipscore-prompt",)
"""Where none is named."""


def main(options: Mapping[str, Any], console: Console) -> int:
    """Run the design that `options` describe and show what moves the figure."""
    with pinning({}):  # weights that are not here are missing in the plan
        design = design_of(_config_of(options), _levels_of(options), options["seeds"])
    planned = commands.plan(
        design.config,
        console,
        remake=options["remake"],
        same_code=options["same_code"],
        forecast=forecast_of(options),
        changed_data=data_choices_of(options["changed_data"]),
    )
    for remark in design.remarks:
        console.print(remark)
    if options["dry_run"]:
        planned.show(console)
        return 0 if planned.ready() else 2
    finished = commands.execute_plan(planned, console)
    if finished.board is not None:
        _show(design, finished.board, finished.root, console)
    return finished.exit_status


def _config_of(options: Mapping[str, Any]) -> RunConfig:
    """Return the config of the reference; UsageError where nothing says what to draw."""
    name = options["config"]
    flags = flags_of(options)
    file: Path | None = None
    if name.endswith(".toml") or Path(name).is_file():
        file = Path(name)
    elif name in protocols():
        flags["pinned"] = name
        if not flags["systems"] and len(find_protocol(name).systems) == 1:
            flags["systems"] = find_protocol(name).systems
    elif "/" in name and ":" not in name and "@" not in name:
        find_protocol(name)  # UsageError with the valid ones
    else:
        if flags["systems"]:
            raise UsageError(f"{name!r} is the system to vary: leave out --system")
        flags["systems"] = (f"{name}@t2i" if is_t2i(name) else name,)
    plain = file is None and not flags["pinned"]
    if plain and flags["data"] is None:
        raise UsageError(
            f"nothing says what {name!r} is to draw: name prompts with --data, such as "
            "prompts:FILE"
        )
    if plain and not flags["scorers"]:
        flags["scorers"] = _SCORERS
    config = load_config(file, flags, options["set_"] or ())
    if config.limit is None and config.ids is None:
        config = config.model_copy(update={"limit": _QUERIES})
    return config


def _levels_of(options: Mapping[str, Any]) -> dict[Factor, list[Level]]:
    """Return the levels that options give, by factor; UsageError."""
    levels = {}
    for factor in VARIED:
        if options[factor] is not None:
            levels[factor] = parse_levels(factor, options[factor])
    return levels


def _show(design: SensitivityDesign, board: Board, root: AnyPath, console: Console) -> None:
    """Print the tables, and write them into the run directory."""
    found = sensitivity_of(design, board)
    tables = [*tables_of(design, found)]
    for table in tables:
        console.print(table.rich)
    warnings = [f"Warning: {warning}." for warning in board.warnings]
    for warning in warnings:
        console.print(warning, style="yellow")
    write_whole(root / FILE, json_text(as_json(design, board, found)))
    title = f"Sensitivity of {design.system}"
    write_whole(root / PAGE, markdown_page(title, warnings, tables))
    console.print(f"sensitivity {root / FILE} (and md)", soft_wrap=True)
