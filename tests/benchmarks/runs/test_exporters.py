"""Results of a recorded run in the formats of trackers and of model pages."""

from __future__ import annotations

import json
import math
import operator
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import pytest
import yaml
from cli_helpers import plait as command
from golden_runs import AUTHOR, EXAMINER, HERE, NATIVE, OUTLINER, PENCIL, RUNS
from huggingface_hub import eval_result_entries_to_yaml, parse_eval_result_entries
from PIL import Image as Pillow

import plait
import plait.cli
from plait.benchmarks.results.leaderboard import leaderboard
from plait.benchmarks.runs import exports
from plait.benchmarks.runs.exporters import eval_results, mlflow_runs, tracked, trackio_runs
from plait.benchmarks.runs.exporters.tracked import TrackedSystem, TrackerClient
from plait.benchmarks.runs.run_data import RunData
from plait.benchmarks.tasks.reading.rules import TaskError
from plait.generators.errors import UsageError, WriteError

pytestmark = pytest.mark.contract

PROJECT, GROUP = "mmie", "run"
COMPOSED = f"{AUTHOR}+{PENCIL}"
CRITIC = f"{OUTLINER}+{PENCIL}@critic={EXAMINER}"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    """A native model, compositions and the ground truth; some answers failed or skipped."""
    folder = tmp_path_factory.mktemp("recorded")
    shutil.copytree(RUNS / "mmie", folder, dirs_exist_ok=True)
    for manifest in folder.rglob("manifest.json"):
        manifest.write_text(manifest.read_text().replace(HERE, str(folder)))
    return RunData.at(folder / GROUP)


@pytest.fixture(scope="module")
def of_native(run: RunData, tmp_path_factory: pytest.TempPathFactory) -> TrackedSystem:
    place = tmp_path_factory.mktemp("tracked")
    (found,) = tracked.iter_systems(run, [NATIVE], place)
    return found


def row_of(run: RunData, system: str) -> dict[str, Any]:
    (row,) = (row for row in leaderboard(run.board) if row["system"] == system)
    return row


def test_the_command_knows_every_format() -> None:
    form, *_ = get_args(get_type_hints(plait.cli.export, include_extras=True)["format"])
    assert get_args(form) == (*exports.FORMATS, *exports.RUN_FORMATS)


# ----------------------------------------------------------------------------- trackers


def test_metrics_are_the_means_and_counts_of_the_leaderboard(
    run: RunData, of_native: TrackedSystem
) -> None:
    row, metrics = row_of(run, NATIVE), of_native.metrics
    assert row["failed"] > 0
    assert row["skipped"] > 0
    for name in ("planned", "done", "failed", "skipped", "missing"):
        assert metrics[f"answers/{name}"] == row[name]
    for scorer, scores in row["scores"].items():
        cells = {average: scores[average] for average in ("avg_fixed", "avg_micro")}
        cells |= {f"category/{name}": c for name, c in scores["categories"].items()}
        for place, cell in cells.items():
            assert metrics[f"{scorer}/{place}/n"] == cell["n"]
            assert metrics.get(f"{scorer}/{place}/mean") == cell["mean"]
            reason = of_native.config["reasons"].get(f"{scorer}/{place}")
            assert reason == cell.get("reason")
    assert "bleu/avg_fixed/mean" not in metrics, "no query of MSR is scored"
    assert metrics["bleu/scored"] == row["scores"]["bleu"]["avg_micro"]["scored"]
    assert all(math.isfinite(value) for value in metrics.values())


def test_intervals_have_both_ends(run: RunData) -> None:
    row = deepcopy(row_of(run, NATIVE))
    row["scores"]["bleu"]["avg_micro"]["ci95"] = [1.0, 2.0]
    metrics = tracked.metrics_of(row)
    assert metrics["bleu/avg_micro/ci95_low"] == 1
    assert metrics["bleu/avg_micro/ci95_high"] == 2


