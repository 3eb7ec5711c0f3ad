"""Published speeds of text-to-image models on named GPUs, one picture at a time.

Only figures whose model, GPU, steps and size are stated by the source. They are scaled to
other steps and sizes of the same model, never to another GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.runs.forecast.machine import Machine, same_gpu
from benchmarks.runs.forecast.rates import FigureRange, Origin, StageRates, Usage
from generators.base import StageSpec

_SDXL = "stabilityai/stable-diffusion-xl-base-1.0"
_SD3 = "stabilityai/stable-diffusion-3-medium-diffusers"
_FLUX = "black-forest-labs/FLUX.1-dev"
_OPENJOURNEY = "prompthero/openjourney"

_DIFFUSION_FAST = "diffusers documentation, tutorials/fast_diffusion.md"
_FAL = "github.com/fal-ai/stable-diffusion-benchmarks (torch 2.1)"
_TORCHAO = "github.com/sayakpaul/diffusers-torchao"
_XDIT = "github.com/xdit-project/xDiT, docs/performance/flux.md"
_SD3_BLOG = "huggingface.co/blog/sd3"
_FLUX_FAST = "github.com/huggingface/flux-fast"


@dataclass(frozen=True, slots=True, kw_only=True)
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
    """For one picture."""
    source: str
    remark: str = ""

    def seconds_at(self, steps: int, pixels: int) -> float:
        """Scaled in proportion to steps and pixels."""
        return self.seconds * steps / self.steps * pixels / self.side**2


def _at_1024(
    model: str, gpu: str, steps: int, eager: float, compiled: float | None, source: str
) -> Iterator[PublishedSpeed]:
    for seconds, is_compiled in ((eager, False), (compiled, True)):
        if seconds is not None:
            yield PublishedSpeed(
                model=model,
                gpu=gpu,
                steps=steps,
                side=1024,
                compiled=is_compiled,
                seconds=seconds,
                source=source,
            )


def _stable_diffusion(seconds: float, *, compiled: bool) -> PublishedSpeed:
    return PublishedSpeed(
        model=_OPENJOURNEY,
        gpu="A100",
        steps=50,
        side=512,
        compiled=compiled,
        seconds=seconds,
        source=_FAL,
        remark="of Stable Diffusion 1.5, whose architecture Openjourney has",
    )


PUBLISHED: tuple[PublishedSpeed, ...] = (
    *_at_1024(_SDXL, "A100", 30, 3.31, 2.54, _DIFFUSION_FAST),
    *_at_1024(_SDXL, "A100", 50, 5.93, 5.14, _FAL),
    *_at_1024(_SD3, "A100", 28, 4.762, None, _SD3_BLOG),
    *_at_1024(_FLUX, "H100", 28, 6.57, 4.21, _TORCHAO),
    *_at_1024(_FLUX, "H100", 28, 6.71, 4.30, _XDIT),
    *_at_1024(_FLUX, "L20", 28, 24.94, None, _FLUX_FAST),
    _stable_diffusion(1.604, compiled=False),
    _stable_diffusion(1.058, compiled=True),
)


def published_rates(spec: StageSpec, machine: Machine) -> StageRates | None:
    """The published speed of a stage on the machine's GPU; None where none is known.

    Dummy weights have the size of the published ones, and so their speed.
    """
    figures = [f for f in PUBLISHED if _applies(f, spec) and same_gpu(f.gpu, machine.gpu)]
    settings = spec.settings
    sizes = [settings.get(name) for name in ("steps", "height", "width")]
    if not figures or not all(sizes) or not spec.placement.num_gpus:
        return None
    steps, height, width = (int(size or 0) for size in sizes)
    exact = [f for f in figures if f.steps == steps and f.side**2 == height * width]
    figures = exact or figures
    seconds = FigureRange.over(f.seconds_at(steps, height * width) for f in figures)
    first = figures[0]
    return StageRates(
        seconds=seconds,
        origin=Origin.PUBLISHED,
        detail=", ".join((*_words(figures), *_scaling(first, bool(exact)))),
        usage=Usage(images=1.0),
        usage_origin=Origin.PUBLISHED,
    )


def elsewhere(spec: StageSpec) -> str:
    """GPUs for which a speed of the stage is published, in words; empty for none."""
    gpus = dict.fromkeys(f.gpu for f in PUBLISHED if _applies(f, spec))
    return f"published for {', '.join(gpus)}" if gpus else ""


def _applies(figure: PublishedSpeed, spec: StageSpec) -> bool:
    return (
        spec.stage == "text-to-image"
        and spec.weights in ("pretrained", "dummy")
        and _model(spec) == figure.model
        and bool(spec.settings.get("compile")) == figure.compiled
    )


def _model(spec: StageSpec) -> str:
    """Hub id of a stage's weights: identities are `hub:ID@COMMIT`, or `ID` for dummy."""
    return spec.identity.removeprefix("hub:").partition("@")[0]


def _words(figures: list[PublishedSpeed]) -> Iterator[str]:
    yield from dict.fromkeys(f.source for f in figures)
    yield from dict.fromkeys(f.remark for f in figures if f.remark)


def _scaling(first: PublishedSpeed, exact: bool) -> Iterator[str]:
    if not exact:
        yield f"scaled from {first.steps} steps at {first.side} x {first.side}"
