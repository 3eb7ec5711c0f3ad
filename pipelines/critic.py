"""The protocol `critic`: an LVLM looks at what was drawn, and has it drawn again.

The loop is that of InterleaveThinker (arXiv 2606.13679, UEval/ueval_klein.py of
zhengdian1/InterleaveThinker@94c7593): draw, judge, draw again with another seed, at most
three times. Unlike there, the last image is judged too, and the best is kept, not the last.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from plait.generators.base import (
    Failure,
    Job,
    Outcome,
    Result,
    Skip,
    StageInput,
    StageSpec,
    Walk,
    add_usage,
)
from plait.generators.document import (
    Image,
    ImageRequest,
    LogprobsRequest,
    Request,
    Text,
    Turn,
)
from plait.generators.keys import derived_seed
from plait.generators.rendering import DrawingWalk
from plait.generators.replies import as_bool, as_number, statements_of
from plait.generators.system import TRIES
from plait.generators.thoughts import UNFINISHED

Manner = Literal["probability", "reply"]
"""Whether a verdict is the probability of an answer, or stands in what the LVLM writes."""
INSTRUCTION = (
    'This image was drawn from the prompt "{prompt}". It should show: "{wanted}". Look '
    "for anything that is missing, that is not as described, or that cannot be, such as a "
    "hand with six fingers. Reply with one JSON object and nothing else: "
    '{{"score": N, "refine_prompt": "..."}}. N is a number from 0 (nothing is right) '
    "to 10 (nothing is wrong). refine_prompt is the prompt to draw from next: reworded so "
    "that what went wrong is said more exactly, and unchanged where nothing is wrong."
)
"""Our wording. `refine_prompt`, and `previous_step_success`, which is read where there is
no score, are keys of InterleaveThinker's critic (UEval/system.py), whose reply stands
between `<answer>` and `</answer>`."""
TOP = 10


class CriticSettings(BaseModel):
    """How images are judged and drawn again."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tries: int = Field(default=3, ge=1, le=10, strict=True)
    """At most this many images are drawn in one place."""
    threshold: float = Field(default=0.5, ge=0, le=1)
    """An image is drawn again where its verdict, 0 to 1, is below."""
    verdict: Manner | None = None
    """By default `probability` where plait runs the critic itself, else `reply`."""
    question: str = 'Does this figure show "{}"? Please answer Yes or No.'
    """What a `probability` is asked for, with `{}` for the prompt. With this and the next
    the verdict is VQAScore (linzhiqiu/t2v_metrics@880a5b8)."""
    answer: str = Field(default="Yes", min_length=1)
    """Of whose tokens the probabilities' geometric mean is the verdict. `{}` stands for the
    prompt here too: how likely a caption is, after a question that asks for one."""
    amend: bool = True
    """Draw again from the prompt that a `reply` suggests, if it does."""

    @model_validator(mode="after")
    def _asks_about_the_prompt(self) -> Self:
        if "{}" not in self.question + self.answer:
            raise ValueError(
                f"neither the question {self.question!r} nor the answer {self.answer!r} "
                "has {} for the prompt"
            )
        return self


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the critic says of one image."""

    value: float | None = None
    """0 to 1; None where it cannot be told."""
    reason: str = ""
    """Why it cannot be told."""
    prompt: str = ""
    """From which the critic would draw again."""


@dataclass(slots=True)
class Try:
    """One image drawn for a request, and the verdict on it."""

    request: ImageRequest
    drawn: Outcome[Image]
    looks: list[Outcome[Any]] = field(default_factory=list)
    """What the critic's stage gave."""
    verdict: Verdict = field(default_factory=Verdict)

    @property
    def image(self) -> Image | None:
        """None where nothing was drawn."""
        return self.drawn.value if isinstance(self.drawn, Result) else None

    def notes(self, image: int, number: int, kept: bool) -> dict[str, Any]:
        """Return it as plain data, with what the records of both stages say they used."""
        used = [getattr(look, "usage", {}) for look in self.looks]
        looking = dict(used[0]) if used else {}
        for usage in used[1:]:
            add_usage(looking, usage)
        about = {
            "image": image,
            "try": number,
            "prompt": self.request.prompt,
            "seed": self.request.seed,
            "verdict": self.verdict.value,
            "reason": self.verdict.reason or getattr(self.drawn, "reason", ""),
            "kept": kept,
            "drawing": dict(getattr(self.drawn, "usage", {})),
            "looking": looking,
        }
        return {name: value for name, value in about.items() if value not in ("", {})}


