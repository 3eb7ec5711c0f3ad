"""Evaluations of a denoiser as CUDA graphs, captured and replayed without a driver.

`fake_graphs` repeats operations over the memory that was captured, so an input that was not
copied, or a result that was not, is the one of an earlier step, or no number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from adapter_helpers import save_lora
from diffusion_helpers import REQUESTS, furthest, pixels, stage
from fake_gpu import fake_gpus
from picture_helpers import smooth
from pydantic import ValidationError

from plait.generators.cuda_graphs import eagerly
from plait.generators.diffusion.graphs import DenoiserGraphs, UnknownFormError, form_of
from plait.generators.document import ImageRequest
from plait.generators.errors import UsageError
from plait.pipelines.presets import TextToImageSettings, t2i

pytestmark = pytest.mark.models
ONE, OTHER = REQUESTS[0], replace(REQUESTS[0], prompt="a blue boat", seed=5)
"""Prompts of one length."""
EDITS = [replace(r, context=(smooth(i, 64, 64),)) for i, r in enumerate((ONE, OTHER))]


def drawn(drawing: Any, requests: Sequence[ImageRequest]) -> np.ndarray:
    """Images, each from a call of its own."""
    outcomes = [drawing([request])[0] for request in requests]
    return pixels(outcomes)


@pytest.mark.parametrize(
    ("name", "changes", "forms"),
    [
        ("openjourney", {}, 1),
        ("sdxl", {}, 1),
        ("sd3", {}, 1),
        ("flux", {}, 1),
        ("flux2-klein", {}, 1),
        ("z-image-turbo", {}, 1),
        ("pixart-sigma", {}, 1),
        ("sana", {}, 1),
        ("qwen-image", {}, 2),
        # Both evaluations of a step are replays of one graph.
        ("qwen-image", {"negative_prompt": "a grey wall"}, 1),
        ("openjourney", {"fuse_qkv": True, "channels_last": True}, 1),
    ],
)
def test_images_by_graphs_are_those_without(name, changes, forms):
    with fake_gpus(graphs=True) as traffic:
        drawing = stage(name, cuda_graphs=True, **changes)
        with eagerly():
            expected = drawn(drawing, [ONE, OTHER])
        assert traffic.replays == 0
        (first,) = drawing([ONE])
        captures = traffic.captures
        made = np.concatenate([pixels([first]), drawn(drawing, [OTHER])])
        together = drawing([ONE, OTHER])
    assert (captures, traffic.captures) == (forms, 2 * forms)
    assert traffic.replays % 3 == 0
    assert furthest(made, expected) == 0
    assert furthest(pixels(together), expected) <= 1
    assert furthest(made[0], made[1]) > 20
    assert first.notes["cuda_graphs"]


@pytest.mark.parametrize("name", ["flux2-klein", "instruct-pix2pix"])
def test_images_that_are_drawn_from_are_inputs_too(name):
    with fake_gpus(graphs=True) as traffic:
        drawing = stage(name, cuda_graphs=True)
        with eagerly():
            expected = drawn(drawing, EDITS)
        made = drawn(drawing, EDITS)
    assert traffic.replays
    assert furthest(made, expected) == 0
    assert furthest(made[0], made[1]) > 0


@pytest.mark.parametrize("fused", [False, True])
def test_adapters_are_captured_with_their_layers(fused, tmp_path, saved):
    pytest.importorskip("peft")
    file = save_lora("flux", tmp_path / "style.safetensors", 1)
    further = {"loras": [{"model": str(file)}], "fuse_loras": fused}
    pretrained = {"weights": "pretrained", "model": str(saved("flux")), **further}
    with fake_gpus(graphs=True) as traffic:
        drawing = stage("flux", cuda_graphs=True, variant=None, **pretrained)
        with eagerly():
            expected = drawn(drawing, [ONE, OTHER])
        assert furthest(drawn(drawing, [ONE, OTHER]), expected) == 0
    assert traffic.captures == 1


def test_what_a_gpu_cannot_capture_is_drawn_without_and_told():
    """Qwen-Image asks the host how long prompts of several lengths are."""
    unequal = [ONE, replace(OTHER, prompt="a boat")]
    with fake_gpus(graphs=True) as traffic:
        drawing = stage("qwen-image", cuda_graphs=True)
        with eagerly():
            expected = pixels(drawing(unequal))
        with pytest.warns(UserWarning, match="drawing without CUDA graphs: operation not"):
            outcomes = drawing(unequal)
        # Its negative prompts have one length.
        assert traffic.captures == 1
        tried = traffic.operations
        drawing(unequal)
        assert traffic.operations - tried < tried / 2, "it is not tried once more"
    assert furthest(pixels(outcomes), expected) == 0
    assert outcomes[0].notes["cuda_graphs"] is False


def test_a_lack_of_memory_for_the_graph_is_no_lack_for_the_image(monkeypatch):
    def refuse(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    with fake_gpus(graphs=True):
        drawing = stage("flux", cuda_graphs=True)
        monkeypatch.setattr(torch.cuda, "graph", refuse)
        with pytest.warns(UserWarning, match="without CUDA graphs: CUDA out of memory"):
            (outcome,) = drawing([ONE])
        monkeypatch.undo()
        assert furthest(pixels([outcome]), drawn(stage("flux"), [ONE])) == 0
        # What the computation itself lacks is the batch's matter, with graphs or without.
        other = stage("flux", cuda_graphs=True, batch_size=4)
        monkeypatch.setattr(DenoiserGraphs, "_capture", refuse)
        with pytest.raises(torch.OutOfMemoryError):
            other([ONE])
        assert other.drawer.batch == 2


class Doubling(torch.nn.Module):
    """A denoiser whose output is twice its input, plus a number."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((1,), 2.0))
        self.calls = 0

    def forward(self, sample: Any, more: Any = 0.0, parts: Any = ()) -> tuple[Any, ...]:
        self.calls += 1
        total = sample * self.weight + more
        while parts:
            total = total + parts.pop()
        return (total,)


