"""Scores over HTTP: outcomes, batches over clients, priorities, and what is refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from picture_helpers import NOISE, png_header
from PIL import Image as Pillow
from scoring_stages import Letters, One
from serving_helpers import (
    KEY,
    Served,
    content_parts,
    data_url,
    meeting,
    scorers_model,
    served_model,
    trial_model,
    until,
    user,
)

from plait.benchmarks.local import LocalScorer, question
from plait.benchmarks.serving.chats import decode_image
from plait.benchmarks.serving.schemas import MOST_ITEMS
from plait.benchmarks.serving.scoring import digest_of
from plait.cluster.local import HIGHEST_PRIORITY
from plait.generators.document import Image
from plait.generators.images import encode
from plait.scorers.base import with_stage
from plait.scorers.preferences import AestheticScorer

pytestmark = pytest.mark.contract

LETTERS, ONE = "scoring_stages:Letters", "scoring_stages:One"
JUDGE = "judge:scoring_stages:ShyJudge"
PICTURE = encode(Pillow.fromarray(NOISE))
FIELDS = {"scorer", "digest", "outcome", "value", "reason", "fault", "parts"}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with served_model(scorers_model(LETTERS, JUDGE)) as server:
        yield server


def score(served: Served, answer: Any, **fields: Any) -> dict[str, Any]:
    body = {"scorer": LETTERS, "query": "Draw", "answer": answer, **fields}
    status, reply = served.post("/score", body)
    assert status == 200, reply
    assert set(reply) == FIELDS
    return reply


def score_all(served: Served, *items: dict[str, Any], **fields: Any) -> list[Any]:
    status, reply = served.post("/score", {"items": items, **fields})
    assert status == 200, reply
    assert set(reply) == {"results"}
    results: list[Any] = reply["results"]
    return results


def item(answer: Any, **fields: Any) -> dict[str, Any]:
    return {"query": "Draw", "answer": answer, **fields}


def refused(served: Served, body: Any, **headers: str) -> tuple[int, str, str]:
    status, reply = served.post("/score", body, **headers)
    return status, reply["error"]["code"], reply["error"]["message"]


def test_a_score_is_that_of_the_scorer_in_process(served: Served) -> None:
    reply = score(served, content_parts("A cat.", PICTURE))
    scorer = LocalScorer.named(LETTERS, weights="tiny")
    verdict = scorer(question("Draw"), ["A cat.", PICTURE.read()])
    assert reply["value"] == verdict.value == 6.1
    assert reply["parts"] == verdict.parts == {"letters": 6}
    assert (reply["outcome"], reply["reason"], reply["fault"]) == ("scored", "", "")
    assert reply["digest"] == scorer.scorer.stage.digest
    assert reply["scorer"] == LETTERS


@pytest.mark.parametrize(
    ("answer", "outcome", "reason", "fault", "parts"),
    [
        ("!refuse", "failed", "will not score this", "refused", {}),
        ("!raise", "failed", "cannot score this", "error", {}),
        ("!unscored", "unscored", "nothing to score", "", {}),
        ("!unread", "unscored", "half a verdict", "", {"style": 3}),
        ("!else", "not_applicable", "of other queries", "", {}),
        ("!beyond", "failed", "beyond the declared scale 0-100", "error", {}),
        ("!nan", "unscored", "not a finite number", "", {}),
    ],
)
def test_what_is_not_scored_has_a_reason_and_no_value(
    served: Served, answer: str, outcome: str, reason: str, fault: str, parts: Any
) -> None:
    reply = score(served, answer)
    assert (reply["outcome"], reply["value"]) == (outcome, None)
    assert reason in reply["reason"]
    assert (reply["fault"], reply["parts"]) == (fault, parts)


def test_parts_that_json_has_no_form_of_do_not_break_the_reply(served: Served) -> None:
    assert score(served, "!odd")["parts"] == {"ratio": None, "rows": [1, 2]}


TRUNCATED = Image.of(PICTURE.read()[:200])


def test_items_of_a_batch_are_scored_in_order_and_fail_alone(served: Served) -> None:
    broken = content_parts("A cat.", TRUNCATED)
    answers = ["a", "!raise", "abc", broken, "!unscored", "ab"]
    results = score_all(served, *(item(a) for a in answers), scorer=LETTERS)
    assert [r["value"] for r in results] == [1, None, 3, None, None, 2]
    assert [r["outcome"] for r in results] == [
        *("scored", "failed", "scored", "failed", "unscored", "scored"),
    ]
    assert results[3]["fault"] == "bad input"
    assert results[3]["reason"].startswith("items[3].answer[1]: ")
    assert all(set(r) == FIELDS for r in results)


def test_items_may_name_scorers_of_their_own(served: Served) -> None:
    results = score_all(
        served,
        item("a"),
        item("a", scorer=JUDGE, category="SA"),
        item("a", scorer=JUDGE),
        scorer=LETTERS,
        seed=3,
    )
    assert [r["scorer"] for r in results] == [LETTERS, JUDGE, JUDGE]
    assert [r["outcome"] for r in results] == ["scored", "scored", "not_applicable"]
    assert "not 'query'" in results[2]["reason"], "plait's rubrics are of categories"
    assert results[1]["parts"]["attempts"] == 2
    assert results[1]["parts"]["criteria"] is not None


def test_a_judge_walks_through_its_rounds_in_batches(served: Served) -> None:
    stage = '{stage="ShyJudge"}'
    counts, records = f"plait_batch_size_count{stage}", f"plait_batch_size_sum{stage}"
    before = served.metric(counts), served.metric(records)
    items = [item(f"a{i}", category="SA", id=f"SA-{i}") for i in range(7)]
    items.append(item("a !mute", category="SA"))
    with meeting(8):
        results = score_all(served, *items, scorer=JUDGE, seed=1)
    batches = served.metric(counts) - before[0], served.metric(records) - before[1]
    assert batches == (2, 16), "eight walks of two rounds"
    local = LocalScorer.named(JUDGE, weights="tiny", seed=1)
    for number, result in enumerate(results[:-1]):
        query = replace(question("Draw", id=f"SA-{number}"), category="SA")
        assert result["value"] == local(query, [f"a{number}"]).value
    assert len({r["value"] for r in results[:-1]}) > 1, "seeds follow from the ids"
    assert (results[-1]["outcome"], results[-1]["value"]) == ("unscored", None)


def test_the_seed_is_the_judges_own(served: Served) -> None:
    asked = {"scorer": JUDGE, "category": "SA"}
    values = [score(served, "a", seed=seed, **asked)["value"] for seed in range(5)]
    assert len({*values}) > 1
    assert values == [score(served, "a", seed=s, **asked)["value"] for s in range(5)]
    assert score(served, "a", **asked)["value"] == values[0], "a config's seed is 0"


def test_a_query_may_be_a_conversation_with_a_truth_and_criteria() -> None:
    lengths = "users_own:Lengths"
    messages = [user("Draw", PICTURE), {"role": "assistant", "content": "So?"}, user("Yes")]
    with served_model(scorers_model(lengths)) as server:
        body = {"messages": messages, "answer": "a", "criteria": "abc", "reference": "four"}
        status, reply = server.post("/score", body)
        assert (status, reply["value"]) == (200, 3004.0)
        body["messages"] = messages[:2]
        status, reply = server.post("/score", body)
        assert (status, reply["error"]["param"]) == (400, "messages")


def test_requests_of_several_clients_join_a_batch(served: Served) -> None:
    count = 'plait_batch_size_count{stage="Letters"}'
    before = served.metric(count)
    with meeting(8), ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(lambda n: score(served, "a" * n), range(1, 9)))
    assert [r["value"] for r in replies] == [*range(1, 9)]
    assert served.metric(count) - before == 2, "two batches of four"


class Held:
    """Holds up every batch until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.opened.wait(60)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    held = Held()
    monkeypatch.setattr(Letters, "before", held)
    monkeypatch.setattr(One, "order", [])
    yield held
    held.opened.set()


