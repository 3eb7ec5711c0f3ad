"""Published speeds of text-to-image models on named GPUs, one image at a time.

Only figures whose model, GPU, steps and size are stated by the source. They are scaled to
other steps and sizes of the same model, never to another GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.runs.forecast.machine import same_gpu
from generators.base import StageSpec

_SDXL = "stabilityai/stable-diffusion-xl-base-1.0"
_SD3 = "stabilityai/stable-diffusion-3-medium-diffusers"
_FLUX = "black-forest-labs/FLUX.1-dev"
_OPENJOURNEY = "prompthero/openjourney"
_DIFFUSION_FAST = "diffusers documentation, tutorials/fast_diffusion.md"
_FAL = "github.com/fal-ai/stable-diffusion-benchmarks (torch 2.1)"
_FAL_SD15 = f"{_FAL}, of Stable Diffusion 1.5, whose architecture Openjourney has"
_TORCHAO = "github.com/sayakpaul/diffusers-torchao"
_XDIT = "github.com/xdit-project/xDiT, docs/performance/flux.md"
_SD3_BLOG = "huggingface.co/blog/sd3"
_FLUX_FAST = "github.com/huggingface/flux-fast"


@dataclass(frozen=True, slots=True)
class PublishedSpeed:
    """One measurement that somebody else published."""

    model: str
    """Hub id of the model, or of one that has its architecture."""
    gpu: str
    steps: int
    side: int
    """Height and width, in pixels."""
    compiled: bool
    seconds: float
    """For one image."""
    source: str

    def is_of(self, spec: StageSpec) -> bool:
        """Return whether it is of this stage's model, compiled as there.

        Identities are `hub:ID@COMMIT`, or `ID` for dummy weights, which are as fast.
        """
        return (
            spec.stage == "text-to-image"
            and spec.weights in ("pretrained", "dummy")
            and spec.identity.removeprefix("hub:").partition("@")[0] == self.model
            and bool(spec.settings.get("compile")) == self.compiled
        )


PUBLISHED = (
    PublishedSpeed(_SDXL, "A100", 30, 1024, False, 3.31, _DIFFUSION_FAST),
    PublishedSpeed(_SDXL, "A100", 30, 1024, True, 2.54, _DIFFUSION_FAST),
    PublishedSpeed(_SDXL, "A100", 50, 1024, False, 5.93, _FAL),
    PublishedSpeed(_SDXL, "A100", 50, 1024, True, 5.14, _FAL),
    PublishedSpeed(_SD3, "A100", 28, 1024, False, 4.762, _SD3_BLOG),
    PublishedSpeed(_FLUX, "H100", 28, 1024, False, 6.57, _TORCHAO),
    PublishedSpeed(_FLUX, "H100", 28, 1024, True, 4.21, _TORCHAO),
    PublishedSpeed(_FLUX, "H100", 28, 1024, False, 6.71, _XDIT),
    PublishedSpeed(_FLUX, "H100", 28, 1024, True, 4.30, _XDIT),
    PublishedSpeed(_FLUX, "L20", 28, 1024, False, 24.94, _FLUX_FAST),
    PublishedSpeed(_OPENJOURNEY, "A100", 50, 512, False, 1.604, _FAL_SD15),
    PublishedSpeed(_OPENJOURNEY, "A100", 50, 512, True, 1.058, _FAL_SD15),
)


def published_seconds(spec: StageSpec, gpu: str) -> tuple[list[float], str]:
    """Return seconds for one image on `gpu` and their source; nothing where none is known.

    Figures of other steps or sizes are scaled in proportion where there are no exact ones.
    """
    figures = [f for f in PUBLISHED if f.is_of(spec) and same_gpu(f.gpu, gpu)]
    asked = [spec.settings.get(name) for name in ("steps", "height", "width")]
    if not figures or not all(asked) or not spec.placement.num_gpus:
        return [], ""
    steps, height, width = (int(value or 0) for value in asked)
    exact = [f for f in figures if f.steps == steps and f.side**2 == height * width]
    used = exact or figures
    words = list(dict.fromkeys(f.source for f in used))
    if not exact:
        words.append(
            f"scaled from {used[0].steps} steps at {used[0].side} x {used[0].side}"
        )
    work = steps * height * width
    return [f.seconds * work / (f.steps * f.side**2) for f in used], ", ".join(words)
