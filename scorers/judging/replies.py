"""A judge's request, and what its reply says or lacks.

Nothing is guessed: a value that is out of range, or stated in two ways, does not count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, TypeVar

from generators import replies
from generators.document import Content, Image
from scorers.judging.rubrics import TOP, Rubric


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
        return sum(isinstance(s, Image) for s in self.content)


_NUMBER = r"(?P<value>[+-]?\d{1,9}(?:\.\d{1,9})?)"
_SCORE = re.compile(
    r"^[ \t#>*_`|-]*(?:(?:final|overall|total)[ ]+)?score\b(?:[ ]*\([^)\n]*\))?"
    rf"[\s*_`:=|<]*{_NUMBER}"
    r"(?:[ \t]*(?:/|out of)[ \t]*(?P<of>\d{1,3}))?"
    r"[*_`>]*(?:[ ]+points?)?[ \t]*[.|]?[ \t]*(?:\([^)\n]*\)[.]?[ \t]*)?$",
    re.IGNORECASE | re.MULTILINE | re.ASCII,
)
_VERDICTS = re.compile(r"^[ \t#>*_]*verdicts\b[\s*_:]*$", re.IGNORECASE | re.MULTILINE)


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
    values = replies.stated(reply, *keys)
    if bare and not values:
        values = [replies.bare(reply)]
    readings = {read(value) for value in values}
    if len(readings) == 1 and (reading := readings.pop()) is not None:
        return reading
    several = f"{keys[0]!r} is stated as {' and as '.join(map(shown, values))}"
    detail = several if len(values) > 1 else ""
    # The reasons are those from when nothing but JSON was read, so that the follow-up
    # questions of runs made then have the keys that they had.
    plain = replies.json_object(reply)
    if plain is None:
        return Unreadable(no_object(reply), detail)
    if detail and read(plain.get(keys[0])) is not None:
        return Unreadable(detail)
    return Unreadable(problem(shown(plain.get(keys[0]))), detail)


def object_schema(**members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of an object with these members, all required."""
    return {
        "type": "object",
        "properties": members,
        "required": [*members],
        "additionalProperties": False,
    }


def shown(value: Any) -> str:
    """Return a value as Python writes it; one that is nested too deep by its type."""
    try:
        return repr(value)
    except RecursionError:
        return f"a {type(value).__name__} inside others"


def read_reply(reply: str, rubric: Rubric) -> RubricVerdict | Unreadable:
    """The judgement in `reply`; the last score counts, and verdicts after their heading."""
    reply = re.sub(r"\r\n?", "\n", reply)
    stated, problem = _stated(reply)
    verdicts = {name: _verdict(reply, name) for name in rubric.criteria}
    penalty = _verdict(reply, rubric.penalty, signed=True) if rubric.penalty else 0
    summed = _summed([*verdicts.values(), penalty])
    raw = stated if summed is None else summed
    if raw is None:
        return Unreadable("; ".join([problem, *_missing(verdicts, rubric, penalty)]))
    return RubricVerdict(
        raw=raw,
        source="score" if summed is None else "verdicts",
        stated=stated,
        summed=summed,
        criteria=verdicts,
        penalty=penalty if rubric.penalty else None,
    )


def _stated(reply: str) -> tuple[int | None, str]:
    """Return the score of the last score line, and the problem where there is none."""
    lines = list(_SCORE.finditer(reply))
    if not lines:
        return None, "there is no score"
    value, of = lines[-1]["value"], lines[-1]["of"]
    number, on_scale = float(value), of is None or int(of) == TOP
    if on_scale and number.is_integer() and 0 <= number <= TOP:
        return int(number), ""
    text = value if of is None else f"{value}/{of}"
    return None, f"the score {text!r} is no integer from 0 to {TOP}"


def _summed(values: list[int | None]) -> int | None:
    """Criteria less the penalty, which comes last; None without criteria."""
    if len(values) < 2 or None in values:
        return None
    *criteria, penalty = (v for v in values if v is not None)
    return max(0, sum(criteria) - penalty)


def _verdict(reply: str, name: str, *, signed: bool = False) -> int | None:
    """0 or 1; a penalty (`signed`) may be written -1."""
    headings = list(_VERDICTS.finditer(reply))
    start = headings[-1].end() if headings else 0
    values = {m["value"] for m in _line(name).finditer(reply, start)}
    if signed:
        values = {v.removeprefix("-") for v in values}
    return int(values.pop()) if values in ({"0"}, {"1"}) else None


@cache
def _line(name: str) -> re.Pattern[str]:
    """A line that gives a criterion its verdict: `1. **Name** (strict): 1/1 - because`."""
    return re.compile(
        rf"^[ \t#>*_|-]*(?:\d+[ ]*[.)])?[ \t*_|]*{re.escape(name)}(?:[ ]+score)?[*_]*"
        r"(?:[ ]*\([^)\n]*\))?[*_]*"
        rf"(?:[ \t]*[:=|]|[ \t]+-(?=[ \t]))[ \t*_`<]*{_NUMBER}(?:[ ]*/[ ]*1\b)?"
        r"[*_`>]*(?:[ ]+points?)?"
        r"(?=[ \t]*$|[ \t]*[.,;:](?!\d)|[ \t]*[(|]|[ \t]+(?:-|\u2013|\u2014)[ \t])",
        re.IGNORECASE | re.MULTILINE | re.ASCII,
    )


def _missing(
    verdicts: Mapping[str, int | None], rubric: Rubric, penalty: int | None
) -> list[str]:
    names = [name for name, value in verdicts.items() if value is None]
    if rubric.penalty and penalty is None:
        names.append(rubric.penalty)
    if len(names) == len(verdicts) + bool(rubric.penalty) > 0:
        return ["there are no verdicts"]
    return [f"no verdict of 0 or 1 on {', '.join(names)}"] if names else []
