"""Answers compared with the known one, without a judge.

`known-answer` reads RealUnify's letters of options, and of Uni-MMMU the choice of a jigsaw
and the moves through a maze or of a sliding puzzle. `isg-structure` compares the order of
texts and images with the ground truth's.

`official` reads as eval/eval_understanding.py of FrankYang-17/RealUnify@0b76a10 and
eval_ummmu.py of Vchitect/Uni-MMMU@b5200b2 do: an answer that they cannot read is wrong. In
corrected mode it is unscored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from generators.base import NotApplicable, Outcome, Result, Unread, Unscored, Weights
from generators.document import Candidate, Document, Sample, Score, Text
from generators.thoughts import UNFINISHED, separate
from scorers.base import DocumentSettings, Preset, Presets, Scorer
from scorers.judging.isg import LAST, NEVER_JUDGED, structure
from scorers.judging.replies import Unreadable
from scorers.judging.sources import Mode

KNOWN = "known_answer"
"""Metadata of a query: a JSON object of the `form`, the `truth`, and of letters how many
options there are (`of`)."""
LETTER, CHOICE, MOVES, ORDER = "letter", "choice", "moves", "order"
DIRECTIONS = ("up", "down", "left", "right")


class AnswerSettings(DocumentSettings):
    """How answers are read."""

    stage: ClassVar[str] = "known-answer"
    target: ClassVar[str] = "scorers.answers:AnswerReader"

    mode: Mode = "corrected"
    """`official` reads as the benchmarks' own programs; `corrected` guesses nothing."""


class AnswerReader:
    """Reads answers; a score is 1 for the known one, else 0, and of moves a share.

    `parts` hold what was `read`, and in `criteria` the `chance` of a guess; of moves
    whether they are `exact`, and the share of `steps`.
    """

    def __init__(self, *, weights: Weights | None = None, **settings: Any) -> None:
        self._official = AnswerSettings(**settings).mode == "official"

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Score]]:
        """One score per document; what cannot be read is Unread in corrected mode."""
        return [self._outcome(candidate) for candidate in inputs]

    def _outcome(self, candidate: Candidate) -> Outcome[Score]:
        known = json.loads(candidate.criteria or "{}")
        form, truth, text = known["form"], known["truth"], candidate.document.text
        if form == ORDER:
            read: Any = text
        elif self._official:
            read = _OFFICIAL[form](text)
        elif not text.strip():
            return Unscored("the document holds no text")
        elif form == LETTER:
            read = letter(text, known["of"])
        else:
            read = choice(text) if form == CHOICE else moves(text)
        if isinstance(read, Unreadable):
            return Unread(read.reason)
        parts: dict[str, Any] = {"read": read, "truth": truth}
        value = float(read == truth)
        if form == MOVES:
            exact, longest = value, max(len(truth), 0 if self._official else len(read))
            value = sum(a == b for a, b in zip(read, truth, strict=False)) / (longest or 1)
            parts["criteria"] = {"exact": exact, "steps": value}
        elif form != ORDER:
            parts["criteria"] = {"chance": 1 / known.get("of", 2)}
        return Result(Score(value, parts))


@dataclass(frozen=True, slots=True)
class KnownAnswerScorer(Scorer):
    """Scores the text of an answer against the known answer."""

    presets: ClassVar[Presets] = {"known-answer": Preset(AnswerSettings())}
    scale: str = "0-1"

    @property
    def manner(self) -> str:
        """Which mode, and what a guess is worth."""
        return (
            f"{self.stage.settings['mode']} mode; a guess scores 1 over the number of "
            "options, 0.25 of four and 0.5 of two"
        )

    def candidate(
        self, query: Sample, document: Document
    ) -> Candidate | Unscored | NotApplicable:
        """Return the text without a thought, and what is known."""
        if (known := query.metadata.get(KNOWN)) is None:
            return NotApplicable("no answer that can be compared is known of the query")
        reply = separate(document.text)
        if reply.unfinished and self.stage.settings["mode"] == "corrected":
            return Unscored(f"the answer {UNFINISHED}")
        return Candidate(Document((Text(reply.text),)), criteria=known)


