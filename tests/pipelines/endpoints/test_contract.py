"""What holds behind every API: faults, rejections, ceilings, secrets."""

import contextlib
import gzip
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from drawing_servers import RED, as_json, picture
from endpoint_apis import APIS, CHAT, CHAT_IMAGES, GEMINI, IMAGES, RESPONSES
from endpoint_helpers import KEY, Answer, error, running, says, serving

from generators.base import Failure, Fault, Result, Skip
from generators.document import Image
from pipelines.chat.settings import EndpointSettings, ServerSettings
from pipelines.endpoints.client import BoundedClient
from pipelines.endpoints.errors import EndpointError

pytest.importorskip("google.genai")

NOT_IMAGES = pytest.mark.parametrize("api", APIS[:-1], ids=lambda a: a.name, indirect=True)
DRAWING = pytest.mark.parametrize("api", APIS[1:], ids=lambda a: a.name, indirect=True)
ELSEWHERE = Answer(b"", 302, {"location": "http://127.0.0.1:9/login?signature=x"})


@pytest.fixture(params=APIS, ids=lambda api: api.name)
def api(request):
    return request.param


@pytest.fixture
def server(api):
    with running(api.server()) as server:
        yield server


def given(server, answer):
    server.script = lambda body: answer


def passing():
    return [
        Answer(error("slow down"), 429, {"retry-after": "0"}),
        *(Answer(error("a while"), status) for status in (408, 409, 500, 503)),
        Answer(how="drop"),
        Answer(b'{"candid', headers={"content-type": "application/json"}),
        Answer(b"<html>bad gateway</html>", headers={"content-type": "text/html"}),
        Answer({"error": {"message": "provider down", "code": 502}}),
        Answer({"choices": "none"}),
    ]


def test_passing_faults_are_tried_again(api, server):
    faults, good = passing(), server.script
    server.script = lambda body: faults.pop(0) if faults else good(body)
    result = api.once(server, max_attempts=11)
    assert isinstance(result, Result), result
    assert result.notes["attempts"] == len(server.bodies) == 11


@pytest.mark.parametrize("fault", [0, 4, 5, 7])
def test_faults_that_last_fail_their_record_alone(api, server, fault):
    good = server.script
    given(server, passing()[fault])
    with api.asking(server) as stage:
        failure = api.one(stage)
        server.script = good
        assert isinstance(api.one(stage, "b"), Result)
    assert (failure.fault, failure.fault.final) == (Fault.ENDPOINT, False)
    assert failure.notes["prompt"]
    assert len(server.bodies) == 4


@pytest.mark.parametrize(
    ("api", "how"),
    [(CHAT, "stall"), (CHAT, "drip"), *((a, "headers") for a in APIS)],
    indirect=["api"],
    ids=lambda part: getattr(part, "name", part),
)
def test_a_server_that_stops_in_the_middle_is_given_up(api, server, how):
    given(server, Answer(b" " * 4000, how=how))
    failure = api.once(server, timeout_s=0.6, max_attempts=2)
    assert failure.fault is Fault.ENDPOINT
    assert "no complete reply in time" in failure.reason
    assert len(server.bodies) == 2


def test_a_request_that_is_rejected_is_final_for_its_record(api, server):
    good = server.script
    with api.asking(server) as stage:
        assert isinstance(api.one(stage), Result)
        for status in (400, 413, 415, 422):
            given(server, Answer(error("too large"), status))
            failure = api.one(stage, "b")
            assert (failure.fault, failure.reason) == (
                Fault.BAD_INPUT,
                f"HTTP {status}: too large",
            )
        server.script = good
        assert isinstance(api.one(stage, "c"), Result)
    assert len(server.bodies) == 6


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("rejected", "moderation_blocked"),
        ("rejected", "content_policy_violation"),
        ("rejected", "content_filter"),
        # As LiteLLM's proxy passes the first on.
        ("BadRequestError - rejected by the safety system.", "400"),
    ],
)
def test_a_refusal_is_final_and_concerns_its_record_alone(api, server, text, code):
    if api is GEMINI and code != "400":
        pytest.skip("Gemini has codes of its own")
    good = server.script
    given(server, Answer(error(text, code), 400))
    with api.asking(server) as stage:
        assert api.one(stage).fault is Fault.REFUSED
        server.script = good
        assert isinstance(api.one(stage, "b"), Result)


