"""DPG-like (ELLA, arXiv 2403.05135): the share of a prompt's propositions that hold.

DPG-Bench asks mPLUG-large, a model of modelscope; here an LVLM is asked, for which `Yes`
must be likelier than `No`. The rest is compute_dpg_bench.py of TencentQQGYLab/ELLA@025f650:
a proposition that depends on one that does not hold does not hold itself. What `official`
and `corrected` differ in stands in benchmarks/tasks/OFFICIAL.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import ClassVar

from plait.generators.base import Outcome, Result, Unscored
from plait.generators.document import Query, Score
from plait.generators.logprobs import Logprobs
from plait.scorers.parts import PartScale, PartTable
from plait.scorers.vqa.questions import (
    NO,
    YES,
    YES_NO,
    ModeSettings,
    Question,
    QuestionScorer,
    WordedSettings,
)

PROPOSITIONS = "dpg_propositions"
"""Metadata of a query, as a JSON list of `[id, ids it depends on, category, question]`."""
FIRST_ROW = "dpg_first_row"
"""Metadata of the query whose first proposition is the first row of the file."""


class DpgSettings(WordedSettings, ModeSettings):
    """Mode and wording."""

    question: str = "{} Please answer Yes or No."
    """What is asked, with `{}` in the place of the benchmark's question."""


@dataclass(frozen=True, slots=True)
class Proposition:
    """A statement about the image of a prompt."""

    id: int
    depends_on: tuple[int, ...]
    category: str
    question: str


@dataclass(frozen=True, kw_only=True)
class DpgScorer(QuestionScorer):
    """Scores the images of a document by the propositions of its prompt, in percent.

    Criteria are the categories (entity, attribute, relation, ...).
    """

    settings_of = DpgSettings
    about = "0-100; percent of a prompt's propositions; higher is better"
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("criteria/*", "share", "0-1", "criterion"),
        PartScale("said/*/*", "ruling", "0-1"),
        PartScale("held/*/*", "ruling", "0-1"),
    )
    options: DpgSettings

    @property
    def manner(self) -> str:
        """That another model answers, and which mode."""
        return (
            f"DPG-like, of an LVLM's answers instead of mPLUG's, {self.options.mode} mode"
        )

    def questions(self, query: Query) -> Sequence[Question]:
        """Ask whether each proposition holds."""
        questions: list[Question] = []
        for one in self._propositions(query):
            text = self.options.question.replace("{}", one.question)
            questions.append(Question(text, YES_NO))
        return questions

    def score(self, query: Query, images: Sequence[Sequence[Logprobs]]) -> Outcome[Score]:
        """Return the mean over the images of the share that holds.

        Unscored where a proposition depends on one that is not there.
        """
        propositions = self._propositions(query)
        depends_on = {one.id: one.depends_on for one in propositions}
        parents = set(chain.from_iterable(depends_on.values()))
        if lost := parents - depends_on.keys():
            return Unscored(f"a proposition depends on {min(lost)}, which is not there")
        official = self.options.mode == "official"
        hold = hold_in_order if official else hold_by_ancestors
        # Of each image: by proposition, what the LVLM says and what holds.
        said: list[dict[int, bool]] = []
        held: list[dict[int, bool]] = []
        shares: list[float] = []
        for records in images:
            rulings = {}
            for proposition, record in zip(propositions, records, strict=True):
                rulings[proposition.id] = is_yes(record)
            said.append(rulings)
            held.append(hold(depends_on, rulings))
            shares.append(fmean(held[-1].values()))
        # The released program tells categories of what is said about the last image.
        of_categories = said[-1:] if official else held
        categories = self._by_category(propositions, of_categories)
        parts = {"criteria": categories, "said": said, "held": held}
        return Result(Score(100 * fmean(shares), parts))

    def _by_category(
        self, propositions: Sequence[Proposition], images: Sequence[Mapping[int, bool]]
    ) -> dict[str, float]:
        """Return the share of each category that is true, over all these images."""
        rulings: dict[str, list[bool]] = {}
        for image in images:
            for one in propositions:
                rulings.setdefault(one.category, []).append(image[one.id])
        return {category: fmean(own) for category, own in rulings.items()}

    def _propositions(self, query: Query) -> list[Proposition]:
        rows = json.loads(query.metadata.get(PROPOSITIONS, "[]"))
        if self.options.mode == "official" and FIRST_ROW in query.metadata:
            # The released program does not read the first row of the file.
            del rows[0]
        propositions: list[Proposition] = []
        for id, depends_on, category, question in rows:
            propositions.append(Proposition(id, tuple(depends_on), category, question))
        return propositions


def is_yes(record: Logprobs) -> bool:
    """Return whether a reply is likelier to begin with yes than with no."""
    return record.probability(YES) > record.probability(NO)


def hold_in_order(
    depends_on: Mapping[int, Sequence[int]], said: Mapping[int, bool]
) -> dict[int, bool]:
    """Return which propositions hold where those are gone through in the order listed.

    One that is listed before what it depends on sees only what was said of that.
    """
    held = dict(said)
    for id, parents in depends_on.items():
        held[id] = held[id] and all(held[parent] for parent in parents)
    return held


def hold_by_ancestors(
    depends_on: Mapping[int, Sequence[int]], said: Mapping[int, bool]
) -> dict[int, bool]:
    """Return which propositions hold with all that they depend on, however listed."""
    held = dict(said)
    # No chain of dependence is longer than the list, whose order may be against it.
    for _ in depends_on:
        held = hold_in_order(depends_on, held)
    return held
