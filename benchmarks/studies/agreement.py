"""`plait agreement`: how far judges agree with people's annotations, or with known truth.

Where the data of a run say themselves which answers people chose, see `choices`.

content = agreement_report(Path("runs/x"), Path("human.csv"), AgreementSettings())  # JSON
for table in brief_tables(content): ...                                       # in short
for table in tables(content): ...                                             # all of it
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from plait.benchmarks.results.numbers import NumberForm, estimate_of
from plait.benchmarks.results.table import ResultTable, TableCell, TableColumn
from plait.benchmarks.studies import choices
from plait.benchmarks.studies.annotations import (
    About,
    Form,
    RatedDocuments,
    Unit,
    Value,
    ends_of,
    kind_of,
    mmies_category,
    read_ratings,
    read_scores,
)
from plait.benchmarks.terminal import command_text
from plait.benchmarks.wording import quantity
from plait.generators.buckets import AnyPath
from plait.generators.errors import UsageError
from plait.scorers.base import bounds
from plait.scorers.statistics.agreement import COEFFICIENTS, ScoredPair, agreement
from plait.scorers.statistics.alpha import Level, krippendorff
from plait.scorers.statistics.estimate import DRAWS
from plait.scorers.statistics.preferences import (
    Measures,
    Vote,
    creation_agreement,
    creation_people,
    each_and_the_others,
    mllm_agreement,
    mllm_people,
)

EXAMPLES = 5
TRUTH = "truth:"
MMIES_SCALE = "0-6"
"""Of people's scores where nothing else is said."""
Rated = Mapping[Unit, Mapping[str, Value]]
"""By unit, the value that each annotator gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementSettings:
    """The settings of `plait agreement`."""

    human_scale: str = ""
    """Of people's scores; by default MMIE's, 0 to 6, or that of the criterion."""
    criterion: str = ""
    """The one that both are compared on; by default the whole score."""
    rescale: bool = True
    """Map judges' scores first, linearly from their scale to people's. The paper compares
    CLIPScore as it is (its MAE of 2.25 fits values below 1)."""
    draws: int = DRAWS

    @property
    def people_scale(self) -> str:
        """The scale of people's scores."""
        return self.human_scale or MMIES_SCALE


def agreement_report(
    scores_path: AnyPath,
    human_path: Path | None,
    settings: AgreementSettings,
    scorers: Collection[str] = (),
) -> Mapping[str, Any]:
    """Return the agreement of the scores in `scores_path` with people's in `human_path`.

    `truth:NAME` in place of a file is the scorer of that name: known truth of the run.
    None are the people's choices that came with the data of the run (`choices`).
    Scores come from a run directory, or from a CSV or JSON file, on the scale of the
    people unless a column `scale` states another. Plain data.
    UsageError for files that cannot be read, rows that break a rule, and no document in
    common.
    """
    of_truth = human_path is not None and str(human_path).startswith(TRUTH)
    if settings.criterion and (human_path is None or of_truth):
        raise UsageError("a criterion is compared with people's scores: name their file")
    if human_path is None:
        return choices.choices_report(scores_path, scorers)
    scale = settings.people_scale
    criterion = settings.criterion
    if str(human_path).startswith(TRUTH) and not human_path.exists():
        return _with_truth(scores_path, str(human_path), scorers, settings)
    judges = read_scores(scores_path, scale=scale, scorers=scorers, criterion=criterion)
    if criterion and not settings.human_scale:
        scale = _scale_of(criterion, judges)
    people = read_ratings(
        human_path,
        rater="annotator",
        unnamed="people",
        scale=scale,
        known=judges.about,
        criterion=criterion,
    )
    about = {"scores": str(scores_path), "human": str(human_path)}
    if criterion:
        about["criterion"] = criterion
    return about | compare(judges, people, replace(settings, human_scale=scale))


def _scale_of(criterion: str, judges: RatedDocuments) -> str:
    """Return the one scale that judges give a criterion; UsageError for several."""
    scales = sorted(set(judges.scales.values()))
    if len(scales) > 1:
        named = ", ".join(f"{name} {scale}" for name, scale in judges.scales.items())
        raise UsageError(
            f"criterion {criterion!r} is on several scales ({named}): say with --scale on "
            "which people's scores are, or name one judge with --scorer"
        )
    return scales[0] if scales else MMIES_SCALE


