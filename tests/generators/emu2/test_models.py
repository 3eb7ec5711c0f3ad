"""Large models: layers over several devices, in fewer bits, never twice in memory."""

import json
import sys
from dataclasses import replace

import emu2_helpers as upstream
import pytest
import torch
from frozen import random_state
from hypothesis import given
from hypothesis import strategies as st
from natives import asked, published, tiny
from picture_helpers import smooth

from plait.generators.architectures import config_of
from plait.generators.decoding.payloads import unpack
from plait.generators.document import ImageRequest
from plait.generators.emu2 import models
from plait.generators.emu2.checkpoints import open_checkpoint
from plait.generators.emu2.condition import Emu2Condition
from plait.generators.emu2.draft import Emu2Draft
from plait.generators.emu2.network import ADDED, ADDED_CHAT, empty_network
from plait.generators.emu2.placing import device_map, devices_of, layer_devices, quantising
from plait.generators.emu2.settings import LAYERS_B
from plait.generators.errors import UsageError
from plait.generators.loading.strict import fill

pytestmark = pytest.mark.models

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


def test_full_size_has_the_published_shapes_and_each_layer_a_home():
    sizes = config_of("emu2", tiny=False)
    vision, config = models.vision_size(sizes, "chat"), models.llama_config(sizes, 32_274)
    network = empty_network(vision, config)
    ours = {
        ("decoder." + n if n.startswith("lm.") else n): tuple(t.shape)
        for n, t in network.state_dict().items()
    }
    assert ours == upstream.shapes(vision, sizes["language"], 32_274)
    assert network.vision.side == 448
    # 73.8 GB in bfloat16, the size of Emu2-Gen's eight shards.
    billions = sum(p.numel() for p in network.parameters()) / 1e9
    assert billions == pytest.approx(36.9, abs=0.05)
    inside = sum(p.numel() for p in network.lm.model.layers.parameters()) / 1e9
    assert inside == pytest.approx(LAYERS_B, abs=1e-3)
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


def test_states_follow_the_layers_from_device_to_device(monkeypatch, stage, saved):
    """As over several GPUs, with devices that are all this one CPU."""
    questions = [asked("A red house", smooth(1)), asked("Why?")]
    wanted = [ImageRequest("a bird", context=(smooth(1),)), ImageRequest("a cup")]
    drafting, conditioning = stage("emu2", max_new_tokens=9), condition()
    monkeypatch.setattr(models, "devices_of", lambda name: [CPU] * 2)
    spread = published("emu2", "draft", saved("emu2", "draft"), max_new_tokens=9)
    assert all(hasattr(m, "_hf_hook") for m in spread.model.network.lm.model.layers)
    ours, theirs = ([o.value.text for o in made(questions)] for made in (spread, drafting))
    assert ours == theirs
    spread = Emu2Condition(weights="tiny", device="cpu")
    assert all(hasattr(m, "_hf_hook") for m in spread.model.network.lm.model.layers)
    pairs = zip(vectors(spread, wanted), vectors(conditioning, wanted), strict=True)
    assert all((a - b).abs().max() < 1e-5 for a, b in pairs)


def condition():
    return tiny("emu2", "condition")


def vectors(stage, requests) -> list[torch.Tensor]:
    return [unpack(o.value, "vectors")[0] for o in stage(requests)]


@pytest.fixture
def filling(saved):
    """The checkpoint of Chat, an empty network for it, and how it is filled."""
    checkpoint = open_checkpoint(saved("emu2", "draft")["model"])
    config = checkpoint.language(0)
    network = empty_network(checkpoint.vision(), config)
    layout = checkpoint.layout(network.state_dict())
    how = {"source": "test", "dtype": torch.bfloat16, "tolerated": checkpoint.stray(2)}
    return checkpoint, network, layout, how


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
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(UsageError, match=r"plait\[quantization\]"):
        Emu2Draft(weights="tiny", device="cpu", quantization="int4")


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


@pytest.mark.parametrize(("kind", "error"), [("int8", 0.1), ("int4", 1.0)])
def test_quantised_random_weights(kind, error):
    pytest.importorskip("bitsandbytes")
    stage = tiny("emu2", "condition", quantization=kind)
    requests = [ImageRequest("a bird", context=(smooth(1),))]
    (ours,), (theirs,) = (vectors(s, requests) for s in (stage, condition()))
    assert 0 < (ours - theirs).norm() / theirs.norm() < error


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


# Published layouts: what is read, and that nothing is assumed ----------------------------


def test_native_files_without_a_vision_config(tmp_path):
    """Heads of 112 and 256 or 64 vectors are then the published ones."""
    vision = replace(
        upstream.CHAT_VISION, width=224, heads=2, patch=2, grid=32, layers=1, mlp_width=32
    )
    for names, queries in ((ADDED_CHAT, 256), (ADDED, 64)):
        shapes = upstream.shapes(vision, upstream.LANGUAGE, upstream.PIECES + len(names))
        folder = tmp_path / str(queries)
        upstream.save_native(folder, random_state(shapes.items(), 1), None)
        found = open_checkpoint(str(folder)).vision()
        assert found == replace(vision, queries=queries)


def test_vocabulary_of_newer_tokenizers(copied):
    places, folder = copied("emu2", "draft", "model")
    usual = open_checkpoint(places["model"]).tokens().added
    added = json.loads((folder / "added_tokens.json").read_text())
    (folder / "added_tokens.json").unlink()
    decoder = {str(i): {"content": name, "special": True} for name, i in added.items()}
    decoder["1"] = {"content": "<s>", "special": True}
    config = {"added_tokens_decoder": decoder}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    newer = open_checkpoint(places["model"]).tokens().added
    assert newer == usual
    assert set(ADDED_CHAT) <= set(newer)


def test_sizes_come_from_the_checkpoint(tmp_path):
    """Every dimension of it is another than that of the other tests."""
    vision = replace(
        upstream.CHAT_VISION, width=36, heads=2, patch=6, grid=6, layers=3, mlp_width=40
    )
    vision = replace(vision, queries=9)
    language = upstream.LANGUAGE | {"hidden_size": 40, "intermediate_size": 56}
    language |= {"num_hidden_layers": 3, "num_attention_heads": 5}
    language |= {"num_key_value_heads": 5, "max_position_embeddings": 300}
    shapes = upstream.shapes(vision, language, upstream.PIECES + len(ADDED_CHAT))
    state = random_state(shapes.items(), 2)
    folder = upstream.save_chat(tmp_path / "chat", state, vision, language)
    stage = published("emu2", "draft", {"model": str(folder)})
    assert stage.context == 300
    (outcome,) = stage([asked("A house", smooth(1))])
    plain = stage.prompt(asked("A house"))
    assert outcome.usage["input_tokens"] - plain.length == 11
    assert outcome.usage["output_tokens"] > 0
