"""Frozen random weights, on which original programs were run.

They stay the same whatever our own toy models become, so what was computed from them
elsewhere stays valid. Norms and biases are random too, so that no swapped name goes unseen.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from paths import DATA
from PIL import Image as Pillow
from safetensors.torch import save_file

State = dict[str, torch.Tensor]
Shape = tuple[int, ...]


class Draws:
    """Named tensors, drawn in the order they are asked for."""

    def __init__(self, seed: int, norm_scale: float = 0.1) -> None:
        self._random = np.random.RandomState(seed)
        self._norm_scale = norm_scale
        self.tensors: State = {}

    def normal(self, *shape: int, scale: float | None = None) -> torch.Tensor:
        scale = scale or 1 / math.sqrt(shape[-1])
        return torch.from_numpy(self._random.standard_normal(shape) * scale).float()

    def matrix(
        self, name: str, outputs: int, inputs: int, scale: float | None = None
    ) -> None:
        self.tensors[f"{name}.weight"] = self.normal(outputs, inputs, scale=scale)

    def linear(self, name: str, outputs: int, inputs: int) -> None:
        self.tensors[f"{name}.weight"] = self.normal(outputs, inputs)
        self.tensors[f"{name}.bias"] = self.normal(outputs, scale=0.1)

    def norm(self, name: str, width: int) -> None:
        self.tensors[f"{name}.weight"] = 1 + self.normal(width, scale=self._norm_scale)
        self.tensors[f"{name}.bias"] = self.normal(width, scale=0.1)

    def layer(self, name: str, width: int, inner: int, decoder: bool) -> None:
        """A layer of `nn.Transformer`, written down from its source."""
        for attention in ("self_attn", "multihead_attn")[: 1 + decoder]:
            place = f"{name}.{attention}"
            self.tensors[f"{place}.in_proj_weight"] = self.normal(3 * width, width)
            self.tensors[f"{place}.in_proj_bias"] = self.normal(3 * width, scale=0.1)
            self.linear(f"{place}.out_proj", width, width)
        self.linear(f"{name}.linear1", inner, width)
        self.linear(f"{name}.linear2", width, inner)
        for n in range(2 + decoder):
            self.norm(f"{name}.norm{n + 1}", width)


def rotary(size: int) -> torch.Tensor:
    """The buffer that LLaMA's layers of transformers 4.31 stored."""
    return 1.0 / 10000 ** (torch.arange(0, size, 2).float() / size)


def random_state(shapes: Iterable[tuple[str, Shape]], seed: int) -> State:
    """Unit gain for matrices and kernels, norms about 1, small biases."""
    random = np.random.RandomState(seed)
    state = {}
    for name, shape in shapes:
        value = random.standard_normal(shape)
        if len(shape) == 1:
            value = 0.2 * value + ("norm" in name and name.endswith("weight"))
        elif "embed_tokens" not in name and "pos_embed" not in name:
            value /= math.sqrt(math.prod(shape[1:]))
        state[name] = torch.from_numpy(value).float()
    return state


@torch.no_grad()
def filled(module: torch.nn.Module, seed: int) -> torch.nn.Module:
    """The module with values that only its parameters' names and shapes decide."""
    draws = Draws(seed)
    for name, value in sorted(module.named_parameters()):
        if value.dim() > 1:
            new = draws.normal(*value.shape, scale=value[0].numel() ** -0.5)
        else:
            new = draws.normal(*value.shape, scale=0.1) + name.endswith("weight")
        value.copy_(new)
    return module.eval()


def stable_diffusion(
    folder: Path,
    seeds: tuple[int, int, int],
    unet: Mapping[str, Any],
    widths: tuple[int, ...],
    text: Mapping[str, Any],
) -> Path:
    """Write a pipeline that draws 64 pixels; `widths` are the VAE's.

    The seeds are those of UNet, VAE and text encoder.
    """
    import diffusers
    from transformers import CLIPTextConfig, CLIPTextModel

    from plait.generators.diffusion.builds import small_tokenizer

    blocks: dict[str, Any] = {
        "sample_size": 8,
        "block_out_channels": (16, 32),
        "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
        "layers_per_block": 1,
        "norm_num_groups": 4,
    }
    vae: dict[str, Any] = {
        "block_out_channels": widths,
        "down_block_types": ("DownEncoderBlock2D",) * 4,
        "up_block_types": ("UpDecoderBlock2D",) * 4,
        "layers_per_block": 1,
        "latent_channels": 4,
        "norm_num_groups": 4,
        "sample_size": 64,
    }
    ends = {"bos_token_id": 512, "eos_token_id": 513}
    encoder = CLIPTextModel(CLIPTextConfig(**ends, **text))
    pipeline = diffusers.StableDiffusionPipeline(
        unet=filled(diffusers.UNet2DConditionModel(**blocks, **unet), seeds[0]),
        vae=filled(diffusers.AutoencoderKL(**vae), seeds[1]),
        text_encoder=filled(encoder, seeds[2]),
        tokenizer=small_tokenizer("clip"),
        scheduler=diffusers.PNDMScheduler(
            beta_start=0.00085,
            beta_end=0.012,
            beta_schedule="scaled_linear",
            steps_offset=1,
            skip_prk_steps=True,
            set_alpha_to_one=False,
        ),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.save_pretrained(folder)
    return folder


def save_shards(
    folder: Path,
    parts: Iterable[State],
    files: str = "model*.safetensors",
    index: str = ".safetensors.index.json",
) -> None:
    """Write a file for each part, named with its number, and what lies where.

    `files` is a name with a star; `index` ends the name of the index.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts, where = list(parts), {}
    for number, part in enumerate(parts, start=1):
        file = files.replace("*", f"-{number:05}-of-{len(parts):05}")
        stored = {name: value.clone() for name, value in part.items()}
        if file.endswith(".safetensors"):
            save_file(stored, folder / file, {"format": "pt"})
        else:
            torch.save(stored, folder / file)
        where |= dict.fromkeys(part, file)
    about = {"metadata": {"total_size": 0}, "weight_map": where}
    write_json(folder / (files.partition("*")[0].partition(".")[0] + index), about)


def every(state: State, step: int) -> list[State]:
    """As many parts, each of every so many names in their order."""
    names = sorted(state)
    return [{name: state[name] for name in names[i::step]} for i in range(step)]


def picture(width: int, height: int, mode: str = "RGB") -> Pillow.Image:
    """Smooth random colours; with mode RGBA also random transparency."""
    random = np.random.RandomState(width * height)
    small = random.randint(0, 256, (7, 5, len(mode))).astype(np.uint8)
    return Pillow.fromarray(small, mode).resize((width, height), Pillow.Resampling.BICUBIC)


def published_config(name: str) -> dict[str, Any]:
    """A configuration in the terms of the authors' files, at toy size."""
    configs: dict[str, Any] = json.loads((DATA / "native_configs.json").read_text())
    return configs[name]


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))
