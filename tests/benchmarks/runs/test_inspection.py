"""`plait show` and `plait export` on stores that are whole, half made, or odd."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from trial import (
    CONDITIONER,
    Measuring,
    as_asked,
    filled,
    missing,
    painter,
    sample,
    writer,
)

from benchmarks.runs.config import RunConfig
from benchmarks.runs.experiment import Experiment
from benchmarks.runs.exports import export_documents
from benchmarks.runs.inspection import describe
from benchmarks.tasks.task_set import TaskSet
from cluster.records import Item, encode
from cluster.store import Store
from generators.base import Kind, Result
from generators.document import Draft, Image, Malformed, Sample, Text
from generators.errors import UsageError
from generators.system import System

SYSTEM = System(
    name="deep", draft=writer(), condition=CONDITIONER, render=painter(), rounds=2
)
BROKEN = Malformed(id="SA-0", row=7, reason="row 7: the id 'SA-0' is taken")


def experiment(
    *samples: Sample | Malformed, system: System = SYSTEM, repeats: int = 1
) -> Experiment:
    task = TaskSet(
        name="t", samples=samples, prompt=as_asked, categories={}, fields=(), about={}
    )
    return Experiment(
        config=RunConfig(repeats=repeats),
        task=task,
        samples=samples,
        systems=(system, replace(system, name="other")),
        scorers=(Measuring(),),
        identities={},
    )


def said(made: Experiment, store: Store, sample_id: str = "SA-0") -> str:
    return "\n".join(describe(made, store, sample_id, "deep"))


def test_every_stage_of_every_round_is_shown(tmp_path: Path) -> None:
    made = experiment(sample(0))
    shown = said(made, filled(made.plan, tmp_path))
    kinds = [
        line.split("(")[1].split(")")[0] for line in shown.splitlines() if ", key " in line
    ]
    assert kinds == ["draft", "condition", "render"] * 2 + ["score"]
    assert shown.count("conditioned: 1") == 2
    assert "not made" not in shown
    assert "measure: done" in shown


def test_what_a_picture_is_conditioned_on_is_shown(tmp_path: Path) -> None:
    def with_context(draft: Draft, sample: Sample) -> Draft:
        told = (replace(r, context=(Image("ab", place="a.png"),)) for r in draft.requests)
        return replace(draft, segments=tuple(told))

    system = replace(SYSTEM, compose=with_context, rounds=1)
    made = experiment(sample(0), system=system)
    store = filled(made.plan, tmp_path, Kind.DRAFT)
    assert "context: (picture a.png)" in said(made, store)


def test_pictures_that_came_with_a_reply_are_shown_in_their_places(tmp_path: Path) -> None:
    made = experiment(sample(0), system=System(name="deep", draft=writer()))
    job = missing(made.plan, store := Store(tmp_path), Kind.DRAFT)
    assert job is not None
    picture = Image.of(b"\x89PNG")
    drafted = Result(Draft((Text("one"), picture, Text("two"))), notes={"order": "unknown"})
    item = Item(job.key, job.label, job.input)
    store.commit(job.spec, encode(Kind.DRAFT, [item], [drafted], 0.0))
    lines = [line.strip() for line in said(made, store).splitlines()]
    start = lines.index("reply: one")
    assert lines[start + 1].startswith("reply: (picture ")
    assert lines[start + 1].endswith("#images#0)")
    assert lines[start + 2] == "reply: two"
    assert "order: unknown" in lines


def test_a_bad_row_does_not_hide_the_good_one_whose_id_it_bears(tmp_path: Path) -> None:
    for rows in ((sample(0), BROKEN), (BROKEN, sample(0))):
        made = experiment(*rows, repeats=2)
        shown = said(made, filled(made.plan, tmp_path))
        assert "malformed: row 7" in shown
        assert "repeat 1" in shown
        assert shown.count("measure: done") == 2


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    made = experiment(sample(0))
    with pytest.raises(UsageError, match="unknown sample 'SA-1'; did you mean 'SA-0'"):
        said(made, Store(tmp_path), "SA-1")
    with pytest.raises(UsageError, match="unknown system 'depe'; did you mean 'deep'"):
        list(describe(made, Store(tmp_path), "SA-0", "depe"))


def test_documents_are_exported_before_they_are_judged(tmp_path: Path) -> None:
    made = experiment(sample(0), sample(1), BROKEN)
    store = filled(made.plan, tmp_path / "run", Kind.DRAFT, Kind.CONDITION, Kind.RENDER)
    for form in ("mmie", "parquet"):
        assert export_documents(made, store, "deep", form, tmp_path / form) == 2
    rows = json.loads((tmp_path / "mmie" / "data.json").read_text())
    assert [row["model"] for row in rows] == ["deep", "deep"]


def test_only_whole_documents_are_exported(tmp_path: Path) -> None:
    made = experiment(sample(0), sample(1))
    store = filled(made.plan, tmp_path / "run", Kind.DRAFT, Kind.CONDITION)
    assert export_documents(made, store, "deep", "mmie", tmp_path / "out") == 0
