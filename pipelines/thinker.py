"""InterleaveThinker: a planner and a critic, over any text-to-image model.

The planner writes the steps of an answer, each with a prompt and a text. Each step's image
is drawn from the one before it; the critic looks at both, and has it drawn again from a
prompt of its own, at most three times (arXiv 2606.13679).

`official` is the program whose figure is published, UEval/ueval_klein.py of
zhengdian1/InterleaveThinker@94c7593. `corrected` differs where that program fails:

* Where no reply of the critic can be read, the image stays. The program takes its verdict
  on an earlier image, which may be of another step.
* A step without a prompt is text. The program fails.
* Images of the question are shown, and edited, as in demo_klein.py. The program hides them.
* A plan is asked for again while it cannot be read. The program fails at an object without
  a plan.
* Texts and images alternate, as in demo_klein.py. The program writes all texts as one.
* Seeds are those of the run. The program's are 100 times the step, and the attempt.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator

from plait.generators.base import Failure, Outcome, Result, Skip, StageInput
from plait.generators.buckets import AnyPath, any_path
from plait.generators.content import join_texts
from plait.generators.document import (
    Content,
    Draft,
    Image,
    ImageRequest,
    Query,
    Request,
    Text,
    Turn,
)
from plait.generators.keys import derived_seed
from plait.generators.released import OFFICIAL, file_in, read_published
from plait.generators.replies import statements_of
from plait.generators.rounds import fill_template
from plait.generators.thoughts import UNFINISHED
from plait.pipelines.chat.endings import CUT
from plait.pipelines.critic import RedrawingReview, Try, Verdict, verdict_in

FILE = "UEval/system.py"
"""Where a checkout of InterleaveThinker holds the prompts."""
DIGESTS: Mapping[str, str] = {
    "plan": "1ec6bae1daa3a7057e9169e9926336de106aa8e43f4672adf1efc8013e91ffef",
    "plan_with_images": "ce02eeb8351a47c653d0210abeca3f5ec1ad974553365e88ceb144ab8202c0d3",
    "critic": "529a070bf11f5835aaed8f91ca28dac7759d9f2c887d53575e3692fa989634ce",
}
"""SHA-256 of the texts in it: NARRATIVE_PROMPT_JSON, GUIDANCE_GLOBAL_PROMPT_JSON and
Iterative_T2I_PROMPT_QWEN."""
WHITE = Image.of(
    base64.b64decode(
        "UklGRlAAAABXRUJQVlA4TEMAAAAv/8P/AAfQ//73v/8BgUCyv/kERfQ/4z//+c9//vOf//znP//5z3/+85//"
        "/Oc///nPf/7zn//85z//+c9//vOf//zfAA=="
    )
)
"""1024 x 1024 white pixels, lossless: what the critic sees before the first step."""

_ASKED = "{text_input}"
_ORIGINAL = "{original_instruction}"
_REWRITTEN = "{rewritten_prompt}"
_HINT = " both visually and textually"
"""What the program takes out of a question (UEval/ueval_klein.py, `generate`)."""
_PLAN = "execution_plan"
_PROMPT = "prompt"
_TEXT = "auxiliary_text"
_INSTRUCTION = "instruction"
_REFINED = "refine_prompt"
_SUCCESS = "previous_step_success"
_RUN_TOGETHER = "None}, {'step_number'"
"""In a text, it shows that a reply was repaired into fewer steps than it has."""
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_PASSED = 0.5


class ThinkerWording(NamedTuple):
    """What planner and critic are asked."""

    plan: str
    """With `{text_input}` for the question."""
    plan_with_images: str
    """The same for a question with images."""
    critic: str
    """With `{original_instruction}` and `{rewritten_prompt}` for two prompts."""


_OWN_PLAN = (
    'Plan an answer of texts and pictures to this request: "{text_input}". Each step is '
    "one picture and its text. The first picture is drawn from its prompt, each later one "
    "is the picture before it, changed as its prompt says. Reply with one JSON object and "
    'nothing else: {"execution_plan": [{"step_number": 1, "step_name": "...", '
    '"instruction": "...", "prompt": "...", "auxiliary_text": "..."}]}. A prompt is null '
    "where a step needs no picture."
)
OWN_WORDING = ThinkerWording(
    plan=_OWN_PLAN,
    plan_with_images=_OWN_PLAN,
    critic=(
        "The second picture was made from the first, which is white for a new drawing, by "
        'the prompt "{rewritten_prompt}". It should show: "{original_instruction}". Reply '
        'with one JSON object and nothing else: {"previous_step_success": true or false, '
        '"refine_prompt": "..."}. refine_prompt is the prompt to draw from next.'
    ),
)
"""For models that were not trained by the released texts; its keys are theirs."""


class ThinkerSettings(BaseModel):
    """How a planner and a critic answer: `[models.interleavethinker]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["corrected", "official"] = "corrected"
    """`official` follows the released program of the published figure, defects included."""
    prompts: str | None = None
    """`official:PATH`: your copy of UEval/system.py, or the checkout that holds it; `plait`
    for our wording. Published weights need one of them; others have ours by default."""
    planner: str = "thinker-planner"
    """An LVLM; its settings are those of its own name."""
    critic: str = "thinker-critic"
    """Likewise."""
    attempts: int = Field(default=5, ge=1, le=20, strict=True)
    """How often planner or critic are asked, at most, until a reply can be read."""
    tries: int = Field(default=3, ge=1, le=10, strict=True)
    """At most this many images are drawn in one place."""
    max_steps: int = Field(default=32, ge=1, le=128, strict=True)
    """A longer plan is not followed."""

    @field_validator("prompts")
    @classmethod
    def _check_wording(cls, prompts: str | None) -> str | None:
        if prompts is None or prompts == "plait":
            return prompts
        if prompts.startswith(OFFICIAL) and prompts.removeprefix(OFFICIAL).strip():
            return prompts
        raise ValueError(f"{prompts!r} is not valid; give 'plait' or 'official:PATH'")

    @property
    def released(self) -> AnyPath | None:
        """The released prompts, or the folder that holds them; None for our wording."""
        if self.prompts is None or not self.prompts.startswith(OFFICIAL):
            return None
        return any_path(self.prompts.removeprefix(OFFICIAL))


def read_wording(path: AnyPath) -> ThinkerWording:
    """Return the texts of the user's UEval/system.py; UsageError unless released."""
    return ThinkerWording(**read_published(file_in(path, FILE), DIGESTS))


class UnreadablePlanError(ValueError):
    """A reply holds no plan that can be followed; the message says what is missing."""


class Step(NamedTuple):
    """A step of a plan."""

    text: str
    prompt: str | None
    """None for a step that is text alone."""


@dataclass(frozen=True)
class ThinkerPlanner:
    """How the planner is asked, and its reply read."""

    wording: ThinkerWording
    attempts: int
    """Most replies until one can be read."""
    max_steps: int
    loads: Callable[[str], Any] | None = field(default=None, compare=False)
    """Reads JSON in official mode; None in corrected mode."""
    official: bool = False

    @property
    def sees_images(self) -> bool:
        """Whether the images of a question are shown."""
        return not self.official

    def turns(self, turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
        """Return the one turn that the planner is asked: a conversation inside a prompt.

        In official mode the text of the last turn alone.
        """
        asked = _only_text(turns[-1].content) if self.official else _in_one(turns)
        template = self.wording.plan
        question: list[Text | Image] = []
        for segment in asked:
            if isinstance(segment, Text):
                question.append(Text(segment.text.replace(_HINT, "")))
            else:
                question.append(segment)
                template = self.wording.plan_with_images
        before, _, after = template.partition(_ASKED)
        content = join_texts((Text(before), *question, Text(after)))
        return (Turn("user", content),)

    def read(
        self, replies: Sequence[Outcome[Draft]], query: Query
    ) -> Outcome[Draft] | None:
        """Return the plan in the last of all replies so far; None to ask once more.

        A failure where the last that may be asked for cannot be read.
        """
        last = replies[-1]
        # A reply that was cut inside a thought is one that cannot be read.
        if not isinstance(last, Result) and not _is_cut(last):
            return last
        is_last = len(replies) >= self.attempts
        if self.official:
            content = self._parse(last)
            is_followed = is_last or _is_accepted(content)
            return self._as_program(content) if is_followed else None
        try:
            steps = plan_in(_reply_of(last), self.max_steps)
        except UnreadablePlanError as error:
            if not is_last:
                return None
            times = f"{len(replies)} replies" if len(replies) > 1 else "the reply"
            return Failure(f"no plan can be read in {times} of the planner: {error}")
        return Result(_draft_of(steps, query.wants_images))

    def _parse(self, reply: Outcome[Draft]) -> Any:
        assert self.loads is not None
        text = reply.value.text if isinstance(reply, Result) else ""
        return parse_as_program(text, self.loads)

    def _as_program(self, content: Any) -> Outcome[Draft]:
        """Return a plan as the program follows it, or the failure in which it ends.

        What the plan alone shows to fail is not begun.
        """
        if not isinstance(content, dict):
            return Failure("the released program finds no plan in any reply of the planner")
        texts: list[str] = []
        prompts: list[str] = []
        try:
            steps = list(content[_PLAN])
            for step in steps:
                prompts.append(_text(step[_PROMPT]))
                text = step[_TEXT]
                has_text = text and text != "None"
                texts.append(_text(text if has_text else step[_INSTRUCTION]))
        except (TypeError, KeyError, IndexError) as error:
            return Failure(f"the released program ends in an error at the plan: {error!r}")
        if len(steps) > self.max_steps:
            return Failure(
                f"the plan has {len(steps)} steps; max_steps is {self.max_steps}"
            )
        requests: list[ImageRequest] = []
        for number, prompt in enumerate(prompts, start=1):
            # The program's own seeds.
            requests.append(ImageRequest(prompt=prompt, seed=100 * number))
        return Result(Draft((Text("".join(texts)), *requests)))


def _draft_of(steps: Iterable[Step], draws: bool) -> Draft:
    """Return the answer that a plan describes, with its images if any are wanted."""
    segments: list[Text | ImageRequest] = []
    for step in steps:
        if step.text:
            segments.append(Text(step.text))
        if step.prompt is not None and draws:
            segments.append(ImageRequest(prompt=step.prompt))
    return Draft(tuple(segments) or (Text(""),))


def _only_text(content: Content) -> Content:
    """Return all texts as one, without the images among them."""
    texts = [segment.text for segment in content if isinstance(segment, Text)]
    return (Text("".join(texts)),)


def _in_one(turns: Sequence[Turn]) -> Content:
    """Return the content of all turns, a blank line between them."""
    content: list[Text | Image] = []
    for turn in turns:
        if content:
            content.append(Text("\n\n"))
        content += turn.content
    return tuple(content)


def _is_cut(outcome: Outcome[Any]) -> bool:
    """Return whether a failure is that of a reply which was cut inside a thought."""
    return isinstance(outcome, Failure) and bool(outcome.usage.get(CUT))


def _reply_of(outcome: Outcome[Draft]) -> str:
    """Return the words of a reply without its thought; UnreadablePlanError without any."""
    if not isinstance(outcome, Result):
        raise UnreadablePlanError(getattr(outcome, "reason", "there is no reply"))
    reply = outcome.value.reply
    if reply.unfinished:
        raise UnreadablePlanError(f"the reply {UNFINISHED}")
    return reply.text


def plan_in(reply: str, max_steps: int) -> list[Step]:
    """Return the steps of the plan in a reply; UnreadablePlanError says what is missing.

    A step needs a text or a prompt, and there may be `max_steps` of them.
    """
    plans = statements_of(reply, _PLAN)
    if len(plans) != 1 or not isinstance(plans[0], list) or not plans[0]:
        raise UnreadablePlanError(f"the reply has no list {_PLAN!r}: {reply[:200]!r}")
    if len(plans[0]) > max_steps:
        raise UnreadablePlanError(
            f"the plan has {len(plans[0])} steps; max_steps is {max_steps}"
        )
    steps = []
    for number, step in enumerate(plans[0], start=1):
        if not isinstance(step, dict):
            raise UnreadablePlanError(f"step {number} is {step!r}, no object")
        text = _text_of(step, _TEXT, number) or _text_of(step, _INSTRUCTION, number)
        prompt = _text_of(step, _PROMPT, number)
        if not text and not prompt:
            raise UnreadablePlanError(f"step {number} has neither text nor prompt")
        steps.append(Step(text, prompt or None))
    return steps


def _text_of(step: Mapping[str, Any], key: str, number: int) -> str:
    """Return the text under a key, empty for null; UnreadablePlanError for other things."""
    value = step.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or _RUN_TOGETHER in value:
        raise UnreadablePlanError(f"{key} of step {number} is {value!r}, no text")
    text = value.strip()
    return "" if text.lower() in ("none", "null") else text


def parse_as_program(text: str, loads: Callable[[str], Any]) -> Any:
    """Return the data in a reply as `parse_llm_json` of UEval/utils.py does, or None."""
    answer = _ANSWER.search(text)
    try:
        return loads(answer.group(1).strip() if answer else text)
    except Exception:
        # As there: whatever the parser raises.
        return None


def _is_accepted(content: Any) -> bool:
    """Return whether the program takes a plan without asking again."""
    try:
        for step in content[_PLAN]:
            # It takes none that lacks one of them.
            fields = {key: step[key] for key in (_PROMPT, _TEXT, _INSTRUCTION)}
            text = fields[_TEXT]
            if text is not None and _RUN_TOGETHER in text:
                return False
    except (TypeError, KeyError, IndexError):
        return False
    return True


def _text(value: Any) -> str:
    """Return the value as the program uses it; TypeError where it is no text."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


_UNSAID: Any = object()


@dataclass(slots=True)
class _Said:
    """What the critic said last, as the program remembers it."""

    prompt: Any = _UNSAID
    success: Any = _UNSAID


@dataclass(frozen=True)
class StepReview(RedrawingReview):
    """Has the image of a step drawn again while the critic does not pass it.

    The last one that may be drawn stays without being looked at.
    """

    wording: str
    most_tries: int
    attempts: int
    """How often the critic is asked about one image until a reply can be read."""
    loads: Callable[[str], Any] | None = field(default=None, compare=False)
    """Reads JSON in official mode; None in corrected mode."""
    official: bool = False
    said: _Said = field(default_factory=_Said, compare=False)

    @property
    def tries(self) -> int:
        """Most images drawn in one place."""
        return self.most_tries

    @property
    def asks(self) -> int:
        """How often the critic is asked about one image, at most."""
        return self.attempts

    @property
    def looks(self) -> int:
        """How often the critic is asked about one place, at most."""
        return (self.tries - 1) * self.asks

    def of_answer(self) -> Self:
        """Return a review that remembers what the critic says of one answer alone."""
        return replace(self, said=_Said())

    def _is_judged(self, tries: Sequence[Try]) -> bool:
        return len(tries) < self.tries

    def _question(
        self, tries: Sequence[Try], seeded: bool, before: Image | None, ask: int
    ) -> StageInput:
        request = tries[-1].request
        image = tries[-1].image
        assert image is not None
        text = self._text(tries[0].request.prompt or "", request.prompt or "")
        turn = Turn("user", (before or WHITE, image, Text(text)))
        seed = derived_seed(request.seed or 0, "critic", 0, ask) if seeded else None
        return Request((turn,), seed)

    def _text(self, original: str, rewritten: str) -> str:
        if self.official:
            asked = self.wording.replace(_ORIGINAL, original)
            return asked.replace(_REWRITTEN, rewritten)
        marks = {_ORIGINAL.strip("{}"): original, _REWRITTEN.strip("{}"): rewritten}
        return fill_template(self.wording, marks)

    def _verdict(self, outcome: Outcome[Any]) -> Verdict:
        if not isinstance(outcome, Result):
            return Verdict(reason=outcome.reason)
        if self.official:
            return self._as_program(outcome.value.text)
        reply = outcome.value.reply
        if reply.unfinished:
            return Verdict(reason=f"the reply {UNFINISHED}")
        return verdict_in(reply.text)

    def _as_program(self, reply: str) -> Verdict:
        assert self.loads is not None
        content = parse_as_program(reply, self.loads)
        try:
            # In this order, as there: where the second is missing, it is an earlier one's.
            self.said.prompt = content[_REFINED]
            self.said.success = content[_SUCCESS]
        except (TypeError, KeyError, IndexError):
            return Verdict(reason=f"the reply has no verdict: {reply[:200]!r}")
        if isinstance(self.said.prompt, str) and isinstance(self.said.success, bool):
            return Verdict(float(self.said.success), prompt=self.said.prompt)
        return Verdict(reason=f"the reply has no verdict: {reply[:200]!r}")

    def _settle(self, tries: Sequence[Try]) -> Failure | None:
        """In official mode, take what was said last, be it of another image."""
        if not self.official:
            return None
        if self.said.success is _UNSAID:
            return Failure(
                f"the released program has no verdict: {tries[-1].verdict.reason}"
            )
        passed = bool(self.said.success)
        prompt = self.said.prompt
        if not passed and not isinstance(prompt, str):
            return Failure(f"the released program would draw from {prompt!r}")
        why = f"an earlier verdict, since {tries[-1].verdict.reason}"
        refined = prompt if isinstance(prompt, str) else ""
        tries[-1].verdict = Verdict(float(passed), why, refined)
        return None

    def _falls_short(self, tries: Sequence[Try]) -> bool:
        value = tries[-1].verdict.value
        return value is not None and value < _PASSED and len(tries) < self.tries

    def _again(self, tries: Sequence[Try]) -> ImageRequest:
        """Return the next request: the image before stays that of the last step."""
        first = tries[0].request
        prompt = tries[-1].verdict.prompt or first.prompt
        if self.official:
            seed = None if first.seed is None else first.seed + len(tries)
        else:
            seed = derived_seed(first.seed or 0, "", 0, len(tries))
        return replace(first, prompt=prompt, seed=seed)

    def _choose(self, tries: Sequence[Try]) -> Try:
        """Return the last that was drawn."""
        return next(tried for tried in reversed(tries) if tried.image)

    def _end_by_drawing(self, drawings: Sequence[Outcome[Any]]) -> Skip | Failure | None:
        if not self.official:
            return super()._end_by_drawing(drawings)
        lost = (one for one in drawings if isinstance(one, Skip | Failure))
        return next(lost, None)

    def _end_by_look(self, outcomes: Sequence[Outcome[Any]]) -> Failure | None:
        return super()._end_by_look([one for one in outcomes if not _is_cut(one)])
