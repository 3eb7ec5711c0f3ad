"""On a GPU, every model computes what it computes on the CPU, with no tensor left behind.

The GPUs are those of `fake_gpu`: devices are checked as a driver would, and values are the
CPU's, so texts are equal and images differ by the rounding of what a GPU computes apart.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import gill_helpers
import numpy as np
import pytest
import torch
from fake_gpu import SeveralDevices, fake_gpus
from PIL import Image as Pillow
from stages import StagesHere
from vlm_helpers import checkpoint

from plait.benchmarks.tasks.task_set import load
from plait.cluster.loading import load_stage
from plait.cluster.walks import drive, together
from plait.generators.base import Result
from plait.generators.diffusion.placing import denoiser_of
from plait.generators.document import Document, Image, ImageRequest, Query
from plait.generators.images import decode
from plait.generators.system import Repetition
from plait.pipelines.systems import Models, resolve, t2i_spec

pytestmark = [pytest.mark.slow, pytest.mark.models]

HF = "hf:llava-hf/llava-v1.6-34b-hf"
SHORT: dict[str, Any] = {
    "anole": {"draft": {"max_text_tokens": 16, "max_images": 1}},
    "emu2": {"max_new_tokens": 4, "num_beams": 2, "steps": 1},
    HF: {"max_new_tokens": 4},
}
TINY = Models(weights="tiny", overrides=SHORT)
REQUESTS = [ImageRequest("a red barn", seed=1), ImageRequest("two cats on a mat", seed=2)]


def documents(name: str, models: Models = TINY) -> list[Document]:
    """A system's answers to two queries with images."""
    system = resolve(name, models)
    task = load("sample")
    asked = [s for s in task.samples if isinstance(s, Query) and s.wants_images]
    shown = [s for s in asked if sum(isinstance(p, Image) for p in s.question) == 1]
    walks = [system.answer(sample, Repetition(task.prompt)) for sample in shown[:2]]
    outcomes: list[Any] = drive(together(walks), StagesHere().outcomes)
    assert all(isinstance(outcome, Result) for outcome in outcomes), outcomes
    return [outcome.value for outcome in outcomes]


on_cpu = functools.cache(documents)


def assert_alike(expected: list[Document], made: list[Document]) -> None:
    """Equal texts, and images that are equal but for one level of grey."""
    assert any(document.text for document in made)
    for here, there in zip(expected, made, strict=True):
        assert here.text == there.text
        pairs = zip(here.images, there.images, strict=True)
        assert all(furthest(decode(a), decode(b)) <= 1 for a, b in pairs)


def furthest(one: Pillow.Image, other: Pillow.Image) -> int:
    """The largest difference of two images, in levels of grey."""
    pair = [np.asarray(image).astype(int) for image in (one, other)]
    return int(np.abs(pair[0] - pair[1]).max())


@pytest.mark.parametrize(
    ("name", "gpus"),
    [("anole", 1), ("emu2", 2), (f"{HF}@text", 1)],
)
def test_a_gpu_writes_what_the_cpu_writes(name: str, gpus: int) -> None:
    expected = on_cpu(name)
    with fake_gpus(gpus) as traffic:
        made = documents(name)
    assert_alike(expected, made)
    assert any(document.images for document in made) != name.endswith("@text")
    assert bool(traffic.between_gpus) == (gpus > 1)


def test_a_published_lvlm_loads_onto_two_gpus() -> None:
    settings = {"model": str(checkpoint("qwen2")), "max_new_tokens": 8}
    overrides = {"qwen2-vl-7b": settings | {"dtype": "float32"}}
    models = Models(weights="pretrained", overrides=overrides)
    expected = documents("qwen2-vl-7b@text", models)
    with fake_gpus(2) as traffic:
        made = documents("qwen2-vl-7b@text", models)
    assert_alike(expected, made)
    assert traffic.between_gpus


def test_a_published_native_model_loads_onto_a_gpu(tmp_path: Path) -> None:
    small = {"dtype": "float32", "steps": 1, "height": 64, "width": 64, "num_words": 4}
    settings = gill_helpers.checkpoint(tmp_path / "gill") | small
    models = Models(weights="pretrained", overrides={"gill": settings})
    expected = documents("gill", models)
    with fake_gpus():
        made = documents("gill", models)
    assert_alike(expected, made)


@pytest.mark.parametrize(
    ("name", "gpus", "waits"),
    [
        ("openjourney", 1, 0),
        # Once a call, some schedulers look for the first step.
        ("sd3", 2, 2),
        ("qwen-image", 1, 0),
        ("flux2-klein", 1, 0),
        ("sana", 1, 2),
    ],
)
def test_a_gpu_draws_what_the_cpu_draws(name: str, gpus: int, waits: int) -> None:
    """By each kind of text encoder, and with modules that two GPUs share.

    Between steps, the host does not wait for what the GPU computes.
    """
    spec = t2i_spec(name, Models(weights="tiny"))
    expected = load_stage(spec)(REQUESTS)
    read: list[int] = []
    with fake_gpus(gpus) as traffic:
        drawing = load_stage(spec)
        denoiser_of(drawing.drawer.pipeline).register_forward_pre_hook(
            lambda *_: read.append(traffic.reads)
        )
        made = drawing(REQUESTS)
    assert len(read) > 1
    assert read[-1] - read[0] == waits
    for here, there in zip(expected, made, strict=True):
        pair = (Pillow.fromarray(outcome.value.pixels) for outcome in (here, there))
        assert furthest(*pair) <= 1


def test_what_a_gpu_refuses_is_refused() -> None:
    with fake_gpus(2) as traffic:
        here, there = torch.ones(2, 3), torch.ones(2, 3, device="cuda")
        assert (there.device, there.is_cuda) == (torch.device("cuda", 0), True)
        for wrong in (
            lambda: here + there,
            lambda: torch.cat([here, there]),
            lambda: here[torch.tensor([0], device="cuda")],
            lambda: there + there.to("cuda:1"),
            lambda: torch.nn.Linear(3, 1)(there),
        ):
            with pytest.raises(SeveralDevices, match="on cuda:0"):
                wrong()
        with pytest.raises(TypeError, match="numpy"):
            np.asarray(there)
        doubled = (there * torch.tensor(2.0))[torch.tensor([1])]
        assert torch.equal(doubled.cpu(), here[:1] * 2)
    assert traffic.between_gpus == 1
