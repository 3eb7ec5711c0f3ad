"""What a chat endpoint does about servers that fail, stall, refuse and die."""

import email.utils
import socket
import time
from types import SimpleNamespace

import httpx2
import openai
import pytest
from endpoint_helpers import KEY, MODEL, Answer, asking, completion, error, says, serving

from generators.base import Failure, Fault, Result
from pipelines.endpoints.endpoint import ChatEndpoint
from pipelines.endpoints.errors import EndpointError, described, retry_after_s
from pipelines.endpoints.limits import _Wait

TOO_MANY = Answer(error("slow down"), 429, {"retry-after": "0"})


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving() as running:
        yield running


def only(outcomes):
    (outcome,) = outcomes
    return outcome


@pytest.mark.parametrize(
    "bad",
    [
        TOO_MANY,
        Answer(error("overloaded"), 500),
        Answer(error("overloaded"), 503, {"retry-after": "0"}),
        Answer(error("timeout"), 408),
        Answer(error("conflict"), 409),
        Answer(how="drop"),
        Answer(b'{"choices": [{"mess'),
        Answer(b"<html>bad gateway</html>", headers={"content-type": "text/html"}),
        Answer({"error": {"message": "provider down", "code": 502}}),
        Answer({"choices": "none"}),
    ],
)
def test_passing_faults_are_tried_again(server, bad):
    server.in_turn(bad, bad)
    with asking(server) as ask:
        result = only(ask([says("a")]))
    assert isinstance(result, Result)
    assert result.value.text == "a"
    assert result.notes["attempts"] == 3
    assert len(server.bodies) == 3


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (TOO_MANY, "HTTP 429: slow down"),
        (Answer(error("overloaded"), 500), "HTTP 500: overloaded"),
        (Answer(how="drop"), "no connection: Server disconnected"),
        (Answer(b"<html>"), "malformed reply"),
    ],
)
def test_faults_that_do_not_pass_end_after_the_last_attempt(server, bad, words):
    server.script = lambda body: bad
    with asking(server, max_attempts=4) as ask:
        failure = only(ask([says("a")]))
        server.script = lambda body: Answer(completion("well again"))
        assert isinstance(only(ask([says("b")])), Result)
    assert failure.fault is Fault.ENDPOINT
    assert not failure.fault.final
    assert words in failure.reason
    assert len(server.bodies) == 5


@pytest.mark.parametrize("how", ["stall", "headers", "drip"])
def test_a_server_that_stalls_is_given_up(server, how):
    answer = Answer(completion("never " * 2000), how=how)
    server.script = lambda body: answer
    with asking(server, timeout_s=0.8, max_attempts=2) as ask:
        failure = only(ask([says("a")]))
    assert failure.fault is Fault.ENDPOINT
    assert "no complete reply in time" in failure.reason
    assert len(server.bodies) == 2


def test_no_attempt_begins_after_the_total_time(server):
    server.script = lambda body: Answer(how="stall")
    with asking(server, timeout_s=0.8, give_up_s=1.2, max_attempts=100) as ask:
        failure = only(ask([says("a")]))
    assert failure.fault is Fault.ENDPOINT
    assert len(server.bodies) <= 2


@pytest.mark.parametrize("pause", ["3600", "in an hour"])
def test_a_server_that_asks_for_more_patience_than_there_is_is_asked_once(server, pause):
    moment = email.utils.formatdate(time.time() + 3600, usegmt=True)
    header = {"retry-after": pause if pause.isdigit() else moment}
    server.script = lambda body: Answer(error("come back later"), 429, header)
    with asking(server) as ask:
        failure = only(ask([says("a")]))
    assert len(server.bodies) == 1
    assert failure.fault is Fault.ENDPOINT
    assert "it asks to wait 3" in failure.reason


def status_error(headers):
    request = httpx2.Request("POST", "http://server/v1")
    response = httpx2.Response(429, headers=headers, request=request)
    return openai.RateLimitError("slow down", response=response, body=None)


def test_retry_after_is_read_in_both_forms():
    future = email.utils.formatdate(time.time() + 120, usegmt=True)
    past = email.utils.formatdate(time.time() - 120, usegmt=True)
    assert retry_after_s(status_error({"Retry-After": "7.5"})) == 7.5
    assert 110 < retry_after_s(status_error({"Retry-After": future})) <= 121
    assert retry_after_s(status_error({"Retry-After": past})) == 0
    assert retry_after_s(status_error({"Retry-After": "soon"})) is None
    assert retry_after_s(status_error({})) is None
    assert retry_after_s(TimeoutError()) is None


