"""The mini T2I model in the layout of Stable Diffusion 1.5, and its weaker, early state.

    python -m plait.benchmarks.miniature.training.openjourney --out FOLDER

First comes the autoencoder, which makes 8 x 8 latents of 8 channels of 64 x 64 pixels. Then
the text encoder, by a head that asks it what stands where: a U-Net alone teaches it that
only after thousands of steps. Both stay as they are while the U-Net learns.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import typer
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    StableDiffusionPipeline,
    UNet2DConditionModel,
)
from diffusers.models.attention_processor import AttnProcessor
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoTokenizer, CLIPTextConfig, CLIPTextModel

from plait.benchmarks.miniature.training import scenes as world
from plait.benchmarks.miniature.training.loop import Out, TrainingPlan, train
from plait.benchmarks.miniature.training.scenes import images_of, random_scenes
from plait.generators.mini.table import SHIPPED
from plait.scorers.truth.language import description, sentence, statement, step
from plait.scorers.truth.scene import BACKGROUNDS, PLACES, Scene, random_scene

VAE_PLAN = TrainingPlan(steps=2000, rate=2e-3, warmup=50, average=0.995, seed=1)
TEXT_PLAN = TrainingPlan(steps=800, rate=2e-3, warmup=50, average=0.99, seed=2)
PLAN = TrainingPlan(steps=3000, rate=2e-3, average=0.998, seed=3)
EARLY = 600
"""The step after which the weaker model is written."""
FEW_ITEMS = 400
"""Steps in which only scenes of one or two items are drawn."""
LENGTH = 64
"""Tokens of a prompt with start and end: two steps of two items each fit."""
WIDTH = 96
"""Of a token's vector."""
MODEL = SHIPPED / "openjourney"
NOISES = DDIMScheduler.from_pretrained(MODEL, subfolder="scheduler")
"""Stable Diffusion's noise, rescaled to end in pure noise (arXiv:2305.08891)."""
SCALE = 0.18215
"""Stable Diffusion's factor from stored latents to those of unit variance."""
KL = 1e-4
"""Weight of the latents' distance from a normal distribution."""
QUIET = -4.0
"""Logarithm of the latents' variance at the start: at 0, noise would hide the image."""
VAE_BATCH = 16
BATCH = 64
UNPROMPTED = 0.1
"""Share of images learned without a prompt, for guidance."""


@torch.no_grad()
def encode(vae: AutoencoderKL, images: Tensor) -> Tensor:
    """Return means of the latents (images, 8, 8, 8) of uint8 images."""
    latents = []
    for part in torch.split(images, 64):
        latents.append(vae.encode(world.centre(part)).latent_dist.mean)
    return torch.cat(latents)


@torch.no_grad()
def encode_prompts(encoder: CLIPTextModel, ids: Tensor) -> Tensor:
    """Return vectors (prompts, LENGTH, WIDTH) of ids (prompts, LENGTH).

    In half precision, which keeps those of many prompts in memory.
    """
    vectors = []
    for part in torch.split(ids, 200):
        vectors.append(encoder(part).last_hidden_state.bfloat16())
    return torch.cat(vectors)


@torch.no_grad()
def standardise(vae: AutoencoderKL, images: Tensor) -> None:
    """Rescale the latents' channels so that `SCALE` gives each mean 0 and variance 1.

    The two convolutions of one pixel around the latents take it up: decoded images stay
    the same.
    """
    latents = encode(vae, images)
    mean = latents.mean((0, 2, 3))
    spread = latents.std((0, 2, 3))
    gain = 1 / (SCALE * spread)
    before = vae.quant_conv
    after = vae.post_quant_conv
    count = len(gain)
    # The first channels are the latents' means, the others logarithms of their variances.
    before.weight[:count] *= gain[:, None, None, None]
    before.bias[:count] = (before.bias[:count] - mean) * gain
    before.bias[count:] += 2 * gain.log()
    after.bias += after.weight[:, :, 0, 0] @ mean
    after.weight /= gain[None, :, None, None]


