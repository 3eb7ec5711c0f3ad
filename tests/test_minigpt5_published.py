"""Loading of the published layouts, strictly: what fits, and what is told of the rest."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import minigpt5_helpers as files
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers import models as tokenizer_models

from generators.checkpoints import CheckpointError
from generators.document import ImageRequest, Request, Text, Turn
from generators.loading.files import Files
from generators.minigpt5 import lavis
from generators.minigpt5.draft import MiniGPT5Draft
from generators.minigpt5.render import MiniGPT5Render
from generators.minigpt5.settings import MiniGPT5DraftSettings
from generators.minigpt5.state import Limits, Stop, Track
from generators.minigpt5.tokens import (
    SentencePiece,
    Vocabulary,
    stored_bos,
    stored_tokenizer,
)
from generators.minigpt5.toy import toy_tokenizer

pytestmark = pytest.mark.models

SAVED = "modules_to_save.default.weight"
LLAMA_2 = "model.llama_model.base_model.model."


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("minigpt5")
    blip2 = str(files.save_blip2(root / "blip2"))
    diffusion = str(files.save_diffusion(root / "sd"))
    return files.save_all(root) | {"blip2": blip2, "diffusion": diffusion}


@pytest.fixture
def fresh(tmp_path):
    """Checkpoints a test may spoil."""
    return files.save_all(tmp_path)


def drafting(places, **settings) -> MiniGPT5Draft:
    told = {k: places[k] for k in ("model", "language", "vision")}
    own = {"device": "cpu", "dtype": "float32"}
    return MiniGPT5Draft(weights="pretrained", **(told | own | settings))


def rendering(places, **settings) -> MiniGPT5Render:
    told = {k: places[k] for k in ("model", "diffusion")}
    own = {"device": "cpu", "dtype": "float32", "steps": 2, "height": 64, "width": 64}
    return MiniGPT5Render(weights="pretrained", **(told | own | settings))


def resaved(path: Path, change, below: str = "state_dict") -> None:
    stored = torch.load(path, weights_only=True)
    change(stored[below] if below else stored)
    torch.save(stored, path)


def test_both_layouts_of_blip2_give_the_same_vectors(places):
    one, two = drafting(places), drafting(places, vision=places["blip2"])
    pixels = torch.randn(3, 3, files.SIDE, files.SIDE, generator=torch.manual_seed(0))
    a, b = one.writer.encoder(pixels), two.writer.encoder(pixels)
    assert a.shape == (3, files.QUERIES, files.WIDTH)
    # `ln_vision` is a torch.nn.LayerNorm of default epsilon (blip2.py).
    assert one.writer.encoder.vision_model.post_layernorm.eps == 1e-5
    torch.testing.assert_close(a, b, atol=0, rtol=0)


def test_lavis_leaves_out_the_last_block(places, tmp_path, monkeypatch):
    """EVA-CLIP has 40 blocks, BLIP-2 uses 39."""
    monkeypatch.setattr(lavis, "_DEPTH", files.VIT_LAYERS)
    longer = files.eva_vit(files.VIT_LAYERS + 1)
    longer |= {k: v for k, v in files.eva_vit().items() if k not in ("norm", "head")}
    vision = str(files.save_lavis(tmp_path / "lavis", vit=longer))
    encoder = drafting(places, vision=vision).writer.encoder
    assert len(encoder.vision_model.encoder.layers) == files.VIT_LAYERS


def test_only_the_shards_that_hold_something_are_read(places, tmp_path):
    """T5's shards are never opened, and on the Hub never downloaded."""
    folder = files.save_blip2(tmp_path / "blip2")
    (folder / "model-00003-of-00003.safetensors").unlink()
    drafting(places, vision=str(folder))


def test_stage_2_is_laid_over_stage_1(places):
    """Tables of stage 2, and W + (16 / rank) B A in queries and values."""
    stored, base = files.stage_2(), files.vicuna()
    model = drafting(places).writer.language
    embeddings = stored[f"{LLAMA_2}model.embed_tokens.{SAVED}"]
    assert torch.equal(model.model.embed_tokens.weight, embeddings)
    assert torch.equal(model.lm_head.weight, stored[f"{LLAMA_2}lm_head.{SAVED}"])
    for i, layer in enumerate(model.model.layers):
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            expected = base[f"model.layers.{i}.self_attn.{name}.weight"].double()
            if name in ("q_proj", "v_proj"):
                update = f"{LLAMA_2}model.layers.{i}.self_attn.{name}.lora_"
                a, b = (stored[f"{update}{x}.default.weight"].double() for x in "AB")
                expected = expected + 16 / files.RANK * (b @ a)
            found = getattr(layer.self_attn, name).weight.double()
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_stage_1_alone(places):
    stored = files.stage_1()
    stage = drafting(places, finetuned="none")
    model = stage.writer.language
    tables = "model.llama_model.model.embed_tokens.weight"
    assert torch.equal(model.model.embed_tokens.weight, stored[tables])
    query = files.vicuna()["model.layers.0.self_attn.q_proj.weight"]
    assert torch.equal(model.model.layers[0].self_attn.q_proj.weight, query)
    mapper = rendering(places, finetuned="none")._mapper
    inner = "llm_to_t2i_mapping.encoder.layers.3.linear1.weight"
    assert torch.equal(mapper.transformer.encoder.layers[3].linear1.weight, stored[inner])