def _with_truth(
    path: AnyPath, name: str, scorers: Collection[str], settings: AgreementSettings
) -> Mapping[str, Any]:
    """Return the same with truth, which has a scale of its own, in the place of people."""
    ratings = read_scores(path, scale=MMIES_SCALE)
    if name not in ratings.raters:
        names = ", ".join(sorted(ratings.raters)) or "none"
        raise UsageError(
            f"{path} has no scores of {name!r}; its scorers: {names}; "
            f"`{command_text('plait', 'score', path, '--scorer', name)}` adds it"
        )
    others = (set(scorers) or ratings.raters) - {name}
    if not others:
        raise UsageError(f"{path} has no other scorer to compare with {name!r}")
    settings = replace(settings, human_scale=ratings.scales[name])
    measures = compare(ratings.by(sorted(others)), ratings.by([name]), settings)
    return {"scores": str(path), "truth": name} | measures


def compare(
    judges: RatedDocuments, people: RatedDocuments, settings: AgreementSettings
) -> dict[str, Any]:
    """Return all measures as plain data; UsageError where nothing matches.

    Where people compared answers, each score is a vote for the better of two.
    """
    pairs = {unit for unit in people.about if unit.baseline}
    if judges.form == "score" and people.form == "vote" and pairs:
        judges = judges.votes(pairs)
    if judges.form == "score" and people.form == "vote":
        raise UsageError(
            "a vote needs the column baseline, the system beside which the answer was "
            "shown, to be compared with scores of both"
        )
    if judges.form != people.form:
        raise UsageError(
            f"people gave each a {people.form} and judges a {judges.form}; both files need "
            "the same one of the columns score, preference and vote"
        )
    rated: dict[Unit, dict[str, Value]] = defaultdict(dict)
    for annotator, values in sorted(people.values.items()):
        for unit, value in values.items():
            rated[unit][annotator] = value
    _check_overlap(rated, judges)
    measured = []
    for name in sorted(judges.raters):
        plain = {"judge": name, "counts": _counts(name, judges, rated)}
        measured.append(plain | _measures(name, judges, people, rated, settings))
    return {
        "form": people.form,
        "human_scale": settings.people_scale if people.form == "score" else None,
        "annotators": sorted(people.values),
        "annotated": len(rated),
        "ratings": sum(map(len, rated.values())),
        "blank": sum(map(len, people.missing.values())),
        "judges": measured,
        "people": _people(people.form, rated, settings),
        # Nobody agrees or disagrees with themselves.
        "alpha": _alpha(people, rated, settings) if len(people.values) > 1 else {},
    }


def _check_overlap(rated: Rated, judges: RatedDocuments) -> None:
    """Raise UsageError where no annotated document is one that a judge was to score."""
    judged: list[Collection[Unit]] = [*judges.values.values(), *judges.missing.values()]
    if not all(rated.keys().isdisjoint(units) for units in judged):
        return
    examples = []
    for units in (rated, judges.about):
        if units:
            first = min(units)
            examples.append(f"{first.id} of {first.system}")
    raise UsageError(
        f"of {len(rated):,} annotated documents none is among the {len(judges.about):,} "
        f"to be scored; the first of each: {' / '.join(examples) or 'none'}"
    )


def _counts(name: str, judges: RatedDocuments, rated: Rated) -> dict[str, Any]:
    """Return what became of every annotated answer at one judge."""
    scored = judges.values.get(name, {})
    missing = judges.missing.get(name, {})
    ids = {unit.id for unit in judges.about}
    systems = {unit.system for unit in judges.about}
    no_score = Counter[str]()
    for unit, why in missing.items():
        if unit in rated:
            no_score[why] += 1
    unmatched = sorted(rated.keys() - scored.keys() - missing.keys())
    reasons = Counter[str]()
    for unit in unmatched:
        reasons[_why_unmatched(unit, ids, systems)] += 1
    return {
        "annotated": len(rated),
        "matched": sum(unit in scored for unit in rated),
        "no_score": dict(sorted(no_score.items())),
        "unmatched": dict(sorted(reasons.items())),
        "unmatched_examples": [list(unit) for unit in unmatched[:EXAMPLES]],
        "not_annotated": sum(unit not in rated for unit in scored),
    }


def _why_unmatched(unit: Unit, ids: set[str], systems: set[str]) -> str:
    if unit.id not in ids:
        return "unknown id"
    if unit.system not in systems:
        return "unknown system"
    return "other repeat or baseline" if unit.repeat or unit.baseline else "not scored"


class _Match(NamedTuple):
    """What a judge and people said of one answer."""

    unit: Unit
    judge: Value
    people: Mapping[str, Value]
    """By annotator."""


