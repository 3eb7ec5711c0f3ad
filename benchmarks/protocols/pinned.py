"""Pinned protocols by name: `pinned.toml` as values.

    protocol = find_protocol("geneval2/2026")
    protocol.models["sd3.5-medium"].settings      # {"steps": 40, "guidance": 1.0, ...}
    protocol.figures_of("sd3.5-medium@t2i")       # what was published of it

Imports no reader, model or scorer: names of systems and scorers are those of plait.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from plait.generators.names import unknown, validate

FILE = Path(__file__).with_name("pinned.toml")


class _Table(BaseModel):
    # Most commands name no protocol: what checks them is made where one is read.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Sourced(_Table):
    """What somebody published."""

    source: str = Field(min_length=1)
    """A paper, a file of a repository at a commit, or an issue."""


class PinnedData(Sourced):
    """Which queries are asked."""

    task: str
    """Name of the task set."""
    form: str
    """How `data` names it, as `plait list data` shows it."""
    place: str = ""
    """The whole name of the data, where they can be read from the Hub; else they are a
    place of the user's."""
    get: str
    """Where they are to be had."""
    queries: int = Field(ge=1)
    digest: str = ""
    """That the reader gives to the published files; empty where it is not known."""


class PinnedRun(Sourced):
    """Settings of the whole run."""

    repeats: int | None = Field(default=None, ge=1)
    """Answers to each query; None where it is not stated."""


class PinnedScorer(Sourced):
    """What judged, and how."""

    settings: Mapping[str, Any] = Field(default_factory=dict)
    rubric: str = ""
    """The file whose texts official mode asks by; empty where it needs none."""
    average: Literal["avg_fixed", "avg_micro"]
    """Which mean of the leaderboard the figures are."""
    scale: str
    """Of the figures, `LOW-HIGH`; the scorer may have another."""
    barred: str = ""
    """Why no value of this scorer can be compared with the figures; empty where it can."""


class PinnedModel(Sourced):
    """Settings of one model, under its name in `models` of a config."""

    settings: Mapping[str, Any]


class PublishedFigures(Sourced):
    """Figures of one table."""

    scorer: str
    values: Mapping[str, float] = Field(default_factory=dict)
    """By the name of a system of plait."""
    others: Mapping[str, float] = Field(default_factory=dict)
    """By the published name of a model that is no system of plait."""


class Unmet(Sourced):
    """What the published program does and plait does not, or what nobody states."""

    text: str


class PublishedFigure(NamedTuple):
    """One figure."""

    scorer: str
    value: float
    """On the scale of the protocol's scorer."""
    source: str


class PinnedProtocol(_Table):
    """What figures were made with, as far as a source states it, and the figures."""

    name: str
    """NAME/EDITION."""
    help: str
    data: PinnedData
    run: PinnedRun
    scorers: Mapping[str, PinnedScorer]
    models: Mapping[str, PinnedModel] = Field(default_factory=dict)
    figures: Sequence[PublishedFigures] = ()
    unmet: Sequence[Unmet] = ()

    @property
    def systems(self) -> tuple[str, ...]:
        """The systems of plait that have a figure or settings of their own, in order."""
        names: dict[str, None] = {}
        for table in self.figures:
            names |= dict.fromkeys(table.values)
        return tuple(names)

    @property
    def sources(self) -> tuple[str, ...]:
        """All sources, each once."""
        tables: list[Sourced] = [self.data, self.run, *self.scorers.values()]
        tables += [*self.models.values(), *self.figures, *self.unmet]
        return tuple(dict.fromkeys(table.source for table in tables))

    def figures_of(self, system: str) -> Iterator[PublishedFigure]:
        """Yield the figures of a system, by scorer."""
        for table in self.figures:
            if system in table.values:
                value = table.values[system]
                yield PublishedFigure(table.scorer, value, table.source)


@cache
def protocols() -> Mapping[str, PinnedProtocol]:
    """Return all pinned protocols by name."""
    read = tomllib.loads(FILE.read_text(encoding="utf-8"))
    found = {}
    for name, table in read.items():
        found[name] = validate(PinnedProtocol, {"name": name, **table}, name)
    return found


def find_protocol(name: str) -> PinnedProtocol:
    """Return the protocol NAME/EDITION; UsageError with the valid ones."""
    if name not in protocols():
        raise unknown("pinned protocol", name, protocols())
    return protocols()[name]
