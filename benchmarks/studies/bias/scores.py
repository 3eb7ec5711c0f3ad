"""Rubric judges: their scores as preferences, and scores under other seeds and rubrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from benchmarks.runs.experiment import Experiment
from benchmarks.studies.bias.observations import JudgeIdentity, Measured, Preference
from benchmarks.studies.bias.verdicts import Values, agreement
from benchmarks.studies.pairwise.judgements import Side
from benchmarks.studies.pairwise.match import writer_of
from cluster.plan import Evaluation, evaluations, lookup_in
from cluster.store import Store
from cluster.walks import noted, read
from generators.base import Job, Result
from generators.document import Document, Sample
from generators.names import validated
from scorers.judging.corrected import Corrected
from scorers.judging.judge import RubricJudge
from scorers.judging.resolve import JudgeSettings, judge
from scorers.judging.sources import RubricSource

SEEDS = range(5)
"""Seeds of a judge's own sampling that are looked up beside the run's."""
_POINTS = "points of 100"


@dataclass(frozen=True)
class Scored:
    """A run's documents, and its rubric judges."""

    experiment: Experiment
    store: Store
    evaluations: Sequence[Evaluation]

    @classmethod
    def of(cls, experiment: Experiment, store: Store) -> "Scored":
        """The run's results in the store."""
        results = evaluations(experiment.plan, store)
        return cls(experiment, store, [e for e in results if e.complete])

    @property
    def judges(self) -> list[RubricJudge]:
        """The run's scorers that are rubric judges."""
        return [s for s in self.experiment.scorers if isinstance(s, RubricJudge)]

    @property
    def documents(self) -> Iterator[tuple[Evaluation, Sample, Document]]:
        """All that can be judged."""
        for e in self.evaluations:
            if isinstance(e.sample, Sample) and isinstance(e.document, Result):
                yield e, e.sample, e.document.value

    def preferences(self) -> dict[JudgeIdentity, list[Preference]]:
        """Differences in score of all pairs of answers to one query, by judge."""
        writers = {s.name: writer_of(s) for s in self.experiment.systems}
        games: dict[JudgeIdentity, list[Preference]] = {}
        for one in self.judges:
            scored: dict[tuple[str, int], list[tuple[Side, float]]] = defaultdict(list)
            for e, sample, document in self.documents:
                score = e.scores.get(one.name)
                if isinstance(score, Result):
                    side = Side.of(e.system, writers[e.system], document)
                    scored[sample.id, e.repeat].append((side, score.value.value))
            pairs = [m for about, answers in scored.items() for m in _pairs(about, answers)]
            if pairs:
                games[JudgeIdentity(one.name, "")] = pairs
        return games

    def values(self, judged: RubricJudge) -> tuple[Values, frozenset[str]]:
        """Recorded scores of `judged`, on its scale, and the keys of its first requests."""
        look, keys = lookup_in(self.store), set[str]()
        values: dict[tuple[str, object], float] = {}
        for e, sample, document in self.documents:
            steps: list[list[Job]] = []
            outcome = read(noted(judged.judge(sample, document), steps), look)
            keys |= {job.key for jobs in steps[:1] for job in jobs}
            if isinstance(outcome, Result):
                values[sample.id, (e.system, e.repeat)] = outcome.value.value
        return values, frozenset(keys)


def _pairs(
    about: tuple[str, int], answers: Sequence[tuple[Side, float]]
) -> Iterator[Preference]:
    ordered = sorted(answers, key=lambda a: a[0].system)
    for (first, one), (second, other) in combinations(ordered, 2):
        yield Preference(
            question=about[0],
            repeat=about[1],
            first=first,
            second=second,
            preference=other - one,
        )


def repeated(scored: Scored) -> Measured:
    """Measure how far each rubric judge agrees with itself under other seeds."""
    for one in scored.judges:
        if not one.stage.seeded:
            yield f"{one.name}: draws nothing at random, so it is asked once"
            continue
        seeds = sorted({one.seed, *SEEDS})
        sets = [scored.values(replace(one, seed=seed))[0] for seed in seeds]
        yield from agreement(
            one.name, _POINTS, sets, f"{one.name}: scored under one seed only"
        )


def reworded(scored: Scored, released: RubricSource) -> Measured:
    """Measure how far each rubric judge agrees with itself under other rubrics.

    Without `released` rubrics only our own can be looked up. Rubrics with equal texts are
    one rubric, whatever their names.
    """
    for one in scored.judges:
        variants: dict[frozenset[str], tuple[str, RubricJudge, Values]] = {}
        for label, variant in _worded(one, released).items():
            values, keys = scored.values(variant)
            if values:
                variants.setdefault(keys, (label, variant, values))
        pairs = [
            p for p in combinations(variants.values(), 2) if p[0][1].texts != p[1][1].texts
        ]
        if not pairs:
            yield f"{one.name}: scores by one rubric only"
        for (label, _, values), (other, _, others) in pairs:
            both = f"{one.name}: {label} and {other}"
            yield from agreement(
                both, _POINTS, [values, others], f"{both}: no document was scored by both"
            )


def _worded(one: RubricJudge, released: RubricSource) -> Mapping[str, RubricJudge]:
    variants = {"the run's rubric": one, "our rubric": _with(one, rubric="own")}
    if released.path is not None:
        official = str(released)
        variants["released rubric"] = _with(one, rubric=official)
        variants["released scorer"] = _with(one, rubric=official, mode="official")
    return variants


def _with(one: RubricJudge, **settings: str) -> RubricJudge:
    """The judge with another rubric or mode, and otherwise with its own settings."""
    other = judge(one.name, one.stage, validated(JudgeSettings, settings, one.name))
    if isinstance(one.examiner, Corrected) and isinstance(other.examiner, Corrected):
        examiner = replace(one.examiner, rubrics=other.examiner.rubrics)
        return replace(one, examiner=examiner)
    # Official mode asks once and has its own limit of tokens.
    return replace(one, examiner=other.examiner, retries=other.retries)
