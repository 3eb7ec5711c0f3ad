"""How ways are written, and what they resolve to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from paths import CHECKOUT

from benchmarks.fidelity.config import load_config
from benchmarks.fidelity.ways import ResolvedWay, Way, resolve_ways
from generators.errors import UsageError


def resolved(name: str, *ways: str, **options: object) -> list[ResolvedWay]:
    given = {"weights": "tiny", "common": {}, "models": {}} | options
    return resolve_ways([Way.parsed(way) for way in ways], name, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("batch 16: batch_size=16", Way(label="batch 16", settings={"batch_size": 16})),
        ("in process", Way(label="in process")),
        ("in process:", Way(label="in process")),
        ("dtype=float32", Way(label="dtype=float32", settings={"dtype": "float32"})),
        (
            "served: system=openai:M base_url=http://h:1/v1",
            Way(label="served", system="openai:M", settings={"base_url": "http://h:1/v1"}),
        ),
        (
            'a: negative_prompt="two words: here" render.dtype=float16 weights=dummy',
            Way(
                label="a",
                weights="dummy",
                settings={
                    "negative_prompt": "two words: here",
                    "render": {"dtype": "float16"},
                },
            ),
        ),
    ],
)
def test_a_way_is_a_label_and_settings(text: str, way: Way) -> None:
    assert Way.parsed(text) == way


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: batch_size", "'batch_size' is not of the form key=value"),
        ('a: x="open', "No closing quotation"),
        ("", "a way needs a name"),
        ("a: weights=small", "unknown weights of way 'a' 'small'"),
        ("a: system=3", "system must be a name, not 3"),
    ],
)
def test_a_way_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Way.parsed(text)


def test_the_config_in_the_readme_is_read(tmp_path: Path) -> None:
    text = (CHECKOUT / "benchmarks" / "fidelity" / "README.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    file = tmp_path / "fidelity.toml"
    file.write_text(example)
    config = load_config(file, {"system": "qwen2-vl-7b", "weights": "tiny"})
    ways = config.resolve()
    assert [way.label for way in ways] == ["batch 1", "batch 16", "vLLM"]
    assert {way.token_limit for way in ways} == {256}


def test_models_alone_are_resolved_as_what_they_are() -> None:
    (lvlm,) = resolved("qwen2-vl-7b", "a: batch_size=3")
    assert lvlm.name == "qwen2-vl-7b"
    assert lvlm.system is not None
    assert lvlm.system.variant == "text"
    assert lvlm.stages[0].placement.batch_size == 3
    (painter,) = resolved("sdxl-turbo", "a: batch_size=3")
    assert painter.artist is not None
    assert painter.stages[0].options["batch_size"] == 3
    (native,) = resolved("anole", "a: draft.batch_size=2")
    assert native.stages[0].placement.batch_size == 2


def test_settings_of_a_composite_name_their_model() -> None:
    name = "qwen2-vl-7b+sdxl-turbo"
    (way,) = resolved(name, "a: writer.batch_size=2 artist.batch_size=5")
    assert way.stages[0].placement.batch_size == 2
    assert way.stages[1].options["batch_size"] == 5
    with pytest.raises(UsageError, match=r"two models; begin 'batch_size' with 'writer.'"):
        resolved(name, "a: batch_size=2")


def test_a_system_prompt_is_a_setting_of_the_writer() -> None:
    (way,) = resolved("qwen2-vl-7b", 'a: writer.system="Be brief."')
    assert way.stages[0].settings["system"] == "Be brief."


def test_a_setting_that_runs_at_another_value_is_named() -> None:
    """Tiny weights are float32 and take at most two steps, whatever is set."""
    ways = ["a: dtype=float32 batch_size=2", "b: dtype=bfloat16 steps=50 guidance=3"]
    one, other = resolved("sdxl-turbo", *ways)
    assert one.ineffective == []
    assert other.ineffective == ["dtype=float32", "steps=2"]
    (both,) = resolved("qwen2-vl-7b+sdxl-turbo", "a: writer.dtype=bfloat16")
    assert both.ineffective == ["writer.dtype=float32"]


def test_another_system_has_its_own_settings() -> None:
    """`--set` is for the measured system; a server would refuse its settings."""
    ways = ["a", "served: system=openai:M base_url=http://127.0.0.1:1/v1"]
    one, served = resolved("qwen2-vl-7b", *ways, common={"max_new_tokens": 7})
    assert (one.token_limit, served.token_limit) == (7, 1024)
    assert served.name == "openai:M"
    assert "base_url" in served.as_json()["stages"][0]["options"]


def test_a_users_class_beside_an_lvlm_is_asked_the_same() -> None:
    one, own = resolved("qwen2-vl-7b", "a", "b: system=fidelity_helpers:Planted")
    assert one.asked == own.asked


def test_wrong_use_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UsageError, match="at least one way of running anole, such as"):
        resolved("anole")
    with pytest.raises(UsageError, match="'a' names two ways"):
        resolved("anole", "a", "a: batch_size=2")
    with pytest.raises(UsageError, match="did you mean 'batch_size'"):
        resolved("qwen2-vl-7b", "a: batchsize=2")
    with pytest.raises(UsageError, match=r"model or system 'anloe'; did you mean 'anole'"):
        resolved("anloe", "a")
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        resolved("openai:gpt-x", "a: base_url=https://api.example.com/v1")
