"""Systems whose first stage writes: a native model, a composition with a T2I model, a plan.

All three ask for a draft, read it, and have the images drawn that it asks for. They differ
in how the draft is asked for and read.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol

from plait.generators.base import Failure, Job, Outcome, Result, StageSpec, Walk
from plait.generators.document import (
    AnswerForm,
    Content,
    Draft,
    ImageRequest,
    Query,
    Request,
    Text,
    Turn,
    content_of_turns,
    images_in,
)
from plait.generators.keys import digest
from plait.generators.staged import AnswerState, StagedSystem
from plait.generators.system import Limits, Role, Variant

Compose = Callable[[Draft, Query], Draft]
"""What a draft becomes before its images are drawn: a pure function of both."""


class Planner(Protocol):
    """How the draft of a system that plans its answers is asked for, and read."""

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
        self, replies: Sequence[Outcome[Draft]], query: Query
    ) -> Outcome[Draft] | None:
        """Return the plan in the last of all replies so far; None to ask once more.

        A request in it may hold its seed.
        """
        ...


def as_drafted(draft: Draft, query: Query) -> Draft:
    """Return the draft unchanged: native models place their images themselves."""
    return draft


@dataclass(frozen=True, kw_only=True)
class WritingSystem(StagedSystem):
    """What systems share whose first stage writes a draft of the answer."""

    draft: StageSpec
    max_images: int = 1
    """Most images of one draft."""

    keeps_seeds: ClassVar[bool] = False
    """Whether a request in a draft may have a seed of its own."""

    @abstractmethod
    def _turns(self, query: Query, turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
        """Return what the drafting stage is asked, of the task's prompt."""

    @abstractmethod
    def _read(
        self, replies: Sequence[Outcome[Draft]], query: Query
    ) -> Outcome[Draft] | None:
        """Return the draft in the last of all replies so far; None to ask once more."""

    def _modality(self, query: Query) -> Literal["text"] | None:
        """Return what the drafting stage is told that the answer should hold."""
        return None

    def _content_to_draw_from(self, query: Query) -> Content:
        """Return that of a query from whose images the first image is drawn."""
        return tuple(content_of_turns(query.turns))

    @property
    def roles(self) -> Mapping[Role, StageSpec]:
        """The stage that writes, then those that draw."""
        drawing = {} if self.rendering is None else self.rendering.roles
        return {"draft": self.draft, **drawing}

    @property
    def limits(self) -> Limits:
        """One draft, and the images that it may ask for."""
        rendering = self.rendering
        if rendering is None:
            return Limits(images=self.max_images)
        return Limits(
            images=self.max_images,
            tries=rendering.tries,
            looks=rendering.looks,
            in_turn=rendering.draws_in_turn,
        )

    def answer_form(self, query: Query) -> AnswerForm | None:
        """Return text, and the images that a T2I model may draw; any number without one."""
        if self.t2i is None:
            return AnswerForm()
        return AnswerForm(images=self.most_images(query))

    def reply_to(self, query: Query, state: AnswerState) -> Walk[Content]:
        """Walk to the reply to the last turn, in as many rounds as the system takes."""
        written: Content = ()
        for _ in range(self.limits.rounds):
            draft = yield from self._walk_to_draft(query, written, state)
            if not isinstance(draft, Result):
                return draft
            # Later rounds are drawn from the images of earlier ones, too.
            seen = images_in((*self._content_to_draw_from(query), *written))
            reply = yield from self.fill(
                draft.value, query, state, seen=seen, keeps_seeds=self.keeps_seeds
            )
            if not isinstance(reply, Result):
                return reply
            written += reply.value
        return Result(written)

    def _walk_to_draft(
        self, query: Query, written: Content, state: AnswerState
    ) -> Walk[Draft]:
        """Walk to the first draft that can be read."""
        replies: list[Outcome[Draft]] = []
        # `_read` ends it: it gives a draft, or a failure once it has asked often enough.
        while True:
            job = Job(self.draft, self._request(query, written, state), query.id)
            values = state.notes.values((yield [job]), self.draft)
            if isinstance(values, Result):
                replies.append(Result(_with_origins(values.value[0], job)))
            else:
                replies.append(values)
            state.drafts += 1
            draft = self._read(replies, query)
            if draft is not None:
                return draft

    def _request(self, query: Query, written: Content, state: AnswerState) -> Request:
        """Return what the drafting stage is asked, after what is `written` already."""
        repetition = state.repetition
        turns = self._turns(query, repetition.prompt(query, self.variant))
        if written:
            turns = (*turns, Turn("assistant", written))
        seed = state.draft_seed(query) if self.draft.seeded else None
        return Request(turns, seed, self._modality(query), repetition.max_tokens)