def train_vae(state: Path, plan: TrainingPlan, images: int) -> AutoencoderKL:
    """Return an autoencoder that draws so many images again, with standardised latents."""
    drawn = images_of(random_scenes(images, seed=11))
    torch.manual_seed(plan.seed)
    config = AutoencoderKL.load_config(MODEL, subfolder="vae")
    vae = AutoencoderKL.from_config(config)
    nn.init.constant_(vae.quant_conv.bias[8:].data, QUIET)

    def loss(step: int) -> Tensor:
        batch = world.centre(drawn[torch.randint(images, (VAE_BATCH,))])
        with torch.autocast("cpu", torch.bfloat16):
            posterior = vae.encode(batch).latent_dist
            decoded = vae.decode(posterior.sample()).sample
        distance = posterior.kl().mean() / posterior.mean[0].numel()
        value: Tensor = world.image_loss(decoded, batch) + KL * distance
        return value

    train({"vae": vae}, loss, state, plan)
    standardise(vae, drawn[:2000])
    return vae.requires_grad_(False)


def captions(scenes: Sequence[Scene], rng: random.Random, each: int = 1) -> list[str]:
    """Draw `each` prompts of every scene, in a row, in the forms that LVLMs give them."""
    prompts: list[str] = []
    for scene in scenes:
        for _ in range(each):
            prompts.append(_caption(scene, rng))
    return prompts


def _caption(scene: Scene, rng: random.Random) -> str:
    """Draw a prompt: a description, a step of an answer, or a whole answer of two steps."""
    form = rng.random()
    wording = rng.random()
    if form < 0.1:
        # A whole answer in two steps, of which the last is drawn.
        earlier = random_scene(rng, "train", most=2)
        return f"{step(1, statement(earlier))} {step(2, statement(scene))}"
    if wording < 0.8:
        text = statement(scene) if wording < 0.4 else sentence(scene, rng)
    else:
        text = description(scene, rng if wording < 0.9 else None)
    return step(rng.randint(1, 3), text) if form < 0.4 else text


def token_ids(tokenizer: Any, texts: Sequence[str]) -> Tensor:
    """Return ids (texts, LENGTH), padded and cut as the pipelines of diffusers do."""
    options = {"padding": "max_length", "max_length": LENGTH, "truncation": True}
    ids: Tensor = tokenizer(list(texts), return_tensors="pt", **options).input_ids
    return ids


class SceneHead(nn.Module):
    """Tells what a prompt says of each place, from the vectors of its tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.questions = nn.Parameter(torch.randn(len(PLACES) + 1, WIDTH) * WIDTH**-0.5)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.item = nn.Linear(WIDTH, sum(world.ITEM_CLASSES))
        self.background = nn.Linear(WIDTH, len(BACKGROUNDS))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (prompts, classes of all labels) of (prompts, length, width)."""
        questions = self.questions.expand(len(tokens), -1, -1)
        answers = self.attention(questions, tokens, tokens, need_weights=False)[0]
        items = self.item(answers[:, :-1]).flatten(1)
        return torch.cat([items, self.background(answers[:, -1])], dim=1)


def train_encoder(tokenizer: Any, state: Path, plan: TrainingPlan) -> CLIPTextModel:
    """Return the text tower, trained to tell the scenes of prompts."""
    torch.manual_seed(plan.seed)
    config = CLIPTextConfig.from_pretrained(MODEL, subfolder="text_encoder")
    encoder = CLIPTextModel(config)
    head = SceneHead()

    def loss(step: int) -> Tensor:
        rng = random.Random(step)
        scenes = [random_scene(rng, "train") for _ in range(BATCH)]
        tokens = encoder(token_ids(tokenizer, captions(scenes, rng))).last_hidden_state
        return world.reading_loss(head(tokens), world.labels_of(*scenes))

    train({"text_encoder": encoder, "head": head}, loss, state, plan)
    return encoder.requires_grad_(False)


