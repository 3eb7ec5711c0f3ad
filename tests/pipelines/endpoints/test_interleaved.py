"""Systems behind servers that draw: what every API is sent, and how replies are read."""

import base64
import sys

import pytest
from drawing_servers import (
    APIS,
    BLUE,
    QUICK,
    RED,
    as_json,
    ask_once,
    default_reply,
    drawn,
    gemini,
    inline,
    picture,
    response,
    said,
    segment,
    shown,
    url_of,
    url_part,
)
from drawing_servers import (
    asking_for_pictures as asking,
)
from endpoint_helpers import KEY, MODEL, Answer, completion, error, says

from generators.base import Failure, Fault, Result, Skip
from generators.document import Request, Text, Turn
from pipelines.endpoints.errors import EndpointError
from pipelines.endpoints.settings import omni_settings

pytest.importorskip("google.genai")

ALL = pytest.mark.parametrize("api", APIS)


@ALL
def test_text_and_pictures_keep_their_order_and_their_bytes(server, api):
    result = ask_once(server, api)
    assert shown(result) == ["first", "RED", "then"]
    assert result.value.images[0].read() == RED.data
    assert result.usage["images"] == 1
    assert result.usage["output_tokens"] > 0
    assert result.notes["attempts"] == 1
    assert result.notes["model"].startswith(MODEL)
    assert "order" not in result.notes


def test_usage_counts_thoughts_pictures_and_the_tools_own_tokens(server):
    one = ask_once(server, "gemini", price_per_million_input=1, price_per_million_output=10)
    tokens = {"input_tokens": 9, "output_tokens": 1310, "reasoning_tokens": 10}
    cost = {"cost": (9 + 1310 * 10) / 1e6}
    assert one.usage == tokens | {"image_output_tokens": 1290, "images": 1} | cost
    prices = {"price_per_million_input": 1, "price_per_million_output": 10}
    prices |= {"price_per_million_image_output": 40, "price_per_image": 0.5}
    other = ask_once(server, "responses", **prices)
    assert other.usage["output_tokens"] == 1030
    assert other.usage["cost"] == pytest.approx((25 + 30 * 10 + 1000 * 40) / 1e6 + 0.5)


@ALL
def test_pictures_of_the_question_and_of_earlier_turns_are_sent(server, api):
    turns = (
        Turn("system", (Text("Be brief."),)),
        Turn("user", (Text("look "), RED, Text(" here"))),
        Turn("assistant", (Text("a picture: "), BLUE)),
        Turn("user", (Text("and now?"),)),
    )
    result = ask_once(server, api, Request(turns, seed=2**40 + 3))
    # Google's SDK writes bytes in the alphabet for URLs.
    sent = str(server.bodies[0]).replace("-", "+").replace("_", "/")
    for data in (RED.data, BLUE.data):
        assert base64.b64encode(data).decode() in sent
    assert "Be brief." in sent
    prompt = str(result.notes["prompt"])
    assert RED.digest in prompt
    assert BLUE.digest in prompt
    assert result.notes["image_sizes"] == [[12, 8], [12, 8]]


def test_gemini_is_sent_its_own_pictures_as_its_own(server):
    turns = (
        Turn("user", (Text("draw"),)),
        Turn("assistant", (Text("here: "), RED)),
        Turn("user", (Text("bluer"),)),
    )
    settings = {"aspect_ratio": "1:1", "image_size": "2K", "temperature": 0.5}
    ask_once(server, "gemini", Request(turns, seed=2**40 + 3), system="S", **settings)
    (body,) = server.bodies
    roles = [content["role"] for content in body["contents"]]
    assert roles == ["user", "model", "user"]
    own = body["contents"][1]["parts"]
    assert own[0] == {"text": "here: "}
    assert base64.urlsafe_b64decode(own[1]["inlineData"]["data"]) == RED.data
    assert body["systemInstruction"]["parts"] == [{"text": "S"}]
    config = body["generationConfig"]
    assert config["responseModalities"] == ["TEXT", "IMAGE"]
    assert config["imageConfig"] == {"aspectRatio": "1:1", "imageSize": "2K"}
    assert (config["seed"], config["temperature"]) == (3, 0.5)
    assert server.all_headers[0]["x-goog-api-key"] == KEY


def test_responses_is_sent_the_tool_and_says_that_it_takes_no_seed(server):
    settings = {"size": "1024x1024", "quality": "low", "must_draw": True, "max_tokens": 99}
    result = ask_once(server, "responses", says("draw", RED, seed=3), **settings)
    (body,) = server.bodies
    assert body["tools"] == [
        {"type": "image_generation", "size": "1024x1024", "quality": "low"}
    ]
    assert body["tool_choice"] == {"type": "image_generation"}
    assert (body["store"], body["max_output_tokens"]) == (False, 99)
    text, image = body["input"][0]["content"]
    assert text == {"type": "input_text", "text": "draw"}
    assert image["type"] == "input_image"
    assert image["image_url"] == url_of(RED)
    assert "seed" not in body
    assert result.notes["seed"] == "not taken by the server"


