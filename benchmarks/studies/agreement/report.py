"""Agreement of judges with people: the report, and its tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from benchmarks.results.table import ResultTable, TableCell, TableColumn
from benchmarks.studies.agreement.comparison import AgreementSettings, compared
from benchmarks.studies.agreement.ratings import read_ratings, read_scores
from benchmarks.studies.agreement.truth import is_truth, scores_and_truth
from scorers.statistics.agreement import COEFFICIENTS

TITLES = {name: c.title for name, c in COEFFICIENTS.items()} | {
    "consistency": "Consistency %",
    "decided": "both decided %",
    "all": "all %",
}
Cells = Mapping[str, Mapping[str, Any]]


def tables(content: Mapping[str, Any]) -> list[ResultTable]:
    """One table per judge, and one of the people among themselves."""
    shown = [_judge(judge, content) for judge in content["judges"]]
    if content["people"]:
        title = "people: each with the mean of the others"
        if content["form"] == "vote":
            title = "people: every two"
        people = ((TableCell(who), cells) for who, cells in content["people"].items())
        shown.append(_table(title, "", people))
    return shown


def _judge(judge: Mapping[str, Any], content: Mapping[str, Any]) -> ResultTable:
    rows: Iterable[tuple[TableCell, Cells]]
    if "groups" in judge:
        rows = ((_group(g), g["coefficients"]) for g in judge["groups"])
    elif "mae" in judge["agreement"]:
        rows = [(TableCell("the mean of the people"), judge["agreement"])]
    else:
        rows = ((TableCell(who), cells) for who, cells in judge["agreement"].items())
    truth = content.get("truth")
    caption = _caption(judge["counts"], truth, content["blank"])
    return _table(_title(judge, truth or "people"), caption, rows)


def _title(judge: Mapping[str, Any], other: str) -> str:
    mapped = f", mapped from {judge['scale']}" if judge.get("rescaled") else ""
    return f"{judge['judge']}{mapped}: agreement with {other}"


def _group(group: Mapping[str, Any]) -> TableCell:
    names = [group["category"] or "all categories", group["kind"]]
    queries = f"{group['pairs']:,} answers to {group['queries']:,} queries"
    return TableCell(", ".join(n for n in names if n), queries)


def _caption(counts: Mapping[str, Any], truth: str | None, blank: int) -> str:
    """Every annotated document by outcome; of truth, also those that it has no score of."""
    if truth:
        scored = f"{counts['matched']:,} of {counts['annotated']:,} answers with {truth}"
        lost = [f"{n:,} {why}" for why, n in counts["no_score"].items()]
        return ", ".join([scored, *lost, f"{blank:,} more have none"])
    parts = [f"{counts['matched']:,} of {counts['annotated']:,} annotated answers"]
    for name in ("no_score", "unmatched"):
        parts += [f"{n:,} {why}" for why, n in counts[name].items()]
    parts.append(f"{counts['not_annotated']:,} more not annotated")
    examples = [" of ".join(map(str, e[:2])) for e in counts["unmatched_examples"]]
    named = f" (unmatched: {'; '.join(examples)})" if examples else ""
    return ", ".join(parts) + named


def _table(
    title: str, caption: str, rows: Iterable[tuple[TableCell, Cells]]
) -> ResultTable:
    lines = list(rows)
    names = list(lines[0][1]) if lines else []
    cells = [cell for _, by_name in lines for cell in by_name.values()]
    reasons = dict.fromkeys(c["reason"] for c in cells if "reason" in c)
    return ResultTable(
        title=title,
        columns=[TableColumn(""), *(TableColumn(TITLES[n], numeric=True) for n in names)],
        rows=[[who, *(_cell(by_name[n]) for n in names)] for who, by_name in lines],
        notes=[note for note in (caption, *(f"- {reason}" for reason in reasons)) if note],
    )


def _cell(estimate: Mapping[str, Any]) -> TableCell:
    if estimate["value"] is None:
        return TableCell("-")
    ends = estimate["ci95"]
    interval = "" if ends is None else "[{:.3f}, {:.3f}]".format(*ends)
    return TableCell(f"{estimate['value']:.3f}", interval, estimate["value"])


@dataclass(frozen=True, slots=True)
class AgreementReport:
    """The results of `plait agreement`."""

    content: Mapping[str, Any]
    """In plain JSON form."""

    @property
    def tables(self) -> list[RenderableType]:
        """For a terminal: one table per judge, then one of people."""
        return [table.rich for table in tables(self.content)]


def agreement_report(
    scores_path: Path,
    human_path: Path,
    *,
    scorers: Collection[str] = (),
    scores_scale: str | None = None,
    settings: AgreementSettings | None = None,
) -> AgreementReport:
    """Agreement of the scores in `scores_path` with people's in `human_path`.

    `truth:NAME` in place of a file is the scorer of that name: known truth of the run.
    Scores come from a run directory, or from a CSV or JSON file on `scores_scale` (by
    default that of the people, unless a column `scale` states another). UsageError for
    files that cannot be read, rows that break a rule, and no document in common.
    """
    settings = settings or AgreementSettings()
    scale = scores_scale or settings.human_scale
    if is_truth(human_path):
        return _with_truth(scores_path, str(human_path), scorers, scale, settings)
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


def _with_truth(
    path: Path, name: str, scorers: Collection[str], scale: str, settings: AgreementSettings
) -> AgreementReport:
    """Truth has a scale of its own, whatever that of people is."""
    judges, truth = scores_and_truth(path, name, scale=scale, scorers=scorers)
    settings = replace(settings, human_scale=truth.scales[name])
    about = {"scores": str(path), "truth": name}
    return AgreementReport(about | compared(judges, truth, settings))
