"""Requests through batch APIs: handed in by one command, collected by a later one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import batch_providers
import pytest
from batch_providers import GeminiProvider, OpenAiProvider
from endpoint_apis import GEMINI
from endpoint_helpers import KEY, MODEL, QUICK, Answer, Sent, Server, error, serving
from trial import Witness, as_asked, outcomes, run, sample, system_of_stages

from plait.cluster.plan import Plan
from plait.cluster.run import RunResult
from plait.cluster.store import Store
from plait.cluster.usage import Spending, usage_of
from plait.generators.base import Failure, Fault, Job, Result, StageSpec, Walk
from plait.generators.batches import BATCH_PRICE, handed_batches, most_usage
from plait.generators.document import (
    Document,
    Query,
    Request,
    Score,
    Text,
    Turn,
)
from plait.generators.errors import UsageError
from plait.pipelines.chat.settings import EndpointSettings
from plait.pipelines.endpoints.batch_apis import GeminiBatches
from plait.pipelines.endpoints.client import EndpointClient
from plait.pipelines.endpoints.settings import GeminiSettings
from plait.pipelines.servers.settings import ServerTable
from plait.pipelines.servers.start import with_server
from plait.scorers.base import Scorer

pytestmark = [pytest.mark.contract, pytest.mark.usefixtures("worker_threads")]

PRICES = {"price_per_million_input": 1000.0, "price_per_million_output": 2000.0}
WAITING = 128 + signal.SIGTERM
HELPERS = Path(batch_providers.__file__).parent


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    with serving() as running:
        yield running


@pytest.fixture
def provider(server: Server) -> OpenAiProvider:
    return OpenAiProvider(server)


def chat(server: Server, **settings: Any) -> StageSpec:
    values = {"model": MODEL, "base_url": server.url, "batch_api": True, **QUICK}
    given = EndpointSettings.model_validate(values | settings)
    return given.spec(f"openai:{MODEL}", "pretrained")


def plan_for(spec: StageSpec, samples: int = 5, **more: Any) -> Plan:
    queries = [sample(number) for number in range(samples)]
    systems = [system_of_stages(name="parrot", draft=spec)]
    return Plan(systems=systems, queries=queries, prompt=as_asked, **{"scorers": []} | more)


def texts(plan: Plan, root: Path) -> list[str]:
    made = outcomes(plan, root).values()
    return [o.value.text if isinstance(o, Result) else o.fault.value for o in made]


def requests_noted(root: Path) -> int:
    return sum(len(batch.requests) for batch in handed_batches(root))


ECHOES = [f"query {number}" for number in range(5)]


# What is handed in is collected later


def test_requests_wait_in_a_batch_and_their_replies_are_ordinary_records(
    server: Server, provider: OpenAiProvider, tmp_path: Path
) -> None:
    plan = plan_for(chat(server, **PRICES))
    witness = Witness()
    first = run(plan, tmp_path / "batch", witness)
    (job,) = provider.jobs.values()
    assert (first.waiting, first.exit_status) == ({job.id: 5}, WAITING)
    assert (first.interrupted, first.made, first.counts["missing"]) == (True, 0, 5)
    assert witness.stages[0].waiting == 5
    (batch,) = handed_batches(tmp_path / "batch")
    assert (batch.id, batch.name) == (job.id, job.name)
    assert server.bodies == [], "nothing is asked alone"

    again = run(plan, tmp_path / "batch")
    assert (again.waiting, len(provider.jobs)) == ({job.id: 5}, 1)

    provider.end()
    result = run(plan, tmp_path / "batch")
    assert (result.exit_status, result.made, result.waiting) == (0, 5, {})
    assert texts(plan, tmp_path / "batch") == ECHOES
    assert handed_batches(tmp_path / "batch") == []

    alone = plan_for(chat(server, batch_api=False, **PRICES))
    assert run(alone, tmp_path / "alone").exit_status == 0
    by_batch = Store(tmp_path / "batch")
    one_by_one = Store(tmp_path / "alone")
    spec = alone.stages[0]
    rows = {key: row.light for key, row in by_batch.rows(spec).items()}
    assert rows == {key: row.light for key, row in one_by_one.rows(spec).items()}
    key = provider.asked[0]
    notes, used = by_batch.notes_and_usage(by_batch.record(spec, key))
    own_notes, own_used = one_by_one.notes_and_usage(one_by_one.record(spec, key))
    assert used["cost"] == pytest.approx(BATCH_PRICE * own_used["cost"])
    tokens = ("input_tokens", "output_tokens", "cached_tokens")
    assert [used[name] for name in tokens] == [own_used[name] for name in tokens]
    own = {"batch": job.id, "cost": used["cost"]}
    assert notes | {"attempts": 1} == own_notes | own


def test_gemini_takes_batches_as_well(server: Server, tmp_path: Path) -> None:
    server.script = GEMINI.reply
    provider = GeminiProvider(server)
    values = {"model": MODEL, "base_url": server.root, "batch_api": True, **QUICK}
    settings = GeminiSettings.model_validate(values)
    plan = plan_for(settings.spec(f"gemini:{MODEL}", "pretrained"), 3)
    (waiting,) = run(plan, tmp_path).waiting.items()
    assert waiting == ("batches/2", 3)
    note_killed_before_id(tmp_path)
    assert run(plan, tmp_path).waiting == {"batches/2": 3}, "found by its name"
    provider.end("BATCH_STATE_EXPIRED", answered=2)
    assert run(plan, tmp_path).counts["failed"] == 1
    (second,) = run(plan, tmp_path).waiting
    provider.end()
    assert run(plan, tmp_path).exit_status == 0
    documents = [o.value for o in outcomes(plan, tmp_path).values()]
    assert [[len(d.segments), len(d.images)] for d in documents] == [[3, 1]] * 3
    assert Counter(provider.asked).most_common(1)[0][1] == 2, "one was asked again"
    assert second in provider.jobs


FILE = {"responsesFile": "files/r"}


@pytest.mark.parametrize(
    ("shown", "ended", "files"),
    [
        ({"metadata": {"state": "BATCH_STATE_RUNNING"}}, False, 0),
        # Not before the file of replies is named, without which all would be asked again.
        ({"metadata": {"state": "BATCH_STATE_SUCCEEDED"}}, False, 0),
        ({"metadata": {"state": "BATCH_STATE_SUCCEEDED"}, "response": FILE}, True, 1),
        ({"metadata": {"state": "BATCH_STATE_SUCCEEDED", "output": FILE}}, True, 1),
        ({"state": "JOB_STATE_SUCCEEDED", "dest": {"fileName": "files/r"}}, True, 1),
        ({"metadata": {"state": "JOB_STATE_EXPIRED"}}, True, 0),
        ({"done": True, "error": {"code": 13, "message": "Internal."}}, True, 0),
        ({"done": False, "metadata": {"state": "BATCH_STATE_PENDING"}}, False, 0),
    ],
)
def test_gemini_shows_a_batch_in_every_documented_form(
    shown: dict[str, Any], ended: bool, files: int
) -> None:
    class Client:
        async def exchange(self, path: str) -> bytes:
            assert path == "/v1beta/batches/7"
            return json.dumps(shown).encode()

    api = GeminiBatches(cast(EndpointClient, Client()), "/v1beta/models/m", "v1beta")
    look = asyncio.run(api.look("batches/7"))
    assert (look.ended, len(look.files)) == (ended, files)
    assert [*look.files] == ["/download/v1beta/files/r:download?alt=media"] * files


# A driver that ends at any moment


def note_killed_before_id(root: Path) -> None:
    """What a driver leaves that is killed before it can note a batch's id."""
    for batch in handed_batches(root):
        replace(batch, id=None).save(root)


