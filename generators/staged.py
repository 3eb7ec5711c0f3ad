"""What the systems share whose answers are made by stages.

A further kind of system is a class of its own, as in `writing` and `text_to_image`: its
stages by role, how often its loops go round, and the walk to the reply to one turn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from plait.generators.base import Failure, Result, Skip, StageSpec, Walk
from plait.generators.document import (
    AnswerForm,
    Content,
    Document,
    Draft,
    Image,
    ImageRequest,
    Query,
    Text,
    Turn,
)
from plait.generators.errors import UsageError
from plait.generators.rendering import Notes, Renderer, Rendering, change_stages
from plait.generators.system import (
    GIVEN,
    TEXT_POSITION,
    History,
    LaterJobs,
    Limits,
    Progress,
    Repetition,
    Role,
    Variant,
)


@dataclass
class AnswerState:
    """What a walk has made of one answer so far; its seeds are numbered by it."""

    repetition: Repetition
    notes: Notes
    renderer: Renderer | None
    """None where the system draws nothing."""
    drafts: int = 0
    """How many have been asked for."""
    images: int = 0
    """How many the answer holds."""

    def draft_seed(self, query: Query) -> int:
        """Return the seed of the next draft."""
        return self.repetition.seed_at(query, TEXT_POSITION - self.drafts)


@dataclass(frozen=True, kw_only=True)
class StagedSystem(ABC):
    """A system whose answers are made by stages, turn after turn.

    A kind of system says what its stages are, how often its loops go round, and how it
    walks to the reply to one turn.
    """

    name: str
    rendering: Rendering | None = None
    """Draws its images; None where it draws none, or where they come with the text."""
    lvlm: str | None = None
    t2i: str | None = None
    history: History = "own"
    """Which answers stand before the later turns of a conversation."""

    @property
    @abstractmethod
    def roles(self) -> Mapping[Role, StageSpec]:
        """Its stages by what they do, in chain order."""

    @property
    @abstractmethod
    def limits(self) -> Limits:
        """How often, at most, the loops behind the reply to one turn go round."""

    @property
    @abstractmethod
    def variant(self) -> Variant:
        """The wording of the task's prompt that it is asked in."""

    @property
    @abstractmethod
    def opening(self) -> tuple[Any, ...]:
        """Equal for systems whose answers to any query begin with the same job."""

    @abstractmethod
    def reply_to(self, query: Query, state: AnswerState) -> Walk[Content]:
        """Walk to the reply to the last turn of a query."""

    @abstractmethod
    def answer_form(self, query: Query) -> AnswerForm | None:
        """Return what its answer may hold; None where it has none."""

    @cached_property
    def stages(self) -> tuple[StageSpec, ...]:
        """Its stages in chain order."""
        return tuple(self.roles.values())

    @property
    def reads_query(self) -> bool:
        """Whether there is no answer to a row of the data that cannot be read."""
        return True

    @property
    def may_leave_images_out(self) -> bool:
        """Whether it can be told that an answer should hold no images."""
        return self.lvlm is not None

    @property
    def beside_stages(self) -> Mapping[str, Any]:
        """What decides its answers beside its stages, by what it does."""
        decided: dict[str, Any] = {"plan its answers": self.limits.images}
        if self.history == GIVEN:
            # Not told otherwise: runs of earlier versions knew no other history.
            decided["answer later turns"] = self.history
        return decided

    @property
    def facts(self) -> Mapping[str, Any]:
        """What is written down of it in a run's results, besides its stages."""
        rendering = self.rendering
        facts = {
            "variant": self.variant,
            "max_images": self.limits.images,
            "rounds": self.limits.rounds,
            "input_images": 0 if rendering is None else rendering.input_images,
        }
        return facts if self.history == "own" else facts | {"history": self.history}

    def with_stages(self, change: Callable[[StageSpec], StageSpec]) -> Self:
        """Return it with every stage replaced by `change(stage)`."""
        return change_stages(self, change)

    def as_variant(self, name: str) -> Self:
        """Return it under another name, as no cell of a matrix of pairings."""
        return replace(self, name=name, lvlm=None)

    @property
    def reads_history(self) -> bool:
        """Whether its answer to a turn may depend on its answers to earlier ones."""
        return True

    def with_history(self, history: History) -> Self:
        """Return it with other answers before the later turns of a conversation.

        UsageError where it reads none.
        """
        if history == GIVEN and not self.reads_history:
            raise UsageError(
                f"{self.name!r} draws from the last turn alone, so that no history makes a "
                "difference; leave history out"
            )
        return replace(self, history=history)

    # ---------------------------------------------------------------------------- walks

    def answer(self, query: Query, repetition: Repetition) -> Walk[Document]:
        """Walk to the answer to all turns of a query.

        Every turn of the user is answered after the answers of the system's `history` to
        earlier ones, or as the wording has it, where that is a `Session`. A Skip where the
        data lack an answer that the history is to give.
        """
        next_query = repetition.next_query
        state = self._begin(query, repetition)
        openings = query.openings
        answers: list[Content] = []
        given = None
        if self.history == GIVEN and len(openings) > 1:
            given = query.given_answers
            if () in given[:-1]:
                return Skip(
                    f"history = 'given': the query gives no answer to its turn "
                    f"{given.index(()) + 1} of {len(openings)}"
                )
        turns: tuple[Turn, ...] = ()
        for number, opening in enumerate(openings):
            turns += opening
            asked = query if turns == query.turns else replace(query, turns=turns)
            following = asked if next_query is None else next_query(asked)
            written: Content = ()
            if following is not None:
                reply = yield from self.reply_to(following, state)
                if not isinstance(reply, Result):
                    return reply
                written = reply.value
            answers.append(written)
            shown = written if given is None else given[number]
            turns += (Turn("assistant", shown),)
        document = Document.of(answers)
        if given is not None:
            document = replace(document, history="given")
        return Result(document, notes=state.notes.by_stage)

    def reply(self, query: Query, repetition: Repetition) -> Walk[Document]:
        """Walk to the reply to the last turn alone, after the answers in `query`."""
        state = self._begin(query, repetition)
        reply = yield from self.reply_to(query, state)
        if not isinstance(reply, Result):
            return reply
        return Result(Document(reply.value), notes=state.notes.by_stage)

    def _begin(self, query: Query, repetition: Repetition) -> AnswerState:
        notes = Notes()
        renderer = None
        if self.rendering is not None:
            renderer = Renderer(self.rendering, query.id, notes)
        return AnswerState(repetition, notes, renderer)

    def fill(
        self,
        draft: Draft,
        query: Query,
        state: AnswerState,
        *,
        seen: Sequence[Image],
        keeps_seeds: bool = False,
    ) -> Walk[Content]:
        """Walk from a draft to what it says with an image in the place of each request.

        `seen` are the images of query and answer before it. A request is drawn by the seed
        of its position in the answer, or with `keeps_seeds` by its own where it has one.
        """
        requests = self._with_seeds(draft, query, state, keeps_seeds=keeps_seeds)
        images: tuple[Image, ...] = ()
        if requests:
            if state.renderer is None:
                return Failure(f"system {self.name!r} asks for images but renders none")
            outcome = yield from state.renderer.draw(requests, state.images, seen)
            if not isinstance(outcome, Result):
                return outcome
            images = outcome.value
        state.images += len(images) + len(draft.images)
        # The images are in the order of the requests.
        drawn = iter(images)
        segments: list[Text | Image] = []
        for segment in draft.segments:
            if isinstance(segment, ImageRequest):
                segments.append(next(drawn))
            else:
                segments.append(segment)
        return Result(tuple(segments))

    def _with_seeds(
        self, draft: Draft, query: Query, state: AnswerState, *, keeps_seeds: bool
    ) -> list[ImageRequest]:
        seeded = self.rendering is not None and self.rendering.seeded
        position = state.images
        requests: list[ImageRequest] = []
        for segment in draft.segments:
            if isinstance(segment, ImageRequest):
                seed = segment.seed if keeps_seeds else None
                if seed is None:
                    seed = state.repetition.seed_at(query, position)
                requests.append(replace(segment, seed=seed if seeded else None))
            # Images that came with the draft have a position like those that are drawn.
            position += not isinstance(segment, Text)
        return requests

    # ------------------------------------------------------------------------- planning

    def most_images(self, query: Query) -> int:
        """Return how many images that stages draw an answer may hold."""
        return self.limits.images_of_reply * len(query.openings)

    def expected_images(self, query: Query) -> int:
        """Return how many images an answer is expected to hold.

        None where none are wanted, and one a turn where the protocol draws one. Where it
        sets a limit alone, as many as the reference holds, else half as many as the limit.
        """
        if not query.wants_images:
            return 0
        most = self.most_images(query)
        if most <= len(query.openings):
            return most
        of_reference = len(query.reference.images) if query.reference else 0
        return min(most, of_reference or most // 2)

    def jobs_after(self, progress: Progress) -> tuple[LaterJobs, ...]:
        """Return the jobs that its walk may still ask for, as an upper bound by stage.

        Of the chain's pass that the walk is in, the stages after the one it waits for; of
        the passes to come, all.
        """
        limits = self.limits
        chain = [stage.digest for stage in self.stages]
        reached = chain.index(progress.asked[-1]) if progress.asked else -1
        passes = limits.rounds * progress.turns - 1
        # The first stage tells which pass a walk is in, unless one pass may ask it twice:
        # for another draft, or as the critic, which may be a stage of the same digest.
        if "critic" not in self.roles and limits.drafts == 1:
            passes -= max(progress.asked.count(chain[0]) - 1, 0)
        again = limits.in_turn or limits.tries > 1
        later: list[LaterJobs] = []
        for place, (role, stage) in enumerate(self.roles.items()):
            follows = place > reached or (again and place > 0)
            jobs = (passes + follows) * limits.jobs[role]
            later.append(LaterJobs(stage, jobs, chain[place - 1]))
            if role == "draft" and reached == place:
                # A draft that cannot be read is asked for again.
                later.append(LaterJobs(stage, limits.drafts - 1, stage.digest))
        return tuple(later)
