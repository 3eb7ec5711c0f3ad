"""Answers compared with the known one, without a judge.

`known-answer` reads RealUnify's letters of options, and of Uni-MMMU the choice of a jigsaw
and the moves through a maze or of a sliding puzzle. `isg-structure` compares the order of
texts and images with the ground truth's.

`official` reads as eval/eval_understanding.py of FrankYang-17/RealUnify@0b76a10 and
eval_ummmu.py of Vchitect/Uni-MMMU@b5200b2 do: an answer that they cannot read is wrong. In
corrected mode it is unscored, and what a model thinks first is no part of its answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from plait.generators.base import NotApplicable, Outcome, Result, Unread, Unscored, Weights
from plait.generators.document import Candidate, Document, Query, Score, Text
from plait.generators.thoughts import UNFINISHED, separate
from plait.scorers.base import NO_TRUTH, DocumentSettings, NoScore, Preset, Presets, Scorer
from plait.scorers.judging.isg import LAST, NEVER_JUDGED, structure
from plait.scorers.judging.replies import Unreadable
from plait.scorers.judging.sources import Mode
from plait.scorers.parts import PartScale, PartTable

KNOWN = "known_answer"
"""Metadata of a query: a JSON object of the `form`, the `truth`, and of letters how many
options there are (`of`)."""
LETTER = "letter"
CHOICE = "choice"
MOVES = "moves"
ORDER = "order"
DIRECTIONS = ("up", "down", "left", "right")


class AnswerSettings(DocumentSettings):
    """How answers are read."""

    stage: ClassVar[str] = "known-answer"
    target: ClassVar[str] = "plait.scorers.answers:AnswerReader"
    version: ClassVar[int] = 2
    superseded: ClassVar[Mapping[int, str]] = {1: "which counted non-answers"}

    mode: Mode = "corrected"
    """`official` reads as the benchmarks' own programs; `corrected` guesses nothing."""

    def results_version(self) -> int:
        """Return the version of the corrected readers; the official ones never change."""
        return 1 if self.mode == "official" else self.version


class StructureSettings(AnswerSettings):
    """How orders of texts and images are compared: what is read of words is not used."""

    version: ClassVar[int] = 1


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
        form = known["form"]
        truth = known["truth"]
        text = candidate.document.text
        if form != ORDER and not self._official and not text.strip():
            return Unscored("the document holds no text")
        read = self._read(text, known)
        if isinstance(read, Unreadable):
            return Unread(read.reason)
        parts: dict[str, Any] = {"read": read, "truth": truth}
        value = float(read == truth)
        if form == MOVES:
            exact = value
            longest = max(len(truth), 0 if self._official else len(read))
            value = sum(a == b for a, b in zip(read, truth, strict=False)) / (longest or 1)
            parts["criteria"] = {"exact": exact, "steps": value}
        elif form != ORDER:
            parts["criteria"] = {"chance": 1 / known.get("of", 2)}
        return Result(Score(value, parts))

    def _read(self, text: str, known: Mapping[str, Any]) -> Any:
        """Return what an answer says in the form of the known one, or Unreadable."""
        form = known["form"]
        if form == ORDER:
            return text
        if self._official:
            return _OFFICIAL[form](text)
        if form == LETTER:
            from plait.scorers.letters import find_letter

            return find_letter(text, known["of"])
        return choice(text) if form == CHOICE else moves(text)


