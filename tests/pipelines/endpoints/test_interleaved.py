"""Systems behind servers that draw: what every API is sent, and what it is asked for."""

import base64

import pytest
from drawing_servers import (
    APIS,
    BLUE,
    QUICK,
    RED,
    ask_once,
    default_reply,
    shown,
    url_of,
)
from drawing_servers import (
    asking_for_pictures as asking,
)
from endpoint_helpers import KEY, MODEL, Answer, error, says

from generators.base import Failure, Result, Skip
from generators.document import Request, Text, Turn
from pipelines.endpoints.interleaved_settings import omni_settings

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
