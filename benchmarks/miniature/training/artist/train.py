"""The mini artist in the layout of Stable Diffusion 1.5: it stands in for openjourney.

`python -m benchmarks.miniature.training artist --out FOLDER`, after `vae`.
"""

from __future__ import annotations

import argparse
import copy
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    StableDiffusionPipeline,
    UNet2DConditionModel,
)
from diffusers.models.attention_processor import AttnProcessor
from torch import nn

from benchmarks.miniature.training.artist.marks import marks
from benchmarks.miniature.training.artist.prompt_reading import (
    READING,
    WIDTH,
    encoded_prompts,
    prompt_tokenizer,
    train_text_encoder,
)
from benchmarks.miniature.training.artist.vae import SCALE, encoded
from benchmarks.miniature.training.drawn import DrawnScenes
from benchmarks.miniature.training.loop import Trainer, TrainingPlan

PLAN = TrainingPlan(steps=3000, rate=2e-3, warmup=100, average=0.998, seed=3)
BATCH = 64
PICTURES = 20_000
FEW_ITEMS = 400
"""Steps in which only scenes of one or two items are drawn."""
UNPROMPTED = 0.1
"""Share of pictures learned without a prompt, for guidance."""
EARLY = 0.5
"""Share of items with the right colour at the right place that makes a look the first to be
stored: the weaker artist."""
LOOKS = 15
"""How often the artist is measured."""
NAME, EARLY_NAME = "openjourney", "openjourney-early"


def scheduler() -> DDIMScheduler:
    """Stable Diffusion's noise, rescaled to end in pure noise (arXiv:2305.08891)."""
    return DDIMScheduler(
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        prediction_type="v_prediction",
        rescale_betas_zero_snr=True,
        timestep_spacing="trailing",
        clip_sample=False,
        set_alpha_to_one=True,
        steps_offset=1,
    )


def denoiser() -> UNet2DConditionModel:
    """The untrained U-Net.

    Convolutions come before the first attention, which knows places by their padding alone.
    Torch's fused attention would take half of a training step in bfloat16 on a CPU.
    """
    unet = UNet2DConditionModel(
        sample_size=8,
        in_channels=8,
        out_channels=8,
        block_out_channels=(64, 96),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        layers_per_block=1,
        norm_num_groups=8,
        attention_head_dim=4,
        cross_attention_dim=WIDTH,
    )
    unet.set_attn_processor(AttnProcessor())
    return unet


@dataclass(frozen=True)
class Lessons:
    """Latents of training scenes and the vectors of their prompts."""

    latents: torch.Tensor
    """float32 (scenes, 8, 8, 8), of unit variance."""
    prompts: torch.Tensor
    """bfloat16 (2 x scenes, tokens, width): two prompts of each scene, in a row."""
    unprompted: torch.Tensor
    """(tokens, width): the empty prompt's."""
    few: torch.Tensor
    """Numbers of the scenes with one or two items."""

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Latents and prompts of a random batch, drawn from torch's generator."""
        if step < FEW_ITEMS:
            scenes = self.few[torch.randint(len(self.few), (BATCH,))]
        else:
            scenes = torch.randint(len(self.latents), (BATCH,))
        prompts = self.prompts[2 * scenes + torch.randint(2, (BATCH,))].float()
        dropped = torch.rand(BATCH) < UNPROMPTED
        return self.latents[scenes], torch.where(
            dropped[:, None, None], self.unprompted, prompts
        )


@torch.no_grad()
def lessons(
    vae: AutoencoderKL, tokenizer: Any, encoder: nn.Module, pictures: int
) -> Lessons:
    """The same lessons for the same modules."""
    drawn = DrawnScenes.of(pictures, seed=31)
    prompts, unprompted = encoded_prompts(tokenizer, encoder, drawn.scenes, seed=32)
    few = [i for i, scene in enumerate(drawn.scenes) if len(scene.items) <= 2]
    latents = encoded(vae, drawn) * SCALE
    return Lessons(latents, prompts, unprompted, torch.tensor(few))


