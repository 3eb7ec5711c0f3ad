"""ISG-Bench's levels: block and image, asked question by question, and the whole answer.

A question names parts of query and answer by placeholders, such as `<query_img1>` and
`<gen_text2>`. Where an answer's texts and images do not follow each other as the ground
truth's do, there is nothing that they name, and both levels are at their floor.

`official` asks and counts as ISG-eval.py and calculate_performance.py of
Dongping-Chen/ISG@de504cd, by the texts of the user's copy of get_judge_prompt.py, but for
the question of yes or no about blocks, whose reply that program never reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from plait.generators.base import NotApplicable, Outcome, Result, Unread, Unscored, Walk
from plait.generators.buckets import AnyPath
from plait.generators.document import Content, Document, Image, Query, Score, Text
from plait.generators.released import read_published
from plait.generators.replies import as_bool, as_number, statements_of
from plait.scorers.base import UNBOUNDED, NoScore
from plait.scorers.judging.judge import Question, QuestionsJudge, Readings
from plait.scorers.judging.pages import Pages
from plait.scorers.judging.replies import Unreadable, object_schema, read_key
from plait.scorers.judging.rubrics import RELEASED, WORDING
from plait.scorers.judging.sources import Mode
from plait.scorers.parts import PartScale, PartTable

Level = Literal["block", "image", "holistic"]
PREFIXES: Mapping[str, Level] = {
    "isg-block:": "block",
    "isg-image:": "image",
    "isg-holistic:": "holistic",
}
TOP = 10
"""Highest rating of a block and of a whole answer."""
SCALES: Mapping[Level, str] = {"block": "1-10", "image": "0-1", "holistic": "1-10"}
FLOORS: Mapping[Level, float] = {"block": 1.0, "image": 0.0, "holistic": 1.0}
"""What calculate_performance.py counts where a level has no value."""

_FLOOR = PartScale("floor", "boolean", "0-1")
PARTS: Mapping[Level, PartTable] = {
    "block": PartTable.of(
        _FLOOR, PartScale("verdicts/*/verdict", "rating", SCALES["block"])
    ),
    "image": PartTable.of(
        _FLOOR,
        PartScale("verdicts/*/verdict", "ruling", SCALES["image"]),
        PartScale("verdicts/*/id", "number of a question"),
        PartScale("verdicts/*/Preliminary/*", "number of a question"),
    ),
    "holistic": PartTable.of(_FLOOR, PartScale("aspects/*", "rating", SCALES["holistic"])),
}
"""What the parts of a score of each level are."""


def level_of(name: str) -> Level:
    """Return the level of the judge `name`."""
    return PREFIXES[f"{name.partition(':')[0]}:"]


BLOCK = "isg_block"
IMAGE = "isg_image"
"""Metadata of a query: its questions of a level, as a JSON list of objects."""
LAST = "isg_last"
"""Metadata of the last query of the file, which the released program never judges."""
NEVER_JUDGED = Unscored("the released program leaves out the last query of a file")
_KEY = "Judge"
_OVERALL = "overall_score"
_ASPECTS = (
    *("coherence", "content_accuracy", "relevance_and_responsiveness"),
    *("visual_textual_alignment", "creativity_and_originality"),
)


@dataclass(frozen=True, slots=True)
class IsgWording:
    """The questions, as `str.format` reads them: all but the whole with {question}."""

    text_text: str
    """About two texts: also {requirement}, {text1} and {text2}."""
    text_image: str
    """About a text and an image: also {requirement} and {text}."""
    image_image: str
    """About two images: also {requirement}."""
    image: str
    """About an image, of the image level."""
    requirement: str
    """How blocks are rated."""
    whole: Sequence[str]
    """What stands before query, answer and ground truth, and at the end."""


OWN = IsgWording(**WORDING["isg"])
"""Ours."""
_DIGESTS = RELEASED["isg"]


def structure(content: Content, mode: Mode) -> str:
    """Return the order of texts and images, as `<text> <image>`.

    In corrected mode a text of white space is none.
    """
    names = []
    for segment in _select(content, mode):
        names.append("<image>" if isinstance(segment, Image) else "<text>")
    return " ".join(names)


def _select(content: Content, mode: Mode) -> Content:
    """Return what counts as a text or an image: officially all of it."""
    if mode == "official":
        return tuple(content)
    selected = []
    for segment in content:
        if isinstance(segment, Image) or segment.text.strip():
            selected.append(segment)
    return tuple(selected)


_Item = Mapping[str, Any]
"""A question of the data."""
_Named = dict[str, Text | Image]
"""Parts of query and answer by their placeholders."""


def _number_contents(who: str, content: Content) -> _Named:
    """Return the texts and images by their placeholders, each kind counted from 1."""
    named: _Named = {}
    counts = {"text": 0, "img": 0}
    for segment in content:
        kind = "img" if isinstance(segment, Image) else "text"
        counts[kind] += 1
        named[f"<{who}_{kind}{counts[kind]}>"] = segment
    return named


@dataclass(frozen=True, kw_only=True)
class IsgJudge(QuestionsJudge[Any]):
    """Judges answers on one level, on the level's own scale."""

    own = OWN
    wording: IsgWording = OWN

    @classmethod
    def wording_in(cls, file: AnyPath) -> IsgWording:
        """Return the texts of the user's get_judge_prompt.py; UsageError for others."""
        texts = read_published(file, _DIGESTS)
        whole = tuple(texts.pop(name) for name in _DIGESTS if name.startswith("whole_"))
        return IsgWording(**texts, whole=whole)

    @classmethod
    def scale_of(cls, name: str, mode: Mode) -> str:
        """Return the level's; the program counts scores beyond the one it asks for."""
        return UNBOUNDED if mode == "official" else SCALES[level_of(name)]

    @classmethod
    def schema_of(cls, name: str) -> Mapping[str, Any]:
        """Return that of the level's verdict."""
        number = {"type": "number"}
        level = level_of(name)
        if level == "image":
            return object_schema(**{_KEY: {"type": "string", "enum": ["Yes", "No"]}})
        if level == "block":
            return object_schema(**{_KEY: number, "Reason": {"type": "string"}})
        return object_schema(**dict.fromkeys((*_ASPECTS, _OVERALL), number))

    @property
    def level(self) -> Level:
        """The level that the name begins with."""
        return level_of(self.name)

    @property
    def part_scales(self) -> PartTable:
        """Those of the level."""
        return PARTS[self.level]

    @property
    def judges(self) -> str:
        """The level."""
        return f"{self.level} level"

    @property
    def form(self) -> str:
        """The object that holds a verdict."""
        return str(WORDING["forms"][self.level])

    def jobs(self, query: Query, images: int = 1) -> int:
        """Return how many questions the query has."""
        images = len(_questions(query, IMAGE))
        if self.level == "image":
            return images
        own = len(_questions(query, BLOCK)) if self.level == "block" else 1
        return own + images * self.official

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs the questions of ISG-Bench; the released program leaves out a query."""
        if BLOCK not in query.metadata or query.reference is None:
            return NotApplicable("the query is none of ISG-Bench")
        if self.official:
            return NEVER_JUDGED if LAST in query.metadata else None
        if self.level == "holistic" or self._own(query):
            return None
        return NotApplicable(f"the query has no questions of the {self.level} level")

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Ask all questions of the level at once, and count the verdicts."""
        if (outcome := self._outcome_without_asking(query, document)) is not None:
            return outcome
        named = _number_contents("query", query.question)
        named |= _number_contents("gen", _select(document.segments, self.mode))
        about_images: list[_Item] = []
        # The released program asks about images whatever the level, and its replies on
        # them decide whether an item counts at all (`_score_as_released`).
        if (self.level == "image" or self.official) and self._holds(query, document):
            about_images = self._questions_about_images(query, named)
        about_blocks: list[_Item] = []
        if self.level == "block":
            about_blocks = self._questions_about_blocks(query, named)
        asked = [self._about_image(item, named) for item in about_images]
        asked += [self._about_block(item, named) for item in about_blocks]
        if self.level == "holistic":
            asked.append(self._whole(query, document))
        replies = yield from self.readings(query, asked)
        if not isinstance(replies, Readings):
            return replies
        if self.official:
            if reason := next(iter(replies.reasons.values()), None):
                return Unread(f"a reply cannot be read: {reason}")
            texts = [replies.values[i] for i in range(len(asked))]
            n = len(about_images)
            return self._score_as_released(query, texts[:n], texts[n:])
        return self._score(about_images or about_blocks, replies)

    def _questions_about_images(self, query: Query, named: _Named) -> list[_Item]:
        """Return the questions whose image is there."""
        questions = []
        for item in _questions(query, IMAGE):
            # `evaluate_image` looks for the ids of prerequisites among the placeholders,
            # where they never are, and takes every question with one for a no.
            never_asked = self.official and item["Preliminary"]
            if item["image"] in named and not never_asked:
                questions.append(item)
        return questions

    def _questions_about_blocks(self, query: Query, named: _Named) -> list[_Item]:
        """Return the questions of which both parts are there."""
        questions = []
        for item in _questions(query, BLOCK):
            if all(name in named for name in _ends(item)):
                questions.append(item)
        return questions

    def read_reply(self, reply: str) -> Any:
        """Return the verdict; in official mode the reply itself."""
        if self.official:
            return reply
        if self.level == "image":
            return read_key(reply, (_KEY,), as_bool, _no_answer, bare=True)
        if self.level == "block":
            return read_key(reply, (_KEY,), _rating, _no_rating, bare=True)
        value = read_key(reply, (_OVERALL,), _rating, _no_rating)
        if isinstance(value, Unreadable):
            return value
        aspects = {}
        for aspect in _ASPECTS:
            # One that is rated twice is left out: the score does not depend on it.
            statements = statements_of(reply, aspect)
            number = as_number(statements[0]) if len(statements) == 1 else None
            if number is not None:
                aspects[aspect] = number
        return value, aspects

    def _outcome_without_asking(
        self, query: Query, document: Document
    ) -> Outcome[Score] | None:
        """Return the outcome of an answer of another structure; None for the others."""
        if not self.official and not document.segments:
            return Unscored("the document is empty")
        floor = self._result(None)
        if self.level == "holistic":
            # The first text of an answer that is empty stands for the whole answer.
            empty = not document.segments or document.segments[0] == Text("")
            return floor if self.official and empty else None
        return None if self._holds(query, document) else floor

    def _own(self, query: Query) -> list[_Item]:
        return _questions(query, BLOCK if self.level == "block" else IMAGE)

    def _holds(self, query: Query, document: Document) -> bool:
        """Return whether texts and images follow each other as the ground truth's do."""
        assert query.reference is not None
        true = structure(query.reference.segments, self.mode)
        return structure(document.segments, self.mode) == true

    def _result(self, value: float | None, **parts: Any) -> Result[Score]:
        """Return a score; None is the level's floor."""
        if value is None:
            return Result(Score(FLOORS[self.level], {"floor": True, **parts}))
        return Result(Score(value, parts))

    # -------------------------------------------------------------------------- counting

    def _score_as_released(
        self, query: Query, about_images: Sequence[str], own: Sequence[str]
    ) -> Outcome[Score]:
        """`analyze_data`, by the replies about images, and those of the level itself.

        A reply about an image that ends an item ends all its levels.
        """
        yes = list(map(official_yes, about_images))
        if None in yes:
            return self._result(None)
        if self.level != "holistic":
            if not (questions := self._own(query)):
                none = NotApplicable("the released program leaves out the item")
                return none if self.level == "block" else self._result(None)
            if self.level == "block":
                return self._result(official_mean(own))
            return self._result(sum(map(bool, yes)) / len(questions))
        try:
            value = official_overall(own[0])
        except (TypeError, OverflowError):
            return Unread(f"the released summary ends at the reply {own[0][:200]!r}")
        return self._result(value)

    def _score(self, asked: Sequence[_Item], replies: Readings[Any]) -> Outcome[Score]:
        verdicts = dict(replies.values)
        if self.level == "holistic":
            if not verdicts:
                return Unread(replies.reasons[0])
            value, aspects = verdicts[0]
            return self._result(value, aspects=aspects)
        if self.level == "image":
            verdicts = with_prerequisites(asked, verdicts)
        told = []
        for i, item in enumerate(asked):
            verdict = verdicts.get(i)
            reason = replies.reasons.get(i, "")
            told.append({**item, "verdict": verdict, "reason": reason})
        if len(verdicts) < len(asked) or not asked:
            # The mean of the others is not the answer's.
            why = next(iter(replies.reasons.values()), "no block that they name is there")
            n = len(asked) - len(verdicts)
            lacking = f"{n} of {len(asked)} questions have no verdict: {why}"
            return Unread(lacking, {"verdicts": told})
        return self._result(sum(verdicts.values()) / len(verdicts), verdicts=told)

    # ------------------------------------------------------------------------- questions

    def _about_image(self, item: _Item, named: _Named) -> Question:
        text = Text(self.wording.image.format(question=item["Question"]))
        return Question.of(item["image"], (named[item["image"]], text))

    def _about_block(self, item: _Item, named: _Named) -> Question:
        names = _ends(item)
        texts = []
        images = []
        kinds = []
        for name in names:
            part = named[name]
            if isinstance(part, Text):
                texts.append(part.text)
                kinds.append("Text")
            else:
                images.append(part)
                kinds.append("Image")
        fields = {"requirement": self.wording.requirement}
        if len(texts) == 1:
            template = self.wording.text_image
            fields["text"] = texts[0]
        elif texts:
            template = self.wording.text_text
            fields["text1"] = texts[0]
            fields["text2"] = texts[1]
        else:
            template = self.wording.image_image
        question = item["Question"]
        if self.official and len(texts) == 1:
            # The program replaces what the text says and not its name.
            question = question.replace(texts[0], " `Text` ")
        elif texts or not self.official:
            for number, (name, kind) in enumerate(zip(names, kinds, strict=True), 1):
                # Of a text and an image, the kind says which is meant.
                called = kind if len(texts) == 1 else f"{kind} {number}"
                question = question.replace(name, f" `{called}` ")
        text = Text(template.format(question=question, **fields))
        return Question.of("block", (*images, text))

    def _whole(self, query: Query, document: Document) -> Question:
        assert query.reference is not None
        shown = (query.question, document.segments, query.reference.segments)
        pages = Pages(self.max_images)
        content = list[Text | Image]()
        for before, part in zip(self.wording.whole, (*shown, ()), strict=True):
            if self.official:
                # It is not formatted there, so that doubled braces stay.
                content += (Text(before), *part)
            else:
                content.append(Text(before.format()))
                if part:
                    content += pages.write(part)
        if self.official:
            content = [_on_one_line(segment) for segment in content]
        return Question.of("whole", tuple(content))


