"""A judge of Unison: how far understanding and generation of one system agree and help.

A query is a session of several turns (`plait.benchmarks.tasks.unison`), of four tasks. An
answer has three values: understanding (read from the texts, against what the data say),
generation (the judge's word on the images), and both together, which is the score.

`official` asks and counts as Evaluation_Pipeline of FudanCVL/Unison@407b7b5 (Liu et al.,
arXiv:2606.26984), by the texts of the user's copy. It differs in this: a request without a
reply fails the answer, where that program counts 0 or a no; images are shown as they are;
and replies are not cut at 8 or 128 tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from plait.generators.base import NotApplicable, Result, Unread, Unscored, Walk
from plait.generators.buckets import AnyPath
from plait.generators.content import fill, join_texts
from plait.generators.document import Content, Document, Image, Query, Score, Text, Turn
from plait.generators.released import read_published
from plait.generators.replies import as_bool, as_number, bare, statements_of
from plait.generators.thoughts import separate
from plait.scorers.base import NoScore, ReleasedSummary
from plait.scorers.boxes import (
    Box,
    Size,
    around_polygon,
    box_of,
    first_numbers,
    listed_numbers,
    numbers_in,
    overlap,
)
from plait.scorers.judging.imgedit import ASPECTS, form_of, marks
from plait.scorers.judging.judge import Question, QuestionsJudge, Readings
from plait.scorers.judging.mismatches import (
    MOST,
    Matches,
    count_matches,
    different_mismatches,
    split_mismatches,
)
from plait.scorers.judging.replies import Unreadable, no_object
from plait.scorers.judging.rewards import Wording
from plait.scorers.judging.rubrics import RELEASED, WORDING
from plait.scorers.judging.summaries import UNISON_MEASURES
from plait.scorers.parts import PartScale, PartTable

PREFIX = "unison:"
UNISON = "unison"
"""Metadata of a query: a JSON object of its `task` and of what the data say of it."""
IC = "Internal Consistency"
UGG = "Und.-Guided Gen."
GGU = "Gen.-Guided Und."
ME = "Mutual Enhancement"
TASKS = (IC, UGG, GGU, ME)
"""In the order of the published table."""
ROUNDS = 10
"""Turns of each of the two talks of Mutual Enhancement, drawing and looking in turn."""
TOP = 5
_KINDS = {
    "alter": "adjust",
    "change": "adjust",
    "add": "add",
    "remove": "remove",
    "replace": "replace",
}
"""By how an operation is named in the data, the type of edit by which it is graded."""
_KIND_WORDS = (
    (r"\bremov", "remove"),
    (r"\badd\b", "add"),
    (r"\breplace\b", "replace"),
    (r"\bbackground\b|\bbg\b", "background"),
    (
        r"\bchange\b|\badjust\b|\balter\b|\bcolor\b|\bcolour\b|\btexture\b|\bscale\b"
        r"|\brotate\b",
        "adjust",
    ),
)
"""The same for an operation in a sentence: the first word that it has decides."""
_BOX_AT_END = re.compile(r",?\s*(\[[\d\s,.\-]+\])\s*$")
_YES = "yes"
_NO = "no"
_UNKNOWN = "unknown"
_FORMS = {
    "check": '{"answer": "Yes"} or {"answer": "No"}',
    "match": f'{{"score": <1 to {TOP}>}}',
}
"""How replies must look; to a question about an edit it depends on the kind."""
_ERROR = "ERROR:"
"""With this a reply begins in the released program where there is none."""

_OWN: Mapping[str, str] = {**WORDING["unison"], "edit": WORDING["imgedit"]["text"]}


class Operation(NamedTuple):
    """One change of an image that is asked for, or that was made."""

    kind: str
    """The type of edit by which it is graded."""
    about: str
    box: tuple[int, ...] = ()
    """Four thousandths of width and height; empty where it is not told."""


def operations_of(text: str) -> list[Operation]:
    """Return the operations of `1: Add, what, [box]; 2: ...`; none of any other text."""
    if re.search(r"\d\s*[:\uff1a]", text) is None:
        return []
    found: list[Operation] = []
    for part in re.split(r";\s*", text.strip().rstrip(";")):
        about = part.strip()
        if not about:
            continue
        box: tuple[int, ...] = ()
        if at_end := _BOX_AT_END.search(about):
            box = _whole_box(numbers_in(at_end[1]))
            about = about[: at_end.start()].strip()
        about = re.sub(r"^\d+\s*[:\uff1a]\s*", "", about)
        comma = about.find(",")
        named = about[:comma] if comma > 0 else about
        kind = _KINDS.get(named.strip().lower(), "adjust")
        described = about[comma + 1 :] if comma > 0 else about
        found.append(Operation(kind, described.strip(), box))
    return found


def kind_of_edit(operation: str) -> str:
    """Return the type by which an edit of one operation in a sentence is graded."""
    for words, kind in _KIND_WORDS:
        if operation and re.search(words, operation.lower()):
            return kind
    return "compose"


def _whole_box(numbers: Sequence[float]) -> tuple[int, ...]:
    return tuple(int(number) for number in numbers[:4]) if len(numbers) >= 4 else ()


@dataclass(frozen=True, slots=True)
class Item:
    """What the data say of a query."""

    values: Mapping[str, Any]

    @classmethod
    def of(cls, query: Query) -> Item | None:
        """Return the query's; None of a query of other data."""
        text = query.metadata.get(UNISON)
        return None if text is None else cls(json.loads(text))

    @property
    def task(self) -> str:
        """Which of TASKS it is of."""
        return str(self.values["task"])

    @property
    def turns(self) -> int:
        """How many turns the session has."""
        fixed = {IC: len(self.questions) + 1, UGG: 3, GGU: 3, ME: 2 * ROUNDS}
        return fixed[self.task]

    @property
    def questions(self) -> Mapping[str, str]:
        """Questions of yes or no by their numbers, which are to be answered with yes."""
        return self.values.get("questions", {})  # type: ignore[no-any-return]

    @property
    def options(self) -> Mapping[str, str]:
        """The options of a question, by letter."""
        return self.values.get("options", {})  # type: ignore[no-any-return]

    @property
    def size(self) -> Size:
        """That of the image that is to be edited."""
        return Size(*self.values["size"])

    def text(self, name: str) -> str:
        """Return a text of the data; empty where they have none."""
        return str(self.values.get(name, ""))

    def checks(self, official: bool) -> list[Check]:
        """Return the questions about the image that is drawn to help."""
        named = "released_checks" if official else "checks"
        rows = self.values.get(named, self.values.get("checks", []))
        return [Check(row["text"], row["answer"]) for row in rows]

    @property
    def operations(self) -> list[Operation]:
        """The operations of the session's edit, as they are graded one by one."""
        operation = self.text("operation")
        if several := operations_of(operation):
            return several
        box = _whole_box(numbers_in(self.text("bbox")))
        return [Operation(kind_of_edit(operation), self.text("instruction"), box)]

    @property
    def changes(self) -> list[Operation]:
        """The changes that its caption does not tell of."""
        operation = self.text("operation")
        several = operations_of(operation)
        return several or ([Operation("", operation)] if operation else [])


