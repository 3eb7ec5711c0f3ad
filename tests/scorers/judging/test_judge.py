"""The judge as a scorer: what it asks, what it makes of replies, what names a record."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from contents import document
from judging_helpers import GOOD, chat_spec, converse, judge_of, picture, sample, shown

from plait.generators.base import Failure, Fault, Result, Skip, StageSpec
from plait.generators.document import Draft, Text
from plait.generators.errors import UsageError
from plait.pipelines.chat.settings import EndpointSettings
from plait.scorers import resolve_scorer
from plait.scorers.judging.judge import RubricJudge
from plait.scorers.judging.replies import Unreadable
from plait.scorers.judging.rubrics import OWN

STORY = document("So it went.", picture("a0"))


def ended(replies, judge: RubricJudge | None = None, id: str = "SA-1"):
    return converse(judge or judge_of(), sample(id), STORY, replies)


def test_a_reply_becomes_a_score_in_percent():
    notes = {"over_context": True, "tiles": [7], "prompt": "x"}
    reply = Result(Draft((Text(GOOD),)), {"input_tokens": 4100, "cost": 1}, notes)
    jobs, result = ended([reply])
    assert isinstance(result, Result)
    assert result.value.value == pytest.approx(400 / 6)
    parts = result.value.parts
    assert parts["raw"] == parts["stated"] == parts["summed"] == 4
    assert parts["criteria"]["Context Consistency"] == 0
    assert parts["penalty"] == 0
    assert (parts["rubric"], parts["prompt_sha256"]) == ("own:SA", OWN["SA"].sha256)
    assert (parts["images"], parts["images_left_out"], parts["attempts"]) == (2, 0, 1)
    # What the stage noted of the request stands beside the score.
    assert (parts["over_context"], parts["tiles"], parts["input_tokens"]) == (
        True,
        [7],
        4100,
    )
    assert not {"prompt", "cost"} & set(parts)
    # In the order in which reports and files of data show them.
    shown_first = ["raw", "source", "stated", "summed", "consistent", "criteria", "penalty"]
    assert [*parts][:7] == shown_first
    (job,) = jobs
    assert (job.spec, job.label, job.input.seed) == (chat_spec(), "SA-1", None)


def test_an_unreadable_reply_is_asked_about_once_and_stays():
    jobs, result = ended(["A fine story.", GOOD])
    assert result.value.parts["attempts"] == 2
    first, second = (job.input for job in jobs)
    assert jobs[0].key != jobs[1].key
    assert second.turns[:1] == first.turns
    assert second.turns[1].content == (Text("A fine story."),)
    assert "there is no score" in shown(second)


@pytest.mark.parametrize(
    "outcome",
    [
        Failure("the model refused", Fault.REFUSED),
        Failure("HTTP 500", Fault.ENDPOINT),
        Skip("the model reads 1 image(s) per request; this one has 2"),
    ],
)
@pytest.mark.parametrize("before", [[], ["unreadable"]])
def test_what_the_stage_fails_or_skips_is_no_judgement(outcome, before):
    _, result = ended([*before, outcome])
    assert result is outcome


def test_only_a_stage_that_draws_at_random_is_given_a_seed():
    jobs, _ = ended(["?", "?"], judge_of(chat_spec(seeded=True)))
    seeds = [job.input.seed for job in jobs]
    assert None not in seeds
    assert len(set(seeds)) == 2
    again, _ = ended(["?", "?"], judge_of(chat_spec(seeded=True)))
    assert [job.key for job in again] == [job.key for job in jobs]
    other, _ = ended(["?", "?"], judge_of(chat_spec(seeded=True), seed=1))
    assert not {j.key for j in other} & {j.key for j in jobs}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"rubric": "mine"}, "or 'official:PATH'"),
        ({"rubric": "official:"}, "must be followed by the path"),
        ({"mode": "strict"}, "'corrected' or 'official'"),
        ({"mode": "official"}, "needs the released rubrics"),
        ({"mode": "official", "rubric": "official:x", "retries": 1}, "retries must be 0"),
        (
            {"mode": "official", "rubric": "official:x", "max_images": 3},
            "leave max_images out",
        ),
        ({"retries": 6}, "less than or equal to 5"),
        ({"max_images": 0}, "greater than or equal to 1"),
        ({"retires": 1}, "did you mean 'retries'"),
        ({"rubric": "official:/nowhere/prompts.py"}, "No such file"),
        ({"structured": True}, "they reply with text"),
    ],
)
def test_wrong_settings_are_refused(options, why):
    with pytest.raises(UsageError, match=why):
        resolve_scorer("judge:chatty", "tiny", options, chat=lambda name: chat_spec())


def endpoint(model: str) -> StageSpec:
    return EndpointSettings(model=model, base_url="http://127.0.0.1:9/v1").spec(
        f"openai:{model}", "pretrained"
    )


@pytest.mark.parametrize(
    "kind", ["criteria", "aspects", "isg-block", "isg-image", "isg-holistic"]
)
def test_a_schema_is_asked_of_the_server_where_the_settings_say_so(kind):
    name = f"{kind}:openai:m"
    plain, off, on = (
        resolve_scorer(name, "pretrained", options, chat=lambda name: endpoint("m"))
        for options in ({}, {"structured": False}, {"structured": True})
    )
    assert plain.stage.digest == off.stage.digest == endpoint("m").digest
    assert on.stage.digest != plain.stage.digest
    body = on.stage.settings["extra_body"]["response_format"]
    schema = body["json_schema"]["schema"]
    assert (body["type"], body["json_schema"]["strict"]) == ("json_schema", True)
    assert {*schema["required"]} == {*schema["properties"]}
    reply = json.dumps(example(schema))
    assert not isinstance(on.read_reply(reply), Unreadable)


def example(schema):
    """The least that a schema allows."""
    if schema["type"] == "object":
        return {name: example(of) for name, of in schema["properties"].items()}
    plain = {"boolean": False, "number": 5, "integer": 5, "string": "so"}
    return schema.get("enum", [plain[schema["type"]]])[0]


@pytest.mark.parametrize(
    ("options", "stage", "why"),
    [
        ({}, chat_spec(), "needs a judge behind an OpenAI-compatible endpoint"),
        (
            {},
            replace(endpoint("m"), settings={"extra_body": {"response_format": {}}}),
            "leave one of them out",
        ),
        (
            {"mode": "official", "rubric": "official:x"},
            endpoint("m"),
            "asks for no schema",
        ),
    ],
)
def test_a_schema_is_refused_where_none_can_be_asked_for(options, stage, why):
    with pytest.raises(UsageError, match=why):
        resolve_scorer(
            "criteria:m", "pretrained", {"structured": True} | options, chat=lambda _: stage
        )
