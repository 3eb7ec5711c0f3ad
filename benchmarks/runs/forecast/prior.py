"""What a stage takes that nobody has measured: the roofline of its GPU.

A batch takes its operations or its bytes, whichever take longer, at the part of the GPU's
published peak that such work was measured to reach (Williams et al. 2009).
"""

from __future__ import annotations

from typing import NamedTuple, get_args

from plait.benchmarks.runs.forecast.machines import Machine, same_gpu
from plait.generators.base import StageSpec
from plait.generators.work import PROMPT_TOKENS, FigureRange, RangeEnd, Work


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
    # SDXL, SD3 and FLUX.1-dev 0.33 to 0.41, Stable Diffusion 1.5 0.17 on A100 and H100;
    # CLIP's image tower 0.53 to 0.65 on RTX 4090. Nothing was found for H200 and L40S.
    Gpu("A100", 80, 2.039e12, 312e12, 0.30),
    Gpu("H100", 80, 3.35e12, 989.5e12, 0.30),
    Gpu("H200", 141, 4.8e12, 989.5e12, 0.30),
    Gpu("L40S", 48, 0.864e12, 362e12, 0.40),
    Gpu("RTX 4090", 24, 1.008e12, 165.2e12, 0.55),
)
LEAST_REACHED, MOST_REACHED = 0.17, 0.72
"""Of Stable Diffusion 1.5 on A100, and of FLUX.1-dev on L20 (huggingface/flux-fast). The
sources of the other figures stand in `tests/benchmarks/runs/test_prior.py`; operations are
those of `plait.generators.diffusion.flops`. Prompts are read by the same products."""
COMPILED = 1.4
"""Gain of compiled kernels: 1.30 (SDXL, A100) to 1.56 (FLUX.1-dev, H100), same sources."""
BYTES = FigureRange(0.35, 0.17, 0.70)
"""Part of the bandwidth that decoding reaches: Llama-7B's 13.5 GB on A100 for each of 25.5
tokens a second, or 107 compiled (pytorch.org/blog/accelerating-generative-ai-2)."""
SERVED = FigureRange(81.0, 35.0, 115.0)
"""Tokens a second of one answer of a provider: gpt-4o of OpenAI and of Azure
(artificialanalysis.ai), at least gpt-4-turbo (community.openai.com/t/768559)."""
DISK_BYTES = FigureRange.between(0.3e9, 3e9)
"""A second, of weights that are loaded: from a network's file system to an NVMe drive."""
PROCESS_S = FigureRange.between(5.0, 60.0)
"""Seconds until a process has started and imported its libraries; of Ray's nodes, too."""
ASSUMED = (
    "not measured, but computed from model sizes and the GPU's published peak, for "
    "prompts of "
    f"{PROMPT_TOKENS.low:,.0f} to {PROMPT_TOKENS.high:,.0f} tokens, and weights loaded at "
    f"{DISK_BYTES.low / 1e9:g} to {DISK_BYTES.high / 1e9:g} GB/s"
)
"""What a prior rests on, for people."""
_OPPOSITE: dict[RangeEnd, RangeEnd] = {"mean": "mean", "low": "high", "high": "low"}


def gpu_of(machine: Machine) -> Gpu | None:
    """Return the GPU of a machine; None where it has none, or no published figures here."""
    return next((g for g in GPUS if machine.gpus and same_gpu(g.name, machine.gpu)), None)


def seconds_of(spec: StageSpec, machine: Machine) -> FigureRange | None:
    """Return seconds of one worker for one record; None where its work is not known."""
    work, placed = spec.work, spec.placement
    if work is None:
        return None
    if placed.remote:
        return _over(work.steps, SERVED)
    if not placed.num_gpus:
        return None if work.weight_bytes else work.cpu_s
    if (gpu := gpu_of(machine)) is None:
        return None
    # The layers of a model that spans several GPUs work one after another, but an engine
    # divides each of them.
    share = placed.num_gpus if placed.server else min(1.0, placed.num_gpus)
    batch = placed.batch_size * placed.concurrency
    ends = (_batch_s(work, gpu, share, batch, end) for end in get_args(RangeEnd))
    return FigureRange(*ends) * (1 / placed.batch_size) + work.cpu_s


def _batch_s(work: Work, gpu: Gpu, share: float, batch: int, end: RangeEnd) -> float:
    """Return seconds for a batch, all of whose records are decoded to the end."""
    reached = FigureRange(gpu.reached, LEAST_REACHED, MOST_REACHED).at(_OPPOSITE[end])
    flops = gpu.flops * share * reached * (COMPILED if work.compiled else 1.0)
    bytes_per_s = gpu.bytes_per_s * share * BYTES.at(_OPPOSITE[end])
    known = max(batch * work.flops.at(end) / flops, work.weight_bytes / bytes_per_s)
    read = (work.weight_bytes + batch * work.cache_bytes) / bytes_per_s
    return known + work.steps.at(end) * max(read, batch * work.step_flops / flops)


def load_of(spec: StageSpec) -> FigureRange | None:
    """Return seconds from the start of a worker's process until it is ready."""
    if spec.work is None:
        return None
    return PROCESS_S + _over(FigureRange.exact(spec.work.weight_bytes), DISK_BYTES)


def _over(amount: FigureRange, rate: FigureRange) -> FigureRange:
    return FigureRange(
        amount.mean / rate.mean, amount.low / rate.high, amount.high / rate.low
    )
