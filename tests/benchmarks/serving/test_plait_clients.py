"""plait's own endpoints as clients of `plait serve`."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest
from endpoint_helpers import says
from picture_helpers import NOISE
from PIL import Image as Pillow
from serving_helpers import KEY, Served, served_model, trial_model

from plait.benchmarks.local import LocalSystem, local_stage, question
from plait.benchmarks.serving.served import resolve_served
from plait.generators.base import Failure, Result
from plait.generators.document import Image, ImageRequest, Request
from plait.generators.images import Drawing, decode, encode
from plait.generators.keys import derived_seed
from plait.generators.system import TEXT_POSITION
from plait.pipelines.endpoints.chat import ChatEndpoint
from plait.pipelines.endpoints.errors import EndpointError
from plait.pipelines.systems import Models

PICTURE = encode(Pillow.fromarray(NOISE))
TINY = Models(weights="tiny")
pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def qwen() -> Iterator[Served]:
    with served_model(
        resolve_served("qwen2-vl-7b", TINY), KEY, batch_wait_s=0.05
    ) as server:
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
    with closing(endpoint(qwen)) as client:
        replies = client(REQUESTS)
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
    with closing(endpoint(qwen)) as client:
        (reply,) = client([says("more than the context holds " * 3_000)])
    assert isinstance(reply, Failure)
    assert reply.fault.final


def test_pictures_of_images_are_those_of_the_stage_in_process() -> None:
    """Equal seeds, however large, give equal pixels on both ways."""
    requests = [ImageRequest(f"cat {i}", seed=2**62 + i) for i in range(3)]
    own = local_stage("sdxl-turbo", weights="tiny")(requests)
    with served_model(resolve_served("sdxl-turbo", TINY), KEY) as server:
        name = "images:sdxl-turbo"
        settings = {"base_url": server.url, "api_key_env": "SERVED_KEY"}
        settings["dialect"] = "plait"
        with closing(local_stage(name, models={name: settings})) as client:
            replies = client(requests)
    for reply, expected in zip(replies, own, strict=True):
        assert isinstance(reply, Result), reply
        assert isinstance(expected, Result)
        assert isinstance(reply.value, Image)
        assert isinstance(expected.value, Drawing)
        drawn = np.asarray(decode(reply.value)).astype(int)
        assert np.abs(drawn - expected.value.pixels).max() <= 1


@pytest.mark.parametrize("form", ["omni", "chat-images"])
def test_documents_come_back_as_they_were_made(form: str) -> None:
    """Segments keep the order of text and images, and no image is there twice."""
    model = trial_model(pictures=3)
    assert model.system is not None
    with served_model(model, KEY) as server:
        name = f"{form}:trial"
        settings = {"base_url": server.url, "api_key_env": "SERVED_KEY"}
        own = {**settings, "send_seed": True, "temperature": None}
        there = LocalSystem.named(name, models={name: own}, seed=9)
        document = there("Draw a cat", PICTURE).plain
    query = question("Draw a cat", PICTURE)
    seed = derived_seed(9, query.id, 0, TEXT_POSITION) % 2**31
    here = LocalSystem(system=model.system, seed=seed)("Draw a cat", PICTURE)
    assert document.segments == here.plain.segments
    assert len(document.images) == 3
