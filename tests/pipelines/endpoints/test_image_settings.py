"""How images endpoints are named, keyed, placed and planned."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import ValidationError

from generators.base import Kind
from generators.errors import UsageError
from pipelines.endpoints.dialects import by_owner, by_status
from pipelines.endpoints.image_settings import ImagesSettings
from pipelines.systems import Models, resolve

URL = "http://h:1/v1"


def settings(**more):
    return ImagesSettings(**{"model": "m", "base_url": URL, **more})


def digest(**more):
    return settings(**more).spec("m", "pretrained").digest


def test_planning_with_images_endpoints_imports_no_sdk():
    code = (
        "import sys, pipelines.systems as s\n"
        "s.resolve('openai:m+images:gpt-image-2', s.Models(weights='tiny'))\n"
        "heavy = {'torch', 'transformers', 'openai', 'PIL', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "name",
    ["qwen2-vl-7b+images:black-forest-labs/FLUX.1-dev", "openai:M+images:gpt-image-2"],
)
def test_a_composition_may_draw_by_a_server(name, monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    system = resolve(name, Models(weights="tiny"))
    assert (system.name, system.artist) == (name, name.partition("+")[2])
    stage = system.render
    assert stage is not None
    assert (stage.kind, stage.stage) == (Kind.RENDER, "images-endpoint")
    assert (stage.weights, stage.seeded) == (None, True)
    assert stage.secrets == ("OPENAI_API_KEY",)
    assert stage.placement.endpoint == "https://api.openai.com/v1"
    assert (stage.placement.concurrency, stage.placement.batch_size) == (4, 1)
    assert stage.placement.num_gpus == 0


def test_a_name_without_a_model_is_refused():
    with pytest.raises(UsageError, match="unknown text-to-image model 'images:'"):
        resolve("gpt-4o+images:", Models(weights="tiny"))


def test_keys_name_what_changes_a_picture():
    plain = digest()
    assert plain == "17d3c4639ae51dee6b31f34b1ad476d4", "people have such records"
    same = {"concurrency": 2, "timeout_s": 1, "price_per_image": 1.0, "max_cost": 2.0}
    assert digest(**same, api_key_env="K") == plain
    for changed in (
        {"model": "n"},
        {"base_url": "http://h:2/v1"},
        {"dialect": "sglang"},
        {"width": 64, "height": 64},
        {"steps": 3},
        {"guidance": 0.0},
        {"true_cfg_scale": 4.0},
        {"negative_prompt": ""},
        {"generator_device": "cpu"},
        {"output_format": "jpeg"},
        {"quality": "low"},
        {"prompt_prefix": "oil"},
        {"extra_body": {"moderation": "low"}},
    ):
        assert digest(**changed) != plain, changed


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"width": 64}, "width and height are set together"),
        ({"height": 8, "width": 8}, "greater than or equal to 16"),
        ({"dialect": "comfy"}, "'openai', 'sglang', 'vllm-omni' or 'plait'"),
        ({"dialect": "openai", "steps": 4}, r"takes no steps \(taken by sglang, v"),
        ({"dialect": "vllm-omni", "quality": "low"}, r"takes no quality \(taken by openai"),
        ({"extra_body": {"n": 4, "seed": 1}}, "extra_body must not set n, seed"),
        ({"max_cost": 1.0}, "max_cost needs price_per_image, or price_per_million_input"),
        ({"max_tokens": 5}, "max_tokens"),
    ],
)
def test_settings_that_no_request_could_hold_are_refused_at_once(wrong, words):
    with pytest.raises(ValidationError, match=words):
        settings(**wrong)


def test_the_refusal_of_a_dialect_reaches_the_user_while_planning():
    models = Models(
        weights="tiny", overrides={"images:m": {"dialect": "openai", "guidance": 3.5}}
    )
    with pytest.raises(UsageError, match="'openai' takes no guidance") as caught:
        resolve("gpt-4o+images:m", models)
    assert "models.images:m" in str(caught.value)


@pytest.mark.parametrize(
    ("model", "chosen", "sent"),
    [
        ("gpt-image-2", None, None),
        ("azure/gpt-image-2.5-flare", None, None),
        ("chatgpt-image-latest", None, None),
        ("black-forest-labs/FLUX.1-dev", None, "b64_json"),
        ("flux", "none", None),
        ("gpt-image-2", "b64_json", "b64_json"),
    ],
)
def test_the_response_format_follows_the_model_unless_it_is_set(model, chosen, sent):
    assert settings(model=model, response_format=chosen).sent_response_format == sent


def test_servers_are_recognised_by_what_they_say():
    owned = {"sglang": "sglang", "vllm": "vllm-omni", "system": "openai"}
    owned |= {"plait": "plait"}
    for owner, name in owned.items():
        dialect = by_owner([owner, owner])
        assert dialect is not None
        assert dialect.name == name
    assert by_owner([]) is None
    assert by_owner(["sglang", "vllm"]) is None
    assert by_owner(["openai", "elsewhere"]) is None
    assert by_status({"status": "ok"}, {"version": "1"}) is None
    assert by_status(None, None) is None
    assert by_status("healthy", ["tp_size", "version"]) is None


def test_a_cost_is_known_only_with_a_price_and_a_count():
    assert settings().cost_of({"images": 1}) is None
    assert settings(price_per_image=0.5).cost_of({"images": 3}) == 1.5
    tokens = {"price_per_million_input": 1.0, "price_per_million_output": 2.0}
    assert settings(**tokens).cost_of({"images": 1}) is None
    counted = {"images": 1, "input_tokens": 1e6, "output_tokens": 1e6}
    assert settings(**tokens).cost_of(counted) == 3.0
    assert settings(**tokens, price_per_image=1.0).cost_of({"images": 1}) is None
