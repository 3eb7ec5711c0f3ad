"""A judge that answers all specifications of a query in one reply, as SpecV's program does.

Specifications are questions of yes or no about an answer, each with the answer that is
expected. `official` asks, reads and counts as run_eval.py and score_and_rank.py of
yuyouxixi/SpecV@2af3845, by the texts of the user's copy. It differs in three ways: a reply
that cannot be read is not asked for again, images are shown as they are and not as JPEG of
a few megabytes, and an answer whose judging failed is counted as unscored beside the mean.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from plait.generators.base import NotApplicable, Result, Unread, Unscored, Walk
from plait.generators.buckets import AnyPath
from plait.generators.content import fill
from plait.generators.document import Content, Document, Image, Query, Score, Text
from plait.generators.errors import MissingInput, UsageError
from plait.generators.replies import (
    as_bool,
    as_number,
    find_objects,
    plain_key,
)
from plait.generators.thoughts import separate
from plait.scorers.base import NoScore, ReleasedSummary
from plait.scorers.judging.judge import Question, QuestionsJudge, Readings
from plait.scorers.judging.pages import Pages
from plait.scorers.judging.replies import Unreadable, no_object, object_schema
from plait.scorers.judging.rubrics import RELEASED, WORDING
from plait.scorers.judging.sources import SPECV_PROMPT, beside
from plait.scorers.parts import PartScale, PartTable

PREFIX = "specifications:"
SPECIFICATIONS = "specifications"
"""Metadata of a query: its checklist, the JSON text of SpecV's file."""
TRACK = "track"
"""Metadata of a query: SpecV's track that it is of."""
DIMENSIONS: Mapping[str, tuple[str, ...]] = {
    "t2i": (
        *("composition", "structure", "style", "text_rendering"),
        "world_knowledge_and_reasoning",
    ),
    "edit": (
        *("attribute", "background_and_scene", "local_obj", "reasoning_driven"),
        *("spatial_and_layout", "text_centric"),
    ),
    "many2one": (
        *("cross_domain", "element_replacement", "three_elements_integration"),
        "multi_subject_composition",
    ),
    "interleave": (
        *("interleaved_completion", "structured_tutorial", "real_world_assistant"),
        "reasoning_interleaved",
    ),
    "think_with_img": ("math", "physics", "maze", "jigsaw"),
    "understanding": ("charxiv", "countbench", "hallusionbench", "mmbench", "mmmu"),
}
"""Of each of SpecV's tracks, in the order of its programs."""
ONE_IMAGE = ("t2i", "edit", "many2one")
"""Tracks whose answers are one image each."""
TEXT_ONLY = "understanding"
"""The track whose answers are texts."""
OWN: str = WORDING["specifications"]["text"]
"""Our wording."""
_DIGESTS = RELEASED["specv"]
_FORM: str = WORDING["forms"]["specifications"]
_YES = "Yes"
_NO = "No"
_ABSENT = "N/A"
"""What the released program takes for the answer to what a reply does not name."""


class Specification(NamedTuple):
    """A question of yes or no about an answer."""

    id: int
    question: str
    expected: str
    """`Yes` or `No`."""
    category: str
    subcategory: str

    def group(self, track: str) -> str:
        """Return the group that it is counted in; empty for one of no group."""
        if track == "many2one":
            # Its categories are free texts, seventy-five for 200 queries.
            return SPECIFICATIONS
        weighting = WEIGHTINGS.get(track)
        if weighting is None:
            return self.category
        own = self.subcategory if weighting.by_subcategory else self.category
        for name in weighting.weights:
            if own.startswith(name):
                return name
        return ""


class Weighting(NamedTuple):
    """How the released program weights the groups of a track's specifications."""

    weights: Mapping[str, float]
    """By how the group's name begins."""
    by_subcategory: bool
    """Whether groups are subcategories."""
    over_all: bool
    """Whether groups that are not there count as not met."""


WEIGHTINGS: Mapping[str, Weighting] = {
    "think_with_img": Weighting(
        {
            "Final Answer": 0.7,
            "Reasoning Quality": 0.1,
            "Image Quality": 0.1,
            "Image-Text Alignment": 0.1,
        },
        by_subcategory=True,
        over_all=True,
    ),
    "understanding": Weighting(
        {"Final Answer Correctness": 1.0, "Process-Level Evaluation": 0.0},
        by_subcategory=False,
        over_all=False,
    ),
}
"""By track (SUBCATEGORY_WEIGHTS of its score_and_rank.py)."""