def test_a_batch_whose_id_was_never_noted_is_found_and_not_handed_in_again(
    server: Server, provider: OpenAiProvider, tmp_path: Path
) -> None:
    plan = plan_for(chat(server))
    (number,) = run(plan, tmp_path).waiting
    for _ in range(3):  # of others, listed before it
        provider.jobs[f"other{_}"] = replace(
            provider.jobs[number], id=f"other{_}", name="x"
        )
    note_killed_before_id(tmp_path)
    assert run(plan, tmp_path).waiting == {number: 5}
    assert len(provider.jobs) == 4
    provider.end()
    assert run(plan, tmp_path).exit_status == 0
    assert texts(plan, tmp_path) == ECHOES


def test_a_batch_that_was_never_created_is_handed_in(
    server: Server, provider: OpenAiProvider, tmp_path: Path
) -> None:
    plan = plan_for(chat(server))
    run(plan, tmp_path)
    note_killed_before_id(tmp_path)
    provider.jobs.clear()
    result = run(plan, tmp_path)
    assert list(result.waiting) == list(provider.jobs)
    assert (len(provider.asked), requests_noted(tmp_path)) == (5, 5)


def test_a_batch_whose_creation_got_no_answer_is_not_created_twice(
    server: Server, provider: OpenAiProvider, tmp_path: Path
) -> None:
    lost = iter([Answer(error("bad gateway"), 502)])

    def after(sent: Sent) -> Answer | None:
        creates = (sent.method, sent.path) == ("POST", "/v1/batches")
        return next(lost, None) if creates else None

    provider.after = after
    result = run(plan_for(chat(server)), tmp_path)
    assert (list(result.waiting), len(provider.jobs)) == (list(provider.jobs), 1)