def test_what_has_a_higher_priority_is_computed_first(held: Held) -> None:
    asked = {"first": 0, "late": -1, "usual": 0, "again": 0, "soon": HIGHEST_PRIORITY}
    with served_model(scorers_model(ONE)) as server, ThreadPoolExecutor(5) as threads:
        waiting = []
        for number, (answer, priority) in enumerate(asked.items(), 1):
            fields = {"scorer": ONE, "priority": priority}
            waiting.append(threads.submit(score, server, answer, **fields))
            assert held.reached.wait(60)
            gauge = f'plait_waiting_scores{{scorer="{ONE}"}}'
            until(lambda gauge=gauge, number=number: server.metric(gauge) == number)
            until(lambda number=number: _walks(server) == number)
        held.opened.set()
        assert all(w.result()["outcome"] == "scored" for w in waiting)
    assert One.order == ["first", "soon", "usual", "again", "late"]


def _walks(server: Served) -> int:
    return len(server.engine._stages.engine._walks)


def test_a_full_queue_and_a_long_wait_are_refused(held: Held) -> None:
    limits = {"queue": 1, "timeout_s": 0.5, "body_bytes": 10_000}
    with (
        served_model(scorers_model(ONE), **limits) as server,
        ThreadPoolExecutor(1) as threads,
    ):
        waiting = threads.submit(refused, server, {"items": [item("a"), item("b")]})
        assert held.reached.wait(60)
        assert refused(server, item("c"))[:2] == (429, "queue_full")
        assert waiting.result()[:2] == (504, "timeout")
        assert refused(server, item("x" * 20_000))[:2] == (413, "body_too_large")
        until(lambda: _walks(server) == 0)
        held.opened.set()
        assert score(server, "d", scorer=ONE)["value"] == 1
    assert "c" not in One.order
    assert "b" not in One.order, "what nobody waits for is not computed"


