"""Adapters, pipelines in one file and GGUF, beside diffusers' own loading of the same."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from adapter_helpers import save_gguf, save_lora, save_one_file
from diffusion_helpers import REQUESTS, arguments, edit, from_folder, furthest, pixels
from safetensors.torch import load_file, save_file

from plait.generators.diffusion.designs import DESIGNS, PUBLISHED
from plait.generators.errors import CheckpointError, UsageError
from plait.pipelines.presets import TextToImageSettings, t2i

pytestmark = pytest.mark.models
needs_peft = pytest.mark.usefixtures("peft")
needs_gguf = pytest.mark.usefixtures("gguf")
MODELS = ("flux", "openjourney", "sdxl")


@pytest.fixture
def peft():
    pytest.importorskip("peft")


@pytest.fixture
def gguf():
    pytest.importorskip("gguf")


@dataclass
class Adapted:
    """A tiny checkpoint, and two adapters of it."""

    name: str
    folder: Path
    first: Path
    second: Path

    def drawn(self, **changes: Any) -> np.ndarray:
        return pixels(from_folder(self.folder, self.name, **changes)(REQUESTS[:2]))

    def loras(self, *weights: float) -> list[dict[str, Any]]:
        files = (self.first, self.second)
        pairs = zip(files, weights, strict=False)
        return [{"model": str(file), "weight": weight} for file, weight in pairs]


@pytest.fixture(params=MODELS)
def adapted(request, saved, tmp_path):
    architecture = PUBLISHED[t2i(request.param).model]
    files = [save_lora(architecture, tmp_path / f"{n}.safetensors", n) for n in (1, 2)]
    return Adapted(request.param, saved(architecture), *files)


def their_images(adapted: Adapted, *weights: float) -> np.ndarray:
    """What diffusers' own pipeline draws with the adapters."""
    design = DESIGNS[PUBLISHED[t2i(adapted.name).model]]
    pipeline = getattr(diffusers, design.pipeline).from_pretrained(adapted.folder)
    pipeline.set_progress_bar_config(disable=True)
    pipeline.safety_checker = None
    files = (adapted.first, adapted.second)[: len(weights)]
    for file in files:
        pipeline.load_lora_weights(
            str(file.parent), weight_name=file.name, adapter_name=file.stem
        )
    if weights:
        pipeline.set_adapters([file.stem for file in files], list(weights))
    own = arguments(adapted.name)
    further = {"max_sequence_length": own["max_sequence_length"]}
    images = [
        pipeline(
            prompt=r.prompt,
            num_inference_steps=own["steps"],
            guidance_scale=own["guidance"],
            height=own["height"],
            width=own["width"],
            generator=torch.Generator().manual_seed(r.seed),
            **(further if own["max_sequence_length"] else {}),
        ).images[0]
        for r in REQUESTS[:2]
    ]
    return np.stack([np.asarray(image) for image in images]).astype(np.int16)


@needs_peft
def test_images_are_those_of_diffusers_with_the_same_adapters(adapted):
    drawn = {w: adapted.drawn(loras=adapted.loras(*w)) for w in ((0.8,), (0.8, -0.5))}
    for weights, images in drawn.items():
        assert furthest(images, their_images(adapted, *weights)) <= 1
        fused = adapted.drawn(loras=adapted.loras(*weights), fuse_loras=True)
        assert furthest(fused, images) <= 2, "fused weights round otherwise"
    plain = adapted.drawn()
    assert furthest(drawn[(0.8,)], plain) > 5
    assert furthest(drawn[(0.8,)], drawn[(0.8, -0.5)]) > 5
    assert furthest(adapted.drawn(loras=adapted.loras(0.0)), plain) == 0


@needs_peft
@pytest.mark.parametrize("architecture", ["flux", "sd15"])
def test_adapters_that_do_not_fit_are_refused_by_the_layer(architecture, saved, tmp_path):
    names = {"flux": "flux", "sd15": "openjourney"}
    file = save_lora(architecture, tmp_path / "lora.safetensors", 1)
    before = load_file(file)
    key = next(k for k in before if "lora_A" in k)
    layer = key.split(".", 1)[1].split(".lora_A")[0]
    told = {"loras": [{"model": str(file)}]}

    edit(file, lambda t: t.update({key: torch.zeros(2, 7)}))
    with pytest.raises(CheckpointError, match=f"{layer}: 7 inputs instead of"):
        from_folder(saved(architecture), names[architecture], **told)

    renamed = {k.replace(layer, "no.such.layer"): v for k, v in before.items()}
    save_file(renamed, file)
    with pytest.raises(CheckpointError, match=r"no\.such\.layer, which the model lacks"):
        from_folder(saved(architecture), names[architecture], **told)

    save_file({"some.weight": torch.zeros(2)}, file)
    with pytest.raises(CheckpointError, match="holds no LoRA"):
        from_folder(saved(architecture), names[architecture], **told)


def key_of(**changes: Any) -> str:
    return TextToImageSettings(**changes).spec("any", "pretrained").digest


def test_keys_follow_weights_and_files_but_not_places(saved, tmp_path):
    model = str(saved("sd15"))
    plain = key_of(model=model)
    files = [tmp_path / name for name in ("a.safetensors", "b.safetensors")]
    for number, file in enumerate(files):
        save_file({"unet.x.lora_A.weight": torch.full((2, 2), number)}, file)
    moved = tmp_path / "c" / "pytorch_lora_weights.safetensors"
    moved.parent.mkdir()
    shutil.copy(files[0], moved)

    def with_lora(path: Path, weight: float = 0.8, **further: Any) -> str:
        told = {"model": str(path), "weight": weight}
        return key_of(model=model, loras=[told], **further)

    keys = [
        plain,
        with_lora(files[0]),
        with_lora(files[0], 0.7),
        with_lora(files[1]),
        with_lora(files[0], fuse_loras=True),
        key_of(model=model, denoiser=str(files[0])),
        key_of(model=model, denoiser=str(files[1])),
        key_of(model=str(files[0]), base=model),
        key_of(model=str(files[1]), base=model),
    ]
    assert len(set(keys)) == len(keys)
    assert with_lora(moved) == with_lora(moved.parent) == keys[1]


