"""Drawing from vectors: what the UNet is told, what is refused, what is blocked."""

import emu2_helpers as helpers
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from generators.base import Failure, Fault, Result
from generators.diffusion.builds import tiny_modules
from generators.diffusion.designs import DESIGNS
from generators.document import ImageRequest, Payload
from generators.emu2.condition import Emu2Condition
from generators.emu2.reading import pack_vectors, unpack_vectors
from generators.emu2.render import Emu2Render
from generators.errors import CheckpointError

models = pytest.mark.models


@pytest.fixture(scope="module")
def condition():
    return Emu2Condition(weights="tiny", device="cpu")


@pytest.fixture(scope="module")
def render():
    return Emu2Render(weights="tiny", device="cpu", height=64, width=64, steps=2)


def payloads(condition, count: int) -> list[Payload]:
    made = condition([ImageRequest(f"a bird {i}") for i in range(count)])
    return [outcome.value for outcome in made]


@models
def test_guidance_starts_from_the_payload(condition):
    """At guidance 1 the unconditional vectors are not read, above it they are."""
    vectors, free = unpack_vectors(payloads(condition, 1)[0])
    for guidance, same in ((1.0, True), (3.0, False)):
        settings = {"height": 64, "width": 64, "steps": 2, "guidance": guidance}
        stage = Emu2Render(weights="tiny", device="cpu", **settings)
        pair = [pack_vectors(vectors, free), pack_vectors(vectors, torch.zeros_like(free))]
        drawn = stage([ImageRequest(payload=p, seed=1) for p in pair])
        a, b = (o.value.pixels for o in drawn)
        assert bool(np.abs(a.astype(int) - b.astype(int)).max() <= 1) is same


@models
def test_what_the_unet_is_told(condition, monkeypatch):
    """The pooled vectors are the mean; time_ids: original size, crop, target size."""
    settings = {"height": 64, "width": 32, "steps": 1}
    stage = Emu2Render(weights="tiny", device="cpu", **settings)
    unet, calls = stage.drawer.pipeline.unet, []
    usual = unet.forward

    def noted(*args, **kwargs):
        calls.append(kwargs)
        return usual(*args, **kwargs)

    monkeypatch.setattr(unet, "forward", noted)
    (payload,) = payloads(condition, 1)
    outcome = stage([ImageRequest(payload=payload, seed=1)])[0]
    assert outcome.value.pixels.shape == (64, 32, 3)
    vectors, free = unpack_vectors(payload)
    (call,) = calls
    assert torch.equal(call["encoder_hidden_states"], torch.stack([free, vectors]))
    extra = call["added_cond_kwargs"]
    assert torch.equal(extra["text_embeds"], torch.stack([free.mean(0), vectors.mean(0)]))
    assert extra["time_ids"].tolist() == [[1024, 1024, 0, 0, 64, 32]] * 2


@models
def test_pictures_of_other_query_counts_are_drawn_side_by_side(render):
    random = torch.Generator().manual_seed(1)
    pairs = [torch.randn(2, n, 64, generator=random) for n in (4, 6, 4)]
    made = [ImageRequest(payload=pack_vectors(*p), seed=i) for i, p in enumerate(pairs)]
    together = render(made)
    for outcome, request in zip(together, made, strict=True):
        alone = render([request])[0].value.pixels.astype(int)
        assert np.abs(outcome.value.pixels.astype(int) - alone).max() <= 1


@models
def test_blocked_pictures_are_failures(condition, render, monkeypatch):
    seen = []

    class Blocking:
        def blocks(self, pixels) -> bool:
            seen.append(pixels.shape)
            return len(seen) == 1

    monkeypatch.setattr(render, "_checker", Blocking())
    requests = [ImageRequest(payload=p, seed=1) for p in payloads(condition, 2)]
    blocked, drawn = render(requests)
    assert blocked.fault is Fault.UNSAFE
    assert isinstance(drawn, Result)
    assert seen == [(64, 64, 3)] * 2


@models
@pytest.mark.parametrize("save", [helpers.save_gen, helpers.save_native])
def test_the_safety_checker_of_a_checkpoint(save, tmp_path):
    """Its thresholds decide: below every cosine it blocks all, above all nothing."""
    checker = tiny_modules(DESIGNS["sd15"])["safety_checker"]
    random = torch.Generator().manual_seed(1)
    pair = torch.randn(2, 4, 64, generator=random)
    requests = [ImageRequest(payload=pack_vectors(*pair), seed=1)]
    settings = {"device": "cpu", "dtype": "float32", "height": 64, "width": 64, "steps": 2}
    for threshold, kind in ((-2.0, Failure), (2.0, Result)):
        for name in ("concept_embeds_weights", "special_care_embeds_weights"):
            getattr(checker, name).data.fill_(threshold)
        folder = tmp_path / str(threshold)
        modules = helpers.tiny_drawing() | {"safety_checker": checker}
        state = helpers.native_state(helpers.gen())
        language = helpers.gen().network.lm.config.to_dict()
        save(folder, state, helpers.gen().vision, language, modules)
        stage = Emu2Render(weights="pretrained", model=str(folder), **settings)
        assert isinstance(stage(requests)[0], kind)
        unchecked = settings | {"safety_checker": "off"}
        stage = Emu2Render(weights="pretrained", model=str(folder), **unchecked)
        assert isinstance(stage(requests)[0], Result)


@models
@pytest.mark.parametrize("older", [True, False])
def test_the_safety_checker_of_a_native_file_is_loaded_strictly(older, tmp_path):
    """Under the names of transformers 4.31, as published, and under today's."""
    checker = tiny_modules(DESIGNS["sd15"])["safety_checker"]
    modules = helpers.tiny_drawing() | {"safety_checker": checker}
    state = helpers.native_state(helpers.gen())
    language = helpers.gen().network.lm.config.to_dict()
    folder = helpers.save_native(
        tmp_path / "gen", state, helpers.gen().vision, language, modules
    )
    file = folder / "Emu2-Gen_pytorch_model.bf16.safetensors"
    tower = "safety_checker.vision_model."
    if not older:
        tensors = load_file(file)
        save_file(
            {n.replace(f"{tower}vision_model.", tower): t for n, t in tensors.items()}, file
        )
    settings = {"model": str(folder), "device": "cpu", "dtype": "float32"}
    loaded = Emu2Render(weights="pretrained", **settings).drawer.pipeline.safety_checker
    expected = checker.state_dict()
    assert loaded.state_dict().keys() == expected.keys()
    assert all(torch.equal(loaded.state_dict()[n], t) for n, t in expected.items())
    tensors = load_file(file)
    lost = next(n for n in sorted(tensors) if n.endswith("pre_layrnorm.bias"))
    tensors[f"{tower}stray"] = tensors.pop(lost)
    save_file(tensors, file)
    with pytest.raises(CheckpointError) as raised:
        Emu2Render(weights="pretrained", **settings)
    assert f"1 missing: {lost}" in str(raised.value)
    assert f"1 unexpected: {tower}stray" in str(raised.value)
