"""A judge of edited images in two replies, as GEdit-Bench's program asks it (VIEScore).

Each reply holds scores from 0 to 10, the lowest of which counts: of semantic consistency
(the edit was made, and nothing else) and of perceptual quality. The value is the square
root of their product (Ku et al., ACL 2024; Liu et al., arXiv:2504.17761).

`official` asks, reads and counts as test_gedit_score.py and calculate_statistics.py of
stepfun-ai/Step1X-Edit@570eba6 with its backbone gpt4o, by the texts of the user's copy. It
differs in this: where that program asks again, without end, or draws a score at random, the
answer is unscored.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from plait.generators.base import (
    Failure,
    Fault,
    Job,
    Kind,
    Outcome,
    Placement,
    Result,
    StageSpec,
    Unread,
    Unscored,
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
from plait.generators.released import read_published
from plait.generators.replies import as_number, bare_list, statements_of
from plait.scorers.base import UNBOUNDED, NoScore, ReleasedSummary
from plait.scorers.editing import Edit, edit_of, without_original
from plait.scorers.judging.judge import Question, QuestionsJudge, Readings
from plait.scorers.judging.replies import Unreadable, no_object, object_schema, repr_of
from plait.scorers.judging.rubrics import RELEASED, WORDING
from plait.scorers.judging.sources import Mode
from plait.scorers.parts import PartScale, PartTable

PREFIX = "gedit:"
CONSISTENCY = "semantic consistency"
QUALITY = "perceptual quality"
TOP = 10
"""Highest score."""
_ASKED = 2
"""Scores that each reply is to hold."""
_DIGESTS = RELEASED["gedit"]
_FORM: str = WORDING["forms"]["gedit"]
_INSTRUCTION = "<instruction>"
"""The mark in the released text in the place of the instruction."""


class GeditWording(NamedTuple):
    """The two questions."""

    consistency: str
    """Of the original, the edit and the instruction."""
    quality: str
    """Of the edit alone."""


OWN = GeditWording(**WORDING["gedit"])
"""Our wording."""

SHOWN = StageSpec(
    name="gedit-shown",
    kind=Kind.TRANSFORM,
    keyed_as=Kind.RENDER,
    target="plait.scorers.judging.gedit:Shown",
    stage="gedit-shown",
    version=2,
    superseded={1: "which resized edits as if originals were not turned by their EXIF"},
    placement=Placement(batch_size=32),
)
"""Shows images as the released program does."""


class Marks(NamedTuple):
    """The scores in one reply."""

    scores: tuple[float, ...]
    lowest: float


@dataclass(frozen=True, kw_only=True)
class GeditJudge(QuestionsJudge[Marks]):
    """Asks about consistency and quality of an edit; the root of their product, 0 to 10."""

    own = OWN
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("criteria/*", "points", f"0-{TOP}", "criterion"),
        PartScale("scores/*/*", "points", f"0-{TOP}"),
    )
    images_only: bool = True
    wording: GeditWording = OWN

    @classmethod
    def wording_in(cls, file: AnyPath) -> GeditWording:
        """Return the texts of the user's vie_prompts.py; UsageError for others."""
        texts = read_published(file, _DIGESTS)
        consistency = (texts["context"], texts["edit"], texts["consistency"])
        quality = (texts["context"], texts["quality"])
        return GeditWording("\n".join(consistency), "\n".join(quality))

    @classmethod
    def scale_of(cls, name: str, mode: Mode) -> str:
        """Return 0-10; the released program counts scores beyond it."""
        return UNBOUNDED if mode == "official" else f"0-{TOP}"

    @classmethod
    def schema_of(cls, name: str) -> Mapping[str, Any]:
        """Return that of a list of scores and a sentence."""
        scores = {"type": "array", "items": {"type": "number"}}
        return object_schema(score=scores, reasoning={"type": "string"})

    @property
    def judges(self) -> str:
        """What it judges."""
        return "consistency and quality of an edit"

    @property
    def form(self) -> str:
        """The object that holds the scores."""
        return _FORM

    @property
    def criteria_are_shares(self) -> bool:
        """They are from 0 to 10."""
        return False

    @property
    def released_summary(self) -> ReleasedSummary:
        """GEdit's in official mode."""
        return "gedit" if self.official else ""

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """The chat stage, in official mode after the one that shows images."""
        return (SHOWN, self.stage) if self.official else (self.stage,)

    def jobs(self, query: Query, images: int = 1) -> int:
        """Return two: one question each."""
        return 2

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs one image in the query."""
        return without_original(query)

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Ask, read, and ask again where a reply cannot be read; then Unread."""
        edit = edit_of(query, document)
        if isinstance(edit, Unscored):
            return edit
        if self.official:
            shown = yield from self._show_as_released(query, edit)
            if not isinstance(shown, Edit):
                return shown
            edit = shown
        names = (CONSISTENCY, QUALITY)
        questions = []
        for name, content in zip(names, self._contents(edit), strict=True):
            questions.append(Question(name, (Turn("user", content),)))
        replies = yield from self.readings(query, questions)
        if not isinstance(replies, Readings):
            return replies
        lowest = {}
        scores = {}
        for i, name in enumerate(names):
            if i not in replies.values:
                return Unread(f"{name}: {replies.reason_of(i)}")
            lowest[name] = replies.values[i].lowest
            scores[name] = [*replies.values[i].scores]
        try:
            value = math.sqrt(lowest[CONSISTENCY] * lowest[QUALITY])
        except (ValueError, OverflowError):
            # Official scores may be below 0, and beyond what floats hold.
            return Unread(f"there is no root of the product of {lowest}")
        return Result(Score(value, {"criteria": lowest, "scores": scores}))

    def read_reply(self, reply: str) -> Marks | Unreadable:
        """Return the scores in a reply."""
        return official_marks(reply) if self.official else marks(reply)

    # ---------------------------------------------------------------------- the requests

    def _contents(self, edit: Edit) -> tuple[Content, Content]:
        """Return what is asked about consistency, and about quality."""
        if self.wording is self.own:
            fields: dict[str, Content] = {
                "instruction": (Text(edit.instruction),),
                "original": (edit.original,),
                "edited": (edit.edited,),
            }
            consistency = fill(self.wording.consistency, fields)
            return consistency, fill(self.wording.quality, fields)
        asked = self.wording.consistency.replace(_INSTRUCTION, edit.instruction)
        consistency = (Text(asked), edit.original, edit.edited)
        return consistency, (Text(self.wording.quality), edit.edited)

    def _show_as_released(
        self, query: Query, edit: Edit
    ) -> Generator[list[Job], list[Outcome[Any]], Edit | Outcome[Any]]:
        """Return the edit as the released program shows it."""
        original_alone = TransformRequest(edit.original)
        edit_in_its_size = TransformRequest(edit.edited, (edit.original,))
        requests = (original_alone, edit_in_its_size)
        jobs = [Job(SHOWN, request, query.id) for request in requests]
        images: list[Image] = []
        for outcome in (yield jobs):
            if not isinstance(outcome, Result):
                return outcome
            images.append(outcome.value)
        original, edited = images
        return Edit(original, edited, edit.instruction)


