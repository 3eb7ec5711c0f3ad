"""Every judge is read by its reply, and never by what it thought before it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from contents import document, query_of
from judging_helpers import GOOD, NAMES, STAND_IN_TEXTS, chat_spec, picture, reply_of
from specv_helpers import CHECKLIST, PROMPTS, REPLIES
from trial import as_asked, painter, sample, system_of_stages, writer
from unison_helpers import KINDS, WORDING, WORST_AND_BEST, session

from plait.cluster.local import LocalStages
from plait.cluster.walks import drive
from plait.generators.base import Job, Outcome, Result, Unread, Unscored, Walk
from plait.generators.catalogue import Named, by_name
from plait.generators.content import EMPTY_REPLY
from plait.generators.document import Draft, Image, ImageRequest, Text, TransformRequest
from plait.generators.system import TRIES, Repetition
from plait.generators.thoughts import UNFINISHED
from plait.pipelines.critic import CriticReview, CriticSettings
from plait.scorers import resolve_scorer
from plait.scorers.answers import CHOICE, KNOWN, LETTER, MOVES
from plait.scorers.judging.aspects import ASPECTS, AspectsJudge
from plait.scorers.judging.criteria import ABOUTS, CriteriaJudge
from plait.scorers.judging.gedit import GeditJudge
from plait.scorers.judging.imgedit import ASPECTS as EDIT_MARKS
from plait.scorers.judging.imgedit import EDIT_TYPE, ImgEditJudge
from plait.scorers.judging.isg import BLOCK, IMAGE, IsgJudge
from plait.scorers.judging.judge import RubricJudge
from plait.scorers.judging.mmie import Released
from plait.scorers.judging.resolve import JudgeSettings
from plait.scorers.judging.rubrics import Rubric
from plait.scorers.judging.specifications import (
    SPECIFICATIONS,
    TRACK,
    SpecificationsJudge,
)
from plait.scorers.judging.unison import UnisonJudge
from plait.scorers.pairwise import resolve_protocol

MARKS = {
    "think": "<think>\n{}\n</think>\n\n",
    "thinking": "<thinking>{}</thinking>",
    "never opened": "{}\n</think>\n\n",
    "magistral": "[THINK]{}[/THINK]",
    "kimi": "\u25c1think\u25b7{}\u25c1/think\u25b7",
    "seed": "<seed:think>{}</seed:think>",
    "harmony": "<|channel|>analysis<|message|>{}<|end|><|start|>assistant"
    "<|channel|>final<|message|>",
}
MODES = ("corrected", "official")
ANSWER = document("Once", picture("a0"), "the end")
TRUTH = document("So", picture("t0"), "it ended")


def rubric(mode: str) -> Walk[Any]:
    judge = JudgeSettings().judge("judge:chatty", chat_spec())
    if mode == "official":
        texts = {k: Rubric(f"official:{k}", t, "") for k, t in STAND_IN_TEXTS.items()}
        about = {"examiner": Released(texts), "retries": 0}
        judge = RubricJudge(name="judge:chatty", stage=chat_spec(), **about)
    return judge.judge(query_of("Draw."), ANSWER)


def criteria(mode: Any) -> Walk[Any]:
    judge = CriteriaJudge(name="criteria:chatty", stage=chat_spec(), mode=mode)
    about = {ABOUTS["text"]: '["It rhymes"]', ABOUTS["image"]: '["It is red"]'}
    return judge.judge(query_of("Draw.", metadata=about, field="open"), ANSWER)


def isg(level: str) -> Callable[[Any], Walk[Any]]:
    def walk(mode: Any) -> Walk[Any]:
        judge = IsgJudge(name=f"isg-{level}:chatty", stage=chat_spec(), mode=mode)
        image = {"id": 0, "image": "<gen_img1>", "Question": "Red?", "Preliminary": []}
        ends = {"subject": "<gen_img1>", "object": "<query_img1>", "Question": "Alike?"}
        # Officially every level asks about images, too.
        images = [image] if level == "image" else []
        about = {IMAGE: json.dumps(images), BLOCK: json.dumps([ends])}
        query = query_of("Draw.", picture("q0"), metadata=about, reference=TRUTH)
        return judge.judge(query, ANSWER)

    return walk


def aspects(mode: Any) -> Walk[Any]:
    judge = AspectsJudge(name="aspects:chatty", stage=chat_spec(), mode=mode)
    return judge.judge(query_of("Tell."), document("Once."))


def specifications(mode: Any) -> Walk[Any]:
    wording = PROMPTS if mode == "official" else SpecificationsJudge.own
    about = {"stage": chat_spec(), "mode": mode, "wording": wording}
    judge = SpecificationsJudge(name="specifications:chatty", **about)
    metadata = {SPECIFICATIONS: json.dumps(CHECKLIST), TRACK: "interleave"}
    return judge.judge(query_of("Draw.", metadata=metadata), ANSWER)


def edits(judge_class: Any) -> Callable[[Any], Walk[Any]]:
    def walk(mode: Any) -> Walk[Any]:
        judge = judge_class(name="edits:chatty", stage=chat_spec(), mode=mode)
        about = {EDIT_TYPE: "add"}
        query = query_of(picture("q0"), "Make it blue.", metadata=about)
        return judge.judge(query, document(picture("a0")))

    return walk


def unison(kind: str) -> Callable[[Any], Walk[Any]]:
    def walk(mode: Any) -> Walk[Any]:
        wording = WORDING if mode == "official" else UnisonJudge.own
        about = {"stage": chat_spec(), "mode": mode, "wording": wording}
        return UnisonJudge(name="unison:chatty", **about).judge(*session(kind))

    return walk


def pairwise(name: str) -> Callable[[Any], Walk[Any]]:
    def walk(mode: Any) -> Walk[Any]:
        protocol = resolve_protocol(name, mode)
        return protocol.judge(query_of("Draw."), ANSWER, document("Other."), chat_spec())

    return walk


def critic(_: str) -> Walk[Any]:
    review = CriticReview(CriticSettings(tries=2), "reply")
    about = {"draft": writer(), "render": painter(), "max_images": 1}
    system = system_of_stages(name="s", critic=chat_spec(), review=review, **about)
    return system.answer(sample(0), Repetition(as_asked, seed=5))


def aspect_scores(value: int) -> str:
    return json.dumps({name: {"Score": value} for name in ASPECTS})


def marks_of(mark: int) -> str:
    return "\n".join(f"{name}: {mark}" for name in EDIT_MARKS["add"])


PAIRS = {
    "creation": "My final verdict is: [[A>>B]]",
    "mllm-bench": "Answer1",
    "mmrb2": '{"better_response": "A"}',
    "opening": "A is better",
    "probench": "[[A>>B]]",
    "unified-reward-think": "<answer>Image 1 is better</answer>",
}
OTHER_WAY = str.maketrans("AB12", "BA21")
JUDGES: dict[str, tuple[Callable[[Any], Walk[Any]], str, str]] = {
    "rubric": (rubric, reply_of(NAMES, [0] * 7, 0), GOOD),
    "criteria": (criteria, '{"criteria_met": false}', '{"criteria_met": true}'),
    "isg-image": (isg("image"), '{"Judge": "No"}', '{"Judge": "Yes"}'),
    "isg-block": (isg("block"), '{"Judge": 2}', '{"Judge": 9}'),
    "isg-holistic": (isg("holistic"), '{"overall_score": 2}', '{"overall_score": 9}'),
    "aspects": (aspects, aspect_scores(1), aspect_scores(9)),
    "specifications": (specifications, REPLIES[1], REPLIES[0]),
    "gedit": (edits(GeditJudge), '{"score": [1, 2]}', '{"score": [8, 9]}'),
    "imgedit": (edits(ImgEditJudge), marks_of(1), marks_of(5)),
    **{f"unison-{kind}": (unison(kind), *WORST_AND_BEST[kind]) for kind in KINDS},
    **{name: (pairwise(name), r.translate(OTHER_WAY), r) for name, r in PAIRS.items()},
}
"""By judge: its walk by mode, and two replies that it reads differently."""
EVERY = [*((name, mode) for name in JUDGES for mode in MODES), ("critic", "corrected")]
JUDGES["critic"] = critic, '{"score": 1}', '{"score": 9}'


def drafted(reply: str) -> Outcome[Draft]:
    return Result(Draft((Text(reply),)))


def judged(asked: Sequence[Job]) -> list[Any]:
    """The jobs of judgements; a critic's are none."""
    return [job for job in asked if job.readable]


