"""How endpoints and local models are named in keys, placed and planned."""

import subprocess
import sys
from datetime import date

import pytest
from pydantic import ValidationError

from generators.base import Kind
from generators.errors import UsageError
from pipelines.chat.settings import ChatSettings, EndpointSettings
from pipelines.endpoints.settings import ImagesSettings
from pipelines.presets import LVLMS, RETIRED, retirements
from pipelines.systems import Models, artist_settings, resolve


def test_an_endpoint_has_no_weights_no_gpu_and_one_secret():
    spec = EndpointSettings(model="m", api_key_env="K", base_url="http://h:1/v1/").spec(
        "m", "tiny"
    )
    assert spec.weights is None
    assert spec.secrets == ("K",)
    assert spec.placement.num_gpus == 0
    assert spec.placement.num_cpus == pytest.approx(0.1)
    assert spec.placement.batch_size == 1
    assert spec.placement.endpoint == "http://h:1/v1"
    assert spec.placement.concurrency == 16
    assert spec.options["base_url"] == "http://h:1/v1"
    assert "weights" not in spec.options


def digest(**settings):
    options = {"model": "m", "base_url": "http://h:1/v1", **settings}
    return EndpointSettings(**options).spec("m", "pretrained").digest


def test_keys_name_the_model_and_the_server_and_nothing_of_how_it_is_asked():
    assert digest(timeout_s=1, concurrency=3, api_key_env="K", max_cost=None) == digest()
    assert digest(base_url="https://h:1/v1/") == digest()
    assert digest(model="n") != digest()
    assert digest(base_url="http://h:2/v1") != digest()
    assert digest(base_url="http://h:1/other/v1") != digest()
    assert digest(temperature=0.1) != digest()
    assert digest(server="lab") != digest()
    assert digest(server="lab") == digest(server="lab", base_url="http://elsewhere/v1")


def test_the_url_comes_from_the_setting_or_the_environment(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert EndpointSettings(model="m").url == "https://api.openai.com/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1/")
    assert EndpointSettings(model="m").url == "http://127.0.0.1:8000/v1"
    assert EndpointSettings(model="m", base_url="http://h/v1").url == "http://h/v1"
    assert LVLMS["gemini-1.5"].url.startswith("https://generativelanguage.")


@pytest.mark.parametrize(
    "url",
    ["localhost:8000", "ftp://h", "http://", "http://me:pw@h/v1", "http://h/v1?key=k"],
)
def test_urls_that_are_none_or_hold_a_key_are_refused(url, monkeypatch):
    with pytest.raises(ValidationError, match="URL"):
        EndpointSettings(model="m", base_url=url)
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    with pytest.raises(ValueError, match="URL") as caught:
        EndpointSettings(model="m").spec("m", "pretrained")
    assert "pw" not in str(caught.value)


def test_only_what_draws_text_is_seeded():
    assert not EndpointSettings(model="m").is_seeded()
    assert EndpointSettings(model="m", temperature=0.2).is_seeded()
    assert EndpointSettings(model="m", temperature=None).is_seeded()
    assert not ChatSettings(model="m").is_seeded()
    assert ChatSettings(model="m", temperature=0.2).is_seeded()


def test_the_length_of_an_answer_is_explicit_in_the_key():
    settings = ChatSettings(model="m")
    assert settings.keyed("pretrained")["max_new_tokens"] == 1024
    assert settings.keyed("tiny")["max_new_tokens"] == 48
    assert settings.keyed("tiny")["dtype"] == "float32"
    assert ChatSettings(model="m", max_new_tokens=9).keyed("tiny")["max_new_tokens"] == 9


def test_a_large_model_is_given_enough_gpus_and_a_tiny_one_none():
    # 73.4e9 parameters of 2 bytes and a fifth of room: 164 GiB.
    placement = LVLMS["qwen2-vl-72b"].spec("q", "dummy", gpu_gib=80).placement
    assert placement.num_gpus == 3
    assert placement.longest_first
    assert LVLMS["qwen2-vl-72b"].spec("q", "tiny").placement.num_gpus == 0


def test_device_map_and_batch_size_do_not_enter_the_key():
    one = ChatSettings(model="m", batch_size=1, device_map="none").spec("m", "tiny")
    assert one.digest == ChatSettings(model="m").spec("m", "tiny").digest
    assert one.options["device_map"] == "none"


def stages(*names, **settings):
    presets = [LVLMS.get(name) or artist_settings(name) for name in names]
    copies = [preset.model_copy(update=settings) for preset in presets]
    return [s.spec(n, "tiny") for n, s in zip(names, copies, strict=True)]


