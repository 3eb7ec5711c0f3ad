"""MLLM-Bench: votes by per-sample criteria, merged over both orders, and Elo ratings.

Constants after scripts/{prompts,arrange_data_for_eval,evaluate,cal_clo}.py of
FreedomIntelligence/MLLM-Bench@403f82c9; the published tables count wins, ties and losses
against an anchor on each level of capability, with every undecided class among the ties
(paper section 5.1, Standings 5).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from generators.content import filled, joined
from generators.document import Content, Document, Sample, Turn
from scorers.judging.rubric import Mode
from scorers.pairwise import prompts
from scorers.pairwise.content import as_content, pictures, spaced, texts, whole
from scorers.pairwise.games import Ask, Aspect, Game, Read, by_pair, counted
from scorers.pairwise.mllm_ratings import (
    corrected_elo,
    corrected_shares,
    official_elo,
    official_shares,
    tally,
)
from scorers.pairwise.prompts import checked, constants
from scorers.pairwise.protocol import DualEvaluation, both_orders
from scorers.pairwise.readers import official_vote, vote
from scorers.pairwise.table import PairStanding, Part, Standings, groups
from scorers.statistics.bootstrap import DRAWS

QUESTION_TYPE = "question_type"
"""Metadata of a sample: `open-ended`, `close-ended` or `compound`."""

_DIGESTS = {
    "gpt4v_role": "e2b077e2123d5de8ac3d9eb230a206a9f6a38284b3ae907c094c7b70630f587a",
    "gpt4v_eval_template": (
        "46b0b7f0ed4312f05759036b8ea014b5d6feaee796b43215e2077d5a9b6246d2"
    ),
    "reference_template": (
        "70f8cb712829b893e3c2a00eb0dc42b3c62877df106f8d6d75f156d4e9ae04c0"
    ),
}


@dataclass(frozen=True, slots=True)
class MllmBenchWording:
    """The prompt, and what is added to it for a sample with criteria."""

    vote: str = prompts.VOTE
    criteria: str = prompts.VOTE_CRITERIA


@dataclass(frozen=True, slots=True, kw_only=True)
class MllmBench(DualEvaluation):
    """The protocol. Official mode counts merged votes; corrected mode fits ratings."""

    mode: Mode = "corrected"
    wording: MllmBenchWording = field(default_factory=MllmBenchWording)
    draws: int = DRAWS
    name: str = "mllm-bench"

    @classmethod
    def published(cls, path: Path) -> MllmBenchWording:
        """The prompts of the user's copy of `prompts.py`; UsageError unless published."""
        found = checked(constants(path, "scripts/prompts.py"), _DIGESTS, path)
        role, template, reference = (found[name] for name in _DIGESTS)
        # Put together as the program does: the role is not a template, and the criteria
        # follow the last line without a line break.
        escaped = role.replace("{", "{{").replace("}", "}}")
        return MllmBenchWording(escaped + template + "{criteria}", reference)

    def requests(
        self, sample: Sample, first: Document, second: Document
    ) -> tuple[Ask, ...]:
        """Both orders; the pictures after all text officially, else where they belong."""
        return tuple(
            Ask("preference", swapped, self._turns(sample, whole(a), whole(b)))
            for swapped, a, b in both_orders(first, second)
        )

    def _turns(self, sample: Sample, first: Content, second: Content) -> tuple[Turn, ...]:
        official = self.mode == "official"
        question = texts(sample.question) if official else spaced(sample.question)
        kind = as_content(sample.metadata.get(QUESTION_TYPE, "open-ended"))
        criteria = filled(
            self.wording.criteria, {"reference": as_content(sample.criteria or "")}
        )
        fields = {
            "question": question,
            "type": kind,
            "question_type": kind,
            "first": first,
            "answer1": first,
            "second": second,
            "answer2": second,
            "criteria": criteria if sample.criteria else (),
        }
        after = pictures(sample.question) if official else ()
        return (Turn("user", joined((*filled(self.wording.vote, fields), *after))),)

    @property
    def attempts(self) -> int:
        """Three rounds officially (`--max_retry` of scripts/evaluate.py)."""
        return 3 if self.mode == "official" else 2

    def repeats_after(self, reply: str) -> bool:
        """Whatever is not a vote is asked again in the next round."""
        return True

    def read(self, reply: str, aspect: Aspect = "preference") -> Read:
        """One of the four votes."""
        return official_vote(reply) if self.mode == "official" else vote(reply)

    def aggregate(self, games: Iterable[Game], baseline: str | None = None) -> Standings:
        """Wins, ties and losses of each pair's second system, then ratings of all."""
        played = by_pair(games, baseline)
        rows = [
            self._row(pair, part, group, found)
            for pair, own in played.items()
            for part, group, found in groups(own)
        ]
        rate = official_elo if self.mode == "official" else corrected_elo
        rows += rate(played, baseline, self.draws)
        return Standings(
            protocol=self.name, mode=self.mode, baseline=baseline, rows=tuple(rows)
        )

    def _row(
        self, pair: tuple[str, str], part: Part, group: str, games: list[Game]
    ) -> PairStanding:
        official = self.mode == "official"
        values = official_shares(games) if official else corrected_shares(games)
        return PairStanding(
            system=pair[1],
            opponent=pair[0],
            part=part,
            group=group,
            values=values,
            counts=counted(games) | tally(games),
        )