def _measures(
    name: str,
    judges: RatedDocuments,
    people: RatedDocuments,
    rated: Rated,
    settings: AgreementSettings,
) -> dict[str, Any]:
    """Return a judge's agreement with people, by the measures of the benchmark at hand.

    Preferences are those of Creation-MMBench, votes those of MLLM-Bench, scores MMIE's.
    """
    judged = judges.values.get(name, {})
    matches = []
    for unit in sorted(rated):
        if unit in judged:
            matches.append(_Match(unit, judged[unit], rated[unit]))
    if people.form == "preference":
        preferences = []
        for match in matches:
            own = float(match.judge)
            preferences.append((match.unit.id, own, _numbers(match.people)))
        return {"agreement": _plain(creation_agreement(preferences))}
    if people.form == "vote":
        votes = []
        for match in matches:
            vote = cast(Vote, match.judge)
            votes.append((match.unit.id, vote, _votes(match.people)))
        return {"agreement": _all_plain(mllm_agreement(votes))}
    return _score_measures(name, matches, judges, people, settings)


def _score_measures(
    name: str,
    matches: Iterable[_Match],
    judges: RatedDocuments,
    people: RatedDocuments,
    settings: AgreementSettings,
) -> dict[str, Any]:
    """Return the agreement of a judge's scores with the means of people's, by group."""
    scale = judges.scales.get(name, "")
    human_ends = ends_of(settings.people_scale)
    ends = bounds(scale)
    # A judge on people's own scale is left as it is, to the last digit.
    mapped = settings.rescale and ends is not None and ends != human_ends
    pairs = []
    for match in matches:
        score = float(match.judge)
        if mapped and ends is not None:
            score = _map_linearly(score, ends, human_ends)
        mean = float(np.mean([*_numbers(match.people).values()]))
        about = _about(match.unit, judges, people)
        pair = ScoredPair(
            query=match.unit.id,
            category=about.category,
            kind=about.kind,
            judge=score,
            human=mean,
        )
        pairs.append(pair)
    # A judge without ends of its scale cannot be mapped: its mean absolute error would
    # compare numbers of two scales.
    one_scale = not settings.rescale or ends is not None
    groups = agreement(pairs, one_scale=one_scale, draws=settings.draws)
    plain = [group.as_json() for group in groups]
    return {"scale": scale, "rescaled": mapped, "groups": plain}


def _map_linearly(
    score: float, ends: tuple[float, float], onto: tuple[float, float]
) -> float:
    """Return the place on the scale `onto` of a score on the scale between `ends`."""
    share = (score - ends[0]) / (ends[1] - ends[0])
    return onto[0] + share * (onto[1] - onto[0])


def _about(unit: Unit, judges: RatedDocuments, people: RatedDocuments) -> About:
    """The group as people's file states it, else as the judges' side does, else by name."""
    ours = people.about.get(unit, About())
    theirs = judges.about.get(unit, About())
    return About(
        category=ours.category or theirs.category or mmies_category(unit.id) or "unknown",
        kind=ours.kind or theirs.kind or kind_of(unit.system),
    )


def _people(form: Form, rated: Rated, settings: AgreementSettings) -> dict[str, Any]:
    """Return how far people agree among themselves, by annotator or by two of them."""
    if form == "vote":
        votes = [(unit.id, _votes(values)) for unit, values in rated.items()]
        return _all_plain(mllm_people(votes))
    numbers = [(unit.id, _numbers(values)) for unit, values in rated.items()]
    if form == "preference":
        return _all_plain(creation_people(numbers))
    pairs: dict[str, list[ScoredPair]] = defaultdict(list)
    for query, values in numbers:
        for name, own, others in each_and_the_others(values):
            # Each in turn stands in the judge's place, and the others are the people.
            pair = ScoredPair(query=query, category="", kind="", judge=own, human=others)
            pairs[name].append(pair)
    coefficients = {}
    for name, own_pairs in sorted(pairs.items()):
        # The first group is that of all answers.
        overall = agreement(own_pairs, draws=settings.draws)[0]
        coefficients[name] = overall.as_json()["coefficients"]
    return coefficients


