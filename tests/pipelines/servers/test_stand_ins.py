"""The whole way from `engine` to an answer, with a program that only pretends to be one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from endpoint_helpers import says
from paths import HELPERS
from vlm_helpers import RED, checkpoint

from plait.cluster.loading import stop_servers
from plait.cluster.local import LocalStages
from plait.cluster.server_process import ServerError
from plait.generators.base import Job, Outcome, Result, StageSpec
from plait.generators.document import ImageRequest
from plait.generators.errors import UsageError
from plait.pipelines.systems import Models, lvlm_spec, t2i_spec

pytestmark = pytest.mark.models


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A program that takes the options of an engine, and serves."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = tmp_path / "program"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {HELPERS}/faulty_server.py "$@"\n')
    path.chmod(0o755)
    yield str(path)
    stop_servers()


def models(name: str, engine: str, program: str, **more: Any) -> Models:
    settings = {"engine": engine, "engine_executable": program, "num_gpus": 0, **more}
    stated = {"engine_version": "1.2.3", "revision": "0" * 40}
    return Models(weights="pretrained", overrides={name: {**stated, **settings}})


def outcome_of(spec: StageSpec, value: Any) -> Outcome[Any]:
    return LocalStages().outcomes([Job(spec, value, "x")])[0]


@pytest.mark.processes
@pytest.mark.models
def test_a_chat_model_answers_through_its_engine(program: str) -> None:
    name = f"hf:{checkpoint('qwen2')}"
    spec = lvlm_spec(name, models(name, "vllm", program))
    outcome = outcome_of(spec, says("Look <|im_end|> here", RED))
    assert isinstance(outcome, Result)
    # The tokens of the checkpoint's own chat template are broken.
    assert outcome.value.text == "echo Look < |im_end|> here"
    assert outcome.notes["neutralised"] == ["<|im_end|>"]
    stop_servers()
    other = lvlm_spec(name, models(name, "vllm", program, engine_version="1.2.4"))
    with pytest.raises(ServerError, match=r"vllm 1\.2\.3"):
        outcome_of(other, says("Hello"))


@pytest.mark.processes
def test_a_text_to_image_model_draws_through_its_engine(
    program: str, tmp_path: Path
) -> None:
    (tmp_path / "weights").mkdir()
    name = f"diffusers:{tmp_path / 'weights'}"
    chosen = {"steps": 3, "guidance": 2.5, "height": 64, "width": 32}
    more = {"max_sequence_length": 77}
    spec = t2i_spec(name, models(name, "vllm-omni", program, **chosen, **more))
    outcome = outcome_of(spec, ImageRequest(prompt="a cat", seed=7))
    assert isinstance(outcome, Result), outcome
    log = next((tmp_path / "plait" / "servers").glob("vllm-omni-*.log")).read_text()
    body = json.loads(next(x for x in log.splitlines() if x.startswith("{")))
    assert body == {
        "prompt": "a cat",
        "model": "model",
        "size": "32x64",
        "seed": 7,
        "num_inference_steps": 3,
        "guidance_scale": 2.5,
        "generator_device": "cpu",
        "output_format": "png",
        "response_format": "b64_json",
    }
    assert spec.placement.server is not None
    argv = spec.placement.server.argv
    told = argv[argv.index("--default-sampling-params") + 1]
    assert json.loads(told) == {"0": {"max_sequence_length": 77}}
    other = t2i_spec(name, models(name, "vllm-omni", program, **chosen))
    assert other.digest != spec.digest


def test_guidance_of_qwen_image_is_its_true_scale() -> None:
    spec = t2i_spec("qwen-image", models("qwen-image", "sglang", "x"))
    assert spec.settings["true_cfg_scale"] == 4.0
    assert spec.settings["guidance"] is None
    assert spec.settings["max_sequence_length"] == 512


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"compile": True}, "compile"),
        ({"arguments": {"eta": 1}}, "arguments.eta"),
        ({"scheduler": "X"}, "scheduler"),
        ({"weights": "dummy"}, "sglang"),
    ],
)
def test_what_an_engine_does_not_take_is_refused(settings: Any, word: str) -> None:
    weights = settings.pop("weights", "pretrained")
    overrides = models("sdxl", "sglang", "x", **settings).overrides
    with pytest.raises(UsageError, match=word):
        t2i_spec("sdxl", Models(weights=weights, overrides=overrides))
