"""The result of `plait bench fidelity`: figures, remarks, gates, and all of it as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.fidelity.comparison import Figures, WayFidelity
from benchmarks.fidelity.gates import REPEAT, FidelityGate, GateResult, gate_results
from benchmarks.fidelity.scores import WayScore
from benchmarks.results.board import RANDOM
from generators.document import Sample


@dataclass(frozen=True, kw_only=True)
class FidelityReport:
    """Every figure of every way, the reference first."""

    name: str
    """The system that is measured."""
    samples: Sequence[Sample]
    ways: Sequence[WayFidelity]
    scores: Sequence[WayScore] = ()
    gates: Sequence[GateResult] = ()
    notes: Sequence[str] = ()
    """About data and instruments."""
    about: Mapping[str, Any]
    """Versions, hardware, command and config."""

    @property
    def reference(self) -> WayFidelity:
        """What all other ways are compared with."""
        return self.ways[0]

    @property
    def has_text(self) -> bool:
        """Whether any answers hold text."""
        return self._measured("text.equal")

    @property
    def has_pictures(self) -> bool:
        """Whether any answers hold pictures."""
        return self._measured("picture.identical") or any(w.unpaired for w in self.ways)

    def _measured(self, name: str) -> bool:
        both = (f for w in self.ways for f in (w.figures, w.repeat_figures) if f)
        return any(figures[name] is not None for figures in both)

    @property
    def title(self) -> str:
        """For headings."""
        return f"Fidelity of {self.name}: {len(self.samples):,} queries"

    @property
    def remarks(self) -> list[str]:
        """What a reader must know before the numbers."""
        every = [*self._random(), *self._unequal_tasks(), *self._ineffective()]
        return [*every, *self._unrepeatable(), *self._problems(), *self.notes]

    def _random(self) -> list[str]:
        kinds = sorted(
            {str(s.weights) for w in self.ways for s in w.answers.way.stages} & set(RANDOM)
        )
        return [
            f"Warning: made with {kind} random weights; they agree and differ as those "
            "of a real model need not."
            for kind in kinds
        ]

    def _unequal_tasks(self) -> list[str]:
        """Ways that were given another task, so that a difference says little."""
        first, remarks = self.reference.answers.way, []
        for way in (w.answers.way for w in self.ways[1:]):
            if way.asked != first.asked:
                remarks.append(
                    f"Warning: {way.label} is asked in other words than the reference "
                    f"({way.asked[0]}, not {first.asked[0]})."
                )
            limits = way.token_limit, first.token_limit
            if None not in limits and limits[0] != limits[1]:
                remarks.append(
                    f"Warning: {way.label} writes at most {limits[0]:,} tokens, the "
                    f"reference {limits[1]:,}."
                )
        return remarks

    def _ineffective(self) -> list[str]:
        runs = ((w.label, w.answers.way.ineffective) for w in self.ways)
        return [
            f"Warning: {label} runs with {', '.join(settings)}, not as its way says."
            for label, settings in runs
            if settings
        ]

    def _unrepeatable(self) -> list[str]:
        remarks = []
        for way in self.ways:
            pairs = [pair for pair in way.repeated if not pair.lost]
            changed = sum(pair.distance > 0 for pair in pairs)
            if changed:
                remarks.append(
                    f"{way.label} does not repeat itself: {changed:,} of {len(pairs):,} "
                    "answers differ between two runs of this way, so its differences from "
                    "the reference are partly its own noise."
                )
        return remarks

    def _problems(self) -> list[str]:
        """Ways that could not be run, and answers that failed, with the usual reason."""
        remarks = []
        for way in self.ways:
            if way.answers.problem:
                remarks.append(f"{way.label} could not be run: {way.answers.problem}")
            if reasons := Counter(failure.reason for failure in way.failures):
                reason, count = reasons.most_common(1)[0]
                remarks.append(
                    f"{way.label}: {reasons.total():,} answers failed, {count:,} of them: "
                    f"{reason}"
                )
        return remarks

    @property
    def failed(self) -> bool:
        """Whether a way or an answer failed, or a gate is not met."""
        broken = any(way.answers.problem or way.failures for way in self.ways)
        return broken or not all(gate.met for gate in self.gates)

    def as_json(self) -> dict[str, Any]:
        """Every figure as plain data."""
        return {
            "about": dict(self.about),
            "system": self.name,
            "reference": self.reference.label,
            "queries": [sample.id for sample in self.samples],
            "remarks": self.remarks,
            "ways": [_way_json(way) for way in self.ways],
            "scores": [score.as_json() for score in self.scores],
            "gates": [gate.as_json() for gate in self.gates],
        }


def _way_json(way: WayFidelity) -> dict[str, Any]:
    return {
        **way.answers.way.as_json(),
        "problem": way.answers.problem,
        "seconds": list(way.answers.seconds),
        "failed_answers": len(way.failures),
        "not_compared": way.lost,
        "unpaired_pictures": way.unpaired,
        "figures": _figures_json(way.figures),
        "repeat_figures": _figures_json(way.repeat_figures),
        "pairs": [pair.as_json() for pair in way.pairs],
        "repeated": [pair.as_json() for pair in way.repeated],
    }


def _figures_json(figures: Figures | None) -> dict[str, Any] | None:
    if figures is None:
        return None
    return {name: f and asdict(f) for name, f in figures.items()}


def measures_of(
    ways: Sequence[WayFidelity], scores: Sequence[WayScore]
) -> dict[str, dict[str, float | None]]:
    """All figures by way and name, as gates name them."""
    measured: dict[str, dict[str, float | None]] = {}
    for way in ways:
        own = measured.setdefault(way.label, {})
        own |= _headlines("", way.figures) | _headlines(REPEAT, way.repeat_figures)
    for score in scores:
        own = measured[score.way]
        own[f"score.{score.scorer}.mean"] = score.mean.value
        if score.difference is not None:
            own[f"score.{score.scorer}.difference"] = score.difference.value
    return measured


def _headlines(prefix: str, figures: Figures | None) -> dict[str, float | None]:
    known = {} if figures is None else figures
    return {prefix + name: f.value if f else None for name, f in known.items()}


def gated(
    gates: Sequence[FidelityGate],
    ways: Sequence[WayFidelity],
    scores: Sequence[WayScore],
) -> list[GateResult]:
    """Every gate on every way that it is for."""
    problems = {w.label: w.answers.problem for w in ways if w.answers.problem}
    return gate_results(gates, measures_of(ways, scores), problems, ways[0].label)
