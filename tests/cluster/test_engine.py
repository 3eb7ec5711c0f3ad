"""The engine on Ray with stages that behave and stages that do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from trial import (
    LIGHT,
    Measuring,
    Witness,
    board,
    outcomes,
    painter,
    plan_of,
    run,
    sample,
    writer,
)

from cluster.schedule import _probe_of
from cluster.store import Store
from generators.base import Failure, Fault, Job, Result, Skip, Walk
from generators.document import Document, Image, Malformed, Request, Sample, Score, Turn

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_address")]


def calls(log: Path) -> list[int]:
    """Batch sizes the writer was called with."""
    return [int(x.split()[1]) for x in log.read_text().splitlines() if x.startswith("call")]


def test_a_shared_stage_runs_once_and_a_second_command_does_nothing(tmp_path: Path) -> None:
    plan = plan_of([sample(i) for i in range(10)], write=writer(log=tmp_path / "log"))
    first = run(plan, tmp_path / "run")
    assert first.counts["done"] == 20
    assert sum(calls(tmp_path / "log")) == 10
    assert first.made == 10 + 20 + 20

    before = board(plan, tmp_path / "run")
    witness = Witness()
    second = run(plan, tmp_path / "run", witness)
    assert second.made == 0
    assert witness.turns == 0
    assert board(plan, tmp_path / "run") == before
    assert sum(calls(tmp_path / "log")) == 10


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


def test_batch_size_does_not_change_keys_or_results(tmp_path: Path) -> None:
    samples = [sample(i) for i in range(9)]
    boards = []
    for size in (1, 4, 16):
        placement = replace(LIGHT, batch_size=size)
        plan = plan_of(samples, write=writer(placement), paint=[painter(0, placement)])
        run(plan, tmp_path / str(size))
        boards.append(board(plan, tmp_path / str(size)))
    assert boards[0] == boards[1] == boards[2]


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
    """The batch limit of memory is an option, so mending it keeps the keys."""
    samples = [sample(0)]
    broken = replace(writer(), options={"memory": 0})
    plan = plan_of(samples, write=broken)
    run(plan, tmp_path)
    first = next(iter(outcomes(plan, tmp_path).values()))
    assert isinstance(first, Failure)
    assert first.fault is Fault.OUT_OF_MEMORY
    mended = plan_of(samples, write=writer())
    run(mended, tmp_path)
    assert all(isinstance(o, Result) for o in outcomes(mended, tmp_path).values())
    rows = Store(tmp_path).rows(writer())
    assert [r.outcome for r in rows.values()] == ["done"]


@pytest.mark.slow
def test_a_record_that_kills_its_worker_is_set_aside(tmp_path: Path) -> None:
    samples = [sample(i, "!kill" if i == 3 else "") for i in range(8)]
    plan = plan_of(samples, write=writer(replace(LIGHT, batch_size=4)))
    run(plan, tmp_path)
    failed = {
        k[1]: v for k, v in outcomes(plan, tmp_path).items() if isinstance(v, Failure)
    }
    assert set(failed) == {samples[3].id}
    outcome = failed[samples[3].id]
    assert outcome.fault is Fault.DIED
    assert "not tried again after 3 attempts" in outcome.reason


@pytest.mark.slow
def test_a_batch_that_hangs_is_treated_as_a_death(tmp_path: Path) -> None:
    samples = [sample(i, "!hang" if i == 2 else "") for i in range(4)]
    placement = replace(LIGHT, batch_size=2, batch_timeout_s=1.0)
    plan = plan_of(samples, write=writer(placement))
    run(plan, tmp_path)
    failed = {
        k[1]: v for k, v in outcomes(plan, tmp_path).items() if isinstance(v, Failure)
    }
    assert set(failed) == {samples[2].id}
    assert failed[samples[2].id].fault is Fault.TIMEOUT
    assert "took longer than 1 s" in failed[samples[2].id].reason


def test_out_of_memory_halves_the_batch_and_remembers(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write = writer(replace(LIGHT, batch_size=16), log=log)
    write = replace(write, options=dict(write.options) | {"memory": 4})
    plan = plan_of([sample(i) for i in range(40)], write=write)
    result = run(plan, tmp_path / "run")
    assert result.counts["done"] == 80
    assert max(calls(log)) == 4
    assert calls(log).count(4) >= 9  # once found, the limit is used to the full


def test_a_stage_that_cannot_load_fails_its_records_and_spares_the_others(
    tmp_path: Path,
) -> None:
    broken = replace(painter(7), target="stages:Unloadable", name="broken")
    plan = plan_of([sample(i) for i in range(3)], paint=[painter(0), broken])
    witness = Witness()
    result = run(plan, tmp_path, witness)
    assert result.counts["done"] == 3
    assert result.counts["failed"] == 3
    assert any("weights.safetensors is not in the checkpoint" in n for n in witness.notices)
    reasons = {
        o.reason for o in outcomes(plan, tmp_path).values() if isinstance(o, Failure)
    }
    assert all("weights.safetensors" in r for r in reasons)


def test_a_need_that_no_node_can_meet_is_named(tmp_path: Path) -> None:
    greedy = painter(0, replace(LIGHT, num_gpus=3))
    plan = plan_of([sample(0)], paint=[greedy])
    witness = Witness()
    run(plan, tmp_path, witness)
    assert any("needs 3 GPU" in n for n in witness.notices)
    failure = next(iter(outcomes(plan, tmp_path).values()))
    assert isinstance(failure, Failure)
    assert "3 GPU" in failure.reason


def test_stages_take_turns_where_there_is_room_for_one(tmp_path: Path) -> None:
    """The session's Ray has 4 CPUs; each worker wants 3."""
    wide = replace(LIGHT, num_cpus=3)
    plan = plan_of(
        [sample(i) for i in range(6)],
        write=writer(wide),
        paint=[painter(0, wide)],
        measure=wide,
    )
    result = run(plan, tmp_path)
    assert result.counts["done"] == 6
    assert result.counts["scored"] == 6


