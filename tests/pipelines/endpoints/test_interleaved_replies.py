"""Replies of servers that draw: every shape keeps its text and pictures, or fails."""

import base64

import pytest
from drawing_servers import (
    APIS,
    BLUE,
    RED,
    ask_once,
    drawn,
    gemini,
    inline,
    response,
    said,
    segment,
    shown,
    url_of,
    url_part,
)
from endpoint_helpers import MODEL, completion

from generators.base import Failure, Fault

pytest.importorskip("google.genai")

ALL = pytest.mark.parametrize("api", APIS)


OMNI = {
    "message": completion(
        "first",
        segments=[
            segment(0, "text", "first"),
            segment(1, "image", {"kind": "image", "url": url_of(RED)}),
            segment(2, "text", "then"),
        ],
    ),
    "top": {
        "choices": [],
        "model": MODEL,
        "segments": [
            segment(0, "text", "first"),
            segment(1, "image", {"url": url_of(RED), "mime_type": "image/png"}),
            segment(2, "text", "then"),
        ],
    },
}


@pytest.mark.parametrize("where", OMNI)
def test_segments_of_sglang_omni_are_read_in_order(server, where):
    server.answering(OMNI[where])
    result = ask_once(server, "chat-images")
    assert shown(result) == ["first", "RED", "then"]
    assert "order" not in result.notes


