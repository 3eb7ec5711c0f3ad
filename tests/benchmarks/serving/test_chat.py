"""Chats over HTTP: what is asked, what is answered, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import openai
import pytest
from picture_helpers import NOISE, png_header
from PIL import Image as Pillow
from serving_helpers import (
    Served,
    data_url,
    meeting,
    picture_in,
    served_model,
    trial_model,
    user,
)
from trial import system_of_stages

from plait.benchmarks.local import LocalSystem, question
from plait.benchmarks.serving.chats import ChatReply, query_of
from plait.benchmarks.serving.refusals import RequestRefused
from plait.benchmarks.serving.schemas import ChatRequest
from plait.benchmarks.tasks.published import as_asked
from plait.cluster.local import LocalStages
from plait.cluster.walks import drive
from plait.generators.base import Result
from plait.generators.document import Document, Image, Query, Text, Turn
from plait.generators.images import encode
from plait.generators.system import Repetition
from plait.pipelines.composition import one_image

pytestmark = pytest.mark.contract

PICTURE = encode(Pillow.fromarray(NOISE))
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with served_model(trial_model()) as server:
        yield server


def in_process(sample: Query, seed: int = 0) -> Document:
    system = trial_model().system
    assert system is not None
    (answer,) = LocalSystem(system=system, seed=seed).answers([sample])
    assert answer.document is not None, answer.reason
    return answer.document.plain


def chat(served: Served, *content: Any, **fields: Any) -> dict[str, Any]:
    body = {"model": "trial", "messages": [user(*content)], "seed": 0, **fields}
    status, reply = served.post(CHAT, body)
    assert status == 200, reply
    return reply


def refused(served: Served, body: Any, **headers: str) -> tuple[int, str, str]:
    """Status, code and message of a request that is not answered."""
    status, reply = served.post(CHAT, body, **headers)
    assert set(reply) == {"error"}
    assert set(reply["error"]) == {"message", "type", "param", "code"}
    return status, reply["error"]["code"], reply["error"]["message"]


def test_the_answer_is_that_of_the_system_in_process(served: Served) -> None:
    message = chat(served, "Draw", PICTURE, seed=7)["choices"][0]["message"]
    document = in_process(question("Draw", PICTURE), seed=7)
    assert message["content"] == document.text
    segments = message["segments"]
    assert [s["kind"] for s in segments] == ["text", "image", "image"]
    assert [s["segment_index"] for s in segments] == [0, 1, 2]
    assert segments[0]["data"] == document.text
    for i, image in enumerate(document.images):
        data = segments[i + 1]["data"]
        assert picture_in(data["url"]) == image
        assert data["sha256"] == image.digest
        assert data["size_bytes"] == len(image.read())
        assert data["mime_type"] == "image/png"
        assert picture_in(message["images"][i]["image_url"]["url"]) == image


def test_the_official_client_reads_text_usage_and_finish(served: Served) -> None:
    reply = served.client().chat.completions.create(
        model="trial", messages=[user("Draw a cat")], seed=1
    )
    assert reply.choices[0].message.content == in_process(question("Draw a cat")).text
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage is not None
    assert reply.usage.model_extra == {"tokens": 1.0, "images": 2}
    assert reply.model == "trial"
    assert reply.system_fingerprint == served.engine.model.fingerprint


@pytest.mark.parametrize("form", ["segments", "images", "content"])
def test_a_client_chooses_where_the_pictures_are(served: Served, form: str) -> None:
    message = chat(served, "Draw", picture_format=form)["choices"][0]["message"]
    document = in_process(question("Draw"))
    assert ("segments" in message, "images" in message) == (
        form == "segments",
        form == "images",
    )
    parts = [s["data"] for s in message.get("segments", [])[1:]]
    parts += [p["image_url"] for p in message.get("images", [])]
    text = message["content"]
    if form == "content":
        (about, *rest), text = text, text[0]["text"]
        assert about["type"] == "text"
        parts = [p["image_url"] for p in rest]
    assert text == document.text
    assert tuple(picture_in(part["url"]) for part in parts) == document.images


def test_an_answer_sent_back_keeps_its_pictures_and_their_order(served: Served) -> None:
    first = chat(served, "Draw")["choices"][0]["message"]
    document = in_process(question("Draw"))
    turns = (
        *question("Draw").turns,
        Turn("assistant", document.segments),
        Turn("user", (Text("And then?"),)),
    )
    for answer in (first, first | {"segments": None}):
        messages = [user("Draw"), answer, user("And then?")]
        message = chat(served, messages=messages)["choices"][0]["message"]
        assert message["content"] == continued(turns).text
        # The stage writes the digest of every image it is shown.
        assert message["content"].endswith("".join(i.digest[:4] for i in document.images))


def test_segments_are_read_in_their_order() -> None:
    part = {"kind": "image", "data": {"url": data_url(PICTURE), "sha256": "0"}}
    segments = [{"kind": "text", "data": "a"}, part, {"kind": "text", "data": "b"}]
    answer = {"role": "assistant", "content": "a\nb", "segments": segments}
    body = {"messages": [user("Draw"), answer, user("And then?")]}
    query = query_of(ChatRequest.model_validate(body), trial_model())
    assert query.turns[1] == Turn("assistant", (Text("a"), PICTURE, Text("b")))


def continued(turns: tuple[Turn, ...]) -> Document:
    system = trial_model().system
    assert system is not None
    walk = system.reply(replace(question("x"), turns=turns), Repetition(as_asked))
    outcome = drive(walk, LocalStages().outcomes)
    assert isinstance(outcome, Result)
    return outcome.value


def test_requests_at_the_same_time_are_answered_as_each_alone(served: Served) -> None:
    texts = [f"Draw number {i}" for i in range(12)]
    before = served.metric('plait_batch_size_count{stage="writer"}')
    with meeting(12), ThreadPoolExecutor(12) as threads:
        replies = list(threads.map(lambda t: chat(served, t, seed=3), texts))
    batches = served.metric('plait_batch_size_count{stage="writer"}') - before
    assert batches == 3, "requests that wait are put together"
    for text, reply in zip(texts, replies, strict=True):
        message = reply["choices"][0]["message"]
        document = in_process(question(text), seed=3)
        assert message["content"] == document.text
        urls = [p["image_url"]["url"] for p in message["images"]]
        assert tuple(map(picture_in, urls)) == document.images


def test_a_seed_is_drawn_and_told_where_none_is_given(served: Served) -> None:
    first, second = (chat(served, "Draw", seed=None) for _ in range(2))
    assert first["seed"] != second["seed"]
    again = chat(served, "Draw", seed=first["seed"])
    messages = [reply["choices"][0]["message"] for reply in (first, again)]
    assert messages[0]["images"] == messages[1]["images"]


def test_a_stream_gives_each_segment_in_order(served: Served) -> None:
    stream = served.client().chat.completions.create(
        model="trial",
        messages=[user("Draw")],
        seed=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    document = in_process(question("Draw"))
    deltas = [c.choices[0].delta for c in chunks if c.choices]
    assert "".join(d.content or "" for d in deltas) == document.text
    extra = [d.model_extra or {} for d in deltas]
    pictures = [e["images"][0]["image_url"]["url"] for e in extra if "images" in e]
    assert tuple(map(picture_in, pictures)) == document.images
    indices = [e["segment"]["segment_index"] for e in extra if "segment" in e]
    assert indices == [1, 2]
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage is not None


def test_the_texts_of_a_stream_are_the_content_of_the_whole_reply() -> None:
    document = Document((Text("a"), PICTURE, Text("b"), PICTURE, Text("c")))
    reply = ChatReply(model=trial_model(), made=Result(document), seed=0)
    events = [e.removeprefix("data: ") for e in reply.events(include_usage=False)]
    assert events.pop() == "[DONE]\n\n"
    deltas = [json.loads(e)["choices"][0]["delta"] for e in events]
    assert "".join(d.get("content", "") for d in deltas) == "a\nb\nc"
    assert reply.whole["choices"][0]["message"]["content"] == "a\nb\nc"
    assert ["images" in d for d in deltas[1:-1]] == [False, True, False, True, False]


def test_text_alone_is_a_plain_reply(served: Served) -> None:
    model = trial_model()
    assert model.system is not None
    system = replace(model.system, compose=one_image)
    with served_model(replace(model, system=system)) as server:
        message = chat(server, "Draw", modalities=["text"])["choices"][0]["message"]
        assert set(message) == {"role", "content"}
        assert isinstance(message["content"], str)
        both = chat(server, "Draw", modalities=["text", "image"])
        assert len(both["choices"][0]["message"]["images"]) == 1


WORDS = system_of_stages(name="words", draft=trial_model().stages[0], max_images=0)


@pytest.mark.parametrize(
    ("model", "modalities"),
    [
        (replace(trial_model(), may_leave_images_out=False), ["text"]),
        (replace(trial_model(), system=WORDS, t2i=None), ["text", "image"]),
        (trial_model(), ["image"]),
    ],
)
def test_what_a_model_cannot_answer_with_is_refused(model: Any, modalities: Any) -> None:
    request = ChatRequest(messages=[user("Draw")], modalities=modalities)
    with pytest.raises(RequestRefused) as caught:
        query_of(request, model)
    refusal = caught.value
    assert (refusal.status_code, refusal.code) == (400, "unsupported_value")
    assert refusal.param == "modalities"


@pytest.mark.parametrize(
    ("text", "status", "code", "reason"),
    [
        ("!skip", 422, "skipped", "reads one picture only"),
        ("!refuse", 400, "refused", "the model refused"),
        ("!raise", 500, "stage_error", "cannot draft"),
    ],
)
def test_outcomes_without_a_document_are_errors(
    served: Served, text: str, status: int, code: str, reason: str
) -> None:
    told = refused(served, {"model": "trial", "messages": [user(text)]})
    assert told[:2] == (status, code)
    assert reason in told[2]
    assert chat(served, "still here")


BOMB = Image.of(png_header(60_000, 60_000))
TRUNCATED = Image.of(PICTURE.read()[:200])


URLS = (
    "http://127.0.0.1/secret.png",
    "https://example.org/a.png",
    "file:///etc/passwd",
    "data:image/png,plain",
    "data:image/png;base64,***",
    "data:text/html;base64,PGh0bWw+",
    "",
)


def of(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": list(messages) or [user("a")], **fields}


def shown(url: str) -> dict[str, Any]:
    part = {"type": "image_url", "image_url": {"url": url}}
    return {"role": "user", "content": [part]}


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        (b"{", "invalid_json", "JSON"),
        (b"[" * 100_000, "invalid_json", ""),
        (b"\xff\xfe", "invalid_json", ""),
        ({}, "missing", "messages"),
        ({"messages": []}, "invalid_value", "messages"),
        (of(seed=-1), "invalid_value", "seed"),
        (of(seed=2**63), "invalid_value", "seed"),
        (of(seed="1"), "invalid_value", "seed"),
        (of(max_tokens=0), "invalid_value", "max_tokens"),
        (of(n=2), "invalid_value", "n: "),
        (of(stop=["."]), "invalid_value", "stop: "),
        (of(sede=1), "invalid_value", "sede: "),
        (of(logprobs=True), "invalid_value", "logprobs: "),
        (of(modalities=["audio"]), "invalid_value", "text"),
        (of(temperature=0.7), "unsupported_value", "fixed"),
        (of(top_p=0.7), "unsupported_value", "fixed"),
        (of(max_tokens=5), "unsupported_value", "max_tokens"),
        (
            of({"role": "robot", "content": "a"}),
            "invalid_value",
            "'system', 'developer', 'user' or 'assistant'",
        ),
        (
            of(user("a"), {"role": "assistant", "content": "b"}),
            "invalid_value",
            "last message must be the user's",
        ),
        (
            of({"role": "user", "content": [{"type": "input_audio"}]}),
            "invalid_value",
            "messages.0.content",
        ),
        (of(user("a", BOMB)), "invalid_image", "3600000000|60000 x 60000"),
        (of(user("a", TRUNCATED)), "invalid_image", "cannot be"),
        (of(user("\ud800")), "invalid_value", ""),
        *((of(shown(url)), "invalid_image", "") for url in URLS),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(
    served: Served, body: Any, code: str, reason: str
) -> None:
    told = refused(served, body)
    assert told[:2] == (400, code), told
    assert any(r in told[2] for r in reason.split("|")), told
    assert len(told[2]) < 1000, "values are not repeated"


def test_an_unknown_model_is_named_with_the_valid_ones(served: Served) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        served.client().chat.completions.create(model="gpt-9", messages=[user("a")])
    assert caught.value.code == "model_not_found"
    assert "valid: trial, painter" in str(caught.value)
    status, code, message = refused(served, {"model": "painter", "messages": [user("a")]})
    assert (status, code) == (400, "unsupported_value")
    assert "/v1/images/generations" in message


def test_values_that_ask_for_nothing_are_taken(served: Served) -> None:
    neutral = {
        "n": 1,
        "stop": None,
        "frequency_penalty": 0.0,
        "presence_penalty": 0,
        "logprobs": False,
        "user": "me",
        "metadata": {"run": "1"},
        "tools": [],
        "response_format": {"type": "text"},
        "temperature": None,
    }
    assert chat(served, "Draw", **neutral)["choices"][0]["message"]["content"]


def test_the_list_of_models_says_what_each_can_do(served: Served) -> None:
    listed = {m.id: m.model_extra for m in served.client().models.list()}
    assert {n: (e or {})["capabilities"] for n, e in listed.items()} == {
        "trial": ["chat", "images"],
        "painter": ["images"],
    }
    assert served.client().models.retrieve("trial").owned_by == "plait"
    assert served.get("/v1/models/none")[0] == 404


def test_unknown_paths_and_methods_are_errors_in_the_same_form(served: Served) -> None:
    status, body = served.get("/v1/embeddings")
    assert status == 404
    assert json.loads(body)["error"]["code"] == "not_found"
    status, body = served.get(CHAT)
    assert (status, json.loads(body)["error"]["code"]) == (405, "method_not_allowed")
