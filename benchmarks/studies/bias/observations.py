"""Judges' preferences as observations on questions, and estimates from them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import numpy as np

from benchmarks.studies.pairwise.command import FOLDER, RULINGS
from benchmarks.studies.pairwise.judgements import Ruling, Side, read_rulings
from scorers.statistics.estimate import (
    Estimate,
    Floats,
    bootstrap_estimate,
    bootstrap_weights,
)
from scorers.statistics.means import pooled_mean

Observation = tuple[str, float]
"""A question, which is the unit that intervals resample, and a value observed on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One measure of one judge."""

    judge: str
    measure: str
    estimate: Estimate
    """Its n is the number of questions."""
    judgements: int
    """Comparisons, on one question or several, behind the value."""

    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        about = {"judge": self.judge, "measure": self.measure}
        return about | self.estimate.as_json() | {"judgements": self.judgements}


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One kind of bias."""

    name: str
    title: str
    findings: tuple[Finding, ...]
    absent: tuple[str, ...]
    """Reasons why something could not be computed."""

    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        findings = [f.as_json() for f in self.findings]
        return {"title": self.title, "findings": findings, "absent": list(self.absent)}


Measured = Iterator[Finding | str]
"""Findings, and for what could not be computed the reason why."""
P = ParamSpec("P")


def section(
    name: str, title: str
) -> Callable[[Callable[P, Measured]], Callable[P, Section]]:
    """Make a function that returns a section of a generator of what it holds."""

    def decorated(measure: Callable[P, Measured]) -> Callable[P, Section]:
        @wraps(measure)
        def made(*args: P.args, **options: P.kwargs) -> Section:
            measured = list(measure(*args, **options))
            findings = tuple(m for m in measured if isinstance(m, Finding))
            absent = tuple(m for m in measured if isinstance(m, str))
            return Section(name=name, title=title, findings=findings, absent=absent)

        return made

    return decorated


def finding(judge: str, measure: str, observed: Sequence[Observation]) -> Finding:
    """The mean of `observed`, with its interval by question."""
    return Finding(
        judge=judge, measure=measure, estimate=mean_of(observed), judgements=len(observed)
    )


def mean_of(observed: Sequence[Observation]) -> Estimate:
    """The mean over all observations; the question is the independent unit."""
    if not observed:
        return Estimate(None, None, 0, "nothing to compare")
    return pooled_mean(*zip(*observed, strict=True))


def rank_correlation(observed: Sequence[tuple[str, float, float]]) -> Estimate:
    """Spearman's coefficient of two differences within pairs, -1 to 1.

    The naming of a pair's sides is arbitrary, so every pair counts in both directions:
    the ranks are those of the values and their negatives together.
    """
    from scipy.stats import rankdata

    if not observed:
        return Estimate(None, None, 0, "nothing to compare")
    values = np.array([(x, y) for _, x, y in observed])
    both = np.concatenate([values, -values])
    ranks = (rankdata(both, axis=0) - (len(both) + 1) / 2)[: len(values)]
    products = np.column_stack([ranks.prod(1), ranks**2])
    questions, places = np.unique([o[0] for o in observed], return_inverse=True)
    names, sums = questions.tolist(), np.zeros((len(questions), 3))
    np.add.at(sums, places, products)
    value = _cosine(sums.sum(0, keepdims=True))[0]
    if np.isnan(value):
        return Estimate(None, None, len(names), "one of the two does not vary")
    return bootstrap_estimate(
        float(value), _cosine(bootstrap_weights(names) @ sums), len(names)
    )


