"""Text-to-image models behind a server: what is sent, what is read, and what is noted."""

from __future__ import annotations

import base64
import hashlib
import typing
from typing import Any

import pytest
from endpoint_helpers import KEY, Answer, error
from images_helpers import (
    MODEL,
    OWNERS,
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

DIFFUSION = {
    "width": 80,
    "height": 32,
    "steps": 9,
    "guidance": 3.5,
    "true_cfg_scale": 4.0,
    "negative_prompt": "blur",
    "generator_device": "cpu",
}
SENT = {
    "model": MODEL,
    "prompt": "a red cat",
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


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture(params=list(OWNERS))
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


@pytest.mark.parametrize("dialect", ["sglang", "vllm-omni"])
def test_diffusion_servers_get_every_setting_under_its_own_name(dialect):
    with serving_images(dialect) as server, drawing(server, **DIFFUSION) as draw:
        result = only(draw([wish()]))
    assert server.bodies == [SENT]
    assert server.keys == [f"Bearer {KEY}"]
    assert drawn(result).size == (80, 32)
    assert result.notes["seed"] == 7


def test_sglang_alone_takes_the_length_of_a_prompt():
    with serving_images("sglang") as server, drawing(server, max_sequence_length=64) as d:
        assert isinstance(only(d([wish()])), Result)
    assert server.bodies[0]["max_sequence_length"] == 64


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


def test_the_prompt_has_its_prefix(openai_server):
    with drawing(openai_server, prompt_prefix="oil painting of ") as draw:
        result = only(draw([wish()]))
    assert openai_server.bodies[0]["prompt"] == "oil painting of a red cat"
    assert result.notes["prompt"] == "oil painting of a red cat"


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (ImageRequest(prompt="  ", seed=1), "prompt is empty"),
        (ImageRequest(prompt="a cat"), "has no seed"),
        (ImageRequest(payload=Payload.of(b"x"), seed=1), "holds more than a prompt"),
        (ImageRequest(prompt="a", context=(Text("b"),), seed=1), "holds more than a"),
        (ImageRequest(prompt="a\ud800", seed=1), "not valid text"),
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


@pytest.mark.parametrize(
    ("encoding", "kept"), [("JPEG", True), ("WEBP", True), ("GIF", False), ("BMP", False)]
)
def test_formats_that_pages_show_are_stored_as_they_come(openai_server, encoding, kept):
    data = encoded(Pillow.new("RGB", (8, 8), "red"), encoding)
    openai_server.script = lambda _: Answer(reply(data))
    with drawing(openai_server) as draw:
        result = only(draw([wish()]))
    assert (result.value.read() == data) is kept
    assert drawn(result).getpixel((3, 3))[0] > 240


def test_a_data_url_is_read_wherever_it_stands(openai_server):
    data = encoded(noise("x"))
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    for field in ("url", "b64_json"):
        openai_server.script = lambda _, f=field: Answer({"created": 1, "data": [{f: url}]})
        with drawing(openai_server) as draw:
            assert only(draw([wish()])).value.read() == data


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
        (reply(encoded(noise("a"))[:200]), "cannot be decoded"),
        (reply(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), "no known picture format"),
        (reply(b"<html>sorry</html>"), "no known picture format"),
        (reply(b""), "picture"),
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


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Your request was rejected.", "moderation_blocked"),
        ("Your request was rejected.", "content_policy_violation"),
        ("Your request was rejected.", "content_filter"),
        # As LiteLLM's proxy passes the first on.
        ("BadRequestError - Your request was rejected by the safety system.", "400"),
    ],
)
def test_a_refusal_is_final_and_concerns_its_record_alone(openai_server, text, code):
    openai_server.in_turn(rejection(text, None, code))
    with drawing(openai_server) as draw:
        refusal, picture = only(draw([wish()])), only(draw([wish("a lake")]))
    assert refusal.fault is Fault.REFUSED
    assert refusal.fault.final
    assert isinstance(picture, Result)


def test_a_prompt_that_is_rejected_is_final_for_its_record(openai_server):
    with drawing(openai_server) as draw:
        picture, failure = only(draw([wish()])), only(draw([wish("x" * 32_001)]))
    assert failure.fault is Fault.BAD_INPUT
    assert isinstance(picture, Result)


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
    assert "Check model, width, height, dialect and extra_body" in failures[0].reason
    assert server.url in failures[0].reason


def test_an_account_without_credit_is_asked_no_more(openai_server):
    broke = rejection("Billing hard limit has been reached", None)
    broke.body["error"]["code"] = "billing_hard_limit_reached"
    openai_server.script = lambda _: broke
    with drawing(openai_server) as draw:
        failures = [only(draw([wish(str(i))])) for i in range(3)]
    assert len(openai_server.bodies) == 1
    assert all("no credit left" in f.reason for f in failures)
    assert not any(f.fault.final for f in failures)


def test_no_more_requests_are_in_flight_than_allowed(openai_server):
    openai_server.script = lambda body: Answer(openai_server.draw(body).body, hold_s=0.05)
    with drawing(openai_server, concurrency=3) as draw:
        results = draw([wish(str(i)) for i in range(9)])
    assert all(isinstance(r, Result) for r in results)
    assert openai_server.most_in_flight == 3


def test_the_loading_stage_draws_no_picture(server):
    with drawing(server):
        pass
    assert server.asked == ["GET /v1/models"]


def test_an_error_of_the_server_never_shows_the_key(openai_server):
    openai_server.script = lambda _: Answer(error(f"bad: Bearer {KEY}"), 500)
    with drawing(openai_server, max_attempts=1) as draw:
        failure = only(draw([wish()]))
    assert "***" in failure.reason
    assert KEY not in repr(failure)