def test_a_driver_that_never_learns_whether_there_is_a_batch_asks_the_next_time(
    server: Server, provider: OpenAiProvider, tmp_path: Path
) -> None:
    def down(sent: Sent) -> Answer | None:
        return Answer(error("down"), 503) if sent.path.startswith("/v1/batches") else None

    provider.after = down
    plan = plan_for(chat(server))
    result = run(plan, tmp_path)
    assert (result.exit_status, result.counts["failed"]) == (1, 5)
    assert (len(provider.jobs), requests_noted(tmp_path)) == (1, 5)
    assert run(plan, tmp_path).counts["failed"] == 5, "it is still down"
    provider.after = lambda sent: None
    assert run(plan, tmp_path).waiting == {next(iter(provider.jobs)): 5}
    provider.end()
    assert run(plan, tmp_path).exit_status == 0
    assert len(provider.asked) == 5


def test_replies_that_were_stored_before_the_driver_ended_are_not_waited_for(
    server: Server, provider: OpenAiProvider, tmp_path: Path
) -> None:
    plan = plan_for(chat(server, **PRICES))
    run(plan, tmp_path)
    (batch,) = handed_batches(tmp_path)
    provider.end()
    run(plan, tmp_path)
    batch.save(tmp_path)  # as if it had been killed before it noted what is stored
    spending = Spending(100.0)
    spending.count_batches(Store(tmp_path), plan.stages)
    assert (spending.spent, handed_batches(tmp_path)) == (0.0, [])


_DRIVER = """
import sys
from pathlib import Path
from test_batches import chat, plan_for, run
from types import SimpleNamespace
run(plan_for(chat(SimpleNamespace(url=sys.argv[1]))), Path(sys.argv[2]))
"""


@pytest.mark.processes
@pytest.mark.parametrize("moment", ["/v1/files", "/v1/batches"])
def test_a_driver_may_be_killed_while_it_hands_requests_in(
    server: Server, provider: OpenAiProvider, tmp_path: Path, moment: str
) -> None:
    """Its request was obeyed, and it never had the answer."""
    drivers: list[subprocess.Popen[bytes]] = []

    def kill(sent: Sent) -> Answer | None:
        if (sent.method, sent.path) == ("POST", moment) and drivers:
            drivers.pop().kill()
        return None

    provider.after = kill
    words = [sys.executable, "-c", _DRIVER, server.url, str(tmp_path)]
    places = f"{Path(__file__).parent}:{HELPERS}:{os.environ.get('PYTHONPATH', '')}"
    env = {**os.environ, "PYTHONPATH": places}
    driver = subprocess.Popen(words, env=env, stderr=subprocess.DEVNULL)
    drivers.append(driver)
    assert driver.wait(60) == -signal.SIGKILL
    (batch,) = handed_batches(tmp_path)
    assert batch.id is None
    plan = plan_for(chat(server))
    assert sum(run(plan, tmp_path).waiting.values()) == 5
    provider.end()
    assert run(plan, tmp_path).exit_status == 0
    assert texts(plan, tmp_path) == ECHOES
    assert (len(provider.jobs), len(provider.asked)) == (1, 5)


