"""What the engine makes and keeps, whatever its workers run on."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest
from trial import (
    LIGHT,
    Measuring,
    Witness,
    calls,
    outcomes,
    painter,
    plan_of,
    run,
    sample,
    writer,
)

from cluster.store import Store
from generators.base import Failure, Fault, Job, Result, Skip, Walk
from generators.document import Document, Malformed, Request, Sample, Score, Turn

pytestmark = pytest.mark.usefixtures("worker_threads")


def test_another_system_and_another_sample_cost_only_what_is_new(tmp_path: Path) -> None:
    log, root = tmp_path / "log", tmp_path / "run"
    samples = [sample(i) for i in range(6)]
    run(plan_of(samples[:4], write=writer(log=log), paint=[painter(0)]), root)
    run(plan_of(samples, write=writer(log=log), paint=[painter(0), painter(1)]), root)
    assert sum(calls(log)) == 6


def test_a_changed_setting_changes_the_key(tmp_path: Path) -> None:
    log, root = tmp_path / "log", tmp_path / "run"
    samples = [sample(0)]
    run(plan_of(samples, write=writer(log=log)), root)
    run(plan_of(samples, write=writer(log=log, style="other")), root)
    assert sum(calls(log)) == 2


def test_one_record_that_raises_fails_alone_and_is_named(tmp_path: Path) -> None:
    samples = [sample(i, "!raise" if i == 5 else "") for i in range(8)]
    plan = plan_of(samples, write=writer(replace(LIGHT, batch_size=8)))
    result = run(plan, tmp_path)
    ended = outcomes(plan, tmp_path)
    failed = {k: v for k, v in ended.items() if not isinstance(v, Result)}
    assert {s for _, s in failed} == {samples[5].id}
    for outcome in failed.values():
        assert isinstance(outcome, Failure)
        assert outcome.fault is Fault.ERROR
        assert "cannot draft 'query 5 !raise'" in outcome.reason
    assert result.failed == 2
    assert result.counts["done"] == 14


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
    log = tmp_path / "log"
    texts = ["", "!skip", "!refuse", "!raise"]
    samples = [sample(i, t) for i, t in enumerate(texts)]
    plan = plan_of(samples, write=writer(replace(LIGHT, batch_size=1), log=log))
    run(plan, tmp_path / "run")
    ended = outcomes(plan, tmp_path / "run")
    by_id = {s: o for (_, s), o in ended.items()}
    assert isinstance(by_id[samples[1].id], Skip)
    refused = by_id[samples[2].id]
    assert isinstance(refused, Failure)
    assert refused.fault is Fault.REFUSED

    witness = Witness()
    again = run(plan, tmp_path / "run", witness)
    assert again.made == 1  # the error; a skip and a refusal would only come back
    assert [c.distinct - c.done for c in witness.counts if c.spec.name == "writer"] == [1]


def test_a_success_supersedes_a_failure(tmp_path: Path) -> None:
    """The batch limit of memory is an option, so changing it keeps the keys."""
    samples = [sample(0)]
    broken = replace(writer(), options={"memory": 0})
    plan = plan_of(samples, write=broken)
    run(plan, tmp_path)
    first = next(iter(outcomes(plan, tmp_path).values()))
    assert isinstance(first, Failure)
    assert first.fault is Fault.OUT_OF_MEMORY
    changed = plan_of(samples, write=writer())
    run(changed, tmp_path)
    assert all(isinstance(o, Result) for o in outcomes(changed, tmp_path).values())
    rows = Store(tmp_path).rows(writer())
    assert [r.outcome for r in rows.values()] == ["done"]


def test_malformed_rows_are_counted_as_failed_for_every_system(tmp_path: Path) -> None:
    rows = [sample(0), Malformed(id="SA-9", row=9, reason="row 9: no human turn")]
    plan = plan_of(rows)  # type: ignore[arg-type]
    result = run(plan, tmp_path)
    assert result.counts["planned"] == 4
    assert result.counts["failed"] == 2
    assert result.counts["done"] == 2


def test_judgements_that_fail_are_failures_of_the_run(tmp_path: Path) -> None:
    plan = plan_of([sample(0)], paint=[painter()])
    broken = Measuring()
    broken.stage = replace(broken.stage, target="stages:Unloadable")
    broken.stages = (broken.stage,)
    result = run(replace(plan, scorers=[broken]), tmp_path)
    assert (result.counts["failed"], result.counts["failed_scores"]) == (0, 1)
    assert result.failed == 1


class Juror:
    """A judge that asks the very stage that has drafted."""

    name = "juror"
    scale = "characters"
    manner, rounds = "", 1
    stages = (writer(),)

    def judge(self, sample: Sample, document: Document) -> Walk[Score]:
        turn = Turn("user", document.segments[:1])
        reply = (yield [Job(self.stages[0], Request((turn,)), sample.id)])[0]
        if not isinstance(reply, Result):
            return reply
        return Result(Score(float(len(reply.value.text))))


def test_scoring_again_answers_nothing_though_the_judge_is_a_writer_too(
    tmp_path: Path,
) -> None:
    samples = [sample(i, "!refuse" if i == 1 else "") for i in range(5)]
    run(plan_of(samples[:3], paint=[painter()]), tmp_path)
    plan = replace(plan_of(samples, paint=[painter()]), scorers=[Juror()])
    witness = Witness()
    result = run(plan, tmp_path, witness, only_scorers=True)
    assert {k: result.counts[k] for k in ("done", "failed", "missing", "scored")} == {
        "done": 2,
        "failed": 1,
        "missing": 2,
        "scored": 2,
    }
    assert [(c.spec.name, c.to_run) for c in witness.counts if c.to_run] == [("writer", 2)]
    assert len(Store(tmp_path).rows(writer())) == 3 + 2
    again = Witness()
    assert run(plan, tmp_path, again, only_scorers=True).made == 0
    assert again.turns == 0  # nothing can be done: Ray is not started


def test_repeats_differ_in_their_noise(tmp_path: Path) -> None:
    plan = plan_of([sample(0)], repeats=2, paint=[painter(0)])
    result = run(plan, tmp_path)
    assert result.counts["planned"] == 2
    spec = painter(0)
    assert len(Store(tmp_path).rows(spec)) == 2
    assert len(Store(tmp_path).rows(writer())) == 1  # greedy text is written once
