"""Large models: layers over several devices, in fewer bits, never twice in memory."""

import importlib.util

import emu2_helpers as helpers
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from generators.document import ImageRequest
from generators.emu2 import models
from generators.emu2.condition import Emu2Condition
from generators.emu2.draft import Emu2Draft
from generators.emu2.network import empty_network
from generators.emu2.placing import device_map, devices_of, layer_devices, quantising
from generators.emu2.reading import unpack_vectors
from generators.emu2.sizes import FULL_CHAT, TINY_CHAT
from generators.errors import CheckpointError
from generators.loading.strict import fill

TOLD = {"weights": "pretrained", "device": "cpu", "dtype": "float32"}
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


def test_the_published_chat_on_two_gpus():
    """The first holds vision, embeddings and head as well: 4.8 of 36.9 billion."""
    layers = layer_devices(60, 535_041_024, 4_800_000_000, 2)
    assert layers.count(0) == pytest.approx(26, abs=1)
    assert layer_devices(60, 535_041_024, 4_800_000_000, 1) == [0] * 60
    four = layer_devices(60, 535_041_024, 4_800_000_000, 4)
    assert [four.count(d) for d in range(4)] == pytest.approx([8, 17, 17, 17], abs=1)


@pytest.mark.models
def test_parameters_go_where_their_layer_is():
    network = empty_network(FULL_CHAT.vision, FULL_CHAT.config(32_274))
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


@pytest.fixture
def folder(tmp_path):
    state = helpers.native_state(helpers.chat())
    sizes = (TINY_CHAT.vision, TINY_CHAT.language)
    return helpers.save_chat(tmp_path / "chat", state, *sizes)


@pytest.mark.models
def test_states_follow_the_layers_from_device_to_device(monkeypatch, folder):
    """As over several GPUs, with devices that are all this one CPU."""
    asked = [helpers.asked("A red house", helpers.picture(1)), helpers.asked("Why?")]
    wanted = [ImageRequest("a bird", context=(helpers.picture(1),)), ImageRequest("a cup")]
    chat, gen = (make(weights="tiny", device="cpu") for make in (Emu2Draft, Emu2Condition))
    monkeypatch.setattr(models, "devices_of", lambda name: [torch.device("cpu")] * 2)
    spread = Emu2Draft(model=str(folder), **TOLD)
    assert all(hasattr(m, "_hf_hook") for m in spread.model.network.lm.model.layers)
    ours, theirs = ([o.value.text for o in stage(asked)] for stage in (spread, chat))
    assert ours == theirs
    spread = Emu2Condition(weights="tiny", device="cpu")
    assert all(hasattr(m, "_hf_hook") for m in spread.model.network.lm.model.layers)
    for a, b in zip(spread(wanted), gen(wanted), strict=True):
        assert (unpack_vectors(a.value)[0] - unpack_vectors(b.value)[0]).abs().max() < 1e-5


@pytest.mark.models
def test_no_more_than_one_tensor_waits(folder, monkeypatch):
    """Each stored tensor is on its device before the next is read."""
    events = []
    checkpoint = models.open_checkpoint(str(folder))
    usual = checkpoint.tensors

    def tensors():
        for name, tensor in usual():
            events.append("read")
            yield name, tensor

    network = empty_network(TINY_CHAT.vision, TINY_CHAT.config(754))
    layout = checkpoint.layout(network.state_dict())

    def home(name: str) -> torch.device:
        events.append("placed")
        return helpers.CPU

    stray = checkpoint.stray(2)
    fill(
        network,
        tensors(),
        layout,
        source="test",
        device=home,
        dtype=torch.bfloat16,
        tolerated=stray,
    )
    kept = "".join("r" if e == "read" else "p" for e in events)
    assert "pp" not in kept
    assert kept.count("p") == len(layout)
    assert kept.count("r") == len(layout) + len(stray)


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
def test_quantised_layers(kind, share, error, folder):
    """Close to the full ones, in a quarter or an eighth of float32's bytes."""
    pytest.importorskip("bitsandbytes")
    stage = Emu2Draft(model=str(folder), quantization=kind, **TOLD)
    network = stage.model.network
    for module in (
        network.lm.lm_head,
        network.project_up,
        network.visual.blocks[0].attn.qkv,
    ):
        assert type(module) is torch.nn.Linear
    for name in ("self_attn.q_proj", "mlp.down_proj"):
        layer = network.lm.model.layers[1].get_submodule(name)
        full = helpers.chat().network.lm.model.layers[1].get_submodule(name)
        weight = layer.weight
        assert weight.numel() * weight.element_size() == share * full.weight.numel()
        random = torch.Generator().manual_seed(0)
        states = torch.randn(2, 5, full.in_features, generator=random)
        wanted = full(states)
        assert (layer(states) - wanted).norm() / wanted.norm() < error
    outcome = stage([helpers.asked("A red house", helpers.picture(1))])[0]
    assert outcome.value.text.strip()


@pytest.mark.models
@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_quantised_random_weights(kind):
    pytest.importorskip("bitsandbytes")
    stage = Emu2Condition(weights="tiny", device="cpu", quantization=kind)
    full = Emu2Condition(weights="tiny", device="cpu")
    requests = [ImageRequest("a bird", context=(helpers.picture(1),))]
    ours, theirs = (unpack_vectors(s(requests)[0].value)[0] for s in (stage, full))
    difference = (ours - theirs).norm() / theirs.norm()
    assert 0 < difference < (0.1 if kind == "int8" else 1.0)


@pytest.mark.models
def test_matrices_are_quantised_as_they_arrive(folder):
    """When the next tensor is asked for, the last matrix is already in few bits."""
    pytest.importorskip("bitsandbytes")
    checkpoint = models.open_checkpoint(str(folder))
    network = empty_network(TINY_CHAT.vision, TINY_CHAT.config(754))
    layout = checkpoint.layout(network.state_dict())
    full = []

    def counted():
        for stored in checkpoint.tensors():
            layers = network.lm.model.layers.modules()
            plain = [m for m in layers if type(m) is torch.nn.Linear]
            full.append(sum(not m.weight.is_meta for m in plain))
            yield stored

    fill(
        network,
        quantising(counted(), network, layout, "int4"),
        layout,
        source="test",
        device=helpers.CPU,
        dtype=torch.float32,
        tolerated=checkpoint.stray(2),
    )
    assert set(full) == {0}