def _on_one_line(segment: Text | Image) -> Text | Image:
    return Text(segment.text.replace("\n", " ")) if isinstance(segment, Text) else segment


def _questions(query: Query, key: str) -> list[_Item]:
    return json.loads(query.metadata.get(key, "[]"))  # type: ignore[no-any-return]


def _ends(item: _Item) -> tuple[str, str]:
    return item["subject"], item["object"]


# ------------------------------------------------------------------------------ replies


def with_prerequisites(
    questions: Sequence[_Item], verdicts: Mapping[int, bool]
) -> dict[int, bool]:
    """Return the verdicts with a no where one of a question's prerequisites is a no.

    A question without a verdict has none; neither has one that depends on it.
    """
    by_id: dict[Any, bool | None] = {}
    found: dict[int, bool] = {}
    # A prerequisite counts where it comes before what needs it.
    for i, question in enumerate(questions):
        parts = [verdicts.get(i)]
        for id in question["Preliminary"]:
            if id in by_id:
                parts.append(by_id[id])
        whole: bool | None = True
        if False in parts:
            whole = False
        elif None in parts:
            whole = None
        by_id[question["id"]] = whole
        if whole is not None:
            found[i] = whole
    return found


def _no_answer(value: str) -> str:
    return f"{_KEY!r} is {value}, not 'Yes' or 'No'"


