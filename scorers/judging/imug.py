"""A judge of IMUG-Bench: letters by rule, images by a judge, point by point.

A query is a session of several turns (`plait.benchmarks.tasks.imug`). A turn that asks for
letters is compared with the right ones; where these depend on what the system drew before,
the judge says first which they are. A turn that asks for an image is given 0 to 5 for each
of its points, beside the images that it refers to. A session counts the mean of its turns.

`official` asks, reads and counts as scripts/auxiliary of ccccEsion/IMUG-Bench@63de63a
(Meng et al., arXiv:2606.09169), by the texts of the user's copy. The grids of coloured
cubes, which score_grid.py reads from the pixels, are not scored in either mode.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar, NamedTuple

from plait.generators.base import NotApplicable, Result, Unread, Unscored, Walk
from plait.generators.buckets import AnyPath
from plait.generators.content import fill
from plait.generators.document import Content, Document, Image, Query, Score, Text, Turn
from plait.generators.errors import MissingInput, UsageError
from plait.generators.replies import as_number, statements_of
from plait.generators.thoughts import separate
from plait.scorers.base import UNBOUNDED, NoScore, ReleasedSummary
from plait.scorers.judging.judge import Question, QuestionsJudge, Readings
from plait.scorers.judging.replies import Unreadable, no_object
from plait.scorers.judging.rewards import Wording
from plait.scorers.judging.rubrics import RELEASED, WORDING
from plait.scorers.judging.sources import IMUG_PROMPTS, Mode
from plait.scorers.parts import PartScale, PartTable
from plait.scorers.turns import session_turns

PREFIX = "imug:"
IMUG = "imug"
"""Metadata of a query: a JSON object of its domain, subdomain and turns (`Asked`)."""
DYNAMIC = "<DYNAMIC>"
"""Stands in an answer for the letters that depend on what was drawn before."""
LETTERS = "ABCDEFG"
TOP = 5
GRIDS = ("cubes_coloring", "cubes_completion", "cubes_synthesis")
"""Subdomains of `Geometric_Coloring` whose images a program of its own scores."""
_SEVERAL = ("Botany", "natural_growth")
"""The domain and subdomain of which a question may have several right letters."""
_FORMS = {
    "image": f'{{"scores": [<0 to {TOP}>, ...]}} with one score for each point, in order',
    "dynamic": '{"determined_answer": "<all right letters>"}',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """An image of an earlier turn beside which another is judged."""

    turn: int
    """As the data number it."""
    own: bool
    """Whether it is what the system drew; else what the turn shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the data say of one turn."""

    turn: int
    modality: str
    """`text` or `image`."""
    answer: str = ""
    """The right letters of a turn of text, where there are any, or DYNAMIC among them."""
    points: tuple[str, ...] = ()
    references: tuple[Reference, ...] = ()
    """Of an image."""
    depends_on: tuple[int, ...] | None = None
    """The turns by whose answers DYNAMIC is told; None where the data name none."""

    @property
    def is_dynamic(self) -> bool:
        """Whether the right letters depend on what was drawn before."""
        return DYNAMIC in self.answer

    @property
    def counts(self) -> bool:
        """Whether it has anything to be scored by."""
        return bool(self.answer) if self.modality == "text" else bool(self.points)


class Item(NamedTuple):
    """What the data say of a session."""

    domain: str
    subdomain: str
    turns: tuple[Asked, ...]

    @classmethod
    def of(cls, query: Query) -> Item | None:
        """Return that of a query; None of one of other data."""
        if IMUG not in query.metadata:
            return None
        values = json.loads(query.metadata[IMUG])
        turns = []
        for row in values["turns"]:
            references = tuple(Reference(**one) for one in row.pop("references", ()))
            points = tuple(row.pop("points", ()))
            before = row.pop("depends_on", None)
            known = None if before is None else tuple(before)
            turns.append(
                Asked(**row, points=points, references=references, depends_on=known)
            )
        return cls(values["domain"], values["subdomain"], tuple(turns))

    @property
    def is_grid(self) -> bool:
        """Whether its images are grids, which are read from their pixels."""
        return self.domain == "Geometric_Coloring" and self.subdomain in GRIDS


class _Session(NamedTuple):
    """A query with an answer, turn by turn."""

    item: Item
    asked: Sequence[Content]
    answers: Sequence[Content]

    def place(self, turn: int) -> int | None:
        """Return where the turn with this number stands, from 0."""
        numbers = [one.turn for one in self.item.turns]
        return numbers.index(turn) if turn in numbers else None

    def text_of(self, place: int) -> str:
        """Return what the turn asks, as the released programs repeat it."""
        return next((s.text for s in self.asked[place] if isinstance(s, Text)), "")


@dataclass(frozen=True, kw_only=True)
class ImugJudge(QuestionsJudge[Any]):
    """The mean over the turns of a session, in percent."""

    own = Wording.of(WORDING["imug"])
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("criteria/*", "share", "0-1", "criterion"),
        PartScale("points/*/*", "points", f"0-{TOP}"),
        PartScale("dropped", "turns"),
    )
    wording: Wording = own

    @classmethod
    def wording_in(cls, file: AnyPath) -> Wording:
        """Return both texts of the user's checkout; UsageError for others."""
        return Wording.of({name: _read_prompt(file, name) for name in IMUG_PROMPTS})

    @classmethod
    def scale_of(cls, name: str, mode: Mode) -> str:
        """Return 0-100; the program counts scores beyond the scale that it asks for."""
        return UNBOUNDED if mode == "official" else "0-100"

    @property
    def judges(self) -> str:
        """What it judges."""
        return "sessions, letters by rule"

    @property
    def released_summary(self) -> ReleasedSummary:
        """IMUG-Bench's in official mode."""
        return "imug" if self.official else ""

    def jobs(self, query: Query, images: int = 1) -> int:
        """Return the most questions: one for each image, and each dynamic turn."""
        item = Item.of(query)
        turns = item.turns if item else ()
        return sum(turn.is_dynamic or turn.modality == "image" for turn in turns)

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs a session of IMUG-Bench whose images a judge scores."""
        item = Item.of(query)
        if item is None:
            return NotApplicable("the query is none of IMUG-Bench's sessions")
        if item.is_grid:
            return NotApplicable(
                "grids of coloured cubes are scored from their pixels by the released "
                "program score_grid.py alone"
            )
        return None

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Ask about all images and dynamic turns, and count; Unread where one is unread.

        In official mode a turn whose judgement is unread is dropped, as there.
        """
        item = Item.of(query)
        assert item is not None
        answers = [answer.segments for answer in document.answers]
        if len(answers) != len(item.turns):
            return Unscored(f"the answer has {len(answers)} turns, not {len(item.turns)}")
        asked = [turn.content for turn in query.turns if turn.role == "user"]
        session = _Session(item, asked, answers)
        questions = self._questions(query, session)
        replies = yield from self.ask_all(
            query, [*questions.values()], self._read, self._form_of_reply
        )
        if not isinstance(replies, Readings):
            return replies
        if replies.reasons and not self.official:
            return Unread(replies.reason_of(min(replies.reasons)))
        said = {place: replies.values.get(i) for i, place in enumerate(questions)}
        return self._score(query, session, said)

    # ---------------------------------------------------------------------- the score

    def _score(
        self, query: Query, session: _Session, said: Mapping[int, Any]
    ) -> Result[Score] | Unread | Unscored:
        values: dict[int, float] = {}
        points: dict[str, Sequence[float]] = {}
        dropped = 0
        for place, turn in enumerate(session.item.turns):
            if not turn.counts:
                continue
            name = f"turn {turn.turn}"
            if turn.modality == "image":
                scores = said.get(place, [0.0])
                if scores:
                    points[name] = scores
                    values[place] = fmean(scores) / TOP
                else:
                    dropped += 1
                continue
            answer = said.get(place) if turn.is_dynamic else turn.answer
            if answer is None:
                dropped += 1
                continue
            value = self._letters(str(answer), Document(session.answers[place]).text)
            if isinstance(value, Unreadable):
                return Unread(f"{name}: {value.reason}")
            values[place] = value
        if not values:
            return Unread("no turn has a judgement that can be read")
        parts: dict[str, Any] = {"criteria": self._criteria(query, session, values)}
        parts |= {"points": points, "dropped": dropped}
        return Result(Score(100 * fmean(values.values()), parts))

    def _criteria(
        self, query: Query, session: _Session, values: Mapping[int, float]
    ) -> dict[str, float]:
        turns = session.item.turns
        criteria: dict[str, float] = {}
        for place, value in values.items():
            criteria[f"turn {turns[place].turn} ({turns[place].modality})"] = value
        looks_back = [turn.looks_back for turn in session_turns(query)]
        back = [value for place, value in values.items() if looks_back[place]]
        if back:
            criteria["looks back"] = fmean(back)
        return criteria

    def _letters(self, answer: str, response: str) -> float | Unreadable:
        if self.official:
            return official_letters(answer, response)
        expected = {letter for letter in answer if letter in LETTERS}
        chosen = letters_in(response)
        if isinstance(chosen, Unreadable):
            return chosen
        return share_of_letters(expected, chosen) * form_weight(response)

    # ------------------------------------------------------------------ the questions

    def _questions(self, query: Query, session: _Session) -> dict[int, Question]:
        """Return what is asked, by the place of the turn."""
        questions: dict[int, Question] = {}
        for place, turn in enumerate(session.item.turns):
            if turn.modality == "image" and turn.points:
                if self.official or _image_in(session.answers[place]):
                    turns = self._about_image(session, place)
                    about = f"{query.id} turn {turn.turn}"
                    questions[place] = Question(about, turns, ("image", len(turn.points)))
            elif turn.is_dynamic:
                if self.official and turn.depends_on is None:
                    continue  # The released program asks about listed turns alone.
                turns = self._about_letters(session, place)
                about = f"{query.id} turn {turn.turn}"
                questions[place] = Question(about, turns, ("dynamic", turn.answer))
        return questions

    def _about_image(self, session: _Session, place: int) -> tuple[Turn, ...]:
        turn = session.item.turns[place]
        shown: list[tuple[Image | None, str]] = []
        for index, reference in enumerate(turn.references, start=1):
            before = session.place(reference.turn)
            if before is None:
                continue
            content = (session.answers if reference.own else session.asked)[before]
            if (image := _image_in(content)) is not None:
                kind = "output" if reference.own else "input"
                told = f"Image_{index} (Turn {reference.turn} {kind} image)"
                shown.append((image, told))
        target = _image_in(session.answers[place])
        shown.append((target, f"Image_{len(shown) + 1} (Target Image)"))
        points = [f"{i}. {point}" for i, point in enumerate(turn.points, start=1)]
        listed = [f"- {told}\n" for image, told in shown if image is not None]
        images = [image for image, _ in shown if image is not None]
        text = session.text_of(place)
        if self.official:
            prompt = (
                f"Sequence description:\n{''.join(listed)}\n[Task Instruction Recap]:\n"
                f"{text}\n\n[Evaluation Points List]:\n" + "\n".join(points) + "\n\n"
                "Please output JSON results."
            )
            return self._as_released("image", (*images, Text(prompt)))
        fields: dict[str, Content] = {
            "images": tuple(_beside_labels(shown)),
            "instruction": (Text(text),),
            "points": (Text("\n".join(points)),),
            "form": (Text(_FORMS["image"]),),
        }
        return (Turn("user", fill(self.wording["image"], fields)),)

    def _about_letters(self, session: _Session, place: int) -> tuple[Turn, ...]:
        turn = session.item.turns[place]
        images: list[Image] = []
        before = turn.depends_on
        if before is None:
            before = tuple(one.turn for one in session.item.turns[:place])
        context = "### REFERENCE CONTEXT PROVIDED ###\n"
        talk: list[Text | Image] = []
        for number in sorted(before):
            earlier = session.place(number)
            if earlier is None:
                continue
            question = session.text_of(earlier)
            image = _image_in(session.answers[earlier])
            said = session.item.turns[earlier].answer or "[Text Response]"
            if image is not None:
                images.append(image)
                said = f"[IMAGE_RESPONSE: See Image_{len(images)}]"
            context += f"Turn {number}: Q: {question} | AI Resp: {said}\n"
            talk += [Text(f"Question: {question}\nAnswer: "), *session.answers[earlier]]
            talk.append(Text("\n"))
        asked = session.text_of(place)
        several = (session.item.domain, session.item.subdomain) == _SEVERAL
        if self.official:
            kind = "MULTIPLE-CHOICE" if several else "SINGLE-CHOICE"
            prompt = (
                f"{context}\n### TARGET QUESTION (Turn {turn.turn}) ###\n"
                f"Question: {asked}\nType: {kind}\n"
                "Identify the correct options based on the images provided."
            )
            return self._as_released("dynamic", (Text(prompt), *images))
        fixed = sorted(set(turn.answer.split(DYNAMIC)[0]) & {*LETTERS})
        fields: dict[str, Content] = {
            "talk": tuple(talk),
            "question": (Text(asked),),
            "fixed": (Text(", ".join(fixed) or "none"),),
            "form": (Text(_FORMS["dynamic"]),),
        }
        return (Turn("user", fill(self.wording["dynamic"], fields)),)

    def _as_released(self, name: str, content: Content) -> tuple[Turn, ...]:
        return Turn("system", (Text(self.wording[name]),)), Turn("user", content)

    def _read(self, question: Question, reply: str) -> Any:
        kind, about = question.criteria
        if kind == "image":
            return official_points(reply) if self.official else points_in(reply, about)
        found = official_determined(reply) if self.official else determined_letters(reply)
        if isinstance(found, Unreadable):
            return found
        fixed = set(about.split(DYNAMIC)[0]) & {*LETTERS}
        return "".join(sorted(fixed | found))

    def _form_of_reply(self, question: Question) -> str:
        form = _FORMS[question.criteria[0]]
        return f"Reply with one JSON object and nothing else: {form}."


