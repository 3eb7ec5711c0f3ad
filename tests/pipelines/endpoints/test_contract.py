"""What holds behind every API: faults, rejections, ceilings, secrets."""

import gzip
import socket
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest
from endpoint_apis import (
    APIS,
    CHAT,
    CHAT_IMAGES,
    DRAWING,
    GEMINI,
    IMAGES,
    OMNI,
    RED,
    RESPONSES,
    picture,
)
from endpoint_helpers import KEY, Answer, completion, error, says, serving

from plait.generators.base import Fault, Result, Skip
from plait.generators.document import Image
from plait.pipelines.chat.settings import EndpointSettings, ServerSettings
from plait.pipelines.endpoints.client import EndpointClient
from plait.pipelines.endpoints.errors import EndpointError

pytestmark = pytest.mark.contract


@pytest.fixture(params=APIS, ids=lambda api: api.name)
def api(request):
    return request.param


@pytest.fixture
def server(api):
    with api.serving() as running:
        yield running


@pytest.fixture
def attempts(monkeypatch):
    """What clients have begun to send, whether or not a server has read it."""
    begun = []
    for name in ("exchange", "upload"):
        send = getattr(EndpointClient, name)

        async def counting(self, *request, send=send):
            begun.append(request)
            return await send(self, *request)

        monkeypatch.setattr(EndpointClient, name, counting)
    return begun


def of(*apis):
    return pytest.mark.parametrize("api", apis, ids=lambda api: api.name, indirect=True)


BROKEN = Answer(b'{"candid')
BUSY = Answer(error("slow down"), 429, {"retry-after": "0"})
DOWN = Answer(error("a while"), 503)
DROPPED = Answer(how="drop")
MOVED = Answer(b"", 302, {"location": "http://127.0.0.1:9/login?signature=x"})
PASSING = [
    BUSY,
    DOWN,
    DROPPED,
    BROKEN,
    *(Answer(error("a while"), status) for status in (408, 409, 500)),
    Answer(b"<html>bad gateway</html>", headers={"content-type": "text/html"}),
    Answer({"error": {"message": "provider down", "code": 502}}),
    Answer({"choices": "none"}),
]


def test_passing_faults_are_tried_again(api, server):
    server.in_turn(*PASSING)
    result = api.once(server, max_attempts=11)
    assert isinstance(result, Result), result
    assert result.notes["attempts"] == len(server.bodies) == 11


def test_faults_that_last_fail_their_record_alone(api, server):
    with api.asking(server) as stage:
        for fault in (BUSY, DOWN, DROPPED, BROKEN):
            server.in_turn(*[fault] * 3)
            failure = api.one(stage)
            assert (failure.fault, failure.fault.final) == (Fault.ENDPOINT, False)
            assert failure.notes["prompt"]
            assert isinstance(api.one(stage, "b"), Result)
    assert len(server.bodies) == 4 * 4


@pytest.mark.parametrize(
    ("api", "how"),
    [*((api, "headers") for api in APIS), (CHAT, "stall"), (CHAT, "drip")],
    indirect=["api"],
    ids=lambda part: getattr(part, "name", part),
)
def test_a_server_that_stops_in_the_middle_is_given_up(api, server, how, attempts):
    # Dripped, it is whole after a minute, with something to read at any time.
    body = b'{"choices": [{"message": {"content": "hello"}}]}' + b" " * 1200
    server.always(body, how=how)
    with api.asking(server, max_attempts=2) as stage:
        attempts.clear()
        client = stage._client
        client.settings = client.settings.model_copy(update={"timeout_s": 0.1})
        failure = api.one(stage)
    assert (failure.fault, len(attempts)) == (Fault.ENDPOINT, 2)
    assert "in time" in failure.reason


def test_a_request_that_is_rejected_or_refused_is_final_for_its_record_alone(api, server):
    codes = ("moderation_blocked", "content_policy_violation", "content_filter")
    refused = [error("rejected", code) for code in codes]
    # As LiteLLM's proxy passes the first on.
    refused.append(error("BadRequestError - rejected by the safety system.", "400"))
    with api.asking(server) as stage:
        assert isinstance(api.one(stage), Result)
        for status in (400, 413, 415, 422):
            server.always(error("too large"), status)
            failure = api.one(stage, "b")
            assert failure.fault is Fault.BAD_INPUT
            assert failure.reason == f"HTTP {status}: too large"
        for body in refused:
            server.always(body, 400)
            assert api.one(stage).fault is Fault.REFUSED
        server.script = server.default
        assert isinstance(api.one(stage, "c"), Result)
    assert len(server.bodies) == 1 + 4 + 4 + 1


