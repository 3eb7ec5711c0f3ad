"""Tiny text-to-image stages, their checkpoints on disk, and ways to damage those."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from plait.generators.base import Outcome, Result, import_target
from plait.generators.diffusion.builds import build_pipeline
from plait.generators.document import ImageRequest
from plait.generators.images import Drawing
from plait.pipelines.presets import prior_of, t2i

CPU = torch.device("cpu")
WORDS = "a red house by the sea with nine white boats and a very long pier in the fog"
REQUESTS = [
    ImageRequest(prompt="a red house", seed=11),
    ImageRequest(prompt=WORDS * 8, seed=12),
    ImageRequest(prompt="two cats, a dog", seed=13),
    ImageRequest(prompt="a red house", seed=14),
    ImageRequest(prompt="rain", seed=11),
]
"""The first and the fourth differ in their seeds only, the first and the last in text."""

INPUT_PIXELS = "diffusers.pipelines.qwenimage.pipeline_qwenimage_edit_plus.VAE_IMAGE_SIZE"
"""Where Qwen-Image-Edit says to how many pixels it brings its images: a million."""
UNET = "unet/diffusion_pytorch_model.safetensors"
TEXT_ENCODER = "text_encoder/model.safetensors"


def arguments(name: str, **changes: Any) -> dict[str, Any]:
    """Constructor arguments of a named model with tiny weights, as a worker gives them."""
    spec = t2i(name).spec(name, "tiny")
    return {**spec.settings, **spec.options, **changes}


def stage(name: str, **changes: Any) -> Any:
    """A named model with tiny weights: its stage, or both where it has two."""
    drawing = import_target(t2i(name).target)(**arguments(name, **changes))
    if prior_of(name) is None:
        return drawing
    spec = prior_of(name).spec(name, "tiny")
    prior = import_target(spec.target)(**{**spec.settings, **spec.options, **changes})
    return TwoStages(prior, drawing)


class TwoStages(NamedTuple):
    """Draws by two stages in turn."""

    prior: Any
    render: Any

    def __call__(self, requests: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        begun = zip(requests, self.prior(requests), strict=True)
        return self.render([replace(r, payload=outcome.value) for r, outcome in begun])


shared = functools.cache(stage)
"""A stage that several tests may call but not change."""


def tiny_pipeline(architecture: Any) -> Any:
    """A tiny pipeline as diffusers sees it."""
    return build_pipeline(architecture, "tiny", CPU, torch.float32)


pipeline_of = functools.cache(tiny_pipeline)
"""One that several tests may read but not change."""


def from_folder(folder: Path, name: str, **changes: Any) -> Any:
    """The stage that a published checkpoint in `folder` would be hosted as."""
    given = {"weights": "pretrained", "model": str(folder), **changes}
    return stage(name, **({"variant": None} if prior_of(name) is None else {}), **given)


def pixels(outcomes: Sequence[Outcome[Drawing]]) -> np.ndarray:
    """All images as (n, height, width, 3) of int16, so that differences have a sign."""
    for outcome in outcomes:
        assert isinstance(outcome, Result), outcome
    drawn = [o.value.pixels for o in outcomes if isinstance(o, Result)]
    return np.stack(drawn).astype(np.int16)


def furthest(a: np.ndarray, b: np.ndarray) -> int:
    """The largest difference in grey levels."""
    return int(np.abs(a - b).max())


class Spy:
    """Calls a pipeline and records its arguments."""

    def __init__(self, pipeline: Any, memory: int = 10**9) -> None:
        self.pipeline, self.memory = pipeline, memory
        self.calls: list[dict[str, Any]] = []

    def __call__(self, **given: Any) -> Any:
        self.calls.append(given)
        if _images(given) > self.memory:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return self.pipeline(**given)

    @property
    def sizes(self) -> list[int]:
        """How many images each call was for."""
        return [_images(call) for call in self.calls]


def _images(given: dict[str, Any]) -> int:
    """For how many images a pipeline is called; one at a time has no list."""
    generators = given["generator"]
    return len(generators) if isinstance(generators, list) else 1


def edit(path: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    """Change the tensors of a safetensors file."""
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def as_first_published(folder: Path) -> None:
    """Give a saved SD-1.5 the names of the files and tensors that the Hub's have.

    They were written by older libraries: a prefix on the text encoder, doubled on the
    checker's vision tower, position ids among the weights, the old names of the
    autoencoder's attention, and a vocabulary in two files.
    """

    def text(tensors: dict[str, torch.Tensor]) -> None:
        for key in list(tensors):
            tensors[f"text_model.{key}"] = tensors.pop(key)
        tensors["text_model.embeddings.position_ids"] = torch.arange(77)[None]

    def vision(tensors: dict[str, torch.Tensor]) -> None:
        for key in [k for k in tensors if k.startswith("vision_model.")]:
            tensors[f"vision_model.{key}"] = tensors.pop(key)
        tensors["vision_model.vision_model.embeddings.position_ids"] = torch.arange(17)[
            None
        ]

    def attention(tensors: dict[str, torch.Tensor]) -> None:
        old = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
        for key in [k for k in tensors if ".attentions.0.to_" in k]:
            new = next(n for n in old if f".{n}." in key)
            tensors[key.replace(f".{new}.", f".{old[new]}.")] = tensors.pop(key)

    edit(folder / TEXT_ENCODER, text)
    edit(folder / "safety_checker/model.safetensors", vision)
    edit(folder / "vae/diffusion_pytorch_model.safetensors", attention)
    _split_vocabulary(folder / "tokenizer")


def _split_vocabulary(folder: Path) -> None:
    whole = folder / "tokenizer.json"
    model = json.loads(whole.read_text())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    whole.unlink()
