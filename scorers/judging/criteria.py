"""A judge that rules on each criterion of a query by itself, as UEval's evaluator does.

`official` asks and reads as ueval_eval.py of zlab-princeton/UEval@3a5b5ea, by the texts of
the user's copy. It differs in two ways: a reply without a JSON object, which that program
asks for again without end, is unscored, and so is an answer that was not made, which it
judges as an empty one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from plait.generators.base import NotApplicable, Outcome, Result, Unread, Walk
from plait.generators.buckets import AnyPath
from plait.generators.content import fill
from plait.generators.document import Content, Document, Query, Score, Text, Turn
from plait.generators.released import read_published
from plait.generators.replies import as_bool, is_unsure
from plait.scorers.base import NoScore
from plait.scorers.judging.judge import Question, QuestionsJudge, Readings
from plait.scorers.judging.pages import Pages
from plait.scorers.judging.replies import Unreadable, object_schema, read_key
from plait.scorers.judging.rubrics import RELEASED, WORDING
from plait.scorers.parts import PartScale, PartTable

PREFIX = "criteria:"
About = Literal["text", "image", "answer"]
"""Which part of an answer a criterion is about; `answer` is all of it."""
WHOLE: About = "answer"
ABOUTS: Mapping[About, str] = {"text": "text_criteria", "image": "image_criteria"}
"""Metadata of a query: its criteria about each, as a JSON list of strings."""
QUERY_CRITERIA = "criteria"
"""Metadata of a query of the user's own: a JSON list of texts, and of objects with the text
under `criterion` and perhaps `about`. A single text is `Query.criteria`."""
CLOSED = "closed"
"""`Query.field` of a query whose images are judged without the answer's text."""
CLOSED_TASKS = ("space", "textbook", "diagram", "paper")
"""UEval's tasks of closed questions (`get_question_type_from_task`)."""
TASK = "task"
"""Metadata of a query: the task, under the key where the released program looks for it."""
_KEY = "criteria_met"
_KEYS = (_KEY, "criterion_met")


@dataclass(frozen=True, slots=True)
class CriteriaWording:
    """The questions, as `str.format` reads them: {question}, {answer} and {criterion}."""

    text: str
    image_open: str
    image_closed: str
    """Of a closed question: without the answer's text."""
    system: str = ""
    """The system turn, where there is one."""
    answer: str = ""
    """About the whole answer: ours alone."""

    def of(self, about: About, closed: bool) -> str:
        """Return the question about a criterion."""
        images = self.image_closed if closed else self.image_open
        return {"text": self.text, "image": images, WHOLE: self.answer}[about]


OWN = CriteriaWording(**WORDING["criterion"])
"""Ours."""
_DIGESTS = RELEASED["ueval"]
_ITEM = "# Rubric Item\n"
"""What stands before the criterion in both released texts of one."""


class AskedCriterion(NamedTuple):
    """One criterion of a query."""

    about: About
    text: str


def criteria_of(query: Query) -> tuple[AskedCriterion, ...]:
    """Return a query's criteria, those about the text first."""
    lists: dict[About, list[str]] = {}
    for about, key in ABOUTS.items():
        lists[about] = json.loads(query.metadata.get(key, "[]"))
    lists[WHOLE] = []
    for criterion in _own_criteria(query):
        lists[criterion.about].append(criterion.text)
    if not any(lists.values()) and query.criteria:
        lists[WHOLE] = [query.criteria]
    criteria = []
    for about, texts in lists.items():
        for text in texts:
            criteria.append(AskedCriterion(about, text))
    return tuple(criteria)


def _own_criteria(query: Query) -> Iterator[AskedCriterion]:
    """Yield the user's own criteria; nothing for metadata that hold something else."""
    try:
        listed = json.loads(query.metadata.get(QUERY_CRITERIA, "[]"))
    except ValueError:
        return
    for item in listed if isinstance(listed, list) else ():
        criterion = {"criterion": item} if isinstance(item, str) else item
        if isinstance(criterion, dict) and isinstance(criterion.get("criterion"), str):
            about = criterion.get("about")
            known: About = about if about in ("text", "image") else WHOLE
            yield AskedCriterion(known, criterion["criterion"])


def without_criteria(query: Query) -> NotApplicable | None:
    """Return why a query without criteria is not judged; None where it has some."""
    has_some = bool(criteria_of(query))
    return None if has_some else NotApplicable("the query has no criteria of its own")


