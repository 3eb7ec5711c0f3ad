"""What holds for a stage of every kind, and for records of it that are older."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kind_helpers import BLUE, EXAMPLES, FORMER, YES_OR_NO, copy_former_part, spec_of
from PIL import Image as Pillow

from plait.benchmarks.runs.forecast.rates import MeasuredRun
from plait.benchmarks.runs.run_directory import RecordedStages, stage_facts
from plait.cluster.loading import load_stage
from plait.cluster.records import SCHEMAS, Item, decode, encode, kind_of
from plait.cluster.store import Store, read_blob
from plait.cluster.verify import check_part
from plait.cluster.worker import Worker
from plait.generators.base import Failure, Job, Kind, Result, Skip, StageSpec
from plait.generators.document import (
    Blob,
    Draft,
    Image,
    Payload,
    Score,
    TransformRequest,
    with_blobs,
)
from plait.generators.returned import VALID, outcome_of
from plait.scorers.judging.aspects import SQUEEZED
from plait.scorers.judging.gedit import SHOWN
from plait.scorers.kept import KEPT

pytestmark = pytest.mark.contract

KINDS = pytest.mark.parametrize("kind", Kind)
OF_ANOTHER_KIND: dict[Kind, Any] = {
    Kind.DRAFT: Score(1.0),
    Kind.CONDITION: BLUE,
    Kind.RENDER: Payload.of(b"codes"),
    Kind.TRANSFORM: Draft((BLUE,)),
    Kind.SCORE: YES_OR_NO,
    Kind.LOGPROBS: Score(0.5, {"answers": {}}),
    Kind.EMBED: b"vector",
}


def jobs_of(kind: Kind) -> list[Job]:
    return [Job(spec_of(kind), given, "q") for given, _ in EXAMPLES[kind]]


def values_in(store: Store, spec: StageSpec) -> dict[str, Any]:
    """The values of a stage's records by key, their bytes read."""
    values = {}
    for key, row in store.rows(spec).items():
        outcome = decode(spec.kind, row)
        assert isinstance(outcome, Result)
        values[key] = with_blobs(outcome.value, whole)
    return values


def whole(blob: Blob) -> Blob:
    return replace(blob, data=read_blob(blob), place=None)


def expected(kind: Kind) -> dict[str, Any]:
    jobs = jobs_of(kind)
    return {j.key: value for j, (_, value) in zip(jobs, EXAMPLES[kind], strict=True)}


@KINDS
def test_a_stage_is_run_and_its_records_are_read(kind: Kind, tmp_path: Path) -> None:
    spec = spec_of(kind)
    worker = Worker(spec, str(tmp_path))
    assert worker.load(shared=True) is None
    receipt = worker.run([Item(job.key, job.label, job.input) for job in jobs_of(kind)])
    assert receipt.status == "done", receipt.error
    store = Store(tmp_path)
    assert values_in(store, spec) == expected(kind)
    (part,) = store.parts(spec)
    check = check_part(part)
    assert (check.damage, check.records) == (None, len(EXAMPLES[kind]))
    assert kind_of(SCHEMAS[kind].names) is FORMER.get(kind, kind)


@KINDS
def test_a_value_of_another_kind_is_refused(kind: Kind) -> None:
    for _, value in EXAMPLES[kind]:
        assert outcome_of(kind, Result(value)) == Result(value)
    with pytest.raises(TypeError):
        outcome_of(kind, OF_ANOTHER_KIND[kind])
    assert VALID[kind]


@KINDS
def test_records_of_an_earlier_version_are_those_of_todays_jobs(
    kind: Kind, tmp_path: Path
) -> None:
    spec = spec_of(kind)
    former = copy_former_part(kind, tmp_path)
    store = Store(tmp_path)
    assert values_in(store, spec) == expected(kind)
    # What is made today joins them.
    again = Job(spec, EXAMPLES[kind][0][0], "q")
    item = Item("made-today", "q", again.input)
    store.commit(spec, encode(kind, [item], [Result(EXAMPLES[kind][0][1])], 0.5))
    store.compact(spec)
    assert not former.exists()
    joined = expected(kind) | {"made-today": EXAMPLES[kind][0][1]}
    assert values_in(Store(tmp_path), spec) == joined


