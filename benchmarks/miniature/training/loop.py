"""The loop that trains every mini model, and what its scripts have in common.

Each script beside this file trains one model on a CPU and writes it, in the published
layout, into a folder of all checkpoints. Architecture and tokenizer are those of the
shipped checkpoint of the same name (`generators/mini/weights`); its weights are not read.

    python -m plait.benchmarks.miniature.training.clip --out FOLDER

The same command resumes where the last one stopped, and `--steps 0` only exports the last
state, which is in `FOLDER/state`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

import safetensors.torch
import torch
import typer
from diffusers.training_utils import EMAModel
from torch import Tensor, nn
from transformers import get_cosine_with_min_lr_schedule_with_warmup

from plait.generators.files import write_whole
from plait.generators.mini.table import SHIPPED

Out = Annotated[Path, typer.Option(help="Folder of all checkpoints.")]


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """How long and how fast a model learns."""

    steps: int
    rate: float
    """Peak learning rate: warm-up leads to it linearly, a cosine to 2 % of it."""
    warmup: int = 100
    decay: float = 0.01
    """Weight decay of matrices; vectors have none."""
    average: float = 0.999
    """Decay of the averaged weights, which are those that are exported."""
    save_every: int = 200
    seed: int = 0


def train(
    modules: dict[str, nn.Module],
    loss: Callable[[int], Tensor],
    state: Path,
    plan: TrainingPlan,
    export: Callable[[int], None] = lambda step: None,
) -> None:
    """Train `modules` by `loss(step)`, from the last state in the folder `state` on.

    Afterwards the modules hold their averaged weights, in evaluation mode.

    Args:
        modules: All that is trained, by name.
        loss: Gives the loss of a step; what it draws must depend on the step and torch's
            generator alone, which is seeded by the step, so that a run resumes exactly.
        state: Folder of `state.pt`.
        plan: Length, learning rate and seed.
        export: Called with the step at the end and wherever the state is saved, while the
            modules hold their averaged weights.
    """
    learners = nn.ModuleDict(modules)
    weights = [weight for weight in learners.parameters() if weight.requires_grad]
    optimizer = _optimizer(weights, plan)
    schedule = get_cosine_with_min_lr_schedule_with_warmup(
        optimizer, plan.warmup, plan.steps, min_lr_rate=0.02
    )
    averages = EMAModel(weights, plan.average, foreach=True)
    parts: dict[str, Any] = {"learners": learners, "averages": averages}
    parts |= {"optimizer": optimizer, "schedule": schedule}

    @torch.no_grad()
    def export_averages(step: int) -> None:
        averages.store(weights)
        averages.copy_to(weights)
        learners.eval()
        export(step)

    first = _resume(state, parts)
    began = time.monotonic()
    for step in range(first, plan.steps):
        learners.train()
        # By the step, so that a run that resumes draws what it would have drawn; far apart,
        # so that no two plans have a step's seed in common.
        torch.manual_seed(plan.seed * 1_000_003 + step)
        value = loss(step)
        optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
        averages.step(weights)
        done = step + 1
        if done % 50 == 0 or done == plan.steps:
            pace = (time.monotonic() - began) / (done - first)
            print(f"{state.name} {done}: loss {value:.5f}, {pace:.2f} s a step", flush=True)
        if done % plan.save_every == 0 or done == plan.steps:
            _save(state, parts, done)
        if done % plan.save_every == 0 and done < plan.steps:
            export_averages(done)
            averages.restore(weights)
    export_averages(max(first, plan.steps))


def _optimizer(weights: Sequence[nn.Parameter], plan: TrainingPlan) -> torch.optim.AdamW:
    """Return AdamW, whose weight decay is for matrices alone."""
    matrices = [weight for weight in weights if weight.ndim >= 2]
    vectors = [weight for weight in weights if weight.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": plan.decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=plan.rate, betas=(0.9, 0.98))


def _save(state: Path, parts: Mapping[str, Any], step: int) -> None:
    """Write what `_resume` loads."""
    states = {name: part.state_dict() for name, part in parts.items()}
    content = BytesIO()
    torch.save({**states, "step": step}, content)
    write_whole(state / "state.pt", content.getvalue())


def _resume(state: Path, parts: Mapping[str, Any]) -> int:
    """Load the last state and return its step; 0 where there is none."""
    state.mkdir(parents=True, exist_ok=True)
    if not (state / "state.pt").exists():
        return 0
    stored = torch.load(state / "state.pt", map_location="cpu", weights_only=True)
    for name, part in parts.items():
        part.load_state_dict(stored[name])
    return int(stored["step"])


def save_weights(tensors: Mapping[str, Tensor], out: Path, name: str) -> None:
    """Write `out`/`name` in float16, with the files of the shipped checkpoint beside it."""
    halves = {}
    for tensor_name, tensor in tensors.items():
        halves[tensor_name] = tensor.detach().half().contiguous()
    for path in (SHIPPED / name).iterdir():
        content = path.read_bytes()
        if path.suffix == ".safetensors":
            content = safetensors.torch.save(halves, {"format": "pt"})
        write_whole(out / name / path.name, content)
