"""Creation-MMBench: a five-level verdict by per-sample criteria, and visual factuality.

Every pair is judged in both orders (Dual Evaluation); the values -2 to 2 of the system
against the other give its Reward, times 50, and its win rate. Constants after
vlmeval/dataset/creation.py of open-compass/VLMEvalKit@e8e78f05 (`build_prompt`,
`get_dimension_rating`, `merge_dual`) and sections 3.3, B and C of the paper, whose A is
the evaluated model where the program's is the reference.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from generators.document import Content, Document, Sample, Turn
from scorers.pairwise import wording
from scorers.pairwise.counts import by_pair, counted
from scorers.pairwise.dual import DualEvaluation, both_orders
from scorers.pairwise.filling import fill, joined, pictures, spaced, texts, told
from scorers.pairwise.official import checked, constants
from scorers.pairwise.protocol import Ask, Aspect, Game, Mode, Read
from scorers.pairwise.readers import level, marks, official_creation, official_marks
from scorers.pairwise.rewards import corrected_rewards, official_rewards, spread
from scorers.pairwise.table import Part, Row, Table, groups
from scorers.pairwise.turns import whole
from scorers.statistics.bootstrap import DRAWS

FACTUALITY = "visual_factuality"
"""Metadata of a sample: its criteria of visual factuality; `Sample.criteria` are those of
preference."""
TRUTH = "ground_truth"
"""Metadata of a sample: what the pictures in truth show, for the judge alone."""

_DIGESTS = {
    "subjective": "ff415c39adcac2c2cae33942e450ae8c01da605701745d92afdb1bbdef7e3963",
    "objective_without_gt": (
        "1c18df6726ee9b5060855bad6aa4aacee929846e26ea1a1abf0948b92148a068"
    ),
    "objective_with_gt": "988f5a1e3d98699020e206ac53e28f07ccb7f47f65210cb8999e4f2c26404365",
}


@dataclass(frozen=True, slots=True)
class Wording:
    """The three prompts."""

    preference: str = wording.CREATION
    factuality: str = wording.FACTUALITY
    factuality_with_truth: str = wording.FACTUALITY_WITH_TRUTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation(DualEvaluation):
    """The protocol. Official mode counts judgements, corrected mode counts questions."""

    mode: Mode = "corrected"
    wording: Wording = field(default_factory=Wording)
    draws: int = DRAWS
    name: str = "creation"

    @classmethod
    def published(cls, path: Path) -> Wording:
        """The prompts of the user's copy of `creation.py`; UsageError unless published."""
        found = constants(path, "vlmeval/dataset/creation.py").get("prompt_dict", {})
        named = checked(found.get("Creation_MMBench", {}), _DIGESTS, path)
        return Wording(*(named[name] for name in _DIGESTS))

    def requests(
        self, sample: Sample, first: Document, second: Document
    ) -> tuple[Ask, ...]:
        """Both orders of the preference, and of visual factuality where it has criteria.

        Pictures of the question go with the preference alone; officially before all text,
        in corrected mode where the question has them.
        """
        shown = both_orders(first, second)
        asks = [
            Ask("preference", swapped, self._preference(sample, whole(a), whole(b)))
            for swapped, a, b in shown
        ]
        if sample.metadata.get(FACTUALITY):
            asks += [
                Ask("factuality", swapped, self._factuality(sample, whole(a), whole(b)))
                for swapped, a, b in shown
            ]
        return tuple(asks)

    def _preference(
        self, sample: Sample, first: Content, second: Content
    ) -> tuple[Turn, ...]:
        official = self.mode == "official"
        question = texts(sample.question) if official else spaced(sample.question)
        criteria = sample.criteria or wording.NO_CRITERIA
        filled = _filled(self.wording.preference, question, criteria, first, second)
        before = pictures(sample.question) if official else ()
        return (Turn("user", joined((*before, *filled))),)

    def _factuality(
        self, sample: Sample, first: Content, second: Content
    ) -> tuple[Turn, ...]:
        truth = sample.metadata.get(TRUTH, "")
        w = self.wording
        template = w.factuality_with_truth if truth else w.factuality
        criteria, question = sample.metadata[FACTUALITY], texts(sample.question)
        filled = _filled(template, question, criteria, first, second, truth)
        return (Turn("user", filled),)

    def read(self, reply: str, aspect: Aspect = "preference") -> Read:
        """A five-level verdict, or two marks out of 10."""
        if aspect == "preference":
            return official_creation(reply) if self.mode == "official" else level(reply)
        return official_marks(reply) if self.mode == "official" else marks(reply)

    def aggregate(self, games: Iterable[Game], baseline: str | None = None) -> Table:
        """Reward, win rate and visual factuality of each pair's second system."""
        rows = [
            self._row(pair, part, group, found)
            for pair, played in by_pair(games, baseline).items()
            for part, group, found in groups(played)
        ]
        return Table(
            protocol=self.name, mode=self.mode, baseline=baseline, rows=tuple(rows)
        )

    def _row(self, pair: tuple[str, str], part: Part, group: str, games: list[Game]) -> Row:
        official = self.mode == "official"
        values = official_rewards(games) if official else corrected_rewards(games)
        return Row(
            system=pair[1],
            opponent=pair[0],
            part=part,
            group=group,
            values=values,
            counts=counted(games) | spread(games),
        )


def _filled(
    template: str,
    question: Content,
    criteria: str,
    first: Content,
    second: Content,
    truth: str = "",
) -> Content:
    """`template` filled under this project's field names and the published ones."""
    fields = {
        "question": question,
        "criteria": told(criteria),
        "first": first,
        "second": second,
        "truth": told(truth),
    }
    published = {
        "instructions": question,
        "reference_answer_by_gpt4o": first,
        "prediction": second,
        "groundtruth": told(truth),
    }
    return fill(template, fields | published)
