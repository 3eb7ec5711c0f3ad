"""How requests for images become images: [condition ->] render [-> critic].

What writes or plans an answer is none of its business: native models, compositions and a
text-to-image model alone all have their images drawn by it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, TypeVar

from plait.generators.base import Job, Outcome, Result, StageSpec, Walk
from plait.generators.document import Image, ImageRequest
from plait.generators.system import TRIES, Role

T = TypeVar("T")
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


@dataclass(frozen=True)
class Critic:
    """What looks at images, and what comes of it."""

    stage: StageSpec
    review: Review


@dataclass(frozen=True, kw_only=True)
class Rendering:
    """The stages that draw, and how they are asked."""

    render: StageSpec
    condition: StageSpec | None = None
    """Makes of a request the payload that `render` draws from."""
    keeps_prompt: bool = False
    """Whether `render` reads prompt and context besides that payload."""
    critic: Critic | None = None
    """Has images drawn again."""
    input_images: int = 0
    """From how many of the last images, the query's among them, each image is drawn."""
    in_turn: bool = False
    """Whether an image waits for the one before it, also where it is drawn from none."""

    @property
    def roles(self) -> dict[Role, StageSpec]:
        """The stages by what they do, in chain order."""
        roles: dict[Role, StageSpec] = {}
        if self.condition is not None:
            roles["condition"] = self.condition
        roles["render"] = self.render
        if self.critic is not None:
            roles["critic"] = self.critic.stage
        return roles

    @property
    def seeded(self) -> bool:
        """Whether an image depends on a seed."""
        return self.render.seeded or (self.condition is not None and self.condition.seeded)

    @property
    def draws_in_turn(self) -> bool:
        """Whether an image waits for the one before it."""
        return self.in_turn or self.input_images > 0

    @property
    def tries(self) -> int:
        """Most images drawn in one place."""
        return 1 if self.critic is None else self.critic.review.tries

    @property
    def looks(self) -> int:
        """How often a critic is asked about one place, at most."""
        return 1 if self.critic is None else self.critic.review.looks


def change_stages(whole: T, change: Callable[[StageSpec], StageSpec]) -> T:
    """Return a dataclass with `change(stage)` for every stage in its fields.

    Those of what it draws with, and of that one's critic, are its own.
    """
    changed: dict[str, Any] = {}
    for own in fields(whole):  # type: ignore[arg-type]
        value = getattr(whole, own.name)
        if isinstance(value, StageSpec):
            changed[own.name] = change(value)
        elif isinstance(value, Rendering | Critic):
            changed[own.name] = change_stages(value, change)
    return replace(whole, **changed)  # type: ignore[type-var]


@dataclass
class Notes:
    """What the records behind one answer note, as its walk goes on."""

    by_stage: dict[str, Any] = field(default_factory=dict)
    """By the stage's name, one entry for each of its records that has notes."""

    def values(
        self, outcomes: Sequence[Outcome[Any]], stage: StageSpec
    ) -> Outcome[tuple[Any, ...]]:
        """Return all values, whose notes are kept, or the first outcome that is none."""
        values = []
        for outcome in outcomes:
            if not isinstance(outcome, Result):
                return outcome
            values.append(outcome.value)
            if outcome.notes:
                self.by_stage.setdefault(stage.name, []).append(dict(outcome.notes))
        return Result(tuple(values))

    def add_tries(self, tries: Sequence[Mapping[str, Any]], images: int) -> None:
        """Keep what was drawn after `images` earlier images of the answer."""
        for one in tries:
            numbered = {**one, "image": one["image"] + images}
            self.by_stage.setdefault(TRIES, []).append(numbered)


@dataclass
class Renderer:
    """Draws the images of one answer."""

    rendering: Rendering
    label: str
    """Of all its jobs."""
    notes: Notes
    _critic: Critic | None = field(init=False)

    def __post_init__(self) -> None:
        critic = self.rendering.critic
        if critic is not None:
            critic = replace(critic, review=critic.review.of_answer())
        self._critic = critic

    def draw(
        self, requests: Sequence[ImageRequest], first: int, earlier: Sequence[Image]
    ) -> Walk[tuple[Image, ...]]:
        """Walk to one image for each request, after `earlier` ones of query and answer.

        `first` is how many images the answer holds before them.
        """
        if not self.rendering.draws_in_turn:
            return (yield from self._draw_and_review(requests, first))
        drawn: list[Image] = []
        for request in requests:
            before = (*earlier, *drawn)
            number = min(self.rendering.input_images, len(before))
            asked = replace(request, context=before[len(before) - number :])
            last = before[-1] if before else None
            image = yield from self._draw_and_review([asked], first + len(drawn), last)
            if not isinstance(image, Result):
                return image
            drawn += image.value
        return Result(tuple(drawn))

    def _draw_and_review(
        self,
        requests: Sequence[ImageRequest],
        first: int,
        before: Image | None = None,
    ) -> Walk[tuple[Image, ...]]:
        """Walk to the images that are kept; the answer holds `first` before them."""
        drawn = yield from self._draw(requests)
        images = self.notes.values(drawn, self.rendering.render)
        if self._critic is None or not isinstance(images, Result):
            return images
        images = yield from self._critic.review.walk(
            self._draw, self._critic.stage, requests, drawn, self.label, before
        )
        if isinstance(images, Result):
            self.notes.add_tries(images.notes[TRIES], first)
        return images

    def _draw(self, requests: Sequence[ImageRequest]) -> DrawingWalk:
        """Walk the stages that draw; without a payload for each there is no image."""
        if (stage := self.rendering.condition) is not None:
            jobs = self._jobs_of(stage, requests)
            payloads = self.notes.values((yield jobs), stage)
            if not isinstance(payloads, Result):
                return [payloads] * len(requests)
            conditioned = []
            for request, job, payload in zip(requests, jobs, payloads.value, strict=True):
                if not self.rendering.keeps_prompt:
                    request = replace(request, prompt=None, context=())
                # Payloads differ in their last digits from batch to batch: the key of the
                # image names the record that they come from instead.
                payload = replace(payload, origin=job.key)
                conditioned.append(replace(request, payload=payload))
            requests = conditioned
        return (yield self._jobs_of(self.rendering.render, requests))

    def _jobs_of(self, stage: StageSpec, requests: Iterable[ImageRequest]) -> list[Job]:
        """Return requests as jobs of a stage, with a seed only where it reads one."""
        jobs = []
        for request in requests:
            # A seed stays out of the key of what draws nothing at random.
            own = request if stage.seeded else replace(request, seed=None)
            jobs.append(Job(stage, own, self.label))
        return jobs