def test_models_that_are_turned_off_are_told_with_a_current_one(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    lines = retirements(stages("gpt-4o", "gemini-1.5", "qwen2-vl-7b"), date(2026, 11, 22))
    assert lines == [
        "gpt-4o: its provider's model 'gpt-4o-2024-08-06' will be turned off on "
        "2027-01-14; a current alternative is gpt-6.1-sol",
        "gemini-1.5: its provider's model 'gemini-1.5-pro' was turned off on "
        "2025-09-24; a current alternative is gemini-3.8-flash",
    ]
    lines = retirements(stages("images:gpt-image-1"), date(2026, 11, 22))
    assert lines == [
        "images:gpt-image-1: its provider's model 'gpt-image-1' was turned off on "
        "2026-10-23; a current alternative is images:gpt-image-2.5-flare"
    ]
    current = stages(*{r.instead for r in RETIRED.values()})
    assert retirements(current, date(2026, 11, 22)) == []


def test_a_server_of_ones_own_may_go_on_with_a_retired_model():
    own = stages("gpt-4o", base_url="http://127.0.0.1:8000/v1")
    assert retirements(own, date(2030, 1, 1)) == []


@pytest.mark.parametrize("name", ["gpt-6.1-sol", "gemini-3.8-flash"])
def test_reasoning_models_get_no_temperature_and_room_to_think(name):
    settings = LVLMS[name]
    assert settings.temperature is None
    assert settings.max_tokens > 1024
    assert settings.is_seeded()


def test_planning_imports_no_torch_and_no_sdk():
    code = (
        "import sys, pipelines.systems as s; from pipelines.presets import LVLMS\n"
        "[x.spec(n, 'tiny') for n, x in LVLMS.items()]\n"
        "s.resolve('openai:m+images:gpt-image-2', s.Models(weights='tiny'))\n"
        "heavy = {'torch', 'transformers', 'openai', 'PIL', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("kind", "wrong", "words"),
    [
        (EndpointSettings, {"max_cost": 1.0}, "price_per_million_input"),
        (ChatSettings, {"min_pixels": 9, "max_pixels": 4}, "min_pixels 9 is more than"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(kind, wrong, words):
    with pytest.raises(ValidationError, match=words):
        kind(model="m", **wrong)


def image_digest(**more):
    return images(**more).spec("m", "pretrained").digest


def images(**more):
    return ImagesSettings(**{"model": "m", "base_url": "http://h:1/v1", **more})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"width": 64}, "width and height are set together"),
        ({"height": 8, "width": 8}, "greater than or equal to 16"),
        ({"dialect": "comfy"}, "'openai', 'sglang', 'vllm-omni' or 'plait'"),
        ({"steps": 4}, r"takes no steps \(taken by sglang, v"),
        ({"dialect": "vllm-omni", "quality": "low"}, r"takes no quality \(taken by openai"),
        ({"extra_body": {"n": 4, "seed": 1}}, "extra_body must not set n, seed"),
        ({"max_cost": 1.0}, "max_cost needs price_per_image, or price_per_million_input"),
        ({"max_tokens": 5}, "max_tokens"),
    ],
)
def test_settings_that_no_request_could_hold_are_refused_at_once(wrong, words):
    with pytest.raises(ValidationError, match=words):
        images(**wrong)


def test_keys_name_what_changes_a_picture():
    assert image_digest() == image_digest(dialect="openai")
    assert image_digest() == "ae11ddf3aa6d1e1d26c793bf68f18ac9", "people have such records"
    plain = image_digest(dialect="sglang")
    assert plain == "257e08555b02cea72fe96e665716cdce", "people have such records"
    same = {"concurrency": 2, "timeout_s": 1, "price_per_image": 1.0, "max_cost": 2.0}
    assert image_digest(dialect="sglang", **same, api_key_env="K") == plain
    for changed in (
        {"model": "n"},
        {"base_url": "http://h:2/v1"},
        {"dialect": "plait"},
        {"width": 64, "height": 64},
        {"steps": 3},
        {"guidance": 0.0},
        {"true_cfg_scale": 4.0},
        {"negative_prompt": ""},
        {"generator_device": "cpu"},
        {"output_format": "jpeg"},
        {"prompt_prefix": "oil"},
        {"extra_body": {"moderation": "low"}},
    ):
        assert image_digest(**{"dialect": "sglang", **changed}) != plain, changed


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


def test_the_refusal_of_a_dialect_reaches_the_user_while_planning():
    models = Models(weights="tiny", overrides={"images:m": {"guidance": 3.5}})
    with pytest.raises(UsageError, match="'openai' takes no guidance") as caught:
        resolve("gpt-4o+images:m", models)
    assert str(caught.value).startswith("models.images:m: the images dialect")
    assert "got" not in str(caught.value), "all settings together show nothing"


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
    assert images(model=model, response_format=chosen).sent_response_format == sent


def test_a_cost_is_known_only_with_a_price_and_a_count():
    assert images().cost_of({"images": 1}) is None
    assert images(price_per_image=0.5).cost_of({"images": 3}) == 1.5
    tokens = {"price_per_million_input": 1.0, "price_per_million_output": 2.0}
    assert images(**tokens).cost_of({"images": 1}) is None
    counted = {"images": 1, "input_tokens": 1e6, "output_tokens": 1e6}
    assert images(**tokens).cost_of(counted) == 3.0
    assert images(**tokens, price_per_image=1.0).cost_of({"images": 1}) is None
