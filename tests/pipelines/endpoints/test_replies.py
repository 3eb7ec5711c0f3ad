"""How replies of every shape are read, and what is counted as used."""

from __future__ import annotations

import gzip
import json
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
from hypothesis import given
from hypothesis import strategies as st
from picture_helpers import png_header, saved
from PIL import Image as Pillow

from plait.generators.base import Failure, Fault, Result
from plait.generators.document import Text
from plait.pipelines.endpoints import responses
from plait.pipelines.endpoints.errors import ERRORS, describe
from plait.pipelines.endpoints.gemini import read_generated
from plait.pipelines.endpoints.replies import chat_completion, place_images, read_reply

pytestmark = pytest.mark.contract

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


# Thoughts

WHY = "First I would say A. Score: 2"
THOUGHT_IN_TEXT = f"<think>{WHY}</think>\n\nC it is."
PARTS = [{"type": "thinking", "thinking": [text(WHY)]}, text("C it is.")]
SUMMARY = {"type": "reasoning", "summary": [{"type": "summary_text", "text": WHY}]}
WITH_THOUGHT = {
    "in the text": (CHAT, completion(THOUGHT_IN_TEXT)),
    "opened by the prompt": (CHAT, completion(f"{WHY}[/THINK]C it is.")),
    "in a field": (CHAT, completion("C it is.", reasoning_content=WHY, reasoning=WHY)),
    "in a new field": (CHAT, completion("C it is.", reasoning=WHY)),
    "in a field and the text": (CHAT, completion(THOUGHT_IN_TEXT, reasoning=WHY)),
    "in parts": (CHAT, completion(PARTS)),
    "in parts of a gateway": (
        CHAT,
        completion([text(WHY) | {"thought": True}, text("C it is.")]),
    ),
    "in parts of another name": (
        CHAT,
        completion([{"type": "reasoning_content", "text": WHY}, text("C it is.")]),
    ),
    "in two parts": (CHAT, completion([text("<think>" + WHY[:9]), text(WHY[9:])])),
    "of a system": (CHAT_IMAGES, completion(THOUGHT_IN_TEXT)),
    "of a kit": (SENSENOVA, completion(THOUGHT_IN_TEXT)),
    "of Gemini": (GEMINI, gemini(text(WHY) | {"thought": True}, text("C it is."))),
    "in Gemini's text": (GEMINI, gemini(text(THOUGHT_IN_TEXT))),
    "of Responses": (RESPONSES, response(SUMMARY, said("C it is."))),
    "in Responses' text": (RESPONSES, response(said(THOUGHT_IN_TEXT))),
}
WITH_THOUGHT["in two parts"][1]["choices"][0]["message"]["content"].append(
    text("</think>C it is.")
)


@pytest.mark.parametrize("where", WITH_THOUGHT)
def test_a_thought_is_noted_and_no_part_of_an_answer(where):
    api, reply = WITH_THOUGHT[where]
    with api.serving() as server:
        server.always(reply)
        result = api.once(server)
    assert shown(result) == ["C it is."]
    assert result.notes["thought"] == WHY
    assert result.notes["thoughts"] >= 1
    assert result.usage["thought_characters"] == len(WHY)


def test_a_thought_after_an_image_of_an_answer_is_none_of_it():
    parts = [text(f"<think>{WHY}</think>one"), part(RED), text("<think>x"), part(BLUE)]
    later = [text("</think>two, and </think> or <think>")]
    with CHAT_IMAGES.serving() as server:
        server.always(completion([*parts, *later]))
        result = CHAT_IMAGES.once(server)
    assert shown(result) == ["one", "RED", "BLUE", "two, and </think> or <think>"]
    assert result.notes["thought"] == f"{WHY}\n\nx"
    assert result.notes["thoughts"] == 2


def test_no_image_data_are_noted_of_a_thought():
    with CHAT.serving() as server:
        server.always(completion(f"<think>![a]({url_of(RED)})</think>C it is."))
        result = CHAT.once(server)
    assert shown(result) == ["C it is."]
    assert result.notes["thought"] == "![a](data:image/png;base64,...)"