class Check(NamedTuple):
    """A question about an image, and its right answer."""

    text: str
    answer: str


class Marks(NamedTuple):
    """What an answer is worth, each from 0 to 1."""

    understanding: float
    generation: float
    unified: float
    details: Mapping[str, float]


Reading = str | float
"""`yes`, `no` or `unknown`; or a mark from 0 to 1."""


class Examination(NamedTuple):
    """What is asked about an answer, and what the replies come to."""

    questions: Sequence[Question]
    sum_up: Callable[[Sequence[Reading]], Marks]


def without_item(query: Query) -> NotApplicable | None:
    """Return why a query of other data is not judged; None for one of Unison."""
    if query.metadata.get(UNISON):
        return None
    return NotApplicable("the query is none of Unison's sessions")


@dataclass(frozen=True, kw_only=True)
class UnisonJudge(QuestionsJudge[Reading]):
    """Understanding, generation and both of a session; the score is both, in percent."""

    own = Wording.of(_OWN)
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("criteria/*", "share", "0-1", "criterion"),
        PartScale("rulings/*/mark", "mark", "0-1"),
        PartScale("details/precision", "share", "0-1"),
        PartScale("details/recall", "share", "0-1"),
        PartScale("details/overlap", "share", "0-1"),
        PartScale("details/guided", "ruling", "0-1"),
        PartScale("details/questions", "questions"),
        PartScale("details/told", "mismatches"),
        PartScale("details/extra", "mismatches"),
        PartScale("details/dropped", "mismatches"),
        PartScale("details/changes", "changes"),
        PartScale("details/missed", "changes"),
    )
    wording: Wording = own
    pixel_boxes: bool = False

    @classmethod
    def wording_in(cls, file: AnyPath) -> Wording:
        """Return the texts of the user's common/judge.py; UsageError for others."""
        return Wording.of(read_published(file, RELEASED["unison"]))

    @property
    def judges(self) -> str:
        """What it judges."""
        return "images of sessions of four tasks"

    @property
    def released_summary(self) -> ReleasedSummary:
        """Unison's in official mode."""
        return "unison" if self.official else ""

    def jobs(self, query: Query, images: int = 1) -> int:
        """Return the most questions: those about images, and of mismatches all pairs.

        An answer without images is asked about its mismatches alone.
        """
        item = Item.of(query)
        if item is None:
            return 1
        checks = len(item.questions) if item.task == IC else len(item.checks(self.official))
        edits = len(item.operations) if item.task in (UGG, ME) else 0
        compared = MOST * len(item.changes) if item.task == ME else 0
        return (checks + edits if images else 0) + compared

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs a session of Unison's."""
        return without_item(query)

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Ask about the images, and again where a reply cannot be read; then Unread."""
        item = Item.of(query)
        assert item is not None
        answers = [answer.segments for answer in document.answers]
        if len(answers) != item.turns:
            return Unscored(f"the answer has {len(answers)} turns, not {item.turns}")
        examine = {IC: self._ic, UGG: self._ugg, GGU: self._ggu, ME: self._me}[item.task]
        shown = next((s for s in query.turns[0].content if isinstance(s, Image)), None)
        examination = examine(item, shown, answers)
        asked = []
        for question in examination.questions:
            asked.append(question._replace(about=f"{query.id} {question.about}"))
        replies = yield from self.ask_all(query, asked, self._read, self._form_of_reply)
        if not isinstance(replies, Readings):
            return replies
        if replies.reasons:
            return Unread(replies.reason_of(min(replies.reasons)))
        readings = [replies.values[i] for i in range(len(asked))]
        found = examination.sum_up(readings)
        values = (found.understanding, found.generation, found.unified)
        parts: dict[str, Any] = {
            "criteria": dict(zip(UNISON_MEASURES, values, strict=True))
        }
        parts["details"] = dict(found.details)
        rulings = zip(examination.questions, readings, strict=True)
        parts["rulings"] = [_ruling(question, reading) for question, reading in rulings]
        return Result(Score(100 * found.unified, parts))

    # ------------------------------------------------------------------------ the tasks

    def _ic(self, item: Item, _: Image | None, answers: Sequence[Content]) -> Examination:
        """Each question is answered about the given image, and asked of the own one."""
        drawn = image_in(answers[-1])
        said = [self._yes_or_no(text_in(answer)) == _YES for answer in answers[:-1]]
        # Without an image of its own nothing is asked, and nothing of it counts.
        questions: list[Question] = []
        if drawn is not None:
            for text in item.questions.values():
                questions.append(self._check(drawn, text))

        def sum_up(readings: Sequence[Reading]) -> Marks:
            whole = len(said)
            shown = [reading == _YES for reading in readings] or [False] * whole
            both = 0
            for is_said, is_shown in zip(said, shown, strict=True):
                if is_said and is_shown:
                    both += 1
            details = {"questions": whole}
            return Marks(sum(said) / whole, sum(shown) / whole, both / whole, details)

        return Examination(questions, sum_up)

    def _ugg(
        self, item: Item, shown: Image | None, answers: Sequence[Content]
    ) -> Examination:
        """The box is compared, the edit graded.

        The released program grades the edit that was made from the given box, whatever
        its documentation says; by it the one from the own box should be.
        """
        edited = image_in(answers[1 if self.official else 2])
        shared = self._overlap(text_in(answers[0]), item)

        def sum_up(readings: Sequence[Reading]) -> Marks:
            graded = _mean(readings)
            return Marks(shared, graded, (shared + graded) / 2, {"overlap": shared})

        return Examination(self._edits(item, shown, edited), sum_up)

    def _ggu(self, item: Item, _: Image | None, answers: Sequence[Content]) -> Examination:
        """The option is compared, without the own image and with it; that is checked."""
        drawn = image_in(answers[1])
        checks = [] if drawn is None else item.checks(self.official)
        questions: list[Question] = []
        if drawn is not None:
            for check in checks:
                questions.append(self._check(drawn, check.text))
        known = item.text("answer")
        # Without the own image, and with it.
        direct = float(self._letter(text_in(answers[0]), item) == known)
        guided = float(self._letter(text_in(answers[2]), item) == known)

        def sum_up(readings: Sequence[Reading]) -> Marks:
            met: list[float] = []
            for reading, check in zip(readings, checks, strict=True):
                met.append(float(reading == check.answer))
            shown = _mean(met)
            return Marks(direct, shown, (guided + shown) / 2, {"guided": guided})

        return Examination(questions, sum_up)

    def _me(
        self, item: Item, shown: Image | None, answers: Sequence[Content]
    ) -> Examination:
        """The last edit of one talk is graded, all mismatches of the other compared."""
        # Drawing and looking take turns: the images of one talk, the texts of the other.
        edits = [content for content in answers[:ROUNDS:2] if _says_something(content)]
        graded = self._edits(item, shown, image_in(edits[-1]) if edits else None)
        looks = [self._mismatches(text_in(content)) for content in answers[ROUNDS::2]]
        told = different_mismatches(looks)
        changes = item.changes
        compared: list[Question] = []
        for mismatch in told[:MOST]:
            for change in changes:
                compared.append(self._match(mismatch, change))

        def sum_up(readings: Sequence[Reading]) -> Marks:
            # In the order of the questions: those of the edit, then a row of each mismatch.
            edit = _mean(readings[: len(graded)])
            marks = [float(reading) for reading in readings[len(graded) :]]
            each = len(changes)
            rows: list[list[float]] = []
            for start in range(0, len(marks), each or 1):
                rows.append(marks[start : start + each])
            found = Matches(0.0, 0.0, 0.0, extra=0, missed=each)
            if rows:
                found = count_matches(rows)
            details = {
                "precision": found.precision,
                "recall": found.recall,
                "told": len(told[:MOST]),
                "dropped": len(told[MOST:]),
                "changes": each,
                "extra": found.extra,
                "missed": found.missed,
            }
            return Marks(found.f1, edit, (edit + found.f1) / 2, details)

        return Examination([*graded, *compared], sum_up)

    # ------------------------------------------------------------- what the system says

    def _yes_or_no(self, text: str) -> str:
        return official_yes_or_no(text) if self.official else yes_or_no(text)

    def _letter(self, text: str, item: Item) -> str:
        if self.official:
            return official_option(text, item.options)
        from plait.scorers.letters import find_letter

        letter = find_letter(text, len(item.options))
        return _UNKNOWN if isinstance(letter, Unreadable) else letter

    def _overlap(self, text: str, item: Item) -> float:
        numbers = first_numbers(text) if self.official else listed_numbers(text)
        box = box_of(numbers, item.size if self.pixel_boxes else None)
        target = around_polygon(item.text("mask"), item.size) or _box_in(item)
        return 0.0 if box is None or target is None else overlap(box, target)

    def _mismatches(self, text: str) -> Sequence[str]:
        # A yes says that there are none, whatever is said after it.
        if not self.official and yes_or_no(text) == _YES:
            return []
        return split_mismatches(text)

    # ------------------------------------------------------------ what the judge is asked

    def _check(self, image: Image, question: str) -> Question:
        if (system := self.wording.get("check_system")) is not None:
            asked = Text(question + self.wording["check"])
            turns = (Turn("system", (Text(system),)), Turn("user", (image, asked)))
            return Question(f"check {image.digest}", turns, ("check", question))
        fields: dict[str, Content] = {"image": (image,), "question": (Text(question),)}
        content = fill(self.wording["check"], fields)
        alone = (Turn("user", content),)
        return Question(f"check {image.digest}", alone, ("check", question))

    def _edits(
        self, item: Item, original: Image | None, edited: Image | None
    ) -> list[Question]:
        if original is None or edited is None:
            return []
        return [self._edit(one, original, edited) for one in item.operations]

    def _edit(self, operation: Operation, original: Image, edited: Image) -> Question:
        region = self._region(operation)
        if (released := self.wording.get(operation.kind)) is not None:
            text = released.format(instruction=operation.about, bbox=region)
            content: Content = (Text(text), original, edited)
        else:
            aspects = ASPECTS[operation.kind]
            lines = [f"- {name}: {about}" for name, about in aspects.items()]
            fields: dict[str, Content] = {
                "kind": (Text(operation.kind),),
                "listed": (Text("\n".join([*lines, region])),),
                "instruction": (Text(operation.about),),
                "original": (original,),
                "edited": (edited,),
                "form": (Text(form_of(tuple(aspects))),),
            }
            content = fill(self.wording["edit"], fields)
        asked = ("edit", operation.about, operation.kind)
        return Question(f"edit {edited.digest}", (Turn("user", content),), asked)

    def _region(self, operation: Operation) -> str:
        if not operation.box:
            return self.wording["no_region"]
        return f"{self.wording['region']}{[*operation.box]}{self.wording['region_end']}"

    def _match(self, mismatch: str, change: Operation) -> Question:
        region = ""
        if change.box:
            region = f"{self.wording['match_region']}{list(change.box)}.\n"
        asked = ("match", mismatch, change.about)
        if (system := self.wording.get("match_system")) is not None:
            parts = [self.wording["match"], f"{change.about}\n", region]
            parts += [self.wording["match_told"], mismatch, self.wording["match_end"]]
            turns = (
                Turn("system", (Text(system),)),
                Turn("user", (Text("".join(parts)),)),
            )
            return Question("match", turns, asked)
        texts = {"operation": f"{change.about}\n{region}".strip(), "mismatch": mismatch}
        content = fill(self.wording["match"], {k: (Text(v),) for k, v in texts.items()})
        return Question("match", (Turn("user", join_texts(content)),), asked)

    def _read(self, question: Question, reply: str) -> Reading | Unreadable:
        kind, *about = question.criteria
        if kind == "check":
            return official_yes_or_no(reply) if self.official else yes_or_no_in(reply)
        if kind == "match":
            return official_match(reply) if self.official else match_in(reply)
        if self.official:
            return official_edit(reply)
        return edit_in(reply, tuple(ASPECTS[about[1]]))

    def _form_of_reply(self, question: Question) -> str:
        kind, *about = question.criteria
        form = _FORMS.get(kind) or form_of(tuple(ASPECTS[about[1]]))
        return f"Reply with one JSON object and nothing else: {form}."


def _ruling(question: Question, reading: Reading) -> dict[str, Any]:
    kind, about, *more = question.criteria
    ruling: dict[str, Any] = {"about": kind, "asked": about}
    if kind == "match":
        ruling["change"] = more[0]
    if isinstance(reading, str):
        return ruling | {"said": reading}
    return ruling | {"mark": reading}


def _mean(readings: Sequence[Reading]) -> float:
    """Return the mean of marks; 0 of none, for there is no image that could have any."""
    return sum(float(reading) for reading in readings) / len(readings) if readings else 0.0


def _box_in(item: Item) -> Box | None:
    return box_of(first_numbers(item.text("bbox")))


def image_in(content: Content) -> Image | None:
    """Return the first image of a turn's answer."""
    return next((s for s in content if isinstance(s, Image)), None)