def specifications_of(query: Query) -> list[Specification]:
    """Return the specifications of a query; none where it has no checklist."""
    checklist = query.metadata.get(SPECIFICATIONS, "[]")
    return [specification(row) for row in json.loads(checklist)]


def specification(row: Mapping[str, Any]) -> Specification:
    """Return one of SpecV's checklists as it stands in the file."""
    return Specification(
        id=row["id"],
        question=row["question"],
        expected=row["expected_answer"],
        category=row.get("category", ""),
        subcategory=row.get("subcategory", ""),
    )


def without_specifications(query: Query) -> NotApplicable | None:
    """Return why a query without specifications is not judged; None where it has some."""
    if query.metadata.get(SPECIFICATIONS):
        return None
    return NotApplicable("the query has no specifications")


Wording = str | Mapping[str, str]
"""Ours, or the released prompts by track."""


@dataclass(frozen=True, kw_only=True)
class SpecificationsJudge(QuestionsJudge[Mapping[int, str]]):
    """Asks for all specifications of a query at once; the share that is met, in percent.

    In official mode two tracks have weights (`WEIGHTINGS`), and values are rounded to two
    decimals. Among the parts stand both the share and the weighted value.
    """

    own = OWN
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("criteria/*", "share", "0-1", "criterion"),
        PartScale("rulings/*/met", "ruling", "0-1"),
        PartScale("met", "specifications"),
        PartScale("not_met", "specifications"),
        PartScale("share", "percent", "0-100"),
        PartScale("weighted", "percent", "0-100"),
    )
    wording: Wording = OWN

    @classmethod
    def wording_in(cls, file: AnyPath) -> Wording:
        """Return the texts of the user's checkout, by track; UsageError for others."""
        wording = {}
        for track in _DIGESTS:
            wording[track] = _read_prompt(beside(file, track), track)
        return wording

    @classmethod
    def schema_of(cls, name: str) -> Mapping[str, Any]:
        """Return that of the answers."""
        said = {"type": "string", "enum": [_YES, _NO]}
        item = object_schema(id={"type": "integer"}, answer=said)
        return object_schema(answers={"type": "array", "items": item})

    @property
    def judges(self) -> str:
        """All specifications."""
        return "all specifications at once"

    @property
    def form(self) -> str:
        """The object that holds the answers."""
        return _FORM

    @property
    def released_summary(self) -> ReleasedSummary:
        """SpecV's in official mode."""
        return "specv" if self.official else ""

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs specifications of the query."""
        return without_specifications(query)

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Ask, read, and ask again where the reply cannot be read; then Unread."""
        listed = specifications_of(query)
        content = self._content(query, document, listed)
        if isinstance(content, Unscored):
            return content
        ids = [one.id for one in listed]

        def read(_: Question, reply: str) -> Mapping[int, str] | Unreadable:
            return official_answers(reply, ids) if self.official else answers(reply, ids)

        wanted = f"Reply with one JSON object and nothing else: {self.form}."
        asked = Question.of(query.id, content)
        replies = yield from self.ask_all(query, [asked], read, lambda _: wanted)
        if not isinstance(replies, Readings):
            return replies
        # There is one question, whose number is 0.
        said = replies.values.get(0)
        if said is None:
            return Unread(replies.reason_of(0))
        return Result(self._score(query.metadata.get(TRACK, ""), listed, said))

    def _score(
        self, track: str, listed: Sequence[Specification], said: Mapping[int, str]
    ) -> Score:
        """Return the score of the answers that were `said`, by the specification's id."""
        rulings = []
        groups = []
        met = []
        for one in listed:
            group = one.group(track)
            is_met = said[one.id] == one.expected
            groups.append(group)
            met.append(is_met)
            ruling = {
                "id": one.id,
                "specification": one.question,
                "group": group,
                "expected": one.expected,
                "answer": said[one.id],
                "met": is_met,
            }
            rulings.append(ruling)
        share = 100 * (sum(met) / len(met))
        weighted = weighted_share(track, groups, met)
        parts = {
            "criteria": shares_by_group(groups, met),
            "rulings": rulings,
            "met": sum(met),
            "not_met": len(met) - sum(met),
            "share": share,
            "weighted": weighted,
        }
        return Score(round(weighted, 2) if self.official else share, parts)

    # ---------------------------------------------------------------------- the request

    def _content(
        self, query: Query, document: Document, listed: Sequence[Specification]
    ) -> Content | Unscored:
        """Return the request; Unscored for an answer that the program does not judge.

        It is put as the released program does in official mode, else with all images in
        their places; with released texts in their words, else in ours.
        """
        if self.official:
            checklist = query.metadata[SPECIFICATIONS]
            return self._as_released(
                query.metadata[TRACK], query.question, document.segments, checklist
            )
        pages = Pages(self.max_images)
        question = pages.write(query.question)
        answer = pages.write(document.segments)
        if not isinstance(self.wording, str):
            track = query.metadata.get(TRACK, "")
            plain = [{"id": one.id, "question": one.question} for one in listed]
            checklist = json.dumps(plain, ensure_ascii=False, indent=2)
            return self._as_released(track, question, answer, checklist)
        lines = [f"{one.id}. {one.question}\n" for one in listed]
        fields: dict[str, Content] = {
            "question": question,
            "answer": answer,
            "specifications": (Text("".join(lines).rstrip("\n")),),
        }
        return fill(self.wording, fields)

    def _as_released(
        self, track: str, question: Content, answer: Content, checklist: str
    ) -> Content | Unscored:
        """Return the parts of a request as `_process_single_item` of the track has them."""
        assert not isinstance(self.wording, str)
        template = self.wording[track]
        asked = _text_of(question)
        listed = (Text(checklist),)
        if track in ONE_IMAGE:
            images = _images_of(answer)
            if len(images) != 1:
                return Unscored(f"the released program judges one image, not {len(images)}")
            text = replace_marks(template, dict.fromkeys(_ASKED, asked))
            text = replace_marks(text, dict.fromkeys(_LISTED, checklist))
            return _with_images(track, question, images[0], text)
        if track == TEXT_ONLY:
            answer = (Text(_text_of(answer)),)
        if not _without_empty(answer):
            return Unscored("the released program finds no content")
        fields = dict.fromkeys(_ASKED, question) | dict.fromkeys(_LISTED, listed)
        return put_content(template, fields | dict.fromkeys(_ANSWERED, answer))


