"""Text, images, drafts, documents and queries: the values that flow between stages.

Standard library only, so that importing it costs nothing. All values are frozen. Bytes
are a `Blob`, known by its digest, whose data may still have to be read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import cache, partial
from itertools import accumulate, chain, pairwise
from typing import Any, Literal, Self, TypeVar

from plait.generators.thoughts import Reply, holds_thought, separate

Role = Literal["system", "user", "assistant"]
C = TypeVar("C")


def _pickle_as_call(kind: type[C]) -> type[C]:
    """Have values of a frozen data class pickled as the call that makes them.

    A message to a worker holds thousands of values, and what such a class does by itself
    looks its fields up anew for each: that takes three times as long.
    """
    positional: list[str] = []
    by_keyword: list[str] = []
    for declared in dataclasses.fields(kind):  # type: ignore[arg-type]
        names = by_keyword if declared.kw_only else positional
        names.append(declared.name)

    def reduce(self: C) -> tuple[Any, ...]:
        values = tuple([getattr(self, name) for name in positional])
        named = {}
        for name in by_keyword:
            # Most values have none of these, which is their default.
            if (value := getattr(self, name)) is not None:
                named[name] = value
        return (partial(kind, **named) if named else kind), values

    kind.__reduce__ = reduce  # type: ignore[method-assign,assignment]
    return kind


@_pickle_as_call
@dataclass(frozen=True, slots=True)
class Text:
    """A run of text."""

    text: str


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes known by their SHA-256: in `data`, or still to be read from `place`."""

    digest: str
    data: bytes | None = field(default=None, repr=False, compare=False)
    place: str | None = field(default=None, compare=False)
    """A file path, or a cell of a stage's records (`plait.cluster.records.StoredCell`)."""
    reader: Callable[["Blob"], bytes] | None = field(
        default=None, repr=False, compare=False, kw_only=True
    )
    """Reads the bytes from `place` where they are asked for, in runs that were opened."""

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Return the value that holds `data`."""
        return cls(hashlib.sha256(data).hexdigest(), data)

    def read(self) -> bytes:
        """Return the bytes; ValueError when they have not been read yet.

        Those of a run that was opened are read from its files, which raises what
        `plait.cluster.store.read_blob` raises.
        """
        if self.data is None:
            if self.reader is not None:
                return self.reader(self)
            raise ValueError(f"bytes {self.digest[:12]} are still at {self.place}")
        return self.data


@_pickle_as_call
@dataclass(frozen=True, slots=True)
class Image(Blob):
    """An encoded image (PNG, JPEG, WebP, ...); `plait.generators.images` decodes it."""


@_pickle_as_call
@dataclass(frozen=True, slots=True)
class Payload(Blob):
    """Named tensors as safetensors bytes: VQ codes, hidden states, conditioning."""

    origin: str | None = field(default=None, compare=False)
    """Names the record it comes from, and its place there; None for one made by hand."""


Content = tuple[Text | Image, ...]
"""Ordered text and images, as a question, an answer or a conversation turn."""


def texts_in(segments: Iterable[Any]) -> Iterator[str]:
    """Yield the texts among segments of any kind, in order."""
    for segment in segments:
        if isinstance(segment, Text):
            yield segment.text


def images_in(segments: Iterable[Any]) -> tuple[Image, ...]:
    """Return the images among segments of any kind, in order."""
    return tuple([segment for segment in segments if isinstance(segment, Image)])


@_pickle_as_call
@dataclass(frozen=True, slots=True)
class ImageRequest:
    """An image that a draft asks for, by prompt or by payload."""

    prompt: str | None = None
    """What a text-to-image model is asked to draw."""
    payload: Payload | None = None
    """What a native model's image decoder draws from."""
    context: Content = ()
    """What the image is conditioned on besides the prompt (Emu2-Gen reads images)."""
    seed: int | None = None
    """Seed of the image's noise; None until the draft's requests have their seeds."""


@_pickle_as_call
@dataclass(frozen=True, slots=True)
class TransformRequest:
    """An image to be changed, and others that say how: whose size, within which mask."""

    image: Image
    others: tuple[Image, ...] = ()

    @property
    def images(self) -> tuple[Image, ...]:
        """The image to be changed, then the others."""
        return (self.image, *self.others)