@KINDS
def test_records_are_written_as_an_earlier_version_wrote_them(
    kind: Kind, tmp_path: Path
) -> None:
    spec = spec_of(kind)
    copy_former_part(kind, tmp_path / "former")
    items = [Item(job.key, job.label, job.input) for job in jobs_of(kind)]
    results = [Result(value) for _, value in EXAMPLES[kind]]
    Store(tmp_path / "today").commit(spec, encode(kind, items, results, 0.5))
    names = [name for name in SCHEMAS[kind].names if name != "at"]
    stores = (Store(tmp_path / "former"), Store(tmp_path / "today"))
    former, today = ([*store.columns(spec, names)] for store in stores)
    assert today == former


@pytest.mark.parametrize("kind", FORMER)
def test_a_stage_of_an_earlier_version_is_known_by_the_kind_it_had(
    kind: Kind, tmp_path: Path
) -> None:
    spec = spec_of(kind)
    facts = stage_facts(replace(spec, kind=FORMER[kind], keyed_as=None))
    recorded = RecordedStages({"stages": {spec.folder: facts}})
    assert recorded.former(spec) is None
    assert recorded.as_recorded(spec).digest == spec.digest == facts["digest"]
    # One whose results have changed since gives values of the kind that is asked today.
    changed = replace(spec, version=2, superseded={1: "which was wrong"})
    then = recorded.as_recorded(changed)
    assert (then.digest, then.kind, then.version) == (facts["digest"], kind, 1)
    store: Any = type("Full", (), {"rows": lambda self, spec: {"key": 1}})()
    (change,) = recorded.find_superseded([changed], store)
    assert "version 1, which was wrong, is now 2" in str(change)
    assert "kind" not in str(change)
    # Its times are those of the stage in a forecast.
    measured = MeasuredRun(root=tmp_path, manifest={"stages": {spec.folder: facts}})
    assert measured.folder_of(changed) == spec.folder
    assert measured.folder_of(replace(changed, kind=Kind.EMBED, keyed_as=None)) is None


# --------------------------------------------------------------------- plait's transforms


def noise(seed: int, size: tuple[int, int], mode: str = "RGB") -> Image:
    width, height = size
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    file = io.BytesIO()
    Pillow.fromarray(pixels).convert(mode).save(file, "PNG")
    return Image.of(file.getvalue())


MASK = noise(3, (20, 12), "1")
GIVEN: dict[str, tuple[StageSpec, list[TransformRequest]]] = {
    "kept": (
        KEPT,
        [
            TransformRequest(noise(0, (20, 12)), (noise(1, (20, 12)), MASK)),
            TransformRequest(noise(2, (9, 9)), (noise(1, (20, 12)), MASK)),
            TransformRequest(Image.of(b"broken"), (noise(1, (20, 12)), MASK)),
        ],
    ),
    "shown": (
        SHOWN,
        [
            TransformRequest(noise(0, (20, 12))),
            TransformRequest(noise(0, (20, 12)), (noise(1, (7, 9)),)),
            TransformRequest(Image.of(b"broken")),
        ],
    ),
    "squeezed": (
        SQUEEZED,
        [
            TransformRequest(noise(0, (20, 12))),
            TransformRequest(noise(1, (9, 9), "L")),
            TransformRequest(Image.of(b"broken")),
        ],
    ),
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_transform_gives_each_image_its_own_whatever_stands_beside_it(name: str) -> None:
    spec, requests = GIVEN[name]
    assert (spec.kind, spec.keyed_as) == (Kind.TRANSFORM, Kind.RENDER)
    stage = load_stage(spec)
    *changed, broken = stage(requests)
    assert isinstance(broken, Failure | Skip)
    for request, outcome in zip(requests, changed, strict=False):
        assert stage([request]) == [outcome]
        assert isinstance(outcome_of(spec.kind, outcome), Result)
        assert outcome.value not in request.images
    assert stage([]) == []