class RedrawingReview(ABC):
    """Has images judged, and drawn again while the critic finds them wanting.

    All images are judged at once, and all that fall short are drawn again at once.
    """

    @property
    @abstractmethod
    def tries(self) -> int:
        """Most images drawn in one place."""

    @property
    def asks(self) -> int:
        """How often the critic is asked about one image, at most."""
        return 1

    @property
    def looks(self) -> int:
        """How often the critic is asked about one place, at most."""
        return self.tries * self.asks

    def of_answer(self) -> Self:
        """Return the review of one answer."""
        return self

    def walk(
        self,
        draw: Callable[[Sequence[ImageRequest]], DrawingWalk],
        critic: StageSpec,
        requests: Sequence[ImageRequest],
        drawn: Sequence[Outcome[Image]],
        label: str,
        before: Image | None = None,
    ) -> Walk[tuple[Image, ...]]:
        """Walk from the images `drawn` for `requests` to those that are kept.

        `draw` walks to one outcome for each request; `before` is the image before them,
        where there is one. A failure that would be tried again is the walk's own; any other
        ends the tries of its image.
        """
        places = [[Try(*pair)] for pair in zip(requests, drawn, strict=True)]
        waiting = places
        while waiting:
            failure = yield from self._judge(waiting, critic, label, before)
            if failure is not None:
                return failure
            waiting = [tries for tries in waiting if self._falls_short(tries)]
            again = [self._again(tries) for tries in waiting]
            drawings = (yield from draw(again)) if again else []
            if lost := self._end_by_drawing(drawings):
                return lost
            for tries, request, outcome in zip(waiting, again, drawings, strict=True):
                tries.append(Try(request, outcome))
            waiting = [tries for tries in waiting if tries[-1].image]
        kept = [self._choose(tries) for tries in places]
        notes = []
        for image, (tries, best) in enumerate(zip(places, kept, strict=True), start=1):
            for number, tried in enumerate(tries, start=1):
                notes.append(tried.notes(image, number, tried is best))
        images = tuple(best.image for best in kept if best.image)
        return Result(images, notes={TRIES: notes})

    def _judge(
        self,
        places: Sequence[list[Try]],
        critic: StageSpec,
        label: str,
        before: Image | None,
    ) -> Generator[list[Job], list[Outcome[Any]], Failure | None]:
        """Walk to a verdict on the last try of each place, or to the walk's failure."""
        waiting = [tries for tries in places if self._is_judged(tries)]
        for ask in range(self.asks):
            if not waiting:
                break
            jobs = []
            for tries in waiting:
                question = self._question(tries, critic.seeded, before, ask)
                jobs.append(Job(critic, question, label))
            outcomes = yield jobs
            if lost := self._end_by_look(outcomes):
                return lost
            for tries, outcome in zip(waiting, outcomes, strict=True):
                tries[-1].looks.append(outcome)
                tries[-1].verdict = self._verdict(outcome)
            waiting = [tries for tries in waiting if tries[-1].verdict.value is None]
        for tries in waiting:
            if failure := self._settle(tries):
                return failure
        return None

    def _is_judged(self, tries: Sequence[Try]) -> bool:
        """Return whether the critic looks at the last try of a place."""
        return True

    @abstractmethod
    def _question(
        self, tries: Sequence[Try], seeded: bool, before: Image | None, ask: int
    ) -> StageInput:
        """Return what the critic is asked about the last try; `ask` counts from 0."""

    @abstractmethod
    def _verdict(self, outcome: Outcome[Any]) -> Verdict:
        """Return what the critic says; without a value where it cannot be told."""

    def _settle(self, tries: Sequence[Try]) -> Failure | None:
        """Give the last try a verdict where none could be told; or return a failure."""
        return None

    @abstractmethod
    def _falls_short(self, tries: Sequence[Try]) -> bool:
        """Return whether a place is drawn again."""

    @abstractmethod
    def _again(self, tries: Sequence[Try]) -> ImageRequest:
        """Return what is drawn next."""

    @abstractmethod
    def _choose(self, tries: Sequence[Try]) -> Try:
        """Return the try that stays."""

    def _end_by_drawing(self, drawings: Sequence[Outcome[Any]]) -> Skip | Failure | None:
        """Return what of the images drawn again ends the walk."""
        return open_failure(drawings)

    def _end_by_look(self, outcomes: Sequence[Outcome[Any]]) -> Failure | None:
        """Return what of the critic's outcomes ends the walk."""
        return open_failure(outcomes)