class Shown:
    """TransformRequest of an image -> that image as JPEG.

    With another image, it has the size of that, whatever that does to its proportions
    (`process_single_item` and `encode_pil_image`). That other is an original, which
    `datasets` has turned as its EXIF says before the program saves and opens it.
    """

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[TransformRequest]) -> list[Outcome[Image]]:
        """Return one outcome for each image."""
        return [self._show(request) for request in inputs]

    def _show(self, request: TransformRequest) -> Outcome[Image]:
        from PIL import Image as Pillow
        from PIL import ImageOps

        file = io.BytesIO()
        try:
            shown = Pillow.open(io.BytesIO(request.image.read()))
            for other in request.others:
                original = ImageOps.exif_transpose(Pillow.open(io.BytesIO(other.read())))
                shown = shown.convert("RGB").resize(original.size)  # type: ignore[assignment]
            ImageOps.exif_transpose(shown).convert("RGB").save(file, "JPEG")
        except Exception as error:
            # As the released program does, whatever the error; it tries without end.
            return Failure(f"an image cannot be shown: {error}", Fault.BAD_INPUT)
        return Result(Image.of(file.getvalue()))


# ------------------------------------------------------------------------------ replies


def marks(reply: str) -> Marks | Unreadable:
    """Return the two scores from 0 to 10 that a reply states, in a list under `score`.

    A reply may also be the list alone.
    """
    stated = statements_of(reply, "score", "scores") or [bare_list(reply)]
    readings = {_pair(value) for value in stated}
    scores = next(iter(readings))
    if len(readings) == 1 and scores is not None:
        return Marks(scores, min(scores))
    if stated == [None]:
        return Unreadable(no_object(reply))
    several = " and as ".join(map(repr_of, stated))
    return Unreadable(f"'score' is no list of two numbers from 0 to {TOP}: {several}")


