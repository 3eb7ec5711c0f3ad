"""A judge that gives an edited image three marks, by the type of the edit (ImgEdit).

Marks are from 1 to 5; what they are of depends on the type. The value is their mean.

`official` asks, reads and counts as basic_bench.py, step1_get_avgscore.py and
step2_typescore.py in Benchmark/Basic of PKU-YuanGroup/ImgEdit@547185d, by the texts of the
user's copy (Ye et al., arXiv:2505.20275). It differs in this: an answer without a reply
does not end the summary, and a reply without a mark is counted as unscored.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from plait.generators.base import NotApplicable, Result, Unread, Unscored, Walk
from plait.generators.buckets import AnyPath
from plait.generators.content import fill
from plait.generators.document import Content, Document, Query, Score, Text
from plait.generators.errors import MissingInput, UsageError
from plait.generators.replies import as_number, find_objects, plain_key, statements_of
from plait.generators.thoughts import separate
from plait.scorers.base import UNBOUNDED, NoScore, ReleasedSummary
from plait.scorers.editing import Edit, edit_of, without_original
from plait.scorers.judging.judge import Question, QuestionsJudge, Readings
from plait.scorers.judging.replies import Unreadable
from plait.scorers.judging.rubrics import RELEASED, WORDING
from plait.scorers.judging.sources import Mode
from plait.scorers.parts import PartScale, PartTable

PREFIX = "imgedit:"
EDIT_TYPE = "edit_type"
"""Metadata of a query: ImgEdit's type of its edit."""
ASPECTS: Mapping[str, Mapping[str, str]] = WORDING["imgedit_marks"]
"""By type of edit the names of its marks, as the released prompts have them, and what we
say of them."""
LOWEST = 1
TOP = 5
_DIGESTS = RELEASED["imgedit"]
_INSTRUCTION = "<edit_prompt>"
"""The mark in the released texts in the place of the instruction."""

OWN: str = WORDING["imgedit"]["text"]
"""Our wording."""
Wording = str | Mapping[str, str]
"""Ours, or the released prompts by type."""


def without_type(query: Query) -> NotApplicable | None:
    """Return why a query without a type of edit is not judged; None where it has one."""
    if query.metadata.get(EDIT_TYPE) in ASPECTS:
        return None
    return NotApplicable("the query has no type of edit")


@dataclass(frozen=True, kw_only=True)
class ImgEditJudge(QuestionsJudge[Mapping[str, float]]):
    """Asks for three marks of an edit at once; their mean, from 1 to 5.

    In corrected mode neither the second nor the third counts for more than the first, as
    the benchmark's prompts demand.
    """

    own = OWN
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("criteria/*", "points", f"{LOWEST}-{TOP}", "criterion"),
        PartScale("stated/*", "points", f"{LOWEST}-{TOP}"),
    )
    images_only: bool = True
    wording: Wording = OWN

    @classmethod
    def wording_in(cls, file: AnyPath) -> Wording:
        """Return the texts of the user's prompts.json, by type; UsageError for others."""
        return read_prompts(file)

    @classmethod
    def scale_of(cls, name: str, mode: Mode) -> str:
        """Return 1-5; the released program counts any number."""
        return UNBOUNDED if mode == "official" else f"{LOWEST}-{TOP}"

    @property
    def judges(self) -> str:
        """What it judges."""
        return "three marks by type of edit"

    @property
    def criteria_are_shares(self) -> bool:
        """They are from 1 to 5."""
        return False

    @property
    def released_summary(self) -> ReleasedSummary:
        """ImgEdit's in official mode."""
        return "imgedit" if self.official else ""

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs one image and a type of edit."""
        return without_type(query) or without_original(query)

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Ask, read, and ask again where the reply cannot be read; then Unread."""
        edit = edit_of(query, document)
        if isinstance(edit, Unscored):
            return edit
        names = tuple(ASPECTS[query.metadata[EDIT_TYPE]])

        def read(_: Question, reply: str) -> Mapping[str, float] | Unreadable:
            return official_marks(reply) if self.official else marks(reply, names)

        wanted = f"Reply with one JSON object and nothing else: {form_of(names)}."
        asked = Question.of(query.id, self._content(query, edit))
        replies = yield from self.ask_all(query, [asked], read, lambda _: wanted)
        if not isinstance(replies, Readings):
            return replies
        if (stated := replies.values.get(0)) is None:
            return Unread(replies.reason_of(0))
        counted = [*stated.values()]
        if self.official:
            value = round(sum(counted) / len(counted), 2)
            return Result(Score(value, {"stated": dict(stated)}))
        capped = {name: min(mark, counted[0]) for name, mark in stated.items()}
        value = sum(capped.values()) / len(capped)
        return Result(Score(value, {"criteria": capped, "stated": dict(stated)}))

    def _content(self, query: Query, edit: Edit) -> Content:
        kind = query.metadata[EDIT_TYPE]
        if not isinstance(self.wording, str):
            text = self.wording[kind].replace(_INSTRUCTION, edit.instruction)
            return (Text(text), edit.original, edit.edited)
        lines = [f"- {name}: {about}" for name, about in ASPECTS[kind].items()]
        fields: dict[str, Content] = {
            "kind": (Text(kind),),
            "listed": (Text("\n".join(lines)),),
            "instruction": (Text(edit.instruction),),
            "original": (edit.original,),
            "edited": (edit.edited,),
            "form": (Text(form_of(tuple(ASPECTS[kind]))),),
        }
        return fill(self.wording, fields)