REJECTIONS = {
    "key": Answer(error("who are you?"), 401),
    "right": Answer(error("not yours"), 403),
    "model": Answer(error("no such model"), 404),
    "credit": Answer(error("no credit", "insufficient_quota"), 429),
    "limit": Answer(error("no credit", "billing_hard_limit_reached"), 400),
    "place": MOVED,
}


@pytest.mark.parametrize(
    ("api", "name"),
    [*((api, "key") for api in APIS), *((CHAT, name) for name in REJECTIONS)],
    indirect=["api"],
    ids=lambda part: getattr(part, "name", part),
)
def test_after_three_rejections_in_a_row_nothing_is_sent(api, server, name):
    with api.asking(server) as stage:
        assert isinstance(api.one(stage), Result)
        server.bodies.clear()
        # Two requests of three attempts, then an answer: the count begins anew.
        server.in_turn(*[REJECTIONS[name]] * 6)
        faults = [api.one(stage).fault for _ in range(2)]
        assert isinstance(api.one(stage), Result)
        server.always(REJECTIONS[name])
        failures = [api.one(stage) for _ in range(5)]
    assert len(server.bodies) == 7 + 9
    assert {*faults, *(f.fault for f in failures)} == {Fault.ENDPOINT}
    assert all(server.root in f.reason and "parrot" in f.reason for f in failures)


@pytest.mark.parametrize(
    ("api", "status"),
    [*((api, 302) for api in APIS), *((CHAT, s) for s in (301, 303, 307, 308))],
    indirect=["api"],
    ids=lambda part: getattr(part, "name", part),
)
def test_no_redirect_is_followed(api, server, status):
    with serving() as elsewhere:
        place = {"location": f"{elsewhere.url}/chat/completions?signature=x"}
        moved = Answer(b"<html>moved</html>", status, place)
        server.always(moved)
        reasons = [api.once(server).reason]
        api.introduce(server, moved)
        with pytest.raises(EndpointError) as caught:
            api.once(server)
        reasons.append(str(caught.value))
        assert (elsewhere.keys, elsewhere.paths) == ([], [])
    for reason in reasons:
        assert f"HTTP {status}" in reason
        assert elsewhere.url in reason
        assert "signature" not in reason


# The start


def test_a_wrong_key_is_found_at_the_start_and_not_shown(api, server):
    api.introduce(server, Answer(error(f"key {KEY} is wrong"), 401))
    with pytest.raises(EndpointError) as caught:
        api.once(server)
    assert KEY not in str(caught.value)
    assert api.key in str(caught.value)
    assert not server.bodies


def test_the_start_survives_a_busy_server(api, server):
    usual, seen = (server.preflight if api is CHAT else server.get), []
    rejected = Answer(error("who?"), 401)

    def busy(asked):
        seen.append(asked)
        answers = [BUSY, DROPPED, rejected, rejected]
        return answers[len(seen) - 1] if len(seen) <= len(answers) else usual(asked)

    api.introduce(server, busy)
    assert isinstance(api.once(server, max_attempts=8), Result)
    assert len(seen) == 5


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(how="stall"), "timeout_s"),
        (Answer(b"<html>"), "base_url"),
        (BUSY, "later"),
        (DROPPED, "running"),
        (REJECTIONS["key"], "OPENAI_API_KEY"),
        (REJECTIONS["right"], "OPENAI_API_KEY"),
        (REJECTIONS["model"], "name"),
        (REJECTIONS["credit"], "credit"),
        (Answer(error("use max_completion_tokens"), 400), "max_tokens_field"),
    ],
)
@of(CHAT)
def test_the_start_says_what_to_do(api, server, answer, words):
    api.introduce(server, answer)
    with pytest.raises(EndpointError, match=words) as caught:
        api.once(server, timeout_s=0.1 if answer.how == "stall" else 60.0)
    assert f"{server.url}, model 'parrot'" in str(caught.value)