def noise_loss(
    unet: nn.Module,
    noises: DDIMScheduler,
    latents: torch.Tensor,
    prompts: torch.Tensor,
    **conditions: Any,
) -> torch.Tensor:
    """Mean squared error of the predicted velocity (arXiv:2202.00512).

    Much noise comes more often than little: what stands where is settled there.
    """
    times = (1000 * torch.rand(len(latents)).sqrt()).long()
    noise = torch.randn_like(latents)
    noisy = noises.add_noise(latents, noise, times)
    with torch.autocast("cpu", torch.bfloat16):
        predicted = unet(noisy, times, prompts, **conditions).sample
    return nn.functional.mse_loss(
        predicted.float(), noises.get_velocity(latents, noise, times)
    )


def pipeline(
    vae: AutoencoderKL, tokenizer: Any, encoder: Any, unet: UNet2DConditionModel
) -> StableDiffusionPipeline:
    """The whole artist."""
    made = StableDiffusionPipeline(
        vae=vae,
        text_encoder=encoder,
        tokenizer=tokenizer,
        unet=unet,
        scheduler=scheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    made.set_progress_bar_config(disable=True)
    return made


def save(artist: Any, folder: Path) -> None:
    """Write the artist in the published layout, in half precision."""
    stored = copy.copy(artist)
    for name, part in artist.components.items():
        if isinstance(part, nn.Module):
            setattr(stored, name, copy.deepcopy(part).half())
    # The folder that the autoencoder was read from is nobody's concern.
    stored.vae.register_to_config(_name_or_path="")
    stored.save_pretrained(folder)


def load(folder: Path) -> StableDiffusionPipeline:
    """The artist that `save` wrote, in single precision."""
    made = StableDiffusionPipeline.from_pretrained(folder, dtype=torch.float32)
    for part in made.components.values():
        if isinstance(part, nn.Module):
            part.requires_grad_(False).float().eval()
    return made


def train(
    out: Path,
    plan: TrainingPlan = PLAN,
    pictures: int = PICTURES,
    reading: TrainingPlan = READING,
    scenes: int = 300,
) -> None:
    """Train, or go on training, the text encoder and the U-Net; save both artists.

    `scenes` of the test split are drawn at the end, a third of them at each look.
    """
    state = out / "state" / NAME
    vae = AutoencoderKL.from_pretrained(out / "vae", dtype=torch.float32).eval()
    tokenizer = prompt_tokenizer()
    text_state = out / "state" / "artist-text"
    encoder, reader = train_text_encoder(tokenizer, text_state, reading)
    given = lessons(vae, tokenizer, encoder, pictures)
    torch.manual_seed(plan.seed)
    unet, noises = denoiser(), scheduler()
    artist = pipeline(vae, tokenizer, encoder, unet)

    def loss(step: int) -> torch.Tensor:
        return noise_loss(unet, noises, *given.batch(step))

    def look(step: int) -> str:
        save(artist, out / NAME)
        measured = marks(artist, scenes // 3, state / f"step_{step}.png")
        early = state / "early.json"
        if measured.placed >= EARLY and not early.exists():
            save(artist, out / EARLY_NAME)
            facts = {"steps": step, **measured.facts()}
            early.write_text(json.dumps(facts, indent=1) + "\n")
        return measured.line()

    trainer = Trainer({"unet": unet}, loss, state, plan)
    trainer.run(max(1, plan.steps // LOOKS), look)
    with trainer:
        save(artist, out / NAME)
        facts = {
            "steps": trainer.step,
            "seconds": round(trainer.seconds, 1),
            "seconds_text_encoder": round(reader.seconds, 1),
            "parameters_unet": sum(p.numel() for p in unet.parameters()),
            "parameters_text_encoder": sum(p.numel() for p in encoder.parameters()),
            **marks(artist, scenes, state / "final.png").facts(),
        }
    (state / "measured.json").write_text(json.dumps(facts, indent=1) + "\n")


def main(arguments: list[str] | None = None) -> None:
    """`python -m benchmarks.miniature.training artist --out FOLDER`."""
    parser = argparse.ArgumentParser(prog="artist", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=PLAN.steps)
    options = parser.parse_args(arguments)
    train(options.out, replace(PLAN, steps=options.steps))
