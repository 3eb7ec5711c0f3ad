"""Training of the mini Anole: codes, sequences, a few steps, and the ordinary stage."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from benchmarks.miniature.training.anole import lm
from benchmarks.miniature.training.anole import train as anole
from benchmarks.miniature.training.anole import vq as vq_module
from benchmarks.miniature.training.anole.data import (
    AnoleData,
    coded,
    pictures_in,
    pooled,
)
from benchmarks.miniature.training.anole.tokens import mini_tokenizer, prompt_pieces
from benchmarks.miniature.training.labels import labels_of
from benchmarks.miniature.training.loop import Trainer, TrainingPlan
from benchmarks.tasks.miniature.queries import queries
from benchmarks.tasks.miniature.samples import sample_of
from benchmarks.tasks.mmie.prompts import prompts
from generators.anole.codec import Codec
from generators.anole.draft import AnoleDraft, AnolePrompt
from generators.anole.models import open_checkpoint, published_codec
from generators.anole.tokens import AnoleVocabulary
from generators.document import Request

VQ_PLAN = TrainingPlan(steps=6, rate=1e-3, warmup=2, save_every=2)
PLAN = TrainingPlan(steps=4, rate=1e-3, warmup=2, save_every=2)
POOL = {"SA": 6, "PBL": 6, "MSR": 6}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a mini Anole after a few steps."""
    out = tmp_path_factory.mktemp("anole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vq_module, "PLAIN", 2)
        patch.setattr(vq_module, "RENEW_EVERY", 2)
        vq = anole.trained_vq(out, VQ_PLAN, pictures=40)
    anole.trained_anole(vq, out, PLAN, POOL, exam_size=3)
    return out


@pytest.fixture(scope="module")
def data() -> AnoleData:
    """Queries whose codes are their numbers in the picture."""
    learned = pooled(POOL)
    shown = pictures_in(q for some in learned.values() for q in some)
    codes = {(p.scene, p.seed): list(range(64)) for p in shown}
    return AnoleData(mini_tokenizer(256), learned, codes)


def test_the_vocabulary_has_the_published_names() -> None:
    """Specials first, codes without gaps, and a prompt's wording in one token each."""
    tokenizer = mini_tokenizer(256)
    vocabulary = AnoleVocabulary.of(tokenizer.get_vocab(with_added_tokens=True))
    assert (vocabulary.bos, vocabulary.eos, vocabulary.image) == (
        0,
        2,
        tuple(range(4, 260)),
    )
    for piece in prompt_pieces():
        assert len(tokenizer.encode(piece, add_special_tokens=False).ids) == 1
    text = "Step 2: Now there is a small red star at the top left, unheard of."
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids) == text


def test_sequences_mark_where_scenes_are_known(data: AnoleData) -> None:
    """Both marks of pictures that text says before; the end of those of a question."""
    own = data.vocabulary
    group = data.answers(random.Random(1), "PBL", 4)
    tokens = group.ids[group.marks[:, 0], group.marks[:, 1]].tolist()
    assert set(tokens) == {own.begin_image, own.end_image}
    # A question's picture has one mark, each of the two pictures of an answer two.
    assert len(tokens) <= 4 * 5
    assert tokens.count(own.end_image) > tokens.count(own.begin_image)
    assert len(group.scenes) == len(tokens)


def test_nothing_is_learned_from_questions(data: AnoleData) -> None:
    """Targets are the answer's words and codes, its end, and no mark that is set."""
    own = data.vocabulary
    group = data.answers(random.Random(2), "SA", 6)
    begins = (group.ids == own.begin_image).int().cumsum(1)
    first = group.weights[begins <= 1] > 0
    assert group.weights[group.ids == own.end_image].sum() == 0
    assert (group.weights[group.ids == own.eos] == 1).all()
    # Before the second picture only words of the answer count.
    assert 0 < first.sum() < 0.4 * first.numel()


def test_a_reading_ends_in_its_scene(data: AnoleData) -> None:
    """The labels of a mark are those of the picture before it."""
    group = data.readings(random.Random(3), 2)
    scenes = {
        tuple(labels_of(q.scenes[k]))
        for some in data._queries.values()
        for q in some
        for k in range(len(q.scenes))
    }
    assert {tuple(row) for row in group.scenes.tolist()} <= scenes
    assert (
        group.ids[group.marks[:, 0], group.marks[:, 1]] == data.vocabulary.end_image
    ).all()