# What goes wrong


def test_requests_that_fail_are_records_and_are_tried_again_in_a_further_batch(
    server: Server, provider: OpenAiProvider, tmp_path: Path
) -> None:
    faults = {
        "query 1": Answer(error("overloaded"), 503),
        "query 2": Answer(error("flagged", "content_filter"), 400),
    }
    server.script = lambda b: faults.get(b["messages"][-1]["content"]) or server.default(b)
    plan = plan_for(chat(server))
    run(plan, tmp_path)
    provider.end()
    result = run(plan, tmp_path)
    assert (result.exit_status, result.counts["done"], result.waiting) == (1, 3, {})
    assert texts(plan, tmp_path)[1:3] == [Fault.ENDPOINT, Fault.REFUSED]

    server.script = server.default
    assert sum(run(plan, tmp_path).waiting.values()) == 1, "a refusal is final"
    provider.end()
    assert run(plan, tmp_path).counts["done"] == 4
    assert texts(plan, tmp_path)[1:3] == ["query 1", Fault.REFUSED]
    assert Counter(provider.asked).most_common(2)[0][1] == 2
    assert len(provider.asked) == 6


@pytest.mark.parametrize("state", ["expired", "cancelled", "failed"])
def test_what_a_batch_left_undone_is_handed_in_again(
    server: Server, provider: OpenAiProvider, tmp_path: Path, state: str
) -> None:
    plan = plan_for(chat(server))
    run(plan, tmp_path)
    done = 0 if state == "failed" else 2
    provider.end(state, answered=done)
    result = run(plan, tmp_path)
    assert (result.counts["done"], result.counts.get("failed")) == (done, 5 - done)
    left = [o for o in outcomes(plan, tmp_path).values() if isinstance(o, Failure)]
    assert {failure.fault for failure in left} == {Fault.ENDPOINT}
    assert all(state in failure.reason for failure in left)
    assert sum(run(plan, tmp_path).waiting.values()) == 5 - done
    provider.end()
    assert run(plan, tmp_path).exit_status == 0
    assert texts(plan, tmp_path) == ECHOES
    assert len(provider.asked) == 5 + 5 - done


@pytest.mark.parametrize("wrong", ["unknown", "foreign"])
def test_a_wrong_id_loses_nothing_and_hands_nothing_in(
    server: Server, provider: OpenAiProvider, tmp_path: Path, wrong: str
) -> None:
    plan = plan_for(chat(server))
    run(plan, tmp_path)
    (batch,) = handed_batches(tmp_path)
    other = "batch_of_another_account"
    if wrong == "foreign":
        own = provider.jobs[str(batch.id)]
        provider.jobs[other] = replace(own, id=other, name="plait-other", lines=[])
    replace(batch, id=other).save(tmp_path)
    provider.end()
    for _ in range(2):
        result = run(plan, tmp_path)
        assert (result.exit_status, result.counts["failed"]) == (1, 5)
        reasons = {o.reason for o in outcomes(plan, tmp_path).values()}
        assert len(reasons) == 1
        assert other in reasons.pop()
    assert (len(provider.asked), requests_noted(tmp_path)) == (5, 5)
    batch.save(tmp_path)
    assert run(plan, tmp_path).exit_status == 0
    assert texts(plan, tmp_path) == ECHOES


def test_a_server_without_batches_fails_its_requests(
    server: Server, tmp_path: Path
) -> None:
    server.beforehand = lambda sent: (
        Answer(error("no such path"), 404) if "/files" in sent.path else None
    )
    plan = plan_for(chat(server))
    result = run(plan, tmp_path)
    assert (result.exit_status, result.counts["failed"]) == (1, 5)
    assert handed_batches(tmp_path) == []


