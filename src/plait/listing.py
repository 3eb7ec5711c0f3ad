"""`plait list` and `plait fetch`: the names that can be used, and their weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from rich.console import Console

from plait.benchmarks.protocols.pinned import PinnedProtocol, protocols
from plait.benchmarks.results.people import figures_of_metric, published_rows
from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.runs.config import load_config
from plait.benchmarks.runs.resolving import models_of, scorer_named, scorer_of, with_variant
from plait.benchmarks.tasks.answers import FORMATS
from plait.benchmarks.tasks.controls import CONTROLS, is_control
from plait.benchmarks.tasks.published import is_published
from plait.benchmarks.wording import quantity
from plait.generators.base import StageSpec
from plait.generators.catalogue import (
    CUSTOM,
    SYSTEMS,
    Entry,
    Named,
    by_name,
    entries,
    find,
    planners,
)
from plait.generators.checkpoints import (
    UnavailableWeights,
    first_line,
    looks_like_path,
    pinning,
)
from plait.generators.errors import CheckpointError, UsageError
from plait.generators.facts import ModelFacts
from plait.generators.mini.digests import size_of
from plait.generators.mini.table import MINI, folder_of
from plait.generators.names import unknown
from plait.pipelines.chat.settings import ChatSettings
from plait.pipelines.presets import RETIRED, lvlm, prior_of, t2i
from plait.pipelines.systems import (
    Models,
    is_lvlm,
    is_native,
    is_t2i,
    lvlm_spec,
    parts_of,
    planned_stages,
    resolve,
    t2i_stages,
)
from plait.scorers import resolve_scorer

WEIGHTS = {
    "pretrained": "published checkpoints, from a folder or the Hub",
    "mini": "small checkpoints that come with plait, trained on the miniature world",
    "dummy": "full-size architecture, random values: speed and memory without a download",
    "tiny": "the same classes at toy size, random values: tests and dry runs",
}
LISTS = ("systems", "scorers", "data", "weights", "protocols")
"""What can be listed."""


def show(what: str, console: Console) -> int:
    """Print the names of one of `LISTS`."""
    for table in tables_of(what):
        console.print(table.rich)
    return 0


def tables_of(what: str) -> Iterator[ResultTable]:
    """Return the tables of one of `LISTS`; UsageError names them all."""
    tables = {
        "systems": _systems,
        "scorers": _scorers,
        "data": _data,
        "weights": _weights,
        "protocols": _protocols,
    }
    if what not in tables:
        raise unknown("list", what, tables)
    return tables[what]()


_table = partial(ResultTable.of, numeric=False)
_COLUMNS = ("parameters", "licence", "interleaves", "images", "compared with")
_NOT_STATED = "not stated"
"""By its authors or provider."""


def _systems() -> Iterator[ResultTable]:
    yield _native_models()
    yield _served_models()
    yield _lvlms()
    yield _drawing_models()
    yield _other_systems()


def _native_models() -> ResultTable:
    rows = []
    for name, entry in by_name(Named.NATIVE).items():
        # Dummy weights need a config alone: no checkpoint has to be there to list a model.
        system = resolve(name, Models(weights="dummy"))
        models = dict.fromkeys(stage.identity for stage in system.stages)
        images = f"at most {system.limits.images_of_reply}"
        total = _total([stage.params_b for stage in system.stages])
        rows.append([name, ", ".join(models), *_about(entry.facts, total, images)])
    head = ["name", "model", *_COLUMNS]
    return _table("Native interleaved models", head, rows)


def _served_models() -> ResultTable:
    rows = []
    for name, entry in by_name(Named.SERVED).items():
        rows.append([name, entry.settings["model"], *_about(entry.facts)])
    head = ["name", "model", *_COLUMNS]
    return _table("The same behind a chat server", head, rows)


def _lvlms() -> ResultTable:
    rows = []
    for name, entry in by_name(Named.LVLM).items():
        settings = lvlm(name)
        local = isinstance(settings, ChatSettings)
        where = "local" if local else f"endpoint {settings.url}"  # type: ignore[union-attr]
        if retired := RETIRED.get(settings.model):
            where += f"; its provider's last day is {retired.day}"
        size = getattr(settings, "params_b", None)
        rows.append([name, settings.model, where, *_about(entry.facts, size)])
    head = ["name", "model", "at", *_COLUMNS]
    return _table("LVLMs: the first half of LVLM+T2I", head, rows)


def _drawing_models() -> ResultTable:
    rows = []
    for name, entry in by_name(Named.T2I).items():
        drawing = t2i(name)
        prior = prior_of(name)
        size = f"{drawing.width}x{drawing.height}"
        notes = f"{drawing.steps} steps, guidance {drawing.guidance:g}, {size}"
        parts = [drawing] if prior is None else [drawing, prior]
        total = _total([part.params_b for part in parts])
        rows.append([name, drawing.model, notes, *_about(entry.facts, total)])
    head = ["name", "model", "settings", *_COLUMNS]
    return _table("Text-to-image models: the second half", head, rows)


def _other_systems() -> ResultTable:
    rows = [
        *_helps(entries(Named.COMPOSITION)),
        *_helps(_prefixes(Named.LVLM, Named.T2I, *SYSTEMS)),
        *_helps(by_name(Named.SYSTEM).values()),
        [CUSTOM, "your own class"],
    ]
    remarks = (
        "Where models were compared with other programs, on tiny weights:",
        *_places(),
        f"Controls: {', '.join(CONTROLS)}.",
    )
    return _table("Other models and systems", ("name", "what"), rows, remarks)


def _places() -> list[str]:
    """Return where models were compared with other programs, one program a line."""
    declared = entries(Named.NATIVE, Named.LVLM, Named.T2I, Named.COMPOSITION)
    # A fact has the form `PROGRAM (FILE)`; several models have the same one.
    files: dict[str, dict[str, None]] = {}
    for entry in declared:
        if entry.facts.compared:
            program, _, file = entry.facts.compared.removesuffix(")").partition(" (")
            files.setdefault(program, {})[file] = None
    return [f"{program}: {', '.join(names)}" for program, names in files.items()]


def _about(
    facts: ModelFacts, params_b: float | None = None, images: str | None = None
) -> tuple[str, ...]:
    """Return the cells of `_COLUMNS`."""
    size = params_b if facts.params_b is None else facts.params_b
    interleaves = {None: _NOT_STATED, False: "no", True: "yes"}[facts.interleaves]
    program, _, _ = (facts.compared or "-").partition(" (")
    return (
        _NOT_STATED if size is None else f"{size:.3g} B",
        facts.licence or _NOT_STATED,
        interleaves,
        facts.images or images or _NOT_STATED,
        program,
    )


def _total(sizes: Iterable[float | None]) -> float | None:
    """Return the sum of sizes in billions, unknown where one of them is."""
    total = 0.0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total


def _prefixes(*kinds: Named) -> list[Entry]:
    """Return the entries that name a whole family, such as `hf:` and `openai:`."""
    return [entry for entry in entries(*kinds) if entry.prefix]


def _scorers() -> Iterator[ResultTable]:
    yield _metrics()
    others = [
        *_helps(entries(Named.JUDGE)),
        *_helps(_prefixes(Named.SCORER)),
        [CUSTOM, "your own class, with a scale of its own"],
    ]
    remark = "NAME is a chat model: any LVLM or native model of `plait list systems`."
    yield _table("Judges and other scorers", ("name", "what"), others, [remark])
    yield _published_agreement()
    protocols = _helps(entries(Named.PAIRWISE))
    yield _table("Protocols of plait compare", ("name", "what"), protocols)


def _metrics() -> ResultTable:
    rows = []
    sources: dict[str, None] = {}
    for name, entry in by_name(Named.SCORER).items():
        scorer = resolve_scorer(name, "tiny", {})
        agreed = []
        for figure in figures_of_metric(name):
            agreed.append(f"{figure.text}, {figure.split}")
            sources[figure.source] = None
        about = [scorer.scale, scorer.direction, scorer.unit, scorer.licence]
        rows.append([name, entry.help, *about, "; ".join(agreed)])
    head = ("name", "what", "scale", "better", "unit", "licence", "people")
    return _table("Scorers", head, rows, [f"people: of {'; '.join(sources)}"])


def _published_agreement() -> ResultTable:
    rows = []
    for row in published_rows():
        names = ", ".join(row.scorers) or "-"
        rows.append([names, row.judge, row.figures, row.source])
    head = ("name", "judge", "agrees with people", "published by")
    remark = "Of mmrb2:NAME in MMRB2's wording. `plait agreement` measures any judge."
    return _table("Published agreement of judges and metrics", head, rows, [remark])


def _data() -> Iterator[ResultTable]:
    rows = [
        [
            "PATH",
            "a file or folder of your own queries, or in MMIE's format",
        ],
        *_helps(entries(Named.DATA)),
        ["module:function", "your own function that returns a TaskSet"],
    ]
    yield _table("Data", ("name", "what"), rows)
    formats = [[name, str(form)] for name, form in FORMATS.items()]
    title = "Formats of answers, for plait score"
    head = ("name", "how it is told")
    yield _table(title, head, formats)


def _helps(shown: Iterable[Entry]) -> list[list[str]]:
    return [[entry.form, entry.help] for entry in shown]


def _weights() -> Iterator[ResultTable]:
    yield _table("Weights", ("name", "what"), WEIGHTS.items())
    rows = []
    for name in sorted(MINI):
        size = size_of(folder_of(name))
        there = f"{size:.1f} MB" if size else "not there"
        rows.append([name, MINI[name].folder, there])
    yield _table("Names with mini weights", ("name", "folder", "size"), rows)


def _protocols() -> Iterator[ResultTable]:
    rows = []
    for name, protocol in protocols().items():
        data = f"{protocol.data.form}, {quantity(protocol.data.queries, 'query')}"
        scorers = ", ".join(protocol.scorers)
        figures = len([*_figures(protocol)])
        rows.append([name, protocol.help, data, scorers, str(figures)])
    head = ["name", "what", "data", "scorer", "figures"]
    yield _table("Pinned protocols: settings of published figures", head, rows)
    rows = []
    for name, protocol in protocols().items():
        rows += [[name, *row] for row in _figures(protocol)]
    head = ["protocol", "system", "scorer", "published", "source"]
    yield _table("Published figures", head, rows)


def _figures(protocol: PinnedProtocol) -> Iterator[list[str]]:
    """Yield system, scorer, value and source; of other models their published name."""
    for table in protocol.figures:
        for system, value in table.values.items():
            yield [system, table.scorer, f"{value:g}", table.source]
        for model, value in table.others.items():
            yield [f"{model} (not here)", table.scorer, f"{value:g}", table.source]


def fetch(names: Sequence[str], console: Console) -> int:
    """Download the weights of systems, models, scorers and TOML files into the Hub cache.

    Folders that a run would refuse are named. UsageError for unknown names, CheckpointError
    where the Hub does not answer.
    """
    from huggingface_hub import snapshot_download

    from plait.generators.loading.files import weights_file

    repositories = {name: _repositories(name, console) for name in names}
    for name, needed in repositories.items():
        if not needed:
            console.print(f"{name} has no weights to fetch")
    # What several of them share is fetched once.
    for repo, revision in dict.fromkeys(chain.from_iterable(repositories.values())):
        console.print(f"fetching {repo} ({revision})")
        if "://" in repo:
            console.print(f"  {weights_file(repo)}")
            continue
        try:
            folder = snapshot_download(repo, revision=revision)
        except Exception as error:
            # As in `checkpoints`: the errors of whatever HTTP library is underneath.
            reason = first_line(error)
            raise CheckpointError(f"{repo!r} cannot be fetched: {reason}") from error
        console.print(f"  {folder}")
    return 0


def _repositories(name: str, console: Console) -> list[tuple[str, str]]:
    """(Hub id, revision) of everything a name needs."""
    with pinning({}) as pins:
        if name.endswith(".toml"):
            _resolve_all(Path(name))
        else:
            _stages(name)
    for error in pins.errors:
        if not isinstance(error, UnavailableWeights):
            console.print("cannot be used:", str(error), markup=False, highlight=False)
    found = []
    for pinned in pins.known:
        model, _, revision = pinned.rpartition("@")
        # A URL looks like a path, and is one that can be fetched.
        if "://" in model or not looks_like_path(model):
            found.append((model, revision))
    return found


def _resolve_all(file: Path) -> None:
    config = load_config(file, {})
    models = models_of(config)
    for name in config.systems:
        named, own = with_variant(name, config, models)
        if not is_published(named) and not is_control(named):
            resolve(named, own)
    for name in config.scorers:
        scorer_of(name, config, models)


def _stages(name: str) -> tuple[StageSpec, ...]:
    models = Models(weights="pretrained")
    if find(name, Named.SCORER) is not None:
        return scorer_named(name, {}, models).stages
    if is_t2i(name):
        drawing, prior = t2i_stages(name, models)
        return (drawing,) if prior is None else (drawing, prior)
    parts = parts_of(name)
    if parts.lvlm in planners():
        return planned_stages(name, models)
    if is_native(name) or parts.t2i is not None or parts.protocol is not None:
        return resolve(name, models).stages
    if is_lvlm(name):
        return (lvlm_spec(name, models),)
    raise UsageError(
        f"{name!r} names no weights; give a system, an LVLM, a text-to-image model or a "
        "scorer, as `plait list systems` and `plait list scorers` show them"
    )
