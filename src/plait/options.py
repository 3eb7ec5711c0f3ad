"""The options that commands share, each declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from plait import completion
from plait.generators.base import WeightsName
from plait.generators.catalogue import SYSTEMS, Named, entries, valid_names

if TYPE_CHECKING:
    from plait.benchmarks.runs.planning import ForecastOptions
    from plait.benchmarks.tasks.changes import DataChoices


def _forms(*kinds: Named) -> str:
    return ", ".join(entry.form for entry in entries(*kinds))


Data = Annotated[
    str | None,
    Option(
        help="A file or folder of your own queries (JSON, CSV, TSV, Parquet; see `plait "
        f"check`) or in MMIE's format, {_forms(Named.DATA)}, or module:function for your "
        "own task set (see `plait list data`).",
        autocompletion=completion.data,
    ),
]
Systems = Annotated[
    list[str] | None,
    Option(
        help="Such as anole or qwen2-vl-72b+sdxl-turbo@outline: "
        f"{_forms(*SYSTEMS, Named.COMPOSITION)}, or module:Class (see `plait list "
        "systems`); may be repeated.",
        autocompletion=completion.systems,
    ),
]
Scorers = Annotated[
    list[str] | None,
    Option(
        "--scorer",
        help=f"Such as clipscore or judge:gpt-6.1-sol: {_forms(Named.SCORER)}, or "
        "module:Class (see `plait list scorers`); may be repeated.",
        autocompletion=completion.scorers,
    ),
]
Mode = Annotated[
    Literal["corrected", "official"] | None,
    Option(
        help="How judges ask and read replies: corrected, or exactly as the "
        "released program (official)."
    ),
]
Rubric = Annotated[
    str | None,
    Option(
        help="The judges' rubric: plait, your own FILE.toml, or official:PATH/prompts.py."
    ),
]
Baseline = Annotated[
    str | None,
    Option(
        help="The system beside whose answers creation:NAME and other scorers of pairs "
        "judge: one of the run's, gt, or published:NAME.",
        autocompletion=completion.systems,
    ),
]
WeightsKind = Annotated[
    WeightsName | None,
    Option(
        help="Published checkpoints (pretrained), small ones that come with plait (mini), "
        "or random values at full size (dummy) or tiny."
    ),
]
JsonFile = Annotated[
    Path | None, Option(dir_okay=False, help="File for the results as JSON.")
]
Out = Annotated[
    str | None,
    Option(
        metavar="PATH",
        help="Run directory, new or existing (to resume or extend it): a folder, or "
        "a URL in a bucket, such as s3://bucket/run.",
    ),
]
Corrected = Annotated[
    bool,
    Option(
        "--correction/--no-correction",
        help="Whether p-values are corrected for all pairs of systems (Holm).",
    ),
]
OutFolder = Annotated[
    Path | None,
    Option(file_okay=False, help="Output folder; by default the run directory."),
]
ExecutorOption = Annotated[
    Literal["ray", "local"] | None,
    Option(
        help="Where workers run: ray (by default where it is installed), or local: in this "
        "process, without Ray."
    ),
]
Address = Annotated[
    str | None,
    Option(help="Address of a Ray cluster, such as auto; by default a local Ray."),
]
Settings = Annotated[
    list[str] | None,
    Option(
        "--set",
        help="key=value of the config, such as models.sdxl-turbo.steps=2; may be repeated.",
    ),
]


def _check_protocol(name: str) -> str:
    valid = valid_names(Named.PAIRWISE)
    if name not in valid and ":" not in name:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(valid)}")
    return name


Protocol = Annotated[
    str,
    Option(
        metavar="NAME",
        help=f"{_forms(Named.PAIRWISE)}, or your own module:Class.",
        callback=_check_protocol,
        autocompletion=completion.protocols,
    ),
]
Pinned = Annotated[
    str | None,
    Option(
        metavar="NAME/EDITION",
        help="A pinned protocol, such as geneval2/2026 (see `plait list protocols`): its "
        "published settings apply where you give none, and tables show the published "
        "figures beside yours.",
        autocompletion=completion.pinned,
    ),
]
Remake = Annotated[
    bool,
    Option(
        "--remake",
        help="Remake records of an earlier version of a stage and, when answering, "
        "answers that contain a model's thoughts.",
    ),
]
SameCode = Annotated[
    bool,
    Option(
        "--same-code",
        help="Keep the records of your own classes although their source was edited: "
        "their results are the same.",
    ),
]
ChangedData = Annotated[
    list[str] | None,
    Option(
        metavar="remake|keep|add",
        help="If the data have changed since the run was made: remake the changed "
        "queries or keep them as they were; add new rows. May be repeated.",
    ),
]
Run = Annotated[str, Argument(help="A run directory, or its URL.")]
RunOrAnswers = Annotated[
    list[str],
    Argument(
        metavar="RUN|[NAME=][FORMAT:]ANSWERS...",
        help="A run directory; or folders or files of answers, whose format is "
        "detected, to compare as systems.",
    ),
]
Queries = Annotated[
    str | None,
    Option(
        metavar="N|all",
        help="Show at most this many queries on the page, or all; by default 200.",
    ),
]


def run_options(
    config: Annotated[Path | None, Argument(help="TOML file; flags override it.")] = None,
    data: Data = None,
    system: Systems = None,
    scorer: Scorers = None,
    weights: WeightsKind = None,
    out: Out = None,
    limit: Annotated[
        int | None, Option(help="At most this many queries, stratified by category.")
    ] = None,
    ids: Annotated[
        Path | None, Option(help="File with the id of one query per line; only these.")
    ] = None,
    seed: Annotated[int | None, Option(help="Seed of all sampling and noise.")] = None,
    repeats: Annotated[int | None, Option(help="Answers per query.")] = None,
    executor: ExecutorOption = None,
    address: Address = None,
    mode: Mode = None,
    rubric: Rubric = None,
    baseline: Baseline = None,
    pinned: Pinned = None,
    set_: Settings = None,
    remake: Remake = False,
    same_code: SameCode = False,
    changed_data: ChangedData = None,
    on: Annotated[
        str | None,
        Option(
            help="Machines the forecast is for, such as 8xH100 or 2x8xA100,64cpu; by "
            "default this one."
        ),
    ] = None,
    budget_hours: Annotated[
        float | None,
        Option(
            help="Refuse to start if the forecast exceeds this many GPU-hours (hours "
            "of wall time if no stage uses a GPU)."
        ),
    ] = None,
    trim: Annotated[
        bool,
        Option(
            "--trim",
            help="With --budget-hours: answer as many queries as fit, stratified by "
            "category.",
        ),
    ] = False,
    shard: Annotated[
        str | None,
        Option(
            metavar="K/N",
            help="Answer only part K of N (from 1) of the queries, such as 3/16, "
            "while other commands answer the other parts in the same run "
            "directory.",
        ),
    ] = None,
) -> None:
    """The options of a run, declared once."""


def pairing_options(
    config: Annotated[
        str | None,
        Argument(
            metavar="RUN",
            help="A run directory, to show its pairings; or a TOML file, as for `run`.",
        ),
    ] = None,
    system: None = None,
    lvlm: Annotated[
        list[str] | None, Option(help="An LVLM of the matrix; may be repeated.")
    ] = None,
    t2i: Annotated[
        list[str] | None,
        Option(help="A text-to-image model of the matrix; may be repeated."),
    ] = None,
    protocol: Annotated[
        Literal["mmie", "outline", "outline-edit"] | None,
        Option(
            help="How texts become documents; by default mmie, or outline for the "
            "default mini models."
        ),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        Option(
            metavar="NAME,...",
            help="Show only these scorers, in this order; may be repeated.",
        ),
    ] = None,
    human: Annotated[
        Path | None,
        Option(
            help="Human scores, such as annotations.csv of `plait annotate`: shows "
            "how well scorers agree with them on the pairings."
        ),
    ] = None,
    sheet: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Write a contact sheet, .png or .webp: a few queries answered by "
            "every pairing.",
        ),
    ] = None,
    pinned: None = None,
    shard: None = None,
) -> None:
    """The options of `bench pairings` where they differ from those of a run."""


def sensitivity_options(
    config: Annotated[
        str,
        Argument(
            metavar="CONFIG.toml|SYSTEM|NAME/EDITION",
            help="A run's config, a text-to-image model or system, or a pinned protocol.",
        ),
    ],
    pinned: None = None,
    repeats: None = None,
    trim: None = None,
    shard: None = None,
    guidance: Annotated[
        str | None,
        Option(metavar="G,...", help="Levels of guidance; by default around its own."),
    ] = None,
    steps: Annotated[
        str | None,
        Option(metavar="N,...", help="Levels of steps; by default around its own."),
    ] = None,
    size: Annotated[
        str | None,
        Option(
            metavar="SIDE,...",
            help="Levels of size, SIDE or WIDTHxHEIGHT; by default half of its own.",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        Option(min=1, help="Images of each prompt at every level; by default 2."),
    ] = None,
    dry_run: Annotated[
        bool,
        Option(
            "--dry-run", help="Show what would be drawn and what it takes; start nothing."
        ),
    ] = False,
) -> None:
    """The options of `sensitivity` where they differ from those of a run."""


def with_options(
    *declared: Callable[..., None],
) -> Callable[[Callable[[dict[str, Any]], int]], Callable[..., int]]:
    """Have a command take the options of all `declared`, as one dictionary.

    A later declaration of an option overrides the earlier one; None takes it away.
    """
    parameters: dict[str, inspect.Parameter] = {}
    for declaration in declared:
        # Annotations are texts in this module; typer needs what they stand for.
        parameters |= inspect.signature(declaration, eval_str=True).parameters
    taken = []
    annotations = {}
    for name, parameter in parameters.items():
        if parameter.annotation is not None:
            taken.append(parameter)
            annotations[name] = parameter.annotation

    def decorate(command: Callable[[dict[str, Any]], int]) -> Callable[..., int]:
        def call(**options: Any) -> int:
            return command(options)

        # typer makes options of a function's signature, and asks for its annotations.
        call.__name__ = command.__name__
        call.__doc__ = command.__doc__
        call.__annotations__ = annotations
        call.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
        return call

    return decorate


def forecast_of(options: Mapping[str, Any]) -> ForecastOptions:
    """Return the options of a run that change its forecast and its budget."""
    from plait.benchmarks.runs.planning import ForecastOptions

    # Some commands take none or a part of them.
    given = {}
    for name in ("on", "budget_hours", "trim"):
        if name in options:
            given[name] = options[name]
    return ForecastOptions(**given)


def data_choices_of(names: Iterable[str] | None) -> DataChoices:
    """Return what --changed-data says; UsageError."""
    from plait.benchmarks.tasks.changes import DataChoices

    return DataChoices.of(names or ())


def arguments_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `commands.plan`, and with it `commands.run`, is to do; UsageError."""
    from plait.benchmarks.runs.config import load_config
    from plait.cluster.shard import Shard

    return {
        "config": load_config(options["config"], flags_of(options), options["set_"] or ()),
        "remake": options["remake"],
        "same_code": options["same_code"],
        "changed_data": data_choices_of(options["changed_data"]),
        "forecast": forecast_of(options),
        "shard": Shard.of(options["shard"]),
    }


_CONFIG_FLAGS = (
    *("data", "weights", "out", "limit", "ids", "seed", "repeats"),
    *("executor", "address", "mode", "rubric", "baseline", "pinned"),
)
"""Options that are keys of a config under the same name."""


def flags_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a run as values of its config."""
    # An option that is given several times has a name in the singular.
    flags: dict[str, Any] = {
        "systems": tuple(options.get("system") or ()),
        "scorers": tuple(options.get("scorer") or ()),
    }
    for name in _CONFIG_FLAGS:
        flags[name] = options.get(name)
    return flags
