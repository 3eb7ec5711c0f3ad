"""Checkpoints in the layouts that the authors published: what loads and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import minigpt5_helpers
import numpy as np
import pytest
import torch
from natives import NATIVES, asked, drawings, edit, published, same_draft
from picture_helpers import smooth
from transformers import JanusVQVAE

from plait.generators.anole import models as anole
from plait.generators.anole.codec import vq_model
from plait.generators.architectures import config_of
from plait.generators.bagel import models as bagel
from plait.generators.catalogue import Named, by_name
from plait.generators.errors import CheckpointError
from plait.generators.gill import models as gill
from plait.generators.janus import models as janus
from plait.generators.loading.files import config_of_class
from plait.generators.loading.strict import empty_model
from plait.generators.minigpt5 import models as minigpt5
from plait.generators.minigpt5.settings import MiniGPT5RenderSettings
from plait.generators.minigpt5.vision import ImageEncoder
from plait.generators.natives import native
from plait.generators.vokens import render

pytestmark = pytest.mark.models


QUESTIONS = [asked("the old house", smooth(1), seed=3), asked("Why is it red?", seed=4)]


@pytest.mark.parametrize(
    ("layout", "other"),
    [("anole", "anole/meta"), ("minigpt5", "minigpt5/blip2"), ("emu2", "emu2/native")],
)
def test_layouts_of_one_model_give_the_same(layout, other, stage):
    """On weights that are random to the last bias, so no swapped name goes unseen."""
    name = layout
    short: dict[str, Any] = {"context": 200} if name == "anole" else {"max_new_tokens": 12}
    if name == "minigpt5":
        short["force_image"] = True
    one, two = (stage(at, **short)(QUESTIONS) for at in (layout, other))
    assert any(outcome.value.text.strip() for outcome in one)
    assert all(same_draft(a.value, b.value) for a, b in zip(one, two, strict=True))
    drawn = []
    for at in (layout, other):
        condition = stage(at, "condition") if name == "emu2" else None
        requests = drawings(name, one, condition)[:3]
        drawn.append([o.value.pixels for o in stage(at, "render")(requests)])
    assert len(drawn[0]) >= 1
    assert all(np.array_equal(a, b) for a, b in zip(*drawn, strict=True))


# Damage --------------------------------------------------------------------------------

_VQ, _MAPPER = "model.vqmodel.", "model.gen_text_hidden_fcs.0"
_META, _PARAMS = ("anole/meta", "draft", "model"), "models/7b/params.json"
_STATE, _YAML = "models/7b/consolidated.pth", "tokenizer/vqgan.yaml"
_GILL, _EVA = "pretrained_ckpt.pth.tar", "eva_vit_g.pth"
_BLIP2, _PROJECTION = "blip2_pretrained_flant5xxl.pth", "prerained_minigpt4_7b.pth"
_UPDATES = f"{minigpt5_helpers.LLAMA_2}model.layers.1."
_SHARDS = "*.safetensors"
_BAGEL = ("bagel-7b-mot",)
_EMA, _AE = "ema.safetensors", "ae.safetensors"
_SECOND = "language_model.model.layers.1."
STRICT = {
    "anole": ("anole", "draft", "model", _SHARDS, "model.layers.1."),
    "anole VQ": ("anole", "render", "model", _SHARDS, f"{_VQ}decoder.mid.", _VQ),
    "anole Meta": (*_META, _STATE, "layers.1."),
    "OPT": ("gill", "draft", "language", "*.bin", "model.decoder.layers.1.", "model."),
    "CLIP": ("gill", "draft", "vision", "*.bin", "vision_model.encoder."),
    "GILL": ("gill", "draft", "model", "*.tar", "model.visual_embeddings."),
    "GILL's mapper": ("gill", "render", "model", "*.tar", f"{_MAPPER}.tfm.decoder."),
    "MiniGPT-5": ("minigpt5", "draft", "model", "stage2_vist.ckpt", _UPDATES),
    "its mapper": ("minigpt5", "render", "model", "stage1_cc3m.ckpt", "fc.2."),
    "Vicuna": ("minigpt5", "draft", "language", "*.bin", "model.layers.1.mlp."),
    "EVA-ViT": ("minigpt5", "draft", "vision", _EVA, "blocks.1."),
    "BLIP-2": ("minigpt5/blip2", "draft", "vision", _SHARDS, "qformer.encoder."),
    "Emu2-Chat": ("emu2", "draft", "model", "*.bin", "model.decoder.lm.model.layers.1.mlp"),
    "Emu2-Gen": (
        *("emu2", "condition", "model", "multimodal_encoder/*.safetensors"),
        "model.visual.blocks.1.",
    ),
    "its UNet": ("emu2/native", "render", "model", _SHARDS, "unet.down_blocks."),
    "Janus": ("janus-pro-1b", "draft", "model", _SHARDS, "model.vision_model.post_"),
    "its heads": ("janus-pro-1b", "condition", "model", _SHARDS, "model.generation_head."),
    "its VQ": ("janus-pro-1b", "render", "model", _SHARDS, f"{_VQ}decoder."),
    "BAGEL": (*_BAGEL, "draft", "model", _EMA, "language_model.model.layers.1.mlp."),
    "its vision": (*_BAGEL, "draft", "model", _EMA, "vit_model.vision_model.post_"),
    "its twins": (
        *_BAGEL,
        "condition",
        "model",
        _EMA,
        f"{_SECOND}self_attn.k_proj_moe_gen",
    ),
    "its encoder": (*_BAGEL, "condition", "model", _AE, "encoder.mid."),
    "its decoder": (*_BAGEL, "render", "model", _AE, "decoder.up.0."),
}
"""Layout, stage and checkpoint; its files; how the names of some tensors in them begin, and
what of these names an error leaves out."""


@pytest.mark.parametrize("case", STRICT.values(), ids=STRICT)
def test_every_difference_is_named_in_one_error(case, copied):
    layout, stage, place, files, prefix, *hidden = case
    places, folder = copied(layout, stage, place)
    changed: dict[str, str] = {}

    def change(tensors):
        lost, *_, short = sorted(name for name in tensors if name.startswith(prefix))
        del tensors[lost]
        tensors[short] = tensors[short][:-1]
        tensors[f"{prefix}stray"] = torch.zeros(2)
        changed.update(missing=lost, unexpected=f"{prefix}stray", shape=short)

    edit(folder / Path(files).parent, Path(files).name, change)
    with pytest.raises(CheckpointError) as raised:
        published(layout, stage, places)
    for kind, name in changed.items():
        assert f"{kind}: {name.removeprefix(*hidden or ('',))}" in str(raised.value)


FILES = [
    ("anole", "draft", "model", "model-00001-of-00002.safetensors"),
    (*_META, _STATE),
    ("gill", "draft", "model", _GILL),
    ("gill", "render", "model", _GILL),
    ("gill", "draft", "language", "pytorch_model.bin"),
    ("minigpt5", "draft", "model", "stage2_vist.ckpt"),
    ("minigpt5", "draft", "language", "pytorch_model-00002-of-00002.bin"),
    ("minigpt5", "draft", "vision", _EVA),
    ("emu2", "draft", "model", "pytorch_model-00002-of-00003.bin"),
    ("janus-pro-1b", "draft", "model", "model-00001-of-00002.safetensors"),
    (*_BAGEL, "condition", "model", _EMA),
    (*_BAGEL, "render", "model", _AE),
]
"""Layout, stage, checkpoint and a file of its tensors."""
CONFIGS = [
    ("gill", "draft", "model", "model_args.json"),
    ("gill", "draft", "language", "config.json"),
    ("gill", "draft", "language", "vocab.json"),
    ("gill", "draft", "vision", "preprocessor_config.json"),
    ("minigpt5", "draft", "model", _PROJECTION),
    ("minigpt5", "draft", "language", "tokenizer.model"),
    ("minigpt5", "draft", "vision", _BLIP2),
    ("emu2", "draft", "model", "tokenizer.model"),
    ("janus-pro-1b", "draft", "model", "preprocessor_config.json"),
    ("janus-pro-1b", "condition", "model", "tokenizer.json"),
    (*_BAGEL, "draft", "model", "llm_config.json"),
    (*_BAGEL, "condition", "model", "vit_config.json"),
    (*_BAGEL, "draft", "model", "tokenizer.json"),
]


class _PrintsWhenLoaded:
    def __reduce__(self):
        return (print, ("executed",))


@pytest.mark.parametrize("case", [*FILES, *CONFIGS], ids=" ".join)
def test_files_that_are_missing_cut_or_hold_code_are_named(case, copied, capsys):
    """Code in pickles is not run."""
    *where, file = case
    places, folder = copied(*where)
    path = folder / file

    def fails(words: str = "") -> None:
        with pytest.raises(CheckpointError) as raised:
            published(*where[:2], places)
        assert file in str(raised.value)
        assert words in str(raised.value)

    if case in FILES:
        path.write_bytes(path.read_bytes()[:-2000])
        fails("is broken")
    if case in FILES and path.suffix != ".safetensors":
        torch.save({"state_dict": {"model.weight": _PrintsWhenLoaded()}}, path)
        fails("holds more than tensors")
        assert "executed" not in capsys.readouterr().out
    path.unlink()
    fails()


@pytest.mark.parametrize(
    ("name", "place"),
    [*((name, "model") for name in NATIVES), ("minigpt5", "language"), ("gill", "vision")],
)
def test_an_empty_folder_is_refused(name, place, saved, tmp_path):
    with pytest.raises(CheckpointError):
        published(name, "draft", saved(name, "draft") | {place: str(tmp_path)})
    named = {place: str(tmp_path / "absent")}
    with pytest.raises(CheckpointError, match="no such file or folder"):
        native(name, "pretrained", {"draft": saved(name, "draft") | named})


@pytest.mark.parametrize("name", NATIVES)
def test_hub_ids_are_read_from_the_cache_without_a_network(
    name, saved, tmp_path, monkeypatch
):
    from huggingface_hub import constants

    commit, places = "0123456789" * 4, {}
    for place, folder in saved(name, "draft").items():
        repository = tmp_path / f"models--someone--{place}"
        shutil.copytree(folder, repository / "snapshots" / commit)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(commit)
        places[place] = f"someone/{place}"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    published(name, "draft", places, revision=commit)
    with pytest.raises(CheckpointError, match="Hub repository 'someone/other'"):
        published(name, "draft", places | {"model": "someone/other"})


@pytest.mark.parametrize("name", NATIVES)
def test_a_worker_makes_the_stages_of_a_spec(name, saved):
    """From the keyed settings and the options of a spec, which tells its checkpoints."""
    parts = {stage: saved(name, stage) for stage in NATIVES[name].stages}
    system = native(name, "pretrained", {**parts, "device": "cpu"})
    for stage, make in NATIVES[name].stages.items():
        spec = system.roles[stage]
        assert spec.identity.count("folder:") == len(parts[stage])
        make(**spec.settings, **spec.options)


# Values that do not fit ----------------------------------------------------------------

Change = Callable[[Path], object]


def edited(file: str, **values: Any) -> Change:
    """Set values of a JSON file; None takes one away."""

    def change(folder: Path) -> None:
        content = json.loads((folder / file).read_text()) | values
        kept = {k: v for k, v in content.items() if v is not None}
        (folder / file).write_text(json.dumps(kept))

    return change


def cut(file: str) -> Change:
    """Take the second half of a file away."""

    def change(folder: Path) -> None:
        content = (folder / file).read_bytes()
        (folder / file).write_bytes(content[: len(content) // 2])

    return change


def rewritten(file: str, text: str, other: str) -> Change:
    """Replace a part of a text file."""

    def change(folder: Path) -> None:
        content = (folder / file).read_text()
        assert text in content
        (folder / file).write_text(content.replace(text, other))

    return change


def stored(file: str, name: str, value: Any) -> Change:
    """Put another value into a file of `torch.save`."""
    path = Path(file)
    return lambda folder: edit(
        folder / path.parent, path.name, lambda tensors: tensors.update({name: value})
    )


def lacking(file: str, name: str) -> Change:
    """Take a tensor away."""
    return lambda folder: edit(folder, file, lambda tensors: tensors.pop(name))


def shortened(folder: Path) -> None:
    """Tables of a row less than the tokenizer needs."""
    names = ("model.embed_tokens", "lm_head")

    def change(tensors):
        for name in names:
            key = f"{minigpt5_helpers.LLAMA_2}{name}.{minigpt5_helpers.SAVED}"
            tensors[key] = tensors[key][:-1]

    edit(folder, "stage2_vist.ckpt", change)


_TABLE = "model.decoder.embed_tokens.weight"
VALUES: dict[tuple[str, str, str], list[tuple[Change, str]]] = {
    ("anole", "draft", "model"): [
        (cut("tokenizer.json"), r"tokenizer\.json is not a valid tokenizer"),
        (edited("config.json", vocab_size=None), "lacks vocab_size"),
        (edited("config.json", vocab_size=200), "vocab_size is 200"),
        (edited("config.json", vq_config=[]), r"vq_config is \[\]"),
        (edited("config.json", hidden_size="x"), "not a valid ChameleonConfig: .*hidden"),
    ],
    _META: [
        (rewritten(_PARAMS, '"n_heads": 4', '"n_heads": null'), "n_heads is None"),
        (rewritten(_PARAMS, '"n_heads": 4', '"n_heads": 5'), "64 is not divisible by 5"),
        (rewritten(_YAML, "ch_mult", "ch"), r"vqgan\.yaml: "),
        (rewritten(_YAML, "ddconfig", "dd"), r"yaml lacks ddconfig"),
        (rewritten(_YAML, ":", ": ["), r"vqgan\.yaml is not YAML"),
        (rewritten(_YAML, '"n_embed": 128', '"n_embed": 100'), "128 image tokens, .* 100"),
        (stored(_STATE, "norm.weight", 3.0), "norm.weight is a float"),
        (stored(_STATE, "tok_embeddings.weight", 3.0), "tok_embeddings.weight is a float"),
    ],
    ("emu2", "draft", "model"): [
        (edited("config.json", vocab_size="x"), "vocab_size is 'x'"),
        (edited("config.json", vocab_size=700), "754 tokens, the embedding has 700"),
        (edited("config.json", hidden_size=None), "lacks hidden_size"),
        (edited("config.json", num_attention_heads=5), "64 is not divisible by 5"),
        (edited("config.json", vision_config=7), "vision_config is 7"),
        (rewritten("config.json", "head_width", "width_of"), "lacks head_width"),
        (edited("added_tokens.json", **{"[PAD]": "x"}), r"added_tokens\.json: .*'x'"),
        (cut("tokenizer.model"), r"tokenizer\.model is not a valid SentencePiece"),
    ],
    ("emu2/native", "draft", "model"): [
        (
            stored(
                "Emu2-Chat_pytorch_model.bf16.bin",
                "decoder.lm.model.embed_tokens.weight",
                torch.zeros(700, 64),
            ),
            "700 embeddings fit neither",
        ),
    ],
    ("gill", "draft", "language"): [
        (cut("vocab.json"), r"vocab\.json and merges\.txt are not a valid tokenizer"),
        (edited("config.json", vocab_size=900), r"embed_tokens\.weight"),
        (stored("pytorch_model.bin", _TABLE, torch.zeros(30, 64)), r"weight \(30, 64\)"),
    ],
    ("gill", "draft", "vision"): [
        (edited("config.json", vision_config=3), "vision_config is 3"),
    ],
    ("gill", "draft", "model"): [
        (edited("model_args.json", num_tokens="8"), "num_tokens is '8'"),
        (edited("model_args.json", gen_token_idx=[1]), "was trained with image tokens"),
        (
            stored(_GILL, "model.visual_embeddings.bias", 1),
            "1 not a tensor: model.visual_embeddings.bias is a int",
        ),
        (
            stored(_GILL, "model.input_embeddings.weight", torch.zeros(8, 63)),
            r"input_embeddings\.weight \(8, 63\), not \(8, 64\)",
        ),
    ],
    ("gill", "render", "model"): [
        (lacking(_GILL, f"{_MAPPER}.query_embs"), "lacks"),
        (lacking(_GILL, f"{_MAPPER}.tfm.encoder.layers.0.linear1.weight"), "lacks"),
    ],
    ("minigpt5", "draft", "language"): [
        (cut("tokenizer.model"), r"tokenizer\.model"),
    ],
    ("minigpt5", "draft", "vision"): [
        (stored(_EVA, "pos_embed", 1), "pos_embed is a int"),
        (stored(_EVA, "blocks.1.attn.v_bias", torch.zeros(3)), r"blocks\.1\.attn.*v_bias"),
        (stored(_BLIP2, "query_tokens", 1), "query_tokens is a int"),
    ],
    ("minigpt5/blip2", "draft", "vision"): [
        (edited("config.json", qformer_config=None), "lacks qformer_config"),
    ],
    ("minigpt5", "draft", "model"): [
        (shortened, "400 pieces, .* 408 rows"),
        (stored(_PROJECTION, "llama_proj.bias", 1), "llama_proj.bias is a int"),
    ],
    ("minigpt5", "render", "model"): [
        (lacking("stage1_cc3m.ckpt", "fc.0.weight"), r"fc\.0\.weight"),
        (
            stored(
                "stage2_vist.ckpt",
                "llm_to_t2i_mapping.decoder.layers.2.multihead_attn.in_proj_weight",
                torch.zeros(5, 5),
            ),
            r"stage2_vist\.ckpt.*multihead_attn\.in_proj_weight",
        ),
    ],
    ("janus-pro-1b", "draft", "model"): [
        (edited("config.json", model_type="multi_modality"), "must be 'janus'"),
        (edited("config.json", vision_config=7), "not a valid JanusConfig"),
        (rewritten("config.json", '"vocab_size": ', '"vocab_size": 1'), "embed_tokens"),
        (rewritten("tokenizer.json", "<begin_of_image>", "<begin>"), "lacks <begin_of_im"),
    ],
    (*_BAGEL, "draft", "model"): [
        (
            edited("llm_config.json", vocab_size=99),
            r"embed_tokens.weight \(417, 64\), not \(99",
        ),
        (edited("llm_config.json", num_attention_heads=5), "64 is not divisible by 5"),
        (edited("llm_config.json", intermediate_size=None), "lacks intermediate_size"),
        (edited("vit_config.json", patch_size="x"), "patch_size is 'x'"),
        (edited("vit_config.json", image_size=70), r"vit_pos_embed\.pos_embed \(64, 64\)"),
        (
            rewritten("tokenizer.json", "<|vision_start|>", "<|v|>"),
            "lacks <.vision_start.>",
        ),
        (lacking(_EMA, "vae2llm.weight"), r"ema\.safetensors lacks vae2llm\.weight"),
        (
            stored(_EMA, "latent_pos_embed.pos_embed", torch.zeros(35, 64)),
            "latent_pos_embed.pos_embed has 35 rows",
        ),
        (stored(_EMA, "vae2llm.weight", torch.zeros(64, 8)), "takes 8 values"),
    ],
    (*_BAGEL, "render", "model"): [
        (lacking(_AE, "encoder.down.1.block.0.conv2.weight"), "does not fit"),
        (lacking(_AE, "decoder.conv_in.weight"), r"lacks decoder\.conv_in\.weight"),
    ],
}
CASES = [(where, *case) for where, cases in VALUES.items() for case in cases]


@pytest.mark.parametrize(("where", "change", "message"), CASES)
def test_values_that_do_not_fit_are_named(where, change, message, copied):
    layout, stage, place = where
    places, folder = copied(layout, stage, place)
    change(folder)
    with pytest.raises(CheckpointError, match=message):
        published(layout, stage, places)


@pytest.mark.parametrize(
    ("stage", "other"), [("condition", "draft"), ("draft", "condition")]
)
def test_emu2_chat_drafts_and_gen_conditions(stage, other, saved):
    with pytest.raises(CheckpointError, match=r"\[USER\].*; drafting takes Emu2-Chat"):
        published("emu2", stage, saved("emu2", other))


# Sizes as published --------------------------------------------------------------------


def parameters(*modules: torch.nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


near = partial(pytest.approx, rel=1e-3)


def test_anole_has_the_published_sizes():
    """The LM with its head, and the VQ model."""
    sizes = config_of("anole", tiny=False)
    config = anole.random_config(sizes, {"token": 0})
    config.vocab_size = sizes["vocabulary"]
    language = anole.language_model(config)
    with torch.device("meta"):
        vq = vq_model(sizes["vq"])
    assert (parameters(language), parameters(vq)) == near((7.013e9, 68.72e6))


def test_gill_has_the_published_sizes():
    """OPT-6.7B, CLIP's vision tower, and what GILL trained (95.6 MiB in bfloat16)."""
    sizes = config_of("gill", tiny=False)
    opt = config_of_class("OPTConfig", sizes["language"] | {"vocab_size": 50_272}, "here")
    clip = config_of_class("CLIPVisionConfig", sizes["vision"], "here")
    with torch.device("meta"):
        added = gill.Additions(8, 4096, 1024, 4 * 4096)
    retrieval = 1 + (1024 + 1) * 256 + (4096 + 1) * 256
    own = parameters(added, render.empty_gill_mapper(sizes["mapper"])) + retrieval
    frozen = (empty_model("AutoModel", opt), gill.vision_tower(clip))
    assert (*map(parameters, frozen), own) == near((6.658e9, 303.18e6, 50_096_385))


