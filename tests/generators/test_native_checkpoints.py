"""Checkpoints in the layouts that the authors published: what loads and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import minigpt5_helpers
import numpy as np
import pytest
import torch
from natives import NATIVES, asked, drawings, edit, published, same_draft
from picture_helpers import smooth

from generators.architectures import config_of
from generators.errors import CheckpointError
from generators.loading.files import configured
from generators.loading.strict import empty_model
from generators.minigpt5.settings import MiniGPT5RenderSettings
from generators.natives import native

pytestmark = pytest.mark.models


QUESTIONS = [asked("the old house", smooth(1), seed=3), asked("Why is it red?", seed=4)]


@pytest.mark.parametrize(
    ("layout", "other"),
    [("anole", "anole/meta"), ("minigpt5", "minigpt5/blip2"), ("emu2", "emu2/native")],
)
def test_layouts_of_one_model_give_the_same(layout, other, stage):
    """On weights that are random to the last bias, so no swapped name goes unseen."""
    name = layout
    short = {"emu2": {"max_new_tokens": 8}, "anole": {"context": 300}}.get(name, {})
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


@dataclass(frozen=True)
class Tensors:
    """Tensors of one checkpoint of a stage that is filled strictly."""

    layout: str
    stage: str
    place: str
    """The setting that names the checkpoint."""
    files: str
    lost: str
    short: str
    stray: str
    shown: Callable[[str], str] = str
    """How an error writes the name of a stored tensor."""
    folder: str = "."


_LORA = f"{minigpt5_helpers.LLAMA_2}model.layers.0.self_attn."
_VQ, _OPT, _MAPPER = "model.vqmodel.", "model.decoder.", "model.gen_text_hidden_fcs.0"
_META = ("anole/meta", "draft", "model")
STRICT = {
    "anole": Tensors(
        *("anole", "draft", "model", "*.safetensors"),
        *("lm_head.weight", "model.norm.weight", "model.layers.1.extra.weight"),
    ),
    "anole VQ": Tensors(
        *("anole", "render", "model", "*.safetensors"),
        *(f"{_VQ}decoder.conv_in.bias", f"{_VQ}decoder.mid.attn_1.q.weight"),
        f"{_VQ}decoder.stray",
        shown=lambda name: name.removeprefix(_VQ),
    ),
    "anole Meta": Tensors(
        *_META,
        *("consolidated.pth", "layers.1.attention.wo.weight"),
        *("layers.0.attention.wq.weight", "stray"),
        folder="models/7b",
    ),
    "OPT": Tensors(
        *("gill", "draft", "language", "*.bin"),
        *(f"{_OPT}layers.0.fc1.weight", f"{_OPT}final_layer_norm.bias"),
        f"{_OPT}layers.7.fc1.weight",
        shown=lambda name: name.removeprefix("model."),
    ),
    "CLIP": Tensors(
        *("gill", "draft", "vision", "*.bin"),
        *("vision_model.post_layernorm.weight", "vision_model.pre_layrnorm.bias"),
        "vision_model.stray",
    ),
    "GILL": Tensors(
        *("gill", "draft", "model", "*.tar", "model.visual_embeddings.bias"),
        *("model.visual_embeddings.weight", "model.fc"),
    ),
    "GILL's mapper": Tensors(
        *("gill", "render", "model", "*.tar", f"{_MAPPER}.tfm.decoder.layers.1.norm3.bias"),
        *(f"{_MAPPER}.tfm.decoder.layers.0.norm3.bias", f"{_MAPPER}.stray"),
    ),
    "MiniGPT-5": Tensors(
        *("minigpt5", "draft", "model", "stage2_vist.ckpt"),
        f"{_LORA}v_proj.lora_A.default.weight",
        f"{_LORA}v_proj.lora_B.default.weight",
        f"{_LORA}k_proj.lora_A.default.weight",
    ),
    "MiniGPT-5's mapper": Tensors(
        *("minigpt5", "render", "model", "stage1_cc3m.ckpt"),
        *("llm_to_t2i_mapping.encoder.norm.bias", "fc.2.bias", "surprise.weight"),
    ),
    "Vicuna": Tensors(
        *("minigpt5", "draft", "language", "*.bin"),
        *("model.layers.0.mlp.up_proj.weight", "model.norm.weight", "model.stray.weight"),
    ),
    "EVA-ViT": Tensors(
        *("minigpt5", "draft", "vision", "eva_vit_g.pth", "blocks.1.attn.v_bias"),
        *("blocks.0.mlp.fc1.bias", "blocks.0.stray"),
        shown=lambda name: name.replace("v_bias", "q_bias and v_bias"),
    ),
    "BLIP-2": Tensors(
        *("minigpt5/blip2", "draft", "vision", "*.safetensors"),
        *("qformer.layernorm.bias", "vision_model.post_layernorm.bias", "qformer.stray"),
    ),
    "Emu2-Chat": Tensors(
        *("emu2", "draft", "model", "*.bin"),
        *("project_down.weight", "model.decoder.lm.model.norm.weight"),
        "model.visual.norm.weight",
    ),
    "Emu2-Gen": Tensors(
        *("emu2", "condition", "model", "*.safetensors"),
        *("model.visual.blocks.1.attn.v_bias", "model.decoder.lm.model.norm.weight"),
        "model.visual.norm.weight",
        folder="multimodal_encoder",
    ),
    "Janus": Tensors(
        *("janus-pro-1b", "draft", "model", "*.safetensors"),
        *("model.aligner.fc1.bias", "model.vision_model.post_layernorm.bias"),
        "model.language_model.layers.2.stray",
    ),
    "Janus's heads": Tensors(
        *("janus-pro-1b", "condition", "model", "*.safetensors"),
        *("model.generation_head.proj_out.bias", "model.generation_aligner.fc1.bias"),
        "model.generation_stray",
    ),
    "Janus's VQ": Tensors(
        *("janus-pro-1b", "render", "model", "*.safetensors"),
        *(f"{_VQ}decoder.conv_in.bias", f"{_VQ}quantize.embedding.weight", f"{_VQ}stray"),
    ),
    "Emu2-Gen's UNet": Tensors(
        *("emu2/native", "render", "model", "*.safetensors", "unet.conv_in.bias"),
        *("unet.conv_out.bias", "unet.stray"),
    ),
}


@pytest.mark.parametrize("case", STRICT.values(), ids=STRICT)
def test_every_difference_is_named_in_one_error(case, copied):
    places, folder = copied(case.layout, case.stage, case.place)

    def change(tensors):
        del tensors[case.lost]
        tensors[case.short] = tensors[case.short][:-1]
        tensors[case.stray] = torch.zeros(2)

    edit(folder / case.folder, case.files, change)
    with pytest.raises(CheckpointError) as raised:
        published(case.layout, case.stage, places)
    message = str(raised.value)
    kinds = {"1 missing: ": case.lost, "1 unexpected: ": case.stray, "shape: ": case.short}
    for kind, tensor in kinds.items():
        assert f"{kind}{case.shown(tensor)}" in message


FILES = [
    ("anole", "draft", "model", "model-00001-of-00002.safetensors"),
    (*_META, "models/7b/consolidated.pth"),
    ("gill", "draft", "model", "pretrained_ckpt.pth.tar"),
    ("gill", "render", "model", "pretrained_ckpt.pth.tar"),
    ("gill", "draft", "language", "pytorch_model.bin"),
    ("minigpt5", "draft", "model", "stage2_vist.ckpt"),
    ("minigpt5", "draft", "language", "pytorch_model-00002-of-00002.bin"),
    ("minigpt5", "draft", "vision", "eva_vit_g.pth"),
    ("emu2", "draft", "model", "pytorch_model-00002-of-00003.bin"),
    ("janus-pro-1b", "draft", "model", "model-00001-of-00002.safetensors"),
]
"""Layout, stage, checkpoint and a file of its tensors."""
CONFIGS = [
    ("gill", "draft", "model", "model_args.json"),
    ("gill", "draft", "language", "config.json"),
    ("gill", "draft", "language", "vocab.json"),
    ("gill", "draft", "vision", "preprocessor_config.json"),
    ("minigpt5", "draft", "model", "prerained_minigpt4_7b.pth"),
    ("minigpt5", "draft", "language", "tokenizer.model"),
    ("minigpt5", "draft", "vision", "blip2_pretrained_flant5xxl.pth"),
    ("emu2", "draft", "model", "tokenizer.model"),
    ("janus-pro-1b", "draft", "model", "preprocessor_config.json"),
    ("janus-pro-1b", "condition", "model", "tokenizer.json"),
]


def _fails(case, places, *words: str) -> None:
    layout, stage, _, file = case
    with pytest.raises(CheckpointError) as raised:
        published(layout, stage, places)
    for word in (file, *words):
        assert word in str(raised.value)


@pytest.mark.parametrize("case", FILES, ids=" ".join)
def test_a_truncated_file_is_named(case, copied):
    places, folder = copied(*case[:3])
    path = folder / case[3]
    path.write_bytes(path.read_bytes()[:-2000])
    _fails(case, places, "is broken")


@pytest.mark.parametrize("case", [*FILES, *CONFIGS], ids=" ".join)
def test_a_missing_file_is_named(case, copied):
    places, folder = copied(*case[:3])
    (folder / case[3]).unlink()
    _fails(case, places)


class _PrintsWhenLoaded:
    def __reduce__(self):
        return (print, ("executed",))


@pytest.mark.parametrize(
    "case", [c for c in FILES if "safetensors" not in c[3]], ids=" ".join
)
def test_pickled_code_is_not_run(case, copied, capsys):
    places, folder = copied(*case[:3])
    torch.save({"state_dict": {"model.weight": _PrintsWhenLoaded()}}, folder / case[3])
    _fails(case, places, "holds more than tensors")
    assert "executed" not in capsys.readouterr().out


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
    for revision in (None, commit):
        published(name, "draft", places, revision=revision)
    with pytest.raises(CheckpointError, match="Hub repository 'someone/other'"):
        published(name, "draft", places | {"model": "someone/other"})


@pytest.mark.parametrize("name", NATIVES)
def test_a_worker_makes_the_stages_of_a_spec(name, saved):
    """From the keyed settings and the options of a spec, which tells its checkpoints."""
    parts = {stage: saved(name, stage) for stage in NATIVES[name].stages}
    system = native(name, "pretrained", {**parts, "device": "cpu"})
    for stage, make in NATIVES[name].stages.items():
        spec = getattr(system, stage)
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


def narrow(folder: Path) -> None:
    """A mapper to other vectors than those the denoiser reads."""
    last = {"weight": torch.zeros(24, 32), "bias": torch.zeros(24)}
    named = {f"{_MAPPER}.model.{name}": value for name, value in last.items()}
    edit(folder, _GILL, lambda tensors: tensors.update(named))


def shortened(folder: Path) -> None:
    """Tables of a row less than the tokenizer needs."""
    names = ("model.embed_tokens", "lm_head")

    def change(tensors):
        for name in names:
            key = f"{minigpt5_helpers.LLAMA_2}{name}.{minigpt5_helpers.SAVED}"
            tensors[key] = tensors[key][:-1]

    edit(folder, "stage2_vist.ckpt", change)


_PARAMS, _YAML = "models/7b/params.json", "tokenizer/vqgan.yaml"
_STATE = "models/7b/consolidated.pth"
_GILL, _EVA = "pretrained_ckpt.pth.tar", "eva_vit_g.pth"
_BLIP2, _PROJECTION = "blip2_pretrained_flant5xxl.pth", "prerained_minigpt4_7b.pth"
_TABLE = "model.decoder.embed_tokens.weight"
VALUES: dict[tuple[str, str, str], list[tuple[Change, str]]] = {
    ("anole", "draft", "model"): [
        (cut("tokenizer.json"), r"tokenizer\.json is not a valid tokenizer"),
        (edited("config.json", vocab_size=None), "lacks vocab_size"),
        (edited("config.json", vocab_size=200), "vocab_size is 200"),
        (edited("config.json", vq_config=[]), r"vq_config is \[\]"),
        (edited("config.json", hidden_size="x"), "not a valid ChameleonConfig: .*hidden"),
        (edited("model.safetensors.index.json", weight_map=None), "lacks weight_map"),
    ],
    _META: [
        (rewritten(_PARAMS, '"n_heads": 4', '"n_heads": null'), "n_heads is None"),
        (rewritten(_PARAMS, '"n_heads": 4', '"n_heads": 5'), "64 is not divisible by 5"),
        (edited(_PARAMS, model=[]), r"params\.json: model is \[\]"),
        (cut("tokenizer/text_tokenizer.json"), r"text_tokenizer\.json is not a valid tok"),
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
        (edited("pytorch_model.bin.index.json", weight_map=[1]), "must hold named values"),
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
        (edited("config.json", ffn_dim="x"), "not a valid OPTConfig: .*ffn"),
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
            stored(_GILL, "model.visual_embeddings.weight", torch.zeros(256, 31)),
            r"\(256, 31\), not \(256, 32\)",
        ),
        (
            stored(_GILL, "model.input_embeddings.weight", torch.zeros(8, 63)),
            r"input_embeddings\.weight \(8, 63\), not \(8, 64\)",
        ),
    ],
    ("gill", "render", "model"): [
        (lacking(_GILL, f"{_MAPPER}.query_embs"), "lacks"),
        (lacking(_GILL, f"{_MAPPER}.tfm.encoder.layers.0.linear1.weight"), "lacks"),
        (narrow, r"gives vectors of 24.*reads vectors of 32"),
    ],
    ("minigpt5", "draft", "language"): [
        (cut("tokenizer.model"), r"tokenizer\.model"),
        (edited("config.json", hidden_size="x"), "not a valid LlamaConfig"),
    ],
    ("minigpt5", "draft", "vision"): [
        (stored(_EVA, "pos_embed", 1), "pos_embed is a int"),
        (stored(_EVA, "blocks.0.attn.q_bias", 1), r"blocks\.0\.attn\.q_bias"),
        (stored(_EVA, "blocks.1.attn.v_bias", torch.zeros(3)), r"blocks\.1\.attn.*v_bias"),
        (stored(_BLIP2, "query_tokens", 1), "query_tokens is a int"),
    ],
    ("minigpt5/blip2", "draft", "vision"): [
        (edited("config.json", qformer_config=None), "lacks qformer_config"),
    ],
    ("minigpt5", "draft", "model"): [
        (shortened, "400 pieces, .* 408 rows"),
        (stored(_PROJECTION, "llama_proj.bias", 1), "llama_proj.bias is a int"),
        (
            stored(_PROJECTION, "llama_proj.weight", torch.zeros(64, 7)),
            r"llama_proj\.weight \(64, 7\), not \(64, 128\)",
        ),
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


def _anole() -> tuple[int, int]:
    from generators.anole import codec, models

    sizes = config_of("anole", tiny=False)
    ids = {f"token {i}": i for i in range(sizes["vocabulary"])}
    language = models.language_model(models.random_config(sizes, ids))
    with torch.device("meta"):
        return parameters(language), parameters(codec.vq_model(sizes["vq"]))


def _gill() -> tuple[int, int, int]:
    from generators.gill import models, render

    sizes = config_of("gill", tiny=False)
    opt = configured("OPTConfig", sizes["language"] | {"vocab_size": 50_272}, "here")
    clip = configured("CLIPVisionConfig", sizes["vision"], "here")
    with torch.device("meta"):
        added = models.Additions(8, 4096, 1024, 4 * 4096)
    retrieval = 1 + (1024 + 1) * 256 + (4096 + 1) * 256
    own = parameters(added, render.empty_mapper(sizes["mapper"])) + retrieval
    language, vision = empty_model("AutoModel", opt), models.vision_tower(clip)
    return parameters(language), parameters(vision), own


def _minigpt5() -> tuple[int, int, int, int]:
    from generators.minigpt5 import models, render, vision

    sizes = config_of("minigpt5", tiny=False)
    language = empty_model("AutoModelForCausalLM", models.llama_config(sizes, 32_009))
    parts = (sizes["vision"], sizes["qformer"], sizes["queries"])
    with torch.device("meta"):
        encoder = vision.ImageEncoder(*parts, 4096)
    mapper = render.empty_mapper(render.random_size(MiniGPT5RenderSettings(), tiny=False))
    tables, updates = 2 * 32_009 * 4096, 32 * 2 * 2 * 8 * 4096
    stage_1 = 4 * (tables + parameters(mapper))
    stage_2 = 4 * (tables + parameters(mapper.transformer) + updates)
    return parameters(language), parameters(encoder), stage_1, stage_2


def _janus(name: str) -> list[float]:
    """Billions of parameters of each stage."""
    from transformers import JanusVQVAE

    from generators.janus import models

    sizes = config_of(name, tiny=False)
    config = models.random_config(sizes, models.toy_tokenizer(sizes["vocabulary"]))
    config.tie_word_embeddings = False
    with torch.device("meta"):
        decoder = JanusVQVAE(config.vq_config)
    left_out = (models.DRAWING, models.READING)
    parts = [models.empty(config, out) for out in left_out]
    return [parameters(part) / 1e9 for part in (*parts, decoder)]


@pytest.mark.parametrize("name", ["janus-pro-1b", "janus-pro-7b"])
def test_janus_stages_declare_their_sizes(name):
    assert [s.work.weight_bytes for s in native(name, "dummy", {}).stages] == pytest.approx(
        [2e9 * n if i < 2 else 4e9 * n for i, n in enumerate(_janus(name))], rel=3e-3
    )


FULL = {
    # The LM with its head, and the VQ model.
    "anole": (_anole, (7.013e9, 68.72e6)),
    # OPT-6.7B, CLIP's vision tower, and what GILL trained (95.6 MiB in bfloat16).
    "gill": (_gill, (6.658e9, 303.18e6, 50_096_385)),
    # Vicuna-7B with 9 rows more; EVA-ViT-g, Q-Former, queries and 768 -> 4096; bytes of
    # the files of KZ-ucsc/MiniGPT5, names and headers included.
    "minigpt5": (
        _minigpt5,
        (
            6_738_415_616 + 2 * 9 * 4096,
            985_952_256 + 105_137_664 + 32 * 768 + 768 * 4096 + 4096,
            1_540_697_487,
            1_536_289_349,
        ),
    ),
}


@pytest.mark.parametrize("name", FULL)
def test_full_sizes_are_the_published_ones(name):
    count, expected = FULL[name]
    assert count() == pytest.approx(expected, rel=1e-3)