def new_unet(folder: Path) -> UNet2DConditionModel:
    """Return the untrained U-Net of a checkpoint.

    Convolutions come before the first attention, which knows places by their padding alone.
    """
    config = UNet2DConditionModel.load_config(folder, subfolder="unet")
    unet = UNet2DConditionModel.from_config(config)
    # Torch's fused attention would take half of a step in bfloat16 on a CPU.
    unet.set_attn_processor(AttnProcessor())
    return unet


def noise_loss(
    unet: Callable[..., Any], latents: Tensor, prompts: Tensor, **conditions: Any
) -> Tensor:
    """Return the mean squared error of the predicted velocity (arXiv:2202.00512).

    Much noise comes more often than little: what stands where is settled there.
    """
    noise = torch.randn_like(latents)
    # The root of a uniform number: the larger a time, the likelier it is.
    times = (1000 * torch.rand(len(latents)).sqrt()).long()
    noisy = NOISES.add_noise(latents, noise, times)
    with torch.autocast("cpu", torch.bfloat16):
        predicted = unet(noisy, times, prompts, **conditions).sample
    return F.mse_loss(predicted.float(), NOISES.get_velocity(latents, noise, times))


def save_pipeline(pipeline: Any, folder: Path) -> None:
    """Write the published layout in float16."""
    stored = copy.copy(pipeline)
    for name, part in pipeline.components.items():
        if isinstance(part, nn.Module):
            setattr(stored, name, copy.deepcopy(part).half())
    # The folder that the autoencoder was read from stays private.
    stored.vae.register_to_config(_name_or_path="")
    stored.save_pretrained(folder)


def main(
    out: Out,
    steps: int = PLAN.steps,
    text_steps: int = TEXT_PLAN.steps,
    vae_steps: int = VAE_PLAN.steps,
    images: int = 20_000,
) -> None:
    """Train the autoencoder, the text encoder and the U-Net on so many images."""
    plan = replace(PLAN, steps=steps)
    vae_plan = replace(VAE_PLAN, steps=vae_steps)
    vae = train_vae(out / "state" / "vae", vae_plan, images)
    tokenizer = AutoTokenizer.from_pretrained(MODEL / "tokenizer")
    text_state = out / "state" / "text"
    text_plan = replace(TEXT_PLAN, steps=text_steps)
    encoder = train_encoder(tokenizer, text_state, text_plan)
    scenes = random_scenes(images, seed=31)
    latents = SCALE * encode(vae, images_of(scenes))
    of_few_items = []
    for number, scene in enumerate(scenes):
        if len(scene.items) <= 2:
            of_few_items.append(number)
    few = torch.tensor(of_few_items)
    # Two prompts of each scene, in a row.
    ids = token_ids(tokenizer, captions(scenes, random.Random(32), each=2))
    prompts = encode_prompts(encoder, ids)
    unprompted = encoder(token_ids(tokenizer, [""])).last_hidden_state
    torch.manual_seed(plan.seed)
    unet = new_unet(MODEL)
    pipeline = StableDiffusionPipeline(
        vae=vae,
        text_encoder=encoder,
        tokenizer=tokenizer,
        unet=unet,
        scheduler=NOISES,
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )

    def loss(step: int) -> Tensor:
        pool = few if step < FEW_ITEMS else torch.arange(images)
        rows = pool[torch.randint(len(pool), (BATCH,))]
        asked = prompts[2 * rows + torch.randint(2, (BATCH,))].float()
        dropped = torch.rand(BATCH, 1, 1) < UNPROMPTED
        return noise_loss(unet, latents[rows], torch.where(dropped, unprompted, asked))

    def export(step: int) -> None:
        save_pipeline(pipeline, out / "openjourney")
        if step <= EARLY:
            save_pipeline(pipeline, out / "openjourney-early")

    train({"unet": unet}, loss, out / "state" / "openjourney", plan, export)


if __name__ == "__main__":
    typer.run(main)