def _image_in(content: Content) -> Image | None:
    return next((s for s in content if isinstance(s, Image)), None)


def _beside_labels(shown: Sequence[tuple[Image | None, str]]) -> list[Text | Image]:
    """Return each image that is there below its label."""
    segments: list[Text | Image] = []
    for image, told in shown:
        if image is not None:
            segments += [Text(f"{told}:\n"), image, Text("\n")]
    return segments


def _read_prompt(beside: AnyPath, name: str) -> str:
    file = beside.parent / IMUG_PROMPTS[name]
    try:
        data = file.read_bytes().replace(b"\r\n", b"\n")
    except OSError as error:
        reason = error.strerror or error
        raise MissingInput(
            f"official prompt {str(file)!r}: {reason}; give the checkout of IMUG-Bench"
        ) from None
    digest = RELEASED["imug"][name]
    if hashlib.sha256(data).hexdigest() != digest:
        raise UsageError(
            f"{file} is not the published prompt (sha256 {digest[:12]}...), "
            f"scripts/auxiliary/{file.name}"
        )
    return data.decode()


# ------------------------------------------------------------------------------ readers


def official_letters(answer: str, response: str) -> float:
    """`calculate_score` of score_mcq.py, rounded to 4 decimals.

    Only letters that stand alone are letters, of the right answer and of the response: of
    `BD` there is none, and then the score is 0.
    """
    expected = set(re.findall(r"\b([A-G])\b", answer))
    chosen = set(re.findall(r"\b([A-G])\b", response))
    if not expected:
        return 0.0
    return round(share_of_letters(expected, chosen) * form_weight(response), 4)


