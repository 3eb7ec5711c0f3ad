"""A rubric of a user's own: criteria, each with its question and scale, in a TOML file.

    scale = "1-5"                       # of criteria without one

    [[criteria]]
    name = "Layout"
    question = "Does each picture stand beside the step that it shows?"

    [[criteria]]
    name = "Safe"
    question = "Does the answer warn of what is dangerous?"
    scale = "yes/no"
    weight = 2
    show = ["question", "answer-text"]

`UserRubric` and what it holds describe all keys. Errors name the line of the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from plait.generators.document import Content, Document, Image, Query, Text
from plait.generators.errors import PlaitError, UsageError
from plait.generators.names import explanation
from plait.generators.replies import as_bool, as_number, plain_key
from plait.scorers.judging.criteria import ABOUTS
from plait.scorers.judging.rubric_file import Place, RubricText
from plait.scorers.judging.rubrics import RUBRIC, WORDING
from plait.scorers.parts import ANY
from plait.scorers.weighted import YES_NO, Scale, WeightedPart, common_scale

Shown = Literal["question", "question-images", "answer-text", "answer-images", "reference"]
"""A part of a query, or of an answer to it, that a judge can be shown."""
SHOWN: tuple[Shown, ...] = get_args(Shown)
Reply = Literal["json", "schema", "text"]
QUERY_CRITERIA = "query criteria"
"""The part of a score that is the share met of a query's criteria without a name."""
_COLUMN = "criteria"
"""Metadata of a query: its criteria as a JSON list, where they are no text."""
_UNNAMED = "requirement"
_ABOUT = {"text": "About the text: ", "image": "About the images: "}
"""Before a question that is about a part of the answer, which is shown whole."""
_QUESTIONS = ("question", "criterion", "text")
"""Keys of an object under which a query's criterion stands."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _brief(value: Any) -> Any:
    if value == [] or value == ():
        raise ValueError(f"nothing would be shown; name some of {', '.join(SHOWN)}")
    return value


class Criterion(WeightedPart):
    """One question to the judge."""

    name: str = Field(min_length=1, max_length=100)
    question: str = Field(min_length=1)
    show: tuple[Shown, ...] | None = None
    """What the judge is shown; None for what the rubric says. Criteria that are shown the
    same are asked about together."""

    checked = field_validator("show", mode="before")(_brief)

    @field_validator("name")
    @classmethod
    def _readable(cls, name: str) -> str:
        name = name.strip()
        if not plain_key(name) or name == ANY or "\n" in name:
            raise ValueError(f"{name!r} is no name: give it a letter or a digit")
        return name

    @property
    def form(self) -> str:
        """What may be replied."""
        low, high = self.ends
        return "yes or no" if self.is_yes_no else f"a number from {low:g} to {high:g}"

    def value_of(self, said: Any) -> float | None:
        """Return what a reply says, as a number on the scale; None for all else."""
        low, high = self.ends
        if self.is_yes_no:
            met = as_bool(said)
            return None if met is None else float(met)
        number = as_number(said, int(high))
        return number if number is not None and low <= number <= high else None

    def in_reply(self, value: float) -> str | float:
        """Return a value as the judge is to write it."""
        if self.is_yes_no:
            return "yes" if value else "no"
        return int(value) if value == int(value) else value


class QueryCriteria(_Table):
    """What is asked about the criteria that a query itself has."""

    scale: Scale = YES_NO
    """Of those that say none."""
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Of each that says none."""
    show: tuple[Shown, ...] | None = None

    checked = field_validator("show", mode="before")(_brief)


class Picture(_Table):
    """A picture of an example."""

    image: str
    """Path from the rubric's folder."""


Segments = str | tuple[str | Picture, ...]


class Example(_Table):
    """A judgement that the judge is shown before it is asked."""

    question: Segments
    answer: Segments
    reference: Segments | None = None
    scores: Mapping[str, Any]
    """By the name of every criterion."""
    reasons: Mapping[str, str] = Field(default_factory=dict)


