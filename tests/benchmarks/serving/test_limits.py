"""What a server takes on, whom it serves, and how it stops."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest
from serving_helpers import KEY, Served, served_model, trial_model, until, user
from stages import Painter
from trial import LIGHT

from plait.cluster.local import LocalStages
from plait.generators.base import StageSpec

pytestmark = pytest.mark.contract

CHAT = "/v1/chat/completions"
ONE = replace(LIGHT, batch_size=1)


def ask(served: Served, text: str = "Draw") -> tuple[int, dict[str, str], bytes]:
    return served.request("POST", CHAT, {"messages": [user(text)], "seed": 0})


def code(body: bytes) -> str:
    return str(json.loads(body)["error"]["code"])


class Gate:
    """Holds up what passes it until it is opened."""

    def __init__(self) -> None:
        self._reached, self._opened = threading.Event(), threading.Event()

    def pass_through(self) -> None:
        self._reached.set()
        assert self._opened.wait(60)

    def reached(self) -> bool:
        return self._reached.wait(60)

    def open(self) -> None:
        self._opened.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Holds up every batch of images: no test depends on how long anything takes."""
    gate, paint = Gate(), Painter.__call__

    def held_up(self: Painter, inputs: Any) -> Any:
        gate.pass_through()
        return paint(self, inputs)

    monkeypatch.setattr(Painter, "__call__", held_up)
    yield gate
    gate.open()


def test_a_full_queue_refuses_and_the_official_client_comes_back(gate: Gate) -> None:
    refused = f'plait_requests_total{{path="{CHAT}",status="429"}}'
    with (
        served_model(trial_model(placement=ONE), queue=2) as served,
        ThreadPoolExecutor(3) as threads,
    ):
        waiting: list[Future[Any]] = [threads.submit(ask, served) for _ in range(2)]
        until(lambda: served.metric("plait_open_requests") == 2)
        status, headers, body = ask(served)
        assert (status, code(body)) == (429, "queue_full")
        assert int(headers["retry-after"]) >= 1
        client = openai.OpenAI(base_url=served.url, api_key="none", max_retries=20)
        create = client.chat.completions.create
        asked = threads.submit(create, model="trial", messages=[user("later")])
        until(lambda: served.metric(refused) >= 2)
        gate.open()
        assert "later" in str(asked.result().choices[0].message.content)
        assert [w.result()[0] for w in waiting] == [200, 200]


def test_a_client_that_leaves_is_not_computed(gate: Gate) -> None:
    with (
        served_model(trial_model(placement=ONE)) as served,
        ThreadPoolExecutor(1) as threads,
    ):
        first = threads.submit(ask, served, "first")
        assert gate.reached()
        leaving = http.client.HTTPConnection(urlsplit(served.root).netloc)
        body = json.dumps({"messages": [user("leaving")]})
        leaving.request("POST", CHAT, body, {"content-type": "application/json"})
        until(lambda: served.metric("plait_open_requests") == 2)
        leaving.close()
        until(lambda: served.metric("plait_open_requests") == 1)
        gate.open()
        assert first.result()[0] == 200
        assert served.metric('plait_batch_size_sum{stage="writer"}') == 1
        gone = f'plait_requests_total{{path="{CHAT}",status="499"}}'
        until(lambda: served.metric(gone) == 1)


def test_a_request_that_takes_too_long_is_ended(gate: Gate) -> None:
    with served_model(trial_model(), timeout_s=0.2) as served:
        status, _, body = ask(served)
        assert (status, code(body)) == (504, "timeout")
        assert b"within 0.2 s" in body
        assert served.metric("plait_open_requests") == 0
        gate.open()


def test_a_body_is_refused_before_it_is_read() -> None:
    with served_model(trial_model(), body_bytes=10_000) as served:
        status, _, body = ask(served, "x" * 20_000)
        assert (status, code(body)) == (413, "body_too_large")
        # Nor is one whose length is not stated.
        status, _, body = served.request("POST", CHAT, iter([b"x" * 4096] * 5))
        assert (status, code(body)) == (413, "body_too_large")
        assert ask(served)[0] == 200


