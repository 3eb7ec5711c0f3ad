"""A system: a short chain of stages that turns a sample into a document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal, Protocol, runtime_checkable

from plait.generators.base import Failure, Job, Outcome, Result, Skip, StageSpec, Walk
from plait.generators.document import (
    AnswerForm,
    Content,
    Document,
    Draft,
    Image,
    ImageRequest,
    Query,
    Request,
    Text,
    Turn,
    content_of_turns,
)
from plait.generators.keys import derived_seed, digest

Variant = Literal["text", "interleaved", "plain"]
"""Wording of a task's prompt: for text-only models, for interleaved ones, none."""

TEXT_POSITION = -1
"""Position in `derived_seed` of the first draft; later ones go down, images up from 0."""


TRIES = "tries"
"""Name in a document's notes of what was drawn for each image, and how it was judged."""


class Prompter(Protocol):
    """A task set's wording of its queries."""

    def __call__(self, sample: Query, variant: Variant) -> tuple[Turn, ...]:
        """Return the conversation to be answered."""
        ...


@runtime_checkable
class Session(Prompter, Protocol):
    """A wording of queries whose turns are not asked one after the other as they stand.

    What such a turn asks may depend on the answers before it, and whether it is asked at
    all. It may show images of these answers and leave out everything else that was said.
    """

    def next_query(self, sample: Query) -> Query | None:
        """Return what is asked for the last turn of `sample`; None where it is left out.

        The turns of the assistant are the answers so far, an empty one of a turn that was
        left out. The id is that of `sample`.
        """
        ...


