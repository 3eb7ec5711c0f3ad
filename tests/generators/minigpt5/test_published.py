"""Loading of the published layouts: every tensor in its place."""

from __future__ import annotations

import minigpt5_helpers as files
import minigpt5_tensors as tiny
import pytest
import torch
from minigpt5_helpers import drafting, rendering

from generators.minigpt5 import blip2

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("minigpt5")
    transformers_blip2 = str(files.save_blip2(root / "blip2"))
    diffusion = str(files.save_diffusion(root / "sd"))
    return files.save_all(root) | {"blip2": transformers_blip2, "diffusion": diffusion}


def test_both_layouts_of_blip2_give_the_same_vectors(places):
    one, two = drafting(places), drafting(places, vision=places["blip2"])
    pixels = torch.randn(3, 3, tiny.SIDE, tiny.SIDE, generator=torch.manual_seed(0))
    a, b = one.writer.encoder(pixels), two.writer.encoder(pixels)
    assert a.shape == (3, tiny.QUERIES, tiny.WIDTH)
    # `ln_vision` is a torch.nn.LayerNorm of default epsilon (blip2.py).
    assert one.writer.encoder.vision_model.post_layernorm.eps == 1e-5
    torch.testing.assert_close(a, b, atol=0, rtol=0)


def test_lavis_leaves_out_the_last_block(places, tmp_path, monkeypatch):
    """EVA-CLIP has 40 blocks, BLIP-2 uses 39."""
    monkeypatch.setattr(blip2, "_DEPTH", tiny.VIT_LAYERS)
    longer = tiny.eva_vit(tiny.VIT_LAYERS + 1)
    longer |= {k: v for k, v in tiny.eva_vit().items() if k not in ("norm", "head")}
    vision = str(files.save_lavis(tmp_path / "lavis", vit=longer))
    encoder = drafting(places, vision=vision).writer.encoder
    assert len(encoder.vision_model.encoder.layers) == tiny.VIT_LAYERS


def test_only_the_shards_that_hold_something_are_read(places, tmp_path):
    """T5's shards are never opened, and never downloaded from the Hub."""
    folder = files.save_blip2(tmp_path / "blip2")
    (folder / "model-00003-of-00003.safetensors").unlink()
    drafting(places, vision=str(folder))


def test_stage_2_is_applied_to_stage_1(places):
    """Tables of stage 2, and W + (16 / rank) B A in queries and values."""
    stored, base = tiny.stage_2(), tiny.vicuna()
    model = drafting(places).writer.language
    embeddings = stored[f"{tiny.LLAMA_2}model.embed_tokens.{tiny.SAVED}"]
    assert torch.equal(model.model.embed_tokens.weight, embeddings)
    assert torch.equal(model.lm_head.weight, stored[f"{tiny.LLAMA_2}lm_head.{tiny.SAVED}"])
    for i, layer in enumerate(model.model.layers):
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            expected = base[f"model.layers.{i}.self_attn.{name}.weight"].double()
            if name in ("q_proj", "v_proj"):
                update = f"{tiny.LLAMA_2}model.layers.{i}.self_attn.{name}.lora_"
                a, b = (stored[f"{update}{x}.default.weight"].double() for x in "AB")
                expected = expected + 16 / tiny.RANK * (b @ a)
            weight = getattr(layer.self_attn, name).weight.double()
            torch.testing.assert_close(weight, expected, atol=1e-5, rtol=0)


def test_stage_1_alone(places):
    stored = tiny.stage_1()
    stage = drafting(places, finetuned="none")
    model = stage.writer.language
    tables = "model.llama_model.model.embed_tokens.weight"
    assert torch.equal(model.model.embed_tokens.weight, stored[tables])
    query = tiny.vicuna()["model.layers.0.self_attn.q_proj.weight"]
    assert torch.equal(model.model.layers[0].self_attn.q_proj.weight, query)
    mapper = rendering(places, finetuned="none")._mapper
    inner = "llm_to_t2i_mapping.encoder.layers.3.linear1.weight"
    assert torch.equal(mapper.transformer.encoder.layers[3].linear1.weight, stored[inner])


def test_the_mapper_takes_its_first_layers_from_stage_1(places):
    one, two = tiny.stage_1(), tiny.stage_2()
    mapper = rendering(places)._mapper
    assert torch.equal(mapper.first[0].weight, one["fc.0.weight"])
    assert torch.equal(mapper.first[2].bias, one["fc.2.bias"])
    assert torch.equal(mapper.queries, one["t2i_decoder_prompt"][0])
    norm = "llm_to_t2i_mapping.decoder.norm.weight"
    assert torch.equal(mapper.transformer.decoder.norm.weight, two[norm])


def test_ids_follow_from_the_rows_of_the_table(places, tmp_path):
    """With a [PAD] row between the pieces and the vokens, all ids move by one."""
    name = f"{tiny.LLAMA_2}model.embed_tokens.{tiny.SAVED}"
    head = f"{tiny.LLAMA_2}lm_head.{tiny.SAVED}"
    padded = tiny.stage_2()
    for key in (name, head):
        pad = torch.zeros(1, tiny.WIDTH)
        old = padded[key]
        padded[key] = torch.cat([old[: tiny.PIECES], pad, old[tiny.PIECES :]])
    model = files.save_model(tmp_path / "padded", stage2_vist=padded)
    vocabulary = drafting(places, model=str(model)).vocabulary
    assert vocabulary.vokens == range(tiny.PIECES + 1, tiny.PIECES + 9)
    assert drafting(places).vocabulary.begin_image == tiny.PIECES
