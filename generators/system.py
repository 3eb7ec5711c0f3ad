"""A system: what answers queries, as the rest of plait sees it, whatever it is made of.

`System` is the protocol. `plait.generators.staged` has what systems of stages share, and
modules of their own have the kinds: answers that are given (`given`), that a model writes
(`writing`), and that a text-to-image model alone draws (`text_to_image`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, Self, get_args, runtime_checkable

from plait.generators.base import StageSpec, Walk
from plait.generators.document import AnswerForm, Document, Query, Turn
from plait.generators.keys import derived_seed

Variant = Literal["text", "interleaved", "plain"]
"""Wording of a task's prompt: for text-only models, for interleaved ones, none."""

TEXT_POSITION = -1
"""Position in `derived_seed` of the first draft; later ones go down, images up from 0."""

TRIES = "tries"
"""Name in a document's notes of what was drawn for each image, and how it was judged."""

Role = Literal["draft", "condition", "render", "critic"]
"""What a stage does in a system: it writes, prepares what is drawn from, draws, or judges
what was drawn."""
ROLES: tuple[Role, ...] = get_args(Role)
"""In the order of a chain."""


History = Literal["own", "given"]
"""What stands before the later turns of a conversation: the system's own answers to the
earlier ones, or those that the data give."""
GIVEN: History = "given"


class Prompter(Protocol):
    """A task set's wording of its queries."""

    def __call__(self, query: Query, variant: Variant, /) -> tuple[Turn, ...]:
        """Return the conversation to be answered."""
        ...


@runtime_checkable
class Session(Prompter, Protocol):
    """A wording of queries whose turns are not asked one after the other as they stand.

    What such a turn asks may depend on the answers before it, and whether it is asked at
    all. It may show images of these answers and leave out everything else that was said.
    """

    def next_query(self, query: Query) -> Query | None:
        """Return what is asked for the last turn of `query`; None where it is left out.

        The turns of the assistant are the answers so far, an empty one of a turn that was
        left out. The id is that of `query`.
        """
        ...


@dataclass(frozen=True)
class Repetition:
    """Which repetition of a query is answered: the seeds follow from it."""

    prompt: Prompter
    seed: int = 0
    """The seed of the run."""
    repeat: int = 0
    """Which of the repeats this is, from 0."""
    max_tokens: int | None = None
    """Most tokens of each draft, where its stage can be told (`Request`)."""

    @property
    def next_query(self) -> Callable[[Query], Query | None] | None:
        """That of a `Session`; None where the wording is none."""
        # Every walk asks for it, and checking a protocol takes tens of microseconds.
        return getattr(self.prompt, "next_query", None)

    def seed_at(self, query: Query, position: int) -> int:
        """Return the seed of the image at `position`, or of the text at TEXT_POSITION."""
        return derived_seed(self.seed, query.id, self.repeat, position)


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How often, at most, the loops behind the reply to one turn go round."""

    rounds: int = 1
    """How often the chain of stages runs; later rounds read the answer so far."""
    drafts: int = 1
    """Drafts that are asked for in one round until one can be read."""
    images: int = 1
    """Images of one round."""
    tries: int = 1
    """Images drawn in the place of one."""
    looks: int = 1
    """How often a critic is asked about one place."""
    in_turn: bool = False
    """Whether an image waits for the one before it."""

    @property
    def images_of_reply(self) -> int:
        """Images of the reply to one turn."""
        return self.rounds * self.images

    @property
    def jobs(self) -> Mapping[Role, int]:
        """Jobs of one round by the role of the stage; None of a role that there is not."""
        drawn = self.images * self.tries
        looks = self.images * self.looks
        return {"draft": self.drafts, "condition": drawn, "render": drawn, "critic": looks}


class Progress(NamedTuple):
    """How far the walk to an answer has come."""

    turns: int
    """Turns of the query that are to be answered."""
    asked: tuple[str, ...] = ()
    """The stage of each step so far, by its digest; the walk waits for the last of them."""


class LaterJobs(NamedTuple):
    """Jobs that a walk has not asked for yet."""

    stage: StageSpec
    jobs: int
    """At most."""
    feeder: str
    """Digest of the stage whose records they follow."""


class DescribedSystem(Protocol):
    """A system's name, models and stages: all that is read of it once a run has ended."""

    @property
    def name(self) -> str:
        """As the user named it."""
        ...

    @property
    def lvlm(self) -> str | None:
        """Its LVLM, for the LVLM x T2I matrix."""
        ...

    @property
    def t2i(self) -> str | None:
        """Its text-to-image model, likewise."""
        ...

    @property
    def roles(self) -> Mapping[Role, StageSpec]:
        """Its stages by what they do, in chain order."""
        ...

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """Its stages in chain order; none where its answers are given."""
        ...


class System(DescribedSystem, Protocol):
    """What answers queries: walks over its stages, and what a plan has to know of them.

    Implementations are frozen: a change makes another system. All that a system decides
    around its stages is a pure function of the query, the seeds and the stages' results.
    """

    def answer(self, query: Query, repetition: Repetition) -> Walk[Document]:
        """Walk to the answer to all turns of a query.

        A Skip where the system has none to such a query; a Failure with its reason.
        """
        ...

    def reply(self, query: Query, repetition: Repetition) -> Walk[Document]:
        """Walk to the reply to the last turn alone, after the answers in `query`."""
        ...

    def answer_form(self, query: Query) -> AnswerForm | None:
        """Return what its answer may hold, before anything is made; None where it has none.

        A native model, a server that draws, or a user's class may hold text and any number
        of images.
        """
        ...

    def most_images(self, query: Query) -> int:
        """Return how many images that stages draw an answer may hold."""
        ...

    def expected_images(self, query: Query) -> int:
        """Return how many images an answer is expected to hold."""
        ...

    @property
    def limits(self) -> Limits:
        """How often, at most, the loops behind the reply to one turn go round."""
        ...

    def jobs_after(self, progress: Progress) -> tuple[LaterJobs, ...]:
        """Return the jobs that its walk may still ask for, as an upper bound by stage.

        Those of a whole answer where nothing has been asked yet. A plan counts with it, and
        knows by it which stage makes which other one work.
        """
        ...

    @property
    def opening(self) -> tuple[Any, ...]:
        """Equal for systems whose answers to any query begin with the same job."""
        ...

    @property
    def reads_query(self) -> bool:
        """Whether it has no answer to a row of the data that cannot be read as a query."""
        ...

    @property
    def may_leave_images_out(self) -> bool:
        """Whether it can be told that an answer should hold no images."""
        ...

    @property
    def beside_stages(self) -> Mapping[str, Any]:
        """What decides its answers beside its stages, by what it does: `plan its answers`.

        A run is not gone on with where it differs.
        """
        ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """What is written down of it in a run's results, besides its stages."""
        ...

    def with_stages(self, change: Callable[[StageSpec], StageSpec]) -> Self:
        """Return it with every stage replaced by `change(stage)`."""
        ...

    def as_variant(self, name: str) -> Self:
        """Return it under another name, as no cell of a matrix of pairings."""
        ...

    def with_history(self, history: History) -> Self:
        """Return it with other answers before the later turns of a conversation.

        UsageError where it reads none.
        """
        ...
