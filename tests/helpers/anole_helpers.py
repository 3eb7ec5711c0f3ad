"""Tiny Anole checkpoints in the published layouts."""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import torch
from shard_helpers import save_shards

from generators.anole.models import AnoleLanguage, random_language
from generators.architectures import config_of

VQ = dict(config_of("anole", tiny=True)["vq"])


@functools.cache
def language() -> AnoleLanguage:
    return random_language("tiny", torch.device("cpu"), torch.float32)


def taming_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a taming-transformers VQModel, written down from its source."""
    shapes: dict[str, tuple[int, ...]] = {}
    base, z, e = config["base_channels"], config["latent_channels"], config["embed_dim"]
    widths = [base * m for m in config["channel_multiplier"]]

    def conv(name: str, inputs: int, outputs: int, kernel: int = 3) -> None:
        shapes[f"{name}.weight"] = (outputs, inputs, kernel, kernel)
        shapes[f"{name}.bias"] = (outputs,)

    def norm(name: str, width: int) -> None:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (width,)

    def resnet(name: str, inputs: int, outputs: int) -> None:
        norm(f"{name}.norm1", inputs)
        conv(f"{name}.conv1", inputs, outputs)
        norm(f"{name}.norm2", outputs)
        conv(f"{name}.conv2", outputs, outputs)
        if inputs != outputs:
            conv(f"{name}.nin_shortcut", inputs, outputs, 1)

    def middle(side: str, width: int) -> None:
        resnet(f"{side}.mid.block_1", width, width)
        resnet(f"{side}.mid.block_2", width, width)
        norm(f"{side}.mid.attn_1.norm", width)
        for name in ("q", "k", "v", "proj_out"):
            conv(f"{side}.mid.attn_1.{name}", width, width, 1)

    conv("encoder.conv_in", config["in_channels"], base)
    width = base
    for level, out in enumerate(widths):
        for block in range(config["num_res_blocks"]):
            resnet(f"encoder.down.{level}.block.{block}", width, out)
            width = out
        if level < len(widths) - 1:
            conv(f"encoder.down.{level}.downsample.conv", out, out)
    middle("encoder", width)
    norm("encoder.norm_out", width)
    conv("encoder.conv_out", width, z)

    conv("decoder.conv_in", z, width)
    middle("decoder", width)
    for level in reversed(range(len(widths))):
        for block in range(config["num_res_blocks"] + 1):
            resnet(f"decoder.up.{level}.block.{block}", width, widths[level])
            width = widths[level]
        if level:
            conv(f"decoder.up.{level}.upsample.conv", width, width)
    norm("decoder.norm_out", width)
    conv("decoder.conv_out", width, 3)

    conv("quant_conv", z, e, 1)
    conv("post_quant_conv", e, z, 1)
    shapes["quantize.embedding.weight"] = (config["num_embeddings"], e)
    return shapes


def taming_tensors(config: dict[str, Any], seed: int = 1) -> dict[str, torch.Tensor]:
    """Random tensors, norms and biases included, so that no swapped name goes unseen."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in taming_shapes(config).items():
        value = torch.randn(shape, generator=generator)
        if len(shape) == 1:
            tensors[name] = 0.2 * value + ("norm" in name and name.endswith("weight"))
        else:
            tensors[name] = value / math.sqrt(math.prod(shape[1:]))
    return tensors


def save_hf(
    folder: Path,
    source: AnoleLanguage,
    taming: dict[str, torch.Tensor],
    vq: dict[str, Any] = VQ,
    change: Any = None,
) -> Path:
    """The layout of leloy/Anole-7b-v0.1-hf: two shards, an index, config, tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {k: v.clone() for k, v in source.model.state_dict().items()}
    tensors |= {f"model.vqmodel.{name}": value for name, value in taming.items()}
    if change is not None:
        change(tensors)
    save_shards(folder, tensors)
    (folder / "config.json").write_text(json.dumps(_hf_config(source, vq)))
    source.tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def _hf_config(source: AnoleLanguage, vq: dict[str, Any]) -> dict[str, Any]:
    sized = source.model.config
    keys = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
    keys += ("num_attention_heads", "num_key_value_heads", "max_position_embeddings")
    return {k: getattr(sized, k) for k in keys} | {
        "architectures": ["ChameleonForConditionalGeneration"],
        "model_type": "chameleon",
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "swin_norm": False,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "vocabulary_map": source.tokenizer.get_vocab(with_added_tokens=True),
        "vq_config": dict(vq) | {"model_type": "chameleon_vqgan", "dropout": 0.0},
    }


def save_meta(
    folder: Path, state: dict[str, Any], taming: dict[str, torch.Tensor], tokenizer: Any
) -> Path:
    """The layout of GAIR/Anole-7b-v0.1."""
    model, tokens = folder / "models" / "7b", folder / "tokenizer"
    model.mkdir(parents=True)
    tokens.mkdir()
    torch.save(state, model / "consolidated.pth")
    rows, width = state["tok_embeddings.weight"].shape
    params = {
        "model": {
            "dim": width,
            "n_layers": len({k.split(".")[1] for k in state if k.startswith("layers.")}),
            "n_heads": width // len(state["layers.0.attention.q_normalization.bias"]),
            "multiple_of": 64,
            "ffn_dim_multiplier": 0.75,
            "norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "qk_normalization": True,
            "swin_norm": False,
        },
        "model_parallel_size": 1,
    }
    (model / "params.json").write_text(json.dumps(params))
    (model / "consolidate_params.json").write_text(json.dumps({"vocab_size": rows}))
    tokenizer.save(str(tokens / "text_tokenizer.json"))
    lightning = {"state_dict": taming | {"loss.logvar": torch.zeros(1)}, "global_step": 7}
    torch.save(lightning, tokens / "vqgan.ckpt")
    (tokens / "vqgan.yaml").write_text(_vq_yaml())
    return folder


def _vq_yaml() -> str:
    sizes = {
        "double_z": VQ["double_latent"],
        "z_channels": VQ["latent_channels"],
        "resolution": VQ["resolution"],
        "in_channels": VQ["in_channels"],
        "out_ch": 3,
        "ch": VQ["base_channels"],
        "ch_mult": VQ["channel_multiplier"],
        "num_res_blocks": VQ["num_res_blocks"],
        "attn_resolutions": [],
        "dropout": 0.0,
    }
    params = {
        "embed_dim": VQ["embed_dim"],
        "n_embed": VQ["num_embeddings"],
        "ddconfig": sizes,
        "lossconfig": {"target": "a.module.that.is.not.There"},
    }
    return json.dumps({"model": {"target": "taming", "params": params}})