def test_random_weights_have_no_adapters():
    told = TextToImageSettings(model=t2i("flux").model, loras=[{"model": "/no/such"}])
    spec = told.spec("flux", "tiny")
    assert spec.options["loras"] == []
    assert (
        spec.digest == TextToImageSettings(model=t2i("flux").model).spec("f", "tiny").digest
    )


def test_a_pipeline_in_one_file_draws_as_its_folder(saved, tmp_path):
    folder = saved("sd15")
    pipeline = diffusers.StableDiffusionPipeline.from_pretrained(folder)
    file = save_one_file(pipeline, tmp_path / "one.safetensors")
    told = {"model": str(file), "base": str(folder), "safety_checker": "off"}
    drawn = pixels(from_folder(folder, "openjourney", **told)(REQUESTS[:2]))
    expected = from_folder(folder, "openjourney", safety_checker="off")(REQUESTS[:2])
    assert furthest(drawn, pixels(expected)) <= 1

    edit(file, lambda t: t.pop("model.diffusion_model.time_embed.0.bias"))
    with pytest.raises(CheckpointError, match="not all its tensors are there"):
        from_folder(folder, "openjourney", **told)
    with pytest.raises(CheckpointError, match="set base to"):
        key_of(model=str(file))


@pytest.mark.parametrize(
    ("architecture", "part"), [("flux", "transformer"), ("sd15", "unet")]
)
def test_a_denoiser_of_another_file_takes_the_place_of_the_folders(
    architecture, part, saved, copied, tmp_path
):
    name = {"flux": "flux", "sd15": "openjourney"}[architecture]
    file = tmp_path / "denoiser.safetensors"
    weights = copied(architecture) / part / "diffusion_pytorch_model.safetensors"

    def double_last(tensors: dict[str, torch.Tensor]) -> None:
        last = next(k for k in sorted(tensors) if k.endswith("out.weight"))
        tensors[last] *= 1.5

    edit(weights, double_last)
    shutil.copy(weights, file)
    expected = pixels(from_folder(weights.parent.parent, name)(REQUESTS[:2]))
    drawn = from_folder(saved(architecture), name, denoiser=str(file))
    assert furthest(pixels(drawn(REQUESTS[:2])), expected) == 0
    edit(file, lambda t: t.pop(sorted(t)[0]))
    with pytest.raises(CheckpointError, match=r"not all its tensors|missing"):
        from_folder(saved(architecture), name, denoiser=str(file))


@needs_gguf
@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_gguf_draws_as_diffusers_reads_it(kind, saved, tmp_path):
    folder = saved("flux")
    pipeline = diffusers.FluxPipeline.from_pretrained(folder)
    file = save_gguf(pipeline.transformer, tmp_path / "flux.gguf", kind)
    drawn = pixels(from_folder(folder, "flux", denoiser=str(file))(REQUESTS[:2]))
    theirs = diffusers.FluxTransformer2DModel.from_single_file(
        str(file),
        config=str(folder / "transformer"),
        quantization_config=diffusers.GGUFQuantizationConfig(compute_dtype=torch.float32),
        dtype=torch.float32,
    )
    own = from_folder(folder, "flux")
    own.drawer.pipeline.transformer = theirs
    assert furthest(drawn, pixels(own(REQUESTS[:2]))) <= 1
    plain = pixels(from_folder(folder, "flux")(REQUESTS[:2]))
    assert furthest(drawn, plain) <= 1 if kind == "F32" else furthest(drawn, plain) > 0


def test_what_has_no_effect_or_cannot_be_is_refused(saved):
    with pytest.raises(ValueError, match="fuse_loras has no effect"):
        TextToImageSettings(model="a/b", fuse_loras=True)
    with pytest.raises(ValueError, match="not a file"):
        TextToImageSettings(model="a/b", denoiser="a/b")
    with pytest.raises(CheckpointError, match="has no effect"):
        key_of(model=str(saved("sd15")), base=str(saved("sd15")))
    with pytest.raises(CheckpointError, match="no such file"):
        key_of(model=str(saved("sd15")), loras=[{"model": "/no/such.safetensors"}])


def test_a_file_for_nunchaku_is_refused_by_name(saved, tmp_path):
    file = tmp_path / "svdq.safetensors"
    save_file({"transformer_blocks.0.qkv.wscales": torch.ones(2, 2)}, file)
    with pytest.raises(CheckpointError, match=r"svdq\.safetensors.*Nunchaku.*GGUF"):
        from_folder(saved("flux"), "flux", denoiser=str(file))


def test_a_missing_package_is_named(saved, tmp_path, monkeypatch):
    monkeypatch.setattr("plait.generators.extras.is_installed", lambda module: False)
    with pytest.raises(UsageError, match=r"plait\[adapters\]"):
        from_folder(saved("flux"), "flux", loras=[{"model": "/any"}])
    (tmp_path / "a.gguf").write_bytes(b"GGUF0000")
    with pytest.raises(UsageError, match=r"plait\[gguf\]"):
        from_folder(saved("flux"), "flux", denoiser=str(tmp_path / "a.gguf"))