def test_an_address_where_nobody_listens_is_named_after_three_attempts(api, attempts):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        quick = {"backoff_s": 0.01, "max_attempts": 50}
        with pytest.raises(EndpointError, match=url):
            api.stage(model="parrot", base_url=url, **quick)
    assert len(attempts) == 3


@pytest.mark.parametrize("status", [404, 500])
@of(CHAT_IMAGES, IMAGES["sglang"])
def test_a_server_that_lists_no_models_is_asked_all_the_same(api, server, status):
    api.introduce(server, Answer(error("cannot list"), status))
    assert isinstance(api.once(server), Result)


# Keys, slots and lengths


def test_the_key_is_that_of_the_named_variable_and_shown_nowhere(api, server, monkeypatch):
    key = "sk-other-0123456789"
    monkeypatch.setenv("OTHER_KEY", f"{key}\n")  # as mounted files end
    with api.asking(server, max_attempts=1, api_key_env="OTHER_KEY") as stage:
        spec = stage.settings.spec("x", "tiny")
        for status in (400, 401, 500):
            server.always(error(f"bad {key}"), status)
            failure = api.one(stage)
            assert key not in repr([failure, stage, stage.settings, spec])
            assert "***" in failure.reason
    assert set(server.keys) == {key}


@of(CHAT)
def test_no_key_is_invented_and_the_account_of_the_environment_is_named(
    api, server, monkeypatch
):
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1\n")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-2")
    api.once(server)
    headers = server.bodies[0].headers
    assert set(server.keys) == {"none"}
    named = [headers[f"openai-{name}"] for name in ("organization", "project")]
    assert named == ["org-1", "proj-2"]
    server.preflight = lambda body: REJECTIONS["key"]
    with pytest.raises(EndpointError, match="OPENAI_API_KEY is not set"):
        api.once(server)


def own_threads():
    return {thread for thread in threading.enumerate() if thread.name == "endpoint"}


@of(CHAT, IMAGES["sglang"])
def test_no_more_requests_are_in_flight_than_allowed(api, server):
    server.script = lambda body: Answer(server.default(body).body, hold_s=0.1, beside=3)
    names, before = [str(i) for i in range(9)], own_threads()
    batches = [[api.ask(name) for name in names[i : i + 3]] for i in (0, 3, 6)]
    with api.asking(server, concurrency=3) as stage, ThreadPoolExecutor(3) as threads:
        outcomes = [o for batch in threads.map(stage, batches) for o in batch]
    assert server.most_in_flight == 3
    assert own_threads() <= before, "it ends with the stage"
    for name, outcome in zip(names, outcomes, strict=True):
        assert name in str(outcome.notes["prompt"])
        assert api is not CHAT or outcome.value.text == name


@of(CHAT)
def test_a_stage_that_is_closed_ends_its_requests_in_flight(api, server):
    asked = threading.Event()

    def stalled(body):
        asked.set()
        return Answer(how="stall")

    server.script = stalled
    with ThreadPoolExecutor(1) as threads:
        with api.asking(server) as stage:
            call = threads.submit(stage, [api.ask("a")])
            assert asked.wait(60)
        with pytest.raises(CancelledError):
            call.result(timeout=60)


def test_a_reply_of_any_length_is_not_read_whole(api, server, monkeypatch):
    for kind in (ServerSettings, EndpointSettings):
        monkeypatch.setattr(kind, "most_reply_bytes", 100_000)
    body = b'{"choices": "' + b"x" * 2_000_000
    packed = gzip.compress(body), {"content-encoding": "gzip"}
    with api.asking(server) as stage:
        for data, headers in ((body, {}), packed):
            for status in (200, 500):
                server.always(data, status, headers=headers)
                failure = api.one(stage)
                assert failure.fault is Fault.ENDPOINT
                assert "longer than" in failure.reason
    assert len(server.bodies) == 4


# Usage and ceilings

TOKENS = {"price_per_million_input": 1.0, "price_per_million_output": 2.0}


def counted(tokens):
    return completion("a", usage={"prompt_tokens": 11, "completion_tokens": tokens})