def _read_prompt(file: AnyPath, track: str) -> str:
    """Return the published prompt of a track; MissingInput, UsageError for another text."""
    try:
        data = file.read_bytes().replace(b"\r\n", b"\n")
    except OSError as error:
        reason = error.strerror or error
        raise MissingInput(
            f"official prompt {str(file)!r}: {reason}; give the checkout of SpecV"
        ) from None
    digest = _DIGESTS[track]
    if hashlib.sha256(data).hexdigest() != digest:
        raise UsageError(
            f"{file} is not the published prompt (sha256 {digest[:12]}...), "
            f"eval/{track}/{SPECV_PROMPT}"
        )
    return data.decode()


_ASKED = (
    *("{insert_prompt_here}", "{{EDITING_PROMPT}}", "{{PROMPT}}", "{original_prompt}"),
    *("{{INSERT_QUESTION_HERE}}", "{original_question}"),
)
_LISTED = (
    *("{insert_checklist_here}", "{{CHECKLIST}}", "{{INSERT_CHECKLIST_JSON_HERE}}"),
    "{checklist}",
)
_ANSWERED = ("{interleaved_output}", "{{INSERT_MODEL_OUTPUT_HERE}}", "{model_response}")
"""Marks in the released prompts in the place of request, checklist and answer."""
_IMAGE_MARK = "{insert_image_here}"
_SEE_IMAGE = "[\u89c1\u56fe\u7247]"
"""What the program of the track t2i writes in its place."""


def replace_marks(text: str, marks: Mapping[str, str]) -> str:
    """Return a text with what stands for each mark."""
    for mark, own in marks.items():
        text = text.replace(mark, own)
    return text


def put_content(template: str, fields: Mapping[str, Content]) -> Content:
    """Return a template with content in the place of each mark that it holds."""
    # The longest first, since a mark may begin as another one does.
    marks = sorted(fields, key=len, reverse=True)
    pattern = "|".join(map(re.escape, marks))
    segments: list[Text | Image] = []
    place = 0
    for mark in re.finditer(pattern, template):
        segments.append(Text(template[place : mark.start()]))
        segments += fields[mark[0]]
        place = mark.end()
    segments.append(Text(template[place:]))
    return _without_empty(segments)


