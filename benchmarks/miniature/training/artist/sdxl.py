"""The mini artist in the layout of SDXL: two text towers, of which one is trained along.

`python -m benchmarks.miniature.training sdxl --out FOLDER`, after `artist`, whose U-Net and
text tower it begins with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from diffusers import (
    EulerDiscreteScheduler,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
)
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

from benchmarks.miniature.training.artist import train as artist
from benchmarks.miniature.training.artist.denoising import (
    BATCH,
    UNPROMPTED,
    noise_loss,
    scheduler,
    small_unet,
)
from benchmarks.miniature.training.artist.marks import marks
from benchmarks.miniature.training.artist.prompt_reading import WIDTH, prompt_ids
from benchmarks.miniature.training.artist.vae import SCALE, encoded
from benchmarks.miniature.training.drawn import DrawnScenes
from benchmarks.miniature.training.loop import Trainer, TrainingPlan
from benchmarks.miniature.training.options import training_parser
from benchmarks.miniature.training.saved import parameter_count, write_measured

PLAN = TrainingPlan(steps=900, rate=1e-3, warmup=50, average=0.99, seed=4)
PICTURES = 4_000
SECOND_WIDTH = 32
"""Width of the second text tower and of the vector of a whole prompt."""
_TIME_WIDTH, _SIZES = 8, (64, 64, 0, 0, 64, 64)
"""Sizes: of the original, of the cut, and of the picture that is asked for."""
_NOISE = (
    "beta_start",
    "beta_end",
    "beta_schedule",
    "prediction_type",
    "rescale_betas_zero_snr",
    "timestep_spacing",
    "steps_offset",
)
"""What both artists' schedulers have in common."""
NAME = "sdxl"


def denoiser() -> UNet2DConditionModel:
    """The untrained U-Net: as published, no attention where latents are finest."""
    return small_unet(
        "UpBlock2D",
        WIDTH + SECOND_WIDTH,
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=_TIME_WIDTH,
        projection_class_embeddings_input_dim=len(_SIZES) * _TIME_WIDTH + SECOND_WIDTH,
    )


@torch.no_grad()
def begin_with(unet: UNet2DConditionModel, trained: UNet2DConditionModel) -> None:
    """Take over the weights of openjourney's U-Net where there are such.

    The second tower's vectors and those of whole prompts have no effect at first.
    """
    given = trained.state_dict()
    for name, weight in unet.state_dict().items():
        if name.startswith("add_embedding.linear_2"):
            weight.zero_()
        if (old := given.get(name)) is None:
            continue
        if old.numel() == weight.numel():
            weight.copy_(old.reshape(weight.shape))
        else:
            weight.zero_()
            weight[:, : old.shape[1]] = old


def first_tower(trained: CLIPTextModel) -> CLIPTextModel:
    """The tower of openjourney below one more layer: SDXL reads the last layer but one."""
    config = CLIPTextConfig(**trained.config.to_dict())
    config.num_hidden_layers += 1
    tower = CLIPTextModel(config)
    tower.load_state_dict(trained.state_dict(), strict=False)
    return tower.requires_grad_(False).eval()


def second_tower(trained: CLIPTextModel) -> CLIPTextModelWithProjection:
    """An untrained tower with the same vocabulary."""
    changes = {
        "hidden_size": SECOND_WIDTH,
        "intermediate_size": 2 * SECOND_WIDTH,
        "num_hidden_layers": 2,
        "projection_dim": SECOND_WIDTH,
    }
    return CLIPTextModelWithProjection(
        CLIPTextConfig(**{**trained.config.to_dict(), **changes})
    )


