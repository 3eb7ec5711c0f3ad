"""Mini weights: pretrained folders under the names of the models they stand in for."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import mini_helpers as helpers
import pytest

from plait.benchmarks.runs.defaults import QUICKSTART
from plait.generators.base import StageSpec
from plait.generators.checkpoints import on_this_machine, pinning
from plait.generators.errors import CheckpointError, UsageError
from plait.generators.mini.digests import DIGESTS, present, verify
from plait.generators.mini.table import MINI, SHIPPED
from plait.generators.settings import SMALL_BATCH
from plait.pipelines.systems import Models, parts_of, resolve
from plait.scorers import resolve_scorer

PAIR = "qwen2-vl-7b+openjourney"


def mini(**overrides: dict[str, object]) -> Models:
    return Models(weights="mini", overrides=overrides)


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return helpers.use(helpers.fake(tmp_path / "weights"), monkeypatch)


def drawing(name: str = "openjourney", **overrides: object) -> StageSpec:
    return resolve(f"qwen2-vl-7b+{name}", mini(**{name: overrides})).stages[1]


def every_stage() -> Iterator[StageSpec]:
    t2is = ("openjourney", "openjourney-early", "sdxl", "instruct-pix2pix")
    pairs = [f"qwen2-vl-72b+{t2i}" for t2i in t2is]
    for name in ("anole", *pairs, f"{PAIR}@outline"):
        yield from resolve(name, mini()).stages
    for name in ("clipscore", "clipscore-prompt", "consistency", "judge:mmie-score"):
        yield from resolve_scorer(name, "mini", {}).stages


def test_loaders_are_given_pretrained_folders(weights: Path) -> None:
    stages = list(every_stage())
    assert {Path(s.options["model"]).name for s in stages} == {
        model.folder for model in MINI.values()
    }
    for stage in stages:
        assert (stage.weights, stage.options["weights"]) == ("mini", "pretrained")
        assert Path(stage.options["model"]).parent == weights
        assert stage.identity.startswith("folder:")
        assert stage.settings["dtype"] == "float32"
        assert (stage.placement.num_gpus, stage.placement.gpu_memory_gib) == (0, 0)


@pytest.mark.usefixtures("weights")
def test_a_mini_brings_its_own_settings_and_users_override_them() -> None:
    plain = drawing()
    assert plain.settings["steps"] == MINI["openjourney"].settings["steps"]
    assert plain.placement.batch_size == SMALL_BATCH
    changed = drawing(steps=3, dtype="bfloat16", num_gpus=1, batch_size=3)
    assert (changed.settings["steps"], changed.settings["dtype"]) == (3, "bfloat16")
    assert changed.settings["guidance"] == plain.settings["guidance"]
    assert changed.placement.num_gpus == 1
    assert changed.options["batch_size"] == changed.placement.batch_size == 3
    system = resolve("anole", mini(anole={"draft": {"max_images": 1}}))
    assert system.stages[0].settings["max_images"] == system.max_images == 1


@pytest.mark.usefixtures("weights")
def test_a_users_own_class_is_never_told_of_a_fourth_kind() -> None:
    own, _ = resolve("users_own:Poet+openjourney", mini()).stages
    assert own.options["weights"] == own.weights == "pretrained"


@pytest.mark.parametrize(
    ("name", "weights"),
    [("flux", "mini"), ("diffusers:org/name", "mini")]
    + [("openjourney-early", other) for other in ("pretrained", "dummy", "tiny")],
)
@pytest.mark.usefixtures("weights")
def test_a_model_without_such_weights_is_refused(name: str, weights) -> None:
    assert parts_of(f"qwen2-vl-7b+{name}@outline").t2i == name
    with pytest.raises(UsageError, match="mini"):
        resolve(f"openai:some+{name}", Models(weights=weights))


@pytest.mark.parametrize("key", ["model", "revision"])
@pytest.mark.usefixtures("weights")
def test_other_weights_are_not_taken_for_mini(key: str) -> None:
    with pytest.raises(UsageError, match=f"models.openjourney.{key}"):
        drawing(**{key: "somewhere"})
    with pytest.raises(UsageError, match=f"models.anole.{key}"):
        resolve("anole", mini(anole={"render": {key: "somewhere"}}))


def test_results_are_named_by_the_files_wherever_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run pins them by name, and stays readable without them."""
    digests = {}
    for place, content in {"one": b"a", "changed": b"b", "other": b"a"}.items():
        helpers.use(helpers.fake(tmp_path / place, content), monkeypatch)
        with pinning({}) as pins:
            digests[place] = [s.digest for s in every_stage()]
    assert digests["one"] == digests["other"]
    assert not set(digests["one"]) & set(digests["changed"])
    assert set(pins.known) == {f"mini:{name}" for name in MINI}
    assert str(tmp_path) not in json.dumps(pins.known)
    helpers.use(tmp_path / "nowhere", monkeypatch)
    with pinning(pins.known) as later:
        assert [s.digest for s in every_stage()] == digests["one"]
    assert not later.missing


def test_missing_weights_are_named_and_can_still_be_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = helpers.use(tmp_path / "nowhere", monkeypatch)
    with pytest.raises(CheckpointError, match=str(root / "openjourney")):
        resolve("openai:some+openjourney", mini())
    with pinning({}) as pins:
        resolve("openai:some+openjourney", mini())
    (missing,) = pins.missing
    assert str(root / "openjourney") in missing


def test_weights_that_differ_from_the_pinned_ones_are_refused(weights: Path) -> None:
    """A bit of the middle of a large file, which a fingerprint does not read."""
    file = weights / "clip" / "model.safetensors"
    content = bytearray(3 << 20)
    file.write_bytes(content)
    helpers.pinned(weights)
    assert verify("clipscore").startswith("folder:")
    content[len(content) // 2] = 1
    file.write_bytes(content)
    os.utime(file, ns=(time.time_ns(), time.time_ns()))
    with pytest.raises(CheckpointError, match="clip are not the pinned ones"):
        verify("clipscore")
    assert verify("anole").startswith("folder:")


def test_a_worker_uses_the_weights_of_its_own_checkout(tmp_path: Path) -> None:
    """Unless the planned folder is there."""
    planned = {"model": "/another/machine/generators/mini/weights/clip", "device": "cpu"}
    assert on_this_machine(planned) == planned | {"model": str(SHIPPED / "clip")}
    here = tmp_path / "generators" / "mini" / "weights" / "clip"
    here.mkdir(parents=True)
    for other in (str(here), "org/name", "/another/machine/clip", None):
        assert on_this_machine({"model": other}) == {"model": other}


def test_the_shipped_weights_are_the_pinned_ones_and_small() -> None:
    assert present(SHIPPED) == json.loads((SHIPPED / DIGESTS).read_text())
    files = [f for f in SHIPPED.rglob("*") if f.is_file()]
    assert sum(f.stat().st_size for f in files if not f.is_symlink()) <= 48 * 2**20
    assert all(f.resolve().is_relative_to(SHIPPED.resolve()) for f in files)
    for file in (f for f in files if f.suffix == ".json"):
        assert json.loads(file.read_text()).get("_name_or_path", "") == "", file
    for name in QUICKSTART.systems:
        resolve(name, mini())
    for name in QUICKSTART.scorers:
        resolve_scorer(name, "mini", {})
