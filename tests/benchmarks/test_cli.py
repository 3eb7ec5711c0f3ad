"""The command line as a user meets it; runs with models stand in test_end_to_end.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_helpers import plait, plait_process
from paths import CHECKOUT

from plait.benchmarks.runs.reopening import reopen
from plait.generators.errors import UsageError

pytestmark = pytest.mark.contract


@pytest.mark.processes
def test_help_is_light() -> None:
    """No model code, no Ray, no pydantic: so that it answers at once."""
    heavy = ("ray", "torch", "pydantic", "pyarrow", "plait.api")
    code = f"import sys, plait; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("content", [b"[]", b"{}", b"\xff", b"{", b'{"config": 1}'])
def test_a_broken_manifest_is_explained(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"manifest\.json"):
        reopen(tmp_path)


@pytest.mark.processes
def test_an_address_where_no_cluster_answers_is_explained(tmp_path: Path) -> None:
    words = ["--system", "qwen2-vl-72b+sd3", "--weights", "tiny", "--limit", "1"]
    done = plait_process(
        "run", *words, "--address", "nonsense", "--out", str(tmp_path / "run")
    )
    assert done.returncode == 1
    assert "no Ray cluster can be used at 'nonsense'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.models
def test_weights_that_cannot_be_had_are_named_before_anything_starts() -> None:
    done = plait("run", "--system", "qwen2-vl-7b+sd3", "--scorer", "clipscore")
    assert done.returncode == 2
    for model in (
        "Qwen/Qwen2-VL-7B-Instruct",
        "stable-diffusion-3-medium",
        "timm/vit_base",
    ):
        assert model in done.stderr
    assert "plait fetch" in done.stderr


@pytest.mark.processes
def test_a_hub_that_does_not_answer_is_no_traceback() -> None:
    dead = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9"}
    done = plait_process("run", "--system", "gt", **dead)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "timm/vit_base_patch32_clip_224.openai" in done.stderr


@pytest.mark.models
def test_plan_shows_shared_text_once_and_writes_nothing(tmp_path: Path) -> None:
    pairs = [f"qwen2-vl-72b+{t2i}" for t2i in ("sd3", "flux", "sdxl-turbo@text")]
    words = [word for pair in pairs for word in ("--system", pair)]
    done = plait("plan", *words, "--weights", "tiny", "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    row = next(x for x in done.stdout.splitlines() if x.startswith(" qwen2-vl-72b"))
    assert row.split()[:6] == ["qwen2-vl-72b", "draft", "120", "80", "0", "40"]
    assert "120 requests share 40 records" in done.stdout
    assert not (tmp_path / "run").exists()


@pytest.mark.models
def test_plan_names_what_is_missing() -> None:
    done = plait("plan", "--system", "gpt-4o+sd3")
    assert done.returncode == 2
    assert "OPENAI_API_KEY" in done.stdout
    assert "gpt-6.1-sol" in done.stdout
    assert "stable-diffusion-3-medium" in done.stdout
    assert "GPU" in done.stdout


TRUTH = ("run", "--system", "gt", "--scorer", "stages:Constant", "--weights", "tiny")


@pytest.mark.processes
def test_a_run_may_start_a_ray_of_its_own(tmp_path: Path) -> None:
    done = plait_process(*TRUTH, "--limit", "9", "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "run" / "leaderboard.json").read_text())
    assert (row["n"], row["done"]) == (9, 9)


@pytest.fixture(scope="module")
def truth_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the ground truth."""
    root = tmp_path_factory.mktemp("truth") / "run"
    done = plait(*TRUTH, "--limit", "9", "--out", str(root))
    assert done.returncode == 0, done.stderr
    return root


def test_a_run_ends_with_table_and_paths(truth_run: Path) -> None:
    again = plait(*TRUTH, "--limit", "9", "--out", str(truth_run))
    assert again.returncode == 0
    assert "nothing is missing" in again.stdout
    assert "Starting workers" not in again.stdout
    assert f"report      {truth_run}/report.html" in again.stdout
    rows = json.loads((truth_run / "leaderboard.json").read_text())
    assert [(r["system"], r["n"], r["done"]) for r in rows] == [("gt", 9, 9)]
    manifest = json.loads((truth_run / "manifest.json").read_text())
    assert manifest["status"] == "finished"
    assert manifest["config"]["limit"] == 9


def test_a_run_directory_can_be_shown_exported_and_reported(
    truth_run: Path, tmp_path: Path
) -> None:
    shown = plait("show", str(truth_run), "SA-404")
    assert shown.returncode == 2
    assert "unknown query 'SA-404'; did you mean" in shown.stderr
    exported = plait(
        "export", str(truth_run), "--system", "gt", "--out", str(tmp_path / "x")
    )
    assert exported.returncode == 0, exported.stderr
    rows = json.loads((tmp_path / "x" / "data.json").read_text())
    assert len(rows) == 9
    assert {"id", "question", "answer", "model", "gt_answer"} <= set(rows[0])
    (truth_run / "leaderboard.md").unlink()
    assert plait("report", str(truth_run)).returncode == 0
    assert (truth_run / "leaderboard.md").exists()


def test_answers_of_another_tool_are_scored(truth_run: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "theirs", tmp_path / "scored"
    plait("export", str(truth_run), "--system", "gt", "--out", str(folder))
    words = ["--scorer", "stages:Constant", "--weights", "tiny", "--out", str(out)]
    done = plait("score", str(folder), *words)
    assert done.returncode == 0, done.stderr
    theirs = json.loads((out / "leaderboard.json").read_text())
    ours = json.loads((truth_run / "leaderboard.json").read_text())
    assert theirs[0]["scores"] == ours[0]["scores"]


ENDLESS = """
import shutil
from pathlib import Path
import torch
from plait.generators.base import Placement, Result
from plait.generators.document import Draft, Text

class Endless:  # no record of its first batch can be written while the second computes
    kind, placement = "draft", Placement(batch_size=1)
    def __init__(self, **_):
        self.batches = 0
    def __call__(self, requests):
        self.batches += 1
        if self.batches == 1:
            (folder,) = Path("run").glob("stages/Endless-*")
            shutil.rmtree(folder)
            folder.write_text("no folder")
            return [Result(Draft((Text("text"),))) for _ in requests]
        while True:
            torch.ones(64, 64) @ torch.ones(64, 64)
"""


@pytest.mark.processes
def test_a_run_that_cannot_go_on_ends_in_order_while_a_batch_is_computed(
    tmp_path: Path,
) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    words = ["--system", "endless:Endless@text", "--weights", "tiny", "--limit", "4"]
    words += ["--executor", "local", "--set", "scorers=[]", "--out", "run"]
    command = [sys.executable, "-m", "plait", "run", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, "cannot write" in done.stderr) == (1, True), done.stderr
