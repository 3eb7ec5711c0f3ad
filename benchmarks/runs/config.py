"""The configuration of a run: a TOML file, command-line flags over it, resolved once.

    config = load_config(Path("run.toml"), {"systems": ["anole"]}, ["seed=3"])
    config.root      # the run directory
    config.digest    # what the directory is named by: all that decides a result

`RunConfig` and the sections below it say what can be set, with defaults; `load_config` puts
file, flags and `--set` together and refuses what is not valid.
"""

from __future__ import annotations

import contextlib
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    model_validator,
)

from plait.benchmarks.runs.defaults import QUICKSTART, SAMPLE
from plait.benchmarks.runs.pinning import fill_from_pinned
from plait.benchmarks.tasks.answers import AnswerPlace
from plait.benchmarks.tasks.miniature.reader import is_miniature
from plait.benchmarks.tasks.own_data import ROWS
from plait.benchmarks.tasks.reading.columns import AS_NAMED, DataReading
from plait.benchmarks.tasks.task_set import MMIE, data_prefix, is_function
from plait.cluster.executors.base import ExecutorName
from plait.cluster.launch.settings import ClusterSettings
from plait.generators.base import WeightsName
from plait.generators.buckets import AnyPath, BucketPath, any_path
from plait.generators.errors import UsageError
from plait.generators.keys import digest
from plait.generators.names import validate
from plait.generators.packs import PackPath
from plait.generators.released import OFFICIAL as RELEASED_TEXTS
from plait.generators.secrets import know, without_known_keys
from plait.generators.system import History
from plait.pipelines.critic import CriticSettings
from plait.pipelines.servers.settings import ServerTable
from plait.scorers import takes
from plait.scorers.judging.resolve import judge_settings, takes_run_rubric
from plait.scorers.judging.sources import Mode, RubricSource, parse_rubric
from plait.scorers.statistics.estimate import LEAST
from plait.scorers.statistics.margins import Margin, parse_margin
from plait.scorers.statistics.multiple import Correction
from plait.scorers.turn_names import name_of_turn_scorer

OFFICIAL = "official:"
"""Prefix of `data` that already holds answers."""
USD = "USD"
"""The currency of prices where a config names none."""

# ----------------------------------------------------------------------- types of fields


def _as_list(value: Any) -> Any:
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
        example = value if isinstance(value, str) else "NAME"
        raise ValueError(f'give a list of names, such as ["{example}"]')
    return value


def _number_or_all(value: Any) -> Any:
    if value in (None, "all") or (str(value).isdecimal() and int(value) >= 1):
        return value
    raise ValueError('give a number from 1, or "all"')


def _place(value: Any) -> AnyPath:
    if isinstance(value, str | PathLike | BucketPath | PackPath):
        return any_path(value)
    raise ValueError("give a folder, or the URL of a bucket and a name in it")


def _absolute(file: Path) -> Path:
    return file.expanduser().resolve()


def _absolute_answers(place: str) -> str:
    return str(AnswerPlace.of(place))


Names = Annotated[tuple[str, ...], BeforeValidator(_as_list)]
PageQueries = Annotated[int | Literal["all"] | None, BeforeValidator(_number_or_all)]
RunPlace = Annotated[AnyPath, PlainValidator(_place), PlainSerializer(str)]
# Absolute, so that a config means the same from any folder.
AbsoluteFile = Annotated[Path, AfterValidator(_absolute)]
AbsoluteAnswers = Annotated[str, AfterValidator(_absolute_answers)]

# ------------------------------------------------------------------------------ sections


