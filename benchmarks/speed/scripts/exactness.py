r"""How far exact levers move images, beside how far the size of a batch does.

    python -m plait.benchmarks.speed.scripts.exactness --model sdxl --weights tiny
    python -m plait.benchmarks.speed.scripts.exactness --model flux --weights dummy \
        --dtype bfloat16

A lever is exact where it moves values by at most 1e-5 of their range in float32, and in 16
bits by no more, on average, than drawing four images together instead of one by one does.
The same images are drawn plainly, by diffusers' own call, and with one lever at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.speed.scripts.common import Script
from plait.cluster.loading import load_stage
from plait.cluster.manifest import environment
from plait.generators.diffusion.drawer import Drawer
from plait.generators.diffusion.loading import quiet
from plait.pipelines.presets import t2i

LEVERS: dict[str, dict[str, Any]] = {
    "encodings": {},
    "fuse_qkv": {"fuse_qkv": True},
    "channels_last": {"channels_last": True},
    "cuda_graphs": {"cuda_graphs": True},
}
PLAIN = "batch of 4"
"""Row of what drawing four together moves."""
MOST = 1e-5
PROMPTS = ("a red house", "two cats, a dog", "rain over a harbour at night", "a red house")
Floats = npt.NDArray[np.float32]


def load(name: str, weights: Any, dtype: str, **changes: Any) -> Drawer:
    """Return a named model that computes in `dtype`, tiny weights too."""
    spec = t2i(name).model_copy(update={"dtype": dtype, **changes}).spec(name, weights)
    drawer: Drawer = load_stage(spec).drawer
    if weights == "tiny":
        with quiet():
            drawer.pipeline.to(dtype=getattr(torch, dtype))
    return drawer


def draw(drawer: Drawer, size: int, *, encoded: bool) -> Floats:
    """Return images (4, height, width, 3) of values from 0 to 1, `size` at a time."""
    drawn: list[Floats] = []
    for first in range(0, len(PROMPTS), size):
        part = range(first, first + size)
        each: dict[str, Any] = {"prompt": [PROMPTS[i] for i in part]}
        each["generator"] = [torch.Generator().manual_seed(i) for i in part]
        if encoded and drawer.encoder is not None:
            each |= drawer.encoder.conditions(each)
        elif drawer.negative_prompt is not None:
            each["negative_prompt"] = [drawer.negative_prompt] * size
        drawn += list(drawer.pipeline(**{**each, **drawer.arguments}).images)
    return np.stack(drawn)


def differences(name: str, moved: Floats, plain: Floats) -> tuple[float, float]:
    """Return the largest and the mean difference; RuntimeError for no finite numbers."""
    difference = np.abs(moved - plain)
    if not np.isfinite(difference).all():
        raise RuntimeError(f"{name}: values that are not finite, in this dtype")
    return float(difference.max()), float(difference.mean())


def rows_of(
    name: str, weights: Any, dtype: str, steps: int | None = None
) -> list[list[str]]:
    """Draw plainly, in a batch of four, and with each lever that the model can do."""
    own = {} if steps is None else {"steps": steps}
    plain = load(name, weights, dtype, **own)
    alone = draw(plain, 1, encoded=False)
    most, usual = differences(name, draw(plain, 4, encoded=False), alone)
    rows = [[name, PLAIN, f"{most:.2e}", f"{usual:.2e}", "-"]]
    for lever, changes in LEVERS.items():
        try:
            drawer = load(name, weights, dtype, **own, **changes) if changes else plain
        except ValueError as error:
            rows.append([name, lever, "-", "-", str(error).partition(";")[0]])
            continue
        moved = draw(drawer, 1, encoded=not changes)
        furthest, mean = differences(name, moved, alone)
        exact = furthest <= MOST if dtype == "float32" else mean <= usual
        said = "yes" if exact else "no"
        if drawer.graphs is not None and not drawer.graphs.take_all_replayed():
            said += ", and not all was captured"
        shown = [f"{furthest:.2e}", f"{mean:.2e}", said]
        rows.append([name, lever, *shown])
    return rows


def main(words: Sequence[str] | None = None) -> int:
    """Print a row for each model and lever; 1 where one is not exact."""
    script = Script(__doc__, "exactness", words)
    add = script.parser.add_argument
    add("--model", action="append", required=True, help="repeatable")
    add("--weights", choices=("tiny", "dummy", "pretrained"), default="tiny")
    add("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    add("--steps", type=int, help="of the denoiser; by default the model's own")
    options = script.options()
    rows: list[list[str]] = []
    for name in options.model:
        rows += rows_of(name, options.weights, options.dtype, options.steps)
    head = ["model", "lever", "furthest", "mean", "exact"]
    title = f"Differences in {options.dtype}, {options.weights} weights"
    script.report(title, ResultTable.of(title, head, rows), environment())
    return int(any(row[-1].partition(",")[0] == "no" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
