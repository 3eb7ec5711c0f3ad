"""What each API is sent."""

from __future__ import annotations

import base64
import email.utils
import io
import itertools
import time
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from endpoint_apis import (
    BAGEL,
    BLUE,
    CHAT,
    CHAT_IMAGES,
    DIALECTS,
    EDITS,
    GEMINI,
    HUNYUAN,
    IMAGES,
    OMNI,
    RED,
    RESPONSES,
    SENSENOVA,
    noise,
    part,
    shown,
    text,
    url_of,
    wish,
)
from endpoint_helpers import KEY, MODEL, Answer, asking, completion, error, says
from openai.types import ImagesResponse
from picture_helpers import saved
from PIL import Image as Pillow

from plait.generators.base import Failure, Fault, Result, Skip
from plait.generators.document import Image, ImageRequest, Request, Text, Turn
from plait.pipelines.endpoints import images
from plait.pipelines.endpoints.client import EndpointClient
from plait.pipelines.endpoints.errors import EndpointError, StatusError

pytestmark = pytest.mark.contract

TALK = (
    Turn("system", (Text("Be brief."),)),
    Turn("user", (Text("look "), RED, Text(" here"))),
    Turn("assistant", (Text("a picture: "), BLUE)),
    Turn("user", (Text("and now?"),)),
)
SEEDED = Request(TALK, seed=2**40 + 3)
WHY = Request((Turn("user", (Text("why?"),)),), seed=1, modality="text")


def of(*apis: Any) -> Any:
    return pytest.mark.parametrize("api", apis, ids=lambda api: api.name)


@of(CHAT, CHAT_IMAGES, BAGEL, GEMINI, RESPONSES)
def test_images_of_the_question_and_of_earlier_turns_are_sent_and_noted(api, server):
    result = api.once(server, SEEDED, max_attempts=1)
    sent = str(server.bodies[0])
    assert "Be brief." in sent
    for image in (RED, BLUE):
        assert base64.b64encode(image.read()).decode() in sent
        assert image.digest in str(result.notes["prompt"])
    assert result.notes["image_sizes"] == [[12, 8], [12, 8]]


def test_models_are_asked_as_their_kits_ask_them(server):
    """The seed, the size and the form of a prompt stand where their servers read them."""
    asked = Request((Turn("user", (Text("look <|im_end|>"), RED)),), seed=5)
    for api in (SENSENOVA, BAGEL, HUNYUAN):
        api.once(server, asked, **{"system": "Draw."} if api is SENSENOVA else {})
    sensenova, bagel, hunyuan = server.bodies
    assert sensenova["messages"][0] == {"role": "system", "content": "Draw."}
    assert sensenova["seed"] == sensenova["image_config"]["seed"] == 5
    assert sensenova["image_config"]["width"] == 1920
    assert sensenova["chat_template_kwargs"] == {"enable_thinking": True}
    assert sensenova["modalities"] == ["text", "image"]
    (turn,) = bagel["messages"]
    broken = turn["content"][0]["text"].removeprefix("<|im_start|>")
    assert turn["content"] == [text(f"<|im_start|>{broken}"), part(RED)]
    assert broken.endswith("<|im_end|>")
    assert broken.count("<|im_end|>") == 1, "the user's own is broken"
    for body in (bagel, hunyuan):
        assert body["modalities"] == ["image"]
        assert (body["seed"], body["num_inference_steps"]) == (5, 50)
    assert hunyuan["messages"][0]["content"] == [text("look <|im_end|>"), part(RED)]
    assert (bagel["height"], hunyuan["height"]) == (512, 1024)
    look = Request((Turn("user", (RED, Text("what?"))),), seed=5, modality="text")
    BAGEL.once(server, look)
    (turn,) = server.bodies[-1]["messages"]
    start, end = "<|im_start|>user\n<|image_pad|>\n", "<|im_end|>\n<|im_start|>assistant\n"
    assert turn["content"] == [text(f"{start}what?{end}"), part(RED)]
    assert isinstance(HUNYUAN.once(server, look), Skip)


@of(CHAT_IMAGES, BAGEL, GEMINI, RESPONSES)
def test_text_alone_is_asked_for_where_an_answer_needs_no_images(api, server):
    api.once(server, WHY)
    sent = str(server.bodies[0])
    assert "image_generation" not in sent
    assert "IMAGE" not in sent
    assert "'image'" not in sent


