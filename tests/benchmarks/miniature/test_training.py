"""Each mini model's script: a few steps, and a checkpoint that the ordinary stage loads."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from clipscore_helpers import ClipScore
from diffusion_helpers import REQUESTS, from_folder, pixels
from safetensors.torch import load_file
from torch import nn

from plait.benchmarks.miniature.training.anole import SequenceWriter
from plait.benchmarks.miniature.training.loop import TrainingPlan, train
from plait.benchmarks.tasks.miniature.queries import CATEGORIES, SceneImage, query
from plait.benchmarks.tasks.miniature.reader import sample_of
from plait.benchmarks.tasks.mmie.prompts import prompts
from plait.generators.anole.draft import AnoleDraft
from plait.generators.base import Result
from plait.generators.decoding.drafting import NativePrompt
from plait.generators.document import Candidate, Request, Turn
from plait.generators.mini.table import SHIPPED
from plait.pipelines.vlm.stage import VisionLanguageModel
from plait.scorers.internvl.stage import MmieScore
from plait.scorers.judging.mmie import Corrected
from plait.scorers.judging.replies import RubricQuestion
from plait.scorers.judging.rubrics import OWN

pytestmark = [pytest.mark.slow, pytest.mark.models]
QUERY = query(0, 5, "test", "SA")
SAMPLE = sample_of(QUERY)


def draws(folder: Path) -> bool:
    size = {"steps": 2, "guidance": 2.0, "height": 64, "width": 64}
    stage = from_folder(folder, folder.name.removesuffix("-early"), dtype="float32", **size)
    return pixels(stage(REQUESTS[:1])).shape == (1, 64, 64, 3)


def edits(folder: Path) -> bool:
    size = {"steps": 2, "guidance": 2.0, "height": 64, "width": 64, "scheduler": None}
    stage = from_folder(folder, folder.name, dtype="float32", **size)
    (image,) = SAMPLE.turns[0].content[:1]
    request = replace(REQUESTS[0], context=(image,))
    return pixels(stage([request])).shape == (1, 64, 64, 3)


def scores(folder: Path) -> bool:
    assert SAMPLE.reference is not None
    stage = ClipScore("pretrained", model=str(folder))
    return isinstance(stage([Candidate(SAMPLE.reference)])[0], Result)


def judges(folder: Path) -> bool:
    assert SAMPLE.reference is not None
    question = Corrected(OWN).ask(SAMPLE, SAMPLE.reference)
    assert isinstance(question, RubricQuestion)
    stage = MmieScore(model=str(folder), device="cpu", dtype="float32", max_new_tokens=4)
    request = Request((Turn("user", question.content),))
    return isinstance(stage([request])[0], Result)


def answers(folder: Path) -> bool:
    request = Request(prompts()(SAMPLE, "text"))
    stage = VisionLanguageModel(model=str(folder), dtype="float32", max_new_tokens=4)
    return isinstance(stage([request])[0], Result)


def drafts(folder: Path) -> bool:
    request = Request(prompts()(SAMPLE, "interleaved"), seed=1)
    short = {"max_text_tokens": 8, "max_images": 1}
    stage = AnoleDraft(model=str(folder), dtype="float32", **short)
    return isinstance(stage([request])[0], Result)


@dataclass(frozen=True)
class Script:
    """How a script is run in a test."""

    sizes: Mapping[str, Any]
    checkpoints: Mapping[str, Callable[[Path], bool]]
    """What it writes, and a check by the ordinary stage."""
    after: str = ""
    smaller: Mapping[str, Any] = field(default_factory=dict)
    """Constants of the module, such that the few steps reach all of its code."""


SCRIPTS = {
    "clip": Script({"groups": 2, "pool": 4}, {"clip": scores}),
    "openjourney": Script(
        {"vae_steps": 2, "text_steps": 2, "images": 8},
        {"openjourney": draws, "openjourney-early": draws},
        smaller={
            "openjourney.BATCH": 2,
            "openjourney.VAE_BATCH": 2,
            "openjourney.FEW_ITEMS": 1,
        },
    ),
    "sdxl": Script(
        {"images": 8},
        {"sdxl": draws},
        after="openjourney",
        smaller={"openjourney.BATCH": 2},
    ),
    "instruct_pix2pix": Script(
        {"images": 8},
        {"instruct-pix2pix": edits},
        after="openjourney",
        smaller={"instruct_pix2pix.BATCH": 2},
    ),
    "qwen2_vl": Script(
        {},
        {"qwen2-vl": answers},
        smaller={
            "qwen2_vl.EARLY_STEPS": 1,
            "qwen2_vl.EARLY": {"caption": 2},
            "qwen2_vl.LATE": {"SA": 1, "MSR": 1, "PBL@outline": 1},
        },
    ),
    "mmie_score": Script(
        {},
        {"mmie-score": judges},
        smaller={
            "mmie_score.CAPTIONS_FIRST": 1,
            "mmie_score.CAPTIONS_ALONE": 2,
            "mmie_score.GROUPS": {"SA": 1, "PBL": 1, "MSR": 1},
        },
    ),
    "anole": Script(
        {"vq_steps": 6, "images": 16},
        {"anole": drafts},
        smaller={
            "anole.BATCH": 2,
            "anole.PLAIN": 1,
            "anole.RENEW_EVERY": 2,
            "anole.SINGLE": {"drawing": 1, "reading": 1},
            "anole.MIXED": {"drawing": 1, "SA": 1, "PBL": 1, "MSR": 1},
            "anole.POOL": {"SA": 4, "PBL": 4, "MSR": 4},
        },
    ),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Runs a script for two steps, after those it needs, and gives the folder."""
    out, done = tmp_path_factory.mktemp("mini"), set[str]()

    def run(name: str) -> Path:
        script = SCRIPTS[name]
        if name not in done:
            if script.after:
                run(script.after)
            training = "plait.benchmarks.miniature.training"
            with pytest.MonkeyPatch.context() as patch:
                for constant, value in script.smaller.items():
                    patch.setattr(f"{training}.{constant}", value)
                main = import_module(f"{training}.{name}").main
                main(out, steps=2, **script.sizes)
            done.add(name)
        return out

    return run