def test_minigpt5_has_the_published_sizes():
    """Also the bytes of KZ-ucsc/MiniGPT5's files, but for names and headers."""
    sizes = config_of("minigpt5", tiny=False)
    language = empty_model("AutoModelForCausalLM", minigpt5.llama_config(sizes, 32_009))
    # Vicuna-7B with 9 rows more.
    assert parameters(language) == near(6_738_415_616 + 2 * 9 * 4096)
    with torch.device("meta"):
        parts = (sizes["vision"], sizes["qformer"], sizes["queries"])
        encoder = ImageEncoder(*parts, 4096)
    queries, projection = 32 * 768, 768 * 4096 + 4096
    assert parameters(encoder) == near(985_952_256 + 105_137_664 + queries + projection)
    size = render.random_size(MiniGPT5RenderSettings(), tiny=False)
    mapper = render.empty_minigpt5_mapper(size)
    tables, updates = 2 * 32_009 * 4096, 32 * 2 * 2 * 8 * 4096
    assert 4 * (tables + parameters(mapper)) == near(1_540_697_487)
    assert 4 * (tables + parameters(mapper.transformer) + updates) == near(1_536_289_349)


def test_bagel_stages_declare_their_sizes():
    """As shown by the names and shapes of the published configurations."""
    sizes = config_of("bagel-7b-mot", tiny=False)
    size = bagel.random_size(sizes, sizes["vocabulary"])
    halves = (bagel.empty_autoencoder(size.autoencoder, h) for h in ("encoder", "decoder"))
    encoder, decoder = map(parameters, halves)
    draft, condition, whole = (
        parameters(bagel.empty(size.network, draws, writes))
        for draws, writes in ((False, True), (True, False), (True, True))
    )
    expected = [2 * draft, 2 * condition + 4 * encoder, 4 * decoder]
    declared = [s.work.weight_bytes for s in native("bagel-7b-mot", "dummy", {}).stages]
    assert declared == pytest.approx(expected, rel=3e-3)
    assert by_name(Named.NATIVE)["bagel-7b-mot"].facts.params_b == pytest.approx(
        (whole + encoder + decoder) / 1e9, rel=3e-3
    )


@pytest.mark.parametrize("name", ["janus-pro-1b", "janus-pro-7b"])
def test_janus_stages_declare_their_sizes(name):
    sizes = config_of(name, tiny=False)
    config = janus.random_config(sizes, janus.toy_tokenizer(None))
    config.text_config.vocab_size = sizes["vocabulary"]
    config.tie_word_embeddings = False
    with torch.device("meta"):
        decoder = JanusVQVAE(config.vq_config)
    parts = [janus.empty(config, left_out) for left_out in (janus.DRAWING, janus.READING)]
    expected = [*(2 * parameters(part) for part in parts), 4 * parameters(decoder)]
    declared = [stage.work.weight_bytes for stage in native(name, "dummy", {}).stages]
    assert declared == pytest.approx(expected, rel=3e-3)
