"""How endpoints and local models are named in keys, placed and planned."""

import subprocess
import sys
from datetime import date

import pytest
from pydantic import ValidationError

from plait.generators.base import Kind
from plait.generators.catalogue import Named, by_name
from plait.generators.errors import UsageError
from plait.pipelines.chat.settings import ChatSettings, EndpointSettings
from plait.pipelines.endpoints.settings import GeminiSettings, ImagesSettings, omni_settings
from plait.pipelines.presets import RETIRED, lvlm, preset, retirements
from plait.pipelines.systems import Models, resolve, t2i_settings

pytestmark = pytest.mark.contract

HERE = {"model": "m", "base_url": "http://h:1/v1"}


def digest(kind=EndpointSettings, **settings):
    return kind(**{**HERE, **settings}).spec("m", "pretrained").digest


def test_an_endpoint_has_no_weights_no_gpu_and_one_secret():
    settings = EndpointSettings(model="m", api_key_env="K", base_url="http://h:1/v1/")
    spec = settings.spec("m", "tiny")
    assert (spec.weights, spec.secrets) == (None, ("K",))
    placement = spec.placement
    assert (placement.num_gpus, placement.num_cpus) == (0, pytest.approx(0.1))
    assert (placement.batch_size, placement.concurrency) == (1, 16)
    assert placement.endpoint == spec.options["base_url"] == "http://h:1/v1"
    assert "weights" not in spec.options


def test_keys_name_the_model_and_the_server_and_nothing_of_how_it_is_asked():
    assert digest(timeout_s=1, concurrency=3, api_key_env="K", max_cost=None) == digest()
    assert digest(base_url="https://h:1/v1/") == digest()
    for changed in (
        {"model": "n"},
        {"base_url": "http://h:2/v1"},
        {"base_url": "http://h:1/other/v1"},
        {"temperature": 0.1},
        {"server": "lab"},
    ):
        assert digest(**changed) != digest()
    assert digest(server="lab") == digest(server="lab", base_url="http://elsewhere/v1")


def test_keys_name_what_changes_an_image():
    def images(**settings):
        return digest(ImagesSettings, **settings)

    def gemini(**settings):
        return digest(GeminiSettings, **settings)

    assert gemini() == gemini(concurrency=3, price_per_image=1.0, api_version="v1")
    assert gemini() != gemini(image_size="2K")
    assert images() == images(dialect="openai")
    assert images() == "ae11ddf3aa6d1e1d26c793bf68f18ac9", "people have such records"
    plain = images(dialect="sglang")
    assert plain == "257e08555b02cea72fe96e665716cdce", "people have such records"
    same = {"concurrency": 2, "timeout_s": 1, "price_per_image": 1.0, "max_cost": 2.0}
    assert images(dialect="sglang", **same, api_key_env="K") == plain
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
        assert images(**{"dialect": "sglang", **changed}) != plain, changed


def test_the_url_comes_from_the_setting_or_the_environment(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert EndpointSettings(model="m").url == "https://api.openai.com/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1/")
    assert EndpointSettings(model="m").url == "http://127.0.0.1:8000/v1"
    assert EndpointSettings(model="m", base_url="http://h/v1").url == "http://h/v1"
    assert lvlm("gemini-1.5").url.startswith("https://generativelanguage.")


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


def test_keys_of_local_models_say_how_long_and_not_where():
    for kind in (ChatSettings, EndpointSettings):
        seeded = [kind(model="m", temperature=t).is_seeded() for t in (0.0, 0.2)]
        assert seeded == [False, True]
    settings = ChatSettings(model="m")
    assert settings.key_fields("pretrained")["max_new_tokens"] == 1024
    assert settings.key_fields("tiny")["max_new_tokens"] == 48
    assert settings.key_fields("tiny")["dtype"] == "float32"
    assert (
        ChatSettings(model="m", max_new_tokens=9).key_fields("tiny")["max_new_tokens"] == 9
    )
    one = ChatSettings(model="m", batch_size=1, device_map="none").spec("m", "tiny")
    assert one.digest == settings.spec("m", "tiny").digest
    assert one.options["device_map"] == "none"


def stages(*names, **settings):
    presets = [preset(Named.LVLM, name) or t2i_settings(name) for name in names]
    copies = [preset.model_copy(update=settings) for preset in presets]
    return [s.spec(n, "tiny") for n, s in zip(names, copies, strict=True)]


