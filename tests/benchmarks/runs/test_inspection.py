"""`plait show` and `plait export` on stores that are whole, half made, or odd."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from boards import results_of
from jsonschema import Draft7Validator
from judging_helpers import chat_spec
from paths import DATA
from trial import (
    CONDITIONER,
    Measuring,
    as_asked,
    filled,
    missing,
    painter,
    rebuild,
    reviewed,
    sample,
    system_of_stages,
    talk,
    writer,
)

from plait.benchmarks.local import LocalScorer
from plait.benchmarks.plain_console import PlainConsole
from plait.benchmarks.results.leaderboard import leaderboard
from plait.benchmarks.runs.config import RunConfig
from plait.benchmarks.runs.experiment import Experiment
from plait.benchmarks.runs.exports import export_documents
from plait.benchmarks.runs.inspection import describe
from plait.benchmarks.runs.run_data import RunData
from plait.benchmarks.tasks.mmie.official import Output, read_outputs
from plait.benchmarks.tasks.task_set import TaskSet
from plait.cluster.records import Item, encode
from plait.cluster.store import Store
from plait.generators.base import Kind, Result
from plait.generators.document import Document, Draft, Image, Malformed, Query, Text
from plait.generators.errors import UsageError
from plait.generators.system import System
from plait.scorers.judging.resolve import JudgeSettings

pytestmark = pytest.mark.contract

SYSTEM = system_of_stages(
    name="deep", draft=writer(), condition=CONDITIONER, render=painter(), rounds=2
)
OBEYED = "\x1b[2J\x9b1m \x1b]0;title\x07\r\x7f\u202e end"
"""Text that clears the screen, sets a title and turns round."""
SEEN = r"\x1b[2J\x9b1m \x1b]0;title\x07\r\x7f\u202e end"
BROKEN = Malformed(id="SA-0", row=7, reason="row 7: the id 'SA-0' is taken")


def experiment(
    *samples: Query | Malformed, system: System = SYSTEM, repeats: int = 1
) -> Experiment:
    task = TaskSet(
        name="t", samples=samples, prompt=as_asked, categories={}, fields=(), about={}
    )
    return Experiment(
        config=RunConfig(repeats=repeats),
        task=task,
        queries=samples,
        systems=(system, replace(system, name="other")),
        scorers=(Measuring(),),
        identities={},
    )


def said(made: Experiment, store: Store, sample_id: str = "SA-0") -> str:
    console = PlainConsole(file=io.StringIO())
    for line in describe(results_of(made, store), sample_id, "deep"):
        console.print(line)
    return console.file.getvalue()


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


def test_every_try_is_shown_with_its_verdict_and_its_cost(tmp_path: Path) -> None:
    system = reviewed(rebuild(SYSTEM, condition=None, rounds=1), threshold=1.0)
    made = experiment(sample(0), system=system)
    shown = said(made, filled(made.plan, tmp_path))
    tries = [json.loads(t) for t in re.findall(r"drawn: (.*)", shown)]
    assert [t["try"] for t in tries] == [1, 2, 3]
    assert sum(t["kept"] for t in tries) == 1
    kept = max(tries, key=lambda t: t["verdict"])
    assert kept["kept"]
    assert all({"images", "seconds"} <= t["drawing"].keys() for t in tries)


def test_pictures_that_came_with_a_reply_are_shown_in_their_places(tmp_path: Path) -> None:
    made = experiment(sample(0), system=system_of_stages(name="deep", draft=writer()))
    job = missing(made.plan, store := Store(tmp_path), Kind.DRAFT)
    assert job is not None
    picture = Image.of(b"\x89PNG")
    segments = (Text("one"), picture, Text(f"[red]{OBEYED}[/red] :smile:"))
    drafted = Result(Draft(segments), notes={"order": OBEYED})
    item = Item(job.key, job.label, job.input)
    store.commit(job.spec, encode(Kind.DRAFT, [item], [drafted], 0.0))
    lines = [line.strip() for line in said(made, store).splitlines()]
    start = lines.index("reply: one")
    # By its digest: the same wherever the run is.
    assert lines[start + 1] == f"reply: (image {picture.digest})"
    assert lines[start + 2] == f"reply: [red]{SEEN}[/red] :smile:"
    assert f"order: {SEEN}" in lines


def test_what_was_thought_before_an_answer_and_a_judgement_is_shown(tmp_path: Path) -> None:
    system, store = (
        system_of_stages(name="deep", draft=writer(style="answer")),
        Store(tmp_path),
    )
    made = experiment(sample(0), system=system)
    made = replace(made, scorers=(JudgeSettings().judge("judge:chatty", chat_spec()),))
    for what in ("answer", "judgement"):
        job = missing(made.plan, store, Kind.DRAFT)
        assert job is not None
        notes = {"thought": f"First the {what}.\nThen its end."}
        reply = Result(Draft((Text("### Score\n5"),)), notes=notes)
        item = Item(job.key, job.label, job.input)
        store.commit(job.spec, encode(Kind.DRAFT, [item], [reply], 0.0))
    shown = said(made, store)
    for what in ("answer", "judgement"):
        assert shown.count(f"thought: First the {what}.\nThen its end.") == 1


def test_a_bad_row_does_not_hide_the_good_one_whose_id_it_bears(tmp_path: Path) -> None:
    for rows in ((sample(0), BROKEN), (BROKEN, sample(0))):
        made = experiment(*rows, repeats=2)
        shown = said(made, filled(made.plan, tmp_path))
        assert "malformed: row 7" in shown
        assert "repeat 1" in shown
        assert shown.count("measure: done") == 2


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    made = experiment(sample(0))
    with pytest.raises(UsageError, match="unknown query 'SA-1'; did you mean 'SA-0'"):
        said(made, Store(tmp_path), "SA-1")
    with pytest.raises(UsageError, match="unknown system 'depe'; did you mean 'deep'"):
        list(describe(results_of(made, Store(tmp_path)), "SA-0", "depe"))


def test_documents_are_exported_before_they_are_judged(tmp_path: Path) -> None:
    made = experiment(sample(0), sample(1), BROKEN)
    store = filled(made.plan, tmp_path / "run", Kind.DRAFT, Kind.CONDITION, Kind.RENDER)
    run = RunData(store.root, results_of(made, store))
    for form in ("mmie", "parquet"):
        assert export_documents(run, "deep", form, tmp_path / form) == 2
    rows = json.loads((tmp_path / "mmie" / "data.json").read_text())
    assert [row["model"] for row in rows] == ["deep", "deep"]
    columns = parquet(tmp_path / "parquet")
    assert columns["seed"] == [None, None], "the text follows from no seed"
    assert (
        columns["scores"] == [[{"scorer": "measure", "outcome": "missing", **NO_VALUE}]] * 2
    )


NO_VALUE = {"value": None, "reason": "not made yet: run the same command again"}


def parquet(folder: Path) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = pq.read_table(folder / "documents.parquet").to_pydict()
    return columns


def test_a_parquet_export_holds_all_repeats_with_questions_and_scores(
    tmp_path: Path,
) -> None:
    told = replace(
        sample(0), reference=Document((Text("So."), Image.of(b"ab"), Text("Yes.")))
    )
    drawing = replace(SYSTEM, draft=replace(writer(), seeded=True))
    made = experiment(told, sample(1), system=drawing, repeats=2)
    first = missing(made.plan, Store(tmp_path / "empty"), Kind.DRAFT)
    assert first is not None
    store = filled(made.plan, tmp_path / "run")
    run = RunData(store.root, results_of(made, store))
    assert export_documents(run, "deep", "parquet", tmp_path / "all", (1, 2)) == 4
    rows = parquet(tmp_path / "all")
    assert (rows["id"], rows["repeat"]) == (["SA-0", "PBL-1"] * 2, [1, 1, 2, 2])
    assert rows["run_seed"] == [made.config.seed] * 4
    assert rows["seed"][0] == first.input.seed  # type: ignore[union-attr]
    assert len(set(rows["seed"])) == 4
    assert rows["question"] == [told.question[0].text, sample(1).question[0].text] * 2
    assert rows["reference"][0] == "So.\n<image>\nYes."
    for scores, answer in zip(rows["scores"], run.answers(), strict=False):
        assert scores[0].pop("value") == answer.scores["measure"].value
        assert scores == [{"scorer": "measure", "outcome": "scored", "reason": ""}]
    assert export_documents(run, "deep", "mmie", tmp_path / "second", (2,)) == 2
    with pytest.raises(UsageError, match="repeat 3 is not from 1 to 2"):
        export_documents(run, "deep", "mmie", tmp_path / "third", (3,))


@cache
def commons_schema(kind: str) -> Draft7Validator:
    """Of every-eval-ever 0.3.0 (MIT): of aggregates and of instances."""
    file = DATA / "every-eval-ever-0.3.0.json.gz"
    return Draft7Validator(json.loads(gzip.decompress(file.read_bytes()))[kind])


@pytest.mark.parametrize(
    ("weights", "source", "folder"),
    [
        ("tiny", "sample", "tiny-weights/deep"),
        ("pretrained", "hf:MMIE/MMIE@main", "composition/deep"),
    ],
)
def test_results_are_exported_for_a_commons(
    weights: Any, source: str, folder: str, tmp_path: Path
) -> None:
    """By its published schema; a talk has its turns, a mean its interval and counts."""
    queries = [*(sample(i) for i in range(5)), talk(6)]
    told = replace(queries[0], reference=Document((Text("So."), Image.of(b"ab"))))
    made = experiment(told, *queries[1:], BROKEN, repeats=2)
    about = {"source": source, "revision": None, "digest": "d"}
    made = replace(
        made,
        config=made.config.model_copy(update={"weights": weights}),
        task=replace(made.task, about=about),
    )
    root = tmp_path / "run"
    run = RunData(root, results_of(made, filled(made.plan, root)))
    facts = {"config": {}, "packages": {"plait": "1"}, "started": "now", "run_digest": "r"}
    (root / "manifest.json").write_text(json.dumps(facts))
    # The answers that are there: a malformed row has none.
    assert export_documents(run, "deep", "every-eval-ever", tmp_path / "out", (1, 2)) == 12
    (file,) = (tmp_path / "out" / "data" / "t" / folder).glob("*.json")
    content = json.loads(file.read_text())
    commons_schema("aggregate").validate(content)
    average, *categories = content["evaluation_results"]
    (row,) = (r for r in leaderboard(run.board) if r["system"] == "deep")
    mean = row["scores"]["measure"]["avg_micro"]
    assert average["score_details"]["score"] == mean["mean"]
    assert average["score_details"]["details"]["failed"] == "2"
    assert average["source_data"]["source_type"] == (
        "hf_dataset" if source.startswith("hf:") else "other"
    )
    metric = average["metric_config"]
    assert (metric["min_score"], metric["max_score"]) == (0, 1)
    assert [c["evaluation_name"] for c in categories] == ["t MSR", "t PBL", "t SA"]

    told_of = content["detailed_evaluation_results"]
    data = (tmp_path / "out" / told_of["file_path"]).read_bytes()
    assert hashlib.sha256(data).hexdigest() == told_of["checksum"]
    lines = [json.loads(line) for line in data.splitlines()]
    assert len(lines) == told_of["total_rows"] == 12
    for line in lines:
        commons_schema("instance").validate(line)
    assert {line["evaluation_result_id"] for line in lines} == {
        average["evaluation_result_id"]
    }
    own = [answer.scores for answer in run.answers(system="deep")]
    known = [scores["measure"].value for scores in own if scores]
    assert [line["evaluation"]["score"] for line in lines] == known
    assert [line["evaluation"]["is_correct"] for line in lines] == [v == 1 for v in known]
    assert lines[0]["input"]["reference"] == ["So.\n<image>"]
    roles = [message["role"] for message in lines[5]["messages"]]
    assert roles == ["user", "assistant", "user", "assistant"]


def test_text_of_older_records_that_is_no_unicode_is_judged_and_exported(
    tmp_path: Path,
) -> None:
    made = experiment(sample(0), system=system_of_stages(name="deep", draft=writer()))
    job = missing(made.plan, store := Store(tmp_path / "run"), Kind.DRAFT)
    assert job is not None
    item, drafted = Item(job.key, job.label, job.input), Result(Draft((Text("a?b"),)))
    table = encode(Kind.DRAFT, [item], [drafted], 0.0)
    i = table.column_names.index("segments")
    older = table["segments"][0].as_py().replace("?", r"\ud800")
    assert r"\ud800" in older
    store.commit(job.spec, table.set_column(i, table.schema.field(i), [[older]]))
    run = RunData(store.root, results_of(made, store))
    (document,) = (answer.document for answer in run.answers(system="deep"))
    assert document is not None
    assert document.plain.text == "a\ufffdb"
    own = Document((Text("of a user \ud83d"), Image.of(b"ab")))
    assert LocalScorer(scorer=Measuring())(sample(0), own).outcome == "scored"
    for form in ("mmie", "parquet"):
        export_documents(run, "deep", form, tmp_path / form)
    assert parquet(tmp_path / "parquet")["text"] == ["a\ufffdb"]
    (output,) = read_outputs(tmp_path / "mmie", cache=tmp_path)
    assert isinstance(output, Output)
    assert output.document.text == "a\ufffdb"