def test_a_chat_endpoint_is_sent_what_its_settings_say(server):
    """Images of an assistant's turn follow it in a user's message."""
    options = {"temperature": 0.7, "top_p": 0.9, "max_tokens": 5, "system": "Be kind."}
    options |= {"max_tokens_field": "max_completion_tokens", "image_detail": "low"}
    options |= {"send_seed": True, "extra_body": {"top_k": 4}}
    result = CHAT.once(server, SEEDED, **options)

    def messages(form: Any) -> list[dict[str, Any]]:
        return [
            {"role": "system", "content": "Be kind.\n\nBe brief."},
            {"role": "user", "content": [text("look "), form(RED), text(" here")]},
            {"role": "assistant", "content": "a picture: "},
            {"role": "user", "content": [form(BLUE)]},
            {"role": "user", "content": "and now?"},
        ]

    about = {"temperature": 0.7, "top_p": 0.9, "max_completion_tokens": 5, "seed": 3}
    about |= {"stream": False}
    sent = messages(lambda image: part(image, detail="low"))
    assert server.bodies == [{"model": MODEL, "messages": sent, "top_k": 4, **about}]
    noted = messages(lambda image: {"type": "image", "sha256": image.digest})
    assert result.notes["prompt"] == noted
    assert server.keys == [KEY] * 2
    CHAT.once(server, says("a", seed=1), temperature=None, max_tokens=None)
    assert set(server.bodies[1]) == {"model", "messages", "stream"}


def test_the_first_request_asks_for_a_few_tokens_and_they_count(server):
    """Of a small ceiling a full-length answer would take all, in no record."""
    bodies: list[Any] = []
    server.preflight = lambda body: bodies.append(body) or Answer(completion("ready"))
    settings = {"temperature": 0.5, "extra_body": {"top_k": 2}}
    failure = CHAT.once(server, max_tokens=1024, max_total_tokens=18, **settings)
    assert failure.fault is Fault.BUDGET
    CHAT.once(server, max_tokens=None)
    CHAT.once(server, max_tokens=5, max_tokens_field="max_completion_tokens")
    assert (bodies[0]["temperature"], bodies[0]["top_k"]) == (0.5, 2)
    assert [body.get("max_tokens") for body in bodies] == [16, 16, None]
    assert bodies[2]["max_completion_tokens"] == 5
    # OpenAI's answer where reasoning uses up all tokens of the short reply.
    words = "Could not finish: max_tokens or model output limit was reached."
    server.preflight = lambda body: Answer(error(words), 400)
    assert isinstance(CHAT.once(server), Result)


def test_chat_images_asks_for_both_modalities_and_sends_a_seed_if_told(server):
    CHAT_IMAGES.once(server, says("draw", seed=5), send_seed=True)
    assert server.bodies[0]["modalities"] == ["image", "text"]
    assert server.bodies[0]["seed"] == 5
    CHAT_IMAGES.once(server, says("draw", seed=5), modalities=[])
    assert not {"modalities", "seed"} & set(server.bodies[1])
    assert OMNI.once(server, says("draw", seed=5)).notes["seed"] == 5
    assert server.bodies[2]["modalities"] == ["text", "image"]


def test_a_server_that_cannot_write_text_alone_is_asked_as_for_any_query(server):
    refusal = Answer(error("anole cannot be told so; leave modalities out"), 400)
    server.script = lambda body: (
        refusal if body["modalities"] == ["text"] else server.default(body)
    )
    with CHAT_IMAGES.asking(server) as stage:
        (result,) = stage([WHY])
        assert shown(result) == ["first", "RED", "then"]
        sent = [body["modalities"] for body in server.bodies]
        assert sent == [["text"], ["image", "text"]]
        stage([WHY])
    assert server.bodies.pop()["modalities"] == ["image", "text"]
    assert len(server.bodies) == 2, "what it has rejected is not sent again"
    assert result.notes["modality"] != "text"
    server.always(error("modalities are unknown here"), 400)
    assert isinstance(CHAT_IMAGES.once(server, says("draw")), Failure)
    assert len(server.bodies) == 3, "only a request for text alone is sent again"


