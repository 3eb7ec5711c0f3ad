"""Queries, documents and a judge with scripted replies, for the judging tests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from contents import query_of

from plait.cluster.walks import drive
from plait.generators.base import (
    Failure,
    Fault,
    Job,
    Kind,
    Outcome,
    Placement,
    Result,
    StageSpec,
)
from plait.generators.document import (
    Content,
    Document,
    Draft,
    Image,
    Query,
    Request,
    Score,
    Text,
)
from plait.scorers.judging.judge import RubricJudge
from plait.scorers.judging.resolve import JudgeSettings
from plait.scorers.judging.rubrics import OWN

STAND_IN = '''
SA_SYSTEM_PROMPT = """Story. Reply with ### Score
and a number."""
PBL_SYSTEM_PROMPT = """Method."""
MSR_PROMPT = """Problem."""


def get_prompt(data_id):
    if "SA" in data_id:
        return SA_SYSTEM_PROMPT + "# Q\\n{question}\\n# A\\n{answer}\\n# F\\n"
    elif "PBL" in data_id:
        return PBL_SYSTEM_PROMPT + "# Q\\n{question}\\n# A\\n{answer}\\n# F\\n"
    elif "MSR" in data_id:
        return MSR_PROMPT + "# Q\\n{question}\\n# A\\n{answer}\\n# T\\n{gt_answer}\\n# F\\n"
    else:
        print("?")
'''
"""A prompts.py of the released one's shape, in our own words."""

STAND_IN_TEXTS = {
    "SA": "Story. Reply with ### Score\nand a number.# Q\n{question}\n# A\n{answer}\n# F\n",
    "PBL": "Method.# Q\n{question}\n# A\n{answer}\n# F\n",
    "MSR": "Problem.# Q\n{question}\n# A\n{answer}\n# T\n{gt_answer}\n# F\n",
}


def stand_in_digests() -> dict[str, str]:
    """Digests that replace the released ones."""
    return {k: hashlib.sha256(t.encode()).hexdigest() for k, t in STAND_IN_TEXTS.items()}


def picture(name: str) -> Image:
    """An image that is known by its bytes alone."""
    return Image.of(name.encode())


def sample(
    id: str = "SA-1", *question: str | Image, truth: Document | None = None
) -> Query:
    question = question or ("Once upon a time.", picture("q0"))
    category = id.partition("-")[0]
    return query_of(*question, id=id, category=category, reference=truth)


def chat_spec(**about: Any) -> StageSpec:
    fields = {"name": "chatty", "kind": Kind.DRAFT, "target": "stages:Writer"} | about
    return StageSpec(**fields)


def judge_of(stage: StageSpec | None = None, **settings: Any) -> RubricJudge:
    return JudgeSettings(**settings).judge("judge:chatty", stage or chat_spec())


Reply = str | Outcome[Draft]


def converse(
    asking: RubricJudge, sample: Query, document: Document, replies: Sequence[Reply]
) -> tuple[list[Job], Outcome[Score]]:
    """A judge's jobs when it is given `replies`, and its outcome."""
    given = iter(replies)

    def replied(inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        return [_outcome(next(given)) for _ in inputs]

    made = through(asking, sample, document, replied)
    assert next(given, None) is None, "the judge asked less often than expected"
    return made


def through(
    asking: RubricJudge, sample: Query, document: Document, stage: Callable[..., Any]
) -> tuple[list[Job], Outcome[Score]]:
    """The same with a real stage, called directly."""
    jobs: list[Job] = []

    def answered(pending: Sequence[Job]) -> list[Outcome[Any]]:
        jobs.extend(pending)
        return stage([job.input for job in pending])  # type: ignore[no-any-return]

    outcome = drive(asking.judge(sample, document), answered)
    return jobs, outcome


def _outcome(reply: Reply) -> Outcome[Draft]:
    return Result(Draft((Text(reply),))) if isinstance(reply, str) else reply


def shown(request: Request | Content) -> str:
    """A request as text, with the bytes of each (named) image in brackets."""
    parts = request
    if isinstance(request, Request):
        parts = tuple(s for t in request.turns for s in t.content)
    return "".join(
        s.text if isinstance(s, Text) else f"[{s.read().decode()}]" for s in parts
    )


def reply_of(
    criteria: Sequence[str], values: Sequence[int | str], score: int | str | None = None
) -> str:
    """A reply in the form our rubrics ask for."""
    rows = zip(criteria, values, strict=True)
    lines = [f"{i}. {name}: {value}" for i, (name, value) in enumerate(rows, 1)]
    end = [] if score is None else ["### Score", str(score)]
    return "\n".join(["### Feedback", "Some words.", "### Verdicts", *lines, *end])


NAMES = [*OWN["SA"].criteria, "Emotional Impact"]
GOOD = reply_of(NAMES, [1, 1, 1, 0, 0, 1, 0], 4)
"""A reply in full."""


class Oracle:
    """A judge without a model; the answer says how it behaves: `!mute`, `!late`, `!no`."""

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        return [self._reply(request) for request in inputs]

    def _reply(self, request: Request) -> Outcome[Draft]:
        prompt = "".join(s.text for s in request.turns[0].content if isinstance(s, Text))
        if "!no" in prompt:
            return Failure("the model refused", Fault.REFUSED)
        mute = "!mute" in prompt or ("!late" in prompt and len(request.turns) == 1)
        text = "A fine answer." if mute else f"### Score\n{1 + prompt.count('good')}"
        return Result(Draft((Text(text),)), {"input_tokens": len(prompt)})


class Halves:
    """Scores 3, and 4.5 under the stand-in: halves only the released reader takes."""

    kind = "draft"
    placement = Placement(num_cpus=0.1, batch_size=4)

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        return [Result(Draft((Text(f"### Score\n{self._score(r)}"),))) for r in inputs]

    def _score(self, request: Request) -> float:
        prompt = "".join(s.text for s in request.turns[0].content if isinstance(s, Text))
        return 4.5 if "# Q\n" in prompt else 3
