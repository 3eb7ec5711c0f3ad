"""No reply of a model ends a run: readers of replies read it, or say why they cannot."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from contents import document, query_of
from hypothesis import given, settings
from hypothesis import strategies as st
from judging_helpers import chat_spec, picture
from specv_helpers import CHECKLIST, PROMPTS
from unison_helpers import KINDS, WORDING, session

from plait.cluster.walks import drive
from plait.generators.base import Job, Outcome, Result
from plait.generators.document import (
    Candidate,
    Document,
    Draft,
    ImageRequest,
    Query,
    Text,
    TransformRequest,
    Turn,
)
from plait.pipelines.critic import verdict_in
from plait.scorers.answers import AnswerReader
from plait.scorers.base import admit
from plait.scorers.judging.aspects import AspectsJudge
from plait.scorers.judging.criteria import ABOUTS, CriteriaJudge
from plait.scorers.judging.gedit import GeditJudge
from plait.scorers.judging.imgedit import EDIT_TYPE, ImgEditJudge
from plait.scorers.judging.isg import BLOCK, IMAGE, IsgJudge
from plait.scorers.judging.judge import ChatJudge, RubricJudge
from plait.scorers.judging.mmie import Corrected, Released
from plait.scorers.judging.rubrics import OWN
from plait.scorers.judging.sources import Mode
from plait.scorers.judging.specifications import (
    SPECIFICATIONS,
    TRACK,
    SpecificationsJudge,
)
from plait.scorers.judging.unison import UnisonJudge
from plait.scorers.pairwise import readers

pytestmark = pytest.mark.contract

DEEP = 100_000
LONG = "1" * 401
KEYS = ("criteria_met", "Judge", "overall_score", "Correctness", "Score", "scores", "score")
PIECES = (
    *(f'"{key}": ' for key in KEYS),
    *"{}[],:()\"'\\#ABcI\n",
    *("**", "```json\n", "```", "/*", "true", "None", "yes", "not", "or", "if", "wait"),
    *(LONG, f"-{LONG}", f"{LONG}.5", "1e999", "-1e999", "NaN", "Infinity", "1_0", "\uff18"),
    *(". ", "> ", "\\ud800", "\x00", "\ufeff", "\\boxed{", "answer is ", "\u9009"),
    *("[[A>>B]]", "Score", "Final Verdict is:", "Response A Visual Factuality Score: "),
    *("<think>", "</think>", "<answer>", "<ANSWER_JSON>", "</ANSWER_JSON>", '"choice": '),
    *("<FINAL_ANSWER_JSON>", "</FINAL_ANSWER_JSON>", "### Score\n", "**Verdicts**\n"),
    *("better_response", "Tie", '"id": ', '"answer": ', '{"id": 1, "answer": "Yes"}'),
)
EXTREMES = (
    *("{" * DEEP, "[" * DEEP, '{"a":' * DEEP, "[" * DEEP + "]" * DEEP),
    *("The answer is A. " * (DEEP // 20), "A) x\nB) y\n" * (DEEP // 20)),
    *('{"criteria_met":' * (DEEP // 5), '{"Judge":[' + "[" * 900 + "]" * 900 + "]}"),
    *('{"better_response":' + "[" * 900 + "]" * 900 + "}", "1" * 5000),
    *(f'{{"{key}": {n}}}' for key in KEYS for n in (LONG, f"-{LONG}", "9" * 5000, "NaN")),
    *(f'{{"{key}": {{"Score": {n}}}}}' for key in KEYS for n in (LONG, "Infinity")),
    *(f'{{"{key}": {v}}}' for key in KEYS for v in ("{}", "[]", '"\\ud800"', "[[1]]")),
    '{"\\ud800": {"Score": 4}}',
    *(f'[{{"id": {n}, "answer": {n}}}]' for n in (LONG, "9" * 5000, "NaN", "[1]", "{}")),
    '[{"id": 1, "answer": "\\ud800"}]',
    f'[{{"id": 1, "answer": {"[" * 900 + "]" * 900}}}]',
    '[{"id": 1, "answer": ' + '"a" ' * 2000 + "}]",
    f'{{"overall_score": 5, "coherence": {LONG}, "content_accuracy": "\\udfff"}}',
    f"### Score\n{LONG}",
    f"Response A Visual Factuality Score: {LONG}\nResponse B Visual Factuality Score: 1e9",
    f'<FINAL_ANSWER_JSON>{{"choice": {LONG}}}</FINAL_ANSWER_JSON>',
    f"<FINAL_ANSWER_JSON>{'[' * DEEP}</FINAL_ANSWER_JSON>",
    f"<ANSWER_JSON>{'[' * DEEP}</ANSWER_JSON>",
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=8,
)
REPLIES = (
    st.text()
    | st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
    | VALUES.map(json.dumps)
    | st.tuples(st.text(max_size=9), VALUES.map(json.dumps), st.text(max_size=9)).map(
        "".join
    )
)


def for_any_reply(takes: Callable[[str], None]) -> None:
    settings(max_examples=50, deadline=None, derandomize=True)(given(REPLIES)(takes))()
    for reply in EXTREMES:
        takes(reply)


def query() -> Query:
    block = {"subject": "<query_text1>", "object": "<gen_text1>", "Question": "?"}
    image = {"image": "<gen_img1>", "Question": "?", "id": 1, "Preliminary": []}
    metadata = {
        ABOUTS["text"]: json.dumps(["c"]),
        BLOCK: json.dumps([block]),
        IMAGE: json.dumps([image]),
        SPECIFICATIONS: json.dumps(CHECKLIST),
        TRACK: "interleave",
    }
    return query_of("Q", metadata=metadata, reference=ANSWER)


ANSWER = document("One.", picture("a0"))
MODES: tuple[Mode, ...] = ("corrected", "official")
JUDGES: dict[str, Any] = {
    "criteria:any": CriteriaJudge,
    "isg-block:any": IsgJudge,
    "isg-image:any": IsgJudge,
    "isg-holistic:any": IsgJudge,
    "specifications:any": SpecificationsJudge,
    "gedit:any": GeditJudge,
    "imgedit:any": ImgEditJudge,
    **{f"unison:{kind}": UnisonJudge for kind in KINDS},
}


def judge_of(name: str, mode: Mode) -> ChatJudge:
    about: dict[str, Any] = {"name": name, "stage": chat_spec()}
    if name == "judge:any":
        examiner = Corrected(OWN, None) if mode == "corrected" else Released(OWN)
        return RubricJudge(examiner=examiner, **about)
    if name == "aspects:any":
        return AspectsJudge(mode=mode, **about)
    scale = "0-100"
    if name.startswith("isg") or name in EDITS:
        scale = JUDGES[name].scale_of(name, mode)
    if name == "specifications:any":
        about["wording"] = PROMPTS if mode == "official" else SpecificationsJudge.own
    if JUDGES[name] is UnisonJudge and mode == "official":
        about["wording"] = WORDING
    return JUDGES[name](mode=mode, scale=scale, **about)


EDITS = ("gedit:any", "imgedit:any")


def _told(job: Job, reply: str) -> Outcome[Any]:
    """The reply, and of a stage that shows images the image."""
    shows = isinstance(job.input, ImageRequest | TransformRequest)
    return Result(ANSWER.images[0] if shows else Draft((Text(reply),)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [*JUDGES, "aspects:any", "judge:any"])
def test_every_judge_takes_any_reply(name: str, mode: Mode) -> None:
    """What comes of it can be written, and its value is a finite number of the scale."""
    judge, asked = judge_of(name, mode), query()
    if name in EDITS:
        turns = (Turn("user", (picture("q0"), Text("Make it blue."))),)
        asked = replace(asked, turns=turns, metadata={EDIT_TYPE: "add"})
    # In official mode images are squeezed first, by a stage of its own.
    answer = document("One.") if name == "aspects:any" else ANSWER
    if name.startswith("unison:"):
        asked, answer = session(name.removeprefix("unison:"))

    def takes(reply: str) -> None:
        def replied(jobs: Sequence[Job]) -> list[Outcome[Any]]:
            return [_told(job, reply) for job in jobs]

        outcome = admit(drive(judge.judge(asked, answer), replied), judge.scale)
        if isinstance(outcome, Result):
            assert math.isfinite(outcome.value.value)
        parts = outcome.value.parts if isinstance(outcome, Result) else outcome.reason
        json.dumps(parts, allow_nan=False, ensure_ascii=False).encode()

    for_any_reply(takes)


READERS: dict[str, Callable[[str], Any]] = {
    "critic": verdict_in,
    **{
        name: getattr(readers, name)
        for name in ("level", "vote", "marks", "better", "lean")
    },
    "official_creation": readers.official_creation,
    "official_probench": readers.official_probench,
    "official_vote": readers.official_vote,
    "official_marks": readers.official_marks,
    "official_lean": readers.official_lean,
    "official_better": lambda reply: readers.official_better(reply, json.loads),
}


@pytest.mark.parametrize("name", READERS)
def test_every_reader_of_pairs_and_the_critic_take_any_reply(name: str) -> None:
    def takes(reply: str) -> None:
        READERS[name](reply)

    for_any_reply(takes)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", ["letter", "choice", "moves"])
def test_every_reader_of_known_answers_takes_any_answer(form: str, mode: Mode) -> None:
    truth: Any = {"letter": "A", "choice": 1, "moves": ["up"]}[form]
    known = json.dumps({"form": form, "truth": truth, "of": 4})
    reader = AnswerReader(mode=mode)

    def takes(reply: str) -> None:
        (outcome,) = reader([Candidate(Document((Text(reply),)), criteria=known)])
        if isinstance(outcome, Result):
            json.dumps(outcome.value.parts, allow_nan=False, ensure_ascii=False).encode()

    for_any_reply(takes)