@dataclass(frozen=True, slots=True)
class StructureScorer(Scorer):
    """ISG-Bench's structure level: 1 where texts and images follow as in the truth."""

    presets: ClassVar[Presets] = {"isg-structure": Preset(AnswerSettings())}
    scale: str = "0-1"

    @property
    def manner(self) -> str:
        """Which mode."""
        return f"{self.stage.settings['mode']} mode"

    def candidate(
        self, query: Sample, document: Document
    ) -> Candidate | Unscored | NotApplicable:
        """Return the order of both as text."""
        mode: Mode = self.stage.settings["mode"]
        if query.reference is None:
            return NotApplicable("the query has no ground truth")
        if mode == "official" and LAST in query.metadata:
            return NEVER_JUDGED
        if mode == "corrected" and not document.segments:
            return Unscored("the document is empty")
        own, true = (structure(d.segments, mode) for d in (document, query.reference))
        known = json.dumps({"form": ORDER, "truth": true})
        return Candidate(Document((Text(own),)), criteria=known)


# ------------------------------------------------------------------------------ readers

_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
_ALONE = re.compile(r"[\W_]*(?:boxed\{)?([A-Z])(?:[\W_]*|[.):][^\n]*)")
_STATED = re.compile(
    r"(?i:\banswer|\b(?:correct|best|final) (?:option|choice))(?i:\s+is)?[\s:*_(\[`'\"]+"
    r"([A-Z])(?=[*_`'\"]*(?:\s*$|[.,;:)\]]|\s+(?:because|since|as)\b))",
    re.MULTILINE,
)


def letter(text: str, options: int) -> str | Unreadable:
    """Return the letter that an answer consists of, is tagged with, or states.

    Unreadable where there is none, two differ, or it names none of the `options`.
    """
    tagged = _TAGGED.findall(text)
    alone = _ALONE.fullmatch((tagged[-1] if tagged else text).strip())
    found = {alone[1]} if alone else set(_STATED.findall(text))
    valid = {chr(ord("A") + i) for i in range(options)}
    if len(found) == 1 and found <= valid:
        return found.pop()
    what = ", ".join(sorted(found)) or "no letter"
    return Unreadable(f"it states {what} of {options} options: {text[:200]!r}")


_CHOICE = re.compile(
    r"<FINAL_ANSWER_JSON>\s*(\{.*?\})\s*</FINAL_ANSWER_JSON>", re.DOTALL | re.IGNORECASE
)
_MOVES = re.compile(
    r"<ANSWER_JSON>\s*(\[.*?\])\s*</ANSWER_JSON>", re.DOTALL | re.IGNORECASE
)


def choice(text: str) -> int | Unreadable:
    """Return the choice, 0 or 1, of the last object between FINAL_ANSWER_JSON tags."""
    content = _last(_CHOICE, text)
    value = str(content.get("choice")) if isinstance(content, dict) else ""
    if value in ("0", "1"):
        return int(value)
    return Unreadable(f"there is no choice of 0 or 1 between tags: {text[-200:]!r}")


def moves(text: str) -> list[str] | Unreadable:
    """Return the moves of the last list between ANSWER_JSON tags."""
    content = _last(_MOVES, text)
    read = [str(m).strip().lower() for m in content] if isinstance(content, list) else None
    if read is not None and set(read) <= {*DIRECTIONS}:
        return read
    return Unreadable(f"there is no list of {', '.join(DIRECTIONS)}: {text[-200:]!r}")


def _last(pattern: re.Pattern[str], text: str) -> Any:
    found = pattern.findall(text)
    try:
        return json.loads(found[-1]) if found else None
    except (ValueError, RecursionError):
        return None


_PREFIXES = (
    *("The best answer is", "The correct answer is", "The answer is", "The answer"),
    *("The best option is", "The correct option is", "Best answer:", "Best option:"),
    *("Answer", "Answer is"),
)
"""What `extract_characters_regex` takes away, one after another, wherever it occurs."""


def official_letter(text: str) -> str:
    """`extract_characters_regex`: the first capital of A to D; empty without one."""
    for prefix in _PREFIXES:
        text = text.replace(prefix, "")
    found = re.search("[ABCD]", text)
    return found[0] if found else ""


def official_choice(text: str) -> int | None:
    """`_parse_choice_from_text`: of the first object between tags, None for any other."""
    found = _CHOICE.search(text)
    try:
        value = json.loads(found[1]).get("choice") if found else None
    except json.JSONDecodeError:
        return None
    return int(value) if value in (0, 1) else None


def official_moves(text: str) -> list[str]:
    """`_parse_moves`: of the last list between tags; none where it is not JSON."""
    content = _last(_MOVES, text)
    return [str(move).strip().lower() for move in content or ()]


_OFFICIAL = {LETTER: official_letter, CHOICE: official_choice, MOVES: official_moves}
