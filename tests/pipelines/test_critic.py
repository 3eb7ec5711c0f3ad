"""The protocol `critic`: what is drawn again, what is kept, and what is written down."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from trial import as_asked, painter, sample, system_of_stages, talk, writer

from plait.cluster.walks import drive
from plait.generators.base import Failure, Fault, Job, Kind, Outcome, Result, Skip
from plait.generators.document import (
    Document,
    Draft,
    Image,
    ImageRequest,
    LogprobsRequest,
    Request,
    Text,
)
from plait.generators.errors import UsageError
from plait.generators.keys import derived_seed
from plait.generators.logprobs import AnswerTokens, Logprobs
from plait.generators.system import TRIES, Repetition, System
from plait.pipelines.critic import CriticReview, CriticSettings, Manner, verdict_in
from plait.pipelines.systems import Models, resolve

REPETITION = Repetition(as_asked, seed=5)
MANNERS: tuple[Manner, ...] = ("probability", "reply")
# Where the verdict is a reply, the drafting stage itself.
CRITICS = {"probability": writer(style="critic"), "reply": writer()}


def system(manner: Manner = "probability", **settings: Any) -> System:
    review = CriticReview(CriticSettings(**settings), manner)
    return system_of_stages(
        name="s",
        draft=writer(),
        render=painter(),
        critic=CRITICS[manner],
        review=review,
        max_images=2,
    )


@dataclass
class Stages:
    """Answers jobs: a draft of as many images, their tries, and the verdicts on them."""

    verdicts: Mapping[str, Sequence[float | Outcome[Any]]]
    """By the prompt of the draft: of an image's tries in turn, or what comes instead."""
    redraws: Mapping[str, Outcome[Any]] = field(default_factory=dict)
    """What a second try gives, where that is no image."""
    amended: str = ""
    steps: list[list[Job]] = field(default_factory=list)
    looks: dict[str, int] = field(default_factory=dict)

    def __call__(self, jobs: Sequence[Job]) -> list[Outcome[Any]]:
        self.steps.append(list(jobs))
        return [self._outcome(job) for job in jobs]

    def _outcome(self, job: Job) -> Outcome[Any]:
        if isinstance(job.input, ImageRequest):
            name = str(job.input.prompt).split()[0]
            if self.looks.get(name, 0) and name in self.redraws:
                return self.redraws[name]
            return Result(Image.of(f"{job.input.prompt} {job.input.seed}".encode()))
        if isinstance(job.input, LogprobsRequest):
            (question,), shown = job.input.question, job.input.shown
        else:
            assert isinstance(job.input, Request)
            *shown, question = job.input.turns[-1].content
            if not shown:
                return Result(Draft(tuple(map(ImageRequest, self.verdicts))))
        assert isinstance(question, Text)
        assert isinstance(shown[0], Image)
        # The next verdict of the image whose prompt the question quotes.
        (name,) = (n for n in self.verdicts if f'"{n}"' in question.text)
        assert shown[0].read().decode().startswith((name, self.amended or name))
        self.looks[name] = self.looks.get(name, 0) + 1
        verdict = self.verdicts[name][self.looks[name] - 1]
        if not isinstance(verdict, float):
            return verdict
        if job.spec == CRITICS["probability"]:
            logprob = math.log(verdict) if verdict else -math.inf
            return Result(Logprobs({"Yes": AnswerTokens((1,), (logprob,))}))
        reply = {"score": 10 * verdict, "refine_prompt": self.amended}
        return Result(Draft((Text(json.dumps(reply)),)))

    @property
    def seeds(self) -> list[int | None]:
        """Of all images that were drawn, in order."""
        inputs = (job.input for step in self.steps for job in step)
        return [i.seed for i in inputs if isinstance(i, ImageRequest)]


def walked(stages: Stages, chain: System, query: Any = None) -> Any:
    return drive(chain.answer(query or sample(0), REPETITION), stages)


def seed_of(image: int, tried: int) -> int:
    first = REPETITION.seed_at(sample(0), image)
    return derived_seed(first, "", 0, tried) if tried else first


