"""One training loop for all mini models: seeded, resumable, with a loss curve."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from generators.files import write_whole


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """How long and how fast a model learns."""

    steps: int
    rate: float
    """Highest learning rate, reached after `warmup` steps; a cosine falls to 2 % of it."""
    warmup: int = 100
    decay: float = 0.01
    """Weight decay of matrices; vectors have none."""
    average: float = 0.999
    """How slowly the averaged weights follow the trained ones; they are what is kept."""
    clip: float = 1.0
    """Largest norm of a gradient."""
    save_every: int = 200
    seed: int = 0


class Trainer:
    """Trains `modules` by `loss(step)`; begins where the last run on `folder` stopped."""

    def __init__(
        self,
        modules: dict[str, nn.Module],
        loss: Callable[[int], torch.Tensor],
        folder: Path,
        plan: TrainingPlan,
    ) -> None:
        self.modules, self.loss, self.folder, self.plan = modules, loss, folder, plan
        parameters = [p for m in modules.values() for p in m.parameters()]
        weights: list[torch.Tensor] = [p for p in parameters if p.requires_grad]
        groups = [
            {"params": [p for p in weights if p.ndim >= 2], "weight_decay": plan.decay},
            {"params": [p for p in weights if p.ndim < 2], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=plan.rate, betas=(0.9, 0.98))
        self._weights = weights
        self._averages = [p.detach().clone() for p in weights]
        self.step, self.seconds = 0, 0.0

    def run(self, every: int = 0, look: Callable[[int], str] | None = None) -> None:
        """Train to the end; every `every` steps `look` measures with averaged weights.

        The batch of a step depends on the step alone, so that a run which was interrupted
        takes up where its last checkpoint was written.
        """
        self._resume()
        recent: list[float] = []
        while self.step < self.plan.steps:
            began = time.monotonic()
            recent.append(self._advance())
            self.seconds += time.monotonic() - began
            if self.step % 50 == 0:
                self._report(sum(recent) / len(recent))
                recent = []
            if self.step % self.plan.save_every == 0 or self.step == self.plan.steps:
                self._save()
            if look is not None and every and self.step % every == 0:
                with self:
                    print(f"step {self.step}: {look(self.step)}", flush=True)

    def progress(self) -> dict[str, float]:
        """Steps and seconds so far, for `measured.json`."""
        return {"steps": self.step, "seconds": round(self.seconds, 1)}

    def _advance(self) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = self.plan.rate * self._share(self.step)
        torch.manual_seed(self.plan.seed * 1_000_003 + self.step)
        loss = self.loss(self.step)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self._weights, self.plan.clip)
        self.optimizer.step()
        self.step += 1
        follow = min(self.plan.average, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            torch._foreach_lerp_(self._averages, self._weights, 1 - follow)
        return float(loss.detach())

    def _share(self, step: int) -> float:
        if step < self.plan.warmup:
            return (step + 1) / self.plan.warmup
        done = (step - self.plan.warmup) / max(1, self.plan.steps - self.plan.warmup)
        return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))

    def __enter__(self) -> "Trainer":
        """The averaged weights are in the modules, which are in evaluation mode."""
        self._swap()
        for module in self.modules.values():
            module.eval()
        return self

    def __exit__(self, *_: Any) -> None:
        self._swap()
        for module in self.modules.values():
            module.train()

    @torch.no_grad()
    def _swap(self) -> None:
        for weight, average in zip(self._weights, self._averages, strict=True):
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)

    def _report(self, loss: float) -> None:
        curve = self.folder / "loss.csv"
        new = not curve.exists()
        with curve.open("a", newline="") as file:
            rows = csv.writer(file)
            if new:
                rows.writerow(["step", "loss", "seconds"])
            rows.writerow([self.step, f"{loss:.5f}", f"{self.seconds:.1f}"])
        done = f"{self.step}/{self.plan.steps}"
        pace = self.seconds / self.step
        print(f"{done} loss {loss:.4f} {pace:.3f} s a step", flush=True)

    def _save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        state = {
            "modules": {name: m.state_dict() for name, m in self.modules.items()},
            "averages": self._averages,
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
        }
        partial = self.folder / "state.pt.part"
        torch.save(state, partial)
        write_whole(self.folder / "state.pt", partial.read_bytes())
        partial.unlink()

    def _resume(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        place = self.folder / "state.pt"
        if not place.exists():
            return
        state = torch.load(place, map_location="cpu", weights_only=True)
        for name, module in self.modules.items():
            module.load_state_dict(state["modules"][name])
        self._averages = state["averages"]
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.seconds = state["step"], state["seconds"]
