"""Images servers that are unknown, dead, slow or broken, and what they may cost."""

from __future__ import annotations

import contextlib
import socket
import time
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
    reply,
    serving_images,
    wish,
)

from generators.base import Failure, Fault, Result
from pipelines.endpoints.errors import EndpointError
from pipelines.endpoints.images import ImagesEndpoint

HTML = Answer(b"<html>bad gateway</html>", headers={"content-type": "text/html"})
SERVER_INFO = {"model_path": MODEL, "tp_size": 1, "dp_size": 1, "version": "0.5.23"}
LOST = Answer(error("no models"), 500)


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def server():
    with serving_images() as running:
        yield running


def refusal(server: Any, **settings: Any) -> str:
    """What the stage says when it cannot be loaded; no picture may have been drawn."""
    with pytest.raises(EndpointError) as caught, drawing(server, **settings):
        pass
    assert not server.bodies
    assert KEY not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("dialect", list(OWNERS))
def test_the_dialect_is_found_from_who_owns_the_model(dialect):
    with serving_images(dialect) as server, drawing(server) as draw:
        assert draw.dialect.name == dialect


@pytest.mark.parametrize("listing", [LOST, Answer({"detail": "Not Found"}, 404)])
@pytest.mark.parametrize(
    ("page", "answer", "dialect"),
    [
        ("/server_info", SERVER_INFO, "sglang"),
        ("/health", {"status": "healthy"}, "vllm-omni"),
    ],
)
def test_a_server_without_a_list_of_models_is_known_by_its_status_pages(
    server, listing, page, answer, dialect
):
    server.pages = {"/v1/models": listing, page: Answer(answer)}
    with drawing(server) as draw:
        assert draw.dialect.name == dialect


@pytest.mark.parametrize(
    "listing", [LOST, Answer({"data": [{"id": MODEL, "owned_by": "my lab"}]})]
)
def test_an_unknown_server_asks_for_its_dialect(server, listing):
    server.pages = {"/v1/models": listing, "/health": Answer({"status": "ok"})}
    said = refusal(server)
    assert "set dialect to one of openai, sglang, vllm-omni, plait" in said
    assert (listing.status == 200) or "/models answers HTTP 500: no models" in said
    with drawing(server, dialect="openai") as draw:
        assert isinstance(only(draw([wish()])), Result)


def test_the_models_own_entry_counts_where_a_proxy_lists_several_servers(server):
    entries = [
        {"id": "other", "owned_by": "sglang"},
        {"id": MODEL, "owned_by": "openai"},
    ]
    server.pages["/v1/models"] = Answer({"data": entries})
    with drawing(server) as draw:
        assert draw.dialect.name == "openai"


@pytest.mark.parametrize("dialect", ["sglang", "vllm-omni"])
def test_a_model_that_the_server_does_not_have_is_refused_before_a_picture(dialect):
    """SGLang does not read `model`: it would draw with another one and never say so."""
    with serving_images(dialect) as server:
        said = refusal(server, model="paintre")
    assert "it has no model 'paintre'; it has painter" in said


@pytest.mark.parametrize(
    ("dialect", "settings", "words"),
    [
        (
            "openai",
            {"steps": 4},
            "'openai' takes no steps (taken by sglang, vllm-omni, plait)",
        ),
        ("openai", {"guidance": 1.0, "negative_prompt": "x"}, "guidance (taken by"),
        ("vllm-omni", {"max_sequence_length": 64}, "taken by sglang, plait)"),
        ("vllm-omni", {"quality": "low"}, "taken by openai)"),
    ],
)
def test_a_setting_that_the_server_would_ignore_is_refused(dialect, settings, words):
    with serving_images(dialect) as server:
        assert words in refusal(server, **settings)


def test_a_wrong_key_is_found_before_a_picture(server):
    server.wanted_key = "another"
    assert "The key in OPENAI_API_KEY is not accepted" in refusal(server)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (HTML, "Does base_url end in the API's path"),
        (Answer({"models": []}), "/models gave no list"),
        (Answer(b'{"data": [{"id"'), "Does base_url end in the API's path"),
        (Answer(error("busy"), 503, {"retry-after": "0"}), "Try again later"),
        (Answer(how="drop"), "Is the server running"),
        (Answer(how="stall"), "It accepts connections but does not answer"),
    ],
)
def test_a_server_that_does_not_introduce_itself_is_refused(server, answer, words):
    server.pages["/v1/models"] = answer
    assert words in refusal(server, timeout_s=0.8)


def test_a_dead_server_is_found_before_a_picture():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        with pytest.raises(EndpointError, match="Is the server running") as caught:
            ImagesEndpoint(model=MODEL, base_url=url, backoff_s=0.01)
    assert url in str(caught.value)


PASSING = [
    Answer(error("slow down"), 429, {"retry-after": "0"}),
    Answer(b"Internal Server Error", 500),
    Answer(error("overloaded"), 503),
    Answer(how="drop"),
    Answer(b'{"created": 1, "data": [{"b64_js'),
    Answer({"created": 1}),
    Answer({"error": {"message": "provider down", "code": 502}}),
    HTML,
]


