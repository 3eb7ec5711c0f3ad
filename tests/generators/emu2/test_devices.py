"""Large models: layers over several devices, in fewer bits, never twice in memory."""

import importlib.util

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from natives import asked, published, tiny
from picture_helpers import smooth

from generators.architectures import config_of
from generators.decoding.payloads import unpack
from generators.document import ImageRequest
from generators.emu2 import models
from generators.emu2.condition import Emu2Condition
from generators.emu2.draft import Emu2Draft
from generators.emu2.network import empty_network
from generators.emu2.placing import device_map, devices_of, layer_devices, quantising
from generators.errors import CheckpointError
from generators.loading.strict import fill

CPU = torch.device("cpu")
CUDA = [torch.device("cuda", i) for i in range(4)]


@given(st.integers(1, 80), st.integers(1, 1000), st.integers(0, 20_000), st.integers(1, 8))
def test_devices_hold_about_the_same(layers, size, rest, devices):
    placed = layer_devices(layers, size, rest, devices)
    assert len(placed) == layers
    assert placed == sorted(placed), "states pass each device once"
    assert set(placed) <= set(range(devices))
    held = [rest * (d == 0) + size * placed.count(d) for d in range(devices)]
    fair = (layers * size + rest) / devices
    assert max(held) <= max(fair, rest) + size * devices


@pytest.mark.models
def test_parameters_go_where_their_layer_is():
    sizes = config_of("emu2", tiny=False)
    vision, config = models.vision_size(sizes, "chat"), models.llama_config(sizes, 32_274)
    network = empty_network(vision, config)
    home = device_map(network, CUDA[:2])
    bytes_on = dict.fromkeys(CUDA[:2], 0)
    for name, value in network.named_parameters():
        bytes_on[home(name)] += 2 * value.numel()
    assert max(bytes_on.values()) / min(bytes_on.values()) < 1.05
    first = ("visual.cls_token", "project_up.weight", "lm.lm_head.weight")
    assert {home(name) for name in (*first, "lm.model.norm.weight")} == {CUDA[0]}
    assert home("lm.model.layers.0.mlp.up_proj.weight") == CUDA[0]
    assert home("lm.model.layers.59.mlp.up_proj.weight") == CUDA[1]


def test_auto_means_every_visible_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert devices_of("auto") == CUDA[:3]
    assert devices_of("cuda:1") == [CUDA[1]]
    assert devices_of("cpu") == [torch.device("cpu")]


@pytest.mark.models
def test_states_follow_the_layers_from_device_to_device(monkeypatch, stage, saved):
    """As over several GPUs, with devices that are all this one CPU."""
    questions = [asked("A red house", smooth(1)), asked("Why?")]
    wanted = [ImageRequest("a bird", context=(smooth(1),)), ImageRequest("a cup")]
    monkeypatch.setattr(models, "devices_of", lambda name: [CPU] * 2)
    spread = published("emu2", "draft", saved("emu2", "draft"), max_new_tokens=9)
    assert all(hasattr(m, "_hf_hook") for m in spread.model.network.lm.model.layers)
    whole = stage("emu2", max_new_tokens=9)
    ours, theirs = ([o.value.text for o in made(questions)] for made in (spread, whole))
    assert ours == theirs
    spread = Emu2Condition(weights="tiny", device="cpu")
    assert all(hasattr(m, "_hf_hook") for m in spread.model.network.lm.model.layers)
    for a, b in zip(vectors(spread, wanted), vectors(condition(), wanted), strict=True):
        assert (a - b).abs().max() < 1e-5


def condition():
    return tiny("emu2", "condition")


def vectors(stage, requests) -> list[torch.Tensor]:
    return [unpack(o.value, "vectors")[0] for o in stage(requests)]


@pytest.fixture
def filling(saved):
    """The checkpoint of Chat, an empty network for it, and how it is filled."""
    checkpoint = models.open_checkpoint(saved("emu2", "draft")["model"])
    config = models.configured("LlamaConfig", checkpoint.language(), "here")
    network = empty_network(checkpoint.vision(), config)
    layout = checkpoint.layout(network.state_dict())
    how = {"source": "test", "dtype": torch.bfloat16, "tolerated": checkpoint.stray(2)}
    return checkpoint, network, layout, how


@pytest.mark.models
def test_no_more_than_one_tensor_waits(filling):
    """Each stored tensor is on its device before the next is read."""
    checkpoint, network, layout, how = filling
    events = []

    def tensors():
        for stored in checkpoint.tensors():
            events.append("r")
            yield stored

    def home(name: str) -> torch.device:
        events.append("p")
        return CPU

    fill(network, tensors(), layout, device=home, **how)
    assert "pp" not in "".join(events)
    assert events.count("p") == len(layout)
    assert events.count("r") == len(layout) + len(how["tolerated"])


def test_quantisation_without_its_package_is_refused(monkeypatch):
    usual = importlib.util.find_spec

    def without(name, *rest):
        return None if name == "bitsandbytes" else usual(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(CheckpointError, match=r"'int4' needs .* plait\[quantization\]"):
        Emu2Draft(weights="tiny", device="cpu", quantization="int4")


@pytest.mark.models
@pytest.mark.parametrize(
    ("kind", "share", "error"), [("int8", 1, 0.03), ("int4", 0.5, 0.35)]
)
def test_quantised_layers(kind, share, error, stage):
    """Close to the full ones, in a quarter or an eighth of float32's bytes."""
    pytest.importorskip("bitsandbytes")
    quantised = stage("emu2", quantization=kind, max_new_tokens=8)
    network, full = (s.model.network for s in (quantised, stage("emu2", max_new_tokens=8)))
    for module in (
        network.lm.lm_head,
        network.project_up,
        network.visual.blocks[0].attn.qkv,
    ):
        assert type(module) is torch.nn.Linear
    for name in ("self_attn.q_proj", "mlp.down_proj"):
        layer = network.lm.model.layers[1].get_submodule(name)
        whole = full.lm.model.layers[1].get_submodule(name)
        weight = layer.weight
        assert weight.numel() * weight.element_size() == share * whole.weight.numel()
        random = torch.Generator().manual_seed(0)
        states = torch.randn(2, 5, whole.in_features, generator=random)
        wanted = whole(states)
        assert (layer(states) - wanted).norm() / wanted.norm() < error
    outcome = quantised([asked("A red house", smooth(1))])[0]
    assert outcome.value.text.strip()


@pytest.mark.models
@pytest.mark.parametrize(("kind", "error"), [("int8", 0.1), ("int4", 1.0)])
def test_quantised_random_weights(kind, error):
    pytest.importorskip("bitsandbytes")
    stage = tiny("emu2", "condition", quantization=kind)
    requests = [ImageRequest("a bird", context=(smooth(1),))]
    (ours,), (theirs,) = (vectors(s, requests) for s in (stage, condition()))
    assert 0 < (ours - theirs).norm() / theirs.norm() < error


@pytest.mark.models
def test_matrices_are_quantised_as_they_arrive(filling):
    """When the next tensor is asked for, the last matrix is already in few bits."""
    pytest.importorskip("bitsandbytes")
    checkpoint, network, layout, how = filling
    full = []

    def counted():
        for stored in checkpoint.tensors():
            layers = network.lm.model.layers.modules()
            plain = [m for m in layers if type(m) is torch.nn.Linear]
            full.append(sum(not m.weight.is_meta for m in plain))
            yield stored

    tensors = quantising(counted(), network, layout, "int4")
    fill(network, tensors, layout, device=CPU, **how)
    assert set(full) == {0}