def test_codes_that_nothing_uses_are_renewed() -> None:
    """Latents take their places; codes in use stay."""
    pictures = vq_module.drawn_pictures(8, 1)
    learner = vq_module.VqLearner(vq_module.VQ, pictures, VQ_PLAN, batch=4)
    book = learner.model.quantize.embedding.weight
    learner._renew(np.random.default_rng(0), first=True)
    with torch.no_grad():
        book[5:] = 1e3
    before = book.clone()
    learner._renew(np.random.default_rng(0), first=False)
    changed = (book != before).any(1)
    assert changed[5:].all()
    assert (~changed[:5]).sum() > 0


def test_the_stage_reads_the_folder_and_its_prompts_are_those_learned(folder: Path) -> None:
    """Strictly; the same tokens and codes as in training, so that no learning is lost."""
    stage = AnoleDraft(
        model=str(folder / "anole"), dtype="float32", max_text_tokens=8, max_images=1
    )
    for query in queries(3, 5, "test"):
        sample = sample_of(query)
        request = Request(turns=prompts()(sample, "interleaved"), seed=1)
        prompt = stage.prompt(request)
        assert isinstance(prompt, AnolePrompt)
        codes = coded(stage.codec._model, pictures_in([query]))
        own = AnoleData(stage.language.tokenizer, {}, codes)
        assert own.prompt(query) == list(prompt.ids)
    (outcome,) = stage([request])
    assert outcome.value is not None


def test_weights_are_stored_in_halves_of_the_published_shapes(folder: Path) -> None:
    """float16, and the VQ model's attention as 1 x 1 convolutions."""
    checkpoint = open_checkpoint(str(folder / "anole"))
    stored = dict(checkpoint.vq_tensors())
    assert {t.dtype for t in stored.values()} == {torch.float16}
    assert stored["encoder.mid.attn_1.q.weight"].ndim == 4
    codec = published_codec(checkpoint, torch.device("cpu"))
    assert isinstance(codec, Codec)
    assert codec.side == 8
    measured = json.loads((folder / "state" / "anole" / "measured.json").read_text())
    assert measured["steps"] == PLAN.steps


def _run(
    make: Callable[[], tuple[Any, dict[str, Any]]],
    folder: Path,
    plan: TrainingPlan,
    stop: int | None = None,
) -> dict[str, torch.Tensor]:
    learner, modules = make()

    def loss(step: int) -> torch.Tensor:
        if step == stop:
            raise KeyboardInterrupt
        own: torch.Tensor = learner.loss(step)
        return own

    Trainer(modules, loss, folder, plan).run()
    return {n: v.clone() for m in modules.values() for n, v in m.state_dict().items()}


def test_an_interrupted_training_ends_as_an_uninterrupted_one(
    tmp_path: Path, data: AnoleData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the codes' model and of the language model."""
    monkeypatch.setattr(vq_module, "PLAIN", 2)
    monkeypatch.setattr(vq_module, "RENEW_EVERY", 2)
    pictures = vq_module.drawn_pictures(12, 1)
    tokenizer: Tokenizer = mini_tokenizer(256)

    def vq() -> tuple[Any, dict[str, Any]]:
        learner = vq_module.VqLearner(vq_module.VQ, pictures, VQ_PLAN, batch=2)
        return learner, {"vq": learner.model}

    def language() -> tuple[Any, dict[str, Any]]:
        torch.manual_seed(0)
        model = lm.chameleon(tokenizer.get_vocab(with_added_tokens=True))
        learner = lm.AnoleLearner(model, data, PLAN)
        return learner, {"language": model, "reader": learner.reader}

    for name, make, plan in (("vq", vq, VQ_PLAN), ("language", language, PLAN)):
        whole = _run(make, tmp_path / f"{name}-whole", plan)
        with pytest.raises(KeyboardInterrupt):
            _run(make, tmp_path / f"{name}-parts", plan, stop=plan.steps - 1)
        parts = _run(make, tmp_path / f"{name}-parts", plan)
        assert all(torch.equal(parts[n], value) for n, value in whole.items())