INSIDE, AFTER = "ends inside its thought", "that nothing follows"
LOST = [
    (CHAT, completion(f"<think>{WHY}", "length"), INSIDE, "raise max_tokens"),
    (CHAT, completion(f"<think>{WHY}", "stop"), INSIDE, "reasoning parser"),
    (CHAT, completion(f"<think>{WHY}</think>\n"), AFTER, "reasoning parser"),
    (CHAT_IMAGES, completion(f"<think>{WHY}", "length"), INSIDE, "raise max_tokens"),
    (GEMINI, gemini(text(f"<think>{WHY}")), INSIDE, "raise max_tokens"),
    (RESPONSES, response(said(f"<think>{WHY}")), INSIDE, "raise max_tokens"),
    (CHAT, completion("", reasoning_content=WHY), "in reasoning_content", "parser"),
    (CHAT, completion(None, "length", reasoning=WHY), "in reasoning", "raise max_tokens"),
    (
        CHAT,
        completion("", reasoning_details=[{"type": "reasoning.text", "text": WHY}]),
        "in reasoning_details",
        "parser",
    ),
    (
        CHAT_IMAGES,
        completion([part(RED), text(f"<think>{WHY}")], "length"),
        INSIDE,
        "max_tokens",
    ),
]


@pytest.mark.parametrize(("api", "reply", "what", "advice"), LOST)
def test_a_thought_in_the_place_of_an_answer_is_a_failure_that_says_so(
    api, reply, what, advice
):
    with api.serving() as server:
        server.always(reply)
        failure = api.once(server)
    assert isinstance(failure, Failure)
    assert (failure.fault, failure.fault.final) == (Fault.ERROR, False)
    assert what in failure.reason
    assert advice in failure.reason
    assert failure.notes["thought"] == WHY
    assert failure.usage["thought_characters"] == len(WHY)


# Endings

CUT = [
    (CHAT, completion("Half an", "length")),
    (CHAT, completion("Half an", "MAX_TOKENS")),
    (CHAT_IMAGES, completion("Half an", "max_tokens")),
    (GEMINI, gemini(text("Half an"), finish="MAX_TOKENS")),
    (
        RESPONSES,
        response(
            said("Half an") | {"status": "incomplete"},
            status="incomplete",
            incomplete_details={"reason": "max_output_tokens"},
        ),
    ),
]


@pytest.mark.parametrize(("api", "reply"), CUT)
def test_an_answer_cut_at_its_maximum_is_done_and_counted(api, reply):
    with api.serving() as server:
        server.always(reply)
        cut = api.once(server)
        server.script = server.default
        whole = api.once(server)
    assert shown(cut) == ["Half an"]
    assert cut.usage["cut"] == 1
    assert cut.notes["cut"]
    assert not {*whole.usage, *whole.notes} & {"cut"}


@pytest.mark.parametrize("finish", ["stop", "end_turn", "eos", "stop_sequence", None, ""])
def test_known_endings_of_whole_answers(finish):
    with CHAT.serving() as server:
        server.always(completion("Whole.", finish))
        assert shown(CHAT.once(server)) == ["Whole."]


STOPS = ("error", "abort", "network_error", "other", "unknown", "cancelled", "in_progress")
STATUSES = ("failed", "cancelled", "in_progress", "queued", "incomplete")
HALF = [
    *((CHAT, completion("Half an", finish)) for finish in STOPS),
    *((CHAT_IMAGES, completion("Half an", finish)) for finish in STOPS[:2]),
    *((RESPONSES, response(said("Half an"), status=status)) for status in STATUSES),
    (RESPONSES, response(said("Half an") | {"status": "incomplete"})),
    (GEMINI, gemini(text("Half an"), finish="OTHER")),
]


@pytest.mark.parametrize(("api", "reply"), HALF)
def test_half_an_answer_is_a_failure_that_may_pass(api, reply):
    with api.serving() as server:
        server.always(reply)
        failure = api.once(server)
    assert isinstance(failure, Failure)
    assert failure.fault is Fault.ENDPOINT
    assert failure.notes["text"] == "Half an"
    assert "stopped (" in failure.reason


@pytest.mark.parametrize("finish", ["sensitive", "safety", "SAFETY", "recitation"])
def test_answers_that_a_provider_stops_are_refused(finish):
    with CHAT.serving() as server:
        server.always(completion("Half an", finish))
        assert CHAT.once(server).fault is Fault.REFUSED


# Errors in replies of status 200

NOTHING = {"prompt_tokens": 5, "completion_tokens": 0}


def failed(code: object = None, usage: object = NOTHING, **about: object) -> object:
    """A chat completion with an error of OpenRouter's form."""
    error = {"message": "Provider says no", "code": code, **about}
    return {"choices": [], "model": MODEL, "usage": usage, "error": error}