def test_a_config_names_models_and_settings_and_no_place(
    run: RunData, of_native: TrackedSystem
) -> None:
    config = of_native.config
    assert config["models"]["Illustrator"] == {"model": NATIVE, "weights": "tiny"}
    assert config["scorers"]["bleu"]["direction"] == "higher"
    assert (config["weights"], config["seed"], config["repeats"]) == ("tiny", 0, 1)
    assert config["run_digest"] == run.manifest["run_digest"]
    assert config["warning"] == of_native.warning == run.board.warning
    assert "random weights" in of_native.warning
    assert str(run.root.parent) not in json.dumps(config)


def test_a_table_of_answers_has_images_scores_and_reasons(
    run: RunData, of_native: TrackedSystem
) -> None:
    answers = run.answers(system=NATIVE)
    asked = [answer.query.id for answer in answers]
    assert [row["query"] for row in of_native.rows] == asked
    for row, answer in zip(of_native.rows, answers, strict=True):
        assert (row["outcome"], row["reason"]) == (answer.outcome, answer.reason)
        drawn = [] if answer.document is None else answer.document.pictures
        shown = [Pillow.open(path) for path in row["images"]]
        assert [i.tobytes() for i in shown] == [p.tobytes() for p in drawn]
        for scorer in run.scorers:
            verdict = answer.scores.get(scorer)
            assert row[scorer] == (verdict and verdict.value)
            why = verdict is not None and verdict.value is None
            assert bool(row[f"{scorer}: why not"]) == why
    why_not = {row["api_helpers:PictureCount: why not"] for row in of_native.rows}
    assert len(why_not) == 2, "one has failed"
    assert {row["outcome"] for row in of_native.rows} == {"done", "failed", "skipped"}


def test_tables_show_the_first_queries_and_say_so(
    run: RunData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracked, "MOST_QUERIES", 2)
    (found,) = tracked.iter_systems(run, ["gt"], tmp_path)
    assert [row["query"] for row in found.rows] == list(run.queries)[:2]
    assert found.config["table"] == "the first 2 of 7 queries"
    assert found.metrics["answers/planned"] == 7


def test_what_was_written_before_an_error_is_removed(run: RunData, tmp_path: Path) -> None:
    client = TrackerClient(
        form="wandb",
        modules=(),
        write=operator.truediv,
        prefix="WANDB_",
        variables=lambda out: {"WANDB_MODE": "offline"},
    )
    out, full = tmp_path / "out", tmp_path / "full"
    before = dict(os.environ)
    with pytest.raises(TypeError, match="unsupported operand"):
        tracked.write_tracked(run, ["gt"], out, client)
    assert not out.exists()
    assert dict(os.environ) == before
    full.mkdir()
    (full / "notes.txt").write_text("of somebody else")
    with pytest.raises(TaskError, match="is not empty"):
        tracked.write_tracked(run, ["gt"], full, client)
    assert [path.name for path in full.iterdir()] == ["notes.txt"]