def test_responses_is_sent_the_tool_and_takes_no_seed(server):
    settings = {"size": "1024x1024", "quality": "low", "must_draw": True, "max_tokens": 99}
    RESPONSES.once(server, says("draw", RED, seed=3), **settings)
    (body,) = server.bodies
    content = [
        {"type": "input_text", "text": "draw"},
        {"type": "input_image", "image_url": url_of(RED), "detail": "auto"},
    ]
    tool = {"type": "image_generation", "size": "1024x1024", "quality": "low"}
    assert body == {
        "model": MODEL,
        "input": [{"role": "user", "content": content}],
        "tools": [tool],
        "tool_choice": {"type": "image_generation"},
        "store": False,
        "stream": False,
        "max_output_tokens": 99,
    }


# Gemini, against Google's own SDK


@pytest.mark.parametrize(
    ("settings", "config"),
    [
        (
            {"temperature": 0.5, "top_p": 0.9, "max_tokens": 77, "model": "tunedModels/x"},
            {"temperature": 0.5, "top_p": 0.9, "max_output_tokens": 77},
        ),
        (
            {"aspect_ratio": "1:1", "image_size": "2K", "api_version": "v1"},
            {"image_config": {"aspect_ratio": "1:1", "image_size": "2K"}},
        ),
    ],
)
def test_gemini_is_sent_what_googles_sdk_sends(server, settings, config):
    genai = pytest.importorskip("google.genai")
    GEMINI.once(server, SEEDED, **settings)
    (ours,) = server.bodies

    def parts(content: Any) -> list[dict[str, Any]]:
        return [
            {"text": s.text}
            if isinstance(s, Text)
            else {"inline_data": {"mime_type": "image/png", "data": s.read()}}
            for s in content
        ]

    version = settings.get("api_version", "v1beta")
    options = {"base_url": server.root, "api_version": version}
    client = genai.Client(api_key=KEY, vertexai=False, http_options=options)
    client.models.generate_content(
        model=settings.get("model", MODEL),
        contents=[
            {"role": role, "parts": parts(turn.content)}
            for role, turn in zip(("user", "model", "user"), TALK[1:], strict=True)
        ],
        config=config
        | {"system_instruction": "Be brief.", "seed": 3}
        | {"response_modalities": ["TEXT", "IMAGE"]},
    )
    theirs = server.bodies[1]
    assert (ours.path, ours.key) == (theirs.path, theirs.key)
    assert normal(ours) == normal(theirs)


def normal(body: Any) -> Any:
    """With bytes in one alphabet, and names in one case: the API takes both of both."""
    if isinstance(body, dict):
        names = {"mime_type": "mimeType"}
        return {names.get(n, n): normal(value) for n, value in body.items()}
    if isinstance(body, list):
        return [normal(part) for part in body]
    is_bytes = isinstance(body, str) and len(body) > 60
    return body.replace("-", "+").replace("_", "/") if is_bytes else body


def test_further_fields_are_put_into_geminis_own(server):
    extra = {"generation_config": {"topK": 3}, "safetySettings": []}
    GEMINI.once(server, temperature=0.5, extra_body=extra)
    (body,) = server.bodies
    assert body["generationConfig"]["topK"] == 3
    assert body["generationConfig"]["temperature"] == 0.5
    assert body["safetySettings"] == []
    assert "generation_config" not in body


def test_gemini_names_an_unknown_model_before_it_is_asked(server):
    unknown = {"code": 404, "message": "models/parrot is not found", "status": "NOT_FOUND"}
    server.get = lambda path: Answer({"error": unknown}, 404)
    with pytest.raises(EndpointError, match="models/parrot is not found"):
        GEMINI.once(server)
    gateway = {"detail": "Not Found"}, {"error": unknown | {"message": "Not Found"}}
    for body in gateway:
        server.get = lambda path, body=body: Answer(body, 404)
        assert isinstance(GEMINI.once(server, max_attempts=1), Result)
    server.get = lambda path: Answer(b"<html>welcome</html>")
    with pytest.raises(EndpointError, match="api_version"):
        GEMINI.once(server, max_attempts=1)


