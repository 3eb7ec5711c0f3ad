"""Tiny Anole checkpoints in the published layouts, and independent reference programs."""

from __future__ import annotations

import copy
import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from shard_helpers import save_shards

from generators.anole.models import AnoleLanguage, random_language
from generators.anole.sizes import TINY

CPU = torch.device("cpu")
VQ = dict(TINY.vq)
SIDE = VQ["resolution"] // 2 ** (len(VQ["channel_multiplier"]) - 1)


@functools.cache
def language() -> AnoleLanguage:
    return random_language(TINY, CPU, torch.float32)


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


def lm_tensors(source: AnoleLanguage) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in source.model.state_dict().items()}


def save_hf(
    folder: Path,
    source: AnoleLanguage,
    taming: dict[str, torch.Tensor],
    vq: dict[str, Any] = VQ,
    change: Any = None,
) -> Path:
    """The layout of leloy/Anole-7b-v0.1-hf: two shards, an index, config, tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = lm_tensors(source)
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


def taming_decode(
    tensors: dict[str, torch.Tensor], config: dict[str, Any], codes: torch.Tensor
) -> torch.Tensor:
    """The VQGAN decoder (vqgan.py) in float64: codes (h, w) -> (3, height, width)."""
    t = {k: v.double() for k, v in tensors.items()}

    def conv(x: torch.Tensor, name: str) -> torch.Tensor:
        weight = t[f"{name}.weight"]
        return F.conv2d(x, weight, t[f"{name}.bias"], padding=weight.shape[-1] // 2)

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return F.group_norm(x, 32, t[f"{name}.weight"], t[f"{name}.bias"], eps=1e-6)

    def resnet(x: torch.Tensor, name: str) -> torch.Tensor:
        h = conv(F.silu(norm(x, f"{name}.norm1")), f"{name}.conv1")
        h = conv(F.silu(norm(h, f"{name}.norm2")), f"{name}.conv2")
        return h + (
            conv(x, f"{name}.nin_shortcut") if f"{name}.nin_shortcut.bias" in t else x
        )

    def attention(x: torch.Tensor, name: str) -> torch.Tensor:
        h = norm(x, f"{name}.norm")
        q, k, v = (conv(h, f"{name}.{n}").flatten(2) for n in "qkv")
        weights = (q.transpose(1, 2) @ k / math.sqrt(q.shape[1])).softmax(-1)
        return x + conv((v @ weights.transpose(1, 2)).view(x.shape), f"{name}.proj_out")

    latent = t["quantize.embedding.weight"][codes].permute(2, 0, 1)[None]
    h = conv(conv(latent, "post_quant_conv"), "decoder.conv_in")
    h = resnet(h, "decoder.mid.block_1")
    h = resnet(attention(h, "decoder.mid.attn_1"), "decoder.mid.block_2")
    for level in reversed(range(len(config["channel_multiplier"]))):
        for block in range(config["num_res_blocks"] + 1):
            h = resnet(h, f"decoder.up.{level}.block.{block}")
        if level:
            h = F.interpolate(h, scale_factor=2.0, mode="nearest")
            h = conv(h, f"decoder.up.{level}.upsample.conv")
    return conv(F.silu(norm(h, "decoder.norm_out")), "decoder.conv_out")[0]


@functools.cache
def exact_model() -> Any:
    """The tiny language model in float64."""
    return copy.deepcopy(language().model).double()


@torch.inference_mode()
def last_logits(model: Any, ids: list[int]) -> np.ndarray:
    hidden = model.model(input_ids=torch.tensor([ids]), use_cache=False).last_hidden_state
    return model.lm_head(hidden)[0, -1].numpy()


def naive_answer(settings: Any, prompt: list[int], seed: int, context: int) -> list[int]:
    """One record by the rules of the paper's program: no cache, no batch, float64.

    Every token recomputes its whole context, a picture's tokens three contexts.
    """
    tokenizer, model = language().tokenizer, exact_model()
    vocab = tokenizer.get_vocab(with_added_tokens=True)
    pictures = {i for name, i in vocab.items() if name.startswith("IMGIMG")}
    text = {
        i
        for name, i in vocab.items()
        if i not in pictures and (name == "<" or not name.startswith("<"))
    }
    bos, eos, boi, eoi = (vocab[n] for n in ("<s>", "</s>", "<racm3:break>", "<eoss>"))
    count = SIDE * SIDE
    generator = torch.Generator().manual_seed(seed)
    ids, drawn = list(prompt), 0
    run_end = min(context, len(ids) + settings.max_text_tokens)
    while len(ids) < run_end:
        logits = np.full(len(vocab), -np.inf)
        allowed = sorted(text | {eos, boi})
        logits[allowed] = last_logits(model, ids)[allowed]
        if len(ids) >= context - count - 2 or drawn == settings.max_images:
            logits[boi] = -np.inf
        for i in set(ids):
            factor = settings.repetition_penalty
            logits[i] = logits[i] * factor if logits[i] < 0 else logits[i] / factor
        token = _pick(logits, settings, "text", generator)
        ids.append(token)
        if token == eos:
            break
        if token != boi:
            continue
        drawn += 1
        streams = [ids, [i for i in ids if i in pictures | {bos, boi, eoi}], [bos, boi]]
        for _ in range(count):
            full, image, free = (last_logits(model, s) for s in streams)
            mixed = free + settings.guidance_image * (image - free)
            mixed += settings.guidance_text * (full - image)
            logits = np.full(len(vocab), -np.inf)
            logits[sorted(pictures)] = mixed[sorted(pictures)]
            token = _pick(logits, settings, "image", generator)
            for stream in streams:
                stream.append(token)
        ids.append(eoi)
        run_end = min(context, len(ids) + settings.max_text_tokens)
    return ids[len(prompt) :]


def _pick(logits: np.ndarray, settings: Any, mode: str, generator: torch.Generator) -> int:
    if getattr(settings, f"{mode}_greedy"):
        return int(logits.argmax())
    scaled = logits / getattr(settings, f"{mode}_temperature")
    p = np.exp(scaled - scaled.max())
    p /= p.sum()
    order = np.argsort(p)
    cut = order[np.cumsum(p[order]) <= 1 - getattr(settings, f"{mode}_top_p")]
    p[cut] = 0
    draw = float(torch.rand((), generator=generator, dtype=torch.float64))
    return int(np.searchsorted(np.cumsum(p), draw * p.sum(), side="right"))
