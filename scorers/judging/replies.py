"""A judge's request, and what its reply says or lacks.

Nothing is guessed: a value that is out of range, or stated in two ways, does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from plait.generators import replies
from plait.generators.document import Content, Image
from plait.scorers.judging.rubrics import TOP, Rubric
from plait.scorers.judging.statements import SCORE, find_values
from plait.scorers.judging.voice import own_texts, plain_marks


@dataclass(frozen=True, slots=True)
class RubricQuestion:
    """The one turn that asks for a judgement."""

    rubric: Rubric
    content: Content
    """Rubric, question and answer in this order, so that all requests about one question
    begin alike and a server's prefix cache serves them."""
    left_out: int = 0
    """Images of question and answer that the judge is not shown."""
    cut: bool = False
    """Whether text of the answer is left out."""
    neutralised: tuple[str, ...] = ()
    """Control sequences that question or answer spelled out, and that were neutralised."""

    @property
    def images(self) -> int:
        """Images the judge is shown."""
        return sum(isinstance(part, Image) for part in self.content)


@dataclass(frozen=True, slots=True)
class RubricVerdict:
    """A judgement of one document on the raw scale of 0 to 6."""

    raw: int
    source: Literal["verdicts", "score"]
    """What `raw` is: the sum of the verdicts less the penalty, which the rubric defines
    the score to be (MMIE, appendix A.9) and which wins over a stated score; or the stated
    score, where not every verdict can be read."""
    stated: int | None = None
    """The score as the reply states it."""
    summed: int | None = None
    """The sum of the verdicts less the penalty, at least 0; None where one is missing."""
    criteria: Mapping[str, int | None] = field(default_factory=dict)
    penalty: int | None = None

    @property
    def consistent(self) -> bool | None:
        """True where both agree; None where there is only one of them."""
        known = self.stated is not None and self.summed is not None
        return self.stated == self.summed if known else None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A reply without a judgement."""

    reason: str
    """Names what is missing. The judge is told when it is asked again, so that the words
    are part of the key of what it replies then."""
    detail: str = ""
    """What people are told besides."""

    @property
    def told(self) -> str:
        """What people are told."""
        return f"{self.reason}; {self.detail}" if self.detail else self.reason


H = TypeVar("H", bound=Hashable)


def no_object(reply: str) -> str:
    """Return the reason of a reply that states nothing under the keys asked for."""
    return f"it is not one JSON object: {reply[:200]!r}"


def read_key(
    reply: str,
    keys: tuple[str, ...],
    read: Callable[[Any], H | None],
    problem: Callable[[str], str],
    *,
    bare: bool = False,
) -> H | Unreadable:
    """Return what a reply states under `keys`, of which the first is the one asked for.

    `read` gives None for a value that says nothing, and `problem` says what is wrong with
    one. A reply that states two things states nothing. With `bare` a reply may also be the
    value alone.
    """
    values = replies.statements_of(reply, *keys)
    if bare and not values:
        values = [replies.bare(reply)]
    readings = {read(value) for value in values}
    if len(readings) == 1 and (reading := readings.pop()) is not None:
        return reading
    several = f"{keys[0]!r} is stated as {' and as '.join(map(repr_of, values))}"
    detail = several if len(values) > 1 else ""
    # The reasons are those from when nothing but JSON was read, so that the follow-up
    # questions of runs made then have the keys that they had.
    plain = replies.json_object(reply)
    if plain is None:
        return Unreadable(no_object(reply), detail)
    if detail and read(plain.get(keys[0])) is not None:
        return Unreadable(detail)
    return Unreadable(problem(repr_of(plain.get(keys[0]))), detail)


def object_schema(**members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of an object with these members, all required."""
    return {
        "type": "object",
        "properties": members,
        "required": [*members],
        "additionalProperties": False,
    }


def repr_of(value: Any) -> str:
    """Return a value as Python writes it; one that is nested too deep by its type."""
    try:
        return repr(value)
    except RecursionError:
        return f"a {type(value).__name__} inside others"


def read_reply(reply: str, rubric: Rubric) -> RubricVerdict | Unreadable:
    """The judgement in `reply`: the verdicts after their heading, and the score.

    What the reply quotes or supposes does not count (`voice`). Two verdicts on a criterion,
    or scores that differ and are not the sum, leave it unread.
    """
    stated: dict[str, list[str]] = {}
    for text in own_texts(plain_marks(reply)):
        stated = find_values(text, rubric.criteria, rubric.penalty)
        if any(stated.values()):
            break
    verdicts = {name: _verdict(stated[name]) for name in rubric.criteria}
    penalty = _verdict(stated[rubric.penalty]) if rubric.penalty else 0
    summed = _sum([*verdicts.values(), penalty])
    # Of several scores the one that is the sum is meant.
    if str(summed) in stated[SCORE]:
        stated[SCORE] = [str(summed)]
    scores = stated[SCORE]
    score = int(scores[-1]) if scores and scores[-1] in _ON_SCALE else None
    raw = score if summed is None else summed
    if raw is None:
        problem = "there is no score"
        if scores:
            problem = f"the score {scores[-1]!r} is no integer from 0 to {TOP}"
        missing = _missing(verdicts, rubric, penalty)
        return Unreadable("; ".join([problem, *missing]))
    several = []
    for name, values in stated.items():
        if len(values) > 1:
            several.append(f"{name}: {' and '.join(values)}")
    if several:
        return Unreadable(f"it says different things of {'; '.join(several)}")
    return RubricVerdict(
        raw=raw,
        source="score" if summed is None else "verdicts",
        stated=score,
        summed=summed,
        criteria=verdicts,
        penalty=penalty if rubric.penalty else None,
    )


_ON_SCALE = [str(i) for i in range(TOP + 1)]


def _sum(values: list[int | None]) -> int | None:
    """Criteria less the penalty, which comes last; None without criteria."""
    known = [value for value in values if value is not None]
    if len(values) < 2 or len(known) < len(values):
        return None
    return max(0, sum(known[:-1]) - known[-1])


def _verdict(values: list[str]) -> int | None:
    """Return 0 or 1 where nothing else is stated."""
    return int(values[0]) if values in (["0"], ["1"]) else None


def _missing(
    verdicts: Mapping[str, int | None], rubric: Rubric, penalty: int | None
) -> list[str]:
    """Return what verdicts a reply lacks, in words; empty where it lacks none."""
    names = [name for name, value in verdicts.items() if value is None]
    if rubric.penalty and penalty is None:
        names.append(rubric.penalty)
    if len(names) == len(verdicts) + bool(rubric.penalty) > 0:
        return ["there are no verdicts"]
    return [f"no verdict of 0 or 1 on {', '.join(names)}"] if names else []