def test_geminis_wrong_key_and_pause_are_read_from_its_details(server):
    def wrong(reason: str, **detail: Any) -> dict[str, Any]:
        about = {"code": 400, "message": "no", "status": "INVALID_ARGUMENT"}
        return {"error": about | {"details": [{"reason": reason} | detail]}}

    server.always(wrong("API_KEY_INVALID"), 400)
    failure = GEMINI.once(server)
    assert (failure.fault, "GEMINI_API_KEY" in failure.reason) == (Fault.ENDPOINT, True)
    server.always(wrong("x", retryDelay="3600s"), 429)
    failure = GEMINI.once(server)
    assert (failure.fault, "3600 s" in failure.reason) == (Fault.ENDPOINT, True)


# Images as they are sent


def test_images_are_sent_as_they_are_or_upright_opaque_and_small_enough(server):
    exif = Pillow.Exif()
    exif[0x0112] = 6
    plain = Pillow.new("RGB", (20, 12), "red")
    shown = {
        saved(plain, "PNG"): None,
        saved(plain, "JPEG"): None,
        saved(Pillow.new("RGB", (400, 100)), "PNG"): (64, 16),
        saved(plain, "JPEG", exif=exif): (12, 20),
        saved(Pillow.new("RGBA", (20, 12), (9, 9, 9, 9)), "PNG"): (20, 12),
        saved(plain, "WEBP"): (20, 12),
        saved(Pillow.new("CMYK", (20, 12)), "JPEG"): (20, 12),
    }
    with CHAT.asking(server, image_max_side=64, image_format="jpeg") as ask:
        for data, size in shown.items():
            outcome = CHAT.one(ask, says(Image.of(data)))
            url = server.bodies[-1]["messages"][-1]["content"][0]["image_url"]["url"]
            head, _, sent = url.partition(",")
            pixels = Pillow.open(io.BytesIO(base64.b64decode(sent)))
            assert outcome.notes["image_sizes"] == [list(pixels.size)]
            if size is None:
                assert base64.b64decode(sent) == data
            else:
                assert (head, pixels.mode) == ("data:image/jpeg;base64", "RGB")
                assert (pixels.size, pixels.getexif().get(0x0112, 1)) == (size, 1)


# Waiting


def limited(after: str | float) -> StatusError:
    """With a pause in words, or until so many seconds from now."""
    if isinstance(after, float):
        after = email.utils.formatdate(time.time() + after, usegmt=True)
    return StatusError(httpx2.Response(429, headers={"Retry-After": after}), b"slow down")


def test_the_wait_is_what_the_server_asks_or_grows_with_jitter():
    assert limited("7.5").pause == 7.5
    assert 11_000 < limited(12_000.0).pause <= 12_001
    assert limited(-120.0).pause == 0
    assert limited("soon").pause is limited("nan").pause is None
    client = SimpleNamespace(settings=SimpleNamespace(backoff_s=1.0))

    def pauses(error: Exception, attempt: int) -> list[float]:
        return [EndpointClient._pause(client, error, attempt) for _ in range(200)]

    asked = pauses(limited("7"), 1)
    assert 7 <= min(asked) < max(asked) <= 8
    grown = [max(pauses(TimeoutError(), attempt)) for attempt in (1, 4, 20, 2000)]
    assert grown == [pytest.approx(longest, rel=0.1) for longest in (1, 8, 60, 60)]


def test_no_attempt_begins_after_the_total_time(server, monkeypatch):
    server.always(error("a while"), 503)
    with CHAT.asking(server, give_up_s=2.0, max_attempts=100) as stage:
        # As if each attempt took a second.
        clock = SimpleNamespace(monotonic=itertools.count().__next__)
        monkeypatch.setattr("plait.pipelines.endpoints.client.time", clock)
        failure = CHAT.one(stage)
    assert (failure.fault, len(server.bodies)) == (Fault.ENDPOINT, 2)
    server.always(error("come back later"), 429, headers={"retry-after": "3600"})
    failure = CHAT.once(server)
    assert (failure.fault, len(server.bodies)) == (Fault.ENDPOINT, 3)
    assert "3600 s" in failure.reason


# Images servers

