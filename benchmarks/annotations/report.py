"""Agreement of judges with people: from two files to what is written and shown."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from benchmarks.annotations.comparison import Settings, compared
from benchmarks.annotations.ratings import read_ratings
from benchmarks.annotations.scored import read_scores
from benchmarks.annotations.shown import tables


@dataclass(frozen=True, slots=True)
class AgreementReport:
    """What `plait agreement` found."""

    content: Mapping[str, Any]
    """In plain JSON form."""

    @property
    def tables(self) -> list[RenderableType]:
        """For a terminal: one per judge, then what was left out, then people."""
        return [table.rich for table in tables(self.content)]


def agreement_report(
    scores_path: Path,
    human_path: Path,
    *,
    scorers: Collection[str] = (),
    scores_scale: str | None = None,
    settings: Settings | None = None,
) -> AgreementReport:
    """Agreement of the scores in `scores_path` with people's in `human_path`.

    Scores come from a run directory, or from a CSV or JSON file on `scores_scale` (by
    default that of the people; a column `scale` says otherwise). UsageError for files
    that cannot be read, rows that break a rule, and files without a document in common.
    """
    settings = settings or Settings()
    scale = scores_scale or settings.human_scale
    judges = read_scores(scores_path, scale=scale, scorers=scorers)
    people = read_ratings(
        human_path,
        rater="annotator",
        unnamed="people",
        scale=settings.human_scale,
        known=judges.about,
    )
    about = {"scores": str(scores_path), "human": str(human_path)}
    return AgreementReport(about | compared(judges, people, settings))
