"""Which exact weights a stage's settings name, and how many GPUs they take."""

from typing import ClassVar

import pytest

from plait.generators.base import Kind
from plait.generators.checkpoints import pinning
from plait.generators.settings import ModelSettings, StageSettings, unkeyed

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
    settings = Paired(revision=COMMIT, eyes=f"org/eyes@{COMMIT}", brush=str(tmp_path))
    before = settings.spec("paired", "pretrained")
    hub = f"hub:org/mind@{COMMIT}+hub:org/eyes@{COMMIT}+folder:"
    assert before.identity.startswith(hub)
    pinned = {"eyes": f"org/eyes@{COMMIT}", "revision": COMMIT, "brush": str(tmp_path)}
    assert {name: before.options[name] for name in pinned} == pinned
    (tmp_path / "weights").write_bytes(b"2")
    assert settings.spec("paired", "pretrained").digest != before.digest
    random = [s.spec("x", "tiny").digest for s in (Paired(), Paired(eyes="org/others"))]
    assert random[0] == random[1], "random weights have none"


def test_a_branch_of_a_companion_becomes_its_commit():
    with pinning({"org/eyes@main": f"hub:org/eyes@{COMMIT}"}) as pins:
        options = Paired(revision=COMMIT).options("pretrained")
    assert (options["eyes"], options["brush"]) == (f"org/eyes@{COMMIT}", None)
    assert set(pins.known) == {"org/eyes@main", f"org/mind@{COMMIT}"}


class Plain(StageSettings):
    kind: ClassVar[Kind] = Kind.SCORE
    target: ClassVar[str] = "nowhere:Plain"


class Halving(Paired):
    """Halves batches that do not fit, and so never asks for a second GPU."""

    spans_gpus: ClassVar[bool] = False


@pytest.mark.parametrize(
    ("settings", "weights", "gpus"),
    [
        (Plain(), "pretrained", 0),
        (Plain(num_gpus=0.2), "pretrained", 0.2),
        (Plain(num_gpus=3), "pretrained", 3),
        (Paired(), "pretrained", 1),
        (Paired(params_b=70), "pretrained", 2),
        (Paired(params_b=70), "tiny", 0),
        (Halving(params_b=70), "pretrained", 1),
        (Halving(params_b=70, num_gpus=2), "pretrained", 2),
        (Halving(params_b=70), "tiny", 0),
    ],
)
def test_models_take_gpus_by_their_memory(settings, weights, gpus):
    assert settings.placement(weights, 80.0).num_gpus == gpus


def test_gpus_are_a_share_of_one_or_whole():
    with pytest.raises(ValueError, match=r"1\.5"):
        Paired(num_gpus=1.5)


def test_the_records_of_a_batch_take_memory_besides_the_weights():
    class Spread(Paired):
        def per_record_gib(self) -> float:
            return 10.0

    for batch, gpus in ((1, 1), (8, 2)):
        placed = Spread(params_b=10, batch_size=batch).placement("pretrained", 80.0)
        held = 10e9 * 2 * 1.2 / 2**30
        assert placed.gpu_memory_gib == pytest.approx(held + 10 * batch)
        assert placed.num_gpus == gpus
    assert Spread(params_b=10).memory_estimate_gib("tiny") == 0
