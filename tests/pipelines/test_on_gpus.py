"""On a GPU, every model computes what it computes on the CPU, with no tensor left behind.

The GPUs are those of `fake_gpu`: devices are checked as a driver would, and values are the
CPU's, so texts are equal and pictures differ by the rounding of what a GPU computes apart.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import gill_helpers
import minigpt5_helpers
import numpy as np
import pytest
import torch
from fake_gpu import GpuTensor, SeveralDevices, fake_gpus
from PIL import Image as Pillow
from vlm_helpers import save_tiny

from benchmarks.tasks.task_set import load
from cluster.local import LocalStages, drive, load_stage
from cluster.walks import together
from generators.base import Result
from generators.document import Document, Image, ImageRequest, Sample
from generators.natives import NATIVE
from generators.pictures import decode
from generators.system import Repetition, answer
from pipelines.presets import T2IS
from pipelines.systems import Models, artist_spec, resolve

pytestmark = pytest.mark.models

SHORT = {"anole": {"draft": {"max_text_tokens": 24, "max_images": 1}}}
SHORT |= {name: {"max_new_tokens": 24} for name in ("qwen2-vl-7b", "llava-34b")}
HF = "hf:llava-hf/llava-v1.6-34b-hf"
TINY = Models(weights="tiny", overrides=SHORT)
REQUESTS = [ImageRequest("a red barn", seed=1), ImageRequest("two cats on a mat", seed=2)]


def documents(name: str, models: Models = TINY) -> list[Document]:
    """A system's answers to two queries with pictures."""
    system = resolve(name, models)
    task = load("sample")
    asked = [s for s in task.samples if isinstance(s, Sample) and s.wants_images]
    shown = [s for s in asked if sum(isinstance(p, Image) for p in s.question) == 1]
    walks = [answer(system, sample, Repetition(task.prompt)) for sample in shown[:2]]
    outcomes: list[Any] = drive(together(walks), LocalStages().outcomes)
    assert all(isinstance(outcome, Result) for outcome in outcomes), outcomes
    return [outcome.value for outcome in outcomes]


on_cpu = functools.cache(documents)


def assert_alike(expected: list[Document], made: list[Document]) -> None:
    """Equal texts, and pictures that are equal but for one level of grey."""
    assert any(document.text for document in made)
    for here, there in zip(expected, made, strict=True):
        assert here.text == there.text
        pictures = zip(here.images, there.images, strict=True)
        assert all(furthest(decode(a), decode(b)) <= 1 for a, b in pictures)


def furthest(one: Pillow.Image, other: Pillow.Image) -> int:
    """The largest difference of two pictures, in levels of grey."""
    pair = [np.asarray(picture).astype(int) for picture in (one, other)]
    return int(np.abs(pair[0] - pair[1]).max())


@pytest.mark.parametrize(
    "name", [*NATIVE, "qwen2-vl-7b@text", "llava-34b@text", HF + "@text"]
)
def test_a_gpu_writes_what_the_cpu_writes(name: str) -> None:
    expected = on_cpu(name)
    with fake_gpus():
        made = documents(name)
    assert_alike(expected, made)


def test_emu2_computes_the_same_on_two_gpus() -> None:
    expected = on_cpu("emu2")
    with fake_gpus(2) as traffic:
        made = documents("emu2")
    assert_alike(expected, made)
    assert traffic.between_gpus


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_published_lvlm_loads_onto_gpus(tmp_path: Path, gpus: int) -> None:
    settings = {"model": str(save_tiny(tmp_path)), "max_new_tokens": 24, "dtype": "float32"}
    models = Models(weights="pretrained", overrides={"qwen2-vl-7b": settings})
    expected = documents("qwen2-vl-7b@text", models)
    with fake_gpus(gpus) as traffic:
        made = documents("qwen2-vl-7b@text", models)
    assert_alike(expected, made)
    assert bool(traffic.between_gpus) == (gpus > 1)


def test_published_native_models_load_onto_a_gpu(tmp_path: Path) -> None:
    small = {"dtype": "float32", "steps": 2, "height": 64, "width": 64}
    gill = gill_helpers.checkpoint(tmp_path / "gill") | small | {"num_words": 8}
    minigpt5 = minigpt5_helpers.save_all(tmp_path / "minigpt5") | small
    minigpt5["diffusion"] = str(minigpt5_helpers.save_diffusion(tmp_path / "sd"))
    natives = {"gill": gill, "minigpt5": minigpt5 | {"max_new_tokens": 24}}
    for name in natives:
        models = Models(weights="pretrained", overrides=natives)
        expected = documents(name, models)
        with fake_gpus():
            made = documents(name, models)
        assert_alike(expected, made)


@pytest.mark.parametrize(
    ("name", "gpus"),
    [*((name, 1) for name in T2IS), *((name, 2) for name in ("sd3", "flux", "sdxl"))],
)
def test_a_gpu_draws_what_the_cpu_draws(name: str, gpus: int) -> None:
    spec = artist_spec(name, Models(weights="tiny"))
    expected = load_stage(spec)(REQUESTS)
    with fake_gpus(gpus):
        made = load_stage(spec)(REQUESTS)
    for here, there in zip(expected, made, strict=True):
        pair = (Pillow.fromarray(outcome.value.pixels) for outcome in (here, there))
        assert furthest(*pair) <= 1


def test_what_a_gpu_refuses_is_refused() -> None:
    with fake_gpus(2) as traffic:
        here, there = torch.ones(2, 3), torch.ones(2, 3, device="cuda")
        assert isinstance(there, GpuTensor)
        assert (there.device, there.is_cuda) == (torch.device("cuda", 0), True)
        for wrong in (
            lambda: here + there,
            lambda: there @ here.T,
            lambda: torch.cat([here, there]),
            lambda: here[torch.tensor([0], device="cuda")],
            lambda: there + there.to("cuda:1"),
            lambda: torch.nn.Linear(3, 1)(there),
        ):
            with pytest.raises(SeveralDevices, match="on cuda:0"):
                wrong()
        with pytest.raises(TypeError, match="numpy"):
            np.asarray(there)
        assert torch.equal(
            (there * torch.tensor(2.0))[torch.tensor([1])].cpu(), here[:1] * 2
        )
        assert torch.nn.Linear(3, 1).to("cuda")(there).device == there.device
    assert traffic.between_gpus == 1
