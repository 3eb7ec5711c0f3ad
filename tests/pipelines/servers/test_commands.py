"""`engine` and `[servers.NAME]`: commands, what names their results, what is refused."""

from __future__ import annotations

import re
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from picture_helpers import flat

from plait.benchmarks.runs.config import RunConfig
from plait.benchmarks.runs.planning import _need_text
from plait.generators.base import StageSpec
from plait.generators.checkpoints import pinning
from plait.generators.document import Image, Query, Text, Turn
from plait.generators.errors import CheckpointError, UsageError
from plait.generators.names import validate
from plait.pipelines.presets import lvlm
from plait.pipelines.servers.settings import EngineModelSettings, ServerTable
from plait.pipelines.servers.start import Software, engine_software, software_of
from plait.pipelines.systems import Models, chat_spec, lvlm_spec, resolve

COMMIT = "0123456789abcdef0123456789abcdef01234567"
STATED = {"engine": "vllm", "engine_version": "0.32.0", "revision": COMMIT}
LARGE, SMALL = "qwen2-vl-72b", "qwen2-vl-7b"


def spec_of(name: str = LARGE, weights: Any = "pretrained", **more: Any) -> StageSpec:
    overrides = {name: {**STATED, **more}}
    return lvlm_spec(name, Models(weights=weights, overrides=overrides))


def argv_of(spec: StageSpec) -> list[str]:
    assert spec.placement.server is not None
    return list(spec.placement.server.argv)


SETTINGS = {
    "num_gpus": 4, "max_input_tokens": 7000, "max_new_tokens": 1000, "max_images": 6,
    "max_pixels": 1000, "dtype": "float16",
}  # fmt: skip
COMMON = {"--dtype": "float16", "--revision": COMMIT, "--host": "127.0.0.1"}
COMMON |= {"--port": "{port}", "--served-model-name": "Qwen/Qwen2-VL-72B-Instruct"}
OPTIONS = {
    "vllm": COMMON
    | {"--tensor-parallel-size": "4", "--max-model-len": "8000"}
    | {"--limit-mm-per-prompt": '{"image": 6}', "--generation-config": "vllm"}
    | {"--mm-processor-kwargs": '{"max_pixels": 1000}', "--seed": "0"},
    "sglang": COMMON
    | {"--tp-size": "4", "--context-length": "8000", "--sampling-defaults": "openai"}
    | {"--limit-mm-data-per-request": '{"image": 6}', "--model-type": "llm"}
    | {"--mm-process-config": '{"image": {"max_pixels": 1000}}', "--random-seed": "0"}
    | {"--model-path": "Qwen/Qwen2-VL-72B-Instruct"},
}


@pytest.mark.parametrize("engine", OPTIONS)
def test_the_command_of_an_engine_follows_the_settings(engine: str) -> None:
    spec = spec_of(engine=engine, **SETTINGS)
    argv = argv_of(spec)
    words = argv[2:] if engine == "sglang" else argv[3:]
    assert argv[:2] == [engine, "serve"]
    assert dict(zip(words[::2], words[1::2], strict=True)) == OPTIONS[engine]
    assert spec.placement.num_gpus == 4


def test_gpus_are_a_power_of_two_unless_they_are_asked_for() -> None:
    assert spec_of().placement.num_gpus == 4  # the estimate fills three
    assert spec_of(num_gpus=3).placement.num_gpus == 3
    argv = argv_of(spec_of(SMALL, num_gpus=0.5))
    assert argv[argv.index("--gpu-memory-utilization") + 1] == "0.45"


