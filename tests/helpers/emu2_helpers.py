"""Small Emu2 checkpoints in the published layouts, of random values."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from generators.diffusion.builds import module_class
from generators.diffusion.designs import DESIGNS
from generators.emu2.network import VisionSize
from generators.emu2.tokens import ADDED, ADDED_CHAT

State = dict[str, torch.Tensor]

# Shapes under the authors' names, written down from emu/eva_vit.py and emu/emu.py.


def shapes(
    vision: VisionSize, language: Mapping[str, Any], rows: int
) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    width, hidden = vision.width, language["hidden_size"]

    def linear(name: str, inputs: int, outputs: int, bias: bool = False) -> None:
        found[f"{name}.weight"] = (outputs, inputs)
        if bias:
            found[f"{name}.bias"] = (outputs,)

    found["visual.cls_token"] = (1, 1, width)
    found["visual.pos_embed"] = (1, vision.grid**2 + 1, width)
    found["visual.patch_embed.proj.weight"] = (width, 3, vision.patch, vision.patch)
    found["visual.patch_embed.proj.bias"] = (width,)
    for i in range(vision.layers):
        block = f"visual.blocks.{i}"
        for norm in ("norm1", "norm2"):
            found[f"{block}.{norm}.weight"] = found[f"{block}.{norm}.bias"] = (width,)
        linear(f"{block}.attn.qkv", width, 3 * width)
        found[f"{block}.attn.q_bias"] = found[f"{block}.attn.v_bias"] = (width,)
        linear(f"{block}.attn.proj", width, width, bias=True)
        linear(f"{block}.mlp.fc1", width, vision.mlp_width, bias=True)
        linear(f"{block}.mlp.fc2", vision.mlp_width, width, bias=True)
    linear("project_up", width, hidden)
    linear("project_down", hidden, width)
    found["decoder.lm.model.embed_tokens.weight"] = (rows, hidden)
    for i in range(language["num_hidden_layers"]):
        layer = f"decoder.lm.model.layers.{i}"
        for name in "qkvo":
            linear(f"{layer}.self_attn.{name}_proj", hidden, hidden)
        linear(f"{layer}.mlp.gate_proj", hidden, language["intermediate_size"])
        linear(f"{layer}.mlp.up_proj", hidden, language["intermediate_size"])
        linear(f"{layer}.mlp.down_proj", language["intermediate_size"], hidden)
        found[f"{layer}.input_layernorm.weight"] = (hidden,)
        found[f"{layer}.post_attention_layernorm.weight"] = (hidden,)
    found["decoder.lm.model.norm.weight"] = (hidden,)
    linear("decoder.lm.lm_head", hidden, rows)
    return found


def random_state(shapes: Mapping[str, tuple[int, ...]], seed: int) -> State:
    """Random values, biases and norms included, so that no swapped name goes unseen."""
    random = np.random.RandomState(seed)
    state = {}
    for name, shape in sorted(shapes.items()):
        value = random.standard_normal(shape)
        if len(shape) == 1:
            value = 0.2 * value + ("norm" in name and name.endswith("weight"))
        elif "embed_tokens" not in name and "pos_embed" not in name:
            value /= math.sqrt(math.prod(shape[1:]))
        state[name] = torch.from_numpy(value).float()
    return state


def rotary(language: Mapping[str, Any]) -> State:
    """The buffers that LLaMA's layers of transformers 4.31 stored."""
    size = language["hidden_size"] // language["num_attention_heads"]
    frequencies = 1.0 / 10000 ** (torch.arange(0, size, 2).float() / size)
    layers = (f"decoder.lm.model.layers.{i}" for i in range(language["num_hidden_layers"]))
    return {f"{layer}.self_attn.rotary_emb.inv_freq": frequencies for layer in layers}


def hub_state(native: State) -> State:
    """The same under the names of the Hub's layout."""
    return {n if n.startswith("project_") else f"model.{n}": t for n, t in native.items()}