def test_models_that_are_turned_off_are_told_with_a_current_one(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    names = ("gpt-4o", "gemini-1.5", "qwen2-vl-7b", "images:gpt-image-1")
    lines = retirements(stages(*names), date(2026, 11, 22))
    assert [line.partition(":")[0] for line in lines] == ["gpt-4o", "gemini-1.5", "images"]
    for line, words in zip(
        lines,
        (
            ("gpt-4o-2024-08-06", "will be", "2027-01-14", "gpt-6.1-sol"),
            ("gemini-1.5-pro", "was", "2025-09-24", "gemini-3.8-flash"),
            ("gpt-image-1", "was", "2026-10-23", "images:gpt-image-2.5-flare"),
        ),
        strict=True,
    ):
        assert all(word in line for word in words)
    names = {r.instead for r in RETIRED.values()}
    reasoning = [lvlm(name) for name in names if name in by_name(Named.LVLM)]
    assert all(s.temperature is None and s.is_seeded() for s in reasoning)
    assert all(s.max_tokens > 1024 for s in reasoning), "room to think"
    current = stages(*names)
    assert retirements(current, date(2026, 11, 22)) == []
    own = stages("gpt-4o", base_url="http://127.0.0.1:8000/v1")
    assert retirements(own, date(2030, 1, 1)) == []


@pytest.mark.processes
def test_planning_imports_no_torch_and_no_client():
    code = (
        "import sys, plait.pipelines.systems as s\n"
        "from plait.generators.catalogue import Named, by_name\n"
        "from plait.pipelines.presets import preset, t2i\n"
        "kinds = (Named.LVLM, Named.T2I)\n"
        "specs = [preset(k, n).spec(n, 'tiny') for k in kinds for n in by_name(k)]\n"
        "dummy = t2i('sdxl').spec('sdxl', 'dummy')\n"
        "s.resolve('openai:m+images:gpt-image-2', s.Models(weights='tiny'))\n"
        "heavy = {'torch', 'transformers', 'diffusers', 'httpx2', 'PIL', 'numpy'}\n"
        "heavy &= set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("kind", "wrong", "words"),
    [
        (EndpointSettings, {"max_cost": 1.0}, "price_per_million_input"),
        (ChatSettings, {"min_pixels": 9, "max_pixels": 4}, "min_pixels 9"),
        (ImagesSettings, {"width": 64}, "height"),
        (ImagesSettings, {"height": 8, "width": 8}, "greater than or equal to 16"),
        (ImagesSettings, {"dialect": "comfy"}, "'sglang', 'vllm-omni' or 'plait'"),
        (ImagesSettings, {"steps": 4}, "sglang, vllm-omni, plait"),
        (ImagesSettings, {"dialect": "vllm-omni", "quality": "low"}, "openai"),
        (ImagesSettings, {"extra_body": {"n": 4, "seed": 1}}, "n, seed"),
        (ImagesSettings, {"max_cost": 1.0}, "price_per_image"),
        (ImagesSettings, {"max_tokens": 5}, "max_tokens"),
    ],
)
def test_settings_that_no_request_could_hold_are_refused(kind, wrong, words):
    with pytest.raises(ValidationError, match=words):
        kind(model="m", **wrong)


def test_a_composition_may_draw_by_a_server_and_is_refused_while_planning(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    name = "qwen2-vl-7b+images:black-forest-labs/FLUX.1-dev"
    system = resolve(name, Models(weights="tiny"))
    assert (system.name, system.t2i) == (name, name.partition("+")[2])
    stage = system.roles["render"]
    placement = stage.placement
    assert (stage.kind, stage.stage) == (Kind.RENDER, "images-endpoint")
    assert (stage.weights, stage.seeded) == (None, True)
    assert (placement.concurrency, placement.batch_size, placement.num_gpus) == (4, 1, 0)
    models = Models(weights="tiny", overrides={"images:m": {"guidance": 3.5}})
    with pytest.raises(UsageError, match=r"models\.images:m.*guidance") as caught:
        resolve("gpt-4o+images:m", models)
    assert "got" not in str(caught.value), "all settings together show nothing"


def test_servers_that_read_no_images_are_not_sent_any():
    assert omni_settings("LLaDA2.0-Uni").max_images == 0
    assert omni_settings("Cosmos3-Omni").max_images is None


def test_a_cost_is_known_only_with_a_price_and_a_count():
    def cost(usage, **prices):
        return ImagesSettings(model="m", **prices).cost_of(usage)

    counted = {"images": 1, "input_tokens": 1e6, "output_tokens": 1e6}
    tokens = {"price_per_million_input": 1.0, "price_per_million_output": 2.0}
    assert cost({"images": 1}) is None
    assert cost({"images": 3}, price_per_image=0.5) == 1.5
    assert cost({"images": 1}, **tokens) is None
    assert cost(counted, **tokens) == 3.0
    assert cost({"images": 1}, **tokens, price_per_image=1.0) is None
