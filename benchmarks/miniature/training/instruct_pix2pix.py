"""The mini T2I model that draws from an image too, in the layout of InstructPix2Pix.

    python -m plait.benchmarks.miniature.training.instruct_pix2pix --out FOLDER

It comes after openjourney, with whose U-Net it begins; autoencoder and text encoder stay as
they are. From the image of a scene and a sentence it learns the scene that follows: the
sentence says what comes, grows, shrinks or turns colour, as it is afterwards, and nothing
else, or describes the whole scene. What does not change keeps its pixels.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import typer
from diffusers import StableDiffusionInstructPix2PixPipeline, StableDiffusionPipeline
from torch import Tensor

from plait.benchmarks.miniature.training import openjourney
from plait.benchmarks.miniature.training.loop import Out, TrainingPlan, train
from plait.benchmarks.miniature.training.openjourney import SCALE, token_ids
from plait.benchmarks.miniature.training.scenes import images_of
from plait.benchmarks.miniature.training.sdxl import begin_with
from plait.benchmarks.tasks.miniature.queries import MiniatureQuery, query
from plait.generators.mini.table import SHIPPED
from plait.scorers.truth.language import state_change
from plait.scorers.truth.scene import PLACES

PLAN = TrainingPlan(steps=1200, rate=1e-3, warmup=50, average=0.99, save_every=100, seed=5)
MODEL = SHIPPED / "instruct-pix2pix"
BATCH = 32
UNSEEN = 0.05
"""Share of images learned without the prompt, without the image, and without both
(arXiv:2211.09800, section 3.2)."""
CHANGES = 0.7
"""Share of prompts that tell the change alone, where it leaves something to see."""


def prompts_of(story: MiniatureQuery, rng: random.Random) -> list[str]:
    """Return what is new in the scene that follows, and all of that scene."""
    (change,) = story.changes
    whole = openjourney.captions([story.scenes[1]], rng)[0]
    return [state_change(change, rng) or whole, whole]


def pairs_of(stories: Sequence[MiniatureQuery]) -> tuple[Tensor, Tensor]:
    """Return images before and after each change, uint8 (stories, 3, side, side)."""
    count = len(stories)
    before = images_of([story.scenes[0] for story in stories])
    after = images_of([story.scenes[1] for story in stories], range(count, 2 * count))
    for old, new, story in zip(before, after, stories, strict=True):
        first, second = story.scenes
        for place in PLACES:
            if first.at(place) == second.at(place):
                quarter = _quarter(place)
                new[quarter] = old[quarter]
    return before, after


def _quarter(place: str) -> tuple[slice, slice, slice]:
    """Return where the pixels of a place are in an image (3, 64, 64)."""
    first = slice(0, 32)
    second = slice(32, 64)
    row, column = place.split()
    rows = first if row == "top" else second
    columns = first if column == "left" else second
    return slice(None), rows, columns


def main(out: Out, steps: int = PLAN.steps, images: int = 4_000) -> None:
    """Train the U-Net on so many pairs of images."""
    plan = replace(PLAN, steps=steps)
    given = StableDiffusionPipeline.from_pretrained(
        str(out / "openjourney"), dtype=torch.float32, safety_checker=None
    )
    vae = given.vae.requires_grad_(False)
    encoder = given.text_encoder.requires_grad_(False)
    stories = [query(index, 61, "train", "SA") for index in range(images)]
    before, after = pairs_of(stories)
    seen = openjourney.encode(vae, before)
    drawn = openjourney.encode(vae, after)
    rng = random.Random(62)
    texts: list[str] = []
    for story in stories:
        texts += prompts_of(story, rng)
    ids = token_ids(given.tokenizer, texts)
    # Two prompts of each story, in a row: the change, and the whole scene.
    prompts = openjourney.encode_prompts(encoder, ids)
    unprompted = encoder(token_ids(given.tokenizer, [""])).last_hidden_state
    torch.manual_seed(plan.seed)
    unet = openjourney.new_unet(MODEL)
    begin_with(unet, given.unet)
    parts = {**given.components, "unet": unet, "requires_safety_checker": False}
    pipeline = StableDiffusionInstructPix2PixPipeline(**parts)

    def loss(step: int) -> Tensor:
        rows = torch.randint(images, (BATCH,))
        # Thirds below 3 UNSEEN: without the prompt, without both, without the image.
        lot = torch.rand(BATCH, 1, 1)
        whole = (torch.rand(BATCH) >= CHANGES).long()
        asked = torch.where(lot < 2 * UNSEEN, unprompted, prompts[2 * rows + whole].float())
        shown = (lot < UNSEEN) | (lot >= 3 * UNSEEN)
        # The pipeline reads latents as the autoencoder gives them, without its factor.
        beside = seen[rows] * shown[..., None]

        def denoise(noisy: Tensor, times: Tensor, tokens: Tensor) -> Any:
            return unet(torch.cat([noisy, beside], dim=1), times, tokens)

        return openjourney.noise_loss(denoise, SCALE * drawn[rows], asked)

    def export(step: int) -> None:
        openjourney.save_pipeline(pipeline, out / "instruct-pix2pix")

    train({"unet": unet}, loss, out / "state" / "instruct-pix2pix", plan, export)


if __name__ == "__main__":
    typer.run(main)
