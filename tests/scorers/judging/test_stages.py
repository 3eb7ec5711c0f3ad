"""Judges on real chat stages: a tiny local model, and a server that misbehaves."""

from __future__ import annotations

import pytest
from endpoint_helpers import Answer, asking, completion, error, serving
from judging_helpers import GOOD, judge_of, sample, through
from vlm_helpers import GREEN, RED

from generators.base import Failure, Fault
from generators.document import Document, Text
from pipelines.chat.settings import EndpointSettings

QUERY = sample("SA-1", "It began so.", RED)
STORY = Document((Text("It went on <image> so."), GREEN))


@pytest.fixture(scope="module")
def server():
    with serving() as server:
        yield server


def judged(server, *answers: Answer):
    server.in_turn(*answers)
    spec = EndpointSettings(model="parrot", base_url=server.url).spec("parrot", "tiny")
    with asking(server) as stage:
        return through(judge_of(spec), QUERY, STORY, stage)


def test_a_server_s_reply_with_its_token_counts(server):
    _, result = judged(server, Answer(completion(GOOD)))
    assert result.value.parts["raw"] == 4
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
        ([Answer(error("bad picture"), 400)], Fault.BAD_INPUT),
        ([Answer(error("down"), 500)] * 3, Fault.ENDPOINT),
    ],
)
def test_what_a_server_fails_is_a_failure_with_its_name(server, answers, fault):
    jobs, result = judged(server, *answers)
    assert isinstance(result, Failure)
    assert result.fault is fault
    assert len(jobs) == 1
