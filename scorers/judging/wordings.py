"""The same judge, asked in other words: how much its scores depend on the wording.

    for number in range(3):
        walk = walk_in_wording(judge, number, query, document)

Wording 0 is the judge's own. Each further one begins with another line, which changes
nothing of what is asked, and has the rubric's criteria in another order, where the judge
goes by plait's rubrics or by one of the user's. Both are changes that no verdict should
depend on; a rubric that was written anew may differ more.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from plait.generators.base import Job, Outcome, Walk
from plait.generators.content import join_texts
from plait.generators.document import Document, Query, Request, Score, Text
from plait.scorers.judging.judge import ChatJudge, RubricJudge
from plait.scorers.judging.mmie import Corrected
from plait.scorers.judging.rubrics import OPENINGS, OWN, own_in_other_order, rotate
from plait.scorers.judging.user_judge import UserRubricJudge

MOST = 1 + len(OPENINGS)
"""Wordings that there are."""


def walk_in_wording(
    judge: ChatJudge, number: int, query: Query, document: Document
) -> Walk[Score]:
    """Walk to the score that a judge gives in one of its wordings, from 0 to MOST - 1."""
    other = with_other_order(judge, number)
    walk = other.judge(query, document)
    return walk if number == 0 else _with_opening(walk, OPENINGS[number - 1])


def with_other_order(judge: ChatJudge, shift: int) -> ChatJudge:
    """Return a judge with its criteria in another order; as it is where it has none."""
    if not shift:
        return judge
    if isinstance(judge, UserRubricJudge):
        return replace(judge, examiner=_users_in_other_order(judge, shift))
    if not isinstance(judge, RubricJudge) or not isinstance(judge.examiner, Corrected):
        return judge
    if not {*judge.examiner.rubrics.values()} <= {*OWN.values()}:
        return judge
    examiner = replace(judge.examiner, rubrics=own_in_other_order(shift))
    return replace(judge, examiner=examiner)


def _users_in_other_order(judge: UserRubricJudge, shift: int) -> Any:
    rubric = judge.rubric
    categories = {}
    for name, own in rubric.categories.items():
        categories[name] = replace(own, criteria=rotate(own.criteria, shift))
    usual = replace(rubric.usual, criteria=rotate(rubric.usual.criteria, shift))
    shifted = replace(rubric, usual=usual, categories=categories)
    return replace(judge.examiner, rubric=shifted)


def _with_opening(
    walk: Walk[Score], line: str
) -> Generator[list[Job], list[Outcome[Any]], Outcome[Score]]:
    """Go through a walk whose requests begin with a line."""
    try:
        jobs = next(walk)
        while True:
            jobs = walk.send((yield [_open_with(line, job) for job in jobs]))
    except StopIteration as end:
        outcome: Outcome[Score] = end.value
        return outcome


def _open_with(line: str, job: Job) -> Job:
    """Return a request that begins with a line; a job that is none as it is."""
    request = job.input
    if not isinstance(request, Request):
        return job
    turns = [*request.turns]
    for i, turn in enumerate(turns):
        if turn.role == "user":
            content = join_texts([Text(f"{line}\n\n"), *turn.content])
            turns[i] = replace(turn, content=content)
            break
    return replace(job, input=replace(request, turns=tuple(turns)))
