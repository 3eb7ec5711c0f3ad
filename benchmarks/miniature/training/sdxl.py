"""The mini T2I model in the layout of SDXL: two text encoders, one of them trained along.

    python -m plait.benchmarks.miniature.training.sdxl --out FOLDER     (after openjourney)

It begins with openjourney's U-Net and text encoder.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import torch
import typer
from diffusers import (
    EulerDiscreteScheduler,
    StableDiffusionPipeline,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
)
from torch import Tensor
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

from plait.benchmarks.miniature.training import openjourney
from plait.benchmarks.miniature.training.loop import Out, TrainingPlan, train
from plait.benchmarks.miniature.training.openjourney import captions, token_ids
from plait.benchmarks.miniature.training.scenes import images_of, random_scenes
from plait.generators.mini.table import SHIPPED

PLAN = TrainingPlan(steps=900, rate=1e-3, warmup=50, average=0.99, seed=4)
SIZES = (64, 64, 0, 0, 64, 64)
"""Of the original, of the crop, and of the image that is asked for."""
MODEL = SHIPPED / "sdxl"


@torch.no_grad()
def begin_with(unet: UNet2DConditionModel, trained: UNet2DConditionModel) -> None:
    """Copy the weights of openjourney's U-Net where it has them.

    The second encoder's vectors and those of whole prompts have no effect at first.
    """
    given = trained.state_dict()
    for name, weight in unet.state_dict().items():
        if name.startswith("add_embedding.linear_2"):
            weight.zero_()
        old = given.get(name)
        if old is None:
            continue
        if old.numel() == weight.numel():
            weight.copy_(old.reshape(weight.shape))
        else:
            # Wider here: attention reads the vectors of both encoders side by side.
            weight.zero_()
            weight[:, : old.shape[1]] = old


def first_encoder(trained: CLIPTextModel) -> CLIPTextModel:
    """Return openjourney's text encoder in SDXL's layout."""
    config = CLIPTextConfig.from_pretrained(MODEL, subfolder="text_encoder")
    encoder = CLIPTextModel(config).requires_grad_(False).eval()
    # It lies below one more layer, which nothing reads.
    encoder.load_state_dict(trained.state_dict(), strict=False)
    return encoder


def read(encoder: Any, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return what SDXL reads of prompts, and the vectors of whole ones.

    That is the last layer but one, (prompts, length, width).
    """
    output = encoder(ids, output_hidden_states=True)
    return output.hidden_states[-2], output[0]


def main(out: Out, steps: int = PLAN.steps, images: int = 4_000) -> None:
    """Train the U-Net and the second text encoder on so many images."""
    plan = replace(PLAN, steps=steps)
    given = StableDiffusionPipeline.from_pretrained(
        str(out / "openjourney"), dtype=torch.float32, safety_checker=None
    )
    given.vae.requires_grad_(False)
    torch.manual_seed(plan.seed)
    unet = openjourney.new_unet(MODEL)
    begin_with(unet, given.unet)
    first = first_encoder(given.text_encoder)
    single = {"subfolder": "text_encoder_2", "dtype": torch.float32}
    config = CLIPTextConfig.from_pretrained(MODEL, **single)
    second = CLIPTextModelWithProjection(config)
    pipeline = StableDiffusionXLPipeline(
        vae=given.vae,
        text_encoder=first,
        text_encoder_2=second,
        tokenizer=given.tokenizer,
        tokenizer_2=given.tokenizer,
        unet=unet,
        scheduler=EulerDiscreteScheduler.from_pretrained(MODEL, subfolder="scheduler"),
        add_watermarker=False,
    )
    scenes = random_scenes(images, seed=33)
    latents = openjourney.SCALE * openjourney.encode(given.vae, images_of(scenes))
    ids = token_ids(given.tokenizer, captions(scenes, random.Random(34), each=2))
    sizes = torch.tensor([SIZES] * openjourney.BATCH)

    first_tokens = []
    for part in torch.split(ids, 200):
        tokens, _ = read(first, part)
        first_tokens.append(tokens.bfloat16())
    prompts = torch.cat(first_tokens)

    def loss(step: int) -> Tensor:
        rows = torch.randint(images, (openjourney.BATCH,))
        asked = 2 * rows + torch.randint(2, (openjourney.BATCH,))
        tokens, whole = read(second, ids[asked])
        tokens = torch.cat([prompts[asked].float(), tokens], dim=-1)
        # Without a prompt all vectors are 0, as the pipeline has it.
        prompted = (torch.rand(openjourney.BATCH, 1) >= openjourney.UNPROMPTED).float()
        added = {"text_embeds": whole * prompted, "time_ids": sizes}
        tokens = tokens * prompted[..., None]
        return openjourney.noise_loss(unet, latents[rows], tokens, added_cond_kwargs=added)

    def export(step: int) -> None:
        openjourney.save_pipeline(pipeline, out / "sdxl")

    modules = {"unet": unet, "text_encoder_2": second}
    train(modules, loss, out / "state" / "sdxl", plan, export)


if __name__ == "__main__":
    typer.run(main)