@dataclass(frozen=True, kw_only=True)
class CriteriaJudge(QuestionsJudge[bool]):
    """Asks about each criterion of a query by itself; the share that is met."""

    own = OWN
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("criteria/*", "share", "0-1", "criterion"),
        PartScale("rulings/*/met", "ruling", "0-1"),
        PartScale("met", "criteria"),
        PartScale("not_met", "criteria"),
        PartScale("unscored", "criteria"),
    )
    wording: CriteriaWording = OWN
    cached: bool = False
    """In official mode, whether to ask as through the released program's cache."""

    @classmethod
    def wording_in(cls, file: AnyPath) -> CriteriaWording:
        """Return the texts of the user's ueval_eval.py; UsageError unless released."""
        texts = read_published(file, _DIGESTS)
        return CriteriaWording(**{name: text.strip() for name, text in texts.items()})

    @classmethod
    def schema_of(cls, name: str) -> Mapping[str, Any]:
        """Return that of a ruling."""
        return object_schema(**{_KEY: {"type": "boolean"}})

    @property
    def judges(self) -> str:
        """Single criteria."""
        return "each criterion by itself"

    @property
    def form(self) -> str:
        """The object that holds a ruling."""
        return str(WORDING["forms"]["criterion"])

    def jobs(self, query: Query, images: int = 1) -> int:
        """Return how many criteria the query has."""
        return len(criteria_of(query))

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs criteria of the query."""
        return without_criteria(query)

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Ask about all criteria at once, and score the rulings."""
        criteria = criteria_of(query)
        if self.official and any(criterion.about == WHOLE for criterion in criteria):
            return NotApplicable("the released program knows none about a whole answer")
        ask = self._as_released if self.official else self._ask_corrected
        asked = []
        for criterion in criteria:
            turns = ask(query, document, criterion.about, criterion.text)
            asked.append(Question(criterion.about, turns))
        replies = yield from self.readings(query, asked)
        if not isinstance(replies, Readings):
            return replies
        return self._score(criteria, replies.values, replies.reasons)

    def read_reply(self, reply: str) -> bool | Unreadable:
        """Return what a reply says of the criterion."""
        return official_ruling(reply) if self.official else ruling(reply)

    def _score(
        self,
        criteria: Sequence[AskedCriterion],
        rulings: Mapping[int, bool],
        reasons: Mapping[int, str],
    ) -> Outcome[Score]:
        """The mean of the shares that are met, about the text and about the images.

        Unread where a ruling cannot be read: the share of the others is not the answer's.
        """
        given = []
        told = []
        places: dict[About, list[int]] = {}
        for i, criterion in enumerate(criteria):
            met = rulings.get(i)
            given.append(met)
            row = {"about": criterion.about, "criterion": criterion.text, "met": met}
            told.append(row | {"reason": reasons.get(i, "")})
            places.setdefault(criterion.about, []).append(i)
        parts: dict[str, Any] = {
            "met": given.count(True),
            "not_met": given.count(False),
            "unscored": given.count(None),
            "rulings": told,
        }
        rates = dict[str, float]()
        for about, own in places.items():
            lacking = [reasons[i] for i in own if i in reasons]
            if lacking:
                reason = (
                    f"{len(lacking)} of {len(own)} criteria about the {about} have no "
                    f"ruling: {lacking[0]}"
                )
                return Unread(reason, parts)
            rates[about] = sum(rulings[i] for i in own) / len(own)
        value = 100 * sum(rates.values()) / len(rates)
        return Result(Score(value, {"criteria": rates, **parts}))

    # ---------------------------------------------------------------------- questions

    def _ask_corrected(
        self, query: Query, document: Document, about: About, criterion: str
    ) -> tuple[Turn, ...]:
        closed = query.field == CLOSED
        pages = Pages(self.max_images)
        shown: Content = document.segments
        if closed and about == "image":
            shown = document.images
        fields = {
            "question": pages.write(query.question),
            "answer": pages.write(shown),
            "criterion": (Text(criterion),),
        }
        return (Turn("user", fill(self.wording.of(about, closed), fields)),)

    def _as_released(
        self, query: Query, document: Document, about: About, criterion: str
    ) -> tuple[Turn, ...]:
        """`evaluate_item`: by way of the cache, or where it makes none, in one turn."""
        closed = query.metadata.get(TASK, "").strip().lower() in CLOSED_TASKS
        template = self.wording.of(about, closed)
        texts = [part.text for part in query.question if isinstance(part, Text)]
        context = template.replace("<<question>>", "".join(texts))
        context = context.replace("<<text_answer>>", document.text)
        images = document.images if about == "image" else ()
        item = _ITEM + criterion
        # It caches images, and a text that is asked about more than once.
        is_cached = bool(images)
        if about != "image":
            about_text = [own for own in criteria_of(query) if own.about == "text"]
            is_cached = len(about_text) > 1
        if self.cached and is_cached:
            return (
                Turn("system", (Text(self.wording.system),)),
                Turn("user", (*images, Text(context))),
                Turn("user", (Text(item),)),
            )
        return (Turn("user", (Text(f"{context}\n\n{item}"), *images)),)


# ------------------------------------------------------------------------------ replies


def ruling(reply: str) -> bool | Unreadable:
    """Return the ruling of a reply; one that is not sure is a no, as in UEval's program."""
    return read_key(reply, _KEYS, _ruling, _problem, bare=True)


def _ruling(value: Any) -> bool | None:
    return False if is_unsure(value) else as_bool(value)


def _problem(value: str) -> str:
    return f"{_KEY!r} is {value}, not true, false or 'not sure'"


_OFFICIAL = (
    re.compile(r"```json\s*(?P<json>\{.*?\})\s*```", re.DOTALL),
    re.compile(r'(?P<json>\{\s*"(?:criteria_met|explanation)"[^}]*\})', re.DOTALL),
)
_LONE_BACKSLASH = re.compile(r'(?<!\\)\\(?!["\\/bfnrtu])')


def official_ruling(reply: str) -> bool | Unreadable:
    """Read as `parse_gemini_response` and `criteria_value_to_bool` do.

    The first object that is JSON counts: in a fence, one that begins with a known key, then
    all from the first brace to the last. All but true and its words is not met.
    """
    start = reply.find("{")
    end = reply.rfind("}") + 1
    # Behind the last brace nothing is found, and searching takes time by its square.
    fenced, plain = _OFFICIAL
    matches = fenced.search(reply), plain.search(reply, 0, end)
    found = [match["json"] for match in matches if match]
    if -1 < start < end:
        whole = reply[start:end]
        found += [whole, _LONE_BACKSLASH.sub(r"\\\\", whole)]
    for text in found:
        try:
            value = json.loads(text).get(_KEY)
        except (ValueError, RecursionError):
            continue
        said = value.strip().lower() if isinstance(value, str) else value
        return said is True or said in ("true", "yes", "y", "1")
    return Unreadable("the released program finds no JSON object and asks again")