class Judged(_Table):
    """What a rubric says of all queries, and may say of those of one category."""

    task: str | None = None
    """What is judged, in a sentence or more, at the head of the prompt."""
    show: tuple[Shown, ...] | None = None
    criteria: tuple[Criterion, ...] | None = None
    examples: tuple[Example, ...] | None = None
    """Go with the criteria: a category with its own criteria has its own examples."""

    checked = field_validator("show", mode="before")(_brief)


class UserRubric(Judged):
    """All keys of a rubric's file."""

    name: str = ""
    """By default that of the file."""
    scale: Scale | None = None
    """Of criteria that say none."""
    score: Scale | None = None
    """Scale of the score, on which each criterion counts; by default that of the criteria
    where it is one of numbers, else 0-100."""
    reply: Reply = "json"
    """How the judge replies: one JSON object; the same, with its schema in the request
    where the judge is an endpoint; or a line of text for each criterion."""
    together: bool = True
    """Whether criteria that are shown the same are asked about in one request."""
    query_criteria: QueryCriteria | None = None
    """Ask about the criteria of each query too."""
    categories: Mapping[str, Judged] = Field(default_factory=dict)
    """What is judged otherwise in a category."""

    @field_validator("score")
    @classmethod
    def _numbers(cls, scale: str | None) -> str | None:
        if scale == YES_NO:
            raise ValueError("a score is a mean; give a scale of numbers, such as 0-1")
        return scale


DEFAULT_SHOWN: tuple[Shown, ...] = tuple(part for part in SHOWN if part != "reference")


@dataclass(frozen=True)
class ShownExample:
    """An example with its pictures read."""

    question: Content
    answer: Document
    reference: Document | None
    scores: Mapping[str, float]
    reasons: Mapping[str, str]


@dataclass(frozen=True)
class CategoryRubric:
    """What the judge is asked about the queries of one category."""

    task: str
    show: tuple[Shown, ...]
    criteria: tuple[Criterion, ...]
    examples: tuple[ShownExample, ...]

    def parts_to_show(self, criterion: Criterion) -> tuple[Shown, ...]:
        """Return what is shown for a criterion, in the order of a prompt."""
        chosen = criterion.show or self.show
        return tuple(part for part in SHOWN if part in chosen)


@dataclass(frozen=True)
class ReadRubric:
    """A rubric of a user's own, read and checked."""

    name: str
    digest: str
    """Of what the file says and shows."""
    reply: Reply
    together: bool
    score: str
    query_criteria: QueryCriteria | None
    usual: CategoryRubric
    categories: Mapping[str, CategoryRubric]

    @cached_property
    def criteria(self) -> tuple[Criterion, ...]:
        """All criteria of the file, each name once."""
        by_name: dict[str, Criterion] = {}
        for rubric in (self.usual, *self.categories.values()):
            by_name |= {criterion.name: criterion for criterion in rubric.criteria}
        return tuple(by_name.values())

    def of(self, query: Query) -> CategoryRubric | None:
        """Return what is asked about a query; None where nothing is."""
        names = (query.category, query.metadata.get(RUBRIC, ""))
        own = [self.categories[name] for name in names if name in self.categories]
        one = own[0] if own else self.usual
        return one if one.criteria or self.query_criteria else None


def criteria_of_query(query: Query, usual: QueryCriteria) -> tuple[Criterion, ...]:
    """Return the criteria that a query itself has; ValueError for one that is none.

    They are those in its column of criteria: a text, or a list of texts and of objects with
    a `question` (or `criterion`, or `text`) and perhaps `name`, `scale`, `weight`, `show`,
    `direction` and `about`, which is `text` or `image`; and UEval's about these.
    """
    defaults = usual.model_dump()
    criteria = []
    for number, value in enumerate(read_criteria(query), 1):
        criteria.append(_query_criterion(value, number, defaults))
    return tuple(criteria)


def read_criteria(query: Query) -> list[Any]:
    """Return what a query states as its criteria, valid or not."""
    stated = [*_as_list(query.criteria), *_as_list(query.metadata.get(_COLUMN))]
    for about, key in ABOUTS.items():
        for text in _as_list(query.metadata.get(key)):
            stated.append({"criterion": text, "about": about})
    return stated