def stored(folder: Path) -> dict[str, torch.Tensor]:
    return {
        f"{path.parent.name}/{name}": tensor
        for path in sorted(folder.rglob("*.safetensors"))
        for name, tensor in load_file(path).items()
    }


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_few_steps_give_a_checkpoint_in_the_published_layout(name, trained):
    out = trained(name)
    for checkpoint, runs in SCRIPTS[name].checkpoints.items():
        folder = out / checkpoint
        assert runs(folder)
        own, shipped = stored(folder), stored(SHIPPED / checkpoint)
        assert {n: t.shape for n, t in own.items()} == {
            n: t.shape for n, t in shipped.items()
        }
        assert {t.dtype for t in own.values()} == {torch.float16}
        # The weights are the script's own, and paths of this machine are in no file.
        assert not all(torch.equal(own[n], shipped[n]) for n in own)
        texts = [p.read_text() for p in folder.rglob("*.json")]
        assert not any(str(root) in t for t in texts for root in (out, SHIPPED))


@pytest.mark.parametrize("category", CATEGORIES)
def test_anole_learns_the_prompts_that_its_stage_forms(category):
    asked = query(0, 5, "test", category)
    stage = AnoleDraft(model=str(SHIPPED / "anole"), dtype="float32")
    prompt = stage.prompt(Request(prompts()(sample_of(asked), "interleaved"), seed=1))
    assert isinstance(prompt, NativePrompt)
    shown = [p for p in (*asked.question, *asked.answer) if isinstance(p, SceneImage)]
    tokens = [i for i in prompt.ids if i in stage.language.vocabulary.image]
    codes = dict.fromkeys(shown, stage.language.vocabulary.codes(tokens))
    write = SequenceWriter(stage.language.tokenizer, {category: [asked]}, codes)
    row = write(category, random.Random(1))
    assert row.ids[: len(prompt.ids)] == list(prompt.ids)
    assert not any(row.weights[: len(prompt.ids)])
    assert row.ids[-1] == stage.language.vocabulary.eos


def test_interrupted_training_resumes_exactly(tmp_path):
    plan = TrainingPlan(steps=5, rate=0.1, warmup=2, average=0.5, save_every=2)

    def trained(folder: Path, stop: int = 9) -> tuple[torch.Tensor, list[int]]:
        torch.manual_seed(0)
        model, exports = nn.Linear(3, 1), list[int]()

        def loss(step: int) -> torch.Tensor:
            if step == stop:
                raise KeyboardInterrupt
            return model(torch.randn(4, 3)).square().mean()

        train({"model": model}, loss, folder, plan, exports.append)
        assert not model.training
        return model.weight.detach().clone(), exports

    whole, exports = trained(tmp_path / "whole")
    assert exports == [2, 4, 5]
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "parts", stop=3)
    resumed, exports = trained(tmp_path / "parts")
    assert torch.equal(whole, resumed)
    assert exports == [4, 5]
    again, exports = trained(tmp_path / "parts")
    assert torch.equal(whole, again)
    assert exports == [5]