def test_a_server_that_stops_says_nothing_about_the_items(held: Held) -> None:
    with (
        served_model(scorers_model(ONE), grace_s=30.0) as server,
        ThreadPoolExecutor(1) as threads,
    ):
        waiting = threads.submit(refused, server, {"items": [item("a"), item("b")]})
        assert held.reached.wait(60)
        until(lambda: _walks(server) == 2)
        server.engine.stop()
        held.opened.set()
        assert waiting.result()[:2] == (503, "stopping")


def test_the_key_is_needed_for_scores_and_for_the_list() -> None:
    with served_model(scorers_model(LETTERS), KEY) as server:
        for method, path in (("POST", "/score"), ("GET", "/scorers")):
            status, _, body = server.request(method, path, item("a"))
            assert (status, json.loads(body)["error"]["code"]) == (401, "invalid_api_key")
        key = {"authorization": f"Bearer {KEY}"}
        assert server.post("/score", item("a"), **key)[0] == 200
        assert server.get("/health")[0] == 200


BOMB = Image.of(png_header(60_000, 60_000))
IMAGE = {"type": "image_url", "image_url": {"url": "http://127.0.0.1/secret.png"}}


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        (b"{", "invalid_json", "JSON"),
        ([], "invalid_value", "dictionary"),
        ({}, "missing", "answer: "),
        ({"answer": "a"}, "invalid_value", "either query or messages"),
        (item("a", messages=[user("b")]), "invalid_value", "either query or messages"),
        (item([]), "invalid_value", "answer"),
        (item(7), "invalid_value", "answer"),
        (item("\ud800"), "invalid_value", "answer"),
        (item("a", seed=-1), "invalid_value", "seed: |got -1"),
        (item("a", priority=1001), "invalid_value", "priority: |1000; got 1001"),
        (item("a", priority=0.5), "invalid_value", "got 0.5"),
        (item("a", sede=1), "invalid_value", "sede: this field is not supported"),
        (item("a", metadata={"a": 1}), "invalid_value", "metadata.a"),
        (item([{"type": "audio"}]), "invalid_value", "answer"),
        (item({"image": "x"}), "invalid_value", "answer: Input should be a valid string"),
        (item([IMAGE], scorer=LETTERS), "invalid_image", "answer[0]: |nothing is fetched"),
        (item(content_parts(BOMB), scorer=LETTERS), "invalid_image", "answer[0]: "),
        (item(content_parts(TRUNCATED), scorer=LETTERS), "invalid_image", "answer[0]: "),
        ({"items": []}, "invalid_value", "items: "),
        ({"items": [item("a")] * (MOST_ITEMS + 1)}, "invalid_value", "items: |1024"),
        ({"items": [item("a"), {"answer": "a"}]}, "invalid_value", "items.1"),
        ({"items": [item("a", priority=1)]}, "invalid_value", "items.0.priority"),
        (item("a") | {"items": []}, "invalid_value", "query: this field"),
        (item("a", scorer=None), "missing", f"{LETTERS}, {JUDGE}"),
    ],
)
def test_a_wrong_request_is_told_the_value_and_the_rule(
    served: Served, body: Any, code: str, reason: str
) -> None:
    told = refused(served, body)
    assert told[:2] == (400, code), told
    assert all(part in told[2] for part in reason.split("|")), told
    assert len(told[2]) < 1000, "long values are not repeated"


