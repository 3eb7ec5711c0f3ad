"""Where weights come from: layouts, strictness, QuickGELU; torchmetrics beside them."""

from __future__ import annotations

import html
import json

import numpy as np
import open_clip
import pytest
import torch
from clipscore_helpers import (
    ClipScore,
    candidate,
    cosines,
    picture,
    pixels,
    save_transformers_clip,
)
from open_clip.transform import image_transform
from PIL import Image as Pillow
from safetensors.torch import load_file, save_file

from plait.generators.errors import CheckpointError
from plait.scorers.clip.model import TINY, ClipEmbed, build
from plait.scorers.embeddings.settings import ClipSettings

pytestmark = pytest.mark.models

DOCUMENT = [candidate("a cat on a table", picture(0), "two dogs", picture(1))]


@pytest.fixture(scope="module")
def toy():
    """A toy model that differs from the tiny one."""
    torch.manual_seed(123)
    return build(TINY, "float32")


def expected(toy, prefix="A photo depicts "):
    """Cosines of DOCUMENT by `toy` itself."""
    transform = image_transform(32, is_train=False)
    texts = open_clip.tokenize([prefix + "a cat on a table", prefix + "two dogs"])
    images = torch.stack([transform(pixels(i)) for i in (0, 1)])
    with torch.no_grad():
        v, c = toy.encode_image(images, True), toy.encode_text(texts, True)
    return (v * c).sum(1).tolist()


def write_open_clip(folder, model, config=TINY, **preprocess):
    folder.mkdir(exist_ok=True)
    about = {"model_cfg": config, "preprocess_cfg": preprocess}
    (folder / "open_clip_config.json").write_text(json.dumps(about))
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    return folder


def test_preprocessing_of_the_checkpoint_is_used(toy, tmp_path):
    folder = write_open_clip(
        tmp_path / "clip", toy, mean=[0.5] * 3, std=[0.25] * 3, resize_mode="squash"
    )
    clip = ClipEmbed.load(ClipSettings(model=str(folder)), "pretrained")
    white = clip.transform(Pillow.new("RGB", (9, 5), "white"))
    assert white.shape == (3, 32, 32)
    assert torch.allclose(white, torch.full_like(white, 2.0))
    # Squashing keeps the ends of a long image, which a crop would lose.
    long = Pillow.new("RGB", (900, 9))
    long.paste("white", (0, 0, 200, 9))
    row = clip.transform(long)[0, 0]
    assert (row[0], row[-1]) == (2.0, -2.0)


@pytest.mark.parametrize("form", ["safetensors", "pt", "wrapped"])
def test_bare_weights_file(toy, tmp_path, form, monkeypatch):
    monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, "toy", TINY)
    path = tmp_path / f"clip.{'safetensors' if form == 'safetensors' else 'pt'}"
    state = toy.state_dict()
    if form == "safetensors":
        save_file(state, path)
    elif form == "pt":
        torch.save(state | {"context_length": torch.tensor(77)}, path)
    else:
        wrapped = {f"module.{name}": value for name, value in state.items()}
        torch.save({"epoch": 3, "state_dict": wrapped}, path)
    stage = ClipScore("pretrained", model=str(path), architecture="toy")
    np.testing.assert_allclose(cosines(stage(DOCUMENT)[0]), expected(toy), atol=2e-6)


def test_a_folder_without_a_checkpoint_and_a_broken_configuration_are_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"nor config\.json"):
        ClipScore("pretrained", model=str(tmp_path))
    (tmp_path / "open_clip_config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"open_clip_config\.json is not JSON"):
        ClipScore("pretrained", model=str(tmp_path))


def test_one_error_names_all_that_does_not_fit(toy, tmp_path):
    folder = write_open_clip(tmp_path / "clip", toy)
    path = folder / "open_clip_model.safetensors"
    state = load_file(path)
    del state["ln_final.bias"]
    state["extra.weight"] = torch.zeros(2)
    # open_clip itself would silently interpolate these positions.
    state["positional_embedding"] = torch.zeros(70, 64)
    save_file(state, path)
    with pytest.raises(CheckpointError) as error:
        ClipScore("pretrained", model=str(folder))
    for part in (
        "does not fit the model",
        "1 missing: ln_final.bias",
        "1 unexpected: extra.weight",
        "1 of the wrong shape: positional_embedding (70, 64), not (77, 64)",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"custom_text": True}, "custom_text"),
        ({"text_cfg": TINY["text_cfg"] | {"hf_tokenizer_name": "t5"}}, "hf_tokenizer_name"),
        ({"text_cfg": TINY["text_cfg"] | {"vocab_size": 1000}}, "vocab_size"),
        ({"vision_cfg": {"timm_model_name": "vit", "image_size": 32}}, "timm_model_name"),
    ],
)
def test_models_with_other_tokens_or_towers_are_refused(change, named):
    with pytest.raises(CheckpointError, match=named):
        build(TINY | change, "float32")