def share_of_letters(expected: set[str], chosen: set[str]) -> float:
    """Return right less wrong letters, over the right ones there are; at least 0."""
    gained = len(chosen & expected) - len(chosen - expected)
    return max(0.0, gained / len(expected))


def form_weight(response: str) -> float:
    """Return what the form of a response is worth: `format_multiplier` of score_mcq.py."""
    if not response:
        return 0.0
    text = response.strip()
    if re.fullmatch(r"[A-G]+", text):
        return 1.0
    return 0.75 if re.fullmatch(r"[A-G\s,.;\-]+", text) else 0.5


_LIST = re.compile(r"(?:[\s,.;:/&+()\[\]*-]|\band\b)*", re.IGNORECASE)


def letters_in(response: str) -> set[str] | Unreadable:
    """Return the letters that a response chooses: a list of letters, or one in words."""
    from plait.scorers.letters import find_letter

    text = separate(response).text.strip()
    if not text:
        return Unreadable("the answer holds no text")
    groups = re.findall(r"\b[A-G]+\b", text)
    rest = re.sub(r"\b[A-G]+\b", "", text)
    if groups and _LIST.fullmatch(rest):
        return set("".join(groups))
    letter = find_letter(text, len(LETTERS))
    return letter if isinstance(letter, Unreadable) else {letter}