def test_only_the_right_key_is_enough_and_probes_need_none() -> None:
    with served_model(trial_model(), KEY) as served:
        for key in (None, "", "wrong", KEY + "1", KEY[:-1], "schlüssel"):
            sent = f"Bearer {key}".strip().encode().decode("latin-1")
            headers = {} if key is None else {"authorization": sent}
            for method, path in (("POST", CHAT), ("GET", "/v1/models")):
                status, _, body = served.request(method, path, **headers)
                assert (status, code(body)) == (401, "invalid_api_key")
                assert KEY.encode() not in body
        client = served.client(KEY)
        reply = client.chat.completions.create(model="trial", messages=[user("Draw")])
        assert reply.choices[0].message.content
        assert served.request("HEAD", "/metrics")[0] == 200, "AIPerf asks first"
        for path in ("/health", "/metrics", "/version", "/openapi.json"):
            status, text = served.get(path)
            assert (status, KEY in text) == (200, False)


def test_a_server_that_still_loads_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, gate = LocalStages.stage, Gate()

    def slowly(self: LocalStages, spec: StageSpec) -> Any:
        gate.pass_through()
        return stage(self, spec)

    monkeypatch.setattr(LocalStages, "stage", slowly)
    with served_model(trial_model(), ready=False) as served:
        status, body = served.get("/health")
        assert (status, json.loads(body)["status"]) == (503, "loading")
        status, headers, answer = ask(served)
        assert (status, code(answer)) == (503, "not_ready")
        assert "retry-after" in headers
        assert served.get("/v1/models")[0] == 200
        gate.open()
        served.wait()
        assert served.get("/health")[0] == 200
        assert ask(served)[0] == 200


def test_a_device_that_breaks_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    with served_model(trial_model()) as served:

        def broken(*_: Any) -> Any:
            raise RuntimeError("CUDA error: device-side assert triggered")

        monkeypatch.setattr("stages.Writer._draft", broken)
        assert ask(served)[0] == 500
        status, body = served.get("/health")
        assert status == 503
        assert "device-side assert" in json.loads(body)["reason"]
        status, _, answer = ask(served)
        assert (status, code(answer)) == (503, "not_ready")


def test_stopping_answers_everyone_who_waits(gate: Gate) -> None:
    with (
        served_model(trial_model(placement=ONE, pictures=1), grace_s=30.0) as served,
        ThreadPoolExecutor(3) as threads,
    ):
        waiting = [threads.submit(ask, served) for _ in range(3)]
        until(lambda: served.metric("plait_open_requests") == 3)
        assert gate.reached()
        served.engine.stop()
        until(lambda: served.metric("plait_open_requests") == 1)
        gate.open()
        replies = [w.result() for w in waiting]
    assert sorted(status for status, _, _ in replies) == [200, 503, 503]
    assert {code(body) for status, _, body in replies if status == 503} == {"stopping"}


def test_a_request_in_progress_ends_with_the_grace(
    gate: Gate, capfd: pytest.CaptureFixture[str]
) -> None:
    model = trial_model(placement=ONE, pictures=1)
    with ThreadPoolExecutor(1) as threads:
        with served_model(model, grace_s=0.3) as served:
            waiting = threads.submit(ask, served)
            assert gate.reached()
            served.engine.stop()
        status, _, body = waiting.result()
    assert (status, code(body)) == (503, "stopping")
    assert "Traceback" not in "".join(capfd.readouterr())


def test_bodies_that_are_still_sent_take_room_and_do_not_hold_up_the_end() -> None:
    """Else clients that send slowly could fill the memory, whatever the queue."""

    def half_sent() -> http.client.HTTPConnection:
        slow = http.client.HTTPConnection(urlsplit(served.root).netloc)
        slow.putrequest("POST", CHAT)
        slow.putheader("content-type", "application/json")
        slow.putheader("content-length", "1000")
        slow.endheaders(b"{")
        until(lambda: served.metric("plait_open_requests") == 1)
        return slow

    with served_model(trial_model(), queue=1, grace_s=0.2) as served:
        slow = half_sent()
        status, _, body = ask(served)
        assert (status, code(body)) == (429, "queue_full")
        slow.close()
        until(lambda: served.metric("plait_open_requests") == 0)
        assert ask(served)[0] == 200
        slow = half_sent()
    reply = slow.getresponse()
    assert (reply.status, code(reply.read())) == (503, "stopping")


def test_a_defect_is_an_error_object_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(*_: Any) -> Any:
        raise ZeroDivisionError("secret of the machine")

    monkeypatch.setattr("plait.benchmarks.serving.app.ChatReply", defect)
    with served_model(trial_model()) as served:
        status, _, body = ask(served)
        assert (status, code(body)) == (500, "internal_error")
        assert b"secret" not in body
