"""The mini artist in the layout of Stable Diffusion 1.5: it stands in for openjourney.

`python -m benchmarks.miniature.training artist --out FOLDER`, after `vae`.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    StableDiffusionPipeline,
    UNet2DConditionModel,
)
from torch import nn

from benchmarks.miniature.training.artist.denoising import (
    BATCH,
    UNPROMPTED,
    noise_loss,
    scheduler,
    small_unet,
)
from benchmarks.miniature.training.artist.marks import marks
from benchmarks.miniature.training.artist.prompt_reading import (
    READING,
    WIDTH,
    encoded_prompts,
    stored_tokenizer,
    train_text_encoder,
)
from benchmarks.miniature.training.artist.vae import SCALE, encoded
from benchmarks.miniature.training.drawn import DrawnScenes
from benchmarks.miniature.training.loop import Trainer, TrainingPlan
from benchmarks.miniature.training.options import training_parser
from benchmarks.miniature.training.saved import parameter_count, write_measured

PLAN = TrainingPlan(steps=3000, rate=2e-3, warmup=100, average=0.998, seed=3)
PICTURES = 20_000
FEW_ITEMS = 400
"""Steps in which only scenes of one or two items are drawn."""
EARLY = 0.5
"""Share of items with the right colour at the right place that makes a look the first to be
stored: the weaker artist."""
LOOKS = 15
"""How often the artist is measured."""
NAME, EARLY_NAME = "openjourney", "openjourney-early"


def denoiser() -> UNet2DConditionModel:
    """The untrained U-Net."""
    return small_unet("CrossAttnUpBlock2D", WIDTH)


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
    text_state = out / "state" / "artist-text"
    tokenizer = stored_tokenizer(text_state / "tokenizer")
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
            **trainer.progress(),
            "seconds_text_encoder": round(reader.seconds, 1),
            "parameters_unet": parameter_count(unet),
            "parameters_text_encoder": parameter_count(encoder),
            **marks(artist, scenes, state / "final.png").facts(),
        }
    write_measured(state, facts)


def main(arguments: list[str] | None = None) -> None:
    """`python -m benchmarks.miniature.training artist --out FOLDER`."""
    options = training_parser("artist", __doc__, PLAN.steps).parse_args(arguments)
    train(options.out, replace(PLAN, steps=options.steps))