UNREAD = {
    "probability": Skip("the image is too large"),
    "reply": Result(Draft((Text("What a lovely cat!"),))),
}


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize(
    ("verdicts", "kept"),
    [
        ((0.75,), 0),
        ((0.25, 0.5), 1),
        ((0.1, 0.4, 0.2), 1),
        ((0.3, 0.3, 0.3), 0),
        # Nothing is made up where there is no verdict, and nothing drawn again.
        ((None,), 0),
        ((0.2, None), 0),
        ((Failure("the reply was blocked", Fault.REFUSED),), 0),
    ],
)
def test_the_best_try_is_kept_and_all_are_written_down(
    manner: Manner, verdicts: tuple[Any, ...], kept: int
) -> None:
    stages = Stages({"cat": [UNREAD[manner] if v is None else v for v in verdicts]})
    outcome = walked(stages, system(manner))
    assert stages.seeds == [seed_of(0, k) for k in range(len(verdicts))]
    assert outcome.value == Document((Image.of(f"cat {seed_of(0, kept)}".encode()),))
    tries = outcome.notes[TRIES]
    numbers = [v if isinstance(v, float) else None for v in verdicts]
    found = [t["verdict"] for t in tries]
    assert found == [n if n is None else pytest.approx(n) for n in numbers]
    assert [t["kept"] for t in tries] == [k == kept for k in range(len(verdicts))]
    assert [t["seed"] for t in tries] == stages.seeds
    assert ["reason" in t for t in tries] == [n is None for n in numbers]


@pytest.mark.parametrize(
    "wrong",
    [{"tries": 0}, {"threshold": 1.5}, {"verdict": "vote"}, {"question": "Is it right?"}],
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=str(*wrong)):
        CriticSettings(**wrong)


def test_all_images_of_a_draft_are_judged_and_drawn_again_together() -> None:
    stages = Stages({"cat": (0.1, 0.9), "dog": (0.8,), "owl": (0.2, 0.3, 0.1)})
    outcome = walked(stages, system())
    assert [len(step) for step in stages.steps] == [1, 3, 3, 2, 2, 1, 1]
    kept = (("cat", 0, 1), ("dog", 1, 0), ("owl", 2, 1))
    assert [i.read().decode() for i in outcome.value.images] == [
        f"{name} {seed_of(image, tried)}" for name, image, tried in kept
    ]
    numbered = [(t["image"], t["try"]) for t in outcome.notes[TRIES]]
    assert numbered == [(1, 1), (1, 2), (2, 1), (3, 1), (3, 2), (3, 3)]
    # They are numbered on in later turns.
    outcome = walked(Stages({"cat": (0.1, 0.9, 0.8)}), system(), talk(0))
    numbered = [(t["image"], t["try"], t["kept"]) for t in outcome.notes[TRIES]]
    assert numbered == [(1, 1, False), (1, 2, True), (2, 1, True)]


def test_a_limit_of_the_answer_is_not_the_critics_and_a_plan_knows_its_stage() -> None:
    """Both are one stage; a verdict that is cut off could not be read."""
    stages, limited = Stages({"cat": (1.0,)}), replace(REPETITION, max_tokens=5)
    drive(system("reply").answer(sample(0), limited), stages)
    inputs = [job.input for jobs in stages.steps for job in jobs]
    assert [i.max_tokens for i in inputs if isinstance(i, Request)] == [5, None]
    renamed = system().with_stages(lambda stage: replace(stage, name="x"))
    assert [stage.name for stage in renamed.stages] == ["x"] * 3


@pytest.mark.parametrize("tries", [1, 2, 4])
def test_settings_bound_the_tries_and_move_the_threshold(tries: int) -> None:
    stages = Stages({"cat": [0.6] * tries})
    walked(stages, system(tries=tries, threshold=0.7))
    assert len(stages.seeds) == stages.looks["cat"] == tries


@pytest.mark.parametrize(
    ("amend", "prompts"), [(True, ["cat", "a red cat"]), (False, 2 * ["cat"])]
)
def test_a_reply_may_amend_the_prompt(amend: bool, prompts: list[str]) -> None:
    stages = Stages({"cat": (0.0, 1.0)}, amended="a red cat")
    outcome = walked(stages, system("reply", amend=amend))
    assert [t["prompt"] for t in outcome.notes[TRIES]] == prompts


def test_an_image_that_is_refused_ends_the_tries() -> None:
    redraws = {"cat": Failure("unsafe", Fault.UNSAFE)}
    outcome = walked(Stages({"cat": (0.1,), "dog": (0.1, 0.2, 0.3)}, redraws), system())
    refused = outcome.notes[TRIES][1]
    assert (refused["image"], refused["try"], refused["reason"]) == (1, 2, "unsafe")
    assert len(outcome.notes[TRIES]) == 2 + 3
    assert outcome.value.images[0] == Image.of(f"cat {seed_of(0, 0)}".encode())


@pytest.mark.parametrize("manner", MANNERS)
def test_what_another_run_may_mend_fails_the_document(manner: Manner) -> None:
    lost = Failure("gone", Fault.DIED)
    for stages in (Stages({"cat": (0.1,)}, {"cat": lost}), Stages({"cat": (lost,)})):
        assert walked(stages, system(manner)) == lost


