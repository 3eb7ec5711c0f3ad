"""What the engine makes and keeps, whatever its workers run on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from endpoint_helpers import MODEL, Server, serving
from trial import (
    LIGHT,
    Measuring,
    Witness,
    as_asked,
    board,
    calls,
    measure_spec,
    outcomes,
    painter,
    plan_of,
    run,
    sample,
    system_of_stages,
    writer,
)

from plait.cluster.executors.simulated import SimulatedExecutor, World
from plait.cluster.placement import Node, Resources
from plait.cluster.plan import Plan
from plait.cluster.records import RecordRow
from plait.cluster.store import Store
from plait.cluster.usage import Spending, usage_of_stage
from plait.cluster.worker import Receipt
from plait.generators.base import (
    Failure,
    Fault,
    Job,
    Placement,
    Result,
    Skip,
    StageSpec,
    Walk,
)
from plait.generators.document import (
    Document,
    Image,
    Malformed,
    Query,
    Request,
    Score,
    Turn,
)
from plait.generators.images import Drawing
from plait.pipelines.chat.settings import EndpointSettings
from plait.pipelines.presets import lvlm
from plait.scorers.base import Scorer

pytestmark = [pytest.mark.contract, pytest.mark.usefixtures("worker_threads")]

# ------------------------------------------------------------------------- what is made


def test_a_shared_stage_runs_once_and_a_second_command_does_nothing(tmp_path: Path) -> None:
    log, root, samples = tmp_path / "log", tmp_path / "run", [sample(i) for i in range(10)]
    first = plan_of(samples[:4], write=writer(log=log), paint=[painter(0)])
    assert run(first, root).made == 4 * 3
    plan = plan_of(samples, write=writer(log=log))  # more samples, another painter
    assert run(plan, root).counts["done"] == 20
    assert sum(calls(log)) == 10
    before, witness = board(plan, root), Witness()
    assert run(plan, root, witness).made == 0
    assert (witness.turns, board(plan, root), sum(calls(log))) == (0, before, 10)
    run(plan_of(samples[:1], write=writer(log=log, style="other")), root)
    assert sum(calls(log)) == 11  # a changed setting changes the key


def test_one_record_that_raises_fails_alone_and_is_named(tmp_path: Path) -> None:
    samples = [sample(i, "!raise" if i == 5 else "") for i in range(8)]
    plan = plan_of(samples, write=writer(replace(LIGHT, batch_size=8)))
    result = run(plan, tmp_path)
    ended = outcomes(plan, tmp_path)
    failed = {k: v for k, v in ended.items() if not isinstance(v, Result)}
    assert {s for _, s in failed} == {samples[5].id}
    for outcome in failed.values():
        assert isinstance(outcome, Failure)
        assert (outcome.fault, "query 5 !raise" in outcome.reason) == (Fault.ERROR, True)
    assert (result.failed, result.counts["done"]) == (2, 14)


def test_batches_in_flight_are_finished_however_often_term_is_sent(tmp_path: Path) -> None:
    samples = [sample(i, "!stop" if i == 0 else "") for i in range(20)]
    write = writer(replace(LIGHT, batch_size=4), log=tmp_path / "log")
    plan = plan_of(samples, write=write)
    handler, witness = signal.getsignal(signal.SIGTERM), Witness()
    result = run(plan, tmp_path, witness)
    assert (result.stopped_by, result.exit_status) == (signal.SIGTERM, 143)
    assert 0 < sum(calls(tmp_path / "log")) == len(Store(tmp_path).rows(write)) < 20
    assert sum("stopping" in notice for notice in witness.notices) == 1
    assert signal.getsignal(signal.SIGTERM) is handler
    assert run(plan_of(samples[1:]), tmp_path).counts["done"] == 38


def test_skips_and_refusals_are_final_and_errors_are_tried_again(tmp_path: Path) -> None:
    samples = [sample(i, t) for i, t in enumerate(["", "!skip", "!refuse", "!raise"])]
    plan = plan_of(samples, write=writer(replace(LIGHT, batch_size=1)))
    run(plan, tmp_path)
    by_id = {s: o for (_, s), o in outcomes(plan, tmp_path).items()}
    assert isinstance(by_id[samples[1].id], Skip)
    assert by_id[samples[2].id].fault is Fault.REFUSED
    witness = Witness()
    assert run(plan, tmp_path, witness).made == 1
    assert [c.to_run for c in witness.counts if c.spec.name == "writer"] == [1]


def test_a_batch_that_hangs_is_ended_and_its_record_is_set_aside(tmp_path: Path) -> None:
    samples = [sample(i, "!hang" if i == 2 else "") for i in range(4)]
    placement = replace(LIGHT, batch_size=2, batch_timeout_s=1.0)
    plan, witness = plan_of(samples, write=writer(placement)), Witness()
    run(plan, tmp_path, witness)
    ended = {k[1]: v for k, v in outcomes(plan, tmp_path).items()}
    failed = {id: o.fault for id, o in ended.items() if isinstance(o, Failure)}
    assert failed == {samples[2].id: Fault.TIMEOUT}
    assert {f.kind for f in witness.failures} == {"timed out"}


def test_out_of_memory_halves_the_batch_and_a_success_supersedes_a_failure(
    tmp_path: Path,
) -> None:
    """The batch limit of memory is an option, so changing it keeps the keys."""
    log = tmp_path / "log"
    write = writer(replace(LIGHT, batch_size=16), log=log)

    def with_memory(records: int) -> Plan:
        spec = replace(write, options={**write.options, "memory": records})
        return plan_of([sample(i) for i in range(20)], write=spec)

    assert run(with_memory(0), tmp_path / "run").counts["failed"] == 40
    (fault,) = {o.fault for o in outcomes(with_memory(0), tmp_path / "run").values()}
    assert fault is Fault.OUT_OF_MEMORY
    log.write_text("")
    assert run(with_memory(4), tmp_path / "run").counts["done"] == 40
    assert max(calls(log)) == 4
    assert calls(log).count(4) >= 4  # once found, the limit is used to the full
    rows = Store(tmp_path / "run").rows(write)
    assert {r.outcome for r in rows.values()} == {"done"}


def test_a_stage_that_cannot_be_used_fails_its_records_and_spares_the_others(
    tmp_path: Path,
) -> None:
    broken = replace(painter(7), target="stages:Unloadable", name="broken")
    greedy = painter(8, replace(LIGHT, num_gpus=3))
    plan = plan_of([sample(i) for i in range(3)], paint=[painter(0), broken, greedy])
    witness = Witness()
    result = run(plan, tmp_path, witness)
    assert (result.counts["done"], result.counts["failed"]) == (3, 6)
    reasons = {
        system: o.reason
        for (system, _), o in outcomes(plan, tmp_path).items()
        if isinstance(o, Failure)
    }
    assert "weights.safetensors" in reasons["writer+broken"]
    assert "3 GPU" in reasons["writer+painter8"]
    assert all(any(r in n for n in witness.notices) for r in reasons.values())


def test_malformed_rows_and_lost_judgements_are_counted_as_failed(tmp_path: Path) -> None:
    rows: list[Any] = [
        sample(0),
        Malformed(id="SA-9", row=9, reason="row 9: no human turn"),
    ]
    broken = Measuring(stage=replace(measure_spec(), target="stages:Unloadable"))
    result = run(replace(plan_of(rows), scorers=[broken]), tmp_path)
    names = ("planned", "done", "failed", "failed_scores")
    assert [result.counts[name] for name in names] == [4, 2, 2, 2]
    assert result.failed == 4


class Juror(Scorer):
    """A judge that asks the very stage that has drafted."""

    def judge(self, sample: Query, document: Document) -> Walk[Score]:
        turn = Turn("user", document.segments[:1])
        reply = (yield [Job(self.stage, Request((turn,)), sample.id)])[0]
        if not isinstance(reply, Result):
            return reply
        return Result(Score(float(len(reply.value.text))))


def test_scoring_again_answers_nothing_though_the_judge_is_a_writer_too(
    tmp_path: Path,
) -> None:
    samples = [sample(i, "!refuse" if i == 1 else "") for i in range(5)]
    run(plan_of(samples[:3], paint=[painter()]), tmp_path)
    plan = replace(
        plan_of(samples, paint=[painter()]),
        scorers=[Juror("juror", writer(), "characters")],
    )
    witness = Witness()
    counts = run(plan, tmp_path, witness, only_scorers=True).counts
    names = ("done", "failed", "missing", "scored")
    assert [counts[name] for name in names] == [2, 1, 2, 2]
    assert [(c.spec.name, c.to_run) for c in witness.counts if c.to_run] == [("writer", 2)]
    assert len(Store(tmp_path).rows(writer())) == 3 + 2
    again = Witness()
    assert run(plan, tmp_path, again, only_scorers=True).made == 0
    assert again.turns == 0  # nothing can be done: no executor is opened


def test_repeats_differ_in_their_noise(tmp_path: Path) -> None:
    plan = plan_of([sample(0)], repeats=2, paint=[painter(0)])
    assert run(plan, tmp_path).counts["planned"] == 2
    assert len(Store(tmp_path).rows(painter(0))) == 2
    assert len(Store(tmp_path).rows(writer())) == 1  # greedy text is written once


# ---------------------------------------------------------------- what a worker can read


class Elsewhere(SimulatedExecutor):
    """Its hosts have a run directory of their own, which the driver does not see."""

    def start(self, placement: Placement, node: Node, given: Any) -> Any:
        spec, root, *more = given
        return super().start(placement, node, (spec, f"{root}-elsewhere", *more))


@pytest.mark.parametrize("executor", [SimulatedExecutor, Elsewhere])
def test_pictures_are_read_where_they_are_and_folders_need_not_be_shared(
    tmp_path: Path, executor: type[SimulatedExecutor]
) -> None:
    picture = Drawing(np.zeros((8, 8, 3), np.uint8)).encoded()
    file = tmp_path / "a.png"
    file.write_bytes(picture.read())
    image = Image(picture.digest, place=str(file))
    gone = Image("0" * 64, place=str(tmp_path / "gone.png"))
    plan = plan_of([sample(0, images=[image]), sample(1, images=[gone])])
    world = World([Node("n", Resources(cpus=8), "n")])
    witness = Witness()
    run(plan, tmp_path / "run", witness, executor=nullcontext(executor(world)))
    # Of three workers on a node that shares nothing, the user is told once.
    assert len(witness.notices) == (executor is Elsewhere)
    ended = outcomes(plan, tmp_path / "run")
    assert ended["writer+painter0", "SA-0"].value.text.endswith(picture.digest[:4])
    assert "gone.png" in ended["writer+painter0", "PBL-1"].reason
    written = list((tmp_path / "run-elsewhere").glob("stages/*"))
    assert not written
    assert list((tmp_path / "run").glob("stages/*/part-*"))


# ------------------------------------------------------------------- order, money, usage


WORDS = [3, 9, 1, 7, 5, 2]
"""Length of each question; as many of them as make one batch."""


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def endpoint(server: Server, **settings: Any) -> StageSpec:
    """A chat endpoint that answers one request at a time."""
    own = {"model": MODEL, "base_url": server.url, "concurrency": 1} | settings
    return EndpointSettings.model_validate(own).spec("chat", "pretrained")


def asking(spec: StageSpec, *texts: str) -> Plan:
    samples = [sample(i, text) for i, text in enumerate(texts)]
    systems = [system_of_stages(name="s", draft=spec)]
    return Plan(systems=systems, queries=samples, scorers=[], prompt=as_asked)


@pytest.mark.parametrize("longest_first", [False, True])
def test_an_endpoint_is_asked_in_order_and_a_local_stage_long_inputs_first(
    server: Server, tmp_path: Path, longest_first: bool
) -> None:
    """Neighbours begin alike, which a server's prefix cache serves."""
    spec = endpoint(server, batch_size=len(WORDS))
    assert not spec.placement.longest_first
    assert lvlm("qwen2-vl-7b").spec("local", "tiny").placement.longest_first
    place = replace(spec.placement, longest_first=longest_first)
    plan = asking(replace(spec, placement=place), *("long " * n for n in WORDS))
    assert run(plan, tmp_path).counts["done"] == len(WORDS)
    met = [body["messages"][-1]["content"].count("long") for body in server.bodies]
    assert met == (sorted(WORDS, reverse=True) if longest_first else WORDS)