def test_pickled_code_is_not_run(tmp_path, monkeypatch):
    monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, "toy", TINY)
    ran = tmp_path / "ran"
    path = tmp_path / "clip.pt"
    torch.save({"state_dict": _Evil(str(ran))}, path)
    with pytest.raises(CheckpointError, match="holds more than tensors"):
        ClipScore("pretrained", model=str(path), architecture="toy")
    assert not ran.exists()
    script = torch.jit.trace(torch.nn.Linear(2, 2), torch.zeros(1, 2))
    torch.jit.save(script, str(path))
    with pytest.raises(CheckpointError, match="ViT-B-32:openai"):
        ClipScore("pretrained", model=str(path), architecture="toy")


class _Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


class Hub:
    """A Hub cache with one repository in it."""

    def __init__(self, repo, folder):
        self.repo, self.folder, self.asked = repo, folder, []

    def __call__(self, repo_id, filename, revision=None):
        from huggingface_hub.errors import EntryNotFoundError

        self.asked.append((repo_id, filename, revision))
        if repo_id != self.repo or not (self.folder / filename).is_file():
            raise EntryNotFoundError(f"{filename} not found")
        return str(self.folder / filename)


def test_hub_id_loads_from_the_hub_at_its_revision(toy, tmp_path, monkeypatch):
    folder = write_open_clip(tmp_path / "clip", toy)
    hub, commit = Hub("org/clip", folder), "abc" + "0" * 37
    monkeypatch.setattr("huggingface_hub.hf_hub_download", hub)
    stage = ClipScore("pretrained", model="org/clip", revision=commit)
    np.testing.assert_allclose(cosines(stage(DOCUMENT)[0]), expected(toy), atol=2e-6)
    assert hub.asked == [
        ("org/clip", "open_clip_config.json", commit),
        ("org/clip", "open_clip_model.safetensors.index.json", commit),
        ("org/clip", "open_clip_model.safetensors", commit),
    ]
    with pytest.raises(CheckpointError, match="'other/clip'"):
        ClipScore("pretrained", model="other/clip", revision=commit)


def activations(model):
    return {type(m).__name__ for m in model.modules() if "GELU" in type(m).__name__}


def test_openai_weights_get_quick_gelu_and_laion_weights_do_not():
    """The checkpoint's tensors do not tell; the wrong one shifts every feature."""
    with torch.device("meta"):
        for model, names in [
            ("ViT-B-32:openai", {"QuickGELU"}),
            ("ViT-B-32:laion2b_s34b_b79k", {"GELU"}),
        ]:
            built = open_clip.get_model_config(ClipSettings(model=model).built)
            assert activations(build(built, "float32")) == names
    assert activations(build(TINY, "float32")) == {"QuickGELU"}


# -------------------------------------- transformers' layout, against torchmetrics


TEXTS = ["a cat", "The QUICK brown fox; jumps over 12 dogs.", "rain &amp; sun", "x " * 75]


class Tensors(torch.nn.Module):
    """transformers 5 returns an output object where torchmetrics 1.9 wants the tensor."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.config = model.config

    def get_image_features(self, *args):
        return self.model.get_image_features(*args).pooler_output

    def get_text_features(self, *args):
        return self.model.get_text_features(*args).pooler_output


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The stage, the transformers model and its processor, with the same weights."""
    folder = tmp_path_factory.mktemp("clip")
    model, processor = save_transformers_clip(folder, 4, "1MB", layer_norm_eps=1e-3)
    return ClipScore("pretrained", model=str(folder), prefix=""), model, processor


def torchmetrics_score(both, text, image) -> float:
    from torchmetrics.functional.multimodal import clip_score

    _, model, processor = both
    tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    with torch.no_grad():
        value = clip_score(tensor, text, lambda: (Tensors(model), processor))
    return float(value)


def ours(both, text, image) -> float:
    return cosines(both[0]([candidate(text, image)])[0])[0]


def test_equal_for_text_that_fits_the_context(both):
    """torchmetrics clamps at 0, and does no cleaning of HTML: its texts are clean here."""
    seen = []
    for i, text in enumerate(TEXTS * 3):
        value = ours(both, text, picture(i))
        theirs = torchmetrics_score(both, html.unescape(text), pixels(i))
        assert 100 * max(value, 0) == pytest.approx(theirs, abs=2e-4)
        seen.append(theirs)
    assert sum(s > 1 for s in seen) >= 4
    assert np.ptp(seen) > 5