def _without_empty(content: Iterable[Text | Image]) -> Content:
    return tuple(part for part in content if isinstance(part, Image) or part.text)


def _text_of(content: Content) -> str:
    return "".join(part.text for part in content if isinstance(part, Text))


def _images_of(content: Content) -> list[Image]:
    return [part for part in content if isinstance(part, Image)]


def _with_images(track: str, question: Content, image: Image, text: str) -> Content:
    """Return the parts of `call_gemini_api` of a track whose answers are images."""
    if track == "t2i":
        return (image, Text(text.replace(_IMAGE_MARK, _SEE_IMAGE)))
    given = _images_of(question)
    if track == "edit":
        before: Content = (Text("[Original Image]:"), *given[:1])
        return (*before, Text("\n[Edited Image]:"), image, Text(f"\n{text}"))
    parts: list[Text | Image] = []
    for number, reference in enumerate(given, start=1):
        line = "" if number == 1 else "\n"
        parts += [Text(f"{line}[Reference Image {number}]:"), reference]
    return (*parts, Text("\n[Generated Image]:"), image, Text(f"\n{text}"))


# --------------------------------------------------------------------------- the score


def shares_by_group(groups: Sequence[str], met: Sequence[bool]) -> dict[str, float]:
    """Return the share of each group that is met, in the order in which they occur."""
    own: dict[str, list[bool]] = {}
    for group, ruling in zip(groups, met, strict=True):
        if group:
            own.setdefault(group, []).append(ruling)
    return {group: sum(rulings) / len(rulings) for group, rulings in own.items()}


def weighted_share(track: str, groups: Sequence[str], met: Sequence[bool]) -> float:
    """Return what `compute_question_score` of a track counts, 0 to 100, not rounded."""
    weighting = WEIGHTINGS.get(track)
    if weighting is None:
        return sum(met) / len(met) * 100
    shares = shares_by_group(groups, met)
    weights = weighting.weights
    counted = weights if weighting.over_all else shares
    whole = sum(weights[name] for name in counted)
    if not shares or whole <= 0:
        return 0.0
    total = sum(weights[name] * share for name, share in shares.items())
    return total / whole * 100


# ------------------------------------------------------------------------------ replies


def answers(reply: str, ids: Sequence[int]) -> dict[int, str] | Unreadable:
    """Return `Yes` or `No` for each of `ids`, as a reply states them.

    Objects with a number under `id` and its answer count, wherever they stand, and an
    object whose keys are the numbers. A number that is answered in two ways has no answer.
    """
    reply = separate(reply).text
    found, rest = find_objects(reply)
    stated: dict[int, set[bool | None]] = {}
    """By number, what is stated of it; None is something else than yes or no."""
    for one in found:
        if one.told:
            for id, value in _statements(one.content):
                stated.setdefault(id, set()).add(as_bool(value))
    said: dict[int, str] = {}
    lacking: list[int] = []
    several: list[int] = []
    for id in ids:
        readings = stated.get(id, {None})
        if len(readings) > 1:
            several.append(id)
            continue
        (ruling,) = readings
        if ruling is None:
            lacking.append(id)
        else:
            said[id] = _YES if ruling else _NO
    if rest or not stated:
        return Unreadable(no_object(reply))
    if several:
        return Unreadable(f"it answers in several ways: {_numbers(several)}")
    if lacking:
        return Unreadable(f"there is no 'Yes' or 'No' for {_numbers(lacking)}")
    return said


def _numbers(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))


def _statements(content: Any) -> Iterator[tuple[int, Any]]:
    """Yield the numbers and their answers in an object, and in those inside it."""
    if isinstance(content, list):
        for item in content:
            yield from _statements(item)
    if not isinstance(content, dict):
        return
    by_key = {plain_key(str(key)): value for key, value in content.items()}
    if "id" in by_key and "answer" in by_key:
        id = _as_id(by_key["id"])
        if id is not None:
            yield id, by_key["answer"]
        return
    for key, value in content.items():
        if isinstance(value, dict | list):
            yield from _statements(value)
            continue
        id = _as_id(key)
        if id is not None:
            yield id, value


def _as_id(value: Any) -> int | None:
    """Return a whole number, also one in a text; None for all else."""
    number = as_number(value)
    return int(number) if number is not None and number == int(number) else None