def test_engine_and_version_name_results_and_how_it_is_run_does_not(tmp_path: Path) -> None:
    spec = spec_of()
    changes = {"engine_version": "0.33.0", "engine": "sglang", "dtype": "float16"}
    changes |= {"temperature": 0.5, "max_pixels": 1000}
    others = [spec_of(**{name: value}) for name, value in changes.items()]
    eager, random = spec_of(engine_arguments=["--enforce-eager"]), spec_of(weights="dummy")
    digests = {stage.digest for stage in (spec, *others, eager, random)}
    assert len(digests) == len(changes) + 3
    assert argv_of(eager)[-1] == "--enforce-eager"
    assert argv_of(random)[-2:] == ["--load-format", "dummy"]
    run = {"num_gpus": 2, "engine_executable": "/elsewhere/vllm", "engine_env": {"A": "B"}}
    run |= {"engine_concurrency": 2, "workers": 3, "engine_start_timeout_s": 5}
    assert spec_of(**run).digest == spec.digest
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    moved = {spec_of(f"hf:{folder}", revision=None).digest for folder in tmp_path.iterdir()}
    assert len(moved) == 1


def test_a_judge_may_have_an_engine_and_without_one_nothing_changes() -> None:
    models = Models(weights="pretrained", overrides={SMALL: STATED})
    assert chat_spec(SMALL, models).placement.server is not None
    spec = lvlm(LARGE).spec("x", "tiny")
    assert "engine" not in f"{spec.settings} {spec.options}"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"engine": "tgi"}, "'vllm' or 'sglang'"),
        ({"engine": None}, "engine_version is for an engine"),
        ({"engine_env": {"HF_TOKEN": "hunter2"}}, "HF_TOKEN"),
        ({"engine_arguments": ["--api-key", "hunter2"]}, "--api-key"),
        ({"engine_arguments": ["--api-key=hunter2"]}, "--api-key"),
        ({"weights": "tiny"}, "tiny weights"),
    ],
)
def test_wrong_settings_of_engines_are_refused(settings: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        spec_of(**settings)
    assert "hunter2" not in str(refused.value)


def test_a_missing_program_is_an_error_of_the_plan_and_not_of_a_run_opened_again() -> None:
    overrides = {SMALL: {"engine": "vllm", "engine_executable": "/no/vllm"}}
    models = Models(weights="dummy", overrides=overrides)
    with pytest.raises(CheckpointError, match="/no/vllm"):
        lvlm_spec(SMALL, models)
    with pinning({}) as pins:
        lvlm_spec(SMALL, models)
    assert "/no/vllm" in pins.missing[0]
    with pinning({"engine:vllm@/no/vllm": "0.32.0"}) as pins:
        assert "vllm 0.32.0" in lvlm_spec(SMALL, models).identity
    assert not pins.missing


# Tables

TABLE: dict[str, Any] = {"command": "sh -c 'serve {model}' {port}", "version": "sh 1.0"}


def tabled(settings: dict[str, Any] | None = None, **table: Any) -> StageSpec:
    servers = {"local": ServerTable.model_validate({**TABLE, **table})}
    overrides = {"openai:m/x": {"server": "local", **(settings or {})}}
    models = Models(weights="pretrained", overrides=overrides, servers=servers)
    return lvlm_spec("openai:m/x", models)


def test_a_model_names_its_server() -> None:
    spec = tabled(num_gpus=2, num_cpus=3, replicas=4, health="/up", env={"A": "b"})
    placement = spec.placement
    assert placement.server is not None
    assert placement.server.argv == ("sh", "-c", "serve m/x", "{port}")
    assert (placement.server.name, placement.server.health) == ("local", "/up")
    assert placement.server.env == (("A", "b"),)
    assert (placement.num_gpus, placement.num_cpus, placement.workers) == (2, 3, 4)
    assert spec.identity == "endpoint:local sh 1.0"
    assert _need_text(spec.placement) == "server local: 2 GPU, 3 CPU, 16 at a time"
    models = Models(weights="pretrained", overrides={"openai:m": {"server": "mine"}})
    alone = lvlm_spec("openai:m", models)
    assert (alone.placement.server, alone.identity) == (None, "endpoint:mine")


def test_a_server_of_a_table_is_sent_images_to_edit() -> None:
    servers = {"local": ServerTable.model_validate(TABLE)}
    overrides = {"images:m/x": {"server": "local", "dialect": "sglang"}}
    models = Models(weights="pretrained", overrides=overrides, servers=servers)
    system = resolve("images:m/x@edit", models)
    (stage,) = system.stages
    assert stage.placement.server is not None
    assert stage.placement.server.argv[2] == "serve m/x"
    turns = (Turn("user", (Image.of(flat("red")), Text("Make it blue."))),)
    asked = Query(id="q", category="", field="", turns=turns)
    assert system.answer_form(asked) is not None
    text = replace(asked, turns=(Turn("user", (Text("Draw."),)),))
    assert system.answer_form(text) is None


@pytest.mark.processes
def test_name_and_version_name_results_and_how_it_is_run_does_not() -> None:
    spec = tabled()
    assert spec.digest != tabled(version="sh 1.1").digest
    run = {"num_gpus": 1, "replicas": 2, "env": {"A": "b"}, "pass_env": ["HF_TOKEN"]}
    same = [tabled(command="other {port}"), tabled(port=8000), tabled(**run)]
    assert {spec.digest} == {o.digest for o in same}
    assert tabled(version="any").identity == "endpoint:local"
    command = f"{sys.executable} -m pytest {{port}}"
    named = tabled(version=None, command=command).identity
    assert named == f"endpoint:local pytest {pytest.__version__}"


def test_a_providers_key_and_address_are_not_used() -> None:
    spec = tabled(pass_env=["HF_TOKEN"])
    assert spec.secrets == ("PLAIT_SERVER_KEY", "HF_TOKEN")
    assert spec.options["api_key_env"] == "PLAIT_SERVER_KEY"
    assert spec.options["base_url"] == "http://127.0.0.1/v1"
    assert tabled({"api_key_env": "MINE"}).secrets == ("MINE",)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"command": "serve"}, "{port}"),
        ({"command": []}, "at least 1 item"),
        ({"command": "serve --port {port} --api-key hunter2"}, "--api-key"),
        ({"env": {"API_KEY": "hunter2"}}, "API_KEY"),
        ({"port": 8000, "replicas": 2}, "replicas"),
        ({"healthy": "/x"}, "did you mean 'health'"),
        ({"health": "up"}, "health"),
    ],
)
def test_wrong_tables_are_refused(table: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)) as refused:
        validate(RunConfig, {"servers": {"local": {**TABLE, **table}}}, "")
    assert "hunter2" not in str(refused.value)