def _pair(value: Any) -> tuple[float, ...] | None:
    """Return the two scores of a list; None where it is no such list."""
    if not isinstance(value, list) or len(value) != _ASKED:
        return None
    scores = []
    for item in value:
        number = as_number(item, TOP)
        if number is None or not 0 <= number <= TOP:
            return None
        scores.append(number)
    return tuple(scores)


_DELIMITER = "||V^=^V||"
_TWO_SCORES = re.compile(r"\[\d+, ?\d+\]$")
# Of whole words alone: beginning at each letter of a long one takes quadratic time.
_KEY = re.compile(r"\b(\w++):")
_MEMBER = re.compile(r'(".*?"):(.*?)(,|})')
_NUMBER = re.compile(r"-?\d+(\.\d+)?$")
_LITERAL = re.compile(r"(true|false|null)$", re.IGNORECASE)
_LIMITED = "rate_limit_exceeded"
_ASKS_AGAIN = "the released program asks again, and then makes a score up"


def official_marks(reply: str) -> Marks | Unreadable:
    """Read as `mllm_output_to_dict` and `evaluate` do, at the first attempt.

    Any number of scores counts, on any scale.
    """
    try:
        found = _official_scores(reply)
        if found is None:
            return Unreadable(_ASKS_AGAIN)
        lowest = min(found)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return Unreadable("the released program ends in an error and asks without end")
    if isinstance(lowest, bool) or not isinstance(lowest, int | float):
        return Unreadable(f"the lowest score is no number: {repr_of(lowest)}")
    if not _is_plain(lowest):
        return Unreadable("the released means are no numbers with such a score")
    scores = []
    for number in found:
        if isinstance(number, int | float) and _is_plain(number):
            scores.append(float(number))
    return Marks(tuple(scores), lowest)


def _is_plain(number: float) -> bool:
    """Return whether a number is finite; JSON has integers that no float can hold."""
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


def _official_scores(reply: str) -> Any:
    """Return what the program takes for a list of scores; None where it asks again."""
    if reply == _LIMITED:
        raise ValueError(reply)
    if reply.count(_DELIMITER) == 2:
        start = reply.find(_DELIMITER) + len(_DELIMITER)
        end = reply.rfind(_DELIMITER)
    else:
        start = reply.find("{")
        end = reply.rfind("}") + 1
        if start == -1 or end == 0:
            return _without_braces(reply)
    if start == end:
        return None
    text = reply[start:end].strip().replace("\n", "")
    try:
        content = json.loads(text)
        scores = content["score"]
        return scores if isinstance(scores, list) else [scores]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        pass
    try:
        mended = json.loads(_mend(text))
    except (ValueError, RecursionError):
        return None
    if mended is False:
        return None
    return mended["score"]


def _without_braces(reply: str) -> list[Any] | None:
    """Return two scores in brackets, or the one number that a reply is; None for others."""
    start = reply.find("[")
    end = reply.rfind("]") + 1
    if _TWO_SCORES.match(reply[start:end]):
        return list(json.loads(reply[start:end]))
    try:
        number = int(reply)
    except ValueError:
        return None
    return [number] if 0 <= number <= TOP else None


def _mend(text: str) -> str:
    """Return a text with quotation marks around names and values, numbers in lists."""

    def member(match: re.Match[str]) -> str:
        name, value, end = match.groups()
        value = value.strip()
        if _NUMBER.match(value):
            value = f"[{value}]"
        elif not _LITERAL.match(value):
            value = f'"{value}"'
        return f"{name}: {value}{end}"

    return _MEMBER.sub(member, _KEY.sub(r'"\1":', text))
