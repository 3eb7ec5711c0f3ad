"""The engine on Ray with stages that behave and stages that do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from trial import (
    LIGHT,
    Witness,
    board,
    calls,
    outcomes,
    painter,
    plan_of,
    run,
    sample,
    writer,
)

from cluster.schedule import _probe_of
from generators.base import Failure, Fault, Result
from generators.document import Document, Image

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_address")]


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


def test_neither_batch_size_nor_workers_change_keys_or_results(tmp_path: Path) -> None:
    """Most tests run workers as threads; what they make is what processes make."""
    samples = [sample(i) for i in range(9)]
    boards = []
    for size, executor in ((1, "ray"), (16, "ray"), (4, "local")):
        placement = replace(LIGHT, batch_size=size)
        plan = plan_of(samples, write=writer(placement), paint=[painter(0, placement)])
        run(plan, tmp_path / str(size), executor=executor)
        boards.append(board(plan, tmp_path / str(size)))
    assert boards[0] == boards[1] == boards[2]


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