def penultimate(tower: Any, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What SDXL reads of a tower: the last layer but one, and the tower's first output."""
    output = tower(ids, output_hidden_states=True)
    return output.hidden_states[-2], output[0]


@dataclass(frozen=True)
class TwoTowerLessons:
    """Latents of training scenes and their prompts, read by the first tower."""

    latents: torch.Tensor
    """float32 (scenes, 8, 8, 8), of unit variance."""
    ids: torch.Tensor
    """int16 (2 x scenes, tokens): two prompts of each scene, in a row."""
    first: torch.Tensor
    """bfloat16 (2 x scenes, tokens, width)."""

    @classmethod
    @torch.no_grad()
    def of(cls, vae: Any, tokenizer: Any, tower: CLIPTextModel, count: int) -> Any:
        """The same lessons for the same modules."""
        drawn = DrawnScenes.of(count, seed=33)
        ids = prompt_ids(tokenizer, drawn.scenes, seed=34)
        first = [penultimate(tower, i)[0].bfloat16() for i in torch.split(ids, 200)]
        return cls(encoded(vae, drawn) * SCALE, ids.to(torch.int16), torch.cat(first))

    def batch(
        self, second: CLIPTextModelWithProjection
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Latents, vectors of tokens and of whole prompts of a random batch.

        Without a prompt all vectors are 0, as the pipeline has it.
        """
        scenes = torch.randint(len(self.latents), (BATCH,))
        prompts = 2 * scenes + torch.randint(2, (BATCH,))
        tokens, whole = penultimate(second, self.ids[prompts].long())
        tokens = torch.cat([self.first[prompts].float(), tokens], dim=-1)
        prompted = (torch.rand(BATCH) >= UNPROMPTED).float()
        return (
            self.latents[scenes],
            tokens * prompted[:, None, None],
            whole * prompted[:, None],
        )


def pipeline(
    given: Any, first: Any, second: Any, unet: UNet2DConditionModel
) -> StableDiffusionXLPipeline:
    """The whole artist, with the autoencoder, tokenizer and noise of `given`."""
    noises = scheduler().config
    made = StableDiffusionXLPipeline(
        vae=given.vae,
        text_encoder=first,
        text_encoder_2=second,
        tokenizer=given.tokenizer,
        tokenizer_2=given.tokenizer,
        unet=unet,
        scheduler=EulerDiscreteScheduler(**{name: noises[name] for name in _NOISE}),
        add_watermarker=False,
    )
    made.set_progress_bar_config(disable=True)
    return made


def train(
    out: Path, plan: TrainingPlan = PLAN, pictures: int = PICTURES, scenes: int = 300
) -> None:
    """Train, or go on training, the U-Net and the second tower; save the artist."""
    state = out / "state" / NAME
    given = artist.load(out / artist.NAME)
    torch.manual_seed(plan.seed)
    unet, noises = denoiser(), scheduler()
    begin_with(unet, given.unet)
    first, second = first_tower(given.text_encoder), second_tower(given.text_encoder)
    made = pipeline(given, first, second, unet)
    lessons = TwoTowerLessons.of(given.vae, given.tokenizer, first, pictures)
    sizes = torch.tensor([_SIZES] * BATCH)

    def loss(step: int) -> torch.Tensor:
        latents, tokens, whole = lessons.batch(second)
        more = {"text_embeds": whole, "time_ids": sizes}
        return noise_loss(unet, noises, latents, tokens, added_cond_kwargs=more)

    def look(step: int) -> str:
        artist.save(made, out / NAME)
        return marks(made, scenes // 3, state / f"step_{step}.png").line()

    trainer = Trainer({"unet": unet, "text_encoder_2": second}, loss, state, plan)
    trainer.run(max(1, plan.steps // 4), look)
    with trainer:
        artist.save(made, out / NAME)
        facts = {
            **trainer.progress(),
            "begun_with": artist.NAME,
            "parameters": sum(parameter_count(m) for m in (unet, first, second)),
            **marks(made, scenes, state / "final.png").facts(),
        }
    write_measured(state, facts)


def main(arguments: list[str] | None = None) -> None:
    """`python -m benchmarks.miniature.training sdxl --out FOLDER`."""
    options = training_parser("sdxl", __doc__, PLAN.steps).parse_args(arguments)
    train(options.out, replace(PLAN, steps=options.steps))