def test_a_new_worker_goes_on_counting_where_the_last_one_stopped(
    server: Server, tmp_path: Path
) -> None:
    """A preflight and three answers are 72 tokens; the next worker may not start at 0."""
    run(asking(endpoint(server), *[""] * 3), tmp_path)
    spec = endpoint(server, max_total_tokens=73)
    used = usage_of_stage(tmp_path, spec)
    assert (used["input_tokens"], used["output_tokens"]) == (33, 21)
    result = run(asking(spec, *[""] * 9), tmp_path)
    assert len(server.bodies) == 4
    assert (result.counts["done"], result.counts["failed"]) == (4, 5)


PRICES = {"price_per_million_input": 1.0, "price_per_million_output": 2.0}
REMOTE = replace(LIGHT, endpoint="http://127.0.0.1:9/v1", batch_size=1)


def paid_lvlm(log: Path | None = None) -> StageSpec:
    options = {**PRICES, "cost": 1.0} | ({} if log is None else {"log": str(log)})
    return replace(writer(REMOTE), options=options)


def receipt(**usage: float) -> Receipt:
    row = RecordRow("done", None, None, 0, (), "", 0)
    return Receipt("done", rows={"key": row}, usage=usage)


def test_all_stages_count_towards_one_ceiling() -> None:
    """Those too that have no price of their own and report what they cost."""
    spending = Spending(3.0)
    spending.count_receipt(paid_lvlm(), receipt(cost=2.0))
    spending.count_receipt(painter(), receipt(images=1))
    assert spending.reason_to_stop() is None
    spending.count_receipt(painter(1), receipt(cost=1.0))
    assert spending.reason_to_stop() is not None
    paid = [spending.is_paid(spec) for spec in (paid_lvlm(), painter(1), painter())]
    assert paid == [True, True, False]