class _Section(BaseModel):
    """Part of a config: its keys are those that are declared, and its values stay."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EngineConfig(_Section):
    """How the engine runs; none of it changes a result."""

    gpu_memory_gib: float = Field(default=80.0, gt=0)
    """Memory of one GPU of the cluster: decides how many GPUs a large model gets."""
    placement_timeout_s: float = Field(default=600.0, gt=0)
    """How long a stage may wait for resources before its records count as failed."""
    grace_s: float = Field(default=10.0, ge=0)
    """How long Ctrl-C waits for batches in flight."""
    price_per_gpu_hour: float | None = Field(default=None, ge=0)
    """For the forecast alone."""
    max_cost: float | None = Field(default=None, gt=0)
    """What all endpoints of the run may cost together, over all commands on its directory;
    requests in flight when it is reached are still paid."""
    currency: str = Field(default=USD, min_length=1)
    """Of every price and cost in the config, such as EUR: shown beside amounts of money,
    and nothing is converted."""


class CompositionConfig(_Section):
    """The composition of LVLM and text-to-image model."""

    max_images: int = Field(default=4, ge=1, le=32, strict=True)
    """At most this many images in one answer under protocols that outline an answer."""
    critic: CriticSettings = CriticSettings()
    """How images are judged and drawn again under the protocol `critic`."""


class ReportConfig(_Section):
    """What the page shows; none of it changes a result."""

    queries: PageQueries = None
    """At most this many queries, or "all"; by default 200. The tables always cover all."""
    correction: Correction = "holm"
    """How the p-values of all pairs of systems are corrected: `holm` or `none`."""
    agreement: tuple[AbsoluteFile, ...] = ()
    """Files that `plait agreement RUN --out FILE` wrote: the tables say of each judge in
    them how often it agrees with people."""


class VariantConfig(_Section):
    """A system with settings of its own, beside the same system in one run."""

    system: str = Field(min_length=1)
    """A name as `plait list systems` shows it."""
    models: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    """Settings of its models, over those of `[models.NAME]`."""
    history: History = "own"
    """What stands before the later turns of a conversation: `own` answers of the system to
    the earlier ones, or those `given` by the data."""


class ReferenceSettings(_Section):
    """How the reference differs from the run itself."""

    models: Mapping[str, Mapping[str, Any]] = Field(min_length=1)
    """`[fidelity.reference.models.NAME]`: all settings of a model in the reference, in
    place of its own table in the run; an empty table for a model as it comes."""


def _reference(value: Any) -> AnyPath | ReferenceSettings:
    if isinstance(value, ReferenceSettings):
        return value
    if isinstance(value, Mapping):
        return validate(ReferenceSettings, value, "fidelity.reference")
    return _place(value).expanduser().resolve()


def _plain_reference(value: AnyPath | ReferenceSettings) -> Any:
    if isinstance(value, ReferenceSettings):
        return value.model_dump(mode="json")
    return str(value)


def _margins(values: Mapping[str, float | str]) -> Mapping[str, float | str]:
    if not values:
        raise ValueError('give at least one margin, such as {"clipscore" = "0.5%"}')
    for measure, value in values.items():
        parse_margin(f"{measure}={value}")
    return values


class FidelityConfig(_Section):
    """What a run has to show of a few queries before it answers all."""

    reference: Annotated[
        AnyPath | ReferenceSettings,
        PlainValidator(_reference),
        PlainSerializer(_plain_reference),
    ]
    """What the run has to be as good as: the directory of a finished run, or the table
    `[fidelity.reference]`, by which a few queries are answered first."""
    queries: int = Field(default=64, ge=LEAST, strict=True)
    """How many queries are answered by both, drawn as by `limit`."""
    margins: Annotated[Mapping[str, float | str], AfterValidator(_margins)]
    """How much worse the run may be, by measure, as `--margin` of `plait diff`
    takes it."""

    @property
    def parsed_margins(self) -> list[Margin]:
        """The margins as values."""
        return [parse_margin(f"{name}={value}") for name, value in self.margins.items()]


# ---------------------------------------------------------------------- the whole config


class RunConfig(_Section):
    """Everything that can be configured in a run."""

    data: str = "sample"
    """One of the forms that `plait list data` shows. In a config
    also the table `[data]`, with this under `place`, and what is in `reading` beside it."""
    reading: DataReading = DataReading()
    """What `[data]` says besides `place`: how data are read by columns."""
    systems: Names = ()
    """Names as `plait list systems` shows them."""
    variants: Mapping[str, VariantConfig] = Field(default_factory=dict)
    """`[variants.NAME]`: systems with settings of their own; `systems` names them."""
    pinned: str | None = None
    """NAME/EDITION of a pinned protocol, whose settings apply where others are not given:
    one that `plait list protocols` shows."""
    answers: Mapping[str, AbsoluteAnswers] = Field(default_factory=dict)
    """Answers made elsewhere, by the name of the system: `[FORMAT:]PLACE`, with a format
    that `plait list data` shows."""
    scorers: Names = ()
    """Names as `plait list scorers` shows them."""
    weights: WeightsName | None = None
    """Where neither a system nor a config is named, `tiny` for data that is named and
    `mini` for the quickstart's own; else `pretrained`."""
    out: RunPlace | None = None
    """Run directory: a folder, or s3://, gs:// or az:// with a bucket and a name in it; by
    default `runs/<data>-<digest of this config>`."""
    limit: int | None = Field(default=None, ge=1, strict=True)
    """Answer only this many queries, drawn by `seed` and stratified by category."""
    ids: AbsoluteFile | None = None
    """File with the id of one query a line: answer only these."""
    seed: int = Field(default=0, ge=0, strict=True)
    """Seed of all sampling and noise, and of what `limit` draws."""
    repeats: int = Field(default=1, ge=1, strict=True)
    """How often each query is answered, with different seeds."""
    mode: Mode | None = None
    """How judges ask and read: `official` is the released scorer's way, quirks included."""
    rubric: str | None = None
    """The judges' rubric: `plait`, the path of your own (`FILE.toml`), or `official:PATH`
    with your copy of MMIE's prompts.py."""
    baseline: str | None = None
    """The system beside whose answers scorers of pairs (`creation:NAME` and its kin) judge
    those of all others: one of the run's, `gt`, or `published:NAME`."""
    executor: ExecutorName | None = None
    """Where workers run: on `ray`, or `local`, as threads of the command itself. By default
    PLAIT_EXECUTOR, else `ray` where it is installed."""
    address: str | None = None
    """Ray address; by default RAY_ADDRESS, else the command starts its own Ray. Not with
    `local`."""
    models: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    """`[models.NAME]`: settings of one model."""
    servers: Mapping[str, ServerTable] = Field(default_factory=dict)
    """`[servers.NAME]`: servers that plait starts, for models with `server = "NAME"`."""
    prompts: Mapping[str, Mapping[str, str]] = Field(default_factory=dict)
    """`[prompts.SA]` and so on: your own wording of the task prompts, by variant."""
    composition: CompositionConfig = CompositionConfig()
    fidelity: FidelityConfig | None = None
    """`[fidelity]`: what is shown of a few queries before all are answered."""
    engine: EngineConfig = EngineConfig()
    report: ReportConfig = ReportConfig()
    cluster: ClusterSettings = ClusterSettings()
    """What `plait submit` asks a cluster for."""

    @model_validator(mode="before")
    @classmethod
    def _data_of_table(cls, values: Any) -> Any:
        """Take `[data]` apart into the place and how it is read."""
        data = values.get("data") if isinstance(values, Mapping) else None
        if not isinstance(data, Mapping):
            return values
        result = dict(values)
        reading = dict(data)
        del result["data"]
        if "place" in reading:
            result["data"] = reading.pop("place")
        former = values.get("reading")
        if isinstance(former, DataReading):
            former = former.model_dump()
        result["reading"] = validate(DataReading, merge(former or {}, reading), "data")
        return result

    def plain_data(self) -> dict[str, Any]:
        """Return the config as plain data, as the manifest holds it."""
        values = self.model_dump(mode="json")
        if self.reading == AS_NAMED:
            del values["reading"]
        # A setting of its scorers by the time a run is made (`_for_scorers`).
        if self.baseline is None:
            del values["baseline"]
        for name in _NEWER:
            if not values[name]:
                del values[name]
        for variant in values.get("variants", {}).values():
            # As variants of earlier versions have none.
            if variant["history"] == "own":
                del variant["history"]
        return values

    @property
    def rubrics(self) -> set[RubricSource]:
        """All rubrics and prompts in the config: of all judges, and of single models."""
        named = [] if self.rubric is None else [self.rubric]
        settings_of_models = [*self.models.values()]
        for variant in self.variants.values():
            settings_of_models += variant.models.values()
        for settings in settings_of_models:
            named += [settings[key] for key in _wordings_in(settings)]
        return {parse_rubric(rubric) for rubric in named}

    def with_rubrics(self, change: Callable[[RubricSource], object]) -> "RunConfig":
        """Return the config with every rubric and prompts as `change` returns them.

        UsageError for invalid ones.
        """

        def change_wordings(settings: Mapping[str, Any]) -> Mapping[str, Any]:
            changed = {}
            for key in _wordings_in(settings):
                changed[key] = str(change(parse_rubric(settings[key])))
            return {**settings, **changed}

        def change_all(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
            return {name: change_wordings(own) for name, own in models.items()}

        variants = {}
        for name, variant in self.variants.items():
            models = change_all(variant.models)
            variants[name] = variant.model_copy(update={"models": models})
        update = {"models": change_all(self.models), "variants": variants}
        update |= change_wordings({"rubric": self.rubric})
        return self.model_copy(update=update)

    @property
    def digest(self) -> str:
        """Identifies what is asked for; where, how and how it is shown does not count."""
        values = self.with_rubrics(lambda rubric: rubric.in_digests).plain_data()
        left_out = {*_NOT_NAMING}
        # Left out while unset, so that runs older than these fields keep their names.
        for name in ("answers", "mode", "rubric", "servers"):
            if not values[name]:
                left_out.add(name)
        if self.composition.critic == CriticSettings():
            del values["composition"]["critic"]
        if self.answers and not self.systems:
            # Given answers have one run, to which further scorers are added.
            left_out.update(_OF_SCORERS)
        naming = {name: value for name, value in values.items() if name not in left_out}
        return digest(naming)[:10]

    @property
    def is_official_folder(self) -> bool:
        """Whether the data are a folder of official results, which holds answers too."""
        return self.data.startswith(OFFICIAL)

    @property
    def root(self) -> AnyPath:
        """The run directory, absolute."""
        if self.out is not None:
            return self.out.expanduser().resolve()
        place = self.data
        for prefix in (ROWS, MMIE, "hf:", OFFICIAL):
            place = place.removeprefix(prefix)
        place = place.partition("@")[0]
        name = Path(place).name.replace(":", "-") or "run"
        return (Path("runs") / f"{name}-{self.digest}").resolve()


def _wordings_in(settings: Mapping[str, Any]) -> list[str]:
    """Return the keys of a model's settings that name a file of texts, as rubrics do."""
    keys = []
    rubric = settings.get("rubric")
    prompts = settings.get("prompts")
    if isinstance(rubric, str):
        keys.append("rubric")
    if isinstance(prompts, str) and prompts.startswith(RELEASED_TEXTS):
        keys.append("prompts")
    return keys


OF_JUDGES = ("mode", "rubric", "baseline")
"""Keys that are settings of the scorers that take them."""
_NEWER = ("variants", "pinned", "fidelity")
"""Keys that are left out where they are not set, as runs of earlier versions have none."""
_OF_SCORERS = ("mode", "models", "rubric", "scorers", "servers")
"""Keys that do not name the run directory of answers that are only scored."""
_NOT_NAMING = (
    "address",
    "cluster",
    "engine",
    "executor",
    "fidelity",
    "out",
    "report",
)
"""Keys that name no run directory, since they change no result."""

# -------------------------------------------------------------- from file, flags, --set


def load_config(
    file: Path | None, flags: Mapping[str, Any], settings: Sequence[str] = ()
) -> RunConfig:
    """Return the config of a command: the file, then the flags given, then `--set`.

    Raises UsageError for unreadable TOML, unknown keys (with the nearest valid one),
    values of the wrong kind, and API keys, since configs are stored.
    """
    values = with_data_table(_read_toml(file) if file else {})
    given = {flag: value for flag, value in flags.items() if value not in (None, ())}
    values = merge(values, with_data_table(given))
    values = with_settings(values, settings)
    refuse_keys(values)
    if "pinned" in values:
        validate(RunConfig, values, "")
        values = fill_from_pinned(values, joins=_joins(values))
    config = validate(RunConfig, values, "")
    named = file is not None or bool(config.systems or config.answers or config.pinned)
    return _with_defaults(_for_scorers(config), named=named)


def _joins(values: Mapping[str, Any]) -> bool:
    """Return whether the run directory that is named holds a run already."""
    out = values.get("out")
    return out is not None and is_run(any_path(out).expanduser())


def with_data_table(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` with `data` as a table, which can be merged with another."""
    result = dict(values)
    if isinstance(result.get("data"), str):
        result["data"] = {"place": result["data"]}
    return result


def _for_scorers(config: RunConfig) -> RunConfig:
    """Return `config` with its mode, rubric and baseline as settings of its scorers.

    Those of `judge:NAME` stay the run's own. UsageError for a rubric that would be meant
    for two kinds of judges, as no file holds the released texts of both, and for a baseline
    without a scorer of pairs.
    """
    given = {}
    for key in OF_JUDGES:
        value = getattr(config, key)
        if value is not None:
            given[key] = value
    taken: dict[str, dict[str, Any]] = {}
    """By scorer, what it takes of that."""
    for scorer in config.scorers:
        name = name_of_turn_scorer(scorer)
        own = {key: value for key, value in given.items() if takes(name, key)}
        if own:
            taken[name] = own
    _refuse_two_kinds(config, [name for name, own in taken.items() if "rubric" in own])
    if "baseline" in given and not any("baseline" in own for own in taken.values()):
        raise UsageError(
            f"baseline {config.baseline!r} is for scorers that judge pairs, and none is "
            "named: give one with --scorer, such as creation:gpt-6.1-sol"
        )
    of_others: dict[str, dict[str, Any]] = {}
    for name, own in taken.items():
        if not takes_run_rubric(name):
            of_others[name] = own
    models = merge(of_others, config.models)
    update: dict[str, Any] = {"models": models, "baseline": None}
    if of_others == taken:
        # No `judge:NAME` takes them, so they are settings of these scorers alone.
        for own in of_others.values():
            update |= dict.fromkeys(own)
    return config.model_copy(update=update)


def _refuse_two_kinds(config: RunConfig, scorers: Iterable[str]) -> None:
    """UsageError where the rubric of `config` is taken by judges of two kinds."""
    by_kind: dict[type, str] = {}
    for name in scorers:
        if "rubric" not in config.models.get(name, {}):
            by_kind[judge_settings(name)] = name
    if len(by_kind) > 1:
        one, other = [*by_kind.values()][:2]
        raise UsageError(
            f"rubric cannot be meant for both {one} and {other}; say it of each, as in "
            f'models."{one}".rubric={str(config.rubric)!r}'
        )


def _with_defaults(config: RunConfig, *, named: bool) -> RunConfig:
    """Return `config` with defaults; a run in its directory has systems and scorers.

    `named` says whether the user named a file, a system or answers.
    """
    given = config.model_fields_set
    has_answers = config.is_official_folder or bool(config.answers)
    if "systems" in given and not config.systems and not has_answers:
        raise UsageError("systems is empty: name at least one, or leave the key out")
    names_all = bool(config.systems) and "scorers" in given
    # Of a bucket this is a request, which is saved where nothing depends on it.
    joins = not names_all and config.out is not None and is_run(config.out.expanduser())
    is_quickstart = not named and "data" not in given and config.weights in (None, "mini")
    default = QUICKSTART if is_quickstart else SAMPLE
    settings: dict[str, Any] = {}
    if is_quickstart:
        settings["data"] = default.data
    if not (config.systems or has_answers or joins):
        settings["systems"] = default.systems
    if not ("scorers" in given or joins):
        settings["scorers"] = default.scorers
    if config.weights is None:
        settings["weights"] = "pretrained" if named else default.weights
    return with_absolute_paths(config.model_copy(update=settings))


def is_run(root: AnyPath) -> bool:
    """Return whether the directory `root` holds a run, finished or not."""
    # Imported here because measuring a stage reads configs where pyarrow is missing.
    from plait.cluster.run import MANIFEST

    return (root / MANIFEST).exists()


def with_absolute_paths(config: RunConfig) -> RunConfig:
    """Return `config` with absolute paths of its data and rubrics too."""
    placed = config.model_copy(update={"data": _absolute_data(config.data)})
    return placed.with_rubrics(lambda rubric: rubric.absolute)


def _absolute_data(data: str) -> str:
    """Return `data` with the path in it made absolute, if it holds one."""
    scheme = ""
    place = data
    if data_prefix(data) not in (None, "hf"):
        name, colon, place = data.partition(":")
        scheme = name + colon
    is_name = place == "sample" or place.startswith("hf:")
    if is_name or is_miniature(data) or is_function(data):
        return data
    return f"{scheme}{_absolute(Path(place))}"


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise UsageError(f"config {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"config {file} is not valid TOML: {error}") from None


def refuse_keys(values: Mapping[str, Any]) -> None:
    """Raise UsageError for a setting that holds an API key; it names the setting."""
    texts = list(_texts(values))
    # Variables that the config names hold keys, whatever they are called.
    know(text for name, text in texts if name.endswith(".api_key_env"))
    for name, text in texts:
        if without_known_keys(text) != text:
            raise UsageError(
                f"{name} holds an API key, and settings are stored with the run: leave it "
                "out. Keys are read from environment variables; api_key_env names another"
            )


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text in plain data, after the dotted key that it stands under."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, name)


def parse_setting(setting: str) -> dict[str, Any]:
    """Return `models.sdxl-turbo.steps=2` as a nested dict.

    The value is read as TOML; where it is none, it is a string. UsageError for what has no
    key, and for API keys.
    """
    key, equals, value = setting.partition("=")
    if not equals or not key.strip():
        raise UsageError(
            f"--set {setting!r} is not of the form key=value, such as models.flux.steps=2"
        )
    for toml_value in (value, json.dumps(value)):
        with contextlib.suppress(tomllib.TOMLDecodeError):
            parsed = tomllib.loads(f"{key.strip()} = {toml_value}")
            refuse_keys(parsed)
            return parsed
    raise UsageError(
        f"--set: {key!r} is not a dotted key; quote names with dots or colons, "
        'as in models."openai:gpt-4.1".max_tokens=512'
    )


def with_settings(values: Mapping[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """Return `values` overridden by each `key=value` in turn; errors of `parse_setting`."""
    for setting in settings:
        values = merge(values, with_data_table(parse_setting(setting)))
    return dict(values)


def merge(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` overridden by `over`, table by table."""
    result = dict(values)
    for key, value in over.items():
        former = result.get(key)
        if isinstance(former, Mapping) and isinstance(value, Mapping):
            result[key] = merge(former, value)
        else:
            result[key] = value
    return result
