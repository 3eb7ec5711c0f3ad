"""A judge that gives an answer seven scores in one reply, as OpenING's GPT score does.

`official` asks and reads as GPT_score_A.py (`--mode output_dir`) and
summarize_GPT_scores.py of LanceZPF/OpenING@56b663b, by the text of the user's copy. It
differs in four ways: replies are text, where that program forces a call of a function; one
that is no JSON, which it asks for again without end, is unscored; so is one at which its
summary ends in an error; and systems are never pooled. Nothing is sent to its address.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

from plait.generators.base import (
    Failure,
    Job,
    Kind,
    Outcome,
    Placement,
    Result,
    Skip,
    StageSpec,
    Unread,
    Walk,
)
from plait.generators.buckets import AnyPath
from plait.generators.content import fill
from plait.generators.document import (
    Content,
    Document,
    Image,
    Query,
    Score,
    Text,
    TransformRequest,
    Turn,
)
from plait.generators.errors import MissingInput, UsageError
from plait.generators.released import file_in
from plait.generators.replies import as_number, json_object, statements_of, under
from plait.scorers.base import UNBOUNDED, ReleasedSummary
from plait.scorers.judging.judge import Question, QuestionsJudge, Readings
from plait.scorers.judging.pages import Pages
from plait.scorers.judging.replies import Unreadable, no_object, object_schema
from plait.scorers.judging.rubrics import ASPECT_TOP, ASPECTS, RELEASED, WORDING
from plait.scorers.judging.sources import Mode
from plait.scorers.parts import PartScale, PartTable

PREFIX = "aspects:"
_SCORED = {"Score": f"0 to {ASPECT_TOP}", "Justification": "..."}
_FORM = json.dumps({"scores": dict.fromkeys(ASPECTS, _SCORED)})
_LISTED = "\n".join(f"- {name}: {text}" for name, text in ASPECTS.items())
OWN: str = WORDING["aspects"]["task"].replace("{listed}", _LISTED).replace("{form}", _FORM)
"""Our wording."""
FILE = "prompts/detailed_score_system.txt"
_DIGEST = RELEASED["opening"]["system"]
_ENDING = "\nPlease only output the json result: "
"""What the released program adds to every question."""

SQUEEZED = StageSpec(
    name="squeezed",
    kind=Kind.TRANSFORM,
    keyed_as=Kind.RENDER,
    target="plait.scorers.judging.aspects:Squeezed",
    stage="opening-squeezed",
    settings={"side": 512},
    placement=Placement(batch_size=32),
)
"""Shows images as `encode_image` of the released program does."""

Scores = dict[str, float]
"""Scores from 0 to 10 by aspect."""


@dataclass(frozen=True, kw_only=True)
class AspectsJudge(QuestionsJudge[Scores]):
    """Asks for all aspects at once; the mean of their scores, in percent."""

    own = OWN
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("criteria/*", "share", "0-1", "criterion")
    )
    wording: str = OWN

    @classmethod
    def wording_in(cls, file: AnyPath) -> str:
        """Return the text of the user's copy of `FILE`; UsageError unless published."""
        file = file_in(file, FILE)
        try:
            data = file.read_bytes().replace(b"\r\n", b"\n")
        except OSError as error:
            reason = error.strerror or error
            raise MissingInput(f"official prompt {str(file)!r}: {reason}") from None
        if hashlib.sha256(data).hexdigest() != _DIGEST:
            raise UsageError(
                f"{file} is not the published prompt (sha256 {_DIGEST[:12]}...), {FILE}"
            )
        return data.decode()

    @classmethod
    def scale_of(cls, name: str, mode: Mode) -> str:
        """Return 0-100; the program counts scores beyond the scale that it asks for."""
        return UNBOUNDED if mode == "official" else "0-100"

    @classmethod
    def schema_of(cls, name: str) -> Mapping[str, Any]:
        """Return that of the seven scores."""
        score = {"type": "integer"}
        reason = {"type": "string"}
        aspect = object_schema(Score=score, Justification=reason)
        return object_schema(scores=object_schema(**dict.fromkeys(ASPECTS, aspect)))

    @property
    def judges(self) -> str:
        """All aspects."""
        return "seven aspects"

    @property
    def form(self) -> str:
        """The object that holds the scores."""
        return _FORM

    @property
    def as_released(self) -> bool:
        """In official mode."""
        return self.official

    @property
    def released_summary(self) -> ReleasedSummary:
        """OpenING's in official mode."""
        return "opening" if self.official else ""

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """The chat stage, in official mode after the one that squeezes images."""
        return (SQUEEZED, self.stage) if self.official else (self.stage,)

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Ask, read, and ask again where the reply cannot be read; then Unread."""
        if self.official:
            content = yield from self._as_released(query, document)
            if isinstance(content, Failure):
                return content
        else:
            pages = Pages(self.max_images)
            fields = {
                "question": pages.write(query.question),
                "answer": pages.write(document.segments),
            }
            content = fill(f"INPUT:\n{{question}}\nOUTPUT:\n{{answer}}{_ENDING}", fields)
        turns = Turn("system", (Text(self.wording),)), Turn("user", content)
        replies = yield from self.readings(query, [Question("", turns)])
        if not isinstance(replies, Readings):
            return replies
        if not (scores := replies.values.get(0)):
            return Unread(f"the reply cannot be read: {replies.reasons[0]}")
        mean = sum(scores.values()) / len(scores)
        shares = {name: score / ASPECT_TOP for name, score in scores.items()}
        return Result(Score(100 * mean / ASPECT_TOP, {"criteria": shares}))

    def read_reply(self, reply: str) -> Scores | Unreadable:
        """Return the scores in a reply."""
        return official_aspects(reply) if self.official else aspects(reply)

    def _as_released(
        self, query: Query, document: Document
    ) -> Generator[list[Job], list[Outcome[Any]], Content | Failure]:
        """`main_evaluate_output_directory`, which leaves out what is no JPEG."""
        # Each once, however often it is shown.
        images = dict.fromkeys((*Document(query.question).images, *document.images))
        jobs = [Job(SQUEEZED, TransformRequest(image), query.id) for image in images]
        outcomes = (yield jobs) if jobs else []
        squeezed: dict[Image, Image] = {}
        for image, outcome in zip(images, outcomes, strict=True):
            if isinstance(outcome, Failure):
                return outcome
            if isinstance(outcome, Result):
                squeezed[image] = outcome.value
        question = _replace_images(query.question, squeezed)
        answer = _replace_images(document.segments, squeezed)
        # Images are numbered from 0 through question and answer.
        numbers = count()
        return (
            *section(question, numbers, "INPUT: ", "INPUT: ", "INPUT: "),
            *section(answer, numbers, "\nOUTPUT: ", "\nOUTPUT: ", "\nOUTPUT: None"),
            Text(_ENDING),
        )


def _replace_images(content: Content, images: Mapping[Image, Image]) -> Content:
    """Return a content with other images; without those that have none."""
    segments: list[Text | Image] = []
    for segment in content:
        if isinstance(segment, Text):
            segments.append(segment)
        elif segment in images:
            segments.append(images[segment])
    return tuple(segments)


def section(
    content: Content, numbers: Iterator[int], head: str, blank: str, none: str
) -> Content:
    """Return texts, each with the tag of the image that follows it, and the images.

    As `parse_and_load_json` and `get_gpt4answer` of LanceZPF/OpenING@56b663b: `head` goes
    before the first text, `blank` stands for it where it is empty, and `none` for content
    without any segment. An image that follows none is one after an empty text.
    """
    items: list[tuple[str, Image | None]] = []
    for segment in content:
        if isinstance(segment, Text):
            items.append((segment.text, None))
            continue
        text = items.pop()[0] if items and items[-1][1] is None else ""
        number = next(numbers)
        items.append((f"{text} <IMG_{number}></IMG_{number}>", segment))
    if not items:
        return (Text(none),)
    text, image = items[0]
    items[0] = (f"{head}{text}" if text else blank, image)
    segments: list[Text | Image] = []
    for text, image in items:
        segments.append(Text(text))
        if image is not None:
            segments.append(image)
    return tuple(segments)


class Squeezed:
    """TransformRequest of an image -> that image as JPEG of side x side pixels.

    One that cannot be saved as JPEG, such as any with alpha or a palette, is skipped.
    """

    def __init__(self, side: int, **_: Any) -> None:
        self.side = side

    def __call__(self, inputs: Sequence[TransformRequest]) -> list[Outcome[Image]]:
        """Return one outcome for each image."""
        return [self._squeeze(request) for request in inputs]

    def _squeeze(self, request: TransformRequest) -> Outcome[Image]:
        from PIL import Image as Pillow

        file = io.BytesIO()
        try:
            with Pillow.open(io.BytesIO(request.image.read())) as pil_image:
                pil_image.resize((self.side, self.side)).save(file, "JPEG")
        except Exception as error:
            # As the released program does, whatever the error.
            return Skip(f"the released program leaves it out: {error}")
        return Result(Image.of(file.getvalue()))


# ------------------------------------------------------------------------------ replies


def aspects(reply: str) -> Scores | Unreadable:
    """Return the seven scores that a reply states."""
    scores: Scores = {}
    missing = []
    several = []
    for name in ASPECTS:
        readings = {_score(value) for value in statements_of(reply, name)}
        score = readings.pop() if len(readings) == 1 else None
        if score is not None:
            scores[name] = score
            continue
        missing.append(name)
        if len(readings) > 1:
            several.append(name)
    if not missing:
        return scores
    detail = f"several scores are stated for {', '.join(several)}" if several else ""
    # As in `read_key`: the reason is that from when nothing but JSON was read.
    plain = json_object(reply)
    if plain is None:
        return Unreadable(no_object(reply), detail)
    names = ", ".join(_missing_in_json(plain) or missing)
    return Unreadable(f"there is no score from 0 to {ASPECT_TOP} for {names}", detail)


def _score(value: Any) -> float | None:
    """Return the one score of an aspect: a number, or that under `Score`."""
    values = under(value, "Score") if isinstance(value, dict) else [value]
    numbers = {as_number(one, ASPECT_TOP) for one in values}
    number = numbers.pop() if len(numbers) == 1 else None
    return number if number is not None and 0 <= number <= ASPECT_TOP else None


def _missing_in_json(content: Mapping[str, Any]) -> list[str]:
    """Return the aspects without a plain number under their own names."""
    told = content.get("scores", content)
    missing = []
    for name in ASPECTS:
        value = told.get(name) if isinstance(told, dict) else None
        score = value.get("Score") if isinstance(value, dict) else value
        if not _is_plain_score(score):
            missing.append(name)
    return missing


def _is_plain_score(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= ASPECT_TOP


def official_aspects(reply: str) -> Scores | Unreadable:
    """Read as `get_gpt4answer` and `process_gpt_scores` do.

    All numbers under a `Score` count, whatever their name and size, and true as 1. What is
    nested in `scores`, as the prompt asks, is dropped.
    """
    try:
        content = json.loads(reply)
    except (ValueError, RecursionError):
        content = None
    if not content:
        return Unreadable("the released program asks for the JSON again")
    if not isinstance(content, dict):
        return Unreadable("the released summary ends in an error")
    if "scores" in content:
        nested = content["scores"]
        if nested is not None and not isinstance(nested, dict):
            return Unreadable("the released summary ends in an error")
        if nested is None or nested.get("Score") is None:
            return Unreadable("the released summary drops scores under 'scores'")
    stated = {}
    for name, about in content.items():
        if isinstance(about, dict) and "Score" in about:
            stated[name] = about["Score"]
    if None in stated.values():
        return Unreadable("the released summary drops replies with a null")
    scores = {}
    for name, value in stated.items():
        if isinstance(value, int | float):
            try:
                scores[_text(name)] = float(value)
            except OverflowError:
                return Unreadable("the released summary ends in an error")
    return scores or Unreadable("the released summary finds no number under a 'Score'")


def _text(name: str) -> str:
    """Return a name that can be written; JSON may hold halves of surrogate pairs."""
    return name.encode("utf-8", "replace").decode()