@dataclass(frozen=True, kw_only=True)
class NativeSystem(WritingSystem):
    """A model that places the images of its answer itself.

    It draws them itself, or has stages of its own that draw what it asks for.
    """

    compose: Compose = as_drafted
    """Where it does not interleave, how its text becomes text and image."""
    rounds: int = 1
    """How often it writes; later rounds read the answer so far."""
    tells_modality: bool = False
    """True if the drafting stage can be told that an answer should hold no images."""

    variant: ClassVar[Variant] = "interleaved"

    @property
    def limits(self) -> Limits:
        """So many rounds."""
        return replace(super().limits, rounds=self.rounds)

    @property
    def opening(self) -> tuple[Any, ...]:
        """The stage that writes, and what it is told."""
        return self.draft.digest, self.variant, None, self.tells_modality

    @property
    def may_leave_images_out(self) -> bool:
        """Whether the stage that writes can be told."""
        return self.tells_modality

    def _turns(self, query: Query, turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
        return turns

    def _modality(self, query: Query) -> Literal["text"] | None:
        return "text" if self.tells_modality and not query.wants_images else None

    def _read(self, replies: Sequence[Outcome[Draft]], query: Query) -> Outcome[Draft]:
        return compose_draft(replies[-1], query, self.compose)


@dataclass(frozen=True, kw_only=True)
class ComposedSystem(WritingSystem):
    """An LVLM, and a text-to-image model that draws what is read out of its text."""

    compose: Compose
    variant: Variant = "interleaved"
    instruction: str | None = None
    """The system turn before questions whose answers should hold images."""

    @property
    def opening(self) -> tuple[Any, ...]:
        """The stage that writes, and how it is asked."""
        return self.draft.digest, self.variant, self.instruction, False

    def _turns(self, query: Query, turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
        if not self.instruction or not query.wants_images:
            return turns
        return (Turn("system", (Text(self.instruction),)), *turns)

    def _read(self, replies: Sequence[Outcome[Draft]], query: Query) -> Outcome[Draft]:
        return compose_draft(replies[-1], query, self.compose)


@dataclass(frozen=True, kw_only=True)
class PlannedSystem(WritingSystem):
    """A model that plans texts and images, and a text-to-image model that draws by plan."""

    planner: Planner

    keeps_seeds: ClassVar[bool] = True
    variant: ClassVar[Variant] = "plain"

    @property
    def limits(self) -> Limits:
        """Drafts until a plan can be read."""
        return replace(super().limits, drafts=self.planner.attempts)

    @property
    def opening(self) -> tuple[Any, ...]:
        """The stage that plans, and how it is asked."""
        return self.draft.digest, self.variant, self.planner, False

    @property
    def beside_stages(self) -> Mapping[str, Any]:
        """How plans are asked for and read, and what has images drawn again."""
        critic = self.rendering and self.rendering.critic
        return {
            **super().beside_stages,
            "plan its answers": (self.planner, self.max_images),
            "have images drawn again": critic and critic.review,
        }

    def _turns(self, query: Query, turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
        return self.planner.turns(turns)

    def _read(
        self, replies: Sequence[Outcome[Draft]], query: Query
    ) -> Outcome[Draft] | None:
        return self.planner.read(replies, query)

    def _content_to_draw_from(self, query: Query) -> Content:
        return super()._content_to_draw_from(query) if self.planner.sees_images else ()


def compose_draft(
    drafted: Outcome[Draft], query: Query, compose: Compose
) -> Outcome[Draft]:
    """Return what a draft becomes; a failure where images of its own would be dropped."""
    if not isinstance(drafted, Result):
        return drafted
    draft = drafted.value
    composed = compose(draft, query)
    lost = Counter(draft.images) - Counter(composed.images)
    if not lost:
        return Result(composed)
    return Failure(
        f"the LVLM answered with {lost.total()} image(s) of its own, which this system "
        "does not keep; use the model alone as a system"
    )


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