def half(code: object) -> dict[str, object]:
    whole = completion("Half an", "error")
    whole["choices"][0]["error"] = {"message": "Provider died", "code": code}
    return whole


def of_responses(code: object) -> dict[str, object]:
    error = {"message": "no", "code": code}
    return response(status="failed", error=error, usage={"input_tokens": 5})


def of_images(code: object) -> dict[str, object]:
    return {"data": [], "error": {"message": "out of memory", "code": code}}


AGAIN = [
    (CHAT, failed(429)),
    (CHAT, failed("rate_limit_exceeded")),
    (CHAT, failed(502, metadata={"raw": "Too many"})),
    (CHAT, failed()),
    (CHAT, failed(503) | {"choices": None}),
    (CHAT, {"error": {"message": "no", "code": 503}}),
    (CHAT, {"object": "error", "message": "no", "code": 503}),
    (CHAT, half(502)),
    (CHAT_IMAGES, half(503)),
    (RESPONSES, of_responses("rate_limit_exceeded")),
    (RESPONSES, of_responses("server_error")),
    (GEMINI, {"error": {"message": "no", "code": 503, "status": "UNAVAILABLE"}}),
    (IMAGES["openai"], of_images(503)),
    (IMAGES["openai"], of_images(None)),
    (IMAGES["openai"], of_images(None) | {"data": None}),
]


@pytest.mark.parametrize(("api", "reply"), AGAIN)
def test_an_error_in_a_reply_that_may_pass_is_tried_again_at_once(api, reply):
    with api.serving() as server:
        server.in_turn(Answer(reply), Answer(reply))
        result = api.once(server)
        assert isinstance(result, Result), result
        assert result.notes["attempts"] == len(server.bodies) == 3
        server.always(reply)
        failure = api.once(server)
    assert (failure.fault, failure.fault.final) == (Fault.ENDPOINT, False)
    assert "holds an error" in failure.reason


def test_what_failed_attempts_took_is_counted():
    with CHAT.serving() as server:
        server.in_turn(Answer(half(502)), Answer(half(502)))
        assert CHAT.once(server).usage["output_tokens"] == 3 * 7
        assert server.preflights == 1
        server.always(half(502))
        failure = CHAT.once(server)
    assert failure.usage["output_tokens"] == 3 * 7
    assert failure.notes["text"] == "Half an"
    assert "Provider died" in failure.reason


@pytest.mark.parametrize(
    ("api", "reply", "fault"),
    [
        (CHAT, failed(400), Fault.BAD_INPUT),
        (CHAT, failed("context_length_exceeded"), Fault.BAD_INPUT),
        (CHAT, failed(None, type="invalid_request_error"), Fault.BAD_INPUT),
        (CHAT, failed("content_filter"), Fault.REFUSED),
        (CHAT, half("content_filter"), Fault.REFUSED),
        (RESPONSES, of_responses("image_content_policy_violation"), Fault.REFUSED),
        (IMAGES["openai"], of_images("moderation_blocked"), Fault.REFUSED),
        # It was paid for, and its code says nothing.
        (CHAT, half(None), Fault.ENDPOINT),
        (CHAT, completion("Half an") | {"error": "died"}, Fault.ENDPOINT),
    ],
)
def test_an_error_in_a_reply_is_classed_as_its_code_says(api, reply, fault):
    with api.serving() as server:
        assert isinstance(api.once(server), Result)
        before = len(server.bodies)
        server.always(reply)
        with api.asking(server) as stage:
            stage._accepted = True
            failure = api.one(stage)
        assert len(server.bodies) == before + 1
    assert failure.fault is fault
    assert "holds an error" in failure.reason


@pytest.mark.parametrize("error", [None, {}, "", []])
def test_a_field_for_errors_may_be_empty(error):
    with CHAT.serving() as server:
        server.always(completion("Whole.") | {"error": error})
        assert shown(CHAT.once(server)) == ["Whole."]


# Images in the text

ADDRESS = "https://pictures.example/a_(1).png"
SHOWN = [
    ("Look: ![a red one]({}) and so on.", ["Look:", "RED", "and so on."]),
    ("![](<{}> 'red')", ["RED"]),
    ('<p>Look: <img alt="x" src="{}"/></p>', ["<p>Look:", "RED", "</p>"]),
    ("Look: {}", ["Look:", "RED"]),
    ("One ![a]({0}), two\n![b]({0})", ["One", "RED", ", two", "RED"]),
]


