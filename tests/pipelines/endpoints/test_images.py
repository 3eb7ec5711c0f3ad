"""Text-to-image models behind a server: what is sent, what is read, and what is noted."""

from __future__ import annotations

import base64
import hashlib
import typing
from typing import Any

import pytest
from endpoint_helpers import KEY, Answer
from images_helpers import (
    MODEL,
    REQUESTS,
    drawing,
    encoded,
    noise,
    only,
    rejection,
    reply,
    serving_images,
    wish,
)
from openai.types import ImagesResponse
from openai.types.image_generate_params import ImageGenerateParamsNonStreaming
from PIL import Image as Pillow

from generators.base import Failure, Fault, Result
from generators.document import ImageRequest, Payload, Text
from generators.pictures import decode
from pipelines.endpoints.errors import EndpointError
from pipelines.endpoints.images import ImagesEndpoint

DIFFUSION = {
    "width": 80,
    "height": 32,
    "steps": 9,
    "guidance": 3.5,
    "true_cfg_scale": 4.0,
    "negative_prompt": "blur",
    "generator_device": "cpu",
    "prompt_prefix": "oil: ",
}
SENT = {
    "model": MODEL,
    "prompt": "oil: a red cat",
    "size": "80x32",
    "response_format": "b64_json",
    "output_format": "png",
    "num_inference_steps": 9,
    "guidance_scale": 3.5,
    "true_cfg_scale": 4.0,
    "negative_prompt": "blur",
    "generator_device": "cpu",
    "seed": 7,
}


@pytest.fixture(params=list(REQUESTS))
def server(request):
    with serving_images(request.param) as running:
        yield running


@pytest.fixture
def openai_server():
    with serving_images() as running:
        yield running


def drawn(result: Any) -> Pillow.Image:
    assert isinstance(result, Result), result
    return decode(result.value)


def test_the_picture_is_what_the_server_drew_byte_for_byte(server):
    with drawing(server) as draw:
        result = only(draw([wish()]))
    (body,) = server.bodies
    sent = base64.b64decode(server.draw(body).body["data"][0]["b64_json"])
    assert result.value.read() == sent
    assert result.value.digest == hashlib.sha256(sent).hexdigest()
    assert sent.startswith(b"\x89PNG"), "no dialect may fall back to a lossy format"
    assert result.notes["prompt"] == "a red cat"
    assert result.notes["dialect"] == server.dialect
    assert result.notes["size"] == [64, 48]
    assert result.notes["attempts"] == 1
    assert "size_asked_for" not in result.notes
    assert "revised_prompt" not in result.notes, "SGLang repeats the prompt unchanged"


@pytest.mark.parametrize(
    ("dialect", "more"), [("sglang", {"max_sequence_length": 64}), ("vllm-omni", {})]
)
def test_diffusion_servers_get_every_setting_under_its_own_name(dialect, more):
    settings = DIFFUSION | more
    with serving_images(dialect) as server, drawing(server, **settings) as draw:
        result = only(draw([wish()]))
    assert server.bodies == [SENT | more]
    assert server.keys == [f"Bearer {KEY}"]
    assert drawn(result).size == (80, 32)
    assert result.notes["seed"] == 7


def test_openai_gets_only_what_it_takes_and_no_seed(openai_server):
    settings = {"width": 80, "height": 32, "quality": "low", "output_format": "webp"}
    with drawing(openai_server, **settings, extra_body={"moderation": "low"}) as draw:
        result = only(draw([wish(seed=2**62)]))
    assert openai_server.bodies == [
        {
            "model": MODEL,
            "prompt": "a red cat",
            "size": "80x32",
            "response_format": "b64_json",
            "quality": "low",
            "output_format": "webp",
            "moderation": "low",
        }
    ]
    assert result.notes["seed"] == "not taken by the server"
    assert result.value.read()[8:12] == b"WEBP"
    fields = typing.get_type_hints(ImageGenerateParamsNonStreaming)
    assert set(openai_server.bodies[0]) <= set(fields), "the SDK's own list of fields"
    ImagesResponse.model_validate(openai_server.draw(openai_server.bodies[0]).body)


def test_gpt_image_models_are_not_sent_a_response_format(openai_server):
    with drawing(openai_server, model="gpt-image-2") as draw:
        assert isinstance(only(draw([wish()])), Result)
    assert "response_format" not in openai_server.bodies[0]
    with drawing(openai_server, response_format="none") as draw:
        draw([wish()])
    assert "response_format" not in openai_server.bodies[1]


def test_a_server_that_rejects_the_response_format_is_not_sent_it_again(openai_server):
    """LiteLLM's proxy rejects it for its own names of GPT image models."""

    def litellm(body):
        if "response_format" in body:
            text = "Setting `response_format` is not supported by openai, painter."
            return rejection(text, None, "400")
        return openai_server.draw(body)

    openai_server.script = litellm
    with drawing(openai_server, concurrency=4) as draw:
        results = draw([wish(str(i)) for i in range(4)])
        results += draw([wish("last")])
    assert all(isinstance(r, Result) for r in results), results
    assert "response_format" not in openai_server.bodies[-1]
    assert len(openai_server.bodies) <= 9
    with drawing(openai_server, response_format="b64_json") as draw:
        assert isinstance(only(draw([wish()])), Failure), "the user's own choice stands"


