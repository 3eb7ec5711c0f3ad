"""Training of the mini CLIP: its data, a few steps, and what the loader makes of them."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from benchmarks.miniature.training.clip import train as clip
from benchmarks.miniature.training.clip.data import (
    GROUP,
    CaptionTokens,
    ScenePool,
    full_text,
    partial_text,
)
from benchmarks.miniature.training.labels import UNSAID, labels_of
from benchmarks.miniature.training.loop import Trainer, TrainingPlan
from generators.document import Candidate, Document, Text
from generators.pictures import encode
from scorers.clip.model import load_clip, transform_of
from scorers.clip.stage import ClipScore
from scorers.clipscore import ClipSettings
from scorers.truth.drawing import draw
from scorers.truth.scene import random_scene

PLAN = TrainingPlan(steps=4, rate=1e-3, warmup=2, save_every=2)


def test_scenes_of_a_group_differ_and_are_of_the_train_split() -> None:
    """No test scene is learned from, also none made by a change."""
    scenes = ScenePool(20, 1).scenes
    assert {scene.split for scene in scenes} == {"train"}
    groups = [scenes[k : k + GROUP] for k in range(0, len(scenes), GROUP)]
    assert all(len(set(group)) == GROUP for group in groups)


def test_a_text_is_true_of_its_own_picture_and_of_no_other_in_its_group() -> None:
    """Where the text says all of the scene; one that says less may be true of others."""
    batch = ScenePool(12, 1).batch(3, 6)
    true = batch.true()
    assert true.diagonal().all()
    full = (batch.said != UNSAID).all(1)
    assert 0 < full.sum() < len(full)
    assert (true[full].sum(1) == 1).all()


def test_a_partial_text_fixes_what_it_mentions() -> None:
    """Every label that it fixes is the scene's; a full text fixes all."""
    rng = random.Random(4)
    for _ in range(50):
        scene = random_scene(rng, "train")
        labels, said = labels_of(scene), partial_text(scene, rng)
        assert full_text(scene, rng).labels == labels
        assert all(s in (UNSAID, own) for s, own in zip(said.labels, labels, strict=True))
        mentioned = {i.place for i in scene.items if i.place in said.text}
        assert 3 * len(mentioned) == sum(s != UNSAID for s in said.labels[:-1])


def test_shorter_texts_are_encoded_as_the_whole_context() -> None:
    """What follows the end of a text changes nothing."""
    model = clip.build(clip.CONFIG, "float32")
    writer, rng = CaptionTokens(), random.Random(5)
    windows = [writer(random_scene(rng, "train"), rng)[0] for _ in range(4)]
    whole = torch.zeros(4, model.context_length, dtype=torch.long)
    for row, window in zip(whole, windows, strict=True):
        row[: len(window)] = torch.tensor(window)
    own = clip.encoded_texts(model, torch.from_numpy(clip.padded(windows)))
    torch.testing.assert_close(own, model.encode_text(whole))


def test_pictures_are_prepared_as_the_scorer_does() -> None:
    """The same pixels as open_clip's transform gives."""
    model = clip.build(clip.CONFIG, "float32")
    picture = draw(random_scene(random.Random(6), "train"), 1)
    theirs = clip.pixels(np.array(picture)[None])[0]
    own = transform_of(model.visual.image_size, {})(picture)
    torch.testing.assert_close(theirs, own)


def _trained(folder: Path, stop: int | None = None) -> dict[str, torch.Tensor]:
    """Weights after the plan's steps; at `stop` the machine is switched off."""
    learner = clip.ClipLearner(clip.CONFIG, ScenePool(8, 1), 4, PLAN.seed)

    def loss(step: int) -> torch.Tensor:
        if step == stop:
            raise KeyboardInterrupt
        return learner.loss(step)

    modules = {"clip": learner.model, "readers": learner.readers}
    Trainer(modules, loss, folder, PLAN).run()
    return {name: value.clone() for name, value in learner.model.state_dict().items()}


def test_an_interrupted_training_ends_as_an_uninterrupted_one(tmp_path: Path) -> None:
    """Also where steps after the last checkpoint were lost."""
    whole = _trained(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        _trained(tmp_path / "parts", stop=3)
    parts = _trained(tmp_path / "parts")
    assert all(torch.equal(parts[name], value) for name, value in whole.items())
    start = clip.ClipLearner(clip.CONFIG, ScenePool(8, 1), 4, PLAN.seed).model
    assert not torch.equal(whole["visual.proj"], start.visual.proj)


def test_the_folder_is_loaded_strictly_and_scores(tmp_path: Path) -> None:
    """The weights that were saved are those that the scorer computes with."""
    model = clip.train(tmp_path, PLAN, groups=4, pool=8, exam_size=40)
    folder = tmp_path / "clip"
    loaded = load_clip(ClipSettings(model=str(folder)), "pretrained")
    weight = loaded.model.visual.proj
    assert torch.equal(weight, weight.half().float())
    saved = load_file(folder / "open_clip_model.safetensors")
    assert torch.equal(saved["visual.proj"].float(), weight)
    assert (tmp_path / "state" / "clip" / "measured.json").exists()
    assert model.visual.proj.shape == weight.shape
    scene = random_scene(random.Random(7), "test")
    text = full_text(scene, random.Random(7)).text
    document = Document((Text(text), encode(draw(scene, 1))))
    (outcome,) = ClipScore(weights="pretrained", model=str(folder))([Candidate(document)])
    ids = torch.from_numpy(clip.padded([CaptionTokens().tokens(text)]))
    seen = loaded.model.encode_image(clip.pixels(np.array(draw(scene, 1))[None]))
    said = clip.encoded_texts(loaded.model, ids)
    cosine = torch.cosine_similarity(seen, said).item()
    assert outcome.value.parts["pairs"][0]["cos"] == pytest.approx(cosine, abs=1e-4)


def test_words_that_no_text_has_are_zeros(tmp_path: Path) -> None:
    """Most of the 49,408 tokens; those of the texts are not."""
    model = clip.build(clip.CONFIG, "float32")
    clip.save_clip(model, clip.CONFIG, tmp_path)
    table = load_file(tmp_path / "open_clip_model.safetensors")["token_embedding.weight"]
    used = (table != 0).any(1)
    assert 40 < used.sum() < 120
    assert used[list(CaptionTokens().tokens("Now there is a small red star."))].all()


def test_auc_counts_ties_as_half() -> None:
    """Of four comparisons two are won and one is a tie."""
    right, wrong = torch.tensor([2.0, 1.0]), torch.tensor([1.0, 1.5])
    assert clip.auc(right, wrong) == pytest.approx((2 + 0.5) / 4)