@pytest.mark.parametrize(("form", "expected"), SHOWN)
@pytest.mark.parametrize(
    ("api", "reply"),
    [
        (CHAT_IMAGES, completion),
        (SENSENOVA, completion),
        (RESPONSES, lambda words: response(said(words))),
        (GEMINI, lambda words: gemini(text(words))),
    ],
)
def test_an_image_in_the_text_is_an_image_in_its_place(api, reply, form, expected):
    # Bytes after a PNG's end mean nothing.
    words = form.format(url_of(RED.read() + bytes(100)))
    with api.serving() as server:
        server.always(reply(words))
        result = api.once(server)
    texts = [s.text if isinstance(s, Text) else "RED" for s in result.value.segments]
    assert texts == expected
    assert result.usage["images"] == expected.count("RED")
    assert "order" not in result.notes


def test_base64_in_lines_is_read_too():
    lines = "\n".join(re.findall(".{1,20}", base64_of(RED)))
    with CHAT_IMAGES.serving() as server:
        server.always(completion(f"Look: ![a](data:image/png;base64,{lines}) there"))
        assert shown(CHAT_IMAGES.once(server)) == ["Look:", "RED", "there"]


def test_an_image_in_the_text_and_apart_is_one():
    with CHAT_IMAGES.serving() as server:
        words = f"Look: ![a]({url_of(RED)}) there"
        server.always(completion(words, images=[part(RED)]))
        result = CHAT_IMAGES.once(server)
        assert shown(result) == ["Look:", "RED", "there"]
        assert "order" not in result.notes
        server.always(completion(words, images=[part(RED), part(BLUE)]))
        result = CHAT_IMAGES.once(server)
        assert shown(result) == ["Look:", "RED", "there", "BLUE"]
        assert "order" in result.notes


@pytest.mark.parametrize("words", [form for form, _ in SHOWN[:3]])
@pytest.mark.parametrize("address", [url_of(RED), ADDRESS, "data:image/svg+xml,x"])
def test_an_image_in_an_lvlms_text_is_a_failure(words, address):
    with CHAT.serving() as server:
        server.always(completion(words.format(address)))
        failure = CHAT.once(server)
    assert isinstance(failure, Failure)
    assert "1 image(s)" in failure.reason
    assert "chat-images:MODEL" in failure.reason


def test_an_image_by_an_address_in_the_text_is_fetched_from_listed_hosts_alone():
    with CHAT_IMAGES.serving() as server:
        usual = server.get
        server.get = lambda path: Answer(RED.read()) if "red" in path else usual(path)
        server.always(completion(f"Look: ![a]({server.root}/red.png) there"))
        failure = CHAT_IMAGES.once(server)
        assert "image_hosts" in failure.reason
        result = CHAT_IMAGES.once(server, image_hosts=["127.0.0.1"])
    assert shown(result) == ["Look:", "RED", "there"]


@pytest.mark.parametrize(
    "words",
    [
        f"See [the picture]({ADDRESS}) or {ADDRESS}.",
        "Then comes ![a cat](cat.png) and ![](/tmp/x.png).",
        f"Write `![a]({ADDRESS})` for an image.",
        f"Write:\n```\n![a]({ADDRESS})\n```\nfor an image.",
        "Data URLs begin with data:image/png;base64, and the bytes.",
        "![a](" * 3000,
        "![" * 5000,
        "<img\n" * 5000 + "a",
    ],
    ids=range(8),
)
def test_links_names_and_code_are_text(words):
    for api in (CHAT, CHAT_IMAGES):
        with api.serving() as server:
            server.always(completion(words))
            assert shown(api.once(server)) == [words]


NAMES_OF = st.sampled_from(
    ["content", "text", "type", "error", "code", "message", "images", "reasoning", "data"]
)
TEXTS = [
    "text",
    "<think>",
    "</think>",
    "![a](data:image/png;base64,AA==)",
    "",
    "stop",
    "429",
]
LEAVES = st.sampled_from([None, True, 0, 429, 10**400, -1.5, *TEXTS])
VALUES = st.recursive(
    LEAVES, lambda v: st.lists(v, max_size=3) | st.dictionaries(NAMES_OF, v, max_size=4)
)


def placed_completion(body):
    return place_images(chat_completion(body))


