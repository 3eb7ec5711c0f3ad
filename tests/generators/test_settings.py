"""Which exact weights a stage's settings name, companions included."""

from typing import ClassVar

import pytest

from generators.base import Kind
from generators.checkpoints import pinning, with_revision
from generators.settings import ModelSettings, StageSettings, unkeyed

COMMIT = "a" * 40


class Paired(ModelSettings):
    kind: ClassVar[Kind] = Kind.RENDER
    stage: ClassVar[str] = "paired"
    target: ClassVar[str] = "nowhere:Paired"
    companions: ClassVar[tuple[str, ...]] = ("eyes", "brush")

    model: str = unkeyed("org/mind")
    eyes: str = unkeyed("org/eyes")
    brush: str | None = unkeyed(None)


def test_companions_are_part_of_the_identity_and_pinned(tmp_path):
    (tmp_path / "weights").write_bytes(b"1")
    told = Paired(revision=COMMIT, eyes=f"org/eyes@{COMMIT}", brush=str(tmp_path))
    before = told.spec("paired", "pretrained")
    assert before.identity.startswith(
        f"hub:org/mind@{COMMIT}+hub:org/eyes@{COMMIT}+folder:"
    )
    assert before.options["eyes"] == f"org/eyes@{COMMIT}"
    assert before.options["revision"] == COMMIT
    assert before.options["brush"] == str(tmp_path)
    (tmp_path / "weights").write_bytes(b"2")
    assert told.spec("paired", "pretrained").digest != before.digest


def test_a_branch_of_a_companion_becomes_its_commit():
    with pinning({"org/eyes@main": f"hub:org/eyes@{COMMIT}"}) as pins:
        told = Paired(revision=COMMIT)
        assert told.options("pretrained")["eyes"] == f"org/eyes@{COMMIT}"
        assert told.options("pretrained")["brush"] is None
    assert set(pins.known) == {"org/eyes@main", f"org/mind@{COMMIT}"}


def test_companions_do_not_touch_random_weights():
    one, other = Paired(), Paired(eyes="org/others")
    assert one.spec("x", "tiny").digest == other.spec("x", "tiny").digest


@pytest.mark.parametrize(
    ("name", "model", "revision"),
    [
        ("org/x", "org/x", None),
        ("org/x@v1", "org/x", "v1"),
        ("./x@v1", "./x@v1", None),
        ("/some/folder@home", "/some/folder@home", None),
    ],
)
def test_revisions_are_read_of_hub_ids_only(name, model, revision):
    assert with_revision(name) == (model, revision)


def test_gpus_are_a_share_of_one_or_whole():
    assert Paired(num_gpus=0.2).num_gpus == 0.2
    assert Paired(num_gpus=3).num_gpus == 3
    with pytest.raises(ValueError, match=r"1\.5 is no number of GPUs"):
        Paired(num_gpus=1.5)


def test_only_models_take_gpus_by_default():
    class Plain(StageSettings):
        kind: ClassVar[Kind] = Kind.SCORE
        target: ClassVar[str] = "nowhere:Plain"

    assert Plain().placement("pretrained", 80.0).num_gpus == 0
    assert Plain(num_gpus=1).placement("pretrained", 80.0).num_gpus == 1
    assert Paired().placement("pretrained", 80.0).num_gpus == 1
    assert Paired(params_b=70).placement("pretrained", 80.0).num_gpus == 2
    assert Paired(params_b=70).placement("tiny", 80.0).num_gpus == 0


def test_a_stage_that_halves_its_batches_never_asks_for_a_second_gpu():
    class Spread(Paired):
        def per_record_gib(self) -> float:
            return 10.0

    class Halving(Spread):
        spans_gpus: ClassVar[bool] = False

    held = 10e9 * 2 * 1.2 / 2**30
    for batch, gpus in ((1, 1), (8, 2)):
        told = {"params_b": 10, "batch_size": batch}
        spread = Spread(**told).placement("pretrained", 80.0)
        halving = Halving(**told).placement("pretrained", 80.0)
        assert (spread.num_gpus, halving.num_gpus) == (gpus, 1)
        assert spread.gpu_memory_gib == pytest.approx(held + 10 * batch)
        assert halving.gpu_memory_gib == spread.gpu_memory_gib
    assert Halving(params_b=10, num_gpus=2).placement("pretrained", 80.0).num_gpus == 2
    assert Halving(params_b=10).placement("tiny", 80.0).num_gpus == 0
    assert Halving(params_b=10).memory_estimate_gib("tiny") == 0