def test_the_mapper_takes_its_first_layers_from_stage_1(places):
    one, two = files.stage_1(), files.stage_2()
    mapper = rendering(places)._mapper
    assert torch.equal(mapper.first[0].weight, one["fc.0.weight"])
    assert torch.equal(mapper.first[2].bias, one["fc.2.bias"])
    assert torch.equal(mapper.queries, one["t2i_decoder_prompt"][0])
    norm = "llm_to_t2i_mapping.decoder.norm.weight"
    assert torch.equal(mapper.transformer.decoder.norm.weight, two[norm])


def test_the_mapper_in_float64(places):
    """nn.Transformer with 8 heads, norms first, written out."""
    from torch.nn import functional as F

    stored = {
        k: v.double() for k, v in (files.stage_1() | files.mapper_of_stage_2()).items()
    }
    states = torch.randn(2, 8, files.WIDTH, generator=torch.manual_seed(3))
    root = "llm_to_t2i_mapping."

    def linear(x, name):
        return x @ stored[f"{name}.weight"].T + stored[f"{name}.bias"]

    def norm(x, name):
        weight, bias = stored[f"{name}.weight"], stored[f"{name}.bias"]
        return F.layer_norm(x, x.shape[-1:], weight, bias)

    def attend(x, context, name):
        weight, bias = stored[f"{name}.in_proj_weight"], stored[f"{name}.in_proj_bias"]
        sources = zip((x, context, context), weight.chunk(3), bias.chunk(3), strict=True)
        q, k, v = (
            (s @ w.T + b).unflatten(-1, (8, -1)).transpose(1, 2) for s, w, b in sources
        )
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        return linear((scores @ v).transpose(1, 2).flatten(2), f"{name}.out_proj")

    def forward(x, name):
        return linear(linear(x, f"{name}.linear1").relu(), f"{name}.linear2")

    x = linear(F.gelu(linear(states.double(), "fc.0")), "fc.2")
    for i in range(4):
        layer = f"{root}encoder.layers.{i}"
        y = norm(x, f"{layer}.norm1")
        x = x + attend(y, y, f"{layer}.self_attn")
        x = x + forward(norm(x, f"{layer}.norm2"), layer)
    context = norm(x, f"{root}encoder.norm")
    x = stored["t2i_decoder_prompt"].expand(2, -1, -1)
    for i in range(4):
        layer = f"{root}decoder.layers.{i}"
        y = norm(x, f"{layer}.norm1")
        x = x + attend(y, y, f"{layer}.self_attn")
        x = x + attend(norm(x, f"{layer}.norm2"), context, f"{layer}.multihead_attn")
        x = x + forward(norm(x, f"{layer}.norm3"), layer)
    expected = norm(x, f"{root}decoder.norm")
    ours = rendering(places)._mapped(states).double()
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=0)


def test_from_files_to_a_document(places):
    stage = drafting(places, force_image=True)
    (drafted,) = stage([Request((Turn("user", (Text("the old river"),)),), seed=2)])
    requests = drafted.value.requests
    assert requests
    numbered = [ImageRequest(payload=r.payload, seed=i) for i, r in enumerate(requests)]
    pictures = rendering(places)(numbered)
    assert all(p.value.pixels.shape == (64, 64, 3) for p in pictures)


# Tokenizers ---------------------------------------------------------------------------


def test_a_tokenizer_json_serves_as_well(tmp_path):
    toy_tokenizer().save(str(tmp_path / "tokenizer.json"))
    tokenizer = stored_tokenizer(Files(str(tmp_path)))
    ids = tokenizer.encode("the old river </s>###")
    assert tokenizer.decode(ids) == "the old river </s>###"
    assert not {0, 1, 2} & set(ids)
    assert tokenizer.id_of("no such piece") is None


def test_special_names_in_a_question_are_text():
    tokenizer = _sentencepiece()
    for text in ("</s>", "<s>a", "<unk>", "[IMG0]", "<ImageHere>"):
        ids = tokenizer.encode(text)
        assert not {0, 1, 2} & set(ids)
        assert tokenizer.decode(ids) == text