def _as_list(text: str | None) -> list[Any]:
    """Return the values of a JSON list; of any other text, a list of that text."""
    if not text or not text.strip():
        return []
    if text.lstrip().startswith("["):
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            return [text]
        return values if isinstance(values, list) else [text]
    return [text]


def _query_criterion(value: Any, number: int, defaults: Mapping[str, Any]) -> Criterion:
    table = {"question": value} if isinstance(value, str) else value
    if not isinstance(table, Mapping):
        raise ValueError(f"criterion {number} is {value!r}; it must be a text or an object")
    own = {}
    for key, said in table.items():
        if key not in _QUESTIONS and said is not None:
            own[key] = said
    questions = [table[key] for key in _QUESTIONS if table.get(key)]
    about = _ABOUT.get(str(own.pop("about", "")), "")
    # What is no text is left to the model, whose error names the rule.
    own["question"] = questions[0] if questions else None
    if questions and isinstance(questions[0], str):
        own["question"] = f"{about}{questions[0]}"
    own.setdefault("name", f"{_UNNAMED} {number}")
    try:
        return Criterion.model_validate({**defaults, **own})
    except ValidationError as error:
        told = explanation(Criterion, error.errors()[0], "")
        raise ValueError(f"criterion {number}: {told}") from None


def is_unnamed(criterion: Criterion) -> bool:
    """Return whether a query's criterion has no name of its own."""
    return re.fullmatch(rf"{_UNNAMED} \d+", criterion.name) is not None


# -------------------------------------------------------------------------------- reading


def read_user_rubric(text: RubricText) -> ReadRubric:
    """Return the rubric that a file holds; UsageError with a line for each problem."""
    try:
        rubric = UserRubric.model_validate(_with_scales(text.content))
    except ValidationError as error:
        told = []
        for one in error.errors():
            told.append(text.locate(one["loc"], _problem(UserRubric, text, one)))
        # One place may break several rules in the same words.
        raise UsageError("\n".join(dict.fromkeys(told))) from None
    if problems := [text.locate(place, told) for place, told in _problems(rubric)]:
        raise UsageError("\n".join(problems))
    # The file's own criteria, then what categories say otherwise.
    usual = _category(text, rubric, None, ())
    parts = [*usual.criteria]
    categories = {}
    for name, category in rubric.categories.items():
        categories[name] = _category(text, rubric, category, ("categories", name))
        parts += categories[name].criteria
    if (own := rubric.query_criteria) is not None:
        parts.append(Criterion(name=QUERY_CRITERIA, question="-", scale=own.scale))
    return ReadRubric(
        name=rubric.name or text.path.stem,
        digest=text.digest,
        reply=rubric.reply,
        together=rubric.together,
        score=rubric.score or common_scale(parts),
        query_criteria=rubric.query_criteria,
        usual=usual,
        categories=categories,
    )


