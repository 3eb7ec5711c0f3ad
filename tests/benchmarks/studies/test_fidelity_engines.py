"""What makes an engine faster and its answers worse is noticed, on mini weights.

Each lever is one that an engine may pull, by mistake or on purpose: fewer steps, another
scheduler, another chat template. A lever that changes nothing but rounding passes.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import mini_helpers as helpers
import pytest
from api_helpers import fill
from cli_helpers import plait

from plait.benchmarks.studies.fidelity import Gate, gate_of_runs, parse_margins
from plait.generators.mini.table import SHIPPED

pytestmark = [
    pytest.mark.models,
    pytest.mark.skipif(not SHIPPED.exists(), reason="no mini weights in the checkout"),
]
DRAWER = "openjourney"
WRITER = "qwen2-vl-7b"
PROMPTS = [
    f"a {colour} {shape} {place} a circle\n"
    for colour in ("red", "blue")
    for shape in ("square", "triangle")
    for place in ("left of", "above")
]


def drawn(root: Path, **settings: Any) -> Path:
    prompts = root.parent / "prompts.txt"
    prompts.write_text("".join(PROMPTS))
    fill(
        root,
        data=f"prompts:{prompts}",
        systems=[f"{DRAWER}@t2i"],
        scorers=["clipscore-prompt"],
        weights="mini",
        models={DRAWER: settings},
    )
    return root


def written(root: Path, **settings: Any) -> Path:
    fill(
        root,
        data="miniature:12",
        systems=[f"{WRITER}@text"],
        scorers=[],
        weights="mini",
        models={WRITER: {"max_new_tokens": 24, **settings}},
    )
    return root


def gate(reference: Path, fast: Path, *margins: str) -> Gate:
    return gate_of_runs(reference, fast, parse_margins(margins))[2]


IMAGES = ("ssim=0.97", "psnr=45", "clipscore-prompt=2%")


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return drawn(tmp_path_factory.mktemp("drawn") / "reference")


@pytest.mark.parametrize(
    "mutant",
    [{"steps": 9}, {"scheduler": "DPMSolverMultistepScheduler"}],
    ids=lambda mutant: "-".join(map(str, mutant.values())),
)
def test_other_steps_and_another_scheduler_are_noticed(
    reference: Path, tmp_path: Path, mutant: dict[str, Any]
) -> None:
    found = gate(reference, drawn(tmp_path / "fast", **mutant), *IMAGES)
    verdicts = {result.margin.measure: result.verdict for result in found.results}
    assert not found.passed
    assert verdicts["psnr"] != "shown"


def test_another_batch_size_passes(reference: Path, tmp_path: Path) -> None:
    found = gate(reference, drawn(tmp_path / "fast", batch_size=3), *IMAGES)
    assert found.passed, found.refusal
    assert all(result.estimate.n == len(PROMPTS) for result in found.results)


def test_another_chat_template_is_noticed_and_another_batch_size_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = written(tmp_path / "reference")
    assert gate(first, written(tmp_path / "batched", batch_size=5), "exact=0.7").passed
    weights = tmp_path / "weights"
    shutil.copytree(SHIPPED, weights)
    template = weights / "qwen2-vl" / "chat_template.jinja"
    text = template.read_text()
    assert text.count("<|im_start|>assistant") == 1
    template.write_text(text.replace("<|im_start|>assistant", "<|im_start|>user"))
    helpers.use(helpers.pinned(weights), monkeypatch)
    (found,) = gate(first, written(tmp_path / "other"), "exact=0.7").results
    assert found.verdict == "worse"


def test_a_run_with_another_scheduler_is_not_started(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("".join(PROMPTS))
    file = tmp_path / "run.toml"
    file.write_text(
        f"""
data = "prompts:{prompts}"
systems = ["{DRAWER}@t2i"]
scorers = ["clipscore-prompt"]
weights = "mini"
out = "{tmp_path}/run"

[models.{DRAWER}]
scheduler = "PNDMScheduler"

[fidelity]
queries = 6
margins = {{ ssim = 0.97 }}
reference.models.{DRAWER} = {{}}
"""
    )
    words = ("run", str(file), "--executor", "local")
    done = plait(*words)
    assert done.returncode == 1, done.stderr
    assert "worse than the margin" in done.stdout
    assert not (tmp_path / "run" / "manifest.json").exists()
    result = json.loads((tmp_path / "run" / "fidelity" / "result.json").read_text())
    assert result["passed"] is False
    # The same run with a lever that changes nothing is.
    file.write_text(
        file.read_text().replace('scheduler = "PNDMScheduler"', "batch_size = 2")
    )
    done = plait(*words)
    assert done.returncode == 0, done.stderr