def text_in(content: Content) -> str:
    """Return the text of a turn's answer."""
    return Document(content).text


def _says_something(content: Content) -> bool:
    return image_in(content) is not None or bool(text_in(content).strip())


# -------------------------------------------------------------------------------- readers

_ABSENT = ("", "nan", "none")


def official_yes_or_no(text: str) -> str:
    """Read as `normalize_yes_no`: the first of the words decides."""
    words = re.split(r"[^a-z]+", text.strip().lower())
    return next((word for word in words if word in (_YES, _NO)), _UNKNOWN)


def yes_or_no(text: str) -> str:
    """Return `yes` or `no` where a text is or begins with that word, and not the other.

    `unknown` for any other.
    """
    text = bare(separate(text).text)
    ruling = as_bool(text)
    if ruling is not None:
        return _YES if ruling else _NO
    first = re.match(
        r"\W*(yes|no)\b(?=\s*(?:[.,;:!\u2014\u2013(-]|$))", text, re.IGNORECASE
    )
    if first is None:
        return _UNKNOWN
    word = first[1].lower()
    other = _NO if word == _YES else _YES
    contrary = re.search(rf"\b{other}\b\W*$", text, re.IGNORECASE)
    return _UNKNOWN if contrary else word


def yes_or_no_in(reply: str) -> str | Unreadable:
    """Return what a judge's reply says, in its form or as a word."""
    stated = {as_bool(value) for value in statements_of(reply, "answer")}
    if len(stated) == 1 and (ruling := stated.pop()) is not None:
        return _YES if ruling else _NO
    word = _UNKNOWN if stated else yes_or_no(reply)
    return Unreadable(no_object(reply)) if word == _UNKNOWN else word