def hub_config(
    vision: VisionSize, language: Mapping[str, Any], rows: int
) -> dict[str, Any]:
    """`config.json` with the fields the Hub's modeling_emu.py reads."""
    return dict(language) | {
        "architectures": ["EmuForCausalLM"],
        "auto_map": {"AutoModelForCausalLM": "modeling_emu.EmuForCausalLM"},
        "bos_token_id": 1,
        "d_model": vision.width,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "pad_token_id": rows - 272,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vision_config": {
            "drop_path_rate": 0.0,
            "eva_model_name": "eva-clip-E-14-plus",
            "head_width": vision.width // vision.heads,
            "image_size": vision.side,
            "layer_norm_eps": vision.norm_eps,
            "layers": vision.layers,
            "mlp_ratio": vision.mlp_width / vision.width,
            "n_query": vision.queries,
            "patch_size": vision.patch,
            "postnorm": True,
            "qkv_bias": True,
            "v_query": 64,
            "width": vision.width,
            "xattn": True,
        },
        "vocab_size": rows,
    }


def save_tokenizer(folder: Path, pieces: bytes, added: tuple[str, ...]) -> None:
    """As the slow tokenizer of transformers 4.31 saves itself."""
    from sentencepiece import SentencePieceProcessor

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(pieces)
    first = SentencePieceProcessor(model_proto=pieces).get_piece_size()
    ids = {name: first + i for i, name in enumerate(added)}
    (folder / "added_tokens.json").write_text(json.dumps(ids))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer"}')


def save_chat(
    folder: Path,
    native: State,
    vision: VisionSize,
    language: Mapping[str, Any],
    pieces: bytes,
) -> Path:
    """The layout of BAAI/Emu2-Chat: pickled shards with an index, tokenizer beside."""
    rows = len(native["decoder.lm.lm_head.weight"])
    save_tokenizer(folder, pieces, ADDED_CHAT)
    config = hub_config(vision, language, rows)
    (folder / "config.json").write_text(json.dumps(config))
    state = hub_state(native | rotary(language))
    names = sorted(state)
    where = {}
    for i in range(3):
        file = f"pytorch_model-0000{i + 1}-of-00003.bin"
        part = {n: state[n].clone() for n in names[i::3]}
        torch.save(part, folder / file)
        where |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 0}, "weight_map": where}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    return folder


def save_gen(
    folder: Path,
    native: State,
    vision: VisionSize,
    language: Mapping[str, Any],
    drawing: Mapping[str, torch.nn.Module],
    pieces: bytes,
) -> Path:
    """The layout of BAAI/Emu2-Gen: a folder for each component, in the variant bf16."""
    rows = len(native["decoder.lm.lm_head.weight"])
    save_tokenizer(folder / "tokenizer", pieces, ADDED)
    encoder = folder / "multimodal_encoder"
    encoder.mkdir(parents=True)
    config = hub_config(vision, language, rows)
    (encoder / "config.json").write_text(json.dumps(config))
    state = hub_state(native)
    names, where = sorted(state), {}
    for i in range(2):
        file = f"model.bf16-0000{i + 1}-of-00002.safetensors"
        part = {n: state[n].contiguous() for n in names[i::2]}
        save_file(part, encoder / file)
        where |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 0}, "weight_map": where}
    (encoder / "model.safetensors.index.bf16.json").write_text(json.dumps(index))
    for name, module in drawing.items():
        module.save_pretrained(folder / name, variant="bf16")
    save_scheduler(folder)
    about = {
        "_class_name": ["pipeline_emu2_gen", "EmuVisualGenerationPipeline"],
        "multimodal_encoder": ["transformers_modules", "EmuForCausalLM"],
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    }
    (folder / "model_index.json").write_text(json.dumps(about))
    return folder