@pytest.mark.parametrize("form", ["one", "batch"])
def test_an_unknown_scorer_is_named_with_the_valid_ones(served: Served, form: str) -> None:
    one = item("a", scorer="scoring_stages:Leters")
    told = refused(served, one if form == "one" else {"items": [one]})
    assert told[:2] == (404, "scorer_not_found")
    assert f"did you mean {LETTERS!r}" in told[2]
    assert JUDGE in told[2]


def test_scorers_alone_answer_no_chats(served: Served) -> None:
    status, reply = served.post("/v1/chat/completions", {"messages": [user("a")]})
    assert (status, reply["error"]["code"]) == (404, "model_not_found")
    assert "/score" in reply["error"]["message"]
    assert json.loads(served.get("/v1/models")[1])["data"] == []


def test_scorers_stand_beside_a_model_and_may_be_left_out() -> None:
    scorers = scorers_model(LETTERS).scorers
    with served_model(replace(trial_model(), scorers=scorers)) as server:
        body = {"messages": [user("Draw")], "seed": 0}
        message = server.post("/v1/chat/completions", body)[1]["choices"][0]["message"]
        answer = content_parts(message["content"])
        images = [part["image_url"] for part in message["images"]]
        answer += [{"type": "image_url", "image_url": image} for image in images]
        reply = score(server, answer)
        assert reply["value"] == len(message["content"]) + 0.2
        assert server.post("/score", item("ab"))[1]["value"] == 2
    with served_model(trial_model()) as server:
        assert refused(server, item("a"))[:2] == (404, "scorer_not_found")


def test_a_scorer_is_listed_with_what_names_its_records(served: Served) -> None:
    listed = json.loads(served.get("/scorers")[1])["data"]
    letters, judge = listed
    spec = served.engine.model.scorers[LETTERS].stage
    assert letters == {
        "name": LETTERS,
        "scale": "0-100",
        "direction": "higher",
        "unit": "",
        "licence": "",
        "manner": "",
        "images_only": False,
        "digest": spec.digest,
        "stages": {spec.name: spec.digest},
    }
    assert "corrected mode" in judge["manner"]
    assert json.loads(served.get("/health")[1])["scorers"] == [LETTERS, JUDGE]
    about = json.loads(served.get("/version")[1])
    assert about["scorers"] == {one["name"]: one["digest"] for one in listed}


def test_the_digest_of_a_scorer_with_several_stages_changes_with_each() -> None:
    scorer = scorers_model("aesthetic").scorers["aesthetic"]
    assert len(scorer.stages) == 2
    assert isinstance(scorer, AestheticScorer)
    head = replace(scorer.head, version=scorer.head.version + 1)
    others = [replace(scorer, head=head), with_stage(scorer, lambda _: head)]
    assert len({*map(digest_of, (scorer, *others))}) == 3


def test_the_metrics_count_items_seconds_and_outcomes_by_scorer() -> None:
    with served_model(scorers_model(LETTERS)) as server:
        answers = ("a", "b", "!unscored", "!refuse")
        score_all(server, *(item(answer) for answer in answers))
        of = f'scorer="{LETTERS}"'
        for outcome, number in (("scored", 2), ("unscored", 1), ("failed", 1)):
            line = f'plait_scores_total{{outcome="{outcome}",{of}}}'
            assert server.metric(line) == number
        assert server.metric(f"plait_score_seconds_count{{{of}}}") == 4
        assert server.metric(f"plait_waiting_scores{{{of}}}") == 0
        assert server.metric('plait_batch_size_sum{stage="Letters"}') == 4
        assert server.metric('plait_requests_total{path="/score",status="200"}') == 1


def test_a_data_url_keeps_the_bytes_of_the_image() -> None:
    """So that a job has the key that it has in a run."""
    assert decode_image(data_url(PICTURE), "answer") == PICTURE
