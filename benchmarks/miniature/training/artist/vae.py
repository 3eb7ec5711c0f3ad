"""The autoencoder that all mini artists of the Stable Diffusion family share.

An ordinary `AutoencoderKL`: 64 pixels become 8 x 8 latents of 8 channels.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from diffusers import AutoencoderKL

from benchmarks.miniature.training.drawn import DrawnScenes
from benchmarks.miniature.training.loop import Trainer, TrainingPlan
from benchmarks.miniature.training.options import training_parser
from benchmarks.miniature.training.saved import parameter_count, write_measured
from benchmarks.miniature.training.sheets import as_pictures, sheet

SCALE = 0.18215
"""Stable Diffusion's factor from stored latents to those of unit variance."""
PLAN = TrainingPlan(steps=2000, rate=2e-3, warmup=50, average=0.995, seed=1)
BATCH = 16
PICTURES = 20_000
_KL, _EDGES, _SQUARES = 1e-4, 0.5, 4.0
_QUIET = -4.0
"""Logarithm of the latents' variance at the start: at 0, noise would hide the picture."""


def autoencoder() -> AutoencoderKL:
    """The untrained autoencoder."""
    channels = (16, 32, 48, 64)
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * len(channels),
        up_block_types=("UpDecoderBlock2D",) * len(channels),
        block_out_channels=channels,
        layers_per_block=1,
        latent_channels=8,
        norm_num_groups=8,
        sample_size=64,
        scaling_factor=SCALE,
        mid_block_add_attention=False,
    )
    with torch.no_grad():
        vae.quant_conv.bias[8:] = _QUIET
    return vae


def reconstruction_loss(vae: AutoencoderKL, pictures: torch.Tensor) -> torch.Tensor:
    """How far decoded pictures (batch, 3, side, side) are from the encoded ones.

    Squares, which find the colours first; absolute differences of pixels and of the steps
    between neighbours, which keep corners sharp; and a little of the latents' distance from
    a normal distribution.
    """
    with torch.autocast("cpu", torch.bfloat16):
        posterior = vae.encode(pictures).latent_dist
        decoded = vae.decode(posterior.sample()).sample
    wrong = decoded.float() - pictures
    across = (wrong[..., 1:] - wrong[..., :-1]).abs().mean()
    down = (wrong[..., 1:, :] - wrong[..., :-1, :]).abs().mean()
    distance = posterior.kl().mean() / posterior.mean[0].numel()
    pixels = wrong.abs().mean() + _SQUARES * wrong.square().mean()
    loss: torch.Tensor = pixels + _EDGES * (across + down) + _KL * distance
    return loss


@torch.no_grad()
def encoded(vae: AutoencoderKL, drawn: DrawnScenes, batch: int = 64) -> torch.Tensor:
    """Latents' means (pictures, 8, 8, 8), as the encoder gives them."""
    places = torch.split(torch.arange(len(drawn.scenes)), batch)
    return torch.cat([vae.encode(drawn.batch(p)).latent_dist.mean for p in places])


@torch.no_grad()
def standardise(vae: AutoencoderKL, drawn: DrawnScenes) -> None:
    """Rescale the latents' channels so that `SCALE` gives each mean 0 and variance 1.

    The two convolutions of one pixel around the latents take it up: decoded pictures stay
    the same.
    """
    latents = encoded(vae, drawn)
    mean, spread = latents.mean((0, 2, 3)), latents.std((0, 2, 3))
    gain = 1 / (SCALE * spread)
    before, after = vae.quant_conv, vae.post_quant_conv
    if before is None or after is None:
        raise ValueError("an autoencoder without quant_conv cannot be standardised")
    count = len(gain)
    before.weight[:count] *= gain[:, None, None, None]
    before.bias[:count] = (before.bias[:count] - mean) * gain
    before.bias[count:] += 2 * gain.log()
    after.bias += after.weight[:, :, 0, 0] @ mean
    after.weight /= gain[None, :, None, None]


@torch.no_grad()
def round_trip(vae: AutoencoderKL, pictures: torch.Tensor) -> torch.Tensor:
    """Pictures in [-1, 1] after encoding and decoding."""
    decoded: torch.Tensor = vae.decode(vae.encode(pictures).latent_dist.mean).sample
    return decoded.clamp(-1, 1)


def train(out: Path, plan: TrainingPlan = PLAN, pictures: int = PICTURES) -> AutoencoderKL:
    """Train, or go on training, and save the autoencoder at `out/vae`."""
    state = out / "state" / "vae"
    drawn = DrawnScenes.of(pictures, seed=11)
    unseen = DrawnScenes.of(64, seed=12, split="test")
    torch.manual_seed(plan.seed)
    vae = autoencoder()

    def loss(step: int) -> torch.Tensor:
        places = torch.randint(len(drawn.scenes), (BATCH,))
        return reconstruction_loss(vae, drawn.batch(places))

    def look(step: int) -> str:
        before = unseen.batch(range(64))
        after = round_trip(vae, before)
        sheet([as_pictures(p[:12]) for p in (before, after)], state / f"step_{step}.png")
        wrong = (after - before).abs()
        return f"error {wrong.mean():.4f} of test pictures, largest {wrong.amax():.2f}"

    trainer = Trainer({"vae": vae}, loss, state, plan)
    trainer.run(200, look)
    with trainer:
        standardise(vae, replace(drawn, scenes=drawn.scenes[:2000]))
        _record(trainer, vae, unseen, state)
        vae.half().save_pretrained(out / "vae")
    return vae.float()


def _record(trainer: Trainer, vae: AutoencoderKL, unseen: DrawnScenes, state: Path) -> None:
    before = unseen.batch(range(len(unseen.scenes)))
    wrong = (round_trip(vae, before) - before).abs()
    facts = {
        **trainer.progress(),
        "parameters": parameter_count(vae),
        "test_error": round(float(wrong.mean()), 5),
    }
    write_measured(state, facts)


def main(arguments: list[str] | None = None) -> None:
    """`python -m benchmarks.miniature.training vae --out FOLDER`."""
    options = training_parser("vae", __doc__, PLAN.steps).parse_args(arguments)
    train(options.out, replace(PLAN, steps=options.steps))