@pytest.mark.parametrize("dialect", ["sglang", "vllm-omni"])
def test_the_whole_seed_is_sent_and_decides_the_picture(dialect):
    seeds = [2**63 - 1, 2**63 - 2, 2**63 - 1]
    with serving_images(dialect) as server, drawing(server) as draw:
        first, other, again = draw([wish(seed=seed) for seed in seeds])
    assert {body["seed"] for body in server.bodies} == set(seeds)
    assert first.value.digest == again.value.digest != other.value.digest


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (ImageRequest(prompt="  ", seed=1), "prompt is empty"),
        (ImageRequest(prompt="a cat"), "has no seed"),
        (ImageRequest(payload=Payload.of(b"x"), seed=1), "holds more than a prompt"),
        (ImageRequest(prompt="a", context=(Text("b"),), seed=1), "holds more than a"),
    ],
)
def test_requests_that_no_text_to_image_model_reads_are_not_sent(
    openai_server, request_, words
):
    with drawing(openai_server) as draw:
        bad, good = draw([request_, wish()])
    assert (bad.fault, words in bad.reason) == (Fault.BAD_INPUT, True)
    assert isinstance(good, Result)
    assert len(openai_server.bodies) == 1


USED = {
    "openai": {"images": 1, "input_tokens": 12, "output_tokens": 272},
    "sglang": {"images": 1, "server_seconds": 0.25, "peak_memory_mb": 812.5},
    "vllm-omni": {"images": 1, "server_seconds": 0.5, "peak_memory_mb": 640.0},
}


def test_what_the_server_says_it_used_is_usage(server):
    with drawing(server) as draw:
        result = only(draw([wish()]))
    assert result.usage == USED[server.dialect]
    durations = {"Pipeline.forward": 0.5, "Pipeline.vae.decode": 0.1}
    expected = durations if server.dialect == "vllm-omni" else None
    assert result.notes.get("stage_durations") == expected


def test_only_the_whole_pipeline_counts_as_the_servers_seconds(openai_server):
    """vLLM-Omni's stages lie inside each other and must not be added up."""
    inner = {"Pipeline.diffuse": 0.4, "Pipeline.vae.decode": 0.1}
    metrics = {"stage_durations": inner, "peak_memory_mb": None}
    openai_server.script = lambda _: Answer(reply(encoded(noise("x")), metrics=metrics))
    with drawing(openai_server) as draw:
        result = only(draw([wish()]))
    assert result.usage == {"images": 1}
    assert result.notes["stage_durations"] == inner


def test_another_prompt_and_another_size_than_asked_for_are_noted(openai_server):
    body = reply(encoded(noise("x", (40, 20))))
    body["data"][0]["revised_prompt"] = "a crimson cat"
    openai_server.script = lambda _: Answer(body)
    with drawing(openai_server, width=64, height=48) as draw:
        notes = only(draw([wish()])).notes
    assert notes["revised_prompt"] == "a crimson cat"
    assert (notes["size"], notes["size_asked_for"]) == ([40, 20], "64x48")


def test_a_picture_given_by_its_address_is_fetched_from_listed_hosts_alone(openai_server):
    data, address = encoded(noise("x")), openai_server.url.removesuffix("/v1") + "/a.png"
    openai_server.pages["/a.png"] = Answer(data, headers={"content-type": "image/png"})
    openai_server.script = lambda _: Answer({"data": [{"url": address}]})
    with drawing(openai_server, image_hosts=["127.0.0.1"]) as draw:
        assert only(draw([wish()])).value.read() == data
    openai_server.asked.clear()
    with drawing(openai_server) as draw:
        failure = only(draw([wish()]))
    assert "pictures are not fetched from '127.0.0.1'" in failure.reason
    assert "GET /a.png" not in openai_server.asked


def bomb() -> bytes:
    """A PNG of 400 megapixels in a few hundred kilobytes."""
    return encoded(Pillow.new("1", (20_000, 20_000), 1))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (reply(), "holds no pictures"),
        (reply(encoded(noise("a")), encoded(noise("b"))), "holds 2 pictures; one was"),
        ({"data": [{"b64_json": "%%%"}]}, "base64"),
        ({"data": [{}]}, "picture"),
        ({"data": [{"url": "http://127.0.0.1:9/a.png"}]}, "not fetched"),
        (reply(encoded(Pillow.new("RGB", (8, 8)))), "wholly black"),
        (bomb, "at most 89,478,485 are read"),
    ],
)
def test_a_reply_without_one_readable_picture_is_a_failure(openai_server, body, words):
    content = reply(body()) if callable(body) else body
    openai_server.script = lambda _: Answer(content)
    with drawing(openai_server) as draw:
        failure = only(draw([wish()]))
    assert isinstance(failure, Failure)
    assert words in failure.reason
    assert not failure.fault.final
    assert failure.usage["images"] == len(content["data"]), "it was paid for"
    assert failure.notes["prompt"] == "a red cat"
    assert len(openai_server.bodies) == 1, "a picture is not paid for again at once"