def _rating(value: Any) -> float | None:
    number = as_number(value, TOP)
    return number if number is not None and 1 <= number <= TOP else None


def _no_rating(value: str) -> str:
    return f"the score is {value}, not a number from 1 to {TOP}"


def _parse_reply(reply: str) -> Any:
    """`generate_answer`: what a reply holds, and of one that is not JSON, its error."""
    try:
        return json.loads(reply.strip())
    except json.JSONDecodeError:
        return {"error": ""}
    except (ValueError, RecursionError):
        return None


def official_yes(reply: str) -> bool | None:
    """`evaluate_image` on one reply; None where it raises, which ends the item."""
    found = _parse_reply(reply)
    try:
        return found is not None and _KEY in found and found[_KEY].lower() == "yes"
    except (TypeError, AttributeError):
        return None


def official_mean(replies: Sequence[str]) -> float | None:
    """The mean of the blocks' scores; None where there is none or adding them raises."""
    try:
        given = []
        for reply in replies:
            found = _parse_reply(reply)
            if _KEY in found:
                given.append(found[_KEY])
        return sum(given) / len(given) if given else None
    except (TypeError, OverflowError):
        return None


def official_overall(reply: str) -> float | None:
    """Return the overall score, whatever its size; None where there is none.

    Raises TypeError or OverflowError where the released summary does.
    """
    found = _parse_reply(reply)
    return 0.0 + found[_OVERALL] if found and _OVERALL in found else None
