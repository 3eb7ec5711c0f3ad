"""Images over HTTP: seeds, settings that are fixed, and real pipelines."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import openai
import pytest
from serving_helpers import Served, meeting, served_model, trial_model

from plait.benchmarks.local import LocalSystem
from plait.benchmarks.serving.served import resolve_served
from plait.generators.document import Image
from plait.generators.images import decode
from plait.pipelines.systems import Models

pytestmark = pytest.mark.contract

IMAGES = "/v1/images/generations"
TINY = Models(weights="tiny")


@pytest.fixture(scope="module")
def trial() -> Iterator[Served]:
    with served_model(trial_model()) as server:
        yield server


@pytest.fixture(scope="module")
def turbo() -> Iterator[Served]:
    with served_model(resolve_served("sdxl-turbo", TINY), batch_wait_s=0.05) as server:
        yield server


def images_in(reply: dict[str, Any]) -> list[Image]:
    return [Image.of(base64.b64decode(d["b64_json"])) for d in reply["data"]]


def draw(server: Served, **fields: Any) -> dict[str, Any]:
    status, reply = server.post(IMAGES, fields)
    assert status == 200, reply
    return reply


def refused(server: Served, **fields: Any) -> tuple[int, str, str]:
    status, reply = server.post(IMAGES, fields)
    return status, reply["error"]["code"], reply["error"]["message"]


def pixels(image: Image) -> Any:
    return np.asarray(decode(image)).astype(int)


@pytest.mark.models
def test_each_picture_has_a_seed_of_its_own(turbo: Served) -> None:
    """`test_plait_clients.py` compares pixels with those of the stage in process."""
    reply = draw(turbo, model="sdxl-turbo", prompt="a red cat", seed=41, n=3)
    assert [d["seed"] for d in reply["data"]] == [41, 42, 43]
    assert reply["size"] == "64x64"
    assert reply["output_format"] == "png"
    assert reply["usage"] == {"image_count": 3, "images": 3, "steps": 3}
    assert len({d["b64_json"] for d in reply["data"]}) == 3
    (last,) = images_in(draw(turbo, prompt="a red cat", seed=43))
    assert np.abs(pixels(last) - pixels(images_in(reply)[2])).max() <= 1


@pytest.mark.models
def test_requests_at_the_same_time_draw_what_each_draws_alone(turbo: Served) -> None:
    requests = [{"prompt": f"cat {i} " * (i + 1), "seed": i} for i in range(3)]
    alone = [pixels(images_in(draw(turbo, **r))[0]) for r in requests]
    before = turbo.metric('plait_batch_size_count{stage="sdxl-turbo"}')
    with meeting(3), ThreadPoolExecutor(3) as threads:
        together = list(threads.map(lambda r: draw(turbo, **r), requests))
    assert turbo.metric('plait_batch_size_count{stage="sdxl-turbo"}') - before < 3
    for reply, expected in zip(together, alone, strict=True):
        # Batched matrix products may round differently: at most one step of 255.
        assert np.abs(pixels(images_in(reply)[0]) - expected).max() <= 1


@pytest.mark.models
def test_settings_that_are_those_of_the_stage_are_taken(turbo: Served) -> None:
    own = {"size": "64x64", "num_inference_steps": 1, "guidance_scale": 0}
    plain = draw(turbo, prompt="a cat", seed=1)
    named = draw(turbo, prompt="a cat", seed=1, **own, response_format="b64_json")
    assert images_in(named) == images_in(plain)
    assert draw(turbo, prompt="a cat", width=64, height=64, generator_device="cpu")


@pytest.mark.models
@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"size": "1024x1024"}, "width 1024"),
        ({"size": "64x32"}, "height 32"),
        ({"num_inference_steps": 30}, "num_inference_steps 30"),
        ({"guidance_scale": 7.5}, "guidance_scale 7.5"),
        ({"true_cfg_scale": 4.0}, "true_cfg_scale 4.0"),
        ({"negative_prompt": "blurry"}, "negative_prompt 'blurry'"),
        ({"response_format": "url"}, "b64_json"),
    ],
)
def test_other_settings_are_refused(
    turbo: Served, fields: dict[str, Any], name: str
) -> None:
    status, code, message = refused(turbo, prompt="a cat", **fields)
    assert (status, code) == (400, "unsupported_value")
    assert name in message


@pytest.mark.models
def test_a_text_to_image_model_answers_no_chats(turbo: Served) -> None:
    body = {"model": "sdxl-turbo", "messages": [{"role": "user", "content": "a cat"}]}
    status, reply = turbo.post("/v1/chat/completions", body)
    assert (status, reply["error"]["code"]) == (400, "unsupported_value")


def test_the_official_client_draws(trial: Served) -> None:
    client = trial.client()
    reply = client.images.generate(
        model="painter", prompt="a cat", n=2, extra_body={"seed": 5}
    )
    again = client.images.generate(prompt="a cat", extra_body={"seed": 6})
    assert reply.data is not None
    assert again.data is not None
    assert [d.b64_json for d in reply.data][1] == again.data[0].b64_json
    with pytest.raises(openai.BadRequestError, match="width 1024"):
        client.images.generate(prompt="a cat", size="1024x1024")


def test_without_a_seed_pictures_differ_and_the_seed_is_told(trial: Served) -> None:
    first, second = (draw(trial, prompt="a cat") for _ in range(2))
    assert first["data"][0]["seed"] != second["data"][0]["seed"]
    again = draw(trial, prompt="a cat", seed=first["data"][0]["seed"])
    assert images_in(again) == images_in(first)


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        ({}, "missing", "prompt"),
        ({"prompt": 3}, "invalid_value", "prompt"),
        ({"prompt": "\udc00"}, "invalid_value", "not valid text"),
        ({"prompt": "a", "n": 0}, "invalid_value", "n"),
        ({"prompt": "a", "n": 11}, "invalid_value", "10"),
        ({"prompt": "a", "seed": 1.5}, "invalid_value", "seed"),
        ({"prompt": "a", "size": "big"}, "invalid_value", "1024x1024"),
        ({"prompt": "a", "size": "64x64", "width": 32}, "invalid_value", "differ"),
        ({"prompt": "a", "steps": 3}, "invalid_value", "steps: "),
        ({"prompt": "a", "output_format": "jpeg"}, "invalid_value", "'png'"),
        ({"prompt": "a", "generator_device": "cuda"}, "invalid_value", "'cpu'"),
        ({"prompt": "a", "model": "nobody"}, "model_not_found", "painter"),
    ],
)
def test_wrong_requests_are_told_what_is_wrong(
    trial: Served, fields: dict[str, Any], code: str, reason: str
) -> None:
    status, told, message = refused(trial, **fields)
    assert (status, told) == (404 if code == "model_not_found" else 400, code), message
    assert reason in message


@pytest.mark.models
def test_a_prompt_that_the_stage_cannot_use_is_bad_input(turbo: Served) -> None:
    status, code, message = refused(turbo, prompt="  ")
    assert (status, code) == (400, "bad_input")
    assert "prompt is empty" in message


@pytest.mark.models
@pytest.mark.parametrize("name", ["anole", "glm-image@t2i"])
def test_what_does_not_draw_in_one_stage_answers_chats_with_its_images(name: str) -> None:
    system = LocalSystem.named(name, weights="tiny", seed=3)
    expected = system("Draw a cat and a dog.").plain
    with served_model(resolve_served(name, TINY)) as server:
        body = {"messages": [{"role": "user", "content": "Draw a cat and a dog."}]}
        status, reply = server.post("/v1/chat/completions", {**body, "seed": 3})
        assert status == 200, reply
        message = reply["choices"][0]["message"]
        assert message["content"] == expected.text
        assert expected.images
        shown = [s["data"]["sha256"] for s in message["segments"] if s["kind"] == "image"]
        assert shown == [i.digest for i in expected.images]
        status, code, text = refused(server, prompt="a cat")
        assert (status, code) == (400, "unsupported_value")
        assert "does not draw from prompts" in text