@_pickle_as_call
@dataclass(frozen=True, slots=True)
class Draft:
    """An answer: text, requests for images, and images that are drawn already."""

    segments: tuple[Text | Image | ImageRequest, ...]

    @property
    def text(self) -> str:
        """All text, in order, without images and requests."""
        return "".join(texts_in(self.segments))

    @property
    def reply(self) -> Reply:
        """The text as a model's words, of which a thought is no part.

        Records of earlier versions, and those of other people's stages, may hold one.
        """
        return separate(self.text)

    @property
    def holds_thought(self) -> bool:
        """Whether the text begins with what its model thought."""
        return holds_thought(self.text)

    @property
    def requests(self) -> tuple[ImageRequest, ...]:
        """The images asked for, in order."""
        segments = self.segments
        return tuple([asked for asked in segments if isinstance(asked, ImageRequest)])

    @property
    def images(self) -> tuple[Image, ...]:
        """The images that came with the answer (from a server that draws), in order."""
        return images_in(self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """What an answer holds; of one that is still to be made, the most it may hold."""

    text: bool = True
    """Whether it holds text besides white space."""
    images: float = math.inf
    """How many images it holds; infinite where no upper bound is known."""


@_pickle_as_call
@dataclass(frozen=True, slots=True)
class Document:
    """An interleaved answer: text and images in order."""

    segments: Content = ()
    ends: tuple[int, ...] = ()
    """For a conversation of several turns: segments up to the end of each turn's answer."""
    history: Literal["given"] | None = field(default=None, kw_only=True)
    """What stood before the later turns of a conversation: the answers that the data give
    to the earlier ones, or None for the system's own."""

    @classmethod
    def of(cls, answers: Sequence[Content]) -> "Document":
        """Return the answers to the turns of a talk; one alone is a plain document."""
        segments = tuple(chain.from_iterable(answers))
        ends = tuple(accumulate(map(len, answers)))
        return cls(segments, ends if len(ends) > 1 else ())

    @property
    def answers(self) -> tuple["Document", ...]:
        """One document for each turn that was answered."""
        ends = self.ends or (len(self.segments),)
        answers = []
        for start, end in pairwise((0, *ends)):
            answers.append(Document(self.segments[start:end]))
        return tuple(answers)

    @property
    def text(self) -> str:
        """All text, one segment a line."""
        return "\n".join(texts_in(self.segments))

    @property
    def holds_thought(self) -> bool:
        """Whether the answer to any turn begins with what its model thought."""
        return any(holds_thought(answer.text) for answer in self.answers)

    @property
    def images(self) -> tuple[Image, ...]:
        """The images, in order."""
        return images_in(self.segments)

    @property
    def form(self) -> AnswerForm:
        """Whether it holds text, and how many images."""
        return AnswerForm(text=bool(self.text.strip()), images=len(self.images))


@_pickle_as_call
@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a conversation."""

    role: Role
    content: Content


def content_of_turns(turns: Iterable[Turn]) -> Iterator[Text | Image]:
    """Yield the texts and images of all turns, in order."""
    for turn in turns:
        yield from turn.content


@_pickle_as_call
@dataclass(frozen=True, slots=True)
class Request:
    """What a drafting stage answers: a conversation that ends with the user's turn."""

    turns: tuple[Turn, ...]
    seed: int | None = None
    """Seed of the record's own sampling; None for a stage that decodes greedily."""
    modality: Literal["text"] | None = None
    """What the answer may hold, for a stage that can be told; None for images too."""
    max_tokens: int | None = None
    """Longest answer where it is shorter than the stage's own limit; read by stages that
    declare `takes_max_tokens`."""

    @property
    def text(self) -> str:
        """The text of the last turn, which is to be answered, without its images."""
        return "".join(texts_in(self.turns[-1].content))

    @property
    def images(self) -> tuple[Image, ...]:
        """All images of the conversation, in order."""
        return images_in(content_of_turns(self.turns))


@_pickle_as_call
@dataclass(frozen=True, slots=True)
class LogprobsRequest:
    """A question, and the answers to it whose probabilities are asked for."""

    shown: Content
    """What the question is about: it stands before it in the user's turn."""
    question: Content
    answers: tuple[str, ...]


@_pickle_as_call
@dataclass(frozen=True, slots=True)
class WindowedText:
    """A text that an embedding stage reads whole, in as many windows as that takes.

    A `Text` alone is cut at the end of its one window.
    """

    text: str
    prefix: str
    """With which every window begins; it may be empty."""


EmbedInput = Image | Text | WindowedText
"""What an embedding stage makes a vector of."""


@_pickle_as_call
@dataclass(frozen=True, slots=True)
class Candidate:
    """What a scoring stage reads of an answer; scorers fill in only what they need."""

    document: Document
    question: Content = ()
    reference: Document | None = None
    criteria: str | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """A judgement of one document."""

    value: float
    """On the scorer's own scale."""
    parts: Mapping[str, Any] = field(default_factory=dict)
    """Components of the value: per pair, per criterion, other scalings."""


@dataclass(frozen=True, slots=True)
class Embedding:
    """What a model makes of one image or one text: a vector that metrics share."""

    vector: bytes = field(repr=False)
    """float32, little endian."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query of a task set."""

    id: str
    category: str
    field: str
    turns: tuple[Turn, ...]
    reference: Document | None = None
    """The ground truth; enters only scorer keys."""
    criteria: str | None = None
    """What a judge should look for in answers to this query."""
    wants_images: bool = True
    """Whether an answer is expected to hold images (not in multi-step reasoning)."""
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def openings(self) -> tuple[tuple[Turn, ...], ...]:
        """The new turns up to each turn of the user, without turns of the assistant."""
        openings: list[tuple[Turn, ...]] = []
        turns: tuple[Turn, ...] = ()
        for turn in self.turns:
            if turn.role != "assistant":
                turns = (*turns, turn)
            if turn.role == "user":
                openings.append(turns)
                turns = ()
        return tuple(openings)

    @property
    def given_answers(self) -> tuple[Content, ...]:
        """What the data say after each turn of the user; empty where they say nothing."""
        given: list[Content] = []
        for turn in self.turns:
            if turn.role == "user":
                given.append(())
            elif turn.role == "assistant" and given:
                given[-1] += turn.content
        return tuple(given)

    @property
    def images(self) -> tuple[Image, ...]:
        """The images of the conversation, then those of the ground truth."""
        asked = images_in(content_of_turns(self.turns))
        return asked if self.reference is None else (*asked, *self.reference.images)

    @property
    def question(self) -> Content:
        """The content of all user turns, in order."""
        asked = [turn for turn in self.turns if turn.role == "user"]
        return tuple(content_of_turns(asked))


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """A row of a task set that could not become a query: a failure of every system."""

    id: str
    """The row's id where it has a usable one, else `row-<number>`."""
    row: int
    """Position in the file, from 0."""
    reason: str
    """Names the row, the value and the rule it breaks."""
    category: str = "unknown"
    field: str = "unknown"
    released: Query | None = None
    """The query as the benchmark's released program judges given answers to it, such as
    without a picture that is missing; None where that program does not either."""


def key_of(query: Query | Malformed) -> str:
    """Return a unique name: a malformed row may have the id of a valid one."""
    if isinstance(query, Malformed):
        return f"{query.id} (row {query.row})"
    return query.id


V = TypeVar("V")
_WITHOUT_PARTS = frozenset({bool, bytes, float, int, str, type(None)})
"""Classes of most values, in which nothing need be looked for."""


def with_blobs(value: V, change: Callable[[Any], Any]) -> V:
    """Return `value` with every `Blob` inside it replaced by `change(blob)`."""
    return replace_parts(value, Blob, change)


def replace_parts(value: V, kind: type, change: Callable[[Any], Any]) -> V:
    """Return `value` with every part of a `kind` replaced by `change(part)`.

    Members of enumerations stay, which are names and no text, and so does what is in blobs.
    """
    if isinstance(value, Enum):
        return value
    if isinstance(value, kind):
        return change(value)  # type: ignore[no-any-return]
    if type(value) in _WITHOUT_PARTS:
        return value
    if isinstance(value, tuple):
        parts = tuple([replace_parts(part, kind, change) for part in value])
        # The very value where nothing in it has changed: most values go through unchanged,
        # and what is compared or remembered by identity stays what it is.
        same = all(map(operator.is_, parts, value))
        return value if same else parts  # type: ignore[return-value]
    if isinstance(value, list):
        return [replace_parts(part, kind, change) for part in value]  # type: ignore[return-value]
    cls: type = type(value)
    names = _field_names(cls)
    if not names and isinstance(value, Mapping):
        if not value:
            return value
        entries = {}
        for key, inner in value.items():
            new_key = replace_parts(key, kind, change)
            entries[new_key] = replace_parts(inner, kind, change)
        return entries  # type: ignore[return-value]
    new = {}
    for name in names:
        before = getattr(value, name)
        after = replace_parts(before, kind, change)
        if after is not before:
            new[name] = after
    return replace(value, **new) if new else value  # type: ignore[type-var]


def parts_of(value: Any, kind: type) -> Iterator[Any]:
    """Yield the parts that `replace_parts` would replace, in no certain order."""
    left: list[Iterable[Any]] = [(value,)]
    while left:
        for part in left.pop():
            if isinstance(part, kind) and not isinstance(part, Enum):
                yield part
            elif type(part) not in _WITHOUT_PARTS:
                left.append(_parts(part))


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, tuple | list):
        return value
    cls: type = type(value)
    if names := _field_names(cls):
        return [getattr(value, name) for name in names]
    return [*value.keys(), *value.values()] if isinstance(value, Mapping) else ()


@cache
def _field_names(cls: type) -> tuple[str, ...]:
    """Return the fields of a class of values in which others may be; mostly none."""
    if issubclass(cls, Blob) or not is_dataclass(cls):
        return ()
    return tuple([declared.name for declared in fields(cls)])