def _alpha(
    people: RatedDocuments, rated: Rated, settings: AgreementSettings
) -> dict[str, Any]:
    """Return Krippendorff's alpha of what people were asked for, and of every ruling."""
    ruled: dict[str, dict[Unit, dict[str, Value]]] = {}
    for annotator, by_unit in people.rulings.items():
        for unit, rulings in by_unit.items():
            for name, ruling in rulings.items():
                ruled.setdefault(name, {}).setdefault(unit, {})[annotator] = ruling
    given: dict[str, Rated] = {people.form: rated, **ruled}
    shown = {}
    for name, units in given.items():
        # Rulings and votes are choices without an order.
        level: Level = "nominal" if name in ruled or name == "vote" else "interval"
        ratings = [(unit.id, values) for unit, values in units.items()]
        alpha = krippendorff(ratings, level, settings.draws)
        shown[name] = {"level": level} | alpha.as_json()
    return shown


def _numbers(values: Mapping[str, Value]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}


def _votes(values: Mapping[str, Value]) -> Mapping[str, Vote]:
    return cast(Mapping[str, Vote], values)


def _plain(measures: Measures) -> dict[str, Any]:
    return {name: estimate.as_json() for name, estimate in measures.items()}


def _all_plain(by_rater: Mapping[str, Measures]) -> dict[str, Any]:
    return {who: _plain(measures) for who, measures in by_rater.items()}


TITLES = {
    **{name: coefficient.title for name, coefficient in COEFFICIENTS.items()},
    "consistency": "Consistency %",
    "decided": "both decided %",
    "all": "all %",
}
Cells = Mapping[str, Mapping[str, Any]]
Row = tuple[TableCell, Cells]
BRIEF = ("pearson", "spearman", "kappa", "mae", "consistency", "decided", "all")
"""Measures that a brief table shows; coefficients of `COEFFICIENTS` have others beside."""


class BriefRow(NamedTuple):
    """The measures of one judge on one group of answers, or with one rater."""

    judge: str
    group: str
    measures: Cells
    is_first: bool
    """Whether it is the judge's row of all answers."""


def brief_tables(content: Mapping[str, Any]) -> list[ResultTable]:
    """Return the judges side by side, and below each what has answers enough.

    Of groups, raters and criteria those are shown of which an interval can be given.
    """
    if content["form"] == "choice":
        return choices.brief_tables(content)
    shown = []
    hidden = 0
    for row in _brief_rows(content):
        if row.is_first or has_interval(row.measures.values()):
            shown.append(row)
        else:
            hidden += 1
    names = [name for name in shown[0].measures if name in BRIEF]
    lines = []
    reasons: dict[str, None] = {}
    for row in shown:
        lines.append(_brief_cells(row, names))
        reasons |= _reasons(row.measures[name] for name in names)
    head = ["judge", "", "answers", *(TITLES[name] for name in names)]
    notes = [*_brief_notes(content, hidden), *reasons]
    title = f"Agreement with {content.get('truth') or 'people'}"
    table = ResultTable.of(title, head, lines, notes)
    alphas = {}
    for name, alpha in content["alpha"].items():
        if name == content["form"] or has_interval([alpha]):
            alphas[name] = alpha
    return [table, _alphas(alphas)] if alphas else [table]


def _reasons(estimates: Iterable[Mapping[str, Any]]) -> dict[str, None]:
    """Return as notes, each once, why estimates have no value; as the keys of a dict."""
    # A set would not keep the order of the estimates.
    reasons: dict[str, None] = {}
    for estimate in estimates:
        if "reason" in estimate:
            reasons[f"- {estimate['reason']}"] = None
    return reasons


def has_interval(estimates: Iterable[Mapping[str, Any]]) -> bool:
    """Whether one of `estimates`, plain data, has an interval."""
    return any(estimate["ci95"] for estimate in estimates)


def _brief_rows(content: Mapping[str, Any]) -> Iterator[BriefRow]:
    for judge in content["judges"]:
        for number, (label, measures) in enumerate(_rows(judge)):
            yield BriefRow(judge["judge"], label.text, measures, is_first=not number)
    for who, measures in content["people"].items():
        yield BriefRow("people", who, measures, is_first=False)


def _brief_cells(row: BriefRow, names: Iterable[str]) -> list[TableCell]:
    answers = max(measure["n"] for measure in row.measures.values())
    cells = _value_cells(row.measures, names)
    return [TableCell(row.judge), TableCell(row.group), TableCell(f"{answers:,}"), *cells]


def _value_cells(measures: Cells, names: Iterable[str]) -> list[TableCell]:
    """Return the cells of the named measures, in the order of the names."""
    form = NumberForm(3)
    return [TableCell.of(estimate_of(measures[name], "value"), form) for name in names]