def test_no_ceiling_is_kept_where_a_server_does_not_say_what_was_used() -> None:
    spending, without = Spending(3.0), Spending(None)
    spending.count_receipt(paid_lvlm(), Receipt("done"))  # a request that failed
    assert spending.reason_to_stop() is None
    for each in (spending, without):
        each.count_receipt(paid_lvlm(), receipt())
    assert "the server of writer" in str(spending.reason_to_stop())
    assert without.reason_to_stop() is None


def test_nothing_is_sent_once_the_budget_is_reached_until_it_is_raised(
    tmp_path: Path,
) -> None:
    log, root, witness = tmp_path / "log", tmp_path / "run", Witness()
    plan = plan_of([sample(i) for i in range(8)], write=paid_lvlm(log), paint=[painter()])
    result = run(plan, root, witness, max_cost=3.0)
    assert (result.counts["done"], result.counts["failed"]) == (3, 5)
    failures = [o for o in outcomes(plan, root).values() if isinstance(o, Failure)]
    assert {failure.fault for failure in failures} == {Fault.BUDGET}
    assert next(s for s in witness.stages if s.name == "writer").usage["cost"] == 3.0
    assert run(plan, root, max_cost=3.0).counts["done"] == 3  # what was paid counts
    assert len(calls(log)) == 3
    assert run(plan, root, max_cost=20.0).counts["done"] == 8
    assert len(calls(log)) == 8