def replied(walk: Walk[Any], reply: str) -> tuple[list[Job], Any]:
    """All questions of a walk, each of which is given this reply, and its outcome."""
    asked: list[Job] = []

    def outcome(job: Job) -> Outcome[Any]:
        if isinstance(job.input, ImageRequest | TransformRequest):
            return Result(Image.of(str(job.input).encode()))
        if job.spec == writer():
            return Result(Draft((ImageRequest("cat"),)))
        asked.append(job)
        return drafted(reply)

    def outcomes(jobs: Sequence[Job]) -> list[Outcome[Any]]:
        return [outcome(job) for job in jobs]

    return asked, drive(walk, outcomes)


def test_every_protocol_and_judge_is_here() -> None:
    assert {*by_name(Named.PAIRWISE)} <= {*JUDGES}


@pytest.mark.parametrize("marks", MARKS.values(), ids=MARKS)
@pytest.mark.parametrize(("name", "mode"), EVERY)
def test_a_judge_is_read_by_its_reply(name: str, mode: str, marks: str) -> None:
    walk, thought, reply = JUDGES[name]
    asked, outcome = replied(walk(mode), reply)
    assert replied(walk(mode), thought)[1] != outcome
    thinking, same = replied(walk(mode), marks.format(thought) + reply)
    assert same == outcome
    assert [job.key for job in thinking] == [job.key for job in asked]
    assert all(
        job.readable(drafted(marks.format(thought) + reply)) for job in judged(asked)
    )