def test_a_file_that_describes_no_batch_is_an_error_that_names_it(tmp_path: Path) -> None:
    place = tmp_path / "batches" / "plait-1.json"
    place.parent.mkdir()
    place.write_text('{"name": 3}')
    with pytest.raises(UsageError, match=r"plait-1\.json"):
        handed_batches(tmp_path)


# Limits


@pytest.mark.parametrize(
    ("limit", "batches"),
    [({"batch_requests": 2}, [2, 2, 1]), ({"batch_megabytes": 0.0006}, [2, 2, 1])],
)
def test_requests_beyond_the_limits_of_a_file_go_into_further_batches(
    server: Server,
    provider: OpenAiProvider,
    tmp_path: Path,
    limit: dict[str, Any],
    batches: list[int],
) -> None:
    plan = plan_for(chat(server, **limit))
    assert sorted(run(plan, tmp_path).waiting.values(), reverse=True) == batches
    assert [len(job.lines) for job in provider.jobs.values()] == batches
    provider.end()
    assert run(plan, tmp_path).exit_status == 0
    assert texts(plan, tmp_path) == ECHOES


def test_a_request_larger_than_a_file_fails_alone(
    server: Server, provider: OpenAiProvider, tmp_path: Path
) -> None:
    plan = plan_for(chat(server, batch_megabytes=0.001))
    long = replace(sample(0, "x" * 1000), id="long")
    plan = replace(plan, queries=[*plan.queries, long])
    result = run(plan, tmp_path)
    assert (sum(result.waiting.values()), result.failed) == (5, 1)
    provider.end()
    assert run(plan, tmp_path).counts["done"] == 5


# What it costs


def bound(server: Server) -> float:
    """What a request of the plan may cost."""
    request = Request((Turn("user", (Text("query 0"),)),))
    used = most_usage(request, 1024)
    assert used == {"input_tokens": pytest.approx(7 / 3), "output_tokens": 1024.0}
    cost = EndpointSettings(model=MODEL, batch_api=True, **PRICES).cost_of(used)
    assert cost == pytest.approx((7 / 3 * 1000 + 1024 * 2000) / 2e6)
    return cost


def test_no_more_is_handed_in_than_the_budget_may_pay(
    server: Server, provider: OpenAiProvider, tmp_path: Path
) -> None:
    each = bound(server)
    plan = plan_for(chat(server, **PRICES))
    for _ in range(2):
        result = run(plan, tmp_path, witness := Witness(), max_cost=3.5 * each)
        assert (sum(result.waiting.values()), result.failed) == (3, 2)
        assert len(provider.asked) == 3
        assert witness.progress.spent == pytest.approx(3 * each)
    provider.end()
    result = run(plan, tmp_path, max_cost=3.5 * each)
    # 11 tokens were read and 7 written by each: what was reserved beyond that is free.
    assert result.counts["done"] == 3
    assert usage_of(plan, Store(tmp_path))[f"openai:{MODEL}"]["cost"] == pytest.approx(
        3 * (11 * 1000 + 7 * 2000) / 2e6, abs=1e-3
    )
    assert sum(run(plan, tmp_path, max_cost=3.5 * each).waiting.values()) == 2
    provider.end()
    assert run(plan, tmp_path, max_cost=3.5 * each).exit_status == 0


def test_the_budget_refuses_before_anything_is_sent(
    server: Server, provider: OpenAiProvider, tmp_path: Path
) -> None:
    plan = plan_for(chat(server, **PRICES))
    result = run(plan, tmp_path, max_cost=0.5 * bound(server))
    assert (result.exit_status, result.counts["failed"]) == (1, 5)
    assert set(texts(plan, tmp_path)) == {Fault.BUDGET}
    assert (provider.files, handed_batches(tmp_path)) == ({}, [])