def test_chat_images_asks_for_both_modalities_and_sends_a_seed_if_told(server):
    ask_once(server, "chat-images", says("draw", seed=5), send_seed=True)
    assert server.bodies[0]["modalities"] == ["image", "text"]
    assert server.bodies[0]["seed"] == 5
    ask_once(server, "chat-images", says("draw", seed=5), modalities=[])
    assert not {"modalities", "seed"} & set(server.bodies[1])


@ALL
def test_text_alone_is_asked_for_where_an_answer_needs_no_pictures(server, api):
    turns = (Turn("user", (Text("why?"),)),)
    ask_once(server, api, Request(turns, seed=1, modality="text"))
    sent = str(server.bodies[0])
    assert "image_generation" not in sent
    assert "IMAGE" not in sent
    assert "'image'" not in sent


def test_a_server_that_cannot_write_text_alone_is_asked_as_for_any_query(server):
    refusal = Answer(error("anole cannot be told so; leave modalities out"), 400)
    server.script = lambda body: (
        refusal if body["modalities"] == ["text"] else Answer(default_reply(body["path"]))
    )
    why = Request((Turn("user", (Text("why?"),)),), seed=1, modality="text")
    result = ask_once(server, "chat-images", why)
    assert shown(result) == ["first", "RED", "then"]
    assert [body["modalities"] for body in server.bodies] == [["text"], ["image", "text"]]
    assert result.notes["modality"] == "text alone is not taken by the server"

    server.answering(error("modalities are unknown here"), status=400)
    refused = ask_once(server, "chat-images", says("draw"))
    assert isinstance(refused, Failure)
    assert len(server.bodies) == 3, "only a request for text alone is sent again"


def test_a_server_without_picture_input_skips_questions_with_pictures(server):
    settings = omni_settings("LLaDA2.0-Uni")
    assert settings.max_images == 0
    assert omni_settings("Cosmos3-Omni").max_images is None
    options = settings.model_dump(exclude={"model", "base_url", "server"}) | QUICK
    with asking(server, "chat-images", **options) as ask:
        skip, answered = ask([says("look", RED), says("draw")])
    assert isinstance(skip, Skip)
    assert "reads 0 image(s)" in skip.reason
    assert isinstance(answered, Result)


def test_gemini_names_an_unknown_model_before_it_is_asked(server):
    unknown = {"code": 404, "message": "models/parrot is not found", "status": "NOT_FOUND"}
    server.get = lambda path: Answer({"error": unknown}, 404)
    with (
        pytest.raises(EndpointError, match="models/parrot is not found"),
        asking(server, "gemini"),
    ):
        pass


@pytest.mark.parametrize(
    "body",
    [
        {"detail": "Not Found"},
        {"error": {"code": 404, "message": "Not Found", "status": "NOT_FOUND"}},
    ],
)
def test_a_gateway_that_knows_no_models_is_asked_all_the_same(server, body):
    server.get = lambda path: Answer(body, 404)
    assert shown(ask_once(server, "gemini")) == ["first", "RED", "then"]


def test_a_missing_sdk_is_named_with_the_command(server, monkeypatch):
    monkeypatch.setitem(sys.modules, "google.genai", None)
    with (
        pytest.raises(EndpointError, match=r"pip install 'plait\[gemini\]'"),
        asking(server, "gemini"),
    ):
        pass


def test_geminis_wrong_key_and_pause_are_read_from_its_details(server):
    def wrong(reason, **detail):
        about = {"code": 400, "message": f"no: {KEY}", "status": "INVALID_ARGUMENT"}
        return {"error": about | {"details": [{"reason": reason} | detail]}}

    server.answering(wrong("API_KEY_INVALID"), status=400)
    failure = ask_once(server, "gemini")
    assert failure.fault is Fault.ENDPOINT
    assert "GEMINI_API_KEY is not accepted" in failure.reason
    assert KEY not in as_json(failure)
    server.answering(wrong("x", retryDelay="3600s"), status=429)
    failure = ask_once(server, "gemini")
    assert "it asks to wait 3600 s" in failure.reason
    assert failure.fault is Fault.ENDPOINT


def test_gemini_says_what_its_address_looks_like(server):
    server.get = lambda path: Answer(b"<html>welcome</html>")
    with (
        pytest.raises(EndpointError, match="leave out the API's version"),
        asking(server, "gemini", max_attempts=1),
    ):
        pass


@ALL
def test_large_pictures_are_kept_as_the_server_sent_them(server, api):
    jpeg = picture("green", (64, 48), "JPEG")
    replies = {
        "gemini": gemini(inline(jpeg, "image/jpeg")),
        "responses": response(drawn(jpeg)),
        "chat-images": completion([url_part(url_of(jpeg, "image/jpeg"))]),
    }
    server.answering(replies[api])
    result = ask_once(server, api)
    assert result.value.images[0].read() == jpeg.data


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