def _cosine(sums: Floats) -> Floats:
    """(n,) from (n, 3): sums of x*y, x*x and y*y."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(sums[:, 0] / np.sqrt(sums[:, 1] * sums[:, 2]))


@dataclass(frozen=True, slots=True, order=True)
class JudgeIdentity:
    """A model under one protocol and one wording."""

    name: str
    protocol: str
    """Empty for a judge that scores single documents."""
    mode: str = ""
    wording: str = ""
    stage: str = ""
    """Digest of the model and its settings."""
    namesake: bool = field(default=False, compare=False)
    """True where a judge of the same name has another model or other settings."""

    @property
    def display_name(self) -> str:
        """The name, with the stage where it is needed to distinguish two judges."""
        return f"{self.name} [settings {self.stage[:6]}]" if self.namesake else self.name

    @property
    def label(self) -> str:
        """For people."""
        if not self.protocol:
            return self.display_name
        about = f"{self.protocol}, {self.mode}, wording {self.wording[:6]}"
        return f"{self.display_name} ({about})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """Two answers to one question, and by how much a judge prefers the second."""

    question: str
    repeat: int
    first: Side
    second: Side
    preference: float
    """Levels of a verdict, or points of a score; positive for the second."""

    @property
    def about(self) -> tuple[str, int, str, str]:
        """Identifies the two answers."""
        return self.question, self.repeat, self.first.system, self.second.system

    @property
    def flipped(self) -> "Preference":
        """The same, named the other way round."""
        return replace(
            self, first=self.second, second=self.first, preference=-self.preference
        )


Rulings = Mapping[JudgeIdentity, Sequence[Ruling]]


def load(root: Path) -> dict[JudgeIdentity, list[Ruling]]:
    """Preferences recorded by comparisons of the run, by judge, each once.

    The first side of each is the one whose name sorts first. Where files hold the same
    reply, one that could be read counts.
    """
    by_judge: dict[JudgeIdentity, dict[tuple[object, ...], Ruling]] = defaultdict(dict)
    for path in sorted((root / FOLDER).glob(f"*/{RULINGS}")):
        for ruling in map(upright, read_rulings(path)):
            if ruling.aspect != "preference":
                continue
            known = by_judge[_judge(ruling)]
            key = (*_about(ruling), ruling.judging, ruling.swapped)
            if key not in known or known[key].preference is None:
                known[key] = ruling
    stages: dict[str, set[str]] = defaultdict(set)
    for judge in by_judge:
        stages[judge.name].add(judge.stage)
    return {
        replace(judge, namesake=len(stages[judge.name]) > 1): list(known.values())
        for judge, known in sorted(by_judge.items())
    }


def _judge(ruling: Ruling) -> JudgeIdentity:
    return JudgeIdentity(
        ruling.judge, ruling.protocol, ruling.mode, ruling.wording, ruling.stage
    )


def upright(ruling: Ruling) -> Ruling:
    """The ruling with its sides in the order of their names."""
    if ruling.first.system <= ruling.second.system:
        return ruling
    return replace(
        ruling, first=ruling.second, second=ruling.first, swapped=not ruling.swapped
    )


def _about(ruling: Ruling) -> tuple[str, int, str, str]:
    return ruling.question, ruling.repeat, ruling.first.system, ruling.second.system


def both_orders(rulings: Iterable[Ruling]) -> Iterator[tuple[Ruling, Ruling]]:
    """(as named, swapped) of each pair of answers read in both orders; once per pair."""
    by_answers: dict[tuple[object, ...], dict[bool, Ruling]] = defaultdict(dict)
    for ruling in rulings:
        if ruling.judging == 0 and ruling.preference is not None:
            by_answers[_about(ruling)][ruling.swapped] = ruling
    for orders in by_answers.values():
        if len(orders) == 2:
            yield orders[False], orders[True]


def preferences_of(rulings: Iterable[Ruling]) -> list[Preference]:
    """Mean preferences over both orders, so that a preference for a position cancels."""
    return [
        Preference(
            question=ruling.question,
            repeat=ruling.repeat,
            first=ruling.first,
            second=ruling.second,
            preference=sum((r.for_second or 0) for r in (ruling, swapped)) / 2,
        )
        for ruling, swapped in both_orders(rulings)
    ]


def sign(value: float) -> int:
    """-1, 0 or 1."""
    return (value > 0) - (value < 0)


def family(name: str) -> str:
    """The line of models that a name belongs to: `gpt` of `openai:gpt-4o`.

    `qwen` of `hf:Qwen/Qwen2-VL-7B`; empty where the name begins with no letter.
    """
    bare = name.rpartition("/")[2].rpartition(":")[2].lower()
    letters = re.match(r"[a-z]+", bare)
    return letters[0] if letters else ""