def _with_scales(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file's content, its scale given to all criteria without one."""
    values = _scale(content, content)
    if isinstance(values.get("categories"), Mapping):
        categories = dict(values["categories"])
        for name, own in categories.items():
            if isinstance(own, Mapping):
                categories[name] = _scale(own, content)
        values["categories"] = categories
    return values


def _scale(table: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with the file's scale in each of its criteria without one."""
    criteria = table.get("criteria")
    if not isinstance(criteria, list) or "scale" not in whole:
        return dict(table)
    scaled = []
    for criterion in criteria:
        # What is no table is refused later, with its line.
        if isinstance(criterion, Mapping):
            criterion = {"scale": whole["scale"], **criterion}
        scaled.append(criterion)
    return {**table, "criteria": scaled}


def _problem(model: type[BaseModel], text: RubricText, error: Any) -> str:
    """Return one of pydantic's errors in words."""
    place = error["loc"]
    if error["type"] == "missing" and place[-1] == "scale":
        named = _at(text.content, place[:-1])
        return (
            f"criterion {named.get('name', '?')!r} has no scale; give it one, such as "
            'scale = "1-5", or write one for all at the top of the file'
        )
    if error["type"] == "missing":
        return f"the key {place[-1]!r} is missing"
    return explanation(model, error, "")


def _at(content: Any, place: Place) -> Any:
    for step in place:
        content = content[step]
    return content


def _problems(rubric: UserRubric) -> Iterator[tuple[Place, str]]:
    """Yield what is wrong with a rubric all whose values are right by themselves."""
    tables: list[tuple[Place, Judged]] = [((), rubric)]
    tables += [(("categories", name), own) for name, own in rubric.categories.items()]
    if not rubric.query_criteria and not any(own.criteria for _, own in tables):
        yield (), "there are no criteria; a rubric has a table [[criteria]] for each"
    by_name: dict[str, Criterion] = {}
    for place, own in tables:
        yield from _wrong_names(rubric, place, own, by_name)
        yield from _wrong_examples(rubric, place, own)


def _wrong_names(
    rubric: UserRubric, place: Place, own: Judged, by_name: dict[str, Criterion]
) -> Iterator[tuple[Place, str]]:
    """Yield names that two criteria of one table have; `by_name` are those of all."""
    seen: dict[str, str] = {}
    for number, criterion in enumerate(own.criteria or ()):
        at = (*place, "criteria", number, "name")
        name = criterion.name
        if (key := plain_key(name)) in seen:
            told = "give one of them another (case and marks tell no names apart)"
            yield at, f"criterion {name!r} has the name of {seen[key]!r} before it; {told}"
        seen[key] = name
        first = by_name.setdefault(name, criterion)
        if (first.scale, first.direction) != (criterion.scale, criterion.direction):
            scales = f"scale {criterion.scale} here and {first.scale} before"
            yield at, f"criterion {name!r} has {scales}; give one of them another name"
        if rubric.query_criteria and name == QUERY_CRITERIA:
            yield at, f"{QUERY_CRITERIA!r} is the name of the queries' own criteria"


def _wrong_examples(
    rubric: UserRubric, place: Place, own: Judged
) -> Iterator[tuple[Place, str]]:
    criteria = {criterion.name: criterion for criterion in own.criteria or ()}
    if own.examples and rubric.query_criteria:
        told = "examples are for criteria that are the same for every query"
        yield (*place, "examples"), f"{told}; leave them or [query_criteria] out"
        return
    for number, example in enumerate(own.examples or ()):
        at: Place = (*place, "examples", number, "scores")
        if example.scores.keys() != criteria.keys():
            names = ", ".join(map(repr, criteria)) or "there are none"
            yield at, f"scores must name each criterion once: {names}"
            continue
        for name, said in example.scores.items():
            if criteria[name].value_of(said) is None:
                told = f"{said!r} is not {criteria[name].form}"
                yield (*at, name), f"score of criterion {name!r}: {told}"


def _category(
    text: RubricText, rubric: UserRubric, own: Judged | None, place: Place
) -> CategoryRubric:
    """Return what is asked about a category, or with None about all others."""
    said = own or rubric
    holder = said
    if said.criteria is None:
        holder = rubric
        place = ()
    criteria = {criterion.name: criterion for criterion in holder.criteria or ()}
    examples = []
    for number, example in enumerate(holder.examples or ()):
        try:
            examples.append(_example(text, example, criteria))
        except PlaitError as error:
            where = (*place, "examples", number)
            raise UsageError(text.locate(where, str(error))) from None
    return CategoryRubric(
        task=(said.task or rubric.task or WORDING["users"]["task"]).strip(),
        show=said.show or rubric.show or DEFAULT_SHOWN,
        criteria=tuple(criteria.values()),
        examples=tuple(examples),
    )


def _example(
    text: RubricText, example: Example, criteria: Mapping[str, Criterion]
) -> ShownExample:
    scores: dict[str, float] = {}
    for name, criterion in criteria.items():
        value = criterion.value_of(example.scores[name])
        assert value is not None, "refused before"
        scores[name] = value
    given = example.reference
    return ShownExample(
        question=_content(text, example.question),
        answer=Document(_content(text, example.answer)),
        reference=None if given is None else Document(_content(text, given)),
        scores=scores,
        reasons=example.reasons,
    )


def _content(text: RubricText, segments: Segments) -> Content:
    listed: Sequence[str | Picture] = [segments] if isinstance(segments, str) else segments
    content: list[Text | Image] = []
    for part in listed:
        content.append(Text(part) if isinstance(part, str) else text.image(part.image))
    return tuple(content)
