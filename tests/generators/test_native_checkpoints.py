"""Checkpoints in the layouts that the authors published: what loads and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import minigpt5_tensors
import pytest
import torch
from natives import NATIVES, edit, meta_anole, published

from generators.anole.settings import AnoleDraftSettings, AnoleRenderSettings
from generators.emu2.settings import (
    Emu2ConditionSettings,
    Emu2DraftSettings,
    Emu2RenderSettings,
)
from generators.errors import CheckpointError
from generators.gill.settings import GillDraftSettings, GillRenderSettings
from generators.minigpt5.settings import MiniGPT5DraftSettings, MiniGPT5RenderSettings

pytestmark = pytest.mark.models

Places = dict[str, str]


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Places]:
    """The settings that name the checkpoints of a stage, which are written once."""
    made: dict[str, dict[str, Places]] = {}

    def places(name: str, stage: str) -> Places:
        if name not in made:
            made[name] = NATIVES[name].save(tmp_path_factory.mktemp(name))
        return made[name][stage]

    return places


@pytest.fixture
def copied(saved, tmp_path):
    """The same with one of the checkpoints copied, so that a test may damage it."""

    def places(name: str, stage: str, place: str) -> tuple[Places, Path]:
        usual = saved(name, stage)
        folder = tmp_path / place
        shutil.copytree(usual[place], folder)
        return usual | {place: str(folder)}, folder

    return places


@dataclass(frozen=True)
class Tensors:
    """Tensors of one checkpoint of a stage that is filled strictly."""

    name: str
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


def _without(prefix: str) -> Callable[[str], str]:
    return lambda name: name.removeprefix(prefix)


_LORA = f"{minigpt5_tensors.LLAMA_2}model.layers.0.self_attn."
_VQ = "model.vqmodel."
STRICT = {
    "anole": Tensors(
        *("anole", "draft", "model", "*.safetensors"),
        *("lm_head.weight", "model.norm.weight", "model.layers.1.extra.weight"),
    ),
    "anole VQ": Tensors(
        *("anole", "render", "model", "*.safetensors"),
        *(f"{_VQ}decoder.conv_in.bias", f"{_VQ}decoder.mid.attn_1.q.weight"),
        f"{_VQ}decoder.stray",
        shown=_without(_VQ),
    ),
    "OPT": Tensors(
        *("gill", "draft", "language", "*.safetensors"),
        *("decoder.layers.0.fc1.weight", "decoder.final_layer_norm.bias"),
        "decoder.layers.7.fc1.weight",
    ),
    "CLIP": Tensors(
        *("gill", "draft", "vision", "*.safetensors"),
        *("vision_model.post_layernorm.weight", "vision_model.pre_layrnorm.bias"),
        "vision_model.stray",
    ),
    "GILL's mapper": Tensors(
        *("gill", "render", "model", "*.tar"),
        "model.gen_text_hidden_fcs.0.tfm.decoder.layers.1.norm3.bias",
        "model.gen_text_hidden_fcs.0.tfm.decoder.layers.0.norm3.bias",
        "model.gen_text_hidden_fcs.0.stray",
    ),
    "MiniGPT-5": Tensors(
        *("minigpt5", "draft", "model", "stage2_vist.ckpt"),
        f"{_LORA}v_proj.lora_A.default.weight",
        f"{_LORA}v_proj.lora_B.default.weight",
        f"{_LORA}k_proj.lora_A.default.weight",
    ),
    "Vicuna": Tensors(
        *("minigpt5", "draft", "language", "*.bin"),
        *("model.layers.0.mlp.up_proj.weight", "model.norm.weight", "model.stray.weight"),
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
}


@pytest.mark.parametrize("case", STRICT.values(), ids=STRICT)
def test_every_difference_is_named_in_one_error(case, copied):
    places, folder = copied(case.name, case.stage, case.place)

    def change(tensors):
        del tensors[case.lost]
        tensors[case.short] = tensors[case.short][:-1]
        tensors[case.stray] = torch.zeros(2)

    edit(folder / case.folder, case.files, change)
    with pytest.raises(CheckpointError) as raised:
        published(case.name, case.stage, places)
    message = str(raised.value)
    kinds = {"1 missing: ": case.lost, "1 unexpected: ": case.stray, "shape: ": case.short}
    for kind, tensor in kinds.items():
        assert f"{kind}{case.shown(tensor)}" in message


def test_differences_of_metas_layout_are_named(tmp_path):
    places = meta_anole(tmp_path)
    lost, short = "layers.1.attention.wo.weight", "layers.0.attention.wq.weight"

    def change(tensors):
        tensors["stray"] = tensors.pop(lost)
        tensors[short] = tensors[short][:-1]

    edit(Path(places["model"]) / "models" / "7b", "consolidated.pth", change)
    with pytest.raises(CheckpointError) as raised:
        published("anole", "draft", places)
    for part in (f"1 missing: {lost}", "1 unexpected: stray", f"{short} (63, 64)"):
        assert part in str(raised.value)


FILES = [
    ("anole", "draft", "model", "model-00001-of-00002.safetensors"),
    ("gill", "draft", "model", "pretrained_ckpt.pth.tar"),
    ("gill", "render", "model", "pretrained_ckpt.pth.tar"),
    ("gill", "draft", "language", "model-00001-of-00002.safetensors"),
    ("gill", "draft", "vision", "model.safetensors"),
    ("minigpt5", "draft", "model", "stage2_vist.ckpt"),
    ("minigpt5", "draft", "language", "pytorch_model-00002-of-00002.bin"),
    ("minigpt5", "draft", "vision", "eva_vit_g.pth"),
    ("emu2", "draft", "model", "pytorch_model-00002-of-00003.bin"),
]
"""Native model, stage, checkpoint and a file of its tensors."""
CONFIGS = [
    ("gill", "draft", "model", "model_args.json"),
    ("gill", "draft", "language", "config.json"),
    ("gill", "draft", "vision", "preprocessor_config.json"),
    ("minigpt5", "draft", "vision", "blip2_pretrained_flant5xxl.pth"),
    ("emu2", "draft", "model", "tokenizer.model"),
]


def _fails(case, places, *words: str) -> None:
    name, stage, _, file = case
    with pytest.raises(CheckpointError) as raised:
        published(name, stage, places)
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


def test_pickled_code_of_metas_layout_is_not_run(tmp_path, capsys):
    places = meta_anole(tmp_path)
    path = Path(places["model"]) / "models" / "7b" / "consolidated.pth"
    torch.save({"norm.weight": _PrintsWhenLoaded()}, path)
    _fails(("anole", "draft", "model", "consolidated.pth"), places, "more than tensors")
    assert "executed" not in capsys.readouterr().out


@pytest.mark.parametrize("name", NATIVES)
def test_an_empty_folder_is_refused(name, saved, tmp_path):
    with pytest.raises(CheckpointError):
        published(name, "draft", saved(name, "draft") | {"model": str(tmp_path)})


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


SETTINGS = {
    ("anole", "draft"): AnoleDraftSettings,
    ("anole", "render"): AnoleRenderSettings,
    ("gill", "draft"): GillDraftSettings,
    ("gill", "render"): GillRenderSettings,
    ("minigpt5", "draft"): MiniGPT5DraftSettings,
    ("minigpt5", "render"): MiniGPT5RenderSettings,
    ("emu2", "draft"): Emu2DraftSettings,
    ("emu2", "condition"): Emu2ConditionSettings,
    ("emu2", "render"): Emu2RenderSettings,
}


@pytest.mark.parametrize("name", NATIVES)
def test_a_worker_makes_the_stages_of_a_spec(name, saved):
    """From the keyed settings and the options of a spec, which tells its checkpoints."""
    for stage, make in NATIVES[name].stages.items():
        settings = SETTINGS[name, stage](**saved(name, stage), device="cpu")
        spec = settings.spec(stage, "pretrained")
        assert spec.identity.count("folder:") == len(saved(name, stage))
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


PARAMS = "models/7b/params.json"
META = [
    (rewritten(PARAMS, '"n_heads": 4', '"n_heads": null'), "n_heads is None; it must be"),
    (rewritten(PARAMS, '"n_heads": 4', '"n_heads": 5'), "64 is not divisible by 5"),
    (edited(PARAMS, model=[]), r"params\.json: model is \[\]; it must hold named"),
    (cut("tokenizer/text_tokenizer.json"), r"text_tokenizer\.json is not a valid tok"),
    (rewritten("tokenizer/vqgan.yaml", "ch_mult", "ch"), r"vqgan\.yaml: "),
    (rewritten("tokenizer/vqgan.yaml", "ddconfig", "dd"), r"yaml lacks ddconfig"),
    (rewritten("tokenizer/vqgan.yaml", ":", ": ["), r"vqgan\.yaml is not YAML"),
    (stored("models/7b/consolidated.pth", "norm.weight", 3.0), "norm.weight is a float"),
    (
        stored("models/7b/consolidated.pth", "tok_embeddings.weight", 3.0),
        "tok_embeddings.weight is a float; it must be a tensor",
    ),
]


@pytest.mark.parametrize(("change", "message"), META)
def test_values_of_metas_layout_that_do_not_fit_are_named(change, message, tmp_path):
    places = meta_anole(tmp_path)
    change(Path(places["model"]))
    with pytest.raises(CheckpointError, match=message):
        published("anole", "draft", places)


_GILL, _EVA = "pretrained_ckpt.pth.tar", "eva_vit_g.pth"
_MAPPER = "model.gen_text_hidden_fcs.0"
_DECODER = f"{minigpt5_tensors.LLAMA_2}model.layers.1.self_attn."
_BLIP2 = "blip2_pretrained_flant5xxl.pth"
_PROJECTION = "prerained_minigpt4_7b.pth"
VALUES: dict[tuple[str, str, str], list[tuple[Change, str]]] = {
    ("anole", "draft", "model"): [
        (cut("tokenizer.json"), r"tokenizer\.json is not a valid tokenizer"),
        (edited("config.json", vocab_size=None), "lacks vocab_size"),
        (edited("config.json", vocab_size="many"), "vocab_size is 'many'; it must be"),
        (edited("config.json", vocab_size=200), "vocab_size is 200; it must be larger"),
        (edited("config.json", vq_config=[]), r"vq_config is \[\]; it must hold named"),
        (edited("config.json", hidden_size="x"), "not a valid ChameleonConfig: .*hidden"),
        (edited("model.safetensors.index.json", weight_map=None), "lacks weight_map"),
    ],
    ("emu2", "draft", "model"): [
        (edited("config.json", vocab_size=None), "lacks vocab_size"),
        (edited("config.json", vocab_size="x"), "vocab_size is 'x'; it must be a whole"),
        (edited("config.json", vocab_size=700), "754 tokens, the embedding has 700"),
        (edited("config.json", hidden_size=None), "lacks '?hidden_size"),
        (edited("config.json", num_attention_heads=5), "64 is not divisible by 5"),
        (edited("config.json", vision_config=7), "vision_config is 7|holds no Emu2"),
        (rewritten("config.json", "head_width", "width_of"), "lacks '?head_width"),
        (edited("added_tokens.json", **{"[PAD]": "x"}), r"id of '\[PAD\]' is 'x'; it must"),
        (cut("tokenizer.model"), r"tokenizer\.model"),
        (edited("pytorch_model.bin.index.json", weight_map=[1]), "must hold named values"),
    ],
    ("gill", "draft", "language"): [
        (cut("tokenizer.json"), r"tokenizer\.json is not a valid tokenizer"),
        (edited("config.json", vocab_size=None), "lacks vocab_size"),
        (edited("config.json", vocab_size="x"), "vocab_size is 'x'; it must"),
        (edited("config.json", ffn_dim="x"), "not a valid OPTConfig: .*ffn"),
    ],
    ("gill", "draft", "vision"): [
        (edited("config.json", vision_config=3), "vision_config is 3; it must"),
    ],
    ("gill", "draft", "model"): [
        (edited("model_args.json", num_tokens="8"), "num_tokens is '8'; it must"),
        (edited("model_args.json", gen_token_idx=[1]), "was trained with image tokens"),
        (stored(_GILL, "model.fc", torch.zeros(1)), "1 unexpected: model.fc"),
        (
            stored(_GILL, "model.visual_embeddings.bias", 1),
            "1 not a tensor: model.visual_embeddings.bias is a int",
        ),
        (
            stored(_GILL, "model.visual_embeddings.bias", torch.zeros(3)),
            r"visual_embeddings\.bias \(3,\), not \(256,\)",
        ),
        (
            stored(_GILL, "model.visual_embeddings.weight", torch.zeros(256, 31)),
            r"require \(256, 32\)",
        ),
        (
            stored(_GILL, "model.input_embeddings.weight", torch.zeros(8, 63)),
            r"input_embeddings\.weight has the shape \(8, 63\).* have 64 values",
        ),
        (
            stored(_GILL, "model.input_embeddings.weight", torch.zeros(64)),
            r"not one of 2 dimensions",
        ),
        (
            stored(_GILL, "model.input_embeddings.weight", 1),
            "model.input_embeddings.weight is a int; it must be a tensor",
        ),
    ],
    ("gill", "render", "model"): [
        (lacking(_GILL, f"{_MAPPER}.query_embs"), "lacks"),
        (lacking(_GILL, f"{_MAPPER}.tfm.encoder.layers.0.linear1.weight"), "lacks"),
        (
            lambda folder: edit(
                folder,
                _GILL,
                lambda t: t.update(
                    {
                        f"{_MAPPER}.model.weight": torch.zeros(24, 32),
                        f"{_MAPPER}.model.bias": torch.zeros(24),
                    }
                ),
            ),
            r"gives vectors of 24.*reads vectors of 32",
        ),
    ],
    ("minigpt5", "draft", "language"): [
        (cut("tokenizer.model"), r"tokenizer\.model"),
        (edited("config.json", hidden_size="x"), "not a valid LlamaConfig"),
        (edited("pytorch_model.bin.index.json", weight_map=1), "weight_map is"),
    ],
    ("minigpt5", "draft", "vision"): [
        (stored(_EVA, "pos_embed", 1), "pos_embed is a int; it must"),
        (stored(_EVA, "blocks.0.attn.q_bias", 1), "q_bias is a int; it must be a tensor"),
        (lacking(_EVA, "blocks.1.attn.v_bias"), r"lacks blocks\.1\.attn\.v_bias"),
        (
            stored(_EVA, "blocks.1.attn.v_bias", torch.zeros(3)),
            r"blocks\.1\.attn\.v_bias has the shape \(3,\), not",
        ),
        (stored(_BLIP2, "query_tokens", 1), "query_tokens is a int; it must be a tensor"),
    ],
    ("minigpt5", "draft", "model"): [
        (stored(_PROJECTION, "llama_proj.bias", 1), "llama_proj.bias is a int"),
        (
            stored(_PROJECTION, "llama_proj.weight", torch.zeros(64, 7)),
            r"llama_proj\.weight \(64, 7\), not \(64, 128\)",
        ),
        (
            stored(
                "stage2_vist.ckpt",
                f"{_DECODER}v_proj.lora_B.default.weight",
                torch.zeros(9, minigpt5_tensors.RANK),
            ),
            r"\(9, 3\), not \(64, 3\)",
        ),
    ],
    ("minigpt5", "render", "model"): [
        (stored("stage1_cc3m.ckpt", "surprise.weight", torch.zeros(2)), "surprise.weight"),
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
}
CASES = [(where, *case) for where, cases in VALUES.items() for case in cases]


@pytest.mark.parametrize(("where", "change", "message"), CASES)
def test_values_that_do_not_fit_are_named(where, change, message, copied):
    name, stage, place = where
    places, folder = copied(name, stage, place)
    change(folder)
    with pytest.raises(CheckpointError, match=message):
        published(name, stage, places)


def test_emu2_chat_does_not_condition(saved):
    message = r"the vocabulary has \[USER\], so it is Emu2-Chat; .* conditioning Emu2-Gen"
    with pytest.raises(CheckpointError, match=message):
        published("emu2", "condition", saved("emu2", "draft"))
