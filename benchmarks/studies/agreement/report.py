"""Agreement of judges with people: the report, and its tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.results.numbers import NumberForm, estimate_of
from benchmarks.results.table import ResultTable, TableCell, TableColumn
from benchmarks.studies.agreement.comparison import AgreementSettings, compared
from benchmarks.studies.agreement.ratings import read_ratings, read_scores
from generators.errors import UsageError
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
        rows=[[who, *(_cell(n, by_name[n]) for n in names)] for who, by_name in lines],
        notes=[note for note in (caption, *(f"- {reason}" for reason in reasons)) if note],
    )


def _cell(name: str, estimate: Mapping[str, Any]) -> TableCell:
    form = NumberForm.of_measure(TITLES[name], digits=3)
    return TableCell.of(estimate_of(estimate, "value"), form)


TRUTH = "truth:"


def agreement_report(
    scores_path: Path,
    human_path: Path,
    *,
    scorers: Collection[str] = (),
    scores_scale: str | None = None,
    settings: AgreementSettings | None = None,
) -> Mapping[str, Any]:
    """Agreement of the scores in `scores_path` with people's in `human_path`.

    `truth:NAME` in place of a file is the scorer of that name: known truth of the run.
    Scores come from a run directory, or from a CSV or JSON file on `scores_scale` (by
    default that of the people, unless a column `scale` states another). Plain data.
    UsageError for files that cannot be read, rows that break a rule, and no document in
    common.
    """
    settings = settings or AgreementSettings()
    scale = scores_scale or settings.human_scale
    if str(human_path).startswith(TRUTH) and not human_path.exists():
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
    return about | compared(judges, people, settings)


def _with_truth(
    path: Path, name: str, scorers: Collection[str], scale: str, settings: AgreementSettings
) -> Mapping[str, Any]:
    """The same with truth, which has a scale of its own, in the place of people."""
    ratings = read_scores(path, scale=scale)
    if name not in ratings.raters:
        names = ", ".join(sorted(ratings.raters)) or "none"
        raise UsageError(
            f"{path} has no scores of {name!r}; its scorers: {names}; "
            f"`plait score {path} --scorer {name}` adds it"
        )
    others = (set(scorers) or ratings.raters) - {name}
    if not others:
        raise UsageError(f"{path} has no other scorer to set beside {name!r}")
    settings = replace(settings, human_scale=ratings.scales[name])
    measures = compared(ratings.by(sorted(others)), ratings.by([name]), settings)
    return {"scores": str(path), "truth": name} | measures
