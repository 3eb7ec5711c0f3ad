"""What a stage takes that nobody has measured: its GPU's roofline, and the host's floors.

A batch takes its operations or its bytes, whichever take longer, at the part of the GPU's
published peak that such work was measured to reach (Williams et al. 2009). It takes no less
than the host needs to launch its kernels: so much for a call, for a pass of denoising and
for a token, however small the model and the batch are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from plait.benchmarks.runs.forecast.machines import Machine, same_gpu
from plait.generators.base import StageSpec
from plait.generators.work import (
    ANSWER_TOKENS,
    NOTHING,
    PROMPT_TOKENS,
    FigureRange,
    RangeEnd,
    Work,
)


class Gpu(NamedTuple):
    """A GPU as NVIDIA publishes it, and what others measured on it."""

    name: str
    memory_gib: float
    bytes_per_s: float
    flops: float
    """A second, of dense bfloat16 products that are summed in float32."""
    reached: float
    """Part of `flops` that large models reach."""


GPUS = (
    # NVIDIA's data sheets: A100 with 80 GB, H100 and H200 of type SXM, half of the
    # operations with sparsity; RTX 4090: NVIDIA Ada GPU architecture, appendix A. Reached:
    # SDXL, SD3 and FLUX.1-dev 0.33 to 0.41 on A100 and H100; CLIP's image tower 0.53 to
    # 0.65 on RTX 4090. Nothing was found for L40S.
    Gpu("A100", 80, 2.039e12, 312e12, 0.36),
    Gpu("H100", 80, 3.35e12, 989.5e12, 0.35),
    Gpu("H200", 141, 4.8e12, 989.5e12, 0.35),
    Gpu("L40S", 48, 0.864e12, 362e12, 0.40),
    Gpu("RTX 4090", 24, 1.008e12, 165.2e12, 0.55),
)
"""The sources of the figures stand in `tests/benchmarks/runs/test_prior.py`; operations are
those of `plait.generators.diffusion.flops`. Prompts are read by the same products."""
SPREAD = 2.0
"""Factor within which seconds lie, above or below, for a known amount of work: that of our
own measurements, and of nine of ten published ones (`test_prior.py`)."""
_SPEED = FigureRange(1.0, 1 / SPREAD, SPREAD)
COMPILED = 1.4
"""Gain of compiled kernels: 1.30 (SDXL, A100) to 1.56 (FLUX.1-dev, H100), same sources."""
BYTES_REACHED = 0.85
"""Part of the bandwidth that a step of decoding reaches besides its floor: with TOKEN_S,
8.8 ms of qwen2-vl-7b and 4.5 ms of janus-pro-1b on H100."""
TOKEN_S = 3.5e-3
"""Seconds that a step of decoding takes at least: choosing tokens, and one launch of all
kernels (CUDA graphs)."""
LAUNCH_S = 0.7e-3
"""Seconds until the kernels of one block are launched one by one: on the host of an H100
0.73 ms in SDXL (63.5 ms a pass of 87 blocks), 0.68 ms in Openjourney (38), 0.6 to 1.0 ms
in decoding without CUDA graphs (measured/h100.md)."""
CALL_S = 0.05
"""Seconds of a call of a model that draws or decodes, besides its passes and steps: reading
prompts, encoding them, preparing loops (sdxl-turbo, and qwen2-vl-7b's first token)."""
UNEVEN = 0.5
"""A batch is decoded until its longest answer ends. Of n answers whose lengths vary by 60 %
of their mean (a gamma distribution) it is about 1 + UNEVEN ln n times as long."""
SERVED = FigureRange(81.0, 35.0, 115.0)
"""Tokens a second of one answer of a provider: gpt-4o of OpenAI and of Azure
(artificialanalysis.ai), at least gpt-4-turbo (community.openai.com/t/768559)."""
DISK_BYTES = FigureRange.between(0.5e9, 3e9)
"""A second, of weights that are loaded: from a network's file system to an NVMe drive."""
PROCESS_S = FigureRange.between(8.0, 45.0)
"""Seconds until a process has started and imported its libraries; of Ray's nodes, too."""
ASSUMED = (
    "not measured, but computed from model sizes, the GPU's published peak and the host's "
    f"time per call, step and token, right within a factor of {SPREAD:g}; for answers of "
    f"{ANSWER_TOKENS.low:,.0f} to {ANSWER_TOKENS.high:,.0f} tokens on average, prompts of "
    f"{PROMPT_TOKENS.low:,.0f} to {PROMPT_TOKENS.high:,.0f} tokens, and weights loaded at "
    f"{DISK_BYTES.low / 1e9:g} to {DISK_BYTES.high / 1e9:g} GB/s"
)
"""What a prior rests on, for people."""


def gpu_of(machine: Machine) -> Gpu | None:
    """Return the GPU of a machine; None where it has none, or no published figures here."""
    if not machine.gpus:
        return None
    for gpu in GPUS:
        if same_gpu(gpu.name, machine.gpu):
            return gpu
    return None


def seconds_of(spec: StageSpec, machine: Machine) -> FigureRange | None:
    """Return seconds of one worker for one record; None where its work is not known.

    The range is that of the work and, independently, of the speed.
    """
    work = spec.work
    placed = spec.placement
    if work is None:
        return None
    if placed.remote:
        return _over(work.steps, SERVED)
    if not placed.num_gpus:
        return None if work.weight_bytes else work.cpu_s
    gpu = gpu_of(machine)
    if gpu is None:
        return None
    batch_s = FigureRange(
        mean=_batch_s(spec, work, gpu, "mean"),
        low=_batch_s(spec, work, gpu, "low"),
        high=_batch_s(spec, work, gpu, "high"),
    )
    computed = batch_s * (1 / placed.batch_size)
    return computed.times(_SPEED) + work.cpu_s


def _batch_s(spec: StageSpec, work: Work, gpu: Gpu, end: RangeEnd) -> float:
    """Return seconds for a batch, which is decoded until its longest answer ends."""
    placed = spec.placement
    # The layers of a model that spans several GPUs work one after another, but an engine
    # divides each of them.
    share = placed.num_gpus if placed.server else min(1.0, placed.num_gpus)
    batch = placed.batch_size * placed.concurrency
    gain = COMPILED if work.compiled else 1.0
    flops = gpu.flops * share * gpu.reached * gain
    bytes_per_s = gpu.bytes_per_s * share * BYTES_REACHED
    launch_s = work.blocks * LAUNCH_S / gain
    # Passes over the whole input: prompts are read, images denoised.
    known_s = max(
        batch * work.flops.at(end) / flops,
        work.weight_bytes / bytes_per_s,
        work.passes * launch_s,
    )
    # Steps of decoding, each of which reads all weights and what is remembered.
    read_s = (work.weight_bytes + batch * work.cache_bytes) / bytes_per_s
    # Kernels are launched while others are computed, but a token is chosen after all.
    step_s = max(read_s + TOKEN_S, batch * work.step_flops / flops + TOKEN_S, launch_s)
    call_s = CALL_S if work.passes or work.steps.mean else 0.0
    return call_s + known_s + _steps(spec, work, batch, end) * step_s


def _steps(spec: StageSpec, work: Work, batch: int, end: RangeEnd) -> float:
    """Return steps until the longest answer of a batch ends.

    Those of a server and those of one known length do not wait for others.
    """
    steps = work.steps
    if spec.placement.server or steps.low == steps.high:
        return steps.at(end)
    return min(work.most_steps, steps.at(end) * (1 + UNEVEN * math.log(batch)))


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """From how many records of a worker on it pays to compile a model."""

    compile_s: float
    saved_s: float
    """By record, on average."""
    measured: bool
    """Whether `compile_s` is what an earlier run took."""

    @property
    def records(self) -> int:
        """The least number of records that together save what compiling takes."""
        return math.ceil(self.compile_s / self.saved_s)


def break_even(
    spec: StageSpec, machine: Machine, seconds: FigureRange | None, measured_s: float | None
) -> BreakEven | None:
    """Return when compiling pays; None for models that are not compiled or not known.

    Args:
        spec: A stage, compiled or not.
        machine: On which it runs.
        seconds: Of one worker for one record of `spec` as it is.
        measured_s: What compiling took in an earlier run, where one is known.
    """
    gpu = gpu_of(machine)
    work = spec.work
    served = spec.placement.remote or spec.placement.server is not None
    if work is None or not work.compile_s or gpu is None or seconds is None or served:
        return None
    plain = _batch_s(spec, replace(work, compiled=False), gpu, "mean")
    compiled = _batch_s(spec, replace(work, compiled=True), gpu, "mean")
    now = compiled if work.compiled else plain
    saved_s = seconds.mean * (plain - compiled) / now
    if saved_s <= 0:
        return None
    is_measured = measured_s is not None
    return BreakEven(
        compile_s=measured_s if measured_s is not None else work.compile_s,
        saved_s=saved_s,
        measured=is_measured,
    )


def load_of(spec: StageSpec) -> FigureRange | None:
    """Return seconds from the start of a worker's process until it is ready."""
    if spec.work is None:
        return None
    weights = spec.work.weight_bytes
    read_s = _over(FigureRange.exact(weights), DISK_BYTES) if weights else NOTHING
    return PROCESS_S + read_s


def _over(amount: FigureRange, rate: FigureRange) -> FigureRange:
    """Return an amount over a rate; the highest rate gives the lower end."""
    return amount.times(FigureRange(1 / rate.mean, 1 / rate.high, 1 / rate.low))