@pytest.mark.parametrize("count", [-7000, "many", None, pytest.param(10**400, id="huge")])
@of(CHAT)
def test_what_is_no_count_is_unknown_and_ends_what_needs_it(api, server, count):
    server.always(counted(count))
    for ceiling in ({"max_total_tokens": 10**6}, {"max_cost": 9.0, **TOKENS}):
        with api.asking(server, **ceiling) as stage:
            first, second = api.one(stage), api.one(stage, "b")
        assert "output_tokens" not in first.usage
        refused = None if count is None else [f"completion_tokens: {count}"[:40]]
        assert first.notes.get("usage_refused") == refused
        assert second.fault is Fault.BUDGET


@of(CHAT)
def test_a_ceiling_counts_this_worker_and_those_before_it(api, server):
    server.always(counted(100))
    with api.asking(server, max_total_tokens=10_000, **TOKENS) as stage:
        stage.continue_from({"input_tokens": 5000, "output_tokens": 10})
        used = api.one(stage).usage
        stage.continue_from({"input_tokens": 5000})
        assert api.one(stage, "b").fault is Fault.BUDGET
    assert len(server.bodies) == 1
    assert used["cost"] == pytest.approx((11 + 2 * 100) / 1e6)
    with api.asking(server, **TOKENS, max_cost=1.5 * used["cost"]) as stage:
        faults = [getattr(api.one(stage), "fault", None) for _ in range(3)]
    assert faults == [None, None, Fault.BUDGET]


@of(*DRAWING)
def test_a_price_by_the_image_ends_the_stage_too(api, server):
    with api.asking(server, price_per_image=1.0, max_cost=1.5, concurrency=1) as stage:
        outcomes = stage([api.ask(str(i)) for i in range(4)])
    faults = [getattr(o, "fault", None) for o in outcomes]
    assert faults == [None, None, Fault.BUDGET, Fault.BUDGET]
    assert (outcomes[0].usage["cost"], outcomes[0].usage["images"]) == (1.0, 1)


# Images


@of(*DRAWING)
def test_a_broken_image_fails_its_record_and_is_not_paid_for_twice(api, server):
    half = picture("red", (300, 300)).read()[:200]
    for data in (b"not an image", half, b"<svg/>"):
        server.reset()
        broken = Answer(api.holding(data))
        server.script = lambda body, broken=broken: (
            broken if "bad" in str(body) else server.default(body)
        )
        with api.asking(server) as stage:
            one, failure, three = stage([api.ask("x"), api.ask("bad"), api.ask("y")])
        assert isinstance(one, Result)
        assert isinstance(three, Result)
        assert (failure.fault, failure.usage["images"]) == (Fault.ENDPOINT, 1)
        assert len(server.bodies) == 3


@of(CHAT_IMAGES, OMNI, GEMINI, IMAGES["openai"])
def test_an_image_given_by_its_address_is_fetched_from_listed_hosts_alone(api, server):
    blue, usual = picture("blue", (64, 48)), server.get
    server.always(api.holding(f"{server.root}/a.png"))
    server.get = lambda path: Answer(blue.read()) if path == "/a.png" else usual(path)
    failure = api.once(server)
    assert (failure.fault, "/a.png" in server.paths) == (Fault.ENDPOINT, False)
    assert "127.0.0.1" in failure.reason
    value = api.once(server, image_hosts=["127.0.0.1"]).value
    assert blue in (value, *getattr(value, "images", ()))


@of(CHAT, CHAT_IMAGES, GEMINI, RESPONSES)
def test_what_cannot_be_sent_fails_or_is_skipped_alone(api, server):
    broken = Image.of(b"no picture")
    with api.asking(server, max_images=1, control_tokens=["<image>"]) as stage:
        bad, many, good = stage(
            [says("look", broken), says(RED, RED), says("an <image> ", RED, "and <img>")]
        )
    assert bad.fault is Fault.BAD_INPUT
    assert isinstance(many, Skip)
    assert isinstance(good, Result)
    assert good.notes["neutralised"] == ["<image>"]
    assert (good.notes["images"], good.notes["image_sizes"]) == (1, [[12, 8]])
    (body,) = server.bodies
    assert "an < image> " in str(body)
    assert "and <img>" in str(body)
