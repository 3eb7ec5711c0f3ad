"""MMRB2: which of two answers is better, asked by a task of its own for each split.

Constants after evaluate/generate_judgements/evaluator_apis/llm_judges/ of
facebookresearch/MMRB2@7ff0552 (evaluation_prompts.py, api_pairwise_evaluator.py). How often
a judge chooses as people did is counted by `plait agreement`; the protocol counts wins.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from plait.generators.content import space_out
from plait.generators.document import Document, Query, Text, Turn
from plait.generators.extras import import_extra
from plait.generators.released import file_in, read_published
from plait.scorers.judging.sources import Mode
from plait.scorers.pairwise.games import (
    Aspect,
    Game,
    ParsedReply,
    in_both_orders,
    preferences,
)
from plait.scorers.pairwise.prompts import OWN
from plait.scorers.pairwise.protocol import Pairwise
from plait.scorers.pairwise.readers import better, official_better
from plait.scorers.statistics.estimate import Estimate
from plait.scorers.statistics.means import PERCENT, mean_by_question, pooled_mean

_DIGESTS = OWN["released"]["mmrb2"]
_FILE = "evaluate/generate_judgements/evaluator_apis/llm_judges/evaluation_prompts.py"


def json_repairer() -> Callable[[str], Any]:
    """Return the parser of the released program; UsageError where it is not installed.

    Its repairs differ between versions, and MMRB2 names none.
    """
    loads: Callable[[str], Any] = import_extra("json_repair", "official mode").loads
    return loads


@dataclass(frozen=True, slots=True)
class Mmrb2Wording:
    """The tasks, by split."""

    t2i: str
    edit: str
    interleaved: str
    reasoning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mmrb2(Pairwise):
    """The protocol. Queries whose category is no split get the task of `interleaved`."""

    mode: Mode = "corrected"
    wording: Mmrb2Wording = Mmrb2Wording(**OWN["mmrb2"])
    loads: Callable[[str], Any] = json.loads
    """Parses replies in official mode: `json_repairer`."""
    name: str = "mmrb2"
    OFFICIAL_NEEDS: ClassVar[Mapping[str, Callable[[], Any]]] = {"loads": json_repairer}
    FORM: ClassVar[str] = "better"

    @classmethod
    def wording_in(cls, path: Path) -> Mmrb2Wording:
        """The user's copy of `evaluation_prompts.py`; UsageError unless published."""
        return Mmrb2Wording(**read_published(file_in(path, _FILE), _DIGESTS))

    def turns(
        self, aspect: Aspect, query: Query, first: Document, second: Document
    ) -> tuple[Turn, ...]:
        """Task, prompt and both responses, as released.

        Every segment is a part by itself; in corrected mode also a line.
        """
        task = getattr(self.wording, query.category, self.wording.interleaved)
        content = (
            Text(task),
            *(Text("[ORIGINAL PROMPT TO MODEL:]"), *query.question),
            *(Text("[RESPONSE A:]"), *first.segments),
            *(Text("[RESPONSE B:]"), *second.segments),
        )
        return (Turn("user", content if self.mode == "official" else space_out(content)),)

    def read(self, reply: str, aspect: Aspect = "preference") -> ParsedReply:
        """A, B, or neither."""
        if self.mode == "official":
            return official_better(reply, self.loads)
        return better(reply)

    def values(self, games: Sequence[Game]) -> dict[str, Estimate]:
        """Return how often a system is preferred.

        Officially over all judgements made, ties being lost; in corrected mode over the
        questions read in both orders, ties being half.
        """
        if self.mode == "official":
            return {"win_rate": share_of_judgements(games)}
        return {"win_rate": share_of_questions(games)}


def share_of_judgements(games: Sequence[Game]) -> Estimate:
    """Return how often the second system is preferred, over all judgements made."""
    questions: list[str] = []
    wins: list[float] = []
    for game in games:
        verdicts = preferences(game.judgement) if game.judgement else []
        for preference in verdicts:
            questions.append(game.question)
            wins.append(100.0 * (preference > 0))
    return pooled_mean(questions, wins, PERCENT)


def share_of_questions(games: Sequence[Game]) -> Estimate:
    """Return the same over questions read in both orders, a tie being half."""
    questions: list[str] = []
    shares: list[float] = []
    for question, verdicts in in_both_orders(games):
        questions.append(question)
        shares.append(sum(50.0 * (1 + p) for p in verdicts) / 2)
    return mean_by_question(questions, shares, PERCENT)