def test_a_server_that_is_no_table_or_is_elsewhere_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'local'"):
        tabled({"server": "locl"})
    with pytest.raises(UsageError, match="base_url"):
        tabled({"base_url": "http://127.0.0.1:1/v1"})


def test_a_config_without_servers_keeps_its_name() -> None:
    with_servers = validate(RunConfig, {"servers": {"local": TABLE}}, "")
    assert validate(RunConfig, {"servers": {}}, "").digest == RunConfig().digest
    assert with_servers.digest != RunConfig().digest


# Versions


def script(path: Path, head: str) -> str:
    path.write_text(f"{head}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def software(*words: str) -> Software | None:
    return software_of(ServerTable(command=(*words, "{port}")))


def engine(name: str, program: str) -> Software:
    about = {"engine": name, "engine_executable": program}
    return engine_software(EngineModelSettings(model="m", **about))


@pytest.mark.processes
def test_the_version_is_asked_of_the_programs_own_environment(tmp_path: Path) -> None:
    tool = script(tmp_path / "pytest", f"#!{sys.executable}")
    expected = Software("pytest", pytest.__version__)
    assert software(tool, "serve") == expected
    assert software(sys.executable, "-m", "pytest") == expected
    assert engine("pytest", tool) == expected
    long = f"#!/bin/sh\n'''exec' \"{sys.executable}\" \"$0\" \"$@\"\n' '''"
    assert software(script(tmp_path / "py.test", long)) == expected


@pytest.mark.processes
def test_programs_of_no_distribution_have_no_version(tmp_path: Path) -> None:
    assert software("sh", "-c", "true") is None
    assert software(script(tmp_path / "mine", f"#!{sys.executable}")) is None
    with pytest.raises(CheckpointError, match="/no/such"):
        software("/no/such")
    with pytest.raises(CheckpointError, match="engine_version"):
        engine("nothing-like-it", "sh")