_FENCE = re.compile(r"```(?:json|JSON)?\s*\n?(.*?)```", re.DOTALL)
_OPEN_FENCES = ("```json", "```JSON")
"""In the order in which the program looks for them."""
_COMMA_TOO_MANY = re.compile(r",\s*(?=[}\]])")
_BEFORE_VALUE = (
    re.compile(r'(?<=:)(\s*)(?=[^\s"{\[\d-])(?!(?:true|false|null)\b)'),
    re.compile(r'(?<=:)(\s*)(?=\[[^\s"\[\]{}\dtfn-])'),
)
"""Between a key and a value that is a word, or a list of words, without quotation marks."""
_MOST_ESCAPED = 50
_FAR_BACK = 100
_FAR_ON = 10
"""Characters around an error in which a quotation mark is looked for."""


def official_answers(reply: str, ids: Sequence[int]) -> dict[int, str] | Unreadable:
    """Read as `parse_json_response` and `merge_result_with_checklist` do.

    Any list is a judgement; of what it says under an id the last counts, as a text, and an
    id that it does not name has `N/A`. All but the exact words are wrong.
    """
    try:
        content = _official_json(reply.strip())
    except (RecursionError, ValueError):
        content = None
    if not isinstance(content, list):
        return Unreadable("the released program finds no JSON list and asks again")
    said: dict[Any, Any] = {}
    try:
        for item in content:
            if isinstance(item, dict) and "id" in item:
                said[item["id"]] = item.get("answer", _ABSENT)
        return {id: _text(said.get(id, _ABSENT)) for id in ids}
    except (TypeError, ValueError, RecursionError):
        return Unreadable("the released program ends in an error at an id or an answer")


def _text(value: Any) -> str:
    """Return a value as text that can be written; JSON may hold halves of surrogates."""
    return str(value).encode("utf-8", "replace").decode()


def _official_json(reply: str) -> Any:
    """Return the first that is JSON of the texts that the program tries; None for none."""
    for text in _official_texts(reply):
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            continue
    return None


def _official_texts(reply: str) -> Iterator[str]:
    """Yield the reply and what is found and mended in it, in the program's order.

    What is in braces is left out: it is an object and no list.
    """
    yield reply
    yield _quote_values(reply)
    fenced = _FENCE.search(reply)
    if fenced:
        inside = fenced[1].strip()
        yield inside
        yield _quote_values(inside)
        yield _escape_quotes(inside)
        yield _escape_quotes(_quote_values(inside))
        yield _COMMA_TOO_MANY.sub("", inside)
    opened = [mark for mark in _OPEN_FENCES if mark in reply]
    if opened:
        inside = reply.partition(opened[0])[2].strip().rstrip("`").strip()
        yield inside
        yield _quote_values(inside)
        yield _escape_quotes(_quote_values(inside))
        yield _escape_quotes(inside)
    start = reply.find("[")
    end = reply.rfind("]") + 1
    if -1 < start < end:
        listed = reply[start:end]
        yield listed
        yield _COMMA_TOO_MANY.sub("", listed)
        yield _quote_values(listed)
        yield _escape_quotes(listed)
        yield _escape_quotes(_quote_values(listed))


def _quote_values(text: str) -> str:
    """Return a text with a quotation mark before each word that is a value."""
    for pattern in _BEFORE_VALUE:
        text = pattern.sub(r'\1"', text)
    return text


def _escape_quotes(text: str) -> str:
    """Return a text with quotation marks escaped where that leads further in it as JSON."""
    for _ in range(_MOST_ESCAPED):
        reached = _error_in(text)
        if reached is None:
            break
        places = [*range(reached - 1, max(0, reached - _FAR_BACK), -1)]
        places += range(reached, min(len(text), reached + _FAR_ON))
        better = _escape_one(text, reached, places)
        if better is None:
            break
        text = better
    return text


def _escape_one(text: str, reached: int, places: Sequence[int]) -> str | None:
    """Return a text with the first mark escaped that leads further; None for none."""
    for place in places:
        if text[place] != '"' or (place > 0 and text[place - 1] == "\\"):
            continue
        escaped = f'{text[:place]}\\"{text[place + 1 :]}'
        error = _error_in(escaped)
        if error is None or error > reached:
            return escaped
    return None


def _error_in(text: str) -> int | None:
    """Return where a text is no longer JSON; None where it is."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.pos
    return None
