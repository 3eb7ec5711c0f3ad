"""The options that commands share, each declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from generators.base import WeightsName

if TYPE_CHECKING:
    from benchmarks.runs.config import RunConfig
    from benchmarks.runs.forecast.budget import ForecastOptions

Config = Annotated[Path | None, typer.Argument(help="TOML file; flags override it.")]
Data = Annotated[
    str | None,
    typer.Option(
        help="'sample', 'miniature' or miniature:N, a folder or file in MMIE's format, "
        "hf:ORG/NAME@REVISION, creation:PLACE, creation-text:PLACE, mllm-bench:PLACE, "
        "probench:PLACE, official:FOLDER, or module:function for your own task set "
        "(see `plait list data`)."
    ),
]
Systems = Annotated[
    list[str] | None,
    typer.Option(
        "--system",
        help="Such as anole or qwen2-vl-72b+sdxl-turbo@outline; may be repeated.",
    ),
]
Scorers = Annotated[
    list[str] | None,
    typer.Option(
        "--scorer", help="Such as clipscore or judge:gpt-6.1-sol; may be repeated."
    ),
]
Mode = Annotated[
    Literal["corrected", "official"] | None,
    typer.Option(
        help="How judges ask and read replies; official is the released program's way."
    ),
]
Rubric = Annotated[
    str | None,
    typer.Option(help="The judges' rubric: own, or official:PATH/prompts.py."),
]
WeightsKind = Annotated[
    WeightsName | None,
    typer.Option(
        help="Published checkpoints (pretrained), small ones that come with plait (mini), "
        "or random values at full size (dummy) or tiny."
    ),
]
Out = Annotated[
    Path | None, typer.Option(help="Run directory, new or to be resumed or extended.")
]
Limit = Annotated[
    int | None, typer.Option(help="At most this many queries, stratified by category.")
]
Ids = Annotated[
    Path | None, typer.Option(help="File with one sample id per line; only these queries.")
]
Seed = Annotated[int | None, typer.Option(help="Seed of all sampling and noise.")]
Repeats = Annotated[int | None, typer.Option(help="Answers per query.")]
ExecutorOption = Annotated[
    Literal["ray", "local"] | None,
    typer.Option(
        "--executor",
        help="Where workers run: ray (by default), or local: in this process, without Ray.",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(help="Address of a Ray cluster, such as auto; by default a local Ray."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="key=value of the config, such as models.sdxl-turbo.steps=2; may be repeated.",
    ),
]


def _protocol(name: str) -> str:
    if name not in PROTOCOLS and ":" not in name:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(PROTOCOLS)}")
    return name


PROTOCOLS = ("creation", "mllm-bench", "probench", "module:Class")
Protocol = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="creation, mllm-bench, probench, or your own module:Class.",
        callback=_protocol,
    ),
]
Remake = Annotated[
    bool,
    typer.Option("--remake", help="Make records of an earlier version of a stage again."),
]
Machines = Annotated[
    str | None,
    typer.Option(
        "--on",
        help="Machines the forecast is for, such as 8xH100 or 2x8xA100,64cpu; by default "
        "this one.",
    ),
]
BudgetHours = Annotated[
    float | None,
    typer.Option(
        help="Refuse where the forecast exceeds so many GPU-hours; hours of wall time "
        "where no stage takes a GPU."
    ),
]
Trim = Annotated[
    bool,
    typer.Option(
        "--trim",
        help="With --budget-hours: answer as many queries as fit, stratified by category.",
    ),
]
Run = Annotated[Path, typer.Argument(help="A run directory.")]
RunOrAnswers = Annotated[
    Path,
    typer.Argument(
        help="A run directory, or a folder of answers in MMIE's official format."
    ),
]
Queries = Annotated[
    str | None,
    typer.Option(
        metavar="N|all",
        help="Show at most this many queries on the page, or all; by default 200.",
    ),
]


def _declared(
    config: Config = None,
    data: Data = None,
    system: Systems = None,
    scorer: Scorers = None,
    weights: WeightsKind = None,
    out: Out = None,
    limit: Limit = None,
    ids: Ids = None,
    seed: Seed = None,
    repeats: Repeats = None,
    executor: ExecutorOption = None,
    address: Address = None,
    mode: Mode = None,
    rubric: Rubric = None,
    set_: Settings = None,
    remake: Remake = False,
    on: Machines = None,
    budget_hours: BudgetHours = None,
    trim: Trim = False,
) -> None:
    """The options of `run` and `plan`, declared once."""


def with_run_options(
    command: Callable[[RunConfig, bool, ForecastOptions], int],
) -> Callable[..., None]:
    """`command` as the command line calls it: with every option of a run."""

    def called(**options: Any) -> None:
        asked = _config(options), options["remake"], forecast_options(options)
        raise typer.Exit(command(*asked))

    called.__name__, called.__doc__ = command.__name__, command.__doc__
    called.__annotations__ = _declared.__annotations__
    called.__signature__ = inspect.signature(_declared, eval_str=True)  # type: ignore[attr-defined]
    return called


Lvlms = Annotated[
    list[str] | None,
    typer.Option("--lvlm", help="An LVLM of the matrix; may be repeated."),
]
T2is = Annotated[
    list[str] | None,
    typer.Option("--t2i", help="A text-to-image model of the matrix; may be repeated."),
]
Composition = Annotated[
    Literal["mmie", "outline"] | None,
    typer.Option(
        "--protocol",
        help="How texts become documents; mmie, or outline where mini models are taken "
        "without names.",
    ),
]


def _declared_of_pairings(
    lvlm: Lvlms = None, t2i: T2is = None, protocol: Composition = None
) -> None:
    """The options of `bench pairings` beside those of `run`, declared once."""


def with_pairing_options(command: Callable[[dict[str, Any]], int]) -> Callable[..., None]:
    """`command` as the command line calls it: with the options of a run and of a matrix."""

    def called(**options: Any) -> None:
        raise typer.Exit(command(options))

    named = inspect.signature(_declared, eval_str=True).parameters
    own = inspect.signature(_declared_of_pairings, eval_str=True).parameters
    parameters = {**named, **own}
    del parameters["system"]
    help_text = "A run directory, to show its pairings; or a TOML file, as of `run`."
    place = Annotated[Path | None, typer.Argument(metavar="RUN", help=help_text)]
    parameters["config"] = named["config"].replace(annotation=place)
    called.__name__, called.__doc__ = command.__name__, command.__doc__
    called.__annotations__ = {name: p.annotation for name, p in parameters.items()}
    called.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    return called


def forecast_options(arguments: Mapping[str, Any]) -> "ForecastOptions":
    """The options of a run that change its forecast and its budget."""
    from benchmarks.runs.forecast.budget import ForecastOptions

    return ForecastOptions(
        on=arguments["on"],
        budget_hours=arguments["budget_hours"],
        trim=arguments["trim"],
    )


def _config(arguments: dict[str, Any]) -> "RunConfig":
    from benchmarks.runs.config import load_config

    return load_config(arguments["config"], flags_of(arguments), arguments["set_"] or ())


def flags_of(arguments: dict[str, Any]) -> dict[str, Any]:
    """The options of a run as values of its config."""
    return {
        "data": arguments["data"],
        "systems": tuple(arguments["system"] or ()),
        "scorers": tuple(arguments["scorer"] or ()),
        **{k: arguments[k] for k in ("weights", "out", "limit", "ids", "seed", "repeats")},
        **{k: arguments.get(k) for k in ("executor", "address", "mode", "rubric")},
    }