@pytest.fixture
def doubling(monkeypatch) -> Any:
    """A small denoiser on a GPU by graphs, its graphs, and what was done."""
    with fake_gpus(graphs=True) as traffic:
        denoiser = Doubling().to("cuda")
        yield denoiser, DenoiserGraphs(denoiser), traffic


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, device="cuda")


def test_each_form_of_inputs_has_a_graph(doubling):
    denoiser, own, traffic = doubling
    calls = [
        ((ones(2),), {}),
        ((ones(3),), {}),
        ((ones(2).half(),), {}),
        ((ones(2), 1.0), {}),
        ((ones(2), 2.0), {}),
        ((ones(2), True), {}),
        ((ones(2),), {"more": ones(2)}),
        ((ones(2),), {"parts": [ones(2), ones(2)]}),
    ]
    for given, named in calls:
        expected = denoiser.weight * given[0] + named.get("more", sum(given[1:]))
        copies = {name: value[:] for name, value in named.items()}
        (made,) = denoiser(*given, **copies)
        assert torch.equal(made.cpu(), (expected + 2 * ("parts" in named)).cpu())
    assert traffic.captures == len(calls)
    assert own.take_all_replayed()


def test_results_stay_when_the_graph_is_replayed(doubling):
    denoiser, _, traffic = doubling
    first = denoiser(ones(2))[0]
    second = denoiser(3 * ones(2))[0]
    assert (first.tolist(), second.tolist()) == ([2.0, 2.0], [6.0, 6.0])
    assert (denoiser.calls, traffic.replays) == (2, 2), "Python runs for the capture alone"


def test_hooks_and_counters_see_evaluations(doubling):
    denoiser, own, traffic = doubling
    seen: list[Any] = []
    denoiser.register_forward_pre_hook(lambda *given: seen.append(given))
    denoiser(ones(2))
    denoiser(ones(2))
    assert len(seen) == 2
    before = denoiser.calls
    with eagerly():
        denoiser(ones(2))
    assert denoiser.calls == before + 1
    assert not own.take_all_replayed()
    assert traffic.replays == 2


def test_the_least_used_graph_is_dropped(doubling):
    denoiser, _, traffic = doubling
    for size in (1, 2, 3, 4, 1, 5, 1, 2):
        for _ in range(4):
            denoiser(ones(size))
    assert traffic.captures == 6, "that of 2 again, and not that of 1"


def test_captures_that_serve_few_evaluations_are_given_up(doubling):
    denoiser, _, traffic = doubling
    for size in range(1, 9):
        denoiser(ones(size))
    with pytest.warns(UserWarning, match="Doubling: 8 captures have served 8 evaluations"):
        denoiser(ones(9))
    assert denoiser(ones(9))[0].tolist() == [2.0] * 9
    assert traffic.captures == 8


def test_what_could_hold_tensors_unseen_has_no_form(doubling):
    denoiser, _, traffic = doubling
    for unknown in (np.ones(2), {1}, ONE, torch.nn.Identity()):
        with pytest.raises(UnknownFormError, match=type(unknown).__name__):
            form_of([unknown])
    with pytest.warns(UserWarning, match="Doubling: it is given, or gives, a set"):
        denoiser(ones(2), parts=set())
    assert traffic.captures == 0


def test_layers_on_another_device_are_told(doubling):
    denoiser, _, traffic = doubling
    denoiser.other = torch.nn.Linear(1, 1)
    with pytest.warns(UserWarning, match="Doubling: its weights are not all on one GPU"):
        denoiser(ones(2))
    assert traffic.captures == 0


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"compile": True}, "cuda_graphs and compile exclude"),
        ({"offload": "model"}, "cuda_graphs and offload exclude"),
        ({"speed": "magcache"}, "'magcache' and cuda_graphs exclude"),
    ],
)
def test_what_cannot_be_together_is_refused(changes, named):
    told = t2i("flux").model_dump() | {"cuda_graphs": True} | changes
    with pytest.raises(ValidationError, match=named):
        TextToImageSettings(**told)


def test_graphs_need_a_gpu_and_keep_the_key():
    with pytest.raises(UsageError, match="cuda_graphs needs a GPU"):
        stage("flux", cuda_graphs=True, device="cpu")
    keyed = t2i("flux").model_copy(update={"cuda_graphs": True})
    assert keyed.spec("flux", "tiny").digest == t2i("flux").spec("flux", "tiny").digest
    plain, by_graphs = t2i("flux").work("dummy"), keyed.work("dummy")
    assert (plain.blocks > 0, by_graphs.blocks) == (True, 0)
