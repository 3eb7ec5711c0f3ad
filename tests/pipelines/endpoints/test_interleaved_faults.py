"""Servers that draw and fail: one record, the stage, or the same request again."""

import sys

import pytest
from drawing_servers import (
    APIS,
    QUICK,
    as_json,
    ask_once,
    drawn,
    gemini,
    inline,
    only,
    picture,
    response,
    said,
    shown,
    url_of,
    url_part,
)
from drawing_servers import (
    asking_for_pictures as asking,
)
from endpoint_helpers import KEY, MODEL, Answer, completion, error, says

from generators.base import Failure, Fault
from generators.document import Image
from pipelines.endpoints.chat_images import ChatImagesEndpoint
from pipelines.endpoints.errors import EndpointError

pytest.importorskip("google.genai")

ALL = pytest.mark.parametrize("api", APIS)


@ALL
def test_an_empty_reply_is_a_failure(server, api):
    empty = {"gemini": gemini(), "responses": response(), "chat-images": completion(None)}
    server.answering(empty[api])
    failure = ask_once(server, api)
    assert isinstance(failure, Failure)
    assert "empty" in failure.reason


BROKEN = {
    "no picture": (b"not a picture at all", "no known picture format"),
    "half a picture": (picture(size=(300, 300)).data[:200], "cannot be decoded"),
    "no bytes": (b"", "picture"),
    "markup": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "no known picture format"),
}


@ALL
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_picture_fails_with_its_reason(server, api, name):
    data, words = BROKEN[name]
    replies = {
        "gemini": gemini({"text": "a"}, inline(data)),
        "responses": response(said("a"), drawn(data)),
        "chat-images": completion([{"type": "text", "text": "a"}, url_part(url_of(data))]),
    }
    server.answering(replies[api])
    failure = ask_once(server, api)
    assert isinstance(failure, Failure)
    assert words in failure.reason
    assert failure.fault is not Fault.BAD_INPUT
    assert not failure.fault.final
    assert failure.notes["text"] == "a"
    assert failure.usage["output_tokens"] > 0
    assert len(server.bodies) == 1


@ALL
def test_one_bad_picture_does_not_harm_other_requests(server, api):
    good = server.script

    def script(body):
        if "bad" not in str(body):
            return good(body)
        replies = {
            "gemini": gemini(inline(b"x")),
            "responses": response(drawn(b"x")),
            "chat-images": completion([url_part(url_of(b"x"))]),
        }
        return Answer(replies[api])

    server.script = script
    with asking(server, api) as ask:
        one, two, three = ask([says("draw"), says("bad"), says("draw")])
    assert shown(one) == shown(three) == ["first", "RED", "then"]
    assert isinstance(two, Failure)


@ALL
def test_passing_faults_are_tried_again(server, api):
    faults = [
        Answer(error("overloaded"), 503),
        Answer(error("slow down"), 429, {"retry-after": "0"}),
        Answer(how="drop"),
        Answer(b'{"candid', headers={"content-type": "application/json"}),
        Answer(b"<html>bad gateway</html>", headers={"content-type": "text/html"}),
    ]
    good = server.script
    server.script = lambda body: faults.pop(0) if faults else good(body)
    result = ask_once(server, api, max_attempts=6)
    assert shown(result) == ["first", "RED", "then"]
    assert result.notes["attempts"] == 6


@ALL
@pytest.mark.parametrize("how", ["stall", "headers", "drip"])
def test_a_server_that_stops_in_the_middle_is_given_up(server, api, how):
    server.answering(completion("never " * 2000), how=how)
    failure = ask_once(server, api, timeout_s=0.8, max_attempts=2)
    assert isinstance(failure, Failure)
    assert failure.fault is Fault.ENDPOINT
    assert "no complete reply in time" in failure.reason
    assert len(server.bodies) == 2


@ALL
def test_an_unknown_model_condemns_the_stage(server, api):
    server.answering(error("no such model"), status=404)
    with asking(server, api) as ask:
        first, second = only(ask([says("a")])), only(ask([says("b")]))
    for failure in (first, second):
        assert failure.fault is Fault.ENDPOINT
        assert "no such model" in failure.reason
    assert len(server.bodies) == 1


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


@ALL
@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_key_ends_the_stage_and_is_not_shown(server, api, status):
    server.get = lambda path: Answer(error(f"key {KEY} is wrong"), status)
    with pytest.raises(EndpointError) as caught, asking(server, api):
        pass
    assert KEY not in str(caught.value)
    assert "is wrong" in str(caught.value)
    env = "GEMINI_API_KEY" if api == "gemini" else "OPENAI_API_KEY"
    assert env in str(caught.value)


@ALL
def test_a_dead_server_ends_the_stage(server, api):
    with pytest.raises(EndpointError, match="Is the server running"):
        APIS[api](model=MODEL, base_url="http://127.0.0.1:9/v1", **QUICK)


@ALL
@pytest.mark.parametrize("status", [404, 500])
def test_a_server_that_lists_no_models_is_asked_all_the_same(server, api, status):
    if api == "gemini":
        pytest.skip("Gemini's own API is asked for the model itself")
    server.get = lambda path: Answer(error("cannot list"), status)
    assert shown(ask_once(server, api)) == ["first", "RED", "then"]


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


@ALL
def test_a_key_that_a_server_repeats_is_not_in_the_record(server, api):
    server.answering(error(f"bad request by {KEY}"), status=400)
    failure = ask_once(server, api)
    assert failure.fault is Fault.BAD_INPUT
    assert KEY not in as_json(failure)
    assert "***" in failure.reason


def test_a_key_in_an_error_that_comes_with_status_200_is_not_in_the_record(server):
    failed = {"code": "server_error", "message": f"{KEY} has no tool"}
    server.answering(response(said("a"), status="failed", error=failed))
    failure = ask_once(server, "responses")
    assert "server_error: *** has no tool" in failure.reason
    assert KEY not in as_json(failure)
    assert not failure.fault.final


def test_gemini_says_what_its_address_looks_like(server):
    server.get = lambda path: Answer(b"<html>welcome</html>")
    with (
        pytest.raises(EndpointError, match="leave out the API's version"),
        asking(server, "gemini", max_attempts=1),
    ):
        pass


@ALL
def test_a_ceiling_on_cost_ends_the_stage(server, api):
    prices = {"price_per_image": 1.0, "max_cost": 1.5, "concurrency": 1}
    with asking(server, api, **prices) as ask:
        outcomes = ask([says(str(i)) for i in range(4)])
    faults = [getattr(o, "fault", None) for o in outcomes]
    assert faults == [None, None, Fault.BUDGET, Fault.BUDGET]
    assert len(server.bodies) == 2


def test_a_ceiling_needs_a_price():
    with pytest.raises(ValueError, match="max_cost needs price_per_image"):
        ChatImagesEndpoint(model=MODEL, max_cost=1.0)


@ALL
def test_a_picture_in_a_question_that_cannot_be_read_fails_alone(server, api):
    broken = Image.of(b"no picture")
    with asking(server, api) as ask:
        bad, good = ask([says("look", broken), says("draw")])
    assert bad.fault is Fault.BAD_INPUT
    assert shown(good) == ["first", "RED", "then"]


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
