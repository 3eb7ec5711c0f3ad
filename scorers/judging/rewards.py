"""Judges of single images that were trained on what people prefer, asked in their words.

`unified-reward` asks as point_score_ACS_image_generation.py of
CodeGoat24/UnifiedReward@ff6f520 does (UnifiedReward 2.0), `editscore` as
editscore/__init__.py of VectorSpaceLab/EditScore@6e0f1b9, and `q-judger` as
qwen_image_bench.py of modelscope/DiffSynth-Studio@fed7b18 (Qwen-Image-Bench), by the texts
of the user's copy. Images are shown as they are. Replies are read as all others are here:
one that cannot be read is asked for again, then unread, and is never a number.

An answer with several images has the mean of theirs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar, NamedTuple

from plait.generators.base import NotApplicable, Result, Unread, Unscored, Walk
from plait.generators.buckets import AnyPath
from plait.generators.content import join_texts
from plait.generators.document import Content, Document, Image, Query, Score, Text, Turn
from plait.generators.released import read_published
from plait.generators.replies import (
    as_number,
    bare_list,
    find_objects,
    plain_key,
    statements_of,
)
from plait.generators.thoughts import separate
from plait.scorers.base import NoScore
from plait.scorers.judging.judge import Question, QuestionsJudge, Readings
from plait.scorers.judging.replies import Unreadable, no_object
from plait.scorers.judging.rubrics import RELEASED, WORDING
from plait.scorers.judging.sources import Mode
from plait.scorers.judging.voice import own_texts, plain_marks
from plait.scorers.parts import PartScale, PartTable

UNIFIED_REWARD = "unified-reward"
EDITSCORE = "editscore"
Q_JUDGER = "q-judger"
CAPTION = "<<caption>>"
"""Where a question has the text of the query."""

Scores = Mapping[str, float]
"""By axis, or by facet, what one reply says of an image."""


@dataclass(frozen=True, slots=True)
class Wording:
    """The texts of a judge by their names."""

    texts: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> Wording:
        """Return these texts."""
        return cls(tuple(texts.items()))

    def get(self, name: str) -> str | None:
        """Return a text; None where there is none of that name."""
        return dict(self.texts).get(name)

    def __getitem__(self, name: str) -> str:
        return dict(self.texts)[name]


class Verdict(NamedTuple):
    """What the replies say of one image."""

    value: float
    axes: Scores


@dataclass(frozen=True, kw_only=True)
class ImageJudge(QuestionsJudge[Scores]):
    """Asks about each image of an answer by itself; the mean of their scores."""

    images_only: bool = True
    scale: str = ""
    wording: Wording
    released: ClassVar[Mapping[str, str]]
    """SHA-256 of the released texts, by name."""
    own_scale: ClassVar[str]

    @classmethod
    def wording_in(cls, file: AnyPath) -> Wording:
        """Return the texts of the user's file; UsageError unless they are the released."""
        texts = read_published(file, cls.released)
        return Wording.of(cls.assemble(texts))

    @classmethod
    def assemble(cls, texts: Mapping[str, str]) -> dict[str, str]:
        """Return the questions that the released program makes of its texts."""
        raise NotImplementedError

    @classmethod
    def scale_of(cls, name: str, mode: Mode) -> str:
        """Return that of the released program."""
        return cls.own_scale

    @property
    def judges(self) -> str:
        """Each image."""
        return "each image by itself"

    def jobs(self, query: Query, images: int = 1) -> int:
        """Return how many questions a round asks about an answer with so many images."""
        return images * self.per_image

    @property
    def per_image(self) -> int:
        """Questions about one image."""
        raise NotImplementedError

    def ask(self, query: Query, image: Image) -> tuple[Question, ...]:
        """Return the questions about one image."""
        raise NotImplementedError

    def read_about(self, question: Question, reply: str) -> Scores | Unreadable:
        """Return what a reply says."""
        raise NotImplementedError

    def form_of(self, question: Question) -> str:
        """Return how the reply to a question must look."""
        raise NotImplementedError

    def verdict_of(self, readings: Sequence[Scores]) -> Verdict | Unscored:
        """Return what the replies about one image say, in the order of its questions."""
        raise NotImplementedError

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Ask about all images at once, and again where a reply cannot be read."""
        questions: list[Question] = []
        for image in document.images:
            for question in self.ask(query, image):
                about = f"{query.id} {image.digest} {question.about}"
                questions.append(question._replace(about=about))

        def say_form(question: Question) -> str:
            return f"Reply in exactly this form and in no other: {self.form_of(question)}"

        replies = yield from self.ask_all(query, questions, self.read_about, say_form)
        if not isinstance(replies, Readings):
            return replies
        if replies.reasons:
            return Unread(replies.reason_of(min(replies.reasons)))
        readings = [replies.values[i] for i in range(len(questions))]
        verdicts = []
        for start in range(0, len(readings), self.per_image):
            verdict = self.verdict_of(readings[start : start + self.per_image])
            if isinstance(verdict, Unscored):
                return verdict
            verdicts.append(verdict)
        return Result(_mean_of(verdicts))


def _mean_of(verdicts: Sequence[Verdict]) -> Score:
    """Return the mean over images; of an axis, over those images that have it."""
    by_axis: dict[str, list[float]] = {}
    for verdict in verdicts:
        for name, value in verdict.axes.items():
            by_axis.setdefault(name, []).append(value)
    axes = {name: fmean(values) for name, values in by_axis.items()}
    return Score(fmean(verdict.value for verdict in verdicts), {"axes": axes})


def _caption(query: Query) -> str:
    """Return the text of a query."""
    return Document(query.question).text.strip()


def _about(images: Content, text: str, query: Query, name: str, *more: Any) -> Question:
    """Return a question of one user turn: the images, then the text with the caption."""
    filled = text.replace(CAPTION, _caption(query))
    content = join_texts((*images, Text(filled)))
    return Question(name, (Turn("user", content),), more)


# --------------------------------------------------------------- UnifiedReward 2.0

_AXES = ("Alignment", "Coherence", "Style")
_AXIS = re.compile(
    r"\b(Alignment|Coherence|Style)\s+Score\s*(?:\(\s*1\s*[-\u2013]\s*5\s*\))?"
    r"[*_\" \t]*[:=|\uff1a][*_\[\" \t]*"
    r"(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)(?![\d.]*\s*[-\u2013]\s*\d)",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class UnifiedRewardJudge(ImageJudge):
    """Alignment, coherence and style of an image, 1 to 5 each; their mean."""

    own = Wording.of(WORDING[UNIFIED_REWARD])
    released = RELEASED[UNIFIED_REWARD]
    own_scale = "1-5"
    wording: Wording = own
    declared_parts: ClassVar[PartTable] = PartTable.of(PartScale("axes/*", "rating", "1-5"))

    @classmethod
    def assemble(cls, texts: Mapping[str, str]) -> dict[str, str]:
        """Put the caption between the brackets at the end."""
        return {"scores": f"{texts['scores']}{CAPTION}]"}

    @property
    def per_image(self) -> int:
        """One."""
        return 1

    def ask(self, query: Query, image: Image) -> tuple[Question, ...]:
        """Ask for all three scores at once."""
        return (_about((image,), self.wording["scores"], query, "scores"),)

    def form_of(self, question: Question) -> str:
        """Three lines."""
        return "\n" + "\n".join(f"{axis} Score (1-5): X" for axis in _AXES)

    def read_about(self, question: Question, reply: str) -> Scores | Unreadable:
        """Return the three scores; none where one is missing or stated in two ways."""
        stated: dict[str, set[float]] = {axis: set() for axis in _AXES}
        for text in own_texts(plain_marks(separate(reply).text)):
            for match in _AXIS.finditer(text):
                stated[match[1].capitalize()].add(float(match[2]))
            if any(stated.values()):
                break
        scores = {}
        for axis, values in stated.items():
            value = values.pop() if len(values) == 1 else math.nan
            if not 1 <= value <= 5:
                return Unreadable(f"there is no one {axis} Score from 1 to 5")
            scores[axis.lower()] = value
        return scores

    def verdict_of(self, readings: Sequence[Scores]) -> Verdict | Unscored:
        """Return the mean of the three."""
        (scores,) = readings
        return Verdict(fmean(scores.values()), scores)


# ------------------------------------------------------------------------ EditScore

_TOP = 25
_ASKED = {"edit": ("success", "restraint"), "quality": ("naturalness", "artifacts")}
"""By question, what its two scores rate."""


@dataclass(frozen=True, kw_only=True)
class EditScoreJudge(ImageJudge):
    """How well an image was edited: of four scores the worse of each pair, 0 to 10.

    The root of the product of the lower score of the edit (success, and how little else
    was changed) and that of the image's quality (naturalness, and freedom from artifacts).
    """

    own = Wording.of(WORDING[EDITSCORE])
    released = RELEASED[EDITSCORE]
    own_scale = "0-10"
    wording: Wording = own
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("axes/*", "rating", f"0-{_TOP}")
    )

    @classmethod
    def assemble(cls, texts: Mapping[str, str]) -> dict[str, str]:
        """Join the texts as the program does, with its range of 0 to 25."""
        scored = texts["scored"].replace("10", str(_TOP))
        quality = texts["quality"].replace("10", str(_TOP))
        edit = "\n".join([texts["context"], texts["rule"], scored])
        return {
            "edit": edit.replace("<instruction>", CAPTION),
            "quality": "\n".join([texts["context"], quality]),
        }

    def query_refusal(self, query: Query) -> NoScore | None:
        """It compares with one image of the query."""
        given = len(Document(query.question).images)
        if given == 1:
            return None
        return NotApplicable(f"it compares with one image to be edited, and {given} are")

    @property
    def per_image(self) -> int:
        """Two."""
        return len(_ASKED)

    def ask(self, query: Query, image: Image) -> tuple[Question, ...]:
        """Ask about the edit beside the original, and about the image alone."""
        original = Document(query.question).images
        edit = _about((*original, image), self.wording["edit"], query, "edit", "edit")
        alone = _about((image,), self.wording["quality"], query, "quality", "quality")
        return edit, alone

    def form_of(self, question: Question) -> str:
        """One JSON object."""
        first, second = _ASKED[question.criteria[0]]
        return f'{{"reasoning": "...", "score": [<{first}>, <{second}>]}}'

    def read_about(self, question: Question, reply: str) -> Scores | Unreadable:
        """Return both scores; none where they are not two numbers from 0 to 25.

        A reply may also be the list alone, which the program reads, too.
        """
        values = statements_of(reply, "score")
        if not values and (alone := bare_list(reply)) is not None:
            values = [alone]
        if not values:
            return Unreadable(no_object(reply))
        stated = values[0] if len(values) == 1 and isinstance(values[0], list) else []
        scores = []
        for value in stated:
            number = as_number(value, _TOP)
            if number is not None and 0 <= number <= _TOP:
                scores.append(number)
        if len(scores) != 2 or len(stated) != 2:
            return Unreadable(f"'score' is no list of two numbers from 0 to {_TOP}")
        return dict(zip(_ASKED[question.criteria[0]], scores, strict=True))

    def verdict_of(self, readings: Sequence[Scores]) -> Verdict | Unscored:
        """Return the root of the product, on a scale of 10 (`EditScore.evaluate`)."""
        edit, quality = readings
        product = min(edit.values()) * min(quality.values())
        return Verdict(10 * math.sqrt(product) / _TOP, {**edit, **quality})


# ------------------------------------------------------------------------- Q-Judger

FACETS: Mapping[str, Mapping[str, Sequence[str]]] = WORDING["facets"]
"""By dimension and group, the facets of Qwen-Image-Bench."""
_MISNAMED = {"Feature Mapping": "Feature Matching"}
"""Facets as the judge calls them, and what the released program makes of them."""
_POINTS = {0.0: 0.0, 1.0: 60.0, 2.0: 100.0}
"""What Fail, Pass and Excel count."""


@dataclass(frozen=True, kw_only=True)
class QJudger(ImageJudge):
    """Five dimensions of an image, in 56 facets of fail, pass and excel; 0 to 100.

    Facets that do not apply are left out. A group is the mean of its facets, a dimension
    that of its groups, and the score that of the dimensions.
    """

    own = Wording.of(WORDING[Q_JUDGER])
    released = RELEASED[Q_JUDGER]
    own_scale = "0-100"
    wording: Wording = own
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("axes/*", "points", "0-100")
    )

    @classmethod
    def assemble(cls, texts: Mapping[str, str]) -> dict[str, str]:
        """Fill in each dimension with its checklist."""
        made = {"system": texts["system"]}
        made["header"] = texts["header"].replace("{prompt}", CAPTION)
        for dimension in FACETS:
            fields = {"level1_dim": dimension, "format_checklist": texts[dimension]}
            made[dimension] = texts["body"].format(**fields)
        return made

    @property
    def per_image(self) -> int:
        """One for each dimension."""
        return len(FACETS)

    def ask(self, query: Query, image: Image) -> tuple[Question, ...]:
        """Ask about each dimension by itself."""
        header = self.wording["header"].replace(CAPTION, _caption(query))
        asked = []
        for dimension in FACETS:
            content = (Text(header), image, Text(self._body(dimension)))
            turns = (
                Turn("system", (Text(self.wording["system"]),)),
                Turn("user", content),
            )
            asked.append(Question(dimension, turns, (dimension,)))
        return tuple(asked)

    def _body(self, dimension: str) -> str:
        """Return what is asked about a dimension, in our wording of each facet by name."""
        if (released := self.wording.get(dimension)) is not None:
            return released
        lines = [f"{group}: {', '.join(own)}" for group, own in FACETS[dimension].items()]
        return self.wording["body"].format(dimension=dimension, facets="\n".join(lines))

    def form_of(self, question: Question) -> str:
        """One JSON object."""
        return '{"<group>": {"<facet>": {"score": 0, 1, 2 or "N/A"}}}'

    def read_about(self, question: Question, reply: str) -> Scores | Unreadable:
        """Return the points of each facet that applies, by its name.

        Facets are known by their names, under whatever group they stand. Unreadable where
        none is named, and where one is rated otherwise or in two ways.
        """
        dimension = question.criteria[0]
        names: dict[str, str] = {}
        for facets in FACETS[dimension].values():
            names |= {plain_key(facet): facet for facet in facets}
        for misnamed, facet in _MISNAMED.items():
            if plain_key(facet) in names:
                names[plain_key(misnamed)] = facet
        found, _ = find_objects(separate(reply).text)
        stated: dict[str, set[float | None]] = {}
        for each in found:
            if each.told:
                _collect(each.content, names, stated)
        if not stated:
            return Unreadable(no_object(reply))
        points = {}
        for facet, ratings in stated.items():
            # NaN stands for any other rating, and for two of them.
            rating = ratings.pop() if len(ratings) == 1 else math.nan
            if rating is None:
                continue
            if rating not in _POINTS:
                return Unreadable(f'{facet!r} is not rated 0, 1, 2 or "N/A"')
            points[facet] = _POINTS[rating]
        return points

    def verdict_of(self, readings: Sequence[Scores]) -> Verdict | Unscored:
        """Return the mean of the dimensions of which any facet applies."""
        axes = {}
        for (dimension, groups), points in zip(FACETS.items(), readings, strict=True):
            means = []
            for facets in groups.values():
                own = [points[facet] for facet in facets if facet in points]
                if own:
                    means.append(fmean(own))
            if means:
                axes[dimension] = fmean(means)
        if not axes:
            return Unscored("the judge finds that no facet applies")
        return Verdict(fmean(axes.values()), axes)


def _collect(
    content: Any, names: Mapping[str, str], stated: dict[str, set[float | None]]
) -> None:
    """Add the ratings in an object, and in those inside it; None for `N/A`."""
    if not isinstance(content, dict):
        return
    for key, value in content.items():
        facet = names.get(plain_key(str(key)))
        rated = value.get("score") if isinstance(value, dict) else value
        # Some groups have the name of their only facet.
        if facet is None or (isinstance(value, dict) and "score" not in value):
            _collect(value, names, stated)
            continue
        ratings = stated.setdefault(facet, set())
        if isinstance(rated, str) and rated.strip().upper() in ("N/A", "NA"):
            ratings.add(None)
        else:
            number = as_number(rated)
            ratings.add(math.nan if number is None else number)
