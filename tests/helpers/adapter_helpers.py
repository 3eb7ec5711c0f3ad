"""Adapters and single files of tiny pipelines, in the layouts that are published."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from diffusion_helpers import tiny_pipeline
from safetensors.torch import save_file


def save_lora(
    architecture: str,
    path: Path,
    seed: int,
    gain: float = 0.5,
    layers: tuple[str, ...] = (),
) -> Path:
    """Write a LoRA of rank 2 of the denoiser's attention, as diffusers saves it."""
    from peft import LoraConfig
    from peft.utils import get_peft_model_state_dict

    pipeline = tiny_pipeline(architecture)
    part = "transformer" if hasattr(pipeline, "transformer") else "unet"
    denoiser = getattr(pipeline, part)
    targets = list(layers or ("to_q", "to_v", "to_out.0"))
    denoiser.add_adapter(LoraConfig(r=2, lora_alpha=2, target_modules=targets))
    generator = torch.Generator().manual_seed(seed)
    tensors = get_peft_model_state_dict(denoiser)
    values = {
        k: gain * torch.randn(v.shape, generator=generator) for k, v in tensors.items()
    }
    type(pipeline).save_lora_weights(
        path.parent, weight_name=path.name, **{f"{part}_lora_layers": values}
    )
    return path


def save_one_file(pipeline: Any, path: Path) -> Path:
    """Write a Stable Diffusion 1.5 in one file, in the layout of CompVis."""
    tensors: dict[str, torch.Tensor] = {}
    unet = _compvis_unet(pipeline.unet)
    vae = _compvis_vae(pipeline.vae)
    text = pipeline.text_encoder.state_dict()
    tensors |= {f"model.diffusion_model.{k}": v for k, v in unet.items()}
    tensors |= {f"first_stage_model.{k}": v for k, v in vae.items()}
    names = {k: k if k.startswith("text_model.") else f"text_model.{k}" for k in text}
    tensors |= {f"cond_stage_model.transformer.{names[k]}": v for k, v in text.items()}
    save_file({k: v.contiguous().clone() for k, v in tensors.items()}, path)
    return path


_RESNET = {
    "norm1": "in_layers.0",
    "conv1": "in_layers.2",
    "time_emb_proj": "emb_layers.1",
    "norm2": "out_layers.0",
    "conv2": "out_layers.3",
    "conv_shortcut": "skip_connection",
}
_ENDS = {
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "conv_in": "input_blocks.0.0",
    "conv_norm_out": "out.0",
    "conv_out": "out.2",
}
_MIDDLE = {"resnets.0": 0, "attentions.0": 1, "resnets.1": 2}


def _compvis_unet(unet: Any) -> dict[str, torch.Tensor]:
    """The names of the original UNet, whose blocks are numbered from its input on."""
    each = unet.config.layers_per_block
    with_attention = ["CrossAttn" in kind for kind in unet.config.up_block_types]
    named: dict[str, torch.Tensor] = {}
    for key, value in unet.state_dict().items():
        found = re.match(r"(down|up)_blocks\.(\d+)\.(\w+)\.(\d+)\.(.*)", key)
        if found:
            side, block, what, layer, rest = found.groups()
            first = int(block) * (each + 1)
            if what == "downsamplers":
                name = f"input_blocks.{first + each + 1}.0.op.{rest.removeprefix('conv.')}"
            elif what == "upsamplers":
                place = 2 if with_attention[int(block)] else 1
                name = f"output_blocks.{first + each}.{place}.{rest}"
            else:
                number = first + int(layer) + (side == "down")
                blocks = "input_blocks" if side == "down" else "output_blocks"
                name = f"{blocks}.{number}.{int(what == 'attentions')}.{_inner(rest)}"
        elif key.startswith("mid_block."):
            _, what, layer, rest = key.split(".", 3)
            name = f"middle_block.{_MIDDLE[f'{what}.{layer}']}.{_inner(rest)}"
        else:
            stem, _, end = key.rpartition(".")
            name = f"{_ENDS[stem]}.{end}"
        named[name] = value
    return named


def _inner(rest: str) -> str:
    stem, _, end = rest.rpartition(".")
    return f"{_RESNET.get(stem, stem)}.{end}"


_VAE_ATTENTION = {
    "group_norm": "norm",
    "to_q": "q",
    "to_k": "k",
    "to_v": "v",
    "to_out.0": "proj_out",
}


def _compvis_vae(vae: Any) -> dict[str, torch.Tensor]:
    """The names of the original autoencoder, whose decoder is numbered from its output."""
    blocks = len(vae.config.block_out_channels)
    named: dict[str, torch.Tensor] = {}
    for key, value in vae.state_dict().items():
        name = key.replace("conv_norm_out", "norm_out").replace(
            "conv_shortcut", "nin_shortcut"
        )
        name = re.sub(r"down_blocks\.(\d+)\.resnets\.", r"down.\1.block.", name)
        name = re.sub(r"down_blocks\.(\d+)\.downsamplers\.0", r"down.\1.downsample", name)
        up = re.match(r"decoder\.up_blocks\.(\d+)", name)
        if up:
            name = name.replace(up[0], f"decoder.up.{blocks - 1 - int(up[1])}")
            name = name.replace(".resnets.", ".block.").replace(
                ".upsamplers.0", ".upsample"
            )
        name = re.sub(
            r"mid_block\.resnets\.(\d)", lambda m: f"mid.block_{int(m[1]) + 1}", name
        )
        if "mid_block.attentions.0." in name:
            stem, rest = name.split("mid_block.attentions.0.")
            inner, _, end = rest.rpartition(".")
            name = f"{stem}mid.attn_1.{_VAE_ATTENTION[inner]}.{end}"
            # The original attends by convolutions of one pixel.
            if value.ndim == 2:
                value = value[:, :, None, None]
        named[name] = value
    return named


def save_gguf(denoiser: Any, path: Path, kind: str) -> Path:
    """Write a denoiser as GGUF: its matrices quantised as `kind`, all else in float32."""
    import gguf
    from gguf.quants import quantize

    writer = gguf.GGUFWriter(path, arch="flux")
    own = getattr(gguf.GGMLQuantizationType, kind)
    block, _ = gguf.GGML_QUANT_SIZES[own]
    for key, value in denoiser.state_dict().items():
        array = value.float().numpy()
        fits = value.ndim == 2 and value.shape[1] % block == 0
        stored = quantize(array, own) if fits else array
        writer.add_tensor(key, stored, raw_dtype=own if fits else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
