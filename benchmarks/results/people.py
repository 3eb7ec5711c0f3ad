"""How often judges and metrics agree with people: published figures, and measured ones.

Published figures are in `people.toml`; `plait agreement RUN --out FILE` measures others,
which `report.agreement` of a config names for the leaderboard.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from plait.benchmarks.results.numbers import NumberForm
from plait.generators.errors import UsageError
from plait.scorers.base import Scorer

_FILE = Path(__file__).with_name("people.toml")
_FORM = NumberForm(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How often one judge preferred the answer of two that people chose."""

    name: str
    split: str
    value: float
    """Percent of the pairs."""
    ci95: tuple[float, float] | None = None
    """None where no interval was published."""
    n: int | None = None
    """Pairs; None where it was not published."""
    source: str
    origin: Literal["published", "measured"] = "published"

    @property
    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @property
    def text(self) -> str:
        """`61.0% of pairs [58.0, 64.0]`."""
        return f"{_FORM.number(self.value)}% of pairs {_FORM.interval(self.ci95)}".strip()

    def __str__(self) -> str:
        where = f"{self.split} of {self.source}"
        return f"agrees with people in {self.text} ({self.origin}: {where})"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAgreement:
    """What `plait agreement` measured of one judge."""

    judge: str
    manner: str
    """How it judged, as `Scorer.manner` says."""
    stage: str
    """The first 12 digits of its stage's digest."""
    figures: tuple[Agreement, ...]
    """One for each split in which pairs were judged."""


def published_figures(splits: Collection[str]) -> list[Agreement]:
    """Return the published figures on some splits of MMRB2, by split in their order."""
    table = _table()
    source = table["source"]
    figures = []
    for split in table["splits"]:
        if split not in splits:
            continue
        for name, own in table["judges"].items():
            if split in own:
                figure = Agreement(name=name, split=split, value=own[split], source=source)
                figures.append(figure)
    return figures


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def agreement_of(
    scorer: Scorer, measured: Iterable[MeasuredAgreement] = ()
) -> Iterator[Agreement]:
    """Yield the figures of a scorer: the measured ones of its very stage, then published.

    Published ones are of published weights, and of judges in the published wording.
    """
    stages = {stage.digest[:12] for stage in scorer.stages}
    for own in measured:
        is_asked_alike = (own.judge, own.manner) == (scorer.name, scorer.manner)
        if is_asked_alike and own.stage in stages:
            yield from own.figures
    weights = {stage.weights for stage in scorer.stages}
    is_published = weights == {"pretrained"}
    if is_published and not getattr(scorer, "own_wording", False):
        yield from figures_of_metric(scorer.name)


def figures_of_metric(scorer: str) -> list[Agreement]:
    """Return the published figures of the metric that plait calls `scorer`."""
    judges = _table()["judges"]
    figures = []
    for figure in published_figures(_table()["splits"]):
        if scorer in judges[figure.name].get("scorers", ()):
            figures.append(figure)
    return figures


class PublishedRow(NamedTuple):
    """What was published of one judge, for a list."""

    judge: str
    scorers: tuple[str, ...]
    """What plait calls it; empty where it has no name."""
    figures: str
    source: str


def published_rows() -> list[PublishedRow]:
    """Return all that was published of judges, shares of pairs first."""
    table = _table()
    rows = []
    for name, own in table["judges"].items():
        shares = []
        for split in table["splits"]:
            if split in own:
                shares.append(f"{own[split]:.1f}% {split}")
        scorers = tuple(own.get("scorers", ()))
        rows.append(PublishedRow(name, scorers, ", ".join(shares), table["source"]))
    for name, own in table["other"].items():
        scorers = tuple(own["scorers"])
        rows.append(PublishedRow(name, scorers, own["figure"], own["source"]))
    return rows


def read_measured(files: Iterable[Path]) -> tuple[MeasuredAgreement, ...]:
    """Return what was measured of each judge; UsageError for a file of another form."""
    return tuple(chain.from_iterable(map(_read, files)))


def _read(file: Path) -> list[MeasuredAgreement]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        source = content["data"]["source"]
        return [_read_judge(judge, source) for judge in content["judges"]]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UsageError(
            f"report.agreement: {file} is no file that `plait agreement RUN --out FILE` "
            f"writes of a run over mmrb2:PLACE ({type(error).__name__}: {error})"
        ) from None


def _read_judge(judge: Mapping[str, Any], source: str) -> MeasuredAgreement:
    """Return the figures of one judge, of the splits in which any pair was judged."""
    figures = []
    for split, figure in judge["groups"]["split"].items():
        if figure["value"] is None:
            continue
        agreement = Agreement(
            name=judge["judge"],
            split=split,
            value=figure["value"],
            ci95=figure["ci95"] and (figure["ci95"][0], figure["ci95"][1]),
            n=figure["n"],
            source=source,
            origin="measured",
        )
        figures.append(agreement)
    return MeasuredAgreement(
        judge=judge["judge"],
        manner=judge["manner"],
        stage=judge["stage"],
        figures=tuple(figures),
    )
