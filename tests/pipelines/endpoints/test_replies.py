"""How replies of every shape are read, and what is counted as used."""

from __future__ import annotations

import gzip

import pytest
from endpoint_apis import (
    BLUE,
    CHAT,
    CHAT_IMAGES,
    GEMINI,
    IMAGES,
    INTERLEAVED,
    OMNI,
    RED,
    RESPONSES,
    base64_of,
    drawn,
    gemini,
    images,
    inline,
    noise,
    omni,
    part,
    picture,
    response,
    said,
    segment,
    shown,
    text,
    url_of,
)
from endpoint_helpers import MODEL, Answer, completion
from picture_helpers import png_header, saved
from PIL import Image as Pillow

from generators.base import Failure, Fault, Result

JPEG = picture("green", (64, 48), "JPEG")


@pytest.mark.parametrize("api", INTERLEAVED, ids=lambda a: a.name)
def test_text_and_images_keep_their_order_and_their_bytes(api):
    with api.serving() as server:
        result = api.once(server)
        assert shown(result) == ["first", "RED", "then"]
        assert result.value.images[0].read() == RED.read()
        assert result.usage["images"] == 1
        assert result.notes["attempts"] == 1
        assert result.notes["model"].startswith(MODEL)
        assert "order" not in result.notes
        server.always(api.holding(JPEG.read()))
        assert api.once(server).value.images[0].read() == JPEG.read()


PRICES = {"price_per_million_input": 1, "price_per_million_output": 10}
CHAT_USAGE = {
    "prompt_tokens": 9,
    "completion_tokens": 30,
    "prompt_tokens_details": {"cached_tokens": 5},
    "completion_tokens_details": {"reasoning_tokens": 8, "image_tokens": 20},
}


@pytest.mark.parametrize(
    ("api", "reply", "usage"),
    [
        (
            CHAT,
            completion("a", usage=CHAT_USAGE),
            {"input_tokens": 9, "output_tokens": 30, "cached_tokens": 5}
            | {"reasoning_tokens": 8, "image_output_tokens": 20}
            | {"cost": (9 + 30 * 10) / 1e6},
        ),
        (
            GEMINI,
            gemini(inline(RED)),
            {"input_tokens": 9, "output_tokens": 1310, "reasoning_tokens": 10}
            | {"image_output_tokens": 1290, "images": 1}
            | {"cost": (9 + 20 * 10 + 1290 * 40) / 1e6 + 0.5},
        ),
        # The API leaves out counts of 0.
        (
            GEMINI,
            gemini(text("a"), usageMetadata={"promptTokenCount": 3}),
            {"input_tokens": 3, "output_tokens": 0, "cost": 3 / 1e6},
        ),
        (
            RESPONSES,
            response(drawn(RED)),
            {"input_tokens": 25, "output_tokens": 1030, "cached_tokens": 4}
            | {"reasoning_tokens": 8, "image_output_tokens": 1000, "images": 1}
            | {"cost": pytest.approx((25 + 30 * 10 + 1000 * 40) / 1e6 + 0.5)},
        ),
        (
            IMAGES["openai"],
            images(
                saved(noise("x"), "PNG"), usage={"input_tokens": 12, "output_tokens": 2}
            ),
            {"images": 1, "input_tokens": 12, "output_tokens": 2}
            | {"cost": 32 / 1e6 + 0.5},
        ),
        (
            IMAGES["sglang"],
            images(
                saved(noise("x"), "PNG"), usage={"prompt_tokens": 1, "completion_tokens": 2}
            ),
            {"images": 1, "input_tokens": 1, "output_tokens": 2, "cost": 21 / 1e6 + 0.5},
        ),
    ],
)
def test_usage_counts_thoughts_images_and_the_tools_own_tokens(api, reply, usage):
    prices = PRICES | ({} if api is CHAT else {"price_per_image": 0.5})
    if api in INTERLEAVED:
        prices |= {"price_per_million_image_output": 40}
    with api.serving() as server:
        server.always(reply)
        assert api.once(server, **prices).usage == usage


