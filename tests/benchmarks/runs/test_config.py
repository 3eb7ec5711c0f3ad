"""TOML, flags and --set become one config; errors name what would have been right."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from plait.benchmarks.runs.config import load_config
from plait.benchmarks.runs.defaults import SAMPLE
from plait.benchmarks.runs.experiment import open_experiment
from plait.cluster.manifest import environment
from plait.generators import secrets
from plait.generators.errors import UsageError
from plait.pipelines.systems import Models, resolve

TOML = """
data = "sample"
systems = ["gt"]
seed = 3

[models.sdxl-turbo]
steps = 2

[engine]
grace_s = 1.5
"""


def config_file(tmp_path: Path, text: str = TOML) -> Path:
    file = tmp_path / "run.toml"
    file.write_text(text)
    return file


def test_the_sample_without_a_system_is_tiny() -> None:
    config = load_config(None, {"data": "sample"})
    assert config.systems == SAMPLE.systems
    assert config.weights == "tiny"


def test_flags_go_over_the_file_and_settings_over_both(tmp_path: Path) -> None:
    file = config_file(tmp_path)
    told = ["models.sdxl-turbo.guidance=1.5"]
    config = load_config(file, {"seed": 4, "limit": None}, told)
    assert (config.seed, config.limit) == (4, None)
    assert config.models["sdxl-turbo"] == {"steps": 2, "guidance": 1.5}
    assert config.engine.grace_s == 1.5


@pytest.mark.parametrize(
    ("setting", "value"),
    [("seed=5", 5), ("models.x.a=true", True), ("models.x.a=[1, 2]", [1, 2])],
)
def test_set_reads_toml_values(setting: str, value: object) -> None:
    config = load_config(None, {}, [setting])
    found = config.seed if setting.startswith("seed") else config.models["x"]["a"]
    assert found == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sytems = ['gt']", "unknown key 'sytems'; did you mean 'systems'?"),
        ("[engine]\ngrace = 1", "unknown key in engine 'grace'; did you mean 'grace_s'?"),
        ("limit = 0", "limit: Input should be greater than or equal to 1; got 0"),
        ("weights = 'huge'", "weights"),
        ("systems = [", "is not valid TOML"),
    ],
)
def test_wrong_configs_are_explained(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        load_config(config_file(tmp_path, text), {})
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", ["models.x.url=http://h/?key=hunter2-hunter2"]),
        ('[servers.s]\ncommand = ["serve", "--key", "hunter2-hunter2"]', []),
        ('[models.x]\napi_key_env = "MINE"\n[prompts.SA]\na = "my-own-key-1"', []),
    ],
)
def test_settings_that_hold_a_key_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, settings: list[str]
) -> None:
    """They would be stored in the manifest and shown on the page."""
    monkeypatch.setattr(secrets, "_variables", set())
    monkeypatch.setenv("SOME_API_KEY", "hunter2-hunter2")
    monkeypatch.setenv("MINE", "my-own-key-1")
    with pytest.raises(UsageError, match=r"^(models\.x\.url|servers\.s|prompts)") as error:
        load_config(config_file(tmp_path, text), {}, settings)
    assert not re.search("hunter2|my-own-key", str(error.value))
    monkeypatch.setattr(sys, "argv", ["plait", "run", "--set", *settings])
    assert "hunter2" not in str(environment())


def test_where_a_run_is_does_not_change_what_it_is_called(tmp_path: Path) -> None:
    one = load_config(None, {"data": "sample", "seed": 1})
    elsewhere = {"address": "auto", "out": tmp_path}
    same = load_config(None, {"data": "sample", "seed": 1, **elsewhere})
    other = load_config(None, {"data": "sample", "seed": 2})
    assert one.digest == same.digest != other.digest
    assert same.root == tmp_path
    assert one.root.name == f"sample-{one.digest}"
    assert one.root.is_absolute()
    # The name that runs have had since before there were critics.
    assert one.digest == "2a78de721d"
    tries = ["composition.critic.tries=2"]
    assert load_config(None, {"data": "sample", "seed": 1}, tries).digest != one.digest


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("anloe", "unknown system 'anloe'; did you mean 'anole'?"),
        ("qwen2-vl-72b", "give it a text-to-image model"),
        ("qwen2-vl-72b+sdxl-trubo", "unknown text-to-image model 'sdxl-trubo'; did you"),
        ("qwen+sdxl-turbo", "unknown LVLM 'qwen'"),
        ("qwen2-vl-72b+sdxl-turbo@poem", "unknown composition protocol 'poem'"),
        ("stages:Writter", "in 'stages' 'Writter'; did you mean 'Writer'"),
        ("nowhere_at_all:Writer", "No module named 'nowhere_at_all'"),
        ("stages:Writer", "its class attribute `kind` must be 'draft'"),
    ],
)
def test_unknown_systems_are_named_with_the_nearest(name: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        resolve(name, Models(weights="tiny"))
    assert said in str(error.value)


def test_a_variant_with_its_own_history_is_named_as_ever(tmp_path: Path) -> None:
    variants = '[variants.v]\nsystem = "gt"\n'
    plain = load_config(config_file(tmp_path, TOML + variants), {})
    assert "history" not in plain.plain_data()["variants"]["v"]
    own, given = (
        load_config(config_file(tmp_path, f'{TOML}{variants}history = "{history}"'), {})
        for history in ("own", "given")
    )
    assert own.digest == plain.digest != given.digest
    with pytest.raises(UsageError, match="gt"):
        open_experiment(given.model_copy(update={"systems": ["v"]}))


def test_no_scorers_are_none_and_unsaid_ones_the_usual(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("scorers = []\n")
    assert load_config(file, {}).scorers == ()
    assert load_config(file, {"scorers": ("bleu",)}).scorers == ("bleu",)
    file.write_text("limit = 3\n")
    assert load_config(file, {}).scorers == ("clipscore",)


def test_a_config_may_set_up_a_judge_that_is_asked_later(tmp_path: Path) -> None:
    told = {"data": "sample", "systems": ("gt",), "out": tmp_path, "weights": "tiny"}
    told["models"] = {"openai:m": {"base_url": "http://127.0.0.1:9/v1"}}
    assert open_experiment(load_config(None, told)).config.models == told["models"]
    told["models"] = {"opnai:m": {}}
    with pytest.raises(UsageError, match="unknown name in models 'opnai:m'"):
        open_experiment(load_config(None, told))


def test_settings_reach_the_key_and_options_do_not() -> None:
    def key(**told: object) -> str:
        models = Models(weights="tiny", overrides={"sdxl-turbo": told})
        render = resolve("qwen2-vl-72b+sdxl-turbo", models).roles["render"]
        return render.digest

    assert key(guidance=2.0) != key()
    assert key(batch_size=3) == key(workers=2) == key(num_cpus=0.5) == key()


def test_paths_do_not_depend_on_where_a_later_command_is_issued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_config(None, {"data": "d", "ids": Path("ids.txt"), "out": Path("run")})
    assert config.data == str(tmp_path / "d")
    assert config.ids == tmp_path / "ids.txt"
    assert config.root == tmp_path / "run"
