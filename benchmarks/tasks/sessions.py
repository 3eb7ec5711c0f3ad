"""Sessions: queries of several turns of which the data say something one by one.

Systems are told of each turn whether its answer is to hold images, where they can be told,
as they are of a whole query. Scores of turns are `plait.scorers.turns`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from plait.benchmarks.tasks.published import TaskSet
from plait.generators.document import Malformed, Query, Turn
from plait.generators.system import Prompter, Variant
from plait.scorers.turns import session_turns


@dataclass(frozen=True)
class TurnByTurn:
    """Words sessions as a prompter does: a `plait.generators.system.Session`."""

    prompt: Prompter

    def __call__(self, query: Query, variant: Variant) -> tuple[Turn, ...]:
        """Return the conversation as it is worded."""
        return self.prompt(query, variant)

    def next_query(self, query: Query) -> Query:
        """Return `query` as what is asked for the answer to its last turn."""
        turns = session_turns(query)
        if not turns:
            return query
        number = sum(turn.role == "user" for turn in query.turns) - 1
        return replace(query, wants_images=turns[number].wants_images)


def ask_turn_by_turn(task: TaskSet) -> TaskSet:
    """Return a task set whose sessions are asked turn by turn; any other as it is."""
    for sample in task.samples:
        if not isinstance(sample, Malformed) and session_turns(sample):
            return replace(task, prompt=TurnByTurn(task.prompt))
    return task
