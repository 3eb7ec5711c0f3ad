"""`plait bench pairings`: run a matrix of LVLMs and text-to-image models, and compare.

plait bench pairings --lvlm qwen2-vl-7b --lvlm llava-34b --t2i sdxl --t2i openjourney
plait bench pairings RUN                        the tables of an existing run
plait bench pairings RUN --metrics hpsv2,bleu   by some of its scorers
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from rich.console import Console

from plait import commands
from plait.benchmarks.results.board import Board
from plait.benchmarks.results.pairings.comparison import Pairings, pairings_of
from plait.benchmarks.results.pairings.matrix import matrices_of
from plait.benchmarks.results.pairings.sheet import form_of, sheet_of, write_sheet
from plait.benchmarks.results.pairings.tables import FILES, tables_of, write_pairings
from plait.benchmarks.results.report.entries import keys_shown
from plait.benchmarks.results.report.page import limit_of
from plait.benchmarks.runs.config import RunConfig, is_run, load_config
from plait.benchmarks.runs.defaults import QUICKSTART, SAMPLE, DefaultRun
from plait.benchmarks.runs.opening import open_results
from plait.benchmarks.runs.run_directory import folder_written
from plait.benchmarks.studies.agreement import MMIES_SCALE
from plait.benchmarks.studies.annotations import read_ratings
from plait.benchmarks.tasks.miniature.reader import is_miniature
from plait.cluster.store import BlobReader
from plait.generators.buckets import AnyPath, any_path
from plait.generators.catalogue import Named, by_name
from plait.generators.errors import UsageError
from plait.generators.mini.table import MINI, folder_of
from plait.generators.names import unknown
from plait.options import data_choices_of, flags_of, forecast_of
from plait.pipelines.systems import is_t2i, parts_of
from plait.scorers.base import Scorer


class _Sides(NamedTuple):
    """The models of a matrix."""

    lvlms: tuple[str, ...]
    t2is: tuple[str, ...]


_OF_WHAT_IS_SHOWN = ("config", "metrics", "human", "sheet", "out")
"""Options that say what is shown of a run, and change none."""
_TINY = _Sides(("qwen2-vl-7b", "llava-34b"), ("openjourney", "sdxl-turbo"))
"""The matrix that shows how things work, without weights: one LVLM skips queries with
several images, as published."""


def main(options: Mapping[str, Any], console: Console) -> int:
    """Run the matrix that `options` name, or read an existing run; the exit status."""
    place = options["config"] and any_path(options["config"])
    if place is not None and is_run(place):
        _refuse_options(options, place)
        root = place.resolve()
        out = any_path(options["out"]) if options["out"] else None
        _show(open_results(root).board, root, options, console, out)
        return commands.FINISHED
    if place is not None and place.is_dir():
        raise UsageError(f"{place} holds no run; name a run directory or a TOML file")
    config = matrix_config({**options, "config": place})
    planned = commands.plan(
        config,
        console,
        remake=options["remake"],
        same_code=bool(options.get("same_code")),
        forecast=forecast_of(options),
        changed_data=data_choices_of(options.get("changed_data")),
    )
    if not matrices_of(planned.experiment.systems):
        raise _no_matrix(str(config.root))
    # What the options name must be there before anything runs.
    _metrics(options, planned.experiment.scorers)
    _people(options["human"])
    if options["sheet"]:
        form_of(options["sheet"])
    finished = commands.execute_plan(planned, console)
    if (board := finished.board) is not None:
        _show(board, config.root, options, console)
    return finished.exit_status


def _metrics(options: Mapping[str, Any], scorers: Sequence[Scorer]) -> list[str]:
    """Return the scorers that `--metrics` names, each once; UsageError for others."""
    valid = [scorer.name for scorer in scorers if not scorer.of_sets]
    chosen: dict[str, None] = {}
    for names in options["metrics"] or ():
        chosen |= dict.fromkeys(name.strip() for name in names.split(","))
    for name in chosen:
        if name not in valid:
            raise unknown("scorer of single answers in this run", name, valid)
    return [*chosen]


def _people(file: Path | None) -> dict[str, dict[str, float]]:
    """Return by system and query what people gave on average; nothing without a file."""
    if file is None:
        return {}
    scale = MMIES_SCALE
    ratings = read_ratings(file, rater="annotator", unnamed="people", scale=scale)
    if ratings.form != "score":
        raise UsageError(
            f"{file} holds a {ratings.form} of each pair; ranks of pairings need the "
            "column score or criteria; `plait agreement` reads both"
        )
    given = defaultdict[tuple[str, str], list[float]](list)
    for of_rater in ratings.values.values():
        for unit, value in of_rater.items():
            given[unit.system, unit.id].append(float(value))
    means: dict[str, dict[str, float]] = {}
    for (system, query), values in given.items():
        means.setdefault(system, {})[query] = fmean(values)
    return means


def _refuse_options(options: Mapping[str, Any], root: AnyPath) -> None:
    given = []
    for name, value in options.items():
        if value and name not in _OF_WHAT_IS_SHOWN:
            # As it is typed: `set_` is `--set`, since Python has a `set` of its own.
            given.append(f"--{name.rstrip('_').replace('_', '-')}")
    if given:
        raise UsageError(
            f"{root} is an existing run: its tables are shown without options of a "
            f"run ({', '.join(given)} given); to add models to it, name it with --out"
        )


def matrix_config(options: Mapping[str, Any]) -> RunConfig:
    """The config of a run of the matrix; UsageError where options name half of one."""
    lvlms = tuple(options["lvlm"] or ())
    t2is = tuple(options["t2i"] or ())
    protocol = options["protocol"]
    flags = flags_of({**options, "system": None})
    if options["config"] is not None and not (lvlms or t2is):
        return load_config(options["config"], flags, options["set_"] or ())
    if not lvlms and not t2is:
        flags, (lvlms, t2is) = _with_defaults(flags)
        # Mini models have learnt to mark places of images; random ones never mark any.
        protocol = protocol or ("outline" if flags["weights"] == "mini" else "mmie")
    _refuse_half(lvlms, t2is)
    names = []
    # A model that is named twice has one row or column.
    for lvlm, t2i in product(dict.fromkeys(lvlms), dict.fromkeys(t2is)):
        names.append(f"{lvlm}+{t2i}@{protocol or 'mmie'}")
    flags["systems"] = tuple(names)
    return load_config(options["config"], flags, options["set_"] or ())


def _with_defaults(flags: Mapping[str, Any]) -> tuple[dict[str, Any], _Sides]:
    """Data, scorers and weights where no model is named, and the models.

    Mini models on the world they know, or random weights on any other data.
    """
    data = flags["data"]
    weights = flags["weights"]
    weights = weights or ("mini" if data is None or is_miniature(data) else "tiny")
    if weights not in ("mini", "tiny"):
        raise UsageError(
            f"--lvlm and --t2i are missing: there is no default matrix of {weights} weights"
        )
    models = mini_models() if weights == "mini" else _TINY
    run: DefaultRun = QUICKSTART if weights == "mini" else SAMPLE
    with_defaults = {
        **flags,
        "data": data or run.data,
        "scorers": flags["scorers"] or run.scorers,
        "weights": weights,
    }
    return with_defaults, models


def mini_models() -> _Sides:
    """The LVLMs and text-to-image models whose mini weights are there, each folder once."""
    quick = set[str]()
    for system in QUICKSTART.systems:
        quick.update(parts_of(system).models)
    by_folder: dict[Path, str] = {}
    # Of models that share a folder, the one of the quick start gives it its name.
    for name in sorted(MINI, key=lambda name: (name not in quick, name)):
        if folder_of(name).is_dir() and (name in by_name(Named.LVLM) or is_t2i(name)):
            by_folder.setdefault(folder_of(name), name)
    lvlms: list[str] = []
    t2is: list[str] = []
    for name in by_folder.values():
        side = lvlms if name in by_name(Named.LVLM) else t2is
        side.append(name)
    return _Sides(tuple(lvlms), tuple(t2is))


def _refuse_half(lvlms: Sequence[str], t2is: Sequence[str]) -> None:
    if not lvlms or not t2is:
        absent = "--t2i" if lvlms else "--lvlm"
        raise UsageError(
            f"{absent} is missing: a matrix has at least one LVLM and one text-to-image "
            "model, and two of one of them (see `plait list systems`)"
        )
    if len(set(lvlms)) * len(set(t2is)) < 2:
        raise UsageError(
            f"{lvlms[0]} with {t2is[0]} is a single pairing, with nothing to compare "
            "it with; name another --lvlm or --t2i"
        )


def _no_matrix(where: str) -> UsageError:
    return UsageError(
        f"the systems of {where} form no matrix: at least two systems LVLM+T2I of one "
        "protocol share their LVLM or their text-to-image model; name models with --lvlm "
        "and --t2i (`plait paper RUN` draws an image sheet of any run)"
    )


def _show(
    board: Board,
    root: AnyPath,
    options: Mapping[str, Any],
    console: Console,
    out: AnyPath | None = None,
) -> None:
    """Print the tables, and write the files and the contact sheet that options name."""
    pairings = _choose_pairings(board, root, options)
    for one in pairings:
        for table in tables_of(one):
            console.print(table.rich)
    if board.warning:
        console.print(f"Warning: {board.warning}.", style="yellow")
    with folder_written(root, out) as folder:
        write_pairings(board, folder, pairings)
    first, *others = FILES
    endings = ", ".join(file.partition(".")[2] for file in others)
    console.print(f"pairings    {folder / first} (and {endings})", soft_wrap=True)
    if options["sheet"] is not None:
        _write_sheet(board, pairings[0], options["sheet"])
        console.print(f"sheet       {options['sheet']}", soft_wrap=True)


def _choose_pairings(
    board: Board, root: AnyPath, options: Mapping[str, Any]
) -> list[Pairings]:
    """Return the pairings by the scorers and people that options name; UsageError."""
    metrics = _metrics(options, board.scorers)
    people = _people(options["human"])
    cells = set[str]()
    for matrix in matrices_of(board.systems):
        cells.update(system.name for system in matrix.cells)
    if not cells:
        raise _no_matrix(str(root))
    if people and cells.isdisjoint(people):
        raise UsageError(
            f"{options['human']} rates none of the pairings, but {', '.join(people)}; "
            f"the pairings: {', '.join(sorted(cells))}"
        )
    return [one.showing(metrics, people) for one in pairings_of(board)]


def _write_sheet(board: Board, pairings: Pairings, file: Path) -> None:
    sheet = sheet_of(board, pairings, keys_shown(board.keys, limit_of(None)))
    if sheet is None:
        raise UsageError(
            "no contact sheet: no query with an image has a score for every pairing"
        )
    write_sheet(sheet, file, BlobReader())