def test_nothing_is_final_before_the_server_has_accepted_a_request(openai_server):
    """A 400 may be about the settings, which a later command may run with other values."""
    unclear = rejection("Invalid model name passed in model=painter.", None, "400")
    openai_server.script = lambda _: unclear
    with drawing(openai_server) as draw:
        failure = only(draw([wish()]))
        assert (failure.fault, failure.fault.final) == (Fault.ENDPOINT, False)
        assert "no request has been accepted yet; check model, width" in failure.reason
        draw.continue_from({"images": 3})
        assert only(draw([wish()])).fault is Fault.BAD_INPUT


@pytest.mark.parametrize(
    ("dialect", "settings"),
    [
        ("openai", {"quality": "superb"}),
        ("openai", {"model": "gpt-image-2", "response_format": "b64_json"}),
        ("openai", {"model": "gpt-image-9", "response_format": "none"}),
        ("vllm-omni", {"steps": 201}),
    ],
)
def test_a_setting_that_is_rejected_ends_the_stage_and_no_record_for_good(
    dialect, settings
):
    """Else one wrong setting would make every record fail finally."""
    with serving_images(dialect) as server, drawing(server, **settings) as draw:
        failures = [only(draw([wish(str(i))])) for i in range(3)]
    assert len(server.bodies) == 1
    assert {f.fault for f in failures} == {Fault.ENDPOINT}
    assert f"dialect {dialect!r} and extra_body" in failures[0].reason
    assert server.url in failures[0].reason


def test_an_account_without_credit_is_asked_no_more(openai_server):
    broke = rejection("Billing hard limit has been reached", None)
    broke.body["error"]["code"] = "billing_hard_limit_reached"
    openai_server.script = lambda _: broke
    with drawing(openai_server) as draw:
        failures = [only(draw([wish(str(i))])) for i in range(3)]
    assert len(openai_server.bodies) == 9
    assert all("no credit left" in f.reason for f in failures)
    assert not any(f.fault.final for f in failures)


def test_a_wrong_dialect_is_said_once_and_ends_the_stage(openai_server):
    server = openai_server
    with drawing(server, dialect="sglang") as draw:
        failures = [only(draw([wish(str(i))])) for i in range(3)]
    assert len(server.bodies) == 1
    assert {f.fault for f in failures} == {Fault.ENDPOINT}
    assert all("dialect 'sglang'" in f.reason for f in failures)


@pytest.mark.parametrize("dialect", ["sglang", "vllm-omni"])
def test_a_model_that_the_server_does_not_have_is_refused_before_a_picture(dialect):
    """SGLang does not read `model`: it would draw with another one and never say so."""
    with serving_images(dialect) as server:
        stage = drawing(server, model="paintre")
        with (
            pytest.raises(EndpointError, match="no model 'paintre'; it has painter"),
            stage,
        ):
            pass
    assert not server.bodies


def costs(server: Any, count: int, **settings: Any) -> list[Any]:
    with drawing(server, **settings) as draw:
        return [only(draw([wish(str(i))])) for i in range(count)]


def test_a_budget_is_kept_by_the_token_and_by_both(openai_server):
    server = openai_server
    prices = {"price_per_million_input": 5.0, "price_per_million_output": 40.0}
    by_token = costs(server, 1, **prices)[0].usage["cost"]
    assert by_token == pytest.approx((12 * 5 + 272 * 40) / 1e6)
    both = costs(server, 1, **prices, price_per_image=0.5)[0].usage["cost"]
    assert both == pytest.approx(by_token + 0.5)


def test_pictures_that_cannot_be_used_are_paid_for(openai_server):
    server = openai_server
    twice = reply(encoded(noise("a")), encoded(noise("b")))
    server.script = lambda _: Answer(twice)
    first, second, third = costs(server, 3, price_per_image=1.0, max_cost=4.0)
    assert (first.fault, first.usage) == (Fault.ENDPOINT, {"images": 2, "cost": 2.0})
    assert (second.fault, third.fault) == (Fault.ENDPOINT, Fault.BUDGET)


@pytest.mark.parametrize(
    "listing",
    [Answer({"data": [{"id": "other", "owned_by": "sglang"}]}), Answer({"data": []})],
)
def test_a_plain_server_is_taken_for_openais_whatever_it_lists(openai_server, listing):
    openai_server.pages["/v1/models"] = listing
    stage = ImagesEndpoint(model=MODEL, base_url=openai_server.url)
    result = only(stage([wish()]))
    stage.close()
    assert result.notes["dialect"] == "openai"
    assert "seed" not in openai_server.bodies[0]


@pytest.mark.parametrize("body", [{"models": []}, b'{"data": [{"id"'])
def test_a_listing_that_is_none_is_refused_before_an_image(openai_server, body):
    openai_server.pages["/v1/models"] = Answer(body)
    with pytest.raises(EndpointError), drawing(openai_server):
        pass
    assert not openai_server.bodies