def exported(run: RunData, form: str, folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """All systems, where the environment names servers and a home that stays empty."""
    home, out = folder / "home", folder / "out"
    home.mkdir()
    nowhere = "http://127.0.0.1:9"
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME"):
        patch.setenv(name, str(home))
    patch.setenv("WANDB_MODE", "online")
    patch.setenv("WANDB_BASE_URL", nowhere)
    patch.setenv("MLFLOW_TRACKING_URI", nowhere)
    patch.setenv("TRACKIO_SERVER_URL", nowhere)
    patch.chdir(home)
    said = exports.export_results(run, None, form, out)
    assert said.startswith(f"4 systems written to {out}; ")
    assert [*home.rglob("*")] == []
    assert not (out / "images").exists()
    return out


def test_a_wandb_run_is_read_back(
    run: RunData,
    of_native: TrackedSystem,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    out = exported(run, "wandb", tmp_path, monkeypatch)
    found = {}
    for file in out.glob("wandb/offline-run-*/run-*.wandb"):
        records: dict[str, Any] = {}
        for data in wandb_records(file.read_bytes()):
            record = wire.Record()
            record.ParseFromString(data)
            kind = record.WhichOneof("record_type")
            records[kind] = getattr(record, kind)
        found[records["run"].display_name] = records
    assert found.keys() == set(run.systems)
    records = found[NATIVE]
    about = records["run"]
    assert (about.project, about.run_group) == (PROJECT, GROUP)
    assert (list(about.tags), about.notes) == (["tiny"], run.board.warning)
    assert not about.host
    config = {u.key: json.loads(u.value_json) for u in about.config.update}
    assert config["models"] == of_native.config["models"]
    logged = {i.nested_key[0]: i.value_json for i in records["history"].item}
    for name, value in of_native.metrics.items():
        assert json.loads(logged[name]) == value
    files = {c.path: Path(c.local_path) for c in records["artifact"].manifest.contents}
    table = json.loads(files["answers.table.json"].read_text())
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert [row["query"] for row in rows] == list(run.queries)
    for row, original in zip(rows, of_native.rows, strict=True):
        shown = [row[f"image {n}"] for n in (1, 2)]
        paths = [files[image["path"]] for image in shown if image]
        expected = [Path(path).read_bytes() for path in original["images"]]
        assert [path.read_bytes() for path in paths] == expected
        assert row["bleu"] == original["bleu"]


def wandb_records(data: bytes) -> Iterator[bytes]:
    """The records of an offline run: LevelDB's log format after a header of 7 bytes."""
    place, block, header = 7, 32_768, struct.Struct("<IHB")
    record = b""
    while place < len(data):
        left = block - place % block
        if left < header.size:
            place += left
            continue
        _, size, kind = header.unpack_from(data, place)
        place += header.size
        record += data[place : place + size]
        place += size
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def test_an_mlflow_store_is_read_back(
    run: RunData,
    of_native: TrackedSystem,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mlflow = pytest.importorskip("mlflow")
    out = exported(run, "mlflow", tmp_path, monkeypatch)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (out / mlflow_runs.STORE).as_uri())
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name(PROJECT)
    runs = {
        found.info.run_name: found
        for found in client.search_runs([experiment.experiment_id])
    }
    assert runs.keys() == set(run.systems)
    found = runs[NATIVE]
    assert found.info.status == "FINISHED"
    assert found.data.metrics == of_native.metrics
    assert found.data.tags["plait.run"] == GROUP
    assert found.data.tags["mlflow.note.content"] == run.board.warning
    assert found.data.params["scorers.bleu.scale"] == "0-100"
    place = Path(found.info.artifact_uri.removeprefix("file://"))
    assert json.loads((place / "config.json").read_text()) == of_native.config
    which = [found.info.run_id]
    answers = client.load_table(experiment.experiment_id, "answers.json", which)
    assert answers["query"].tolist() == list(run.queries)
    images = client.load_table(experiment.experiment_id, "images.json", which)
    drawn = [path for row in of_native.rows for path in row["images"]]
    stored = [place / image["filepath"] for image in images[images.of == "answer"].image]
    assert [pixels(path) for path in stored] == [pixels(path) for path in drawn]


def pixels(path: str | Path) -> bytes:
    with Pillow.open(path) as image:
        return image.convert("RGB").tobytes()


READ_TRACKIO = """
import json, trackio
from trackio.sqlite_storage import SQLiteStorage
for run in trackio.Api().runs("mmie"):
    logs = SQLiteStorage.get_logs("mmie", run.name)
    print(json.dumps({"name": run.name, "config": run.config, "logs": logs}))
"""


def test_a_trackio_store_is_read_back(
    run: RunData,
    of_native: TrackedSystem,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("trackio")
    out = exported(run, "trackio", tmp_path, monkeypatch)
    read = subprocess.run(
        [sys.executable, "-c", READ_TRACKIO],
        env=os.environ | {"TRACKIO_DIR": str(out)},
        capture_output=True,
        text=True,
        check=True,
    )
    runs = {own["name"]: own for own in map(json.loads, read.stdout.splitlines())}
    assert runs.keys() == set(run.systems)
    found = runs[NATIVE]
    assert found["config"]["_Group"] == GROUP
    assert found["config"]["warning"] == run.board.warning
    (logged,) = found["logs"]
    assert {name: logged[name] for name in of_native.metrics} == of_native.metrics
    for row, original in zip(logged["answers"]["_value"], of_native.rows, strict=True):
        assert row["query"] == original["query"]
        assert row["bleu"] == original["bleu"]
        paths = [out / "media" / image["file_path"] for image in row["images"]]
        expected = [Path(path).read_bytes() for path in original["images"]]
        assert [path.read_bytes() for path in paths] == expected


class Calls:
    """Stands for a client that is not installed: what it was asked to keep."""

    def __init__(self) -> None:
        self.made: list[tuple[str, tuple[Any, ...], Mapping[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            self.made.append((name, args, named))
            if name == "runs":
                return [SimpleNamespace(name=NATIVE)]
            return None if name == "get_experiment_by_name" else self

        return call

    def args(self, name: str) -> list[tuple[Any, ...]]:
        return [args for made, args, _ in self.made if made == name]


def test_mlflow_is_given_names_and_tables_that_it_takes(
    of_native: TrackedSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the rules of mlflow.utils.validation and of MlflowClient.log_table, 3.17."""
    calls = Calls()
    calls.info = SimpleNamespace(run_id="id")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", calls)
    odd = replace(of_native, metrics={**of_native.metrics, "judge:a@b+c/n": 1})
    mlflow_runs.write(odd, tmp_path)
    metrics = {name: value for _, name, value in calls.args("log_metric")}
    assert len(metrics) == len(odd.metrics)
    assert metrics["judge:a_b_c/n"] == 1
    params = {name: value for _, name, value in calls.args("log_param")}
    assert all(re.fullmatch(r"[/\w.\- :]{1,250}", name) for name in [*metrics, *params])
    assert all(len(value) <= 500 for value in params.values())
    tables = {file: columns for _, columns, file in calls.args("log_table")}
    assert tables.keys() == {"answers.json", "images.json"}
    for columns in tables.values():
        assert len({len(values) for values in columns.values()}) == 1
    shown = sum(len(row["images"]) for row in odd.rows)
    assert tables["images.json"]["of"].count("answer") == shown


def test_trackio_is_given_a_run_in_a_group(
    of_native: TrackedSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls()
    monkeypatch.setitem(sys.modules, "trackio", calls)
    trackio_runs.write(of_native, tmp_path)
    ((_, project, named),) = (made for made in calls.made if made[0] == "init")
    assert project == (PROJECT,)
    assert (named["name"], named["group"]) == (NATIVE, GROUP)
    ((logged,),) = calls.args("log")
    assert logged.keys() == {*of_native.metrics, "answers"}
    images = sum(len(r["images"]) + len(r["question images"]) for r in of_native.rows)
    assert len(calls.args("Image")) == images
    with pytest.raises(WriteError, match="could not write"):
        trackio_runs.write(replace(of_native, name="another"), tmp_path)


# -------------------------------------------------------------------------- model pages

MODEL = "org/model"


def as_published(
    run: RunData, *systems: str, weights: str = "pretrained", **about: Any
) -> Any:
    """The run as if some of its systems were a published model, on data of the Hub."""
    content = {**run.manifest, "finished": "2026-01-02T03:04:05Z", **about}
    hub = {"source": "hf:me/set@main", "revision": "0" * 40}
    content["data"] = content["data"] | hub

    def published(system: Any) -> Any:
        roles = {}
        for role, stage in system.roles.items():
            roles[role] = replace(stage, identity=f"{MODEL}@abc", weights=weights)
        return replace(system, roles=roles)

    board = replace(
        run.board,
        systems=[
            published(system) if system.name in systems else system
            for system in run.board.systems
        ],
    )
    return SimpleNamespace(manifest=content, board=board, scorers=run.scorers)


def test_results_are_entries_of_a_model_page(run: RunData, tmp_path: Path) -> None:
    known = as_published(run, COMPOSED)
    out = tmp_path / "my results"
    said = eval_results.export(known, run.systems, out, "test=bleu")
    assert "gt: it has no model" in said
    command = shlex.split(said.split("`")[1])
    assert command == ["hf", "upload", MODEL, str(out / MODEL), ".", "--create-pr"]
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert file == out / MODEL / ".eval_results" / "set.yaml"
    content = yaml.safe_load(file.read_text())
    (entry,) = entries = parse_eval_result_entries(content)
    assert eval_result_entries_to_yaml(entries) == content
    assert (entry.dataset_id, entry.task_id) == ("me/set", "test")
    assert (entry.dataset_revision, entry.date) == ("0" * 40, "2026-01-02T03:04:05Z")
    row = row_of(run, COMPOSED)
    assert entry.value == row["scores"]["bleu"]["avg_fixed"]["mean"]
    parts = str(entry.notes).split("; ")
    assert parts[1] == "bleu (0-100, higher is better)"
    assert parts[2] == "mean by fixed weights, n=4, 95% interval none"
    assert parts[3].startswith("of 7 answers, 4 done, 2 failed, 1 skipped")
    assert parts[4] == "weights org/model@abc"


LIMITED = {"selection": "3 of 7 queries"}


@pytest.mark.parametrize(
    ("systems", "about", "task", "why"),
    [
        ([COMPOSED], LIMITED, "test=bleu", "only part of the queries"),
        ([COMPOSED], {}, None, r"needs --task ID=SCORER: .* me/set, .* bleu, "),
        ([COMPOSED], {}, "test=", "needs --task ID=SCORER"),
        ([COMPOSED], {}, "test=blue", "unknown scorer 'blue'; did you mean 'bleu'"),
        ([COMPOSED], {}, "test=clipscore", "clipscore ran with weights .* .tiny"),
        ([COMPOSED, CRITIC], {}, "test=bleu", "are both org/model, which has"),
        ([NATIVE], {}, "test=bleu", f"{NATIVE}: it has no mean: no scored query in MSR"),
        ([COMPOSED], {"weights": "mini"}, "test=bleu", "not the published ones .mini"),
        (
            [],
            {},
            "test=bleu",
            "no system corresponds to a model on the Hub. gt: it has no model",
        ),
    ],
)
def test_what_no_model_page_can_say_is_refused(
    run: RunData,
    systems: list[str],
    about: dict[str, Any],
    task: str | None,
    why: str,
    tmp_path: Path,
) -> None:
    known = as_published(run, *systems, **about)
    with pytest.raises(UsageError, match=why):
        eval_results.export(known, run.systems, tmp_path, task)
    assert [*tmp_path.iterdir()] == []


def test_data_of_a_folder_are_no_benchmark_of_the_hub(run: RunData, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a data set on the Hub"):
        eval_results.export(run, run.systems, tmp_path, "test=bleu")


# ------------------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--format", "mmie"), "--format mmie needs --system, one of gt, "),
        (("--format", "wandb", "--repeat", "1"), "--repeat selects documents"),
        (("--format", "mlflow", "--task", "a=b"), "--task is for --format eval-results"),
        (("--format", "trackio", "--system", "gtt"), "did you mean 'gt'"),
        (("--format", "eval-results"), "not a data set on the Hub"),
    ],
)
def test_options_that_say_nothing_of_a_format_are_refused(
    run: RunData, words: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    done = command("export", str(run.root), "--out", str(tmp_path / "out"), *words)
    assert done.returncode == 2
    assert why in done.stderr
    assert not (tmp_path / "out").exists()