DIFFUSION = {"width": 80, "height": 32, "steps": 9, "guidance": 3.5}
SAME = {"true_cfg_scale": 4.0, "negative_prompt": "blur", "generator_device": "cpu"}
DIFFUSION |= SAME | {"prompt_prefix": "oil: "}
SENT = {"model": MODEL, "prompt": "oil: a red cat", "size": "80x32", "seed": 7, **SAME}
SENT |= {"response_format": "b64_json", "output_format": "png"}
SENT |= {"num_inference_steps": 9, "guidance_scale": 3.5}


@pytest.mark.parametrize(
    ("api", "more"),
    [(IMAGES["sglang"], {"max_sequence_length": 64}), (IMAGES["vllm-omni"], {})],
    ids=["sglang", "vllm-omni"],
)
def test_diffusion_servers_get_every_setting_under_its_own_name(api, more):
    with api.serving() as server:
        result = api.once(server, wish(), **DIFFUSION, **more)
        assert server.bodies == [SENT | more]
        assert (result.notes["seed"], result.notes["size"]) == (7, [80, 32])
        seeds = [2**63 - 1, 2**63 - 2, 2**63 - 1]
        with api.asking(server) as stage:
            first, other, again = stage([wish(seed=seed) for seed in seeds])
    assert {body["seed"] for body in server.bodies[1:]} == set(seeds)
    assert first.value.digest == again.value.digest != other.value.digest


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_edit_is_a_form_of_the_images_and_the_fields_of_a_prompt(dialect):
    """An image is sent as it is; what not every server reads becomes a PNG first."""
    clear = Pillow.new("RGBA", (6, 4), (255, 0, 0, 0))
    api = IMAGES[dialect]
    settings = {"width": 80, "height": 32, "extra_body": {"n_best": 2}}
    if dialect == "openai":
        settings |= {"quality": "low", "extra_body": {"background": "opaque"}}
    else:
        settings |= {"steps": 9, "guidance": 3.5, "negative_prompt": "blur"}
    with api.serving() as server:
        asked = wish("make it blue", 7, RED, Image.of(saved(clear, "PNG")))
        result = api.once(server, asked, **settings)
        drawn = api.once(server, wish("make it blue"), **settings)
    edit, generation = server.bodies
    paths = [body.path for body in server.bodies]
    assert paths == ["/v1/images/edits", "/v1/images/generations"]
    first, second = edit.pop("image[]")
    assert first == RED.read()
    opened = Pillow.open(io.BytesIO(second))
    assert (opened.format, opened.mode, opened.size) == ("PNG", "RGB", (6, 4))
    assert edit == {name: str(value) for name, value in generation.items()}
    assert result.notes["input_images"] == [image.digest for image in asked.context]
    assert result.notes["image_sizes"] == [[12, 8], [6, 4]]
    assert (result.notes["size"], result.usage["images"]) == ([80, 32], 1)
    assert result.value.digest != drawn.value.digest
    assert "input_images" not in drawn.notes


def test_a_server_without_edits_is_named_and_a_model_that_it_lacks_is_another_matter():
    api = EDITS["openai"]
    absent = [Answer({"detail": "Not Found"}, 404), Answer(b"Method Not Allowed", 405)]
    for answer in absent:
        with api.serving() as server, api.asking(server) as stage:
            server.always(answer)
            failures = [api.one(stage, str(i)) for i in range(5)]
            sent = len(server.bodies)
        assert {(f.fault, f.fault.final) for f in failures} == {(Fault.ENDPOINT, False)}
        assert server.url in failures[0].reason
        assert f"HTTP {answer.status}" in failures[0].reason
        assert "no /images/edits" in failures[0].reason
        assert sent == 3 * 3, "after three records no more is asked"
    unknown = Answer(error("no such model", "model_not_found"), 404)
    with api.serving() as server:
        server.always(unknown)
        assert "/images/edits" not in api.once(server).reason


def test_what_cannot_be_edited_fails_alone_and_is_not_sent(monkeypatch):
    api = EDITS["openai"]
    monkeypatch.setattr(images, "_MOST_BYTES", len(RED.read()))
    noisy = Image.of(saved(noise("large", (90, 90)), "PNG"))
    with api.serving() as server, api.asking(server) as stage:
        broken, large, turn, good = stage(
            [
                wish("a", 1, Image.of(b"no picture")),
                wish("a", 1, noisy),
                ImageRequest(prompt="a", seed=1, context=(Text("before"), RED)),
                wish("a", 1, RED),
            ]
        )
        assert len(server.bodies) == 1
    assert {f.fault for f in (broken, large, turn)} == {Fault.BAD_INPUT}
    assert "larger" in large.reason
    assert isinstance(good, Result)