class Planner(Protocol):
    """How a system whose draft plans its answer has it written, and read."""

    @property
    def attempts(self) -> int:
        """Most drafts that are asked for until one can be read."""
        ...

    @property
    def sees_images(self) -> bool:
        """Whether a query's images are shown to it, and the first is drawn from them."""
        ...

    def turns(self, turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
        """Return what the drafting stage is asked for the answer to a conversation."""
        ...

    def read(
        self, replies: Sequence[Outcome[Draft]], sample: Query
    ) -> Outcome[Draft] | None:
        """Return the plan in the last of all replies so far; None to ask once more.

        A request in it may hold its seed.
        """
        ...


DrawingWalk = Generator[list[Job], list[Outcome[Any]], Sequence[Outcome[Any]]]
"""A walk to one outcome for each request."""


class Review(Protocol):
    """How the critic of a system has images drawn again."""

    @property
    def tries(self) -> int:
        """Most images drawn in one place."""
        ...

    @property
    def looks(self) -> int:
        """How often the critic is asked about one place, at most."""
        ...

    def of_answer(self) -> Review:
        """Return the review of one answer, which may remember what the critic said."""
        ...

    def walk(
        self,
        draw: Callable[[Sequence[ImageRequest]], DrawingWalk],
        critic: StageSpec,
        requests: Sequence[ImageRequest],
        drawn: Sequence[Outcome[Image]],
        label: str,
        before: Image | None = None,
    ) -> Walk[tuple[Image, ...]]:
        """Walk from drawn images to those that are kept.

        `before` is the image before the first of them, where images are drawn in turn. The
        notes hold all tries as TRIES, each with its `image` and `try`, from 1.
        """
        ...


def as_drafted(draft: Draft, sample: Query) -> Draft:
    """Return the draft unchanged: native models place their images themselves."""
    return draft


@dataclass(frozen=True, kw_only=True)
class System:
    """A named chain draft -> [condition ->] render [-> critic].

    With it are the pure functions between the stages.
    """

    name: str
    draft: StageSpec | None
    """None where the documents are given (the ground truth, or another tool's outputs), and
    of a text-to-image model alone, which draws what is asked."""
    answers: Mapping[str, Document | Skip | Failure] | None = None
    """Given documents, or why there is none, by query; None for the ground truth."""
    condition: StageSpec | None = None
    keeps_prompt: bool = False
    """Whether the rendering stage reads prompt and context besides the payload."""
    render: StageSpec | None = None
    critic: StageSpec | None = None
    """Looks at what was rendered, as `review` has it."""
    review: Review | None = None
    planner: Planner | None = None
    """How its drafts are plans; `compose` is given what it has read."""
    variant: Variant = "interleaved"
    instruction: str | None = None
    """The system turn before questions whose answers should hold images."""
    compose: Callable[[Draft, Query], Draft] = as_drafted
    max_images: int = 1
    """Most images in one draft, for upper bounds in a plan."""
    rounds: int = 1
    """How often the chain runs; later rounds read the document so far."""
    input_images: int = 0
    """From how many of the last images, the query's among them, each image is drawn."""
    in_turn: bool = False
    """Whether an image waits for the one before it, also where it is drawn from none."""
    tells_modality: bool = False
    """True if the drafting stage can be told that an answer should hold no images."""
    lvlm: str | None = None
    """Name of the LVLM, for the LVLM x T2I matrix."""
    t2i: str | None = None
    """Name of the text-to-image model, likewise."""

    @property
    def is_given(self) -> bool:
        """Whether its documents are given and no stage makes them."""
        return self.draft is None and self.render is None

    @property
    def edits(self) -> bool:
        """Whether it is a text-to-image model alone, drawing from the query's images."""
        return self.draft is None and self.input_images > 0

    @cached_property
    def stages(self) -> tuple[StageSpec, ...]:
        """The stages in chain order."""
        chain = (self.draft, self.condition, self.render, self.critic)
        return tuple(s for s in chain if s is not None)

    @property
    def asks_again(self) -> bool:
        """Whether what was drawn may have the stages after the first asked again."""
        tries = 1 if self.review is None else self.review.tries
        return self.draws_in_turn or tries > 1

    @property
    def draws_in_turn(self) -> bool:
        """Whether an image waits for the one before it."""
        return self.in_turn or self.input_images > 0

    @property
    def attempts(self) -> int:
        """Most drafts of one round."""
        return 1 if self.planner is None else self.planner.attempts

    @property
    def most_jobs(self) -> tuple[int, ...]:
        """Most jobs of each stage in one round, in chain order."""
        images = self.max_images
        drawn = images if self.review is None else images * self.review.tries
        looks = images if self.review is None else images * self.review.looks
        most = {"draft": self.attempts, "condition": drawn, "render": drawn}
        most["critic"] = looks
        return tuple(most[name] for name in _STAGES if getattr(self, name) is not None)

    def answer_form(self, sample: Query) -> AnswerForm | None:
        """Return what its answer to `sample` may hold; None where it gives none.

        Known before anything is made. A native model, a server that draws, or a user's
        class may hold text and any number of images.
        """
        if self.is_given:
            given = _document_at_hand(self, sample)
            return given.value.form if isinstance(given, Result) else None
        images = any(isinstance(segment, Image) for segment in sample.question)
        if self.draft is None and _reason_not_to_draw(self, sample, images=images):
            return None
        if self.t2i is None:
            return AnswerForm()
        most = self.max_images * self.rounds * len(sample.openings)
        return AnswerForm(text=self.draft is not None, images=most)

    def expected_images(self, sample: Query) -> int:
        """Return how many images an answer to `sample` is expected to hold.

        None where none are wanted, and one a turn where the protocol draws one. Where it
        sets a limit alone, as many as the reference holds, else half as many as the limit.
        """
        if not sample.wants_images:
            return 0
        turns = len(sample.openings)
        most = self.max_images * self.rounds * turns
        if most <= turns:
            return most
        named = len(sample.reference.images) if sample.reference else 0
        return min(most, named or most // 2)

    @property
    def opening(self) -> tuple[Any, ...]:
        """Equal for systems whose answers to any query begin with the same job."""
        first = self.stages[0].digest if self.stages else None
        wording = (self.variant, self.instruction, self.planner)
        return first, *wording, self.tells_modality, self.edits


_STAGES = ("draft", "condition", "render", "critic")


def with_stages(system: System, change: Callable[[StageSpec], StageSpec]) -> System:
    """Return `system` with every stage replaced by `change(stage)`."""
    named = {name: getattr(system, name) for name in _STAGES}
    changed: dict[str, Any] = {n: change(s) for n, s in named.items() if s is not None}
    return replace(system, **changed)


@dataclass(frozen=True)
class Repetition:
    """Which repetition of a sample is answered: the seeds follow from it."""

    prompt: Prompter
    seed: int = 0
    """The seed of the run."""
    repeat: int = 0
    """Which of the repeats this is, from 0."""
    max_tokens: int | None = None
    """Most tokens of each draft, where its stage can be told (`Request`)."""

    def seed_at(self, sample: Query, position: int) -> int:
        """Return the seed of the image at `position`, or of the text at TEXT_POSITION."""
        return derived_seed(self.seed, sample.id, self.repeat, position)


def answer(system: System, sample: Query, repetition: Repetition) -> Walk[Document]:
    """Walk the chain of `system` for one sample.

    Every turn of the user is answered after the system's own answers to earlier ones, or as
    the wording has it, where that is a `Session`.
    """
    if system.is_given:
        return _document_at_hand(system, sample)
    walker = _Walker(system, repetition)
    answers: list[Content] = []
    turns: tuple[Turn, ...] = ()
    for opening in sample.openings:
        turns += opening
        asked = sample if turns == sample.turns else replace(sample, turns=turns)
        following = _in_session(repetition.prompt, asked)
        written: Content = ()
        if following is not None:
            reply = yield from walker.reply(following)
            if not isinstance(reply, Result):
                return reply
            written = reply.value
        answers.append(written)
        turns += (Turn("assistant", written),)
    return Result(Document.of(answers), notes=walker.notes)


def _in_session(prompt: Prompter, asked: Query) -> Query | None:
    return prompt.next_query(asked) if isinstance(prompt, Session) else asked


def continuation(system: System, sample: Query, repetition: Repetition) -> Walk[Document]:
    """Walk the chain of `system` for the last turn alone, after the answers in `sample`."""
    walker = _Walker(system, repetition)
    reply = yield from walker.reply(sample)
    if not isinstance(reply, Result):
        return reply
    return Result(Document(reply.value), notes=walker.notes)


def _document_at_hand(system: System, sample: Query) -> Outcome[Document]:
    document: Document | Skip | Failure | None = sample.reference
    reason = "the sample has no ground truth"
    if system.answers is not None:
        document = system.answers.get(sample.id)
        reason = "no answer is given for it"
    if document is None:
        return Skip(reason)
    return Result(document) if isinstance(document, Document) else document


@dataclass
class _Walker:
    """The steps of one walk, and what it has produced so far."""

    system: System
    repetition: Repetition
    drafts: int = 0
    images: int = 0
    notes: dict[str, Any] = field(default_factory=dict)
    """By the stage's name, one entry for each of its records that has notes."""
    review: Review | None = field(init=False)

    def __post_init__(self) -> None:
        review = self.system.review
        self.review = None if review is None else review.of_answer()

    def reply(self, sample: Query) -> Walk[Content]:
        """Walk the chain for the last turn, in as many rounds as the system takes."""
        written: Content = ()
        for _ in range(self.system.rounds):
            drafted = yield from self._read_draft(sample, written)
            if not isinstance(drafted, Result):
                return drafted
            draft = self._compose(drafted.value, sample)
            if lost := _failure_of_lost_images(drafted.value, draft):
                return lost
            images = yield from self._images(draft, sample, written)
            if not isinstance(images, Result):
                return images
            self.images += len(images.value) + len(draft.images)
            drawn = iter(images.value)
            written += tuple(
                next(drawn) if isinstance(s, ImageRequest) else s for s in draft.segments
            )
        return Result(written)

    def _read_draft(self, sample: Query, written: Content) -> Walk[Draft]:
        """Walk to a draft; where it is a plan, to the first that can be read."""
        replies = list[Outcome[Draft]]()
        while True:
            drafted = yield from self._draft(sample, self._request(sample, written))
            self.drafts += 1
            if self.system.planner is None:
                return drafted
            replies.append(drafted)
            plan = self.system.planner.read(replies, sample)
            if plan is not None:
                return plan

    def _draft(self, sample: Query, request: Request) -> Walk[Draft]:
        if self.system.draft is None:
            return _as_prompt(self.system, sample, request)
        job = Job(self.system.draft, request, sample.id)
        drafted = self._values((yield [job]), job.spec)
        if not isinstance(drafted, Result):
            return drafted
        return Result(_with_origins(drafted.value[0], job))

    def _request(self, sample: Query, written: Content) -> Request:
        system = self.system
        turns = self.repetition.prompt(sample, system.variant)
        if system.instruction and sample.wants_images:
            turns = (Turn("system", (Text(system.instruction),)), *turns)
        if system.planner is not None:
            turns = system.planner.turns(turns)
        if written:
            turns = (*turns, Turn("assistant", written))
        position = TEXT_POSITION - self.drafts
        seeded = system.draft is not None and system.draft.seeded
        seed = self.repetition.seed_at(sample, position) if seeded else None
        textual = system.tells_modality and not sample.wants_images
        modality: Literal["text"] | None = "text" if textual else None
        return Request(turns, seed, modality, self.repetition.max_tokens)

    def _compose(self, draft: Draft, sample: Query) -> Draft:
        """Return the composed draft; each request has the seed of its position.

        One of a plan keeps its own.
        """
        composed = self.system.compose(draft, sample)
        if not composed.requests:
            return composed
        drawing = (self.system.condition, self.system.render)
        seeded = any(stage is not None and stage.seeded for stage in drawing)
        position = self.images
        segments: list[Text | Image | ImageRequest] = []
        for segment in composed.segments:
            if isinstance(segment, ImageRequest):
                planned = None if self.system.planner is None else segment.seed
                if planned is None:
                    planned = self.repetition.seed_at(sample, position)
                segment = replace(segment, seed=planned if seeded else None)
            position += not isinstance(segment, Text)
            segments.append(segment)
        return Draft(tuple(segments))

    def _images(
        self, draft: Draft, sample: Query, written: Content
    ) -> Walk[tuple[Image, ...]]:
        system = self.system
        requests = draft.requests
        if not requests:
            return Result(())
        if system.render is None:
            return Failure(f"system {system.name!r} asks for images but renders none")
        if system.draws_in_turn:
            asked = sample.turns
            if system.planner is not None and not system.planner.sees_images:
                asked = ()
            content = (*content_of_turns(asked), *written)
            earlier = [s for s in content if isinstance(s, Image)]
            return (yield from self._in_turn(requests, sample.id, earlier))
        return (yield from self._reviewed(requests, sample.id))

    def _reviewed(
        self,
        requests: Sequence[ImageRequest],
        label: str,
        place: int = 0,
        before: Image | None = None,
    ) -> Walk[tuple[Image, ...]]:
        """Walk to the images that are kept, of which the first is the answer's `place`."""
        system = self.system
        assert system.render is not None
        drawn = yield from self._draw(requests, label)
        images = self._values(drawn, system.render)
        if system.critic is None or self.review is None:
            return images
        if not isinstance(images, Result):
            return images
        draw = partial(self._draw, label=label)
        images = yield from self.review.walk(
            draw, system.critic, requests, drawn, label, before
        )
        if isinstance(images, Result):
            first = self.images + place
            tries = ({**t, "image": t["image"] + first} for t in images.notes[TRIES])
            self.notes.setdefault(TRIES, []).extend(tries)
        return images

    def _draw(self, requests: Sequence[ImageRequest], label: str) -> DrawingWalk:
        """Walk the stages that draw; without a payload for each there is no image."""
        system = self.system
        assert system.render is not None
        if (stage := system.condition) is not None:
            # A seed stays out of the key of what draws nothing at random.
            jobs = [Job(stage, _for(stage, r), label) for r in requests]
            payloads = self._values((yield jobs), stage)
            if not isinstance(payloads, Result):
                return [payloads] * len(requests)
            if not system.keeps_prompt:
                requests = tuple(replace(r, prompt=None, context=()) for r in requests)
            requests = tuple(
                replace(r, payload=replace(payload, origin=j.key))
                for r, j, payload in zip(requests, jobs, payloads.value, strict=True)
            )
        render = system.render
        return (yield [Job(render, _for(render, r), label) for r in requests])

    def _in_turn(
        self, requests: Sequence[ImageRequest], label: str, earlier: Sequence[Image]
    ) -> Walk[tuple[Image, ...]]:
        drawn = list[Image]()
        for request in requests:
            before = (*earlier, *drawn)
            number = min(self.system.input_images, len(before))
            seen = before[len(before) - number :]
            last = before[-1] if before else None
            asked = replace(request, context=seen)
            image = yield from self._reviewed([asked], label, len(drawn), last)
            if not isinstance(image, Result):
                return image
            drawn += image.value
        return Result(tuple(drawn))

    def _values(
        self, outcomes: Sequence[Outcome[Any]], stage: StageSpec
    ) -> Outcome[tuple[Any, ...]]:
        """Return all values, whose notes are kept, or the first outcome that is none."""
        values = []
        for outcome in outcomes:
            if not isinstance(outcome, Result):
                return outcome
            values.append(outcome.value)
            if outcome.notes:
                self.notes.setdefault(stage.name, []).append(dict(outcome.notes))
        return Result(tuple(values))


def _for(stage: StageSpec, request: ImageRequest) -> ImageRequest:
    """Return the request as the stage's input: with a seed only where it reads one."""
    return request if stage.seeded else replace(request, seed=None)


def _reason_not_to_draw(system: System, sample: Query, *, images: bool) -> str:
    """Say why a text-to-image model alone skips a query, with `images` or without."""
    if not sample.wants_images:
        return "a text-to-image model alone draws, and the query asks for text"
    if system.edits:
        return _reason_not_to_edit(sample, system.input_images)
    if images:
        return "a text-to-image model alone reads text; the query has images"
    return ""


def _reason_not_to_edit(sample: Query, most: int) -> str:
    """Say why a query is skipped by what draws from at most so many images of a turn.

    Its first turn must show an image; later ones may be about the answer before them.
    """
    shown: list[int] = []
    for opening in sample.openings:
        content = content_of_turns(opening)
        shown.append(sum(isinstance(segment, Image) for segment in content))
    if not shown or shown[0] == 0:
        return "there is no image to edit: the query begins without one"
    if max(shown) > most:
        return f"the query shows {max(shown)} images at once; input_images is {most}"
    return ""


def _as_prompt(system: System, sample: Query, request: Request) -> Outcome[Draft]:
    if reason := _reason_not_to_draw(system, sample, images=bool(request.images)):
        return Skip(reason)
    texts = (s.text for s in request.turns[-1].content if isinstance(s, Text))
    return Result(Draft((ImageRequest(prompt="".join(texts).strip()),)))


def _with_origins(draft: Draft, job: Job) -> Draft:
    """Return the draft of `job`, whose payloads are named by their places in its record.

    The text is part of the name: a draft that is made again in other words has other
    images, one whose payloads differ in the last digits alone has the same.
    """
    if not any(request.payload for request in draft.requests):
        return draft
    segments = list(draft.segments)
    for place, segment in enumerate(segments):
        if isinstance(segment, ImageRequest) and segment.payload is not None:
            payload = replace(segment.payload, origin=digest(job.key, draft.text, place))
            segments[place] = replace(segment, payload=payload)
    return Draft(tuple(segments))


def _failure_of_lost_images(draft: Draft, composed: Draft) -> Failure | None:
    """Return the failure of an answer whose own images the composition would drop."""
    if composed is draft:
        return None
    lost = Counter(draft.images) - Counter(composed.images)
    if not lost:
        return None
    return Failure(
        f"the LVLM answered with {lost.total()} image(s) of its own, which this system "
        "does not keep; use the model alone as a system"
    )
