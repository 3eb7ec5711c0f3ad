"""OpenING's arena: which of two interleaved answers is better, where ties lean to a side.

Constants after IntJudge_judge_AB.py and calculate_model_winrate.py of
LanceZPF/OpenING@56b663b. IntJudge, its judge, is a Qwen2-VL-7B that writes at most 128
tokens; any LVLM is asked the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar

from plait.generators.base import Result
from plait.generators.buckets import AnyPath
from plait.generators.content import space_out
from plait.generators.document import Document, Query, Text, Turn
from plait.generators.keys import digest
from plait.generators.released import file_in, read_published
from plait.scorers.judging.aspects import section
from plait.scorers.judging.sources import Mode
from plait.scorers.pairwise.games import (
    Aspect,
    Game,
    GamesByPair,
    PairQuestion,
    PairStanding,
    ParsedReply,
    Verdict,
    plain_mean,
    preferences,
    rank,
)
from plait.scorers.pairwise.prompts import OWN
from plait.scorers.pairwise.protocol import Pairwise
from plait.scorers.pairwise.readers import lean, official_lean
from plait.scorers.statistics.estimate import Estimate
from plait.scorers.statistics.means import PERCENT, mean_by_question

_DIGESTS = OWN["released"]["opening"]


@dataclass(frozen=True, slots=True)
class OpeningWording:
    """The task, which is the system turn, and what follows both answers."""

    task: str
    ending: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening(Pairwise):
    """The protocol. Officially each pair is asked about in one order of showing."""

    mode: Mode = "corrected"
    wording: OpeningWording = OpeningWording(**OWN["opening"])
    name: str = "opening"
    FORM: ClassVar[str] = "lean"

    @classmethod
    def wording_in(cls, path: AnyPath) -> OpeningWording:
        """The texts of the user's IntJudge_judge_AB.py; UsageError unless published."""
        file = file_in(path, "IntJudge_judge_AB.py")
        return OpeningWording(**read_published(file, _DIGESTS))

    def requests(
        self, query: Query, first: Document, second: Document
    ) -> tuple[PairQuestion, ...]:
        """Both orders; officially one, drawn by the program and by a digest here."""
        both = Pairwise.requests(self, query, first, second)
        if self.mode == "corrected":
            return both
        lots = [digest(query.id, answer) for answer in (first, second)]
        return both[1:] if lots[0] > lots[1] else both[:1]

    def turns(
        self, aspect: Aspect, query: Query, first: Document, second: Document
    ) -> tuple[Turn, ...]:
        """Images are numbered throughout; in corrected mode every segment is a line."""
        numbers = count()
        mark = "\n<OUTPUT_A>:"
        content = (
            *section(query.question, numbers, "<INPUT>: ", "<INPUT>: ", "<INPUT>: "),
            *section(first.segments, numbers, "<OUTPUT_A>: ", mark, mark),
        )
        mark = "\n<OUTPUT_B>:"
        content += section(second.segments, numbers, f"{mark} ", mark, mark)
        content += (Text(self.wording.ending),)
        return (
            Turn("system", (Text(self.wording.task),)),
            Turn("user", content if self.mode == "official" else space_out(content)),
        )

    def read(self, reply: str, aspect: Aspect = "preference") -> ParsedReply:
        """A, B, or a tie that leans to one of them."""
        return official_lean(reply) if self.mode == "official" else lean(reply)

    def values(self, games: Sequence[Game]) -> dict[str, Estimate]:
        """Return win rates by each way of counting."""
        return official_rates(games) if self.mode == "official" else corrected_rates(games)

    def counts(self, games: Sequence[Game]) -> dict[str, int]:
        """Return verdicts by what they are to the second system."""
        found: Counter[str] = Counter()
        for game in games:
            found.update(result for result, _ in _results(game))
        return {name: found[name] for name in RESULTS.values()}

    def rate_systems(self, pairs: GamesByPair, baseline: str | None) -> list[PairStanding]:
        """Return win rates against all others."""
        own: dict[str, list[Game]] = {}
        for games in pairs.values():
            for game in games:
                # Values and counts are those of a game's second system.
                own.setdefault(game.second, []).append(game)
                own.setdefault(game.first, []).append(game.flipped)
        rows = []
        for name, games in own.items():
            values = self.values(games)
            counts = self.counts(games)
            rows.append(PairStanding(system=name, values=values, counts=counts))
        return sorted(rows, key=lambda row: (rank(row.values["win_rate"]), row.system))


WIN = "win"
LEAN = "tie_for"
AGAINST = "tie_against"
LOSE = "lose"
EVEN = "tie"
"""Without leaning, which only corrected mode reads."""
NEITHER = "neither"
"""A word that is no verdict, which officially counts as a match and at most as a tie."""
RESULTS = {2: WIN, 1: LEAN, 0: EVEN, -1: AGAINST, -2: LOSE, None: NEITHER}
"""What a verdict is to a system, by its preference for it."""


def _results(game: Game) -> Iterator[tuple[str, bool]]:
    """Yield of each verdict what it is to the second system, and whether it is a tie."""
    readings = game.judgement.readings if game.judgement else ()
    for reading in readings:
        if not isinstance(reading.outcome, Result):
            continue
        verdict = reading.outcome.value
        if not isinstance(verdict, Verdict):
            continue
        preference: int | None = verdict.preference * (1 if reading.swapped else -1)
        # A word that is no verdict has the preference of a plain tie.
        if preference == 0 and verdict.word != "Tie":
            preference = None
        result = RESULTS[preference]
        yield result, result in (LEAN, AGAINST) or "Tie" in verdict.word


def _credits(result: str, tie: bool) -> Mapping[str, float | None]:
    """Return what a verdict counts towards each rate; None where it is left out.

    The ways of counting are `tie2ABdiv`, `without_tie`, `with_tie` and
    `with_tie_equaldiv`.
    """
    won = 100.0 * (result == WIN)
    return {
        "win_rate": 50.0 if result == EVEN else 100.0 * (result in (WIN, LEAN)),
        "without_ties": won if result in (WIN, LOSE) else None,
        "ties_lost": won,
        "ties_half": 50.0 if tie else won,
    }


@dataclass(frozen=True, slots=True)
class _Rate:
    """What verdicts count towards one rate, in percent."""

    questions: list[str] = field(default_factory=list)
    """Of each verdict that counts."""
    credits: list[float] = field(default_factory=list)


def _rates(games: Iterable[Game]) -> dict[str, _Rate]:
    rates = {name: _Rate() for name in _credits(WIN, False)}
    for game in games:
        for result, tie in _results(game):
            for name, credit in _credits(result, tie).items():
                if credit is not None:
                    rates[name].questions.append(game.question)
                    rates[name].credits.append(credit)
    return rates


def official_rates(games: Sequence[Game]) -> dict[str, Estimate]:
    """Return shares of all verdicts, in percent."""
    means = {}
    for name, rate in _rates(games).items():
        means[name] = plain_mean(rate.credits, "no verdict read")
    return means


def corrected_rates(games: Sequence[Game]) -> dict[str, Estimate]:
    """Return means over the questions read in both orders, with intervals."""
    both = []
    for game in games:
        if game.judgement is not None and len(preferences(game.judgement)) == 2:
            both.append(game)
    means = {}
    for name, rate in _rates(both).items():
        means[name] = mean_by_question(rate.questions, rate.credits, PERCENT)
    return means
