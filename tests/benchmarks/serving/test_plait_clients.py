"""plait's own endpoints as clients of `plait serve`."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from endpoint_helpers import says
from picture_helpers import NOISE
from PIL import Image as Pillow
from serving_helpers import KEY, Served, served_model

from benchmarks.local import local_stage
from benchmarks.serving.served import served
from generators.base import Failure, Result
from generators.document import Request
from generators.pictures import encode
from pipelines.endpoints.endpoint import ChatEndpoint
from pipelines.endpoints.errors import EndpointError
from pipelines.systems import Models

PICTURE = encode(Pillow.fromarray(NOISE))
TINY = Models(weights="tiny")
pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def qwen() -> Iterator[Served]:
    with served_model(served("qwen2-vl-7b", TINY), KEY, batch_wait_s=0.05) as server:
        yield server


def endpoint(server: Served, **settings: object) -> ChatEndpoint:
    own = {"model": "qwen2-vl-7b", "base_url": server.url, "api_key_env": "SERVED_KEY"}
    return ChatEndpoint(**{**own, "max_attempts": 2, **settings})


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVED_KEY", KEY)


REQUESTS: list[Request] = [says(f"Say {i}" * (i + 1), PICTURE) for i in range(5)]


def test_texts_are_those_of_the_stage_in_process(qwen: Served) -> None:
    stage = local_stage("qwen2-vl-7b", weights="tiny")
    expected = stage(REQUESTS)
    client = endpoint(qwen)
    try:
        replies = client(REQUESTS)
    finally:
        client.close()
    for reply, own in zip(replies, expected, strict=True):
        assert isinstance(reply, Result)
        assert isinstance(own, Result)
        assert reply.value == own.value
        assert reply.usage["input_tokens"] == own.usage["input_tokens"]
        assert reply.usage["output_tokens"] == own.usage["output_tokens"]
        assert reply.notes["finish"] == own.notes["finish"]


def test_each_request_may_limit_its_tokens(qwen: Served) -> None:
    """Requests of one batch, with limits of their own, are answered as each alone."""
    client = qwen.client(KEY)

    def ask(limit: int) -> tuple[str, int, str]:
        reply = client.chat.completions.create(
            model="qwen2-vl-7b",
            messages=[{"role": "user", "content": "Tell me a story"}],
            max_tokens=limit,
        )
        assert reply.usage is not None
        choice = reply.choices[0]
        text = choice.message.content or ""
        return text, reply.usage.completion_tokens, choice.finish_reason

    with ThreadPoolExecutor(3) as threads:
        short, longer, longest = threads.map(ask, (3, 9, 4096))
    assert [short[1], longer[1]] == [3, 9]
    assert short[2] == longer[2] == "length"
    assert longest[0].startswith(longer[0])
    assert longer[0].startswith(short[0])


def test_a_wrong_key_and_another_temperature_are_said(
    qwen: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EndpointError, match=r"temperature 0\.7 cannot be honoured"):
        endpoint(qwen, temperature=0.7)
    monkeypatch.setenv("SERVED_KEY", "sk-wrong-0123456789")
    with pytest.raises(EndpointError, match="SERVED_KEY is not accepted"):
        endpoint(qwen)


def test_what_the_server_refuses_is_final(qwen: Served) -> None:
    client = endpoint(qwen)
    try:
        (reply,) = client([says("  ")])
    finally:
        client.close()
    if isinstance(reply, Failure):
        assert reply.fault.final
