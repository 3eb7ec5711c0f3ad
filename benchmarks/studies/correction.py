"""What `plait correct` found: one value, with its tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from plait.benchmarks.results.numbers import NumberForm
from plait.benchmarks.results.table import ResultTable, TableCell, TableColumn
from plait.benchmarks.wording import quantity
from plait.scorers.statistics.corrected import Corrected
from plait.scorers.statistics.estimate import Estimate
from plait.scorers.statistics.rogan_gladen import RoganGladen

EVEN = 50.0
"""The win rate of a system that is as good as the other."""
_PERCENT = NumberForm(1)
_ABOUT = (
    "Corrected: the mean rating of all answers, by ratings and judge together, with 95% "
    "intervals by query. The judge's own interval says nothing of how wrong it is. Lambda: "
    "how far the judge is trusted, from 0 (ratings alone) to 1."
)
_ABOUT_NEEDED = (
    "More ratings: how many more, drawn as these were, would show the difference with "
    "power 0.8 if it is as large as the one seen, which is mostly larger than the true one."
)
_AT_ITS_LIMIT = (
    "Lambda is at its limit of 1 for {}: the judge's scores lie closer together than "
    "people's, and might help more on a scale of which they use the whole."
)


@dataclass(frozen=True, slots=True)
class StratumShare:
    """How many answers of a stratum were rated."""

    name: str
    answers: int
    rated: int


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Correction:
    """A judge's means, differences or win rates, corrected by people's ratings or votes."""

    scorer: str
    form: Literal["scores", "votes"]
    """What people gave."""
    scale: str
    """Of people's scores; of win rates 0-100."""
    drawn: str
    """How the rated answers were chosen, and who says so."""
    raters: int
    systems: Mapping[str, Corrected] = field(default_factory=dict)
    """The mean rating of each system."""
    pairs: Mapping[tuple[str, str], Corrected] = field(default_factory=dict)
    """The mean rating of the first system less that of the second, by their names."""
    win_rates: Mapping[tuple[str, str], Corrected] = field(default_factory=dict)
    """How often the first answers better than the second, in percent; ties are half."""
    yes_no: Mapping[str, RoganGladen] = field(default_factory=dict)
    """Of each system, where people and judge only say yes or no."""
    strata: Sequence[StratumShare] = ()
    notes: Sequence[str] = ()
    """What was left out, and why."""

    @property
    def tables(self) -> list[ResultTable]:
        """By system, by two systems, and what else there is."""
        found = []
        if self.systems:
            found.append(self._systems_table)
        if self.pairs:
            found.append(self._pairs_table)
        if self.win_rates:
            found.append(self._win_rates_table)
        if self.yes_no:
            found.append(self._yes_no_table)
        if self.strata:
            found.append(self._strata_table)
        return found

    @property
    def remarks(self) -> list[str]:
        """What was left out, a sentence each."""
        return [f"{note[0].upper()}{note[1:]}." for note in self.notes]

    @property
    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        systems = []
        for name, one in self.systems.items():
            systems.append({"system": name, **_plain(one)})
        yes_no = []
        for name, share in self.yes_no.items():
            yes_no.append({"system": name, **_plain_shares(share)})
        strata = []
        for own in self.strata:
            about = {"stratum": own.name, "answers": own.answers, "rated": own.rated}
            strata.append(about)
        return {
            "scorer": self.scorer,
            "form": self.form,
            "scale": self.scale,
            "drawn": self.drawn,
            "raters": self.raters,
            "systems": systems,
            "pairs": [*_plain_pairs(self.pairs, 0.0)],
            "win_rates": [*_plain_pairs(self.win_rates, EVEN)],
            "yes_no": yes_no,
            "strata": strata,
            "notes": [*self.notes],
        }

    @property
    def _drawn_note(self) -> str:
        return f"Rated answers: {self.drawn}."

    @property
    def _systems_table(self) -> ResultTable:
        form = NumberForm.of(self.scale)
        head = [
            TableColumn("system"),
            *_number_columns("judge", "ratings alone"),
            TableColumn("corrected", "higher", numeric=True),
            *_number_columns("lambda", "rated", "of", "worth"),
        ]
        rows = []
        for name, one in self.systems.items():
            rows.append([TableCell(name), *_cells(one, form), *_counts(one)])
        notes = [self._drawn_note, _ABOUT, *_worth(self.systems.items())]
        notes += _at_limit(self.systems)
        notes += _reasons(self.systems)
        title = f"{self.scorer} corrected by people ({self.scale})"
        return ResultTable.of(title, head, rows, notes)

    @property
    def _pairs_table(self) -> ResultTable:
        form = NumberForm(NumberForm.of(self.scale).digits, signed=True)
        numbers = ("judge", "ratings alone", "corrected", "rated", "worth")
        names = [TableColumn("system"), TableColumn("less")]
        head = [*names, *_number_columns(*numbers), TableColumn("apart"), _MORE]
        rows = []
        named = {}
        for (first, second), one in self.pairs.items():
            named[f"{first} less {second}"] = one
            _, rated, _, worth = _counts(one)
            cells = [*_cells(one, form), rated, worth, *_separation(one, 0.0)]
            rows.append([TableCell(first), TableCell(second), *cells])
        notes = [self._drawn_note, "Apart: whether the interval excludes 0.", _ABOUT_NEEDED]
        notes += _reasons(named)
        title = f"Differences between systems, {self.scorer} corrected by people"
        return ResultTable.of(title, head, rows, notes)

    @property
    def _win_rates_table(self) -> ResultTable:
        numbers = ("judge", "ratings alone", "corrected", "lambda", "rated", "of", "worth")
        names = [TableColumn("system"), TableColumn("against")]
        head = [*names, *_number_columns(*numbers), TableColumn("apart"), _MORE]
        rows = []
        named = {}
        for (first, second), one in self.win_rates.items():
            named[f"{first} against {second}"] = one
            cells = [*_cells(one, _PERCENT), *_counts(one), *_separation(one, EVEN)]
            rows.append([TableCell(first), TableCell(second), *cells])
        notes = [
            self._drawn_note,
            _ABOUT,
            *_worth(named.items()),
            "Ties are half a win. Apart: whether the interval excludes 50.",
            _ABOUT_NEEDED,
            *_at_limit(named),
            *_reasons(named),
        ]
        title = f"Win rates in percent, {self.scorer} corrected by people's votes"
        return ResultTable.of(title, head, rows, notes)

    @property
    def _yes_no_table(self) -> ResultTable:
        numbers = ("judge", "sensitivity", "specificity", "Rogan-Gladen")
        head = [TableColumn("system"), *_number_columns(*numbers)]
        rows = []
        # As the keys of a dict: each once, in their order.
        reasons: dict[str, None] = {}
        for name, one in self.yes_no.items():
            judged = None if one.judged is None else 100 * one.judged
            row = [TableCell(name), TableCell(_PERCENT.number(judged))]
            for part in (one.sensitivity, one.specificity, one.share):
                row.append(TableCell.of(_percent(part), _PERCENT))
                if part.reason:
                    reasons[f"{name}: {part.reason}."] = None
            rows.append(row)
        notes = [self._drawn_note, "Shares of yes in percent.", *reasons]
        title = f"Shares of yes, by the sensitivity and specificity of {self.scorer}"
        return ResultTable.of(title, head, rows, notes)

    @property
    def _strata_table(self) -> ResultTable:
        answers = sum(one.answers for one in self.strata)
        rated = sum(one.rated for one in self.strata)
        rows = []
        for one in self.strata:
            row = [
                one.name,
                f"{one.answers:,}",
                f"{one.rated:,}",
                f"{100 * (one.answers / answers):.1f}",
                f"{100 * (one.rated / max(rated, 1)):.1f}",
            ]
            rows.append(row)
        head = [
            TableColumn("stratum"),
            *_number_columns("answers", "rated", "% of answers", "% of ratings"),
        ]
        notes = [self._drawn_note, "Means weigh each stratum by its share of the answers."]
        return ResultTable.of("Ratings by stratum", head, rows, notes)

    def __repr__(self) -> str:
        found = len(self.systems) or len(self.win_rates)
        what = "systems" if self.systems else "pairs of systems"
        return f"Correction({self.scorer!r}: {found} {what})"

    def __str__(self) -> str:
        return "\n\n".join(map(str, [*self.tables, *self.remarks]))

    def _repr_html_(self) -> str:
        return "".join(table.html for table in self.tables)


