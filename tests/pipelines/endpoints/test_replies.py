"""How replies of every shape are read, and what is counted as used."""

from __future__ import annotations

import gzip
import re

import pytest
from endpoint_apis import (
    BAGEL,
    BLUE,
    CHAT,
    CHAT_IMAGES,
    GEMINI,
    IMAGES,
    INTERLEAVED,
    OMNI,
    RED,
    RESPONSES,
    SENSENOVA,
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
BY_IMAGE = {"price_per_image": 0.5}
DEARER = {"price_per_million_image_output": 40}
PNG = saved(noise("x"), "PNG")
CHAT_USAGE = {"prompt_tokens": 9, "completion_tokens": 30}
CHAT_USAGE |= {"prompt_tokens_details": {"cached_tokens": 5}}
CHAT_USAGE |= {"completion_tokens_details": {"reasoning_tokens": 8, "image_tokens": 20}}
OPENAI_USAGE = {"input_tokens": 12, "output_tokens": 2}
SGLANG_USAGE = {"prompt_tokens": 1, "completion_tokens": 2}
NAMES = ("input", "output", "cached", "reasoning", "image_output")


@pytest.mark.parametrize(
    ("api", "reply", "counts", "cost"),
    [
        (CHAT, completion("a", usage=CHAT_USAGE), (9, 30, 5, 8, 20), 9 + 300),
        (GEMINI, gemini(inline(RED)), (9, 1310, None, 10, 1290), 9 + 200 + 1290 * 40 + 5e5),
        # The API leaves out counts of 0.
        (GEMINI, gemini(text("a"), usageMetadata={"promptTokenCount": 3}), (3, 0), 3),
        (
            RESPONSES,
            response(drawn(RED)),
            (25, 1030, 4, 8, 1000),
            25 + 300 + 1000 * 40 + 5e5,
        ),
        (IMAGES["openai"], images(PNG, usage=OPENAI_USAGE), (12, 2), 12 + 20 + 5e5),
        (IMAGES["sglang"], images(PNG, usage=SGLANG_USAGE), (1, 2), 1 + 20 + 5e5),
    ],
)
def test_usage_counts_thoughts_images_and_the_tools_own_tokens(api, reply, counts, cost):
    prices = PRICES | ({} if api is CHAT else BY_IMAGE)
    with api.serving() as server:
        server.always(reply)
        usage = api.once(server, **prices, **(DEARER if api in INTERLEAVED else {})).usage
    named = zip(NAMES, counts, strict=False)
    expected = {f"{name}_tokens": count for name, count in named if count is not None}
    expected |= {"images": 1} if cost > 5e5 else {}
    assert usage == expected | {"cost": pytest.approx(cost / 1e6)}


def content(kind: str, **about: object) -> list[dict[str, object]]:
    return [{"type": kind, **about}]


THEN = segment(2, "text", {"text": "then"})
SEGMENTS = [segment(0, "text", "first"), segment(1, "image", {"url": url_of(RED)}), THEN]
ANTHROPIC = {"media_type": "image/png", "data": base64_of(RED)}
SIGNED = {"thoughtSignature": "c2ln"}
THOUGHTS = text("hm") | {"thought": True}, {"text": "b"}
REASONING = {"type": "reasoning", "summary": []}
SHAPES = [
    (CHAT, "one two", completion([text("one "), text("two")])),
    (CHAT_IMAGES, "look|RED|order", completion("look", images=[{"index": 0} | part(RED)])),
    (CHAT_IMAGES, "RED|BLUE", completion(None, images=[part(RED), part(BLUE)])),
    (CHAT_IMAGES, "a|RED", completion([text("a"), part(RED)], images=[part(RED)])),
    (CHAT_IMAGES, "RED", completion(content("image", image=base64_of(RED)))),
    (CHAT_IMAGES, "RED", completion(content("output_image", b64_json=base64_of(RED)))),
    (CHAT_IMAGES, "RED", completion(content("image", source=ANTHROPIC))),
    (CHAT_IMAGES, "RED", completion([part(RED) | {"stage_durations": {"x": 1.0}}])),
    (CHAT_IMAGES, "b|thoughts", completion([*content("thinking", thinking=[]), text("b")])),
    (OMNI, "first|RED|order", completion("a", segments=SEGMENTS[:1], images=[part(RED)])),
    (OMNI, "first|RED|then", {"choices": [], "model": MODEL, "segments": SEGMENTS}),
    # An image of a thought stays; one mark for two images tells no order.
    (
        SENSENOVA,
        "RED|a|BLUE|thoughts",
        completion("<think>x<image>y</think>a<image>", images=[part(RED), part(BLUE)]),
    ),
    (
        SENSENOVA,
        "a<image>b|RED|BLUE|order|thoughts",
        completion("<think>x</think>a<image>b", images=[part(RED), part(BLUE)]),
    ),
    (SENSENOVA, "a|thoughts", completion("<think>x</think>a")),
    (BAGEL, "RED", completion([part(RED) | {"stage_durations": {"x": 1.0}}])),
    (
        GEMINI,
        "b|RED|thoughts",
        gemini(*THOUGHTS, inline(RED) | SIGNED, SIGNED),
    ),
    (GEMINI, "Hello.|RED", gemini(text("Hel"), text("lo.\n\n"), inline(RED), text("\n\n"))),
    (RESPONSES, "b|RED|thoughts", response(REASONING, said("b"), drawn(RED))),
    (RESPONSES, "RED|revised_prompts", response(drawn(RED, revised_prompt="redder"))),
    (RESPONSES, "b", response(said("b"), {"type": "web_search_call"})),
]


@pytest.mark.parametrize(("api", "expected", "reply"), SHAPES)
def test_every_shape_of_a_reply_keeps_its_texts_and_images(api, expected, reply):
    expected = expected.split("|")
    with api.serving() as server:
        server.always(reply)
        result = api.once(server)
    names = {"order", "thoughts", "revised_prompts"}
    assert shown(result) == [part for part in expected if part not in names]
    assert {name for name in names if name in result.notes} == names & {*expected}


def called(**about: object) -> dict[str, object]:
    return {"type": "image_generation_call", "status": "failed", **about}


REFUSAL = {"type": "message", "content": content("refusal", refusal="I will not")}
MODERATED = called(error={"code": "moderation_blocked", "message": "no"})
FILTERED = {"incomplete_details": {"reason": "content_filter"}}
VIDEO = segment(1, "video", {"url": "data:video/mp4;base64,AA=="})
HERE = text("here it is:")
BLOCKED = {
    "SAFETY": (GEMINI, gemini(text("I"), finish="SAFETY")),
    "IMAGE_SAFETY": (GEMINI, gemini(text("I"), finish="IMAGE_SAFETY")),
    "PROHIBITED": (GEMINI, gemini(finish="PROHIBITED_CONTENT")),
    "blockReason": (GEMINI, {"promptFeedback": {"blockReason": "blockReason"}}),
    "I will not": (RESPONSES, response(REFUSAL)),
    "moderation_blocked": (RESPONSES, response(said("a"), MODERATED)),
    "filter": (RESPONSES, response(said("a"), **FILTERED)),
    "content_filter": (CHAT_IMAGES, completion("a", finish="content_filter")),
    "no way": (CHAT_IMAGES, completion(None, refusal="no way")),
    "I shall not": (CHAT, completion(None, refusal="I shall not")),
    "content_filter: X": (CHAT, completion(None, "content_filter: X")),
}
BROKEN = {
    "audio beside": (CHAT_IMAGES, completion("a", audio={"data": "AA=="})),
    "audio": (CHAT_IMAGES, completion([text("a"), *content("input_audio", data="x")])),
    "video": (OMNI, omni("a", VIDEO)),
    "image_url": (CHAT_IMAGES, completion(content("image_url"))),
    "functionCall": (GEMINI, gemini({"functionCall": {"name": "f"}}, text("a"))),
    "audio/wav": (GEMINI, gemini(inline(b"abc", "audio/wav"), text("a"))),
    "interpreter": (RESPONSES, response(said("a"), {"type": "code_interpreter_call"})),
    "NO_IMAGE": (GEMINI, gemini(HERE, finish="NO_IMAGE")),
    "MALFORMED": (GEMINI, gemini(HERE, finish="MALFORMED_RESPONSE")),
    "status failed": (RESPONSES, response(said("here it is:"), called(result=None))),
    "server_error": (RESPONSES, response(error={"code": "server_error", "message": "m"})),
    "no credit": (RESPONSES, response(error="no credit")),
    "no choices": (CHAT, completion("x") | {"choices": []}),
    "empty": (CHAT, completion(" \n")),
    "max_tokens": (CHAT, completion("", "length")),
    # An LVLM's answer cannot keep images.
    "chat-images:MODEL": (CHAT, completion([text("look"), part(RED)])),
    "chat-images": (CHAT, completion("look", images=[part(RED)])),
    "1 image": (CHAT, omni("look", SEGMENTS[1])),
}


@pytest.mark.parametrize("words", [*BLOCKED, *BROKEN])
def test_refusals_are_final_and_other_replies_without_an_answer_are_not(words):
    api, reply = (BLOCKED | BROKEN)[words]
    with api.serving() as server:
        server.always(reply)
        failure = api.once(server)
    assert isinstance(failure, Failure)
    assert failure.fault.final is (failure.fault is Fault.REFUSED) is (words in BLOCKED)
    assert words.partition(" beside")[0] in failure.reason
    assert len(server.bodies) == 1
    assert failure.usage or words == "blockReason", "it is paid for"
    if "here it is" in str(reply):
        assert failure.notes["text"] == "here it is:", "no text answer, but kept"


@pytest.mark.parametrize(
    ("api", "reply"),
    [
        (CHAT, completion("a", finish=3)),
        (GEMINI, gemini(text("a"), finish=3)),
        (RESPONSES, response(said("a"), incomplete_details={"reason": 3})),
        (RESPONSES, response(said("a"), tool_usage="many")),
        (CHAT, completion("a") | {"choices": ["a"]}),
        (GEMINI, {"candidates": ["a"]}),
    ],
)
def test_an_answer_with_values_of_wrong_types_is_not_taken_for_whole(api, reply):
    with api.serving() as server:
        server.always(reply)
        failure = api.once(server, max_attempts=1)
    assert isinstance(failure, Failure)
    assert failure.fault is Fault.ENDPOINT
    assert re.search(r" is a (int|str), not (text|an object)", failure.reason)


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
    reply |= {"inference_time_s": 0.0, "peak_memory_mb": 0}  # not measured
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
        (images(), "no images"),
        (images(saved(noise("a"), "PNG"), saved(noise("b"), "PNG")), "2 images"),
        ({"data": [{"b64_json": "%%%"}]}, "base64"),
        ({"data": [{}]}, "no bytes"),
        ({"data": [{"url": "data:image/png,\ud800"}]}, "lone surrogate"),
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