HALF = picture(size=(300, 300)).data[:200]
REJECTIONS = {
    **{str(s): Answer(error("who are you?"), s) for s in (401, 403, 404)},
    "no credit": Answer(error("no credit", "insufficient_quota"), 429),
    "elsewhere": ELSEWHERE,
}


@pytest.mark.parametrize("name", REJECTIONS)
def test_after_three_rejections_in_a_row_nothing_is_sent(api, server, name):
    if api is GEMINI and name == "no credit":
        pytest.skip("Gemini has codes of its own")
    good = server.script
    with api.asking(server) as stage:
        assert isinstance(api.one(stage), Result)
        server.bodies.clear()
        answers = [REJECTIONS[name]] * 6
        server.script = lambda body: answers.pop() if answers else good(body)
        # Two requests of three attempts, then an answer: the count begins anew.
        faults = [api.one(stage).fault for _ in range(2)]
        assert isinstance(api.one(stage), Result)
        given(server, REJECTIONS[name])
        failures = [api.one(stage) for _ in range(5)]
    assert len(server.bodies) == 7 + 9
    assert {*faults, *(f.fault for f in failures)} == {Fault.ENDPOINT}
    assert all(server.url.removesuffix("/v1") in f.reason for f in failures)
    assert all(repr(api.model) in f.reason for f in failures)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("at_the_start", [True, False])
def test_no_redirect_is_followed(api, server, status, at_the_start):
    with serving() as elsewhere:
        place = {"location": f"{elsewhere.url}/chat/completions?signature=x"}
        moved = Answer(b"<html>moved</html>", status, place)
        given(server, moved)
        if at_the_start:
            api.introduce(server, moved)
            with pytest.raises(EndpointError) as caught:
                api.once(server)
            reason = str(caught.value)
        else:
            reason = api.once(server).reason
        assert (elsewhere.keys, elsewhere.preflights) == ([], 0)
    assert f"HTTP {status}" in reason
    assert elsewhere.url in reason
    assert "signature" not in reason


@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_key_is_found_at_the_start_and_not_shown(api, server, status):
    api.introduce(server, Answer(error(f"key {KEY} is wrong"), status))
    with pytest.raises(EndpointError) as caught:
        api.once(server)
    assert KEY not in str(caught.value)
    assert "is wrong" in str(caught.value)
    assert api.key in str(caught.value)
    assert not server.bodies


def test_the_start_survives_a_busy_server(api, server):
    good, seen = {}, []

    def busy(asked):
        seen.append(asked)
        answers = [
            Answer(error("slow down"), 429, {"retry-after": "0"}),
            Answer(how="drop"),
            Answer(error("who?"), 401),
            Answer(error("who?"), 401),
        ]
        return answers[len(seen) - 1] if len(seen) <= len(answers) else good["do"](asked)

    if api is CHAT:
        good["do"], server.preflight = server.preflight, busy
    elif api is IMAGES:
        listing = server.pages["/v1/models"]
        good["do"] = lambda path: listing
        server.pages = type("Pages", (), {"get": lambda self, path, _: busy(path)})()
    else:
        good["do"], server.get = server.get, busy
    assert isinstance(api.once(server, max_attempts=8), Result)
    assert len(seen) == 5


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(how="stall"), "does not answer"),
        (Answer(b"<html>"), "Does base_url"),
        (Answer(error("busy"), 503, {"retry-after": "0"}), "Try again later"),
        (Answer(how="drop"), "Is the server running"),
    ],
)
@pytest.mark.parametrize("api", [CHAT, IMAGES], ids=lambda a: a.name, indirect=True)
def test_the_start_says_what_to_do(api, server, answer, words):
    api.introduce(server, answer)
    with pytest.raises(EndpointError, match=words) as caught:
        api.once(server, timeout_s=0.6)
    assert server.url in str(caught.value)