_MORE = TableColumn("more ratings", numeric=True)


def _number_columns(*names: str) -> list[TableColumn]:
    return [TableColumn(name, numeric=True) for name in names]


def _cells(one: Corrected, form: NumberForm) -> list[TableCell]:
    return [TableCell.of(part, form) for part in (one.judge, one.ratings, one.corrected)]


def _counts(one: Corrected) -> list[TableCell]:
    """Return lambda, how many are rated, of how many, and what they are worth."""
    known = one.effective is not None
    lam = f"{one.lam:.2f}" if known else "-"
    worth = "-" if one.effective is None else f"{one.effective:,.0f}"
    return [*map(TableCell, (lam, f"{one.rated:,}", f"{one.answers:,}", worth))]


def _separation(one: Corrected, null: float) -> list[TableCell]:
    """Return whether the estimate is told apart from `null`, and how many more it takes."""
    if one.corrected.ci95 is None:
        return [TableCell("-"), TableCell("-")]
    needed = one.ratings_needed(null)
    if needed is None:
        # Rating all answers that are left would not be enough.
        more = f"over {one.answers - one.rated:,}"
    else:
        more = f"{needed - one.rated:,}"
    apart = "yes" if _is_apart(one, null) else "no"
    return [TableCell(apart), TableCell(more)]