@pytest.mark.parametrize("ceiling", ["max_cost", "max_total_tokens"])
def test_a_models_own_ceiling_counts_what_was_handed_in(
    server: Server, provider: OpenAiProvider, tmp_path: Path, ceiling: str
) -> None:
    most = 2.5 * bound(server) if ceiling == "max_cost" else 2500
    plan = plan_for(chat(server, **PRICES, **{ceiling: most}))
    for _ in range(2):
        result = run(plan, tmp_path)
        assert (sum(result.waiting.values()), result.failed) == (2, 3)
        assert len(provider.asked) == 2


# Judges


@dataclass(frozen=True)
class InRounds(Scorer):
    """A judge that asks once more about what it has said."""

    @property
    def rounds(self) -> int:
        return 2

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        said = document.text
        for number in range(2):
            words = Text(f"round {number} of {said}")
            request = Request((Turn("user", (words,)),))
            (reply,) = yield [Job(self.stage, request, query.id)]
            if not isinstance(reply, Result):
                return Failure(reply.reason, Fault.ERROR)
            said = reply.value.text
        return Result(Score(float(said == f"round 1 of round 0 of {document.text}")))


def test_each_round_of_a_judge_is_a_further_batch(
    server: Server, provider: OpenAiProvider, tmp_path: Path
) -> None:
    writer = chat(server, batch_api=False)
    judge = InRounds("judge", chat(server, model="judge"), "0-1")
    plan = plan_for(writer, scorers=[judge])
    results: list[RunResult] = []
    for _ in range(3):
        results.append(run(plan, tmp_path))
        provider.end()
    assert [sum(r.waiting.values()) for r in results] == [5, 5, 0]
    assert [r.exit_status for r in results] == [WAITING, WAITING, 0]
    assert (results[-1].counts["scored"], len(provider.jobs)) == (5, 2)
    assert len(server.bodies) == 5, "the answers, which were not asked for by a batch"
    assert len(set(provider.asked)) == 10


def test_answers_and_judgements_may_both_go_through_batches_that_are_shared_out(
    server: Server, provider: OpenAiProvider, tmp_path: Path, monkeypatch: Any
) -> None:
    from plait.cluster import schedule

    monkeypatch.setattr(schedule, "_LEAST_OPEN", 3)
    monkeypatch.setattr(schedule, "_MOST_OPEN", 3)
    judge = InRounds("judge", chat(server, model="judge"), "0-1")
    plan = plan_for(chat(server), 10, scorers=[judge])
    for _ in range(3):
        assert sum(run(plan, tmp_path).waiting.values()) == 10, "more than may be open"
        provider.end()
    assert run(plan, tmp_path).counts["scored"] == 10
    assert len(provider.asked) == len(set(provider.asked)) == 30


# Where it is said


def test_a_server_that_plait_starts_takes_no_batches(server: Server) -> None:
    settings = EndpointSettings(model=MODEL, server="own", batch_api=True)
    table = ServerTable(command="serve --port {port}", version="any")
    with pytest.raises(UsageError, match="batch_api"):
        with_server(settings.spec("own", "pretrained"), settings, {"own": table})


def test_no_key_depends_on_how_requests_are_sent(server: Server) -> None:
    limits = {"batch_requests": 3, "batch_megabytes": 1.0}
    assert chat(server, **limits).digest == chat(server, batch_api=False).digest


def test_what_waits_is_told_where_nothing_runs(
    server: Server, provider: OpenAiProvider, tmp_path: Path
) -> None:
    from rich.console import Console

    from plait.cluster.control import ControlError
    from plait.control import control

    run(plan_for(chat(server)), tmp_path)
    number = next(iter(provider.jobs))
    with pytest.raises(ControlError, match=rf"5 requests .* {number}"):
        control(tmp_path, [], 0.0, Console())
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert (manifest["status"], manifest["waiting"]) == ("interrupted", {number: 5})


def test_requests_that_wait_are_told_before_they_are_asked_alone(
    server: Server, provider: OpenAiProvider, tmp_path: Path
) -> None:
    run(plan_for(chat(server)), tmp_path)
    witness = Witness()
    assert run(plan_for(chat(server, batch_api=False)), tmp_path, witness).made == 5
    (notice,) = [n for n in witness.notices if next(iter(provider.jobs)) in n]
    assert "5 requests" in notice