SHAPES = {
    "one text": (CHAT, completion([text("one "), text("two")]), ["one two"]),
    "images beside the text": (
        CHAT_IMAGES,
        completion("look", images=[{"index": 0} | part(RED)]),
        ["look", "RED", "order"],
    ),
    "images without a text": (
        CHAT_IMAGES,
        completion(None, images=[part(RED), part(BLUE)]),
        ["RED", "BLUE"],
    ),
    "images that repeat the content": (
        CHAT_IMAGES,
        completion([text("a"), part(RED)], images=[part(RED)]),
        ["a", "RED"],
    ),
    "an image that the segments lack": (
        OMNI,
        completion("a", segments=[segment(0, "text", "a")], images=[part(RED)]),
        ["a", "RED", "order"],
    ),
    "segments beside the choices": (
        OMNI,
        {
            "choices": [],
            "model": MODEL,
            "segments": [
                segment(0, "text", "first"),
                segment(1, "image", {"url": url_of(RED), "mime_type": "image/png"}),
                segment(2, "text", {"text": "then"}),
            ],
        },
        ["first", "RED", "then"],
    ),
    "bare base64": (
        CHAT_IMAGES,
        completion([{"type": "image", "image": base64_of(RED)}]),
        ["RED"],
    ),
    "b64_json": (
        CHAT_IMAGES,
        completion([{"type": "output_image", "b64_json": base64_of(RED)}]),
        ["RED"],
    ),
    "a source as Anthropic writes it": (
        CHAT_IMAGES,
        completion(
            [
                {
                    "type": "image",
                    "source": {"media_type": "image/png", "data": base64_of(RED)},
                }
            ]
        ),
        ["RED"],
    ),
    "stage durations of vLLM-Omni": (
        CHAT_IMAGES,
        completion([part(RED) | {"stage_durations": {"x": 1.0}}]),
        ["RED"],
    ),
    "thoughts": (
        CHAT_IMAGES,
        completion([{"type": "thinking", "thinking": []}, text("b"), part(RED)]),
        ["b", "RED", "thoughts"],
    ),
    "thoughts of Gemini": (
        GEMINI,
        gemini(
            text("hm") | {"thought": True},
            {"text": "b"},
            inline(RED) | {"thoughtSignature": "c2ln"},
            {"thoughtSignature": "c2ln"},
        ),
        ["b", "RED", "thoughts"],
    ),
    "reasoning": (
        RESPONSES,
        response(
            {"type": "reasoning", "summary": []}, said("b"), drawn(RED, revised_prompt="r")
        ),
        ["b", "RED", "thoughts", "revised_prompts"],
    ),
    "a search": (RESPONSES, response(said("b"), {"type": "web_search_call"}), ["b"]),
    "white space around texts, and neighbours": (
        GEMINI,
        gemini(text("Hel"), text("lo.\n\n"), inline(RED), text("\n\n")),
        ["Hello.", "RED"],
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_of_a_reply_keeps_its_texts_and_images(name):
    api, reply, expected = SHAPES[name]
    with api.serving() as server:
        server.always(reply)
        result = api.once(server)
    names = {"order", "thoughts", "revised_prompts"}
    assert shown(result) == [part for part in expected if part not in names]
    assert {name for name in names if name in result.notes} == names & {*expected}


def called(**about: object) -> dict[str, object]:
    return {"type": "image_generation_call", "status": "failed", **about}


BLOCKED = {
    "SAFETY": (GEMINI, gemini(text("I"), finish="SAFETY")),
    "IMAGE_SAFETY": (GEMINI, gemini(text("I"), finish="IMAGE_SAFETY")),
    "PROHIBITED": (GEMINI, gemini(finish="PROHIBITED_CONTENT")),
    "blockReason": (GEMINI, {"promptFeedback": {"blockReason": "blockReason"}}),
    "I will not": (
        RESPONSES,
        response(
            {"type": "message", "content": [{"type": "refusal", "refusal": "I will not"}]}
        ),
    ),
    "moderation_blocked": (
        RESPONSES,
        response(said("a"), called(error={"code": "moderation_blocked", "message": "no"})),
    ),
    "filter": (
        RESPONSES,
        response(said("a"), incomplete_details={"reason": "content_filter"}),
    ),
    "content_filter": (CHAT_IMAGES, completion("a", finish="content_filter")),
    "no way": (CHAT_IMAGES, completion(None, refusal="no way")),
    "I shall not": (CHAT, completion(None, refusal="I shall not")),
    "content_filter: X": (CHAT, completion(None, "content_filter: X")),
}
BROKEN = {
    "audio beside": (CHAT_IMAGES, completion("a", audio={"data": "AA=="})),
    "audio": (CHAT_IMAGES, completion([text("a"), {"type": "input_audio", "data": "x"}])),
    "video": (OMNI, omni("a", segment(1, "video", {"url": "data:video/mp4;base64,AA=="}))),
    "image_url": (CHAT_IMAGES, completion([{"type": "image_url"}])),
    "functionCall": (GEMINI, gemini({"functionCall": {"name": "f"}}, text("a"))),
    "audio/wav": (GEMINI, gemini(inline(b"abc", "audio/wav"), text("a"))),
    "interpreter": (RESPONSES, response(said("a"), {"type": "code_interpreter_call"})),
    "NO_IMAGE": (GEMINI, gemini(text("here it is:"), finish="NO_IMAGE")),
    "MALFORMED": (GEMINI, gemini(text("here it is:"), finish="MALFORMED_RESPONSE")),
    "status failed": (RESPONSES, response(said("here it is:"), called(result=None))),
    "server_error": (RESPONSES, response(error={"code": "server_error", "message": "m"})),
    "no choices": (CHAT, completion("x") | {"choices": []}),
    "empty": (CHAT, completion(" \n")),
    "max_tokens": (CHAT, completion("", "length")),
    # An LVLM's answer cannot keep images.
    "chat-images:MODEL": (CHAT, completion([text("look"), part(RED)])),
    "chat-images": (CHAT, completion("look", images=[part(RED)])),
    "1 picture": (CHAT, omni("look", segment(1, "image", url_of(RED)))),
}


@pytest.mark.parametrize("words", [*BLOCKED, *BROKEN])
def test_refusals_are_final_and_other_replies_without_an_answer_are_not(words):
    api, reply = (BLOCKED | BROKEN)[words]
    with api.serving() as server:
        server.always(reply)
        failure = api.once(server)
    assert isinstance(failure, Failure)
    assert failure.fault.final is (words in BLOCKED)
    assert (failure.fault is Fault.REFUSED) is (words in BLOCKED)
    assert words.partition(" beside")[0] in failure.reason
    assert len(server.bodies) == 1
    if "here it is" in str(reply):
        assert failure.notes["text"] == "here it is:", "no text answer, but kept"


@pytest.mark.parametrize(("max_tokens", "read"), [(1, False), (1024, True), (None, True)])
def test_a_reply_may_be_as_long_as_the_tokens_asked_for(max_tokens, read):
    with CHAT.serving() as server:
        server.always(completion("x" * 9_000_000))
        outcome = CHAT.once(server, max_tokens=max_tokens)
    assert isinstance(outcome, Result) is read
    assert read or "8 MiB" in outcome.reason


def test_compressed_replies_are_read_all_the_same():
    body = gzip.compress(b'{"choices": [{"message": {"content": "hello"}}]}')
    with CHAT.serving() as server:
        server.always(Answer(body, headers={"content-encoding": "gzip"}))
        assert CHAT.once(server).value.text == "hello"


# Images servers

USED = {
    "openai": {"images": 1, "input_tokens": 12, "output_tokens": 272},
    "sglang": {"images": 1, "server_seconds": 0.25, "peak_memory_mb": 812.5},
    "vllm-omni": {"images": 1, "server_seconds": 0.5, "peak_memory_mb": 640.0},
}


@pytest.mark.parametrize("dialect", IMAGES)
def test_the_image_is_what_the_server_drew_byte_for_byte(dialect):
    api = IMAGES[dialect]
    with api.serving() as server:
        result = api.once(server, "a red cat")
        (body,) = server.bodies
        sent = server.default(body).body["data"][0]["b64_json"]
    assert base64_of(result.value) == sent
    assert result.value.read().startswith(b"\x89PNG"), "no default loses quality"
    assert result.usage == USED[dialect]
    notes = dict(result.notes)
    durations = notes.pop("stage_durations", None)
    assert (durations is not None) == (dialect == "vllm-omni")
    assert (notes.pop("seed") == 7) is (dialect != "openai")
    assert notes == {
        "prompt": "a red cat",
        "dialect": dialect,
        "size": [64, 48],
        "attempts": 1,
    }


def test_what_differs_from_what_was_asked_for_is_noted():
    """vLLM-Omni's stages lie inside each other: only the whole pipeline's seconds count."""
    api, inner = IMAGES["openai"], {"Pipeline.diffuse": 0.4, "Pipeline.vae.decode": 0.1}
    reply = images(saved(noise("x", (40, 20)), "PNG"), metrics={"stage_durations": inner})
    reply["data"][0]["revised_prompt"] = "a crimson cat"
    with api.serving() as server:
        server.always(reply)
        result = api.once(server, width=64, height=48)
    assert result.usage == {"images": 1}
    assert result.notes["stage_durations"] == inner
    assert result.notes["revised_prompt"] == "a crimson cat"
    assert result.notes["size"] == [40, 20]
    assert result.notes["size_asked_for"] == "64x48"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (images(), "no pictures"),
        (images(saved(noise("a"), "PNG"), saved(noise("b"), "PNG")), "2 pictures"),
        ({"data": [{"b64_json": "%%%"}]}, "base64"),
        ({"data": [{}]}, "no bytes"),
        ({"data": [{"url": "http://127.0.0.1:9/a.png"}]}, "not fetched"),
        (images(saved(Pillow.new("RGB", (8, 8)), "PNG")), "black"),
        (images(png_header(20_000, 20_000)), "pixels"),
    ],
)
def test_a_reply_without_one_readable_image_is_a_failure(reply, words):
    api = IMAGES["openai"]
    with api.serving() as server:
        server.always(reply)
        failure = api.once(server)
    assert isinstance(failure, Failure)
    assert words in failure.reason
    assert not failure.fault.final
    assert failure.usage["images"] == len(reply["data"]), "it was paid for"
    assert failure.notes["prompt"] == "a"
    assert len(server.bodies) == 1, "an image is not paid for again at once"