def form_of(names: tuple[str, ...]) -> str:
    """Return how a reply with these marks must look."""
    return json.dumps(dict.fromkeys(names, f"<{LOWEST} to {TOP}>"))


def read_prompts(file: AnyPath) -> dict[str, str]:
    """Return the published prompts in a JSON file, by type; UsageError without one."""
    try:
        texts = json.loads(file.read_text("utf-8"))
    except OSError as error:
        reason = error.strerror or error
        raise MissingInput(
            f"official prompts {str(file)!r}: {reason}; give the checkout of ImgEdit"
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not JSON: {error}") from None
    prompts: dict[str, str] = {}
    for kind, digest in _DIGESTS.items():
        text = texts.get(kind) if isinstance(texts, dict) else None
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else b""
        if hashlib.sha256(data).hexdigest() != digest:
            raise UsageError(
                f"{file} does not hold the published prompt {kind!r} (sha256 "
                f"{digest[:12]}...), as Benchmark/Basic/prompts.json does"
            )
        prompts[kind] = str(text)
    return prompts


# ------------------------------------------------------------------------------ replies

_NUMBERING = re.compile(r"\s*(?:[-*\u2022]\s+|\d{1,2}[.)]\s+)?")


def marks(reply: str, names: tuple[str, ...]) -> dict[str, float] | Unreadable:
    """Return the marks from 1 to 5 that a reply states under all of `names`.

    In a JSON object, or in lines `name: mark`. A mark that is stated in two ways is none.
    """
    found: dict[str, float] = {}
    lacking: list[str] = []
    several: list[str] = []
    for name in names:
        readings = {_mark(value) for value in _find_values(reply, name)}
        mark = next(iter(readings), None)
        if len(readings) > 1:
            several.append(name)
        elif mark is None:
            lacking.append(name)
        else:
            found[name] = mark
    if several:
        return Unreadable(f"it states several marks of {', '.join(several)}")
    if lacking:
        named = ", ".join(lacking)
        return Unreadable(f"there is no mark from {LOWEST} to {TOP} of {named}")
    return found


def _find_values(reply: str, name: str) -> list[Any]:
    if stated := statements_of(reply, name):
        return stated
    text = separate(reply).text
    objects, rest = find_objects(text)
    if objects or rest:
        return []
    values = []
    for line in text.splitlines():
        head, _, value = line[_end_of_numbering(line) :].rpartition(":")
        if head and plain_key(head) == plain_key(name):
            values.append(value)
    return values


def _end_of_numbering(line: str) -> int:
    match = _NUMBERING.match(line)
    return match.end() if match else 0


def _mark(value: Any) -> float | None:
    number = as_number(value, TOP)
    return number if number is not None and LOWEST <= number <= TOP else None


def official_marks(reply: str) -> dict[str, float] | Unreadable:
    """Read as `extract_scores_and_average` does, by the name and number of each line.

    Every line of a text, a colon, a blank and digits counts, whatever the text.
    """
    found: dict[str, float] = {}
    for number, line in enumerate(reply.splitlines(), start=1):
        parts = line.strip().split(": ")
        if len(parts) != 2 or not parts[1].isdigit():
            continue
        try:
            found[f"{number} {_text(parts[0])}"] = float(int(parts[1]))
        except (ValueError, OverflowError):
            return Unreadable("the released summary ends in an error at a number")
    return found or Unreadable("the released summary finds no mark and leaves it out")


def _text(name: str) -> str:
    """Return a name that can be written; JSON may hold halves of surrogate pairs."""
    return name.encode("utf-8", "replace").decode()
