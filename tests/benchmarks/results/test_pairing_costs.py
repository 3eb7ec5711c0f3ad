"""What one document of a pairing costs, from the records it is made of."""

from __future__ import annotations

import json
from typing import Any

import pytest
from report_helpers import answer, sample

from benchmarks.results.costs import CostNotes, RecordCosts, RunCosts
from cluster.plan import Evaluation
from generators.base import Failure, Fault, Job, Kind, Placement, ServerCommand, StageSpec
from generators.document import ImageRequest, Request, Text, Turn
from generators.system import System


def stage(name: str, kind: Kind, **placement: Any) -> StageSpec:
    return StageSpec(
        name=name, kind=kind, target=f"none:{name}", placement=Placement(**placement)
    )


WRITE = stage("writer", Kind.DRAFT, num_gpus=2)
PAINT = stage("artist", Kind.RENDER, num_gpus=0.5)
ASK = stage("remote", Kind.DRAFT, endpoint="https://models.example/v1")
OWN = stage(
    "served",
    Kind.DRAFT,
    endpoint="http://localhost/v1",
    server=ServerCommand(name="s", argv=("serve",)),
)


class Records:
    """A store that holds some records, each by its job: seconds and usage."""

    def __init__(self, *rows: tuple[Job, float | None, dict[str, float]]) -> None:
        self.rows = rows

    repairs = False

    def key_of(self, job: Job) -> str:
        return job.key

    def columns(self, spec: StageSpec, names: list[str]):
        for job, seconds, usage in self.rows:
            if job.spec == spec:
                row = {"usage": json.dumps(usage), "seconds": seconds}
                yield {"key": job.key} | {name: row[name] for name in names}


def text(number: int, spec: StageSpec = WRITE) -> Job:
    turns = (Turn("user", (Text(f"Question {number}"),)),)
    return Job(spec, Request(turns), f"Q-{number:04d}")


def picture(prompt: str, seed: int) -> Job:
    return Job(PAINT, ImageRequest(prompt=prompt, seed=seed), "Q")


def system(write: StageSpec = WRITE) -> System:
    name = f"{write.name}+artist"
    return System(name=name, draft=write, render=PAINT, writer=write.name, artist="artist")


DONE = answer("Said.")


def asked(own: System, number: int, *jobs: Job, outcome=DONE, repeat=0) -> Evaluation:
    return Evaluation(own.name, sample(number), repeat, outcome, {}, {"": jobs})


def costs_of(own: System, records: Records, *documents: Evaluation) -> RunCosts:
    notes = CostNotes([own], RecordCosts(records))
    for document in documents:
        notes.add(document)
    return notes.costs()


def test_a_document_costs_the_seconds_and_gpus_of_its_records() -> None:
    jobs, own = [text(0), picture("a cat", 5), picture("a dog", 6)], system()
    tokens = {"input_tokens": 10, "output_tokens": 4, "steps": 9}
    rows = [(jobs[0], 3.0, tokens), (jobs[1], 4.0, {}), (jobs[2], 6.0, {})]
    records = Records(*rows, (text(1), 50.0, tokens))
    other = System(name="native", draft=WRITE)
    costs = costs_of(own, records, asked(own, 0, *jobs), asked(other, 0, text(1)))
    (document,) = costs.documents
    assert (document.system, document.query, document.repeat) == (own.name, "Q-0000", 0)
    assert costs.of(document) == {
        "seconds": 13.0,
        # Two GPUs for the text, half of one for each picture.
        "gpu_seconds": 3 * 2 + (4 + 6) / 2,
        "input_tokens": 10.0,
        "output_tokens": 4.0,
        "pictures": 2.0,
    }
    assert document.requests == {Kind.DRAFT: 1, Kind.RENDER: 2}
    assert document.seeds == {0: 5, 1: 6}


@pytest.mark.parametrize(
    ("outcome", "done"),
    [(DONE, True), (Failure("no", Fault.OUT_OF_MEMORY), False), (None, False)],
)
def test_only_finished_documents_are_done(outcome, done) -> None:
    made = asked(system(), 0, text(0), picture("a cat", 5), outcome=outcome)
    costs = costs_of(system(), Records((text(0), None, {})), made)
    (document,) = costs.documents
    assert document.done is done
    # The picture was asked for and is not there yet.
    assert document.records == {text(0).key}
    assert costs.of(document)["seconds"] == 0


@pytest.mark.parametrize(("usage", "told"), [({"joules": 100.0}, 130.0), ({}, None)])
def test_energy_counts_only_where_every_record_of_a_stage_tells_it(usage, told) -> None:
    jobs = [text(0), text(1), picture("a cat", 5)]
    rows = [(jobs[0], 1.0, {"joules": 100.0}), (jobs[2], 1.0, {"joules": 30.0})]
    made = [asked(system(), i, jobs[i], jobs[2]) for i in range(2)]
    costs = costs_of(system(), Records(*rows, (jobs[1], 1.0, usage)), *made)
    assert [costs.of(d).get("joules") for d in costs.documents] == [told, told]


@pytest.mark.parametrize(
    ("write", "silent"), [(ASK, {"remote"}), (OWN, set()), (WRITE, set())]
)
def test_an_endpoint_without_prices_has_unknown_costs_and_own_models_have_none(
    write, silent
) -> None:
    own, job = system(write), text(0, write)
    unpriced = costs_of(own, Records((job, 1.0, {})), asked(own, 0, job))
    assert unpriced.unmeasured["cost"] == silent
    priced = costs_of(own, Records((job, 1.0, {"cost": 0.25})), asked(own, 0, job))
    assert priced.unmeasured["cost"] == set()
    assert priced.of(priced.documents[0])["cost"] == 0.25