def _is_apart(one: Corrected, null: float) -> bool:
    ends = one.corrected.ci95
    return ends is not None and not ends[0] <= null <= ends[1]


def _worth(named: Iterable[tuple[str, Corrected]]) -> Iterator[str]:
    """Yield what the column says, by its first row."""
    for name, one in named:
        if one.effective is not None:
            yield (
                "Worth: how many ratings alone would give as narrow an interval. "
                f"{quantity(one.rated, 'rating')} of {name} and the judge are worth "
                f"{one.effective:,.0f} ratings."
            )
            return


def _at_limit(named: Mapping[str, Corrected]) -> Iterator[str]:
    names = [name for name, one in named.items() if one.lam >= 1]
    if names:
        yield _AT_ITS_LIMIT.format(", ".join(names))


def _reasons(named: Mapping[str, Corrected]) -> Iterator[str]:
    for name, one in named.items():
        reasons = (one.ratings.reason, one.corrected.reason)
        for reason in dict.fromkeys(filter(None, reasons)):
            yield f"{name}: {reason}."


def _percent(share: Estimate) -> Estimate:
    """Return an estimate from 0 to 1 as one in percent."""
    ends = share.ci95 and (100 * share.ci95[0], 100 * share.ci95[1])
    value = None if share.value is None else 100 * share.value
    return Estimate(value, ends, share.n, share.reason, share.method)


def _plain(one: Corrected) -> dict[str, Any]:
    known = one.effective is not None
    return {
        "judge": one.judge.as_json("mean"),
        "ratings": one.ratings.as_json("mean"),
        "corrected": one.corrected.as_json("mean"),
        "lambda": round(one.lam, 6) if known else None,
        "rated": one.rated,
        "answers": one.answers,
        "effective": None if one.effective is None else round(one.effective, 3),
    }


def _plain_pairs(
    pairs: Mapping[tuple[str, str], Corrected], null: float
) -> Iterator[dict[str, Any]]:
    for (first, second), one in pairs.items():
        needed = one.ratings_needed(null)
        yield (
            {"system": first, "other": second}
            | _plain(one)
            | {"apart": _is_apart(one, null), "ratings_needed": needed}
        )


def _plain_shares(one: RoganGladen) -> dict[str, Any]:
    return {
        "judged": one.judged,
        "sensitivity": one.sensitivity.as_json("share"),
        "specificity": one.specificity.as_json("share"),
        "rogan_gladen": one.share.as_json("share"),
    }