def reasons(outcome: Any) -> list[str]:
    """Why there is no verdict."""
    if isinstance(outcome, Unscored):
        assert isinstance(outcome, Unread)
        return [outcome.reason]
    if tries := outcome.notes.get(TRIES):
        assert [tried["verdict"] for tried in tries] == [None]
        return [tried["reason"] for tried in tries]
    readings = outcome.value.readings
    assert all(isinstance(reading.outcome, Unread) for reading in readings)
    return [reading.outcome.reason for reading in readings]


@pytest.mark.parametrize(("name", "mode"), EVERY)
def test_a_reply_that_ends_inside_its_thought_is_unread(name: str, mode: str) -> None:
    walk, thought, _ = JUDGES[name]
    asked, outcome = replied(walk(mode), f"<think>{thought}")
    found = reasons(outcome)
    assert found
    assert all(UNFINISHED in reason for reason in found)
    assert not any(job.readable(drafted(f"<think>{thought}")) for job in judged(asked))
    again = [job.input for job in asked if len(job.input.turns) > 2]
    if mode == "corrected" and name != "critic":
        assert len(again) == len(asked) / 2
    for request in again:
        assert request.turns[-2].content == (Text(EMPTY_REPLY),)


@pytest.mark.parametrize("name", [n for n in JUDGES if n != "critic"])
def test_a_follow_up_repeats_the_reply_without_its_thought(name: str) -> None:
    walk, thought, _ = JUDGES[name]
    plain, _ = replied(walk("corrected"), "I cannot tell.")
    thinking, _ = replied(walk("corrected"), f"<think>{thought}</think>\nI cannot tell.")
    assert len(plain) == len({job.key for job in plain}) > 1
    assert [job.key for job in thinking] == [job.key for job in plain]


CHOSEN = '<FINAL_ANSWER_JSON>{{"choice": {}}}</FINAL_ANSWER_JSON>'
MOVED = '<ANSWER_JSON>["{}"]</ANSWER_JSON>'
KNOWN_ANSWERS = {
    LETTER: ("B", "The answer is A.", "B"),
    CHOICE: (1, CHOSEN.format(0), CHOSEN.format(1)),
    MOVES: (["up"], MOVED.format("left"), MOVED.format("up")),
}
"""By form: the truth, and a wrong and a right answer."""


@pytest.mark.parametrize("marks", MARKS.values(), ids=MARKS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", KNOWN_ANSWERS)
def test_a_known_answer_is_read_after_the_thought(form: str, mode: str, marks: str) -> None:
    truth, thought, right = KNOWN_ANSWERS[form]
    about = json.dumps({"form": form, "truth": truth, "of": 4 if form == LETTER else 2})
    query = query_of("Which?", metadata={KNOWN: about})
    scorer = resolve_scorer("known-answer", "tiny", {"mode": mode})

    def outcome(text: str) -> Any:
        return drive(scorer.judge(query, document(text)), LocalStages().outcomes)

    assert outcome(marks.format(thought) + right).value.value == 1
    cut = outcome(f"<think>{right}")
    if mode == "official":
        assert cut.value.value == 0
    else:
        assert isinstance(cut, Unscored)
        assert UNFINISHED in cut.reason