@given(st.text())
def test_any_text_comes_back(text):
    """Also through bytes; LLaMA itself writes a space as U+2581."""
    assume("\u2581" not in text)
    tokenizer = _sentencepiece()
    ids = tokenizer.encode(text)
    assert not {0, 1, 2} & set(ids)
    assert tokenizer.decode(ids) == text


@functools.cache
def _sentencepiece() -> SentencePiece:
    return SentencePiece(files.TOKENIZER.read_bytes())


def test_both_spellings_of_the_mark_end_an_answer():
    """`###` in one piece, and in the two that follow a line break."""
    vocabulary = Vocabulary.of(_sentencepiece(), files.ROWS, bos=1)
    assert set(vocabulary.stops) == set(files.MARKS)
    limits = Limits(512, 99, 4, end_id=1, force_image=False)
    for mark in files.MARKS:
        track = Track(5, vocabulary, limits)
        for token in (300, *mark):
            assert track.stop is None
            track.take(token, torch.zeros(1))
        assert track.stop is Stop.MARK
        assert track.segments() == [vocabulary.text([300])]


@pytest.mark.parametrize(
    ("files_", "expected"),
    [
        ({}, 1),
        ({"tokenizer_config.json": {"bos_token": {"content": "</s>"}}}, 2),
        ({"special_tokens_map.json": {"bos_token": "</s>"}}, 2),
        ({"special_tokens_map.json": {"bos_token": ""}}, 0),
        ({"special_tokens_map.json": {"pad_token": "x"}}, 1),
        (
            {
                "special_tokens_map.json": {"bos_token": "<s>"},
                "tokenizer_config.json": {"bos_token": "</s>"},
            },
            1,
        ),
    ],
)
def test_prompts_begin_with_the_bos_the_checkpoint_names(files_, expected, tmp_path):
    for name, content in files_.items():
        (tmp_path / name).write_text(json.dumps(content))
    tokenizer = _sentencepiece()
    assert stored_bos(Files(str(tmp_path)), tokenizer) == expected


def test_ids_follow_from_the_rows_of_the_table(places, tmp_path):
    """With a [PAD] row between the pieces and the vokens, all ids move by one."""
    name = f"{LLAMA_2}model.embed_tokens.{SAVED}"
    head = f"{LLAMA_2}lm_head.{SAVED}"
    padded = files.stage_2()
    for key in (name, head):
        pad = torch.zeros(1, files.WIDTH)
        old = padded[key]
        padded[key] = torch.cat([old[: files.PIECES], pad, old[files.PIECES :]])
    model = files.save_model(tmp_path / "padded", stage2_vist=padded)
    vocabulary = drafting(places, model=str(model)).vocabulary
    assert vocabulary.vokens == range(files.PIECES + 1, files.PIECES + 9)
    assert drafting(places).vocabulary.begin_image == files.PIECES


# What does not fit --------------------------------------------------------------------