def test_the_wait_is_what_the_server_asks_or_grows_with_jitter():
    def state(failure, attempt):
        outcome = SimpleNamespace(exception=lambda: failure)
        return SimpleNamespace(outcome=outcome, attempt_number=attempt)

    wait = _Wait(1.0)
    pauses = [wait(state(status_error({"retry-after": "7"}), 1)) for _ in range(50)]
    assert all(7 <= seconds <= 8 for seconds in pauses)
    grown = [[wait(state(TimeoutError(), n)) for _ in range(200)] for n in (1, 4, 20)]
    assert [max(g) for g in grown] == [
        pytest.approx(1, rel=0.1),
        pytest.approx(8, rel=0.1),
        pytest.approx(60, rel=0.1),
    ]
    assert len(set(grown[0])) > 100


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_a_request_the_server_rejects_is_final_for_its_record(server, status):
    server.in_turn(Answer(error("image too large"), status))
    with asking(server) as ask:
        failure = only(ask([says("a")]))
        assert isinstance(only(ask([says("b")])), Result)
    assert failure == Failure(
        f"HTTP {status}: image too large", Fault.BAD_INPUT, notes=failure.notes
    )
    assert len(server.bodies) == 2


def test_a_request_the_filter_rejects_is_refused(server):
    server.in_turn(Answer(error("flagged", "content_filter"), 400))
    with asking(server) as ask:
        assert only(ask([says("a")])).fault is Fault.REFUSED


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (401, None, "The key in OPENAI_API_KEY is not accepted"),
        (403, None, "may not use this model"),
        (404, None, "Check the model's name"),
        (429, "insufficient_quota", "no credit left"),
    ],
)
def test_an_endpoint_that_answers_nobody_is_asked_no_more(server, status, code, words):
    server.script = lambda body: Answer(error("no", code), status)
    with asking(server) as ask:
        failures = [only(ask([says(str(i))])) for i in range(5)]
    assert len(server.bodies) == 1
    assert {f.fault for f in failures} == {Fault.ENDPOINT}
    assert all(words in f.reason for f in failures)
    assert all(server.url in f.reason for f in failures)
    assert all(repr(MODEL) in f.reason for f in failures)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(error("bad key"), 401), "HTTP 401: bad key. The key in OPENAI_API_KEY"),
        (Answer(error("no such model"), 404), "HTTP 404: no such model. Check the model's"),
        (Answer(error("use max_completion_tokens"), 400), "Check model, max_tokens_field"),
        (Answer(how="stall"), "It accepts connections but does not answer"),
        (Answer(b"<html>"), "Does base_url end in the API's path"),
        (TOO_MANY, "Try again later"),
    ],
)
def test_the_preflight_says_what_is_wrong_and_what_to_do(server, answer, words):
    server.preflight = lambda body: answer
    with pytest.raises(EndpointError) as caught, asking(server, timeout_s=0.8):
        pass
    message = str(caught.value)
    assert words in message
    assert f"endpoint {server.url}, model {MODEL!r}" in message


def test_a_connection_error_that_says_nothing_has_a_name():
    error = openai.APIConnectionError(request=httpx2.Request("POST", "http://127.0.0.1/v1"))
    error.__cause__ = httpx2.ReadError("")
    assert described(error) == "no connection: ReadError"


def test_the_preflight_says_when_no_key_is_set(server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    server.preflight = lambda body: Answer(error("who are you?"), 401)
    with pytest.raises(EndpointError, match="The key in OPENAI_API_KEY is not set"):
        ChatEndpoint(model=MODEL, base_url=server.url)


def test_the_preflight_finds_a_dead_host():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        with pytest.raises(EndpointError, match="Is the server running") as caught:
            ChatEndpoint(model=MODEL, base_url=url, backoff_s=0.01)
    assert url in str(caught.value)


def test_the_preflight_asks_with_the_settings_of_the_run_and_survives_a_busy_server(server):
    answers = iter([TOO_MANY, Answer(how="drop"), Answer(completion("ready"))])
    bodies = []

    def busy(body):
        bodies.append(body)
        return next(answers)

    server.preflight = busy
    with asking(server, temperature=0.5, extra_body={"top_k": 2}):
        pass
    assert len(bodies) == 3
    assert bodies[0]["temperature"] == 0.5
    assert bodies[0]["top_k"] == 2