@pytest.mark.parametrize(
    ("wording", "asked", "answer"),
    [
        ({}, 'Does this figure show "{a} cat"? Please answer Yes or No.', "Yes"),
        ({"question": "Look.", "answer": "It is {}."}, "Look.", "It is {a} cat."),
    ],
)
def test_a_probability_is_that_of_an_answer(
    wording: dict[str, str], asked: str, answer: str
) -> None:
    review, image = CriticReview(CriticSettings(**wording), "probability"), Image.of(b"1")
    wanted = [ImageRequest("{a} cat", seed=1)]
    walk = review.walk(lambda requests: iter(()), writer(), wanted, [Result(image)], "")
    (job,) = next(walk)
    assert job.input == LogprobsRequest((image,), (Text(asked),), (answer,))


@pytest.mark.parametrize(
    ("reply", "value", "prompt"),
    [
        ('{"score": 7, "refine_prompt": " a cat "}', 0.7, "a cat"),
        ('```json\n{"score": 0}\n```', 0.0, ""),
        # As InterleaveThinker's critic replies.
        (
            "<think>Six legs.</think>\n<answer>{'previous_step_success': False, "
            "'refine_prompt': 'a cat with four legs'}</answer>",
            0.0,
            "a cat with four legs",
        ),
        ('<answer>{"previous_step_success": true}</answer>', 1.0, ""),
        *((reply, None, "") for reply in ('{"score": 11}', '{"score": true}')),
        *((reply, None, "") for reply in ('{"score": NaN}', "8 of 10", "")),
        ('{"previous_step_success": "yes"}', 1.0, ""),
        ('<think>{"score": 2}</think>Better: {"score": "8"}', 0.8, ""),
        ('{"score": 2}\n{"score": 8}', None, ""),
        ('{"score": 2, "score": 8}', None, ""),
        ('{"score": "1_0"}', None, ""),
        ("<answer>True</answer>", None, ""),
    ],
)
def test_a_reply_is_read_or_said_to_be_unreadable(
    reply: str, value: float | None, prompt: str
) -> None:
    for text in (reply, Draft((Text(reply),)).reply.text):
        verdict = verdict_in(text)
        assert (verdict.value, verdict.prompt) == (value, prompt)
        assert bool(verdict.reason) == (value is None)


ENDPOINT = "openai:gpt-4o"


@pytest.mark.parametrize(
    ("name", "settings", "manner", "as_stage_of"),
    [
        ("qwen2-vl-7b+sd3@critic", {}, "probability", None),
        ("qwen2-vl-7b+sd3@critic", {"verdict": "reply"}, "reply", "qwen2-vl-7b+sd3"),
        (f"qwen2-vl-7b+sd3@critic={ENDPOINT}", {}, "reply", f"{ENDPOINT}+sd3"),
        (f"{ENDPOINT}+sd3@critic=qwen2-vl-7b", {}, "probability", None),
        (f"{ENDPOINT}+sd3@critic", {}, "reply", f"{ENDPOINT}+sd3"),
    ],
)
def test_a_critic_is_the_lvlm_itself_or_one_that_is_named(
    name: str, settings: dict[str, Any], manner: str, as_stage_of: str | None
) -> None:
    tiny = Models(weights="tiny", critic=CriticSettings(**settings))
    found = resolve(name, tiny)
    critic = found.rendering.critic
    assert isinstance(critic.review, CriticReview)
    assert (found.name, critic.review.manner) == (name, manner)
    # Text and first images are those of the outline, and so are their records.
    outline = resolve(f"{name.partition('@')[0]}@outline", tiny)
    assert found.stages[:2] == outline.stages
    assert found.opening == outline.opening
    assert found.lvlm != outline.lvlm
    if as_stage_of:
        assert critic.stage.digest == resolve(as_stage_of, tiny).stages[0].digest
    else:
        assert critic.stage.kind is Kind.LOGPROBS


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("qwen2-vl-7b@critic", {}, "name a text-to-image"),
        ("qwen2-vl-7b+sd3@critic=qwen9", {}, "unknown chat model 'qwen9'"),
        ("qwen2-vl-7b+users_own:Seedless@critic", {}, "reads no seed"),
        (f"{ENDPOINT}+sd3@critic", {"verdict": "probability"}, "does not tell the prob"),
    ],
)
def test_what_cannot_be_a_critic_is_said(
    name: str, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        resolve(name, Models(weights="tiny", critic=CriticSettings(**settings)))
