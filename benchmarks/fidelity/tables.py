"""The tables of a fidelity report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from benchmarks.fidelity.comparison import FidelityFigure, Figures, WayFidelity
from benchmarks.fidelity.pictures import share_text
from benchmarks.fidelity.report import FidelityReport
from benchmarks.fidelity.scores import WayScore
from benchmarks.fidelity.ways import flat
from benchmarks.results.table import ResultTable, TableCell, TableColumn
from benchmarks.results.wording import decimals
from cluster.plan import outcome_name
from scorers.statistics.estimate import Estimate

NONE = TableCell("-")
Show = Callable[[FidelityFigure], TableCell]


def tables_of(report: FidelityReport) -> list[ResultTable]:
    """Ways, then texts, pictures, scores and gates as far as there are any."""
    tables = [ways_table(report)]
    tables += [texts_table(report)] if report.has_text else []
    tables += [pictures_table(report)] if report.has_pictures else []
    tables += [scores_table(report, s) for s in dict.fromkeys(_scorers(report))]
    return tables + ([gates_table(report)] if report.gates else [])


def _scorers(report: FidelityReport) -> Iterable[str]:
    return (score.scorer for score in report.scores)


# ------------------------------------------------------------------------------ ways


def ways_table(report: FidelityReport) -> ResultTable:
    """What each way runs, how long it took, and what came of it."""
    head = ["way", "system", "weights", "settings", "done", "failed", "skipped", "s"]
    return ResultTable(
        title=report.title,
        columns=[TableColumn(name, numeric=i > 3) for i, name in enumerate(head)],
        rows=[_way_row(way) for way in report.ways],
        notes=[
            "The first way is the reference. Answers of all runs; s: the fastest run over "
            "all queries, without loading.",
            *report.remarks,
        ],
    )


def _way_row(way: WayFidelity) -> list[TableCell]:
    run = way.answers.way
    counts = Counter(outcome_name(o) for made in way.answers.rounds for o in made)
    seconds = way.answers.seconds
    cells = [
        way.label,
        run.name,
        "its own" if all(s.weights is None for s in run.stages) else run.weights,
        ", ".join(f"{k}={v}" for k, v in flat(run.settings).items()) or "-",
        *(f"{counts[kind]:,}" for kind in ("done", "failed", "skipped")),
        f"{min(seconds):.2f}" if seconds else "not run",
    ]
    return [TableCell(text) for text in cells]


# ---------------------------------------------------------------- texts and pictures


def _share(figure: FidelityFigure) -> TableCell:
    count = round(figure.value * figure.n)
    return TableCell(f"{figure.value:.1%}", f"{count:,}/{figure.n:,}")


def _number(form: str) -> Show:
    return lambda figure: TableCell(format(figure.value, form))


def _with_worst(form: str, *, lowest: bool = False) -> Show:
    """The mean, and the worst value behind it."""

    def show(figure: FidelityFigure) -> TableCell:
        worst = figure.least if lowest else figure.most
        word = "min" if lowest else "max"
        return TableCell(format(figure.value, form), f"{word} {worst:{form}}")

    return show


def _median(figure: FidelityFigure) -> TableCell:
    low, middle, high = figure.quartiles
    return TableCell(f"{middle:,.0f}", f"[{low:,.0f}, {high:,.0f}] n={figure.n:,}")


TEXTS: Mapping[str, tuple[str, Show]] = {
    "equal": ("text.equal", _share),
    "first difference": ("text.first_difference", _median),
    "common beginning": ("text.prefix", _number(".1%")),
    "same order": ("document.same_shape", _share),
}
PICTURES: Mapping[str, tuple[str, Show]] = {
    "identical": ("picture.identical", _share),
    "equal pixels": (
        "picture.equal_pixels",
        lambda figure: TableCell(share_text(figure.value)),
    ),
    "mean difference": ("picture.mean_difference", _number(".3g")),
    "largest": ("picture.largest_difference", _number(".0f")),
    "SSIM": ("picture.ssim", _with_worst(".6f", lowest=True)),
    "CLIP distance": ("picture.clip_distance", _with_worst(".3g")),
    "LPIPS": ("picture.lpips", _with_worst(".3g")),
}


def texts_table(report: FidelityReport) -> ResultTable:
    """How far texts agree."""
    measures = dict(TEXTS)
    if not report.has_pictures:
        del measures["same order"]
    again = {"equal to itself": ("text.equal", _share)}
    notes = [
        "First difference: characters before it, median and quartiles of the texts that "
        "differ. Common beginning: share of the longer text before it, mean. Equal to "
        "itself: the way run again with the same seeds.",
    ]
    return _compared("Texts", report, measures, again, notes)


def pictures_table(report: FidelityReport) -> ResultTable:
    """How far pictures agree."""
    measures = {
        heading: measure
        for heading, measure in PICTURES.items()
        if any(_known(way, measure[0]) for way in report.ways)
    }
    again = {
        "identical to itself": ("picture.identical", _share),
        "largest to itself": ("picture.largest_difference", _number(".0f")),
    }
    notes = [
        "Identical: every pixel is the same. Differences of channels, 0 to 255. SSIM, CLIP "
        "distance (1 - cosine) and LPIPS: means, and the worst picture.",
    ]
    other = [(w.label, _unequal_sizes(w), w.unpaired) for w in report.ways]
    notes += [f"{way}: {n:,} pictures of another size" for way, n, _ in other if n]
    notes += [f"{way}: {n:,} pictures in one answer only" for way, _, n in other if n]
    return _compared("Pictures", report, measures, again, notes)


def _known(way: WayFidelity, name: str) -> bool:
    both = (way.figures, way.repeat_figures)
    return any(figures and figures[name] for figures in both)


def _unequal_sizes(way: WayFidelity) -> int:
    return sum(not p.same_size for pair in way.pairs for p in pair.pictures)


def _compared(
    title: str,
    report: FidelityReport,
    measures: Mapping[str, tuple[str, Show]],
    again: Mapping[str, tuple[str, Show]],
    notes: list[str],
) -> ResultTable:
    """One line per way: against the reference, then against itself."""
    if not any(way.repeat_figures for way in report.ways):
        again = {}
    head = ["way", *measures, *again, "not compared"]
    rows = []
    for way in report.ways:
        cells = [_cell(way.figures, *measure) for measure in measures.values()]
        cells += [_cell(way.repeat_figures, *measure) for measure in again.values()]
        lost = "-" if way is report.reference else f"{way.lost:,}"
        lost = "all" if way.answers.problem else lost
        label = f"{way.label} (reference)" if way is report.reference else way.label
        rows.append([TableCell(label), *cells, TableCell(lost)])
    columns = [TableColumn(name, numeric=i > 0) for i, name in enumerate(head)]
    return ResultTable(title=title, columns=columns, rows=rows, notes=notes)


def _cell(figures: Figures | None, name: str, show: Show) -> TableCell:
    figure = figures[name] if figures else None
    return NONE if figure is None else show(figure)


# -------------------------------------------------------------------- scores and gates


def scores_table(report: FidelityReport, scorer: str) -> ResultTable:
    """What the ways do to one column of a leaderboard."""
    scores = [score for score in report.scores if score.scorer == scorer]
    head = ["way", "mean", "difference", "to itself", "n", "without a score"]
    about = f"{scores[0].scale}, {scores[0].direction} is better"
    return ResultTable(
        title=f"{scorer} ({about})",
        columns=[TableColumn(name, numeric=i > 0) for i, name in enumerate(head)],
        rows=[_score_row(score) for score in scores],
        notes=[
            "Difference: this way's mean minus the reference's, paired by query, 95% "
            "intervals. To itself: the second run minus the first.",
            *_reasons(scores),
            *(
                f"{score.way}: {count:,} without a score: {reason}"
                for score in scores
                for reason, count in score.without.items()
            ),
        ],
    )


def _score_row(score: WayScore) -> list[TableCell]:
    places = decimals(score.scale)
    compared = score.mean if score.difference is None else score.difference
    return [
        TableCell(score.way),
        _estimate(score.mean, f".{places}f"),
        _estimate(score.difference, f"+.{places + 1}f"),
        _estimate(score.repeat, f"+.{places + 1}f"),
        TableCell(f"{compared.n:,}"),
        TableCell(f"{sum(score.without.values()):,}"),
    ]


def _estimate(estimate: Estimate | None, form: str) -> TableCell:
    if estimate is None or estimate.value is None:
        return NONE
    if estimate.ci95 is None:
        return TableCell(format(estimate.value, form))
    low, high = estimate.ci95
    return TableCell(format(estimate.value, form), f"[{low:{form}}, {high:{form}}]")


def _reasons(scores: Iterable[WayScore]) -> list[str]:
    """Why differences have no interval."""
    without = {
        s.difference.reason for s in scores if s.difference and not s.difference.ci95
    }
    return [f"no interval: {reason}" for reason in sorted(without) if reason]


def gates_table(report: FidelityReport) -> ResultTable:
    """Which thresholds are met."""
    rows = [
        [
            gate.gate.text,
            gate.way,
            "-" if gate.value is None else f"{gate.value:.6g}",
            "met" if gate.met else f"NOT met{gate.reason and ': '}{gate.reason}",
        ]
        for gate in report.gates
    ]
    return ResultTable.of("Gates", ["gate", "way", "value", ""], rows)