SHAPES = {
    "images beside the text": (
        completion("look", images=[{"index": 0} | url_part(url_of(RED))]),
        ["look", "RED"],
        True,
    ),
    "images without a text": (
        completion(None, images=[url_part(url_of(RED)), url_part(url_of(BLUE))]),
        ["RED", "BLUE"],
        False,
    ),
    "images that repeat the content": (
        completion(
            [{"type": "text", "text": "a"}, url_part(url_of(RED))],
            images=[url_part(url_of(RED))],
        ),
        ["a", "RED"],
        False,
    ),
    "an image that the segments lack": (
        completion("a", segments=[segment(0, "text", "a")], images=[url_part(url_of(RED))]),
        ["a", "RED"],
        True,
    ),
    "bare base64": (
        completion([{"type": "image", "image": base64.b64encode(RED.data).decode()}]),
        ["RED"],
        False,
    ),
    "b64_json": (
        completion([{"type": "output_image", "b64_json": url_of(RED).partition(",")[2]}]),
        ["RED"],
        False,
    ),
    "a source as Anthropic writes it": (
        completion(
            [
                {
                    "type": "image",
                    "source": {
                        "type": "base64",
                        "media_type": "image/png",
                        "data": url_of(RED).partition(",")[2],
                    },
                }
            ]
        ),
        ["RED"],
        False,
    ),
    "stage durations of vLLM-Omni": (
        completion([url_part(url_of(RED)) | {"stage_durations": {"x": 1.0}}]),
        ["RED"],
        False,
    ),
    "thoughts": (
        completion(
            [
                {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                {"type": "text", "text": "b"},
                url_part(url_of(RED)),
            ]
        ),
        ["b", "RED"],
        False,
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_a_chat_reply_keeps_its_pictures(server, shape):
    reply, expected, unordered = SHAPES[shape]
    server.answering(reply)
    result = ask_once(server, "chat-images")
    assert shown(result) == expected
    assert ("order" in result.notes) is unordered
    if unordered:
        assert result.notes["order"].startswith("unknown")


def test_thoughts_are_no_part_of_the_answer_and_are_counted(server):
    server.answering(
        gemini(
            {"text": "hm", "thought": True},
            inline(BLUE) | {"thought": True},
            {"text": "b"},
            inline(RED) | {"thoughtSignature": "c2ln"},
            {"thoughtSignature": "c2ln"},
        )
    )
    result = ask_once(server, "gemini")
    assert shown(result) == ["b", "RED"]
    assert result.notes["thoughts"] == 2
    reasoning = {"type": "reasoning", "summary": []}
    server.answering(response(reasoning, said("b"), drawn(RED, revised_prompt="redder")))
    result = ask_once(server, "responses")
    assert shown(result) == ["b", "RED"]
    assert (result.notes["thoughts"], result.notes["revised_prompts"]) == (1, ["redder"])


def test_white_space_around_texts_goes_and_neighbours_are_joined(server):
    server.answering(
        gemini({"text": "Hel"}, {"text": "lo.\n\n"}, inline(RED), {"text": "\n\n"})
    )
    assert shown(ask_once(server, "gemini")) == ["Hello.", "RED"]


FOREIGN = {
    "audio beside the text": ("chat-images", completion("a", audio={"data": "AA=="})),
    "an audio part": (
        "chat-images",
        completion([{"type": "text", "text": "a"}, {"type": "input_audio", "data": "x"}]),
    ),
    "a video segment": (
        "chat-images",
        completion(
            "a", segments=[segment(0, "video", {"url": "data:video/mp4;base64,AA=="})]
        ),
    ),
    "a picture without data": ("chat-images", completion([{"type": "image_url"}])),
    "a function call": ("gemini", gemini({"functionCall": {"name": "f"}}, {"text": "a"})),
    "audio of Gemini": ("gemini", gemini(inline(b"abc", "audio/wav"), {"text": "a"})),
    "a tool call": ("responses", response(said("a"), {"type": "code_interpreter_call"})),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_neither_text_nor_a_picture_fails_by_its_type(server, name):
    api, reply = FOREIGN[name]
    server.answering(reply)
    failure = ask_once(server, api)
    assert isinstance(failure, Failure)
    words = ("audio", "video", "image_url", "functionCall", "code_interpreter_call")
    assert any(word in failure.reason for word in words)
    assert not failure.fault.final
    assert len(server.bodies) == 1


BLOCKS = {
    "finish reason": ("gemini", gemini({"text": "I"}, finish="SAFETY"), "SAFETY"),
    "picture": ("gemini", gemini({"text": "I"}, finish="IMAGE_SAFETY"), "IMAGE_SAFETY"),
    "prohibited": ("gemini", gemini(finish="PROHIBITED_CONTENT"), "PROHIBITED_CONTENT"),
    "prompt": (
        "gemini",
        {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "modelVersion": "m"},
        "PROHIBITED_CONTENT",
    ),
    "refusal": (
        "responses",
        response(
            {"type": "message", "content": [{"type": "refusal", "refusal": "I will not"}]}
        ),
        "I will not",
    ),
    "moderation": (
        "responses",
        response(
            said("a"),
            {
                "type": "image_generation_call",
                "status": "failed",
                "error": {"code": "moderation_blocked", "message": "no", "type": "t"},
            },
        ),
        "moderation_blocked",
    ),
    "filter": (
        "responses",
        response(
            said("a"), status="incomplete", incomplete_details={"reason": "content_filter"}
        ),
        "content_filter",
    ),
    "chat": ("chat-images", completion("a", finish="content_filter"), "content_filter"),
    "chat refusal": ("chat-images", completion(None, refusal="no way"), "no way"),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_refusals_and_blocks_are_final_and_sent_once(server, name):
    api, reply, words = BLOCKS[name]
    server.answering(reply)
    failure = ask_once(server, api)
    assert isinstance(failure, Failure)
    assert failure.fault is Fault.REFUSED
    assert words in failure.reason
    assert len(server.bodies) == 1


@pytest.mark.parametrize("finish", ["NO_IMAGE", "IMAGE_OTHER", "MALFORMED_RESPONSE"])
def test_an_answer_that_lacks_its_picture_is_no_text_answer(server, finish):
    server.answering(gemini({"text": "here it is:"}, finish=finish))
    failure = ask_once(server, "gemini")
    assert isinstance(failure, Failure)
    assert not failure.fault.final
    assert finish in failure.reason
    assert failure.notes["text"] == "here it is:"


def test_a_tool_call_that_drew_nothing_is_no_text_answer(server):
    failed = {"type": "image_generation_call", "status": "failed", "result": None}
    server.answering(response(said("here it is:"), failed))
    failure = ask_once(server, "responses")
    assert isinstance(failure, Failure)
    assert "not drawn: status failed" in failure.reason
    assert not failure.fault.final
