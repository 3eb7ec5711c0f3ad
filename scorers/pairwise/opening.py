"""OpenING's arena: which of two interleaved answers is better, where ties lean to a side.

Constants after IntJudge_judge_AB.py and calculate_model_winrate.py of
LanceZPF/OpenING@56b663b. IntJudge, its judge, is a Qwen2-VL-7B that writes at most 128
tokens; any LVLM is asked the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from generators.base import Result
from generators.buckets import AnyPath
from generators.document import Document, Sample, Text, Turn
from generators.keys import digest
from scorers.judging.sections import section
from scorers.judging.sources import Mode, file_in, read_published
from scorers.pairwise.games import (
    Aspect,
    Game,
    PairQuestion,
    PairStanding,
    ParsedReply,
    Standings,
    Verdict,
    by_pair,
    pair_rows,
    preferences,
    rank,
)
from scorers.pairwise.prompts import OWN, spaced
from scorers.pairwise.protocol import Pairwise
from scorers.pairwise.readers import lean, official_lean
from scorers.statistics.estimate import Estimate
from scorers.statistics.means import PERCENT, mean_by_question

_DIGESTS = {
    "task": "1bedfab83371c3d79c11c7e376aa8c869db731698732ceb195632ef09f5e1345",
    "ending": "a60f83fe721b38cf7ce286806c4ae2a091daaed8bf65fc00122f75b2500f92ed",
}


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

    @classmethod
    def published(cls, path: AnyPath) -> OpeningWording:
        """The texts of the user's IntJudge_judge_AB.py; UsageError unless published."""
        file = file_in(path, "IntJudge_judge_AB.py")
        return OpeningWording(**read_published(file, _DIGESTS))

    def requests(
        self, query: Sample, first: Document, second: Document
    ) -> tuple[PairQuestion, ...]:
        """Both orders; officially one, drawn by the program and by a digest here."""
        both = Pairwise.requests(self, query, first, second)
        if self.mode == "corrected":
            return both
        lots = [digest(query.id, answer) for answer in (first, second)]
        return both[1:] if lots[0] > lots[1] else both[:1]

    def turns(
        self, aspect: Aspect, query: Sample, first: Document, second: Document
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
            Turn("user", content if self.mode == "official" else spaced(content)),
        )

    def form(self, aspect: Aspect) -> str:
        """Return the four verdicts."""
        form: str = OWN["forms"]["lean"]
        return form

    def read(self, reply: str, aspect: Aspect = "preference") -> ParsedReply:
        """A, B, or a tie that leans to one of them."""
        return official_lean(reply) if self.mode == "official" else lean(reply)

    def aggregate(self, games: Iterable[Game], baseline: str | None = None) -> Standings:
        """Return win rates of each pair's second system, then against all others."""
        rates = official_rates if self.mode == "official" else corrected_rates
        played = list(games)
        rows = pair_rows(by_pair(played, baseline), rates, tally)
        rated = [
            PairStanding(system=name, values=rates(own), counts=tally(own))
            for name, own in _own(played).items()
        ]
        rated.sort(key=lambda row: (rank(row.values["win_rate"]), row.system))
        return self.standings([*rows, *rated], baseline)


def _own(games: Sequence[Game]) -> dict[str, list[Game]]:
    """Return each system's games, with it as the second."""
    own: dict[str, list[Game]] = {}
    for game in games:
        own.setdefault(game.second, []).append(game)
        own.setdefault(game.first, []).append(game.flipped)
    return own


WIN, LEAN, AGAINST, LOSE = "win", "tie_for", "tie_against", "lose"
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
        verdict = reading.outcome.value if isinstance(reading.outcome, Result) else None
        if isinstance(verdict, Verdict):
            preference: int | None = verdict.preference * (1 if reading.swapped else -1)
            if preference == 0 and verdict.word != "Tie":
                preference = None
            result = RESULTS[preference]
            yield result, result in (LEAN, AGAINST) or "Tie" in verdict.word


def tally(games: Sequence[Game]) -> dict[str, int]:
    """Return verdicts by what they are to the second system."""
    found = Counter(result for game in games for result, _ in _results(game))
    return {name: found[name] for name in RESULTS.values()}


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


def _rates(games: Iterable[Game]) -> dict[str, list[tuple[str, float]]]:
    """Return (question, credit) of every verdict, by way of counting."""
    rates: dict[str, list[tuple[str, float]]] = {name: [] for name in _credits(WIN, False)}
    for game in games:
        for result in _results(game):
            for name, credit in _credits(*result).items():
                rates[name] += [] if credit is None else [(game.question, credit)]
    return rates


def official_rates(games: Sequence[Game]) -> dict[str, Estimate]:
    """Return shares of all verdicts, in percent."""
    return {
        name: Estimate(sum(c for _, c in each) / len(each), None, len(each))
        if each
        else Estimate(None, None, 0, "no verdict read")
        for name, each in _rates(games).items()
    }


def corrected_rates(games: Sequence[Game]) -> dict[str, Estimate]:
    """Return means over the questions read in both orders, with intervals."""
    both = [g for g in games if g.judgement and len(preferences(g.judgement)) == 2]
    return {
        name: mean_by_question([q for q, _ in each], [c for _, c in each], PERCENT)
        for name, each in _rates(both).items()
    }