def test_an_address_where_nobody_listens_is_named_after_three_attempts(api, monkeypatch):
    attempts, send = [], BoundedClient.send

    async def counting(self, request, **options):
        attempts.append(request)
        return await send(self, request, **options)

    monkeypatch.setattr(BoundedClient, "send", counting)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        quick = {"backoff_s": 0.01, "max_attempts": 50}
        with pytest.raises(EndpointError, match="Is the server running") as caught:
            api.stage(model=api.model, base_url=url, **quick)
    assert url in str(caught.value)
    assert len(attempts) == 3


def test_a_server_that_goes_away_may_come_back(api):
    with contextlib.ExitStack() as stack:
        with running(api.server()) as server:
            good = server.script
            server.script = lambda body: Answer(
                good(body).body, headers={"connection": "close"}
            )
            stage = stack.enter_context(api.asking(server, max_attempts=5))
            assert isinstance(api.one(stage), Result)
        failure = api.one(stage, "b")
    assert (failure.fault, failure.fault.final) == (Fault.ENDPOINT, False)
    assert failure.reason.startswith("given up: no connection")


@pytest.mark.parametrize(
    "answer", [Answer(error(f"bad {KEY}"), s) for s in (400, 401, 500)]
)
def test_a_key_that_a_server_repeats_is_shown_nowhere(api, server, answer):
    given(server, answer)
    with api.asking(server, max_attempts=1) as stage:
        failure = api.one(stage)
        spec = stage.settings.spec("x", "pretrained")
        shown = as_json(failure) + repr(stage) + repr(stage.settings) + repr(spec)
    assert KEY not in shown
    assert "***" in failure.reason


def test_no_more_requests_are_in_flight_than_allowed(api, server):
    good = server.script
    server.script = lambda body: Answer(good(body).body, hold_s=0.1)
    with api.asking(server, concurrency=3) as stage, ThreadPoolExecutor(3) as threads:
        batches = [[api.ask(f"{i}.{j}") for j in range(3)] for i in range(3)]
        outcomes = [o for batch in threads.map(stage, batches) for o in batch]
    assert all(isinstance(o, Result) for o in outcomes)
    assert server.most_in_flight == 3


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("status", [200, 500])
def test_a_reply_of_any_length_is_not_read_whole(api, server, monkeypatch, packed, status):
    for kind in (ServerSettings, EndpointSettings):
        monkeypatch.setattr(kind, "most_reply_bytes", 100_000)
    body = b'{"choices": "' + b"x" * 5_000_000
    headers = {"content-encoding": "gzip"} if packed else {}
    given(server, Answer(gzip.compress(body) if packed else body, status, headers))
    failure = api.once(server)
    assert "longer than" in failure.reason
    assert failure.fault is Fault.ENDPOINT
    assert len(server.bodies) == 1


TOKENS = {"price_per_million_input": 1.0, "price_per_million_output": 2.0}


def test_a_negative_count_is_no_count_and_ends_what_needs_it(api, server):
    reply, name = api.counted(-7000)
    given(server, Answer(reply))
    for ceiling in ({"max_total_tokens": 10**6}, {"max_cost": 9.0, **TOKENS}):
        with api.asking(server, **ceiling) as stage:
            first, second = api.one(stage), api.one(stage, "b")
        assert "output_tokens" not in first.usage
        assert first.usage["input_tokens"] > 0
        assert first.notes["usage_refused"] == [f"{name}: -7000"]
        assert second.fault is Fault.BUDGET