def test_malformed_rows_are_counted_as_failed_for_every_system(tmp_path: Path) -> None:
    rows = [sample(0), Malformed(id="SA-9", row=9, reason="row 9: no human turn")]
    plan = plan_of(rows)  # type: ignore[arg-type]
    result = run(plan, tmp_path)
    assert result.counts["planned"] == 4
    assert result.counts["failed"] == 2
    assert result.counts["done"] == 2


def test_pictures_of_a_query_are_read_where_the_worker_runs(tmp_path: Path) -> None:
    import numpy as np

    from generators.pictures import Drawing

    picture = Drawing(np.zeros((8, 8, 3), np.uint8)).encoded()
    file = tmp_path / "a.png"
    file.write_bytes(picture.read())
    image = Image(picture.digest, place=str(file))
    gone = Image("0" * 64, place=str(tmp_path / "gone.png"))
    plan = plan_of([sample(0, images=[image]), sample(1, images=[gone])])
    run(plan, tmp_path / "run")
    ended = outcomes(plan, tmp_path / "run")
    good = ended["writer+painter0", "SA-0"]
    assert isinstance(good, Result)
    assert good.value.text.endswith(picture.digest[:4])
    bad = ended["writer+painter0", "PBL-1"]
    assert isinstance(bad, Failure)
    assert "gone.png" in bad.reason


def test_judgements_that_fail_are_failures_of_the_run(tmp_path: Path) -> None:
    plan = plan_of([sample(0)], paint=[painter()])
    broken = Measuring()
    broken.stage = replace(broken.stage, target="stages:Unloadable")
    broken.stages = (broken.stage,)
    result = run(replace(plan, scorers=[broken]), tmp_path)
    assert (result.counts["failed"], result.counts["failed_scores"]) == (0, 1)
    assert result.failed == 1


def test_whether_workers_see_the_data_is_tried_on_a_picture_they_will_need() -> None:
    """Scorers read pictures of references where no question has any."""
    question, answer = (
        Image("0" * 64, place=f"{name}.png") for name in ("question", "answer")
    )
    answered = replace(sample(0), reference=Document((answer,)))
    assert _probe_of(plan_of([sample(0)])) == []
    assert _probe_of(plan_of([sample(0), answered])) == [("answer.png", "0" * 64)]
    assert (
        _probe_of(plan_of([sample(0, images=[question]), answered]))[0][0] == "question.png"
    )


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