def official_points(reply: str) -> list[float] | Unreadable:
    """`parse_scores` of score_image.py, and how summarize_results.py counts it.

    All from the first brace to the last; a score may be beyond the scale, and points that
    are left out are in no mean.
    """
    try:
        found = re.search(r"(\{.*\})", reply, re.DOTALL)
        payload = json.loads(found[1] if found else "")
        rows = payload.get("evaluation_results", [])
        return [float(row.get("score")) for row in rows]
    except (AttributeError, TypeError, ValueError, RecursionError):
        return Unreadable("the released program ends at this reply")


def points_in(reply: str, number: int) -> list[float] | Unreadable:
    """Return the whole scores of 0 to 5, one for each point, in order."""
    stated = statements_of(reply, "scores", "evaluation_results")
    if len(stated) != 1 or not isinstance(stated[0], list):
        return Unreadable(no_object(reply) if not stated else "there is no one list")
    scores = []
    for row in stated[0]:
        value = row.get("score") if isinstance(row, Mapping) else row
        score = as_number(value, TOP)
        if score is None or score != int(score) or not 0 <= score <= TOP:
            return Unreadable(f"a score is {value!r}, not one of 0 to {TOP}")
        scores.append(score)
    if len(scores) != number:
        return Unreadable(f"there are {len(scores)} scores for {number} points")
    return scores


def official_determined(reply: str) -> set[str] | Unreadable:
    """`save_answer` of resolve_dynamic_answers.py: all letters A to G of the value.

    Those of a word too: of null, which is read as `NONE`, an E.
    """
    try:
        found = re.search(r"(\{.*\})", reply, re.DOTALL)
        value = json.loads(found[1] if found else "").get("determined_answer", "")
    except (AttributeError, ValueError, RecursionError):
        return Unreadable("the released program ends at this reply")
    return set(re.findall(r"[A-G]", str(value).upper()))


def determined_letters(reply: str) -> set[str] | Unreadable:
    """Return the letters that a judge says are right."""
    stated = statements_of(reply, "determined_answer")
    found: set[str] | Unreadable | None = None
    if len(stated) == 1 and isinstance(stated[0], str):
        found = letters_in(stated[0])
    if found is None:
        return Unreadable(no_object(reply) if not stated else "it is no text of letters")
    return found