def test_a_server_that_counts_no_tokens_cannot_be_given_a_ceiling_on_them(api, server):
    reply, _ = api.counted(1)
    bare = {n: v for n, v in reply.items() if n not in ("usage", "usageMetadata")}
    given(server, Answer(bare))
    with api.asking(server, max_total_tokens=10**6) as stage:
        assert isinstance(api.one(stage), Result)
        assert api.one(stage, "b").fault is Fault.BUDGET


def test_a_ceiling_counts_this_worker_and_those_before_it(api, server):
    reply, _ = api.counted(100)
    given(server, Answer(reply))
    with api.asking(server, max_total_tokens=10_000, **TOKENS) as stage:
        stage.continue_from({"input_tokens": 5000, "output_tokens": 10})
        used = api.one(stage).usage
        stage.continue_from({"input_tokens": 5000})
        assert api.one(stage, "b").fault is Fault.BUDGET
    assert len(server.bodies) == 1
    cost = (used["input_tokens"] + 2 * used["output_tokens"]) / 1e6
    assert used["cost"] == pytest.approx(cost)
    with api.asking(server, **TOKENS, max_cost=1.5 * cost) as stage:
        faults = [getattr(api.one(stage), "fault", None) for _ in range(3)]
    assert faults == [None, None, Fault.BUDGET]


@DRAWING
def test_a_price_by_the_image_ends_the_stage_too(api, server):
    with api.asking(server, price_per_image=1.0, max_cost=1.5, concurrency=1) as stage:
        outcomes = stage([api.ask(str(i)) for i in range(4)])
    faults = [getattr(o, "fault", None) for o in outcomes]
    assert faults == [None, None, Fault.BUDGET, Fault.BUDGET]
    assert outcomes[0].usage["cost"] == 1.0
    with pytest.raises(ValueError, match="max_cost needs price_per_image"):
        api.stage(model=api.model, max_cost=1.0)


def test_an_empty_reply_is_a_failure_and_paid_for(api, server):
    given(server, Answer(api.empty))
    failure = api.once(server)
    assert isinstance(failure, Failure)
    assert not failure.fault.final
    assert failure.usage
    assert len(server.bodies) == 1


@DRAWING
@pytest.mark.parametrize(
    "data", [b"not an image", HALF, b"<svg/>"], ids=["bytes", "half", "svg"]
)
def test_a_broken_image_fails_its_record_and_is_not_paid_for_twice(api, server, data):
    good = server.script
    server.script = lambda body: (
        Answer(api.broken(data)) if "bad" in str(body) else good(body)
    )
    with api.asking(server) as stage:
        one, failure, three = stage([api.ask("x"), api.ask("bad"), api.ask("y")])
    assert isinstance(one, Result)
    assert isinstance(three, Result)
    assert isinstance(failure, Failure)
    assert not failure.fault.final
    assert failure.usage["images"] == 1
    assert len(server.bodies) == 3


@NOT_IMAGES
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


def test_close_ends_the_thread(api, server):
    before = set(threading.enumerate())
    with api.asking(server):
        (own,) = (t for t in set(threading.enumerate()) - before if t.name == "endpoint")
    assert not own.is_alive()


def test_the_key_comes_from_the_named_variable(api, server, monkeypatch):
    monkeypatch.setenv("OTHER_KEY", "sk-other")
    api.once(server, api_key_env="OTHER_KEY")
    sent = server.keys or [
        h.get("x-goog-api-key", h.get("authorization")) for h in server.all_headers
    ]
    assert sent[-1].removeprefix("Bearer ") == "sk-other"


@pytest.mark.parametrize(
    "api", [CHAT_IMAGES, RESPONSES, IMAGES], ids=lambda a: a.name, indirect=True
)
@pytest.mark.parametrize("status", [404, 500])
def test_a_server_that_lists_no_models_is_asked_all_the_same(api, server, status):
    api.introduce(server, Answer(error("cannot list"), status))
    assert isinstance(api.once(server), Result)
