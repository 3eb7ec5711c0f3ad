"""Judges on real chat stages: a tiny local model, and a server that misbehaves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from endpoint_helpers import Answer, asking, completion, error, serving
from judging_helpers import judge_of, picture, reply_of, sample, through
from vlm_helpers import GREEN, RED

from cluster.local import load_class
from generators.base import Failure, Fault, Result, Unscored
from generators.document import Document, Draft, Text
from pipelines.chat.settings import EndpointSettings
from pipelines.presets import LVLMS
from pipelines.vlm.stage import VisionLanguageModel
from scorers import resolve_scorer
from scorers.judging.rubrics import OWN

NAMES = [*OWN["SA"].criteria, "Emotional Impact"]
GOOD = reply_of(NAMES, [1, 1, 1, 1, 0, 1, 0], 5)
QUERY = sample("SA-1", "It began so.", RED)
STORY = Document((Text("It went on <image> so."), GREEN))


@pytest.fixture(scope="module")
def server():
    with serving() as server:
        yield server


def judged(server, *answers: Answer, **settings):
    server.in_turn(*answers)
    spec = EndpointSettings(model="parrot", base_url=server.url).spec("parrot", "tiny")
    with asking(server, **settings) as stage:
        return through(judge_of(spec), QUERY, STORY, stage)


def test_a_server_s_reply_with_its_token_counts(server):
    _, result = judged(server, Answer(completion(GOOD)))
    assert result.value.parts["raw"] == 5
    assert (result.value.parts["input_tokens"], result.value.parts["output_tokens"]) == (
        11,
        7,
    )
    parts = server.bodies[-1]["messages"][-1]["content"]
    kinds = [part["type"] for part in parts]
    assert kinds == ["text", "image_url", "text", "image_url", "text"]
    assert parts[0]["text"].endswith("### Question\nIt began so.\nImage-0: ")
    assert parts[2]["text"] == "\n\n### Answer\nIt went on < image> so.\nImage-1: "


def test_a_server_is_asked_again_about_a_reply_that_cannot_be_read(server):
    before = len(server.bodies)
    _, result = judged(server, Answer(completion("Nice.")), Answer(completion(GOOD)))
    assert result.value.parts["attempts"] == 2
    first, second = server.bodies[before:]
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert second["messages"][-2] == {"role": "assistant", "content": "Nice."}


@pytest.mark.parametrize(
    ("answers", "fault"),
    [
        ([Answer(completion(None, refusal="I will not judge."))], Fault.REFUSED),
        ([Answer(completion("half", "content_filter"))], Fault.REFUSED),
        ([Answer(error("bad picture"), 400)], Fault.BAD_INPUT),
        ([Answer(b"<html>")] * 3, Fault.ENDPOINT),
        ([Answer(error("down"), 500)] * 3, Fault.ENDPOINT),
        ([Answer(error("slow down"), 429, {"retry-after": "0"})] * 3, Fault.ENDPOINT),
        ([Answer(how="stall")] * 3, Fault.ENDPOINT),
    ],
)
def test_what_a_server_fails_is_a_failure_with_its_name(server, answers, fault):
    timeout = {"timeout_s": 0.3} if answers[0].how == "stall" else {}
    jobs, result = judged(server, *answers, **timeout)
    assert isinstance(result, Failure)
    assert result.fault is fault
    assert len(jobs) == 1


def test_a_server_that_comes_to_itself_is_read(server):
    _, result = judged(server, Answer(error("down"), 500), Answer(completion(GOOD)))
    assert isinstance(result, Result)


@pytest.mark.models
def test_random_weights_are_unscored_and_asked_twice():
    settings = LVLMS["qwen2-vl-7b"]
    spec = settings.spec("qwen2-vl-7b", "tiny")
    assert not spec.seeded, "a local judge decodes greedily unless it is told otherwise"
    stage = VisionLanguageModel(**spec.settings, **spec.options)
    jobs, result = through(judge_of(spec), QUERY, STORY, stage)
    assert isinstance(result, Unscored)
    assert len(jobs) == 2
    assert jobs[1].input.images == jobs[0].input.images
    again, same = through(judge_of(spec), QUERY, STORY, stage)
    assert [job.key for job in again] == [job.key for job in jobs]
    assert same == result


@pytest.mark.models
def test_an_unreadable_picture_is_a_failure():
    spec = LVLMS["qwen2-vl-7b"].spec("qwen2-vl-7b", "tiny")
    stage = VisionLanguageModel(**spec.settings, **spec.options)
    broken = Document((picture("no picture"),))
    _, result = through(judge_of(spec), QUERY, broken, stage)
    assert isinstance(result, Failure)
    assert "picture format" in result.reason


@pytest.mark.models
def test_the_tiny_mmie_score_is_a_judge_that_cannot_be_read():
    judge = resolve_scorer("judge:mmie-score", "tiny", {"max_new_tokens": 16, "retries": 0})
    stage = load_class(judge.stage.target)(**judge.stage.settings, **judge.stage.options)
    jobs, result = through(judge, QUERY, STORY, stage)
    assert isinstance(result, Unscored)
    (reply,) = stage([jobs[0].input])
    replies = replace(reply, value=Draft((Text(GOOD),)))
    _, scored = through(judge, QUERY, STORY, lambda inputs: [replies])
    parts = scored.value.parts
    assert parts["image_sizes"] == [[60, 40], [230, 90]]
    assert (parts["over_context"], len(parts["tiles"])) == (False, 2)
    assert parts["input_tokens"] > 256