@dataclass(frozen=True, slots=True)
class KnownAnswerScorer(Scorer):
    """Scores the text of an answer against the known answer."""

    presets: ClassVar[Presets] = {"known-answer": Preset(AnswerSettings())}
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("criteria/exact", "ruling", "0-1", "criterion"),
        PartScale("criteria/steps", "share", "0-1", "criterion"),
        PartScale("criteria/chance", "probability", "0-1", "criterion"),
        PartScale("read", "choice", "0-1"),
        PartScale("truth", "choice", "0-1"),
    )
    scale: str = "0-1"

    @property
    def manner(self) -> str:
        """Which mode, and what a guess is worth."""
        return (
            f"{self.stage.settings['mode']} mode; a guess scores 1 over the number of "
            "options, 0.25 of four and 0.5 of two"
        )

    def candidate(self, query: Query, document: Document) -> Candidate | NoScore:
        """Return the text without a thought, and what is known."""
        reply = separate(document.text)
        if reply.unfinished and self.stage.settings["mode"] == "corrected":
            return Unscored(f"the answer {UNFINISHED}")
        return Candidate(Document((Text(reply.text),)), criteria=query.metadata[KNOWN])

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs an answer that is known."""
        if KNOWN in query.metadata:
            return None
        return NotApplicable("no answer that can be compared is known of the query")


@dataclass(frozen=True, slots=True)
class StructureScorer(Scorer):
    """ISG-Bench's structure level: 1 where texts and images follow as in the truth."""

    presets: ClassVar[Presets] = {"isg-structure": Preset(StructureSettings())}
    scale: str = "0-1"

    @property
    def manner(self) -> str:
        """Which mode."""
        return f"{self.stage.settings['mode']} mode"

    def candidate(self, query: Query, document: Document) -> Candidate | NoScore:
        """Return the order of both as text."""
        mode: Mode = self.stage.settings["mode"]
        assert query.reference is not None
        if mode == "corrected" and not document.segments:
            return Unscored("the document is empty")
        own, true = (structure(d.segments, mode) for d in (document, query.reference))
        known = json.dumps({"form": ORDER, "truth": true})
        return Candidate(Document((Text(own),)), criteria=known)

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs a ground truth; the released program leaves out one query of a file."""
        if query.reference is None:
            return NotApplicable(NO_TRUTH)
        last = self.stage.settings["mode"] == "official" and LAST in query.metadata
        return NEVER_JUDGED if last else None


# ------------------------------------------------------------------------------ readers


_CHOICE = re.compile(
    r"<FINAL_ANSWER_JSON>\s*(\{.*?\})\s*</FINAL_ANSWER_JSON>", re.DOTALL | re.IGNORECASE
)
_MOVES = re.compile(
    r"<ANSWER_JSON>\s*(\[.*?\])\s*</ANSWER_JSON>", re.DOTALL | re.IGNORECASE
)


def choice(text: str) -> int | Unreadable:
    """Return the choice, 0 or 1, of the object between FINAL_ANSWER_JSON tags.

    An answer that is nothing but JSON needs no tags. Unreadable where there is no such
    choice, or two differ and the later does not correct the former.
    """
    found = _read_tagged(text, "FINAL_ANSWER_JSON", "{", _choice_of)
    if found is not None:
        return int(found)
    return Unreadable(f"there is no one choice of 0 or 1: {text[-200:]!r}")


def moves(text: str) -> list[str] | Unreadable:
    """Return the moves of the list between ANSWER_JSON tags.

    An answer that is nothing but JSON needs no tags. Unreadable as for `choice`.
    """
    found = _read_tagged(text, "ANSWER_JSON", "[", _moves_of)
    if found is not None:
        return list(found)
    return Unreadable(f"there is no one list of {', '.join(DIRECTIONS)}: {text[-200:]!r}")


def _choice_of(content: Mapping[str, Any]) -> int | None:
    value = content.get("choice")
    return None if isinstance(value, bool) or value not in (0, 1, "0", "1") else int(value)


def _moves_of(content: Sequence[Any]) -> list[str] | None:
    read = [move.strip().lower() for move in content if isinstance(move, str)]
    return read if len(read) == len(content) and set(read) <= {*DIRECTIONS} else None


_ONLY_JSON = re.compile(r"\s*(?:```\w*\s*)?([\[{].*[\]}])\s*(?:```)?\s*", re.DOTALL)


def _read_tagged(text: str, tag: str, opening: str, read: Callable[[Any], Any]) -> Any:
    """Return what is read in JSON between tags; None where nothing is, or two differ.

    JSON begins with `opening`.
    """
    from plait.scorers.letters import corrects

    tags = re.compile(rf"<{tag}>(.*?)(?:</{tag}>|\Z)", re.DOTALL | re.IGNORECASE)
    places = list(tags.finditer(text)) or filter(None, [_ONLY_JSON.fullmatch(text)])
    agreed = None
    before = 0
    for place in places:
        for content, start in _json_values(text[: place.end(1)], opening, place.start(1)):
            value = read(content)
            if before and value != agreed and not corrects(text, before, start):
                return None
            agreed = value
            before = place.end(1)
    return agreed


def _json_values(text: str, opening: str, start: int) -> Iterator[tuple[Any, int]]:
    """Yield each JSON value that begins with `opening`, and where it begins.

    None from one on that is nested deeper than any answer: trying each value in it takes
    time by the square of its length.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_object)
    place = text.find(opening, start)
    while place >= 0:
        try:
            content, end = decoder.raw_decode(text, place)
        except RecursionError:
            return
        except ValueError:
            end = place + 1
        else:
            yield content, place
        place = text.find(opening, end)


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """ValueError where a key stands twice with different values."""
    content: dict[str, Any] = {}
    for key, value in pairs:
        if content.setdefault(key, value) != value:
            raise ValueError(f"{key!r} stands twice")
    return content


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
    except (ValueError, RecursionError):
        # Also of what ends the program: JSON nested too deep, a number of 5,000 digits.
        return None
    return int(value) if value in (0, 1) else None


def official_moves(text: str) -> list[str]:
    """`_parse_moves`: of the last list between tags; none where it is not JSON."""
    content = _last(_MOVES, text)
    return [str(move).strip().lower() for move in content or ()]


_OFFICIAL = {LETTER: official_letter, CHOICE: official_choice, MOVES: official_moves}