def fails(make, *words: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


def test_missing_files(fresh, tmp_path):
    folder = Path(fresh["model"])
    (folder / "prerained_minigpt4_7b.pth").rename(tmp_path / "elsewhere.pth")
    fails(lambda: drafting(fresh), "prerained_minigpt4_7b.pth", "projection")
    drafting(fresh, projection=str(tmp_path / "elsewhere.pth"))
    (folder / "stage2_vist.ckpt").unlink()
    own = {"projection": str(tmp_path / "elsewhere.pth")}
    fails(lambda: drafting(fresh, **own), "no file 'stage2_vist.ckpt'")
    drafting(fresh, finetuned="mmdialog", **own)
    (folder / "stage1_cc3m.ckpt").unlink()
    fails(lambda: drafting(fresh, finetuned="none", **own), "no file 'stage1_cc3m.ckpt'")


def test_missing_companions(fresh, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    fails(lambda: drafting(fresh, language=str(empty)), "tokenizer.model")
    fails(lambda: drafting(fresh, vision=str(empty)), "eva_vit_g.pth")
    shard = Path(fresh["language"]) / "pytorch_model-00002-of-00002.bin"
    shard.unlink()
    fails(lambda: drafting(fresh), "pytorch_model-00002-of-00002.bin")
    (Path(fresh["vision"]) / "blip2_pretrained_flant5xxl.pth").unlink()
    fails(lambda: drafting(fresh), "blip2_pretrained_flant5xxl.pth")


def test_a_companion_that_is_not_there_is_told_when_planning(fresh, tmp_path):
    told = MiniGPT5DraftSettings(**fresh)
    whole = told.identity("pretrained")
    assert whole.count("folder:") == 3
    gone = told.model_copy(update={"language": str(tmp_path / "gone")})
    fails(lambda: gone.identity("pretrained"), "gone")


@pytest.mark.parametrize("file", ["model/stage2_vist.ckpt", "vision/eva_vit_g.pth"])
def test_truncated_files(fresh, file):
    place, name = file.split("/")
    path = Path(fresh[place]) / name
    path.write_bytes(path.read_bytes()[:-2000])
    fails(lambda: drafting(fresh), name, "broken")


def test_tensors_of_the_wrong_size(fresh):
    stage = Path(fresh["model"]) / "stage2_vist.ckpt"
    update = f"{LLAMA_2}model.layers.1.self_attn.v_proj.lora_B.default.weight"
    resaved(stage, lambda t: t.update({update: torch.zeros(9, files.RANK)}))
    fails(lambda: drafting(fresh), "stage2_vist.ckpt", update, "(9, 3), not (64, 3)")
    projection = Path(fresh["model"]) / "prerained_minigpt4_7b.pth"
    wrong = {"llama_proj.weight": torch.zeros(files.WIDTH, 7)}
    resaved(projection, lambda t: t.update(wrong), "model")
    fails(lambda: drafting(fresh), "llama_proj.weight", "(64, 7), not (64, 128)")


def test_keys_that_are_missing_or_too_many(fresh):
    stage = Path(fresh["model"]) / "stage2_vist.ckpt"
    gone = f"{LLAMA_2}model.layers.0.self_attn.v_proj.lora_A.default.weight"
    extra = f"{LLAMA_2}model.layers.0.self_attn.k_proj.lora_A.default.weight"

    def change(tensors) -> None:
        tensors[extra] = tensors.pop(gone)

    resaved(stage, change)
    fails(lambda: drafting(fresh), "1 missing", gone, "1 unexpected", extra)


def test_unknown_keys_of_a_stage_file(places, tmp_path):
    strange = files.stage_1() | {"surprise.weight": torch.zeros(2)}
    folder = files.save_model(tmp_path / "strange", stage1_cc3m=strange)
    told = {"model": str(folder), "finetuned": "none"}
    fails(lambda: drafting(places, **told), "unexpected", "surprise.weight")
    fails(lambda: rendering(places, **told), "unexpected", "surprise.weight")


def test_a_mapper_that_does_not_fit(places, tmp_path):
    name = "llm_to_t2i_mapping.decoder.layers.2.multihead_attn.in_proj_weight"
    changed = files.stage_2() | {name: torch.zeros(5, 5)}
    folder = files.save_model(tmp_path / "changed", stage2_vist=changed)
    fails(lambda: rendering(places, model=str(folder)), "stage2_vist.ckpt", name)
    lacking = files.stage_1()
    del lacking["fc.0.weight"]
    folder = files.save_model(tmp_path / "lacking", stage1_cc3m=lacking)
    fails(lambda: rendering(places, model=str(folder)), "fc.0.weight")


def test_blip2_of_another_shape(places, tmp_path):
    key = "qformer.encoder.layer.0.crossattention.attention.key.weight"

    def change(tensors) -> None:
        tensors[key] = torch.zeros(3, 3)

    folder = files.save_blip2(tmp_path / "blip2", change)
    fails(lambda: drafting(places, vision=str(folder)), key, "(3, 3), not (128, 176)")


def test_a_vit_without_its_biases(places, tmp_path):
    vit = files.eva_vit()
    del vit["blocks.1.attn.v_bias"]
    folder = str(files.save_lavis(tmp_path / "lavis", vit=vit))
    fails(lambda: drafting(places, vision=folder), "missing", "blocks.1.attn.qkv.bias")


def test_a_tokenizer_that_reaches_into_the_vokens(places, tmp_path):
    tables = files.stage_2()
    for key in (f"{LLAMA_2}model.embed_tokens.{SAVED}", f"{LLAMA_2}lm_head.{SAVED}"):
        tables[key] = tables[key][:-1]
    folder = str(files.save_model(tmp_path / "short", stage2_vist=tables))
    fails(lambda: drafting(places, model=folder), "400 pieces", "408 rows")


def test_a_tokenizer_without_the_mark(places, tmp_path):
    folder = files.save_vicuna(tmp_path / "vicuna")
    (folder / "tokenizer.model").unlink()
    plain = tokenizer_models.BPE(vocab={"<unk>": 0, "<s>": 1, "</s>": 2}, merges=[])
    Tokenizer(plain).save(str(folder / "tokenizer.json"))
    fails(lambda: drafting(places, language=str(folder)), "'###'")


def test_a_context_beyond_the_trained_one(places):
    fails(lambda: drafting(places, context=9999), "9999", "512")
