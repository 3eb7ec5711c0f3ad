"""Engines: their commands, what names their results, and what is refused."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from generators.base import StageSpec
from generators.checkpoints import pinning
from generators.errors import CheckpointError, UsageError
from pipelines.presets import LVLMS
from pipelines.servers.software import Software, engine_software, software_of
from pipelines.systems import Models, chat_spec, writer_spec

COMMIT = "0123456789abcdef0123456789abcdef01234567"
STATED = {"engine": "vllm", "engine_version": "0.32.0", "revision": COMMIT}


def spec_of(
    name: str = "qwen2-vl-72b", weights: Any = "pretrained", **more: Any
) -> StageSpec:
    overrides = {name: {**STATED, **more}}
    return writer_spec(name, Models(weights=weights, overrides=overrides))


def argv_of(spec: StageSpec) -> list[str]:
    assert spec.placement.server is not None
    return list(spec.placement.server.argv)


def after(argv: list[str], option: str) -> str:
    return argv[argv.index(option) + 1]


def test_the_command_of_vllm_follows_the_settings() -> None:
    spec = spec_of(
        num_gpus=4, max_input_tokens=7000, max_new_tokens=1000, max_images=6,
        max_pixels=1000, dtype="float16",
    )  # fmt: skip
    argv = argv_of(spec)
    assert argv[:3] == ["vllm", "serve", "Qwen/Qwen2-VL-72B-Instruct"]
    assert after(argv, "--tensor-parallel-size") == "4"
    assert after(argv, "--max-model-len") == "8000"
    assert after(argv, "--limit-mm-per-prompt") == '{"image": 6}'
    assert after(argv, "--mm-processor-kwargs") == '{"max_pixels": 1000}'
    assert after(argv, "--dtype") == "float16"
    assert after(argv, "--revision") == COMMIT
    assert after(argv, "--generation-config") == "vllm"
    assert (after(argv, "--host"), after(argv, "--port")) == ("127.0.0.1", "{port}")
    assert spec.placement.num_gpus == 4


def test_the_command_of_sglang_follows_the_settings() -> None:
    spec = spec_of(engine="sglang", num_gpus=2, max_images=1, max_input_tokens=100)
    argv = argv_of(spec)
    assert argv[:4] == ["sglang", "serve", "--model-path", "Qwen/Qwen2-VL-72B-Instruct"]
    assert after(argv, "--tp-size") == "2"
    assert after(argv, "--context-length") == "1124"
    assert after(argv, "--limit-mm-data-per-request") == '{"image": 1}'
    assert after(argv, "--sampling-defaults") == "openai"


def test_gpus_are_a_power_of_two_unless_they_are_asked_for() -> None:
    assert spec_of().placement.num_gpus == 4  # the estimate fills three
    assert spec_of(num_gpus=3).placement.num_gpus == 3
    half = spec_of("qwen2-vl-7b", num_gpus=0.5)
    assert after(argv_of(half), "--gpu-memory-utilization") == "0.45"


def test_arguments_are_appended_and_name_results() -> None:
    spec = spec_of(engine_arguments=["--quantization", "fp8"])
    assert argv_of(spec)[-2:] == ["--quantization", "fp8"]
    assert spec.digest != spec_of().digest


def test_engine_and_version_name_results_and_how_it_is_run_does_not() -> None:
    spec = spec_of()
    others = [
        spec_of(engine_version="0.33.0"),
        spec_of(engine="sglang"),
        spec_of(dtype="float16"),
        spec_of(temperature=0.5),
        spec_of(engine_arguments=["--enforce-eager"]),
        spec_of(max_pixels=1000),
    ]
    assert len({spec.digest, *(o.digest for o in others)}) == len(others) + 1
    same = [
        spec_of(num_gpus=2),
        spec_of(engine_executable="/elsewhere/vllm"),
        spec_of(engine_env={"A": "B"}),
        spec_of(engine_concurrency=2, workers=3),
        spec_of(engine_start_timeout_s=5),
    ]
    assert {spec.digest} == {o.digest for o in same}


def test_a_moved_folder_keeps_its_results(tmp_path: Path) -> None:
    digests = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        digests.add(spec_of(f"hf:{tmp_path / name}", revision=None).digest)
    assert len(digests) == 1


def test_without_an_engine_nothing_changes() -> None:
    settings = LVLMS["qwen2-vl-72b"]
    assert "engine" not in str(settings.spec("x", "tiny").settings)
    assert "engine" not in str(settings.spec("x", "tiny").options)


def test_dummy_weights_are_the_engine_s_own() -> None:
    spec = spec_of(weights="dummy")
    assert after(argv_of(spec), "--load-format") == "dummy"
    assert spec.weights == "dummy"
    assert spec.digest != spec_of().digest


def test_a_judge_may_have_an_engine() -> None:
    models = Models(weights="pretrained", overrides={"qwen2-vl-7b": STATED})
    assert chat_spec("qwen2-vl-7b", models).placement.server is not None


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"engine": "tgi"}, "'vllm' or 'sglang'"),
        ({"engine": None}, "engine_version is for an engine; name one in engine"),
        ({"engine_env": {"HF_TOKEN": "hunter2"}}, "HF_TOKEN looks like a secret"),
        ({"engine_arguments": ["--api-key", "hunter2"]}, "would put a secret"),
        ({"engine_arguments": ["--api-key=hunter2"]}, "would put a secret"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        spec_of(**settings)


def test_tiny_weights_are_refused() -> None:
    with pytest.raises(UsageError, match="tiny weights are made in memory"):
        spec_of(weights="tiny")


def test_a_missing_program_is_an_error_of_the_plan() -> None:
    overrides = {"qwen2-vl-7b": {"engine": "vllm", "engine_executable": "/no/vllm"}}
    models = Models(weights="dummy", overrides=overrides)
    with pytest.raises(CheckpointError, match=r"no program '/no/vllm' here\. Install it"):
        writer_spec("qwen2-vl-7b", models)
    with pinning({}) as pins:
        writer_spec("qwen2-vl-7b", models)
    assert "no program '/no/vllm'" in pins.missing[0]


def test_a_run_that_is_opened_again_needs_no_program() -> None:
    overrides = {"qwen2-vl-7b": {"engine": "vllm", "engine_executable": "/no/vllm"}}
    models = Models(weights="dummy", overrides=overrides)
    with pinning({"engine:vllm@/no/vllm": "0.32.0"}) as pins:
        spec = writer_spec("qwen2-vl-7b", models)
    assert "vllm 0.32.0" in spec.identity
    assert not pins.missing


def script(path: Path, head: str) -> str:
    path.write_text(f"{head}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_the_version_is_asked_of_the_program_s_own_environment(tmp_path: Path) -> None:
    here = f"#!{sys.executable}"
    tool = script(tmp_path / "pytest", here)
    expected = Software("pytest", pytest.__version__)
    assert software_of([tool, "serve"]) == expected
    assert software_of([sys.executable, "-m", "pytest"]) == expected
    assert engine_software("pytest", tool) == expected
    long = f"#!/bin/sh\n'''exec' \"{sys.executable}\" \"$0\" \"$@\"\n' '''"
    assert software_of([script(tmp_path / "py.test", long)]) == expected


def test_programs_of_no_distribution_have_no_version(tmp_path: Path) -> None:
    assert software_of(["sh", "-c", "true"]) is None
    assert software_of([script(tmp_path / "mine", f"#!{sys.executable}")]) is None
    with pytest.raises(CheckpointError, match="no program '/no/such'"):
        software_of(["/no/such"])
    with pytest.raises(CheckpointError, match="state it in engine_version"):
        engine_software("nothing-like-it", "sh")