def _brief_notes(content: Mapping[str, Any], hidden: int) -> Iterator[str]:
    """Yield what judges did not score, and what `--all` shows besides."""
    lost: dict[str, list[str]] = defaultdict(list)
    for judge in content["judges"]:
        counts = judge["counts"]
        missing = {**counts["no_score"], **counts["unmatched"]}
        if missing:
            lost[", ".join(_count_reasons(missing))].append(judge["judge"])
    for told, names in lost.items():
        yield f"Of {content['annotated']:,} answers {told}: {', '.join(names)}."
    rest = f"{hidden:,} groups too small for an interval, and " if hidden else ""
    yield f"--all shows {rest}every measure of every group."


def _count_reasons(counts: Mapping[str, int]) -> list[str]:
    """Return reasons for missing scores in words, each with its count."""
    return [f"{n:,} {why}" for why, n in counts.items()]


def tables(content: Mapping[str, Any]) -> list[ResultTable]:
    """Return one table per judge, and one of the people among themselves.

    Of choices, the judges are side by side.
    """
    if content["form"] == "choice":
        return choices.tables(content)
    shown = [_judge(judge, content) for judge in content["judges"]]
    if content["people"]:
        title = "people: each against the mean of the others"
        if content["form"] == "vote":
            title = "people: every two"
        shown.append(_table(title, "", _rows_by_rater(content["people"])))
    if content["alpha"]:
        shown.append(_alphas(content["alpha"]))
    return shown


def _alphas(alphas: Mapping[str, Mapping[str, Any]]) -> ResultTable:
    form = NumberForm(3)
    rows = []
    for name, plain in alphas.items():
        alpha = TableCell.of(estimate_of(plain, "value"), form)
        rows.append([TableCell(name, plain["level"]), alpha, TableCell(f"{plain['n']:,}")])
    title = "agreement among people: Krippendorff's alpha"
    notes = [*_reasons(alphas.values())]
    return ResultTable.of(title, ["", "alpha", "rated by several"], rows, notes)


def _judge(judge: Mapping[str, Any], content: Mapping[str, Any]) -> ResultTable:
    truth = content.get("truth")
    mapped = f", mapped from {judge['scale']}" if judge.get("rescaled") else ""
    title = f"{judge['judge']}{mapped}: agreement with {truth or 'people'}"
    return _table(title, _caption(judge["counts"], truth, content["blank"]), _rows(judge))


def _rows(judge: Mapping[str, Any]) -> list[Row]:
    """Return a judge's measures by group of answers or by rater; first those of all."""
    if "groups" in judge:
        return [(_group(group), group["coefficients"]) for group in judge["groups"]]
    measures = judge["agreement"]
    # Preferences are compared with the mean alone, and votes with each rater.
    if "mae" in measures:
        return [(TableCell("the mean of the people"), measures)]
    return _rows_by_rater(measures)


def _rows_by_rater(measures: Mapping[str, Cells]) -> list[Row]:
    return [(TableCell(rater), cells) for rater, cells in measures.items()]


def _group(group: Mapping[str, Any]) -> TableCell:
    name = group["category"] or "all categories"
    if group["kind"]:
        name = f"{name}, {group['kind']}"
    queries = (
        f"{quantity(group['pairs'], 'answer')} to {quantity(group['queries'], 'query')}"
    )
    return TableCell(name, queries)


def _caption(counts: Mapping[str, Any], truth: str | None, blank: int) -> str:
    """Every annotated document by outcome; of truth, also those that it has no score of."""
    told = _count_reasons(counts["no_score"])
    if truth:
        scored = f"{counts['matched']:,} of {counts['annotated']:,} answers with {truth}"
        return ", ".join([scored, *told, f"{blank:,} more have none"])
    scored = f"{counts['matched']:,} of {counts['annotated']:,} annotated answers"
    told += _count_reasons(counts["unmatched"])
    told.append(f"{counts['not_annotated']:,} more not annotated")
    caption = ", ".join([scored, *told])
    examples = [f"{id} of {system}" for id, system, *_ in counts["unmatched_examples"]]
    return f"{caption} (unmatched: {'; '.join(examples)})" if examples else caption


def _table(title: str, caption: str, rows: Sequence[Row]) -> ResultTable:
    """Return a table with one line for each row, whose measures are those of the first."""
    names = [*rows[0][1]] if rows else []
    head = [TableColumn("")]
    for name in names:
        head.append(TableColumn(TITLES[name], numeric=True))
    lines = []
    reasons: dict[str, None] = {}
    for who, measures in rows:
        lines.append([who, *_value_cells(measures, names)])
        reasons |= _reasons(measures.values())
    notes = [caption, *reasons] if caption else [*reasons]
    return ResultTable.of(title, head, lines, notes)