@pytest.mark.parametrize("bad", PASSING)
def test_passing_faults_are_tried_again(server, bad):
    server.in_turn(bad, bad)
    with drawing(server) as draw:
        result = only(draw([wish()]))
    assert isinstance(result, Result), result
    assert result.notes["attempts"] == 3


@pytest.mark.parametrize("bad", PASSING)
def test_faults_that_do_not_pass_are_failures_to_be_tried_again_later(server, bad):
    server.script = lambda _: bad
    with drawing(server) as draw:
        failure = only(draw([wish()]))
        server.script = server.draw
        assert isinstance(only(draw([wish("a lake")])), Result)
    assert failure.fault is Fault.ENDPOINT
    assert failure.reason.startswith("given up: ")
    assert failure.notes["prompt"] == "a red cat"


def test_the_wait_that_a_server_asks_for_is_kept(server):
    server.in_turn(Answer(error("slow down"), 429, {"retry-after": "1"}))
    began = time.monotonic()
    with drawing(server) as draw:
        assert isinstance(only(draw([wish()])), Result)
    assert time.monotonic() - began >= 1.0


@pytest.mark.parametrize("how", ["stall", "headers", "drip"])
def test_a_server_that_stalls_in_the_middle_of_a_picture_is_given_up(server, how):
    answer = Answer(reply(encoded(noise("x", (200, 200)))), how=how)
    server.script = lambda _: answer
    with drawing(server, timeout_s=0.6, max_attempts=2) as draw:
        failure = only(draw([wish()]))
    assert failure.fault is Fault.ENDPOINT
    assert "no complete reply in time" in failure.reason


def test_a_server_that_stops_between_two_pictures_fails_what_is_left():
    with contextlib.ExitStack() as stack:
        with serving_images("sglang") as server:
            server.script = lambda body: Answer(
                server.draw(body).body, headers={"connection": "close"}
            )
            draw = stack.enter_context(drawing(server))
            assert isinstance(only(draw([wish()])), Result)
        failure = only(draw([wish("a lake")]))
    assert failure.fault is Fault.ENDPOINT
    assert not failure.fault.final
    assert "no connection" in failure.reason


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_server_that_stops_to_accept_the_key_is_asked_no_more(server, status):
    with drawing(server) as draw:
        server.script = lambda _: Answer(error("no"), status)
        failures = [only(draw([wish(str(i))])) for i in range(4)]
    assert len(server.bodies) == 1
    assert {f.fault for f in failures} == {Fault.ENDPOINT}


def costs(server: Any, count: int, **settings: Any) -> list[Any]:
    with drawing(server, **settings) as draw:
        return [only(draw([wish(str(i))])) for i in range(count)]


def test_a_budget_is_kept_by_the_picture(server):
    outcomes = costs(server, 5, price_per_image=0.04, max_cost=0.1)
    assert [o.usage["cost"] for o in outcomes[:3]] == pytest.approx([0.04] * 3)
    assert {o.fault for o in outcomes[3:]} == {Fault.BUDGET}
    assert outcomes[3].reason == "0.12 spent; max_cost is 0.1"
    assert len(server.bodies) == 3


def test_a_budget_is_kept_by_the_token_and_by_both(server):
    prices = {"price_per_million_input": 5.0, "price_per_million_output": 40.0}
    by_token = costs(server, 1, **prices)[0].usage["cost"]
    assert by_token == pytest.approx((12 * 5 + 272 * 40) / 1e6)
    both = costs(server, 1, **prices, price_per_image=0.5)[0].usage["cost"]
    assert both == pytest.approx(by_token + 0.5)


def test_pictures_that_cannot_be_used_are_paid_for(server):
    twice = reply(encoded(noise("a")), encoded(noise("b")))
    server.script = lambda _: Answer(twice)
    first, second, third = costs(server, 3, price_per_image=1.0, max_cost=4.0)
    assert (first.fault, first.usage) == (Fault.ENDPOINT, {"images": 2, "cost": 2.0})
    assert (second.fault, third.fault) == (Fault.ENDPOINT, Fault.BUDGET)


@pytest.mark.parametrize(
    "ceiling",
    [
        {"max_total_tokens": 100},
        {
            "max_cost": 1.0,
            "price_per_million_input": 1.0,
            "price_per_million_output": 1.0,
            "price_per_image": 0.01,
        },
    ],
)
def test_no_ceiling_on_tokens_is_kept_where_the_server_counts_none(ceiling):
    with serving_images("sglang") as server:
        first, second = costs(server, 2, **ceiling)
    assert isinstance(first, Result)
    assert first.usage["images"] == 1
    assert "cost" not in first.usage
    assert second.fault is Fault.BUDGET
    assert "reports no token usage" in second.reason


def test_a_ceiling_on_tokens_is_kept(server):
    first, second = costs(server, 2, max_total_tokens=284)
    assert isinstance(first, Result)
    assert isinstance(second, Failure)
    assert second.reason == "284 tokens used; max_total_tokens is 284"


def test_what_earlier_commands_drew_counts(server):
    with drawing(server, price_per_image=0.5, max_cost=2.0) as draw:
        draw.continue_from({"images": 4, "cost": 2.0})
        failure = only(draw([wish()]))
    assert failure.fault is Fault.BUDGET
    assert not server.bodies