@given(VALUES, VALUES, VALUES, st.booleans())
def test_any_json_is_a_reply_or_an_error_that_is_told(message, error, finish, is_open):
    choice = {"message": message, "finish_reason": finish, "error": error}
    bodies = {
        chat_completion: {"choices": [choice], "error": error},
        placed_completion: {"choices": [choice, message], "usage": message},
        responses.response: {"output": message, "status": finish, "error": error},
        read_generated: {"candidates": [message], "error": error},
    }
    for read, body in bodies.items():
        try:
            reply = read_reply(read, json.dumps(body).encode(), opened=is_open)
        except ERRORS as error:
            reason = describe(error)
        else:
            problem = reply.problem()
            reason = problem.reason if problem else "none"
        assert reason


# Streams


def event(delta: object = None, finish: str | None = None, **about: object) -> str:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    whole = {"object": "chat.completion.chunk", "model": MODEL, "choices": [choice]}
    return f"data: {json.dumps(whole | about)}\n\n"


USAGE = {"prompt_tokens": 3, "completion_tokens": 2}
PIECES = [
    ": keep-alive\n\n",
    event({"role": "assistant", "content": ""}),
    event({"reasoning_content": "Let me "}),
    event({"reasoning_content": "think."}),
    event({"role": "assistant", "content": "Hel"}),
    event({"content": "lo.", "images": [part(RED)]}),
    event({"content": None}, "stop"),
    event(choices=[], usage=USAGE),
    "data: [DONE]\n\n",
]
STREAM = {"content-type": "text/event-stream"}


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_stream_that_nobody_asked_for_is_one_completion(ends):
    body = "".join(PIECES).replace("\n", ends).encode()
    with CHAT_IMAGES.serving() as server:
        server.always(body, headers=STREAM)
        result = CHAT_IMAGES.once(server)
        assert server.bodies[0]["stream"] is False
    assert shown(result) == ["Hello.", "RED"]
    assert result.notes["thought"] == "Let me think."
    assert result.notes["finish"] == "stop"
    assert (result.usage["input_tokens"], result.usage["output_tokens"]) == (3, 2)


def test_a_whole_reply_may_end_as_a_stream_does():
    with CHAT.serving() as server:
        body = json.dumps(completion("Hello."), indent=1)
        for form in ("{}\n\ndata: [DONE]\n\n", "data: {}\n\n", "\ufeff{}"):
            one_line = form.replace("{}", json.dumps(json.loads(body)))
            server.always((form.replace("{}", body) if "[" in form else one_line).encode())
            assert shown(CHAT.once(server)) == ["Hello."]


def test_a_stream_that_breaks_off_is_tried_again():
    broken = "".join(PIECES[:5]).encode()
    failing = "".join([*PIECES[:5], event({}, "error", error={"code": 502})]).encode()
    with CHAT.serving() as server:
        server.in_turn(Answer(broken, headers=STREAM), Answer(failing, headers=STREAM))
        assert CHAT.once(server).notes["attempts"] == 3
        server.always(broken, headers=STREAM)
        failure = CHAT.once(server)
    assert failure.fault is Fault.ENDPOINT
    assert "breaks off" in failure.reason


def test_an_error_among_the_events_of_a_stream_is_no_end_of_an_answer():
    died = 'event: error\ndata: {"message": "died"}\n\n'
    with CHAT.serving() as server:
        body = "".join([*PIECES[:5], died, PIECES[-1]])
        server.always(body.encode(), headers=STREAM)
        failure = CHAT.once(server)
    assert failure.fault is Fault.ENDPOINT
    assert "holds an error: died" in failure.reason


def test_a_whole_message_takes_the_place_of_its_pieces():
    choice = {"index": 0, "message": {"content": "Hello."}, "finish_reason": "stop"}
    pieces = [event({"content": "Hello."}), event(choices=[choice]), PIECES[-1]]
    with CHAT.serving() as server:
        server.always("".join(pieces).encode(), headers=STREAM)
        assert shown(CHAT.once(server)) == ["Hello."]


def test_a_stream_of_responses_is_one_response():
    whole = {"type": "response.completed", "response": response(said("b"), drawn(RED))}
    events = [{"type": "response.output_text.delta", "delta": "b"}, whole]
    body = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)
    with RESPONSES.serving() as server:
        server.in_turn(Answer(body[:60].encode()), Answer(body.encode()))
        result = RESPONSES.once(server)
    assert shown(result) == ["b", "RED"]
    assert result.notes["attempts"] == 2


def test_users_may_ask_for_a_stream():
    with CHAT.serving() as server:
        server.always("".join(PIECES[:5] + PIECES[6:]).encode(), headers=STREAM)
        assert shown(CHAT.once(server, extra_body={"stream": True})) == ["Hel"]
        assert server.bodies[0]["stream"] is True


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