def save_scheduler(folder: Path) -> None:
    """emu/conf/diffusion_config/scheduler of baaivision/Emu."""
    (folder / "scheduler").mkdir(parents=True, exist_ok=True)
    config = {
        "_class_name": "EulerDiscreteScheduler",
        "beta_end": 0.012,
        "beta_schedule": "scaled_linear",
        "beta_start": 0.00085,
        "interpolation_type": "linear",
        "num_train_timesteps": 1000,
        "prediction_type": "epsilon",
        "steps_offset": 1,
        "timestep_spacing": "leading",
        "use_karras_sigmas": False,
    }
    (folder / "scheduler" / "scheduler_config.json").write_text(json.dumps(config))


def save_native(
    folder: Path,
    native: State,
    vision: VisionSize | None,
    language: Mapping[str, Any],
    drawing: Mapping[str, torch.nn.Module] | None,
    pieces: bytes,
) -> Path:
    """One file in the authors' layout, beside the files of upstream's emu/conf.

    With `vision` its heads and queries are told; with `drawing` it is a file of Gen.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(pieces)
    config: dict[str, Any] = dict(language) | {"vocab_size": 32000, "pad_token_id": 0}
    if vision is not None:
        head = vision.width // vision.heads
        config["vision_config"] = {"head_width": head, "n_query": vision.queries}
    (folder / "config.json").write_text(json.dumps(config))
    native = native | {n: t.clone() for n, t in rotary(language).items()}
    if drawing is None:
        torch.save(native, folder / "Emu2-Chat_pytorch_model.bf16.bin")
        return folder
    state = {f"multimodal_encoder.{n}": t.contiguous() for n, t in native.items()}
    for name, module in drawing.items():
        stored = module.state_dict()
        if name == "safety_checker":
            stored, config = older_checker(module)
        else:
            config = {k: v for k, v in dict(module.config).items() if k[0] != "_"}
        state |= {f"{name}.{n}": t.contiguous() for n, t in stored.items()}
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config, default=str))
    save_scheduler(folder)
    save_file(state, folder / "Emu2-Gen_pytorch_model.bf16.safetensors")
    return folder


def older_checker(checker: Any) -> tuple[State, dict[str, Any]]:
    """Tensors and configuration of a safety checker as transformers 4.31 wrote them.

    The names are those of the published single file, the settings of generation those of
    upstream's emu/conf/diffusion_config/safety_checker/config.json.
    """
    tower = "vision_model."
    stored = {
        n.replace(tower, tower * 2, 1) if n.startswith(tower) else n: t
        for n, t in checker.state_dict().items()
    }
    positions = checker.vision_model.embeddings.num_positions
    stored[f"{tower * 2}embeddings.position_ids"] = torch.arange(positions)[None]
    config = checker.config.to_dict()
    generation = {"bad_words_ids": None, "max_length": 20, "num_beams": 1, "top_k": 50}
    older = generation | {"torchscript": False, "tf_legacy_loss": False, "prefix": None}
    for part in ("text_config", "vision_config"):
        config[part] = config[part] | older | {"transformers_version": "4.31.0"}
    return stored, config | {"torch_dtype": "bfloat16", "transformers_version": None}


def drawing_modules(width: int, seed: int = 3) -> dict[str, torch.nn.Module]:
    """A small UNet on vectors of `width`, and a small autoencoder."""
    design = DESIGNS["emu2"]
    made: dict[str, torch.nn.Module] = {}
    for name, (kind, _) in design.modules.items():
        config = dict(design.config(name, tiny=True))
        if name == "unet":
            time = 6 * config["addition_time_embed_dim"]
            config |= {
                "cross_attention_dim": width,
                "projection_class_embeddings_input_dim": time + width,
            }
        module = module_class(kind)(**config).eval()
        module.load_state_dict(
            random_state({k: tuple(v.shape) for k, v in module.state_dict().items()}, seed)
        )
        made[name] = module
    return made
