"""Mini weights: pretrained folders under the names of the models they stand in for."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import mini_helpers as helpers
import pytest

from benchmarks.runs.defaults import QUICKSTART
from generators.base import StageSpec
from generators.checkpoints import on_this_machine, pinning
from generators.errors import CheckpointError, UsageError
from generators.mini.digests import DIGESTS, present, verified
from generators.mini.table import MINI, SHIPPED
from generators.settings import SMALL_BATCH
from pipelines.systems import Models, parts_of, resolve
from scorers import resolve_scorer

PAIR = "qwen2-vl-7b+openjourney"


def mini(**overrides: dict[str, object]) -> Models:
    return Models(weights="mini", overrides=overrides)


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return helpers.use(helpers.fake(tmp_path / "weights"), monkeypatch)


def artist(name: str = "openjourney", **overrides: object) -> StageSpec:
    system = resolve(f"qwen2-vl-7b+{name}", mini(**{name: overrides}))
    assert system.render is not None
    return system.render


def every_stage() -> Iterator[StageSpec]:
    for name in ("anole", *(f"qwen2-vl-72b+{t}" for t in ARTISTS), f"{PAIR}@outline"):
        yield from resolve(name, mini()).stages
    for name in ("clipscore", "consistency", "judge:mmie-score"):
        yield from resolve_scorer(name, "mini", {}).stages


ARTISTS = ("openjourney", "openjourney-early", "sdxl")


@pytest.mark.usefixtures("weights")
def test_loaders_are_given_pretrained_folders(weights: Path) -> None:
    stages = list(every_stage())
    assert {Path(s.options["model"]).name for s in stages} == {
        model.folder for model in MINI.values()
    }
    for stage in stages:
        assert stage.weights == "mini"
        assert stage.options["weights"] == "pretrained"
        assert Path(stage.options["model"]).parent == weights
        assert stage.identity.startswith("folder:")
        assert stage.settings["dtype"] == "float32"
        assert (stage.placement.num_gpus, stage.placement.gpu_memory_gib) == (0, 0)


@pytest.mark.usefixtures("weights")
def test_minis_are_small_enough_for_larger_batches() -> None:
    assert {s.placement.batch_size for s in resolve("anole", mini()).stages} == {
        SMALL_BATCH
    }
    drawn = resolve("qwen2-vl-7b+sdxl", mini(sdxl={"batch_size": 3})).stages[1]
    assert drawn.options["batch_size"] == drawn.placement.batch_size == 3


@pytest.mark.usefixtures("weights")
def test_a_mini_brings_its_own_settings_and_users_override_them() -> None:
    assert artist().settings["steps"] == MINI["openjourney"].settings["steps"]
    changed = artist(steps=3, dtype="bfloat16", num_gpus=1)
    assert (changed.settings["steps"], changed.settings["dtype"]) == (3, "bfloat16")
    assert changed.settings["guidance"] == artist().settings["guidance"]
    assert changed.placement.num_gpus == 1


@pytest.mark.usefixtures("weights")
def test_settings_of_one_stage_of_a_native_model_override_those_of_all() -> None:
    system = resolve("anole", mini(anole={"draft": {"max_images": 1}}))
    assert system.draft is not None
    assert system.draft.settings["max_images"] == system.max_images == 1


@pytest.mark.parametrize(
    "name", ["flux", "sdxl-turbo", "diffusers:org/name"], ids=["flux", "turbo", "any"]
)
@pytest.mark.usefixtures("weights")
def test_an_artist_without_a_mini_is_refused_with_those_that_have_one(name: str) -> None:
    with pytest.raises(UsageError, match="has no mini weights; these have: anole, clip"):
        resolve(f"qwen2-vl-7b+{name}", mini())


@pytest.mark.usefixtures("weights")
def test_a_users_own_class_is_never_told_of_a_fourth_kind() -> None:
    (own, _) = resolve("users_own:Poet+openjourney", mini()).stages
    assert own.options["weights"] == own.weights == "pretrained"


@pytest.mark.parametrize("weights", ["pretrained", "dummy", "tiny"])
def test_a_name_that_is_only_mini_is_refused_under_other_weights(weights) -> None:
    assert parts_of("qwen2-vl-7b+openjourney-early@outline").artist == "openjourney-early"
    with pytest.raises(UsageError, match="'openjourney-early' has mini weights alone"):
        resolve("openai:some+openjourney-early", Models(weights=weights))


@pytest.mark.parametrize("key", ["model", "revision"])
@pytest.mark.usefixtures("weights")
def test_other_weights_are_not_taken_for_mini(key: str) -> None:
    with pytest.raises(UsageError, match=f"models.openjourney.{key} cannot be set"):
        artist(**{key: "somewhere"})
    with pytest.raises(UsageError, match=f"models.anole.{key} cannot be set"):
        resolve("anole", mini(anole={"render": {key: "somewhere"}}))


def test_results_are_named_by_the_files_wherever_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = {}
    for place, content in {"one": b"a", "other": b"a", "changed": b"b"}.items():
        helpers.use(helpers.fake(tmp_path / place, content), monkeypatch)
        digests[place] = [s.digest for s in every_stage()]
    assert digests["one"] == digests["other"]
    assert not set(digests["one"]) & set(digests["changed"])


def test_a_run_pins_them_by_name_and_stays_readable_without_them(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pinning({}) as pins:
        before = [s.digest for s in every_stage()]
    assert set(pins.known) == {f"mini:{name}" for name in MINI}
    assert str(weights) not in json.dumps(pins.known)
    helpers.use(tmp_path / "nowhere", monkeypatch)
    with pinning(pins.known) as later:
        assert [s.digest for s in every_stage()] == before
    assert not later.missing


def test_missing_weights_are_named_and_can_still_be_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = helpers.use(tmp_path / "nowhere", monkeypatch)
    wanted = f"the mini weights of 'openjourney' are not in {root / 'openjourney'}"
    with pytest.raises(CheckpointError, match=wanted):
        resolve("openai:some+openjourney", mini())
    with pinning({}) as pins:
        resolve("openai:some+openjourney", mini())
    assert len(pins.missing) == 1
    assert wanted in pins.missing[0]


def test_weights_that_differ_from_the_pinned_ones_are_refused(weights: Path) -> None:
    helpers.pinned(weights)
    assert verified("sdxl").startswith("folder:")
    file = weights / "sdxl" / "model.safetensors"
    file.write_bytes(file.read_bytes()[::-1])
    # Not the size and not the head: a file that is one byte off in its middle.
    os.utime(file, ns=(time.time_ns(), time.time_ns()))
    with pytest.raises(CheckpointError, match="sdxl are not the pinned ones"):
        verified("sdxl")
    assert verified("anole").startswith("folder:")


def test_a_change_in_the_middle_of_a_large_file_is_seen(weights: Path) -> None:
    file = weights / "clip" / "model.safetensors"
    content = bytearray(3 << 20)
    file.write_bytes(content)
    helpers.pinned(weights)
    content[len(content) // 2] = 1
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match="not the pinned ones"):
        verified("clipscore")


def test_a_worker_uses_the_weights_of_its_own_checkout() -> None:
    planned = {"model": "/another/machine/generators/mini/weights/clip", "device": "cpu"}
    assert on_this_machine(planned) == planned | {"model": str(SHIPPED / "clip")}
    for other in ("org/name", "/another/machine/clip", None):
        assert on_this_machine({"model": other}) == {"model": other}


def test_a_worker_uses_the_planned_folder_where_it_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "generators" / "mini" / "weights" / "clip"
    folder.mkdir(parents=True)
    assert on_this_machine({"model": str(folder)}) == {"model": str(folder)}


shipped = pytest.mark.skipif(not SHIPPED.exists(), reason="no mini weights in the checkout")


@shipped
def test_the_shipped_weights_are_the_pinned_ones_and_small() -> None:
    assert present(SHIPPED) == json.loads((SHIPPED / DIGESTS).read_text())
    own = [f for f in SHIPPED.rglob("*") if f.is_file() and not f.is_symlink()]
    assert sum(f.stat().st_size for f in own) <= 40 * 2**20
    assert all(f.is_file() and f.resolve().is_relative_to(SHIPPED) for f in linked())


def linked() -> list[Path]:
    """Files that two artists share."""
    links = [f for f in SHIPPED.rglob("*") if f.is_symlink()]
    assert links
    return links


@shipped
def test_no_shipped_file_names_a_place_of_the_machine_it_was_made_on() -> None:
    for file in SHIPPED.rglob("*.json"):
        assert json.loads(file.read_text()).get("_name_or_path", "") == "", file


@shipped
@pytest.mark.parametrize("name", [*QUICKSTART.systems, *QUICKSTART.scorers])
def test_the_quickstart_names_only_weights_that_are_there(name: str) -> None:
    if name in QUICKSTART.systems:
        resolve(name, mini())
    else:
        resolve_scorer(name, "mini", {})
