"""A pairwise protocol as a scorer: each answer beside that of a baseline system.

What a judge says of the pair becomes a score of the answer, so that pairs are planned,
budgeted, stored, resumed and reported as everything else of a run. The ratings and tables
of a protocol are made by `plait compare`, which reads the same records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from plait.generators.base import Outcome, Result, StageSpec, Unread, Unscored, Walk
from plait.generators.document import Document, Query, Score
from plait.generators.errors import UsageError
from plait.scorers.base import Scorer
from plait.scorers.judging.settings import AskingSettings
from plait.scorers.pairwise import official_options, resolve_protocol
from plait.scorers.pairwise.games import Judgement, Verdict
from plait.scorers.pairwise.protocol import Pairwise
from plait.scorers.parts import PartScale, PartTable

_ORDERS = {False: "baseline_first", True: "answer_first"}
"""Names of the orders of showing among parts; the baseline is the first of a pair."""
_WIN = {1: 100.0, 0: 50.0, -1: 0.0}
"""A verdict's value for the answer, by the sign of the preference for it."""


class PairSettings(AskingSettings):
    """Settings of a scorer that judges pairs."""

    baseline: str = ""
    """The system whose answers all others are judged beside: one of the run's, or `gt` or
    `published:NAME`, whose answers come with the data."""

    def judge(self, name: str, stage: StageSpec) -> PairScorer:
        """Return the scorer that asks `stage`; UsageError without a baseline."""
        protocol = name.partition(":")[0]
        if not self.baseline:
            raise UsageError(
                f"{name} judges answers beside those of another system; name that with "
                "--baseline: one of the run's, gt, or published:NAME"
            )
        if self.source.is_users:
            raise UsageError(
                f"{name}: its questions are fixed; a rubric of your own is for judge:LVLM"
            )
        options = official_options(protocol, self.mode)
        return PairScorer(
            name=name,
            stage=stage,
            protocol=resolve_protocol(protocol, self.mode, self.source.path, **options),
            own_wording=self.source.path is None,
            baseline=self.baseline,
            seed=self.seed,
        )


@dataclass(frozen=True, kw_only=True)
class PairScorer(Scorer):
    """Scores an answer by how often a judge prefers it to the baseline's.

    A win counts 100, a tie 50 and a loss 0; the value is the mean over the orders of
    showing. Where one of these cannot be read there is no value: judges prefer what is
    shown first too often for half a judgement to count.
    """

    protocol: Pairwise
    baseline: str
    """Name of a system, or of answers that come with the data."""
    own_wording: bool = True
    """Whether the judge is asked in our words, not in the benchmark's."""
    seed: int = 0
    scale: str = "0-100"
    unit: str = "percent"
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("preferences/*", "levels", "-2-2"),
        PartScale("factuality/*/*", "points", "0-10"),
    )

    @property
    def opponent(self) -> str:
        """The baseline."""
        return self.baseline

    @property
    def manner(self) -> str:
        """Beside which answers, whose wording, and which mode."""
        whose = "our" if self.own_wording else "released"
        return f"against {self.baseline}, {whose} wording, {self.protocol.mode} mode"

    @property
    def rounds(self) -> int:
        """Most rounds of questions about one pair."""
        return self.protocol.rounds

    def jobs(self, query: Query, images: int = 1) -> int:
        """Return how many questions a round asks about a pair: each in both orders."""
        return 2 * len(self.protocol.aspects(query))

    def judge_beside(
        self, query: Query, other: Document, answer: Document, repeat: int
    ) -> Walk[Score]:
        """Walk to the score of `answer`, whose seeds are those of `plait compare`."""
        judgement = yield from self.protocol.judge(
            query, other, answer, self.stage, seed=self.seed, repeat=repeat
        )
        return score_of(judgement.value) if isinstance(judgement, Result) else judgement


def score_of(judgement: Judgement) -> Outcome[Score]:
    """Return the score of the pair's second answer.

    What the judge's stage failed at or skipped is the outcome of the whole; where a reply
    on preference cannot be read the outcome is Unread, with what the others say.
    """
    preferences: dict[str, int] = {}
    said: dict[str, str] = {}
    factuality: dict[str, dict[str, float]] = {}
    unread = ""
    for reading in judgement.readings:
        order = _ORDERS[reading.swapped]
        outcome = reading.outcome
        if isinstance(outcome, Result):
            found = outcome.value
            if isinstance(found, Verdict):
                sign = 1 if reading.swapped else -1
                preferences[order] = sign * found.preference
                said[order] = found.word
            else:
                first = "answer" if reading.swapped else "baseline"
                second = "baseline" if reading.swapped else "answer"
                factuality[order] = {first: found.first, second: found.second}
        elif reading.aspect == "preference":
            if not isinstance(outcome, Unscored):
                return outcome
            unread = unread or f"{order.replace('_', ' ')}: {outcome.reason}"
    parts: dict[str, Any] = {"preferences": preferences, "verdicts": said}
    if factuality:
        parts["factuality"] = factuality
    if unread:
        return Unread(unread, parts)
    if not preferences:
        return Unread("the judge was not asked which answer is better", parts)
    wins = [_WIN[(p > 0) - (p < 0)] for p in preferences.values()]
    return Result(Score(sum(wins) / len(wins), parts))