@dataclass(frozen=True)
class CriticReview(RedrawingReview):
    """The review of the protocol `critic`.

    An image is drawn again where its verdict is below the threshold. Of an image's tries
    the one with the best verdict is kept, the earliest of equals. Without a verdict an
    image is kept and not drawn again.
    """

    settings: CriticSettings
    manner: Manner

    @property
    def tries(self) -> int:
        """Most images drawn in one place."""
        return self.settings.tries

    def _question(
        self, tries: Sequence[Try], seeded: bool, before: Image | None, ask: int
    ) -> StageInput:
        """Return what the critic is asked about the last of an image's tries.

        The image is to show what the first prompt asked for, however later ones word it.
        """
        wanted = tries[0].request.prompt
        last = tries[-1]
        shown = (last.image,) if last.image else ()
        if self.manner == "probability":
            question = self.settings.question.replace("{}", wanted or "")
            answer = self.settings.answer.replace("{}", wanted or "")
            return LogprobsRequest(shown, (Text(question),), (answer,))
        text = Text(INSTRUCTION.format(prompt=last.request.prompt, wanted=wanted))
        turn = Turn("user", (*shown, text))
        return Request((turn,), last.request.seed if seeded else None)

    def _verdict(self, outcome: Outcome[Any]) -> Verdict:
        if not isinstance(outcome, Result):
            return Verdict(reason=outcome.reason)
        if self.manner == "probability":
            return Verdict(outcome.value.value)
        reply = outcome.value.reply
        if reply.unfinished:
            return Verdict(reason=f"the reply {UNFINISHED}")
        return verdict_in(reply.text)

    def _falls_short(self, tries: Sequence[Try]) -> bool:
        value = tries[-1].verdict.value
        below = value is not None and value < self.settings.threshold
        return below and len(tries) < self.settings.tries

    def _again(self, tries: Sequence[Try]) -> ImageRequest:
        """Return the next request: another seed, and another prompt where one is given."""
        first = tries[0].request
        last = tries[-1]
        amended = self.settings.amend and last.verdict.prompt
        return replace(
            first,
            prompt=amended or last.request.prompt,
            seed=derived_seed(first.seed or 0, "", 0, len(tries)),
        )

    def _choose(self, tries: Sequence[Try]) -> Try:
        return max(tries, key=_rank)


def open_failure(outcomes: Sequence[Outcome[Any]]) -> Failure | None:
    """Return the first failure that would be tried again."""
    failures = (o for o in outcomes if isinstance(o, Failure))
    return next((f for f in failures if not f.fault.final), None)


def _rank(tried: Try) -> float:
    return -1.0 if tried.verdict.value is None else tried.verdict.value


def verdict_in(reply: str) -> Verdict:
    """Return the verdict in a critic's reply; one without a value says what is missing."""
    prompts = [
        p.strip() for p in statements_of(reply, "refine_prompt") if isinstance(p, str)
    ]
    prompt = prompts[0] if len(prompts) == 1 else ""
    told = [value for value in statements_of(reply, "score") if value is not None]
    scores = {as_number(value, TOP) for value in told}
    score = scores.pop() if len(scores) == 1 else None
    if score is not None and 0 <= score <= TOP:
        return Verdict(score / TOP, prompt=prompt)
    successes = {as_bool(value) for value in statements_of(reply, "previous_step_success")}
    success = successes.pop() if len(successes) == 1 else None
    if not told and success is not None:
        return Verdict(float(success), prompt=prompt)
    return Verdict(reason=f"the reply has no score from 0 to {TOP}: {reply[:200]!r}")