def official_option(text: str, options: Mapping[str, str]) -> str:
    """Read as `normalize_option`: the letter at the beginning, or any that stands alone."""
    if text.lower() in _ABSENT:
        return _UNKNOWN
    raw = text.strip()
    valid = {letter.upper() for letter in options}
    patterns = (
        (r"^([A-Z])[^a-zA-Z]", re.NOFLAG),
        (r"(?:answer[:\s]+|answer\s+is\s+|\()([A-Z])[^a-zA-Z]", re.IGNORECASE),
        (r"\b([A-Z])\b", re.NOFLAG),
    )
    for pattern, flag in patterns:
        found = re.search(pattern, f"{raw} " if pattern != r"\b([A-Z])\b" else raw, flag)
        if found and found[1].upper() in valid:
            return found[1].upper()
    for letter, option in options.items():
        if option.lower() in raw.lower():
            return letter.upper()
    return _UNKNOWN


def official_edit(reply: str) -> float:
    """Read as `_parse_three_scores`, or any digit up to 5; 0 where there is none."""
    found: list[int] = []
    for line in reply.strip().split("\n"):
        named = line.strip()
        digit = re.search(r":\s*([1-5])\b", named)
        if digit and not named.lower().startswith("brief reasoning"):
            found.append(int(digit[1]))
    if found:
        counted = found[:3]
        score = sum(min(mark, found[0]) for mark in counted) / len(counted)
        return min(max((score - 1) / 4, 0.0), 1.0)
    return official_match(reply)


def edit_in(reply: str, names: tuple[str, ...]) -> float | Unreadable:
    """Return the mean of the marks, of which none counts for more than the first."""
    stated = marks(reply, names)
    if isinstance(stated, Unreadable):
        return stated
    first = stated[names[0]]
    capped = [min(mark, first) for mark in stated.values()]
    return (sum(capped) / len(capped) - 1) / (TOP - 1)


def official_match(reply: str) -> float:
    """Read as `_score_single_mismatch_op`: any digit up to 5; 0 where there is none."""
    digit = None
    if not reply.strip().startswith(_ERROR):
        digit = re.search(r"\b([0-5])\b", reply.strip())
    return min(max((int(digit[1]) - 1) / 4, 0.0), 1.0) if digit else 0.0


def match_in(reply: str) -> float | Unreadable:
    """Return the one mark from 1 to 5 that a reply is, or states as its score."""
    values = statements_of(reply, "score") or [bare(separate(reply).text)]
    stated = {as_number(value, TOP) for value in values}
    number = stated.pop() if len(stated) == 1 else None
    if number is None or not 1 <= number <= TOP:
        return Unreadable(f"there is no one score from 1 to {TOP}")
    return (number - 1) / (TOP - 1)