@pytest.mark.parametrize("ids", [["other"], []])
def test_openai_gets_only_what_it_takes_and_no_seed(ids):
    """As any server whose dialect is not set, whatever it lists."""
    api, settings = IMAGES["openai"], {"width": 80, "height": 32, "quality": "low"}
    settings |= {"output_format": "webp", "extra_body": {"moderation": "low"}}
    with api.serving() as server:
        listing = {"data": [{"id": name, "owned_by": "sglang"} for name in ids]}
        server.get = lambda path: Answer(listing)
        with asking(server, api.stage, **settings) as stage:
            bad, result = stage([ImageRequest(prompt="  ", seed=1), wish(seed=2**62)])
        (body,) = server.bodies
        ImagesResponse.model_validate(server.default(body).body)
    same = {"quality": "low", "output_format": "webp", "moderation": "low"}
    own = {"model": MODEL, "prompt": "a red cat", "size": "80x32"}
    assert body == own | same | {"response_format": "b64_json"}
    assert bad.fault is Fault.BAD_INPUT
    assert (result.notes["dialect"], result.notes["seed"] == 2**62) == ("openai", False)
    assert result.value.read()[8:12] == b"WEBP"


def test_a_response_format_is_left_out_where_it_is_refused():
    """GPT image models refuse it, and LiteLLM's proxy for its own names of them."""
    api = IMAGES["openai"]
    with api.serving() as server:
        for model in ("gpt-image-2", "azure/gpt-image-2.5-flare", "chatgpt-image-latest"):
            assert isinstance(api.once(server, model=model), Result)
        assert isinstance(api.once(server, response_format="none"), Result)
        refusal = Answer(error("Setting `response_format` is not supported."), 400)
        server.script = lambda body: (
            refusal if "response_format" in body else server.default(body)
        )
        with api.asking(server, concurrency=4) as stage:
            results = stage([wish(str(i)) for i in range(4)]) + stage([wish("last")])
        assert all(isinstance(r, Result) for r in results), results
        assert "response_format" in str(server.bodies[4:-1])
        for body in (*server.bodies[:4], server.bodies[-1]):
            assert "response_format" not in body
        own = api.once(server, response_format="b64_json")
    assert isinstance(own, Failure), "the user's own choice stands"


def test_nothing_is_final_before_the_server_has_accepted_a_request():
    """A 400 may be about the settings, which a later command may run with other values.

    Where it is, the stage ends: else one wrong setting would make every record fail.
    """
    for dialect, wrong in (
        ("openai", {"model": "gpt-image-2", "response_format": "b64_json"}),
        ("vllm-omni", {"steps": 201}),
        ("openai", {"dialect": "sglang"}),
    ):
        api = IMAGES[dialect]
        with api.serving() as server, api.asking(server, **wrong) as stage:
            failures = [api.one(stage, str(i)) for i in range(3)]
        assert len(server.bodies) == 1
        assert {f.fault for f in failures} == {Fault.ENDPOINT}
        assert "dialect" in failures[0].reason
    api = IMAGES["openai"]
    with api.serving() as server, api.asking(server) as stage:
        server.always(error("Invalid model name passed in model=parrot."), 400)
        failure = api.one(stage)
        assert (failure.fault, failure.fault.final) == (Fault.ENDPOINT, False)
        stage.continue_from({"images": 3})
        assert api.one(stage).fault is Fault.BAD_INPUT


@pytest.mark.parametrize("dialect", ["sglang", "vllm-omni"])
def test_a_model_that_the_server_does_not_have_is_refused_before_an_image(dialect):
    """SGLang does not read `model`: it would draw with another one and never say so."""
    api = IMAGES[dialect]
    with api.serving() as server:
        with pytest.raises(EndpointError, match="'paintre'; it has parrot"):
            api.once(server, model="paintre")
        for body in ({"models": []}, b'{"data": [{"id"'):
            server.get = lambda path, body=body: Answer(body)
            with pytest.raises(EndpointError):
                api.once(server, max_attempts=1)
        assert not server.bodies
