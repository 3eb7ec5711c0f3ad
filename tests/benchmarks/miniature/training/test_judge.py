"""The mini judge's training: a few steps, taken up again, and read by the strict stage."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from benchmarks.miniature.training.judge import train as training_module
from benchmarks.miniature.training.judge.batches import JudgementWriter, batched
from benchmarks.miniature.training.judge.corruptions import (
    Damaged,
    Part,
    ShownScene,
    Told,
    damaged,
)
from benchmarks.miniature.training.judge.model import TILE, new_judge, save
from benchmarks.miniature.training.judge.train import JudgeTraining, held_out, train
from benchmarks.miniature.training.judge.verdicts import reply
from benchmarks.tasks.miniature.queries import queries
from benchmarks.tasks.miniature.samples import sample_of
from generators.base import Result
from generators.document import Request
from scorers.internvl.models import JudgeModel
from scorers.internvl.prompts import cut
from scorers.internvl.stage import MmieScore
from scorers.internvl.tokenizer import END
from scorers.judging.corrected import Corrected
from scorers.judging.replies import RubricQuestion
from scorers.judging.rubrics import OWN

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def untrained() -> tuple[JudgeModel, bytes]:
    return new_judge(0)


@pytest.fixture(scope="module")
def checkpoint(untrained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("judge")
    save(*untrained, folder)
    return folder


def writer(judge: JudgeModel) -> JudgementWriter:
    return JudgementWriter(judge.tokenizer, judge.tile_tokens)


def stage(folder) -> MmieScore:
    return MmieScore(model=str(folder), device="cpu", dtype="float32", max_tiles=1)


def requests(n: int, split="test") -> list[Request]:
    made = []
    for query in queries(n, 5, split):
        sample = sample_of(query)
        assert sample.reference is not None
        question = Corrected(OWN).ask(sample, sample.reference)
        assert isinstance(question, RubricQuestion)
        made.append(question.request(None))
    return made


def test_the_stage_reads_the_checkpoint_strictly(untrained, checkpoint):
    judge, _ = untrained
    loaded = stage(checkpoint).judge.model.state_dict()
    for name, value in judge.model.state_dict().items():
        assert torch.equal(loaded[name], value.to(torch.float16).float()), name


def test_the_checkpoint_is_half_precision_and_at_most_5_mb(checkpoint):
    stored = load_file(checkpoint / "model.safetensors")
    assert {t.dtype for t in stored.values()} == {torch.float16}
    assert (checkpoint / "model.safetensors").stat().st_size <= 5_000_000


def test_a_request_takes_at_most_250_tokens(checkpoint):
    real, asked = stage(checkpoint), requests(90)
    pictures = real.pictures(asked)
    tokens = [len(real.prompt(request, pictures).ids) for request in asked]
    assert max(tokens) <= 250
    for result, expected in zip(real(asked[:2]), tokens[:2], strict=True):
        assert isinstance(result, Result)
        assert result.usage["input_tokens"] == expected
        assert set(result.notes["tiles"]) == {1}


def test_training_reads_what_the_stage_reads(untrained, checkpoint):
    """Equal ids of the request, and pictures of the world's size as they are."""
    judge, _ = untrained
    rng = random.Random(2)
    real = stage(checkpoint)
    for query, request in zip(queries(9, 5, "test"), requests(9), strict=True):
        answer = _right(query)
        mine = writer(judge).judged(rng, answer)
        prompt = real.prompt(request, real.pictures([request]))
        assert mine.ids[: mine.prompt] == prompt.ids
        assert len(mine.pictures) == len(prompt.images)
    pictures = real.pictures(requests(1))
    picture = pictures(requests(1)[0].images[0])
    tile = cut(picture, (1, 1), TILE, thumbnail=True)
    assert np.array_equal(tile[0].numpy(), np.asarray(picture))


def _right(query):
    """The ground truth as an answer of known content."""
    if not query.wants_images:
        return Damaged(query, "right", text=str(query.answer[0]))
    texts, pictures = query.answer[::2], query.answer[1::2]
    parts = [
        Part(Told(text, picture.scene), ShownScene(picture.scene, picture.seed))
        for text, picture in zip(texts, pictures, strict=True)
    ]
    return Damaged(query, "right", tuple(parts))


def test_replies_are_spelled_as_the_stage_writes_them(untrained):
    judge, _ = untrained
    rng = random.Random(3)
    for _ in range(100):
        text = reply(damaged(rng, "train"))
        assert judge.tokenizer.decode(judge.tokenizer.chunk(text)) == text


def test_any_other_text_is_read_byte_by_byte(untrained):
    judge, _ = untrained
    text = "Grüße, 世界! {x} <image> ### Score 6"
    assert judge.tokenizer.decode(judge.tokenizer.chunk(text)) == text


def test_only_the_reply_is_learnt(untrained):
    judge, _ = untrained
    rng = random.Random(4)
    judgements = [writer(judge).judged(rng, damaged(rng, "train")) for _ in range(5)]
    end = judge.tokenizer.id(END)
    batch = batched(judgements, end)
    learnt = batch.ids.roll(-1, 1)
    for row, judgement in enumerate(judgements):
        ids = learnt[row][batch.asked[row]].tolist()
        assert ids == list(judgement.ids[judgement.prompt :])
        assert ids[-1] == end
    assert len(batch.tiles) == sum(len(j.pictures) for j in judgements)


@pytest.fixture
def short(monkeypatch):
    """Steps of few judgements, captions in the first."""
    monkeypatch.setattr(training_module, "GROUPS", {"SA": 2, "PBL": 1, "MSR": 1})
    monkeypatch.setattr(training_module, "CAPTIONS_FIRST", 1)
    monkeypatch.setattr(training_module, "CAPTIONS", 1)
    monkeypatch.setattr(training_module, "CAPTIONS_ALONE", 2)
    monkeypatch.setattr(training_module, "HELD_OUT", 2)
    plan = replace(training_module.PLAN, save_every=2, warmup=1)
    monkeypatch.setattr(training_module, "PLAN", plan)


def test_an_interrupted_training_ends_as_an_uninterrupted_one(short, tmp_path, monkeypatch):
    train(tmp_path / "whole", 4, look=4)

    def broken(self, step):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(JudgeTraining, "look", broken)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "parts", 4, look=2)
    assert not (tmp_path / "parts" / "mmie-score").exists()
    train(tmp_path / "parts", 4, look=4)
    whole, parts = (
        load_file(tmp_path / name / "mmie-score" / "model.safetensors")
        for name in ("whole", "parts")
    )
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert (tmp_path / "parts" / "state" / "mmie-score" / "measured.json").exists()
    start = tmp_path / "untrained"
    save(*new_judge(0), start)
    first = load_file(start / "model.safetensors")
    assert any(not torch.equal(whole[name], first[name]) for name in whole)


def test_a_checkpoint_is_written_at_any_time(short, tmp_path):
    train(tmp_path, 2, look=0)
    before = (tmp_path / "mmie-score" / "model.safetensors").read_bytes()
    training_module.main(["--out", str(tmp_path), "--export"])
    assert (tmp_path / "mmie-score" / "model.safetensors").read_bytes() == before


def test_measured_on_the_other_split(untrained):
    assert {a.query.scenes[0].split for a in held_out(20)} == {"test"}
