"""Anole's published layouts: what is read, and that nothing is assumed."""

import json

import anole_helpers as helpers
import pytest
import torch
from natives import asked, published
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from generators.anole import models
from generators.anole.draft import AnoleDraft
from generators.anole.render import AnoleRender
from generators.decoding.payloads import unpack
from generators.errors import CheckpointError

pytestmark = pytest.mark.models

GREEDY = {"text_greedy": True, "image_greedy": True}


@pytest.fixture(scope="module")
def taming():
    return helpers.taming_tensors()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, taming):
    place = tmp_path_factory.mktemp("hf") / "anole"
    return helpers.save_hf(place, helpers.language(), taming)


def drafting(folder, **settings) -> AnoleDraft:
    return published("anole", "draft", {"model": str(folder)}, context=200, **settings)


def rendering(folder) -> AnoleRender:
    return published("anole", "render", {"model": str(folder)})


def codes(outcomes) -> list[torch.Tensor]:
    requests = [request for o in outcomes for request in o.value.requests]
    return [unpack(request.payload, "codes")[0] for request in requests]


def test_renderer_reads_only_the_shards_it_needs(folder, tmp_path, taming):
    copy = helpers.save_hf(tmp_path / "part", helpers.language(), taming)
    index = json.loads((copy / "model.safetensors.index.json").read_text())["weight_map"]
    needed = {shard for name, shard in index.items() if ".vqmodel." in name}
    tensors = {}
    for shard in sorted(set(index.values())):
        tensors |= load_file(copy / shard)
        (copy / shard).unlink()
    vq = {k: v for k, v in tensors.items() if ".vqmodel." in k}
    save_file(vq, copy / "vq.safetensors")
    where = {k: "vq.safetensors" if k in vq else "absent.safetensors" for k in index}
    (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    assert needed
    rendering(copy)
    with pytest.raises(CheckpointError, match=r"has no file 'absent\.safetensors'"):
        drafting(copy)


def test_vq_model_alone_renders_but_does_not_draft(tmp_path, taming):
    save_file(taming, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(helpers.VQ))
    rendering(tmp_path)
    with pytest.raises(CheckpointError, match="VQ model only"):
        drafting(tmp_path)


def test_configs_may_leave_defaults_out(tmp_path, taming):
    vq = {k: v for k, v in helpers.VQ.items() if k not in ("in_channels", "attn_type")}
    del vq["double_latent"], vq["attn_resolutions"]
    folder = helpers.save_hf(tmp_path / "anole", helpers.language(), taming, vq)
    rendering(folder)


def test_ids_may_stand_in_any_order(tmp_path, folder, taming):
    """The same model with all ids shuffled writes the same text and the same codes."""
    language = helpers.language()
    size = language.model.vocab_size
    new = torch.randperm(size, generator=torch.Generator().manual_seed(0))
    text = json.loads(language.tokenizer.to_str())
    text["model"]["vocab"] = {n: int(new[i]) for n, i in text["model"]["vocab"].items()}
    for token in text["added_tokens"]:
        token["id"] = int(new[token["id"]])
    text["added_tokens"].sort(key=lambda token: token["id"])
    shuffled = models.AnoleLanguage(
        language.model, Tokenizer.from_str(json.dumps(text)), language.vocabulary
    )

    def change(tensors) -> None:
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            moved = torch.empty_like(tensors[name])
            moved[new] = tensors[name]
            tensors[name] = moved

    moved = helpers.save_hf(tmp_path / "moved", shuffled, taming, change=change)
    requests = [asked("a small red boat"), asked("then the river")]
    usual = drafting(folder, **GREEDY)(requests)
    other = drafting(moved, **GREEDY)(requests)
    assert [o.value.text for o in usual] == [o.value.text for o in other]
    assert codes(usual)
    pairs = zip(codes(usual), codes(other), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_picture_size_comes_from_the_config(tmp_path):
    vq = helpers.VQ | {
        "resolution": 24,
        "channel_multiplier": [1, 2, 1],
        "num_res_blocks": 2,
    }
    folder = helpers.save_hf(
        tmp_path / "small", helpers.language(), helpers.taming_tensors(vq), vq
    )
    outcomes = drafting(folder)([asked("a small boat", seed=s) for s in range(6)])
    requests = [r for o in outcomes for r in o.value.requests]
    assert {c.shape for c in codes(outcomes)} == {(6, 6)}
    drawn = rendering(folder)(requests)
    assert {d.value.pixels.shape for d in drawn} == {(24, 24, 3)}
