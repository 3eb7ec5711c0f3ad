"""Drawing from vectors: what the UNet is told, what is blocked, what is refused."""

import emu2_helpers as upstream
import numpy as np
import pytest
import torch
from natives import edit, good_payload, published, tiny
from safetensors.torch import load_file

from generators.base import Failure, Fault, Result
from generators.decoding.payloads import pack, unpack
from generators.diffusion.builds import tiny_modules
from generators.diffusion.designs import DESIGNS
from generators.document import ImageRequest
from generators.errors import CheckpointError

pytestmark = pytest.mark.models

NATIVE_FILE = "Emu2-Gen_pytorch_model.bf16.safetensors"


def payload(rows: int = 16, width: int = 64, seed: int = 0):
    pair = torch.randn(2, rows, width, generator=torch.manual_seed(seed))
    return pack(vectors=pair[0], unconditional=pair[1])


def test_guidance_starts_from_the_payload():
    """At guidance 1 the unconditional vectors are not read, above it they are."""
    vectors, free = unpack(payload(), "vectors", "unconditional")
    pair = [pack(vectors=vectors, unconditional=f) for f in (free, torch.zeros_like(free))]
    for guidance, same in ((1.0, True), (3.0, False)):
        stage = tiny("emu2", "render", guidance=guidance)
        drawn = stage([ImageRequest(payload=p, seed=1) for p in pair])
        a, b = (o.value.pixels for o in drawn)
        assert bool(np.abs(a.astype(int) - b.astype(int)).max() <= 1) is same


def test_what_the_unet_is_told(monkeypatch):
    """The pooled vectors are the mean; time_ids: original size, crop, target size."""
    stage = tiny("emu2", "render", width=32, steps=1)
    unet, calls = stage.drawer.pipeline.unet, []
    usual = unet.forward

    def noted(*args, **kwargs):
        calls.append(kwargs)
        return usual(*args, **kwargs)

    monkeypatch.setattr(unet, "forward", noted)
    outcome = stage([ImageRequest(payload=payload(), seed=1)])[0]
    assert outcome.value.pixels.shape == (64, 32, 3)
    vectors, free = unpack(payload(), "vectors", "unconditional")
    (call,) = calls
    assert torch.equal(call["encoder_hidden_states"], torch.stack([free, vectors]))
    extra = call["added_cond_kwargs"]
    assert torch.equal(extra["text_embeds"], torch.stack([free.mean(0), vectors.mean(0)]))
    assert extra["time_ids"].tolist() == [[1024, 1024, 0, 0, 64, 32]] * 2


def test_images_of_other_query_counts_are_drawn_side_by_side():
    render, made = tiny("emu2", "render"), []
    for seed, rows in enumerate((4, 6, 4)):
        made.append(ImageRequest(payload=payload(rows, seed=seed), seed=seed))
    for outcome, request in zip(render(made), made, strict=True):
        alone = render([request])[0].value.pixels.astype(int)
        assert np.abs(outcome.value.pixels.astype(int) - alone).max() <= 1


def test_blocked_images_are_failures(monkeypatch):
    render, seen = tiny("emu2", "render"), []

    class Blocking:
        def blocks(self, pixels) -> bool:
            seen.append(pixels.shape)
            return len(seen) == 1

    monkeypatch.setattr(render, "_checker", Blocking())
    requests = [ImageRequest(payload=good_payload("emu2", i), seed=1) for i in range(2)]
    blocked, drawn = render(requests)
    assert blocked.fault is Fault.UNSAFE
    assert isinstance(drawn, Result)
    assert seen == [(64, 64, 3)] * 2


@pytest.fixture(scope="module")
def checker():
    return tiny_modules(DESIGNS["sd15"])["safety_checker"]


def render(folder, **settings):
    return published("emu2", "render", {"model": str(folder)}, **settings)


@pytest.mark.parametrize("save", [upstream.hub_gen, upstream.native_gen])
def test_the_safety_checker_of_a_checkpoint(save, checker, tmp_path):
    """Its thresholds decide: below every cosine it blocks all, above all nothing."""
    request = ImageRequest(payload=payload(4, upstream.GEN_VISION.width), seed=1)
    for threshold, kind in ((-2.0, Failure), (2.0, Result)):
        for name in ("concept_embeds_weights", "special_care_embeds_weights"):
            getattr(checker, name).data.fill_(threshold)
        folder = save(tmp_path / str(threshold), safety_checker=checker)
        assert isinstance(render(folder)([request])[0], kind)
        unchecked = render(folder, safety_checker="off")
        assert isinstance(unchecked([request])[0], Result)


@pytest.mark.parametrize("older", [True, False])
def test_the_safety_checker_of_a_native_file_is_loaded_strictly(older, checker, tmp_path):
    """Under the names of transformers 4.31, as published, and under today's."""
    folder = upstream.native_gen(tmp_path / "gen", safety_checker=checker)
    tower = "safety_checker.vision_model."

    def newer(tensors) -> None:
        for name in [n for n in tensors if n.startswith(f"{tower}vision_model.")]:
            tensors[name.replace(f"{tower}vision_model.", tower)] = tensors.pop(name)

    if not older:
        edit(folder, NATIVE_FILE, newer)
    loaded = render(folder).drawer.pipeline.safety_checker.state_dict()
    expected = checker.state_dict()
    assert loaded.keys() == expected.keys()
    assert all(torch.equal(loaded[n], t) for n, t in expected.items())
    lost = next(n for n in load_file(folder / NATIVE_FILE) if "pre_layrnorm.bias" in n)
    edit(folder, NATIVE_FILE, lambda t: t.update({f"{tower}stray": t.pop(lost)}))
    with pytest.raises(CheckpointError) as raised:
        render(folder)
    assert f"1 missing: {lost}" in str(raised.value)
    assert f"1 unexpected: {tower}stray" in str(raised.value)


def test_a_misfitting_unet_is_named(copied):
    places, folder = copied("emu2", "render", "model")
    with pytest.raises(CheckpointError, match="the variant"):
        published("emu2", "render", places, variant="fp16")
    edit(folder / "unet", "*.safetensors", lambda t: t.update(stray=t.pop("conv_in.bias")))
    with pytest.raises(CheckpointError) as raised:
        published("emu2", "render", places)
    assert "unet: missing conv_in.bias" in str(raised.value)
    assert "unet: unexpected stray" in str(raised.value)
    for file in (folder / "unet").iterdir():
        file.unlink()
    (folder / "unet").rmdir()
    with pytest.raises(CheckpointError, match="unet"):
        published("emu2", "render", places)
