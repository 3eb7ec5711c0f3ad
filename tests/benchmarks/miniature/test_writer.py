"""The mini writer: what it is taught is what its stage sends, and what is saved loads."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.miniature.training.loop import TrainingPlan
from benchmarks.miniature.training.writer.check import (
    TASKS,
    WriterAnswer,
    answers,
    held_out,
)
from benchmarks.miniature.training.writer.data import (
    EARLY_STEPS,
    WriterData,
    asked,
    patches,
    written,
)
from benchmarks.miniature.training.writer.loss import (
    PlaceReader,
    equal_pictures,
    forward,
    writer_loss,
)
from benchmarks.miniature.training.writer.model import (
    writer_model,
    writer_processor,
    writer_tokenizer,
)
from benchmarks.miniature.training.writer.sheet import sheet
from benchmarks.miniature.training.writer.train import WriterTraining, main
from benchmarks.tasks.miniature.queries import ScenePicture, query
from benchmarks.tasks.miniature.samples import sample_of
from generators.base import Result
from pipelines.chat.settings import ChatSettings
from pipelines.vlm.prompts import ChatPromptWriter
from pipelines.vlm.stage import VisionLanguageModel

pytestmark = pytest.mark.models

LONGEST_PROMPT = 120


@pytest.fixture(scope="module")
def tokenizer():
    return writer_tokenizer()


@pytest.fixture(scope="module")
def processor(tokenizer):
    return writer_processor(tokenizer)


@pytest.fixture(scope="module")
def data(processor):
    return WriterData(processor)


@pytest.fixture(scope="module")
def model(tokenizer):
    return writer_model(tokenizer)


def trained(out, steps, save_every=1):
    plan = TrainingPlan(steps=steps, rate=1e-3, warmup=1, save_every=save_every)
    training = WriterTraining(out, plan)
    training.trainer.run()
    return training


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    training = trained(tmp_path_factory.mktemp("mini"), 2)
    with training.trainer:
        return training.export()


def stage_of(folder, **settings):
    options = {"dtype": "float32", "device": "cpu", "max_new_tokens": 12, **settings}
    return VisionLanguageModel(model=str(folder), **options)


@pytest.mark.parametrize(
    "text",
    ["a red circle", "Füße, 漢字 and <image>x</image>\n", "Step 12: \t{}\n\n", "é" * 40],
)
def test_any_text_is_encoded_and_comes_back(tokenizer, text):
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_prompts_are_short_and_end_before_the_answer(processor, data):
    writer = ChatPromptWriter(processor, ChatSettings(model="mini"))
    for category, rule in TASKS:
        requests = [
            asked(sample_of(query(i, 1, "test", category)), rule) for i in range(20)
        ]
        ids = writer.encoded([writer(request) for request in requests])["input_ids"]
        assert ids.shape[1] <= LONGEST_PROMPT
        ends = {processor.tokenizer.decode(row[-2:]) for row in ids}
        assert ends == {"<|im_start|>assistant\n"}


@pytest.mark.parametrize(("category", "rule"), TASKS)
def test_training_rows_begin_with_the_ids_that_the_stage_sends(
    processor, data, category, rule
):
    example = query(4, 1, "test", category)
    writer = ChatPromptWriter(processor, ChatSettings(model="mini"))
    prompt = writer(asked(sample_of(example), rule))
    sent = writer.encoded([prompt])
    ids, start = data._encoded(data.row(example, rule))
    assert ids[:start] == sent["input_ids"][0].tolist()
    assert processor.tokenizer.decode(ids[start:-1]) == written(example, rule)
    assert ids[-1] == processor.tokenizer.eos_token_id
    (picture,) = [part for part in example.question if isinstance(part, ScenePicture)]
    pixels, grid = patches(processor, [picture])
    assert torch.equal(pixels, sent["pixel_values"])
    assert torch.equal(grid, sent["image_grid_thw"])


def test_outlines_mark_the_pictures_of_the_answer():
    example = query(3, 1, "train", "PBL")
    text = written(example, "outline")
    pictures = [part for part in example.answer if isinstance(part, ScenePicture)]
    assert text.count("<image>") == text.count("</image>") == len(pictures) == 2
    assert text.splitlines()[0] == written(example, "mmie").splitlines()[0]
    assert "<image>" not in written(example, "mmie")


def test_batches_show_train_scenes_and_depend_on_the_step_alone(processor, data):
    for step in (0, EARLY_STEPS):
        rows = data.rows(step)
        assert rows == WriterData(processor).rows(step)
        assert rows != data.rows(step + 1)
        assert {row.picture.scene.split for row in rows} == {"train"}
        assert len(rows) == 32


def test_only_answers_are_learned(data, processor):
    for chunk in data.chunks(EARLY_STEPS):
        for ids, marked in zip(chunk.ids, chunk.answers, strict=True):
            text = processor.tokenizer.decode(ids[marked])
            assert text.endswith("<|im_end|>")
            assert "assistant" not in text


def test_pictures_read_at_once_are_read_as_one_by_one(model, data):
    chunk = data.chunks(0)[0]
    with torch.no_grad():
        alone = model.get_image_features(chunk.pixels, chunk.grid, return_dict=True)
        with equal_pictures(model):
            together = model.get_image_features(chunk.pixels, chunk.grid, return_dict=True)
    torch.testing.assert_close(together.last_hidden_state, alone.last_hidden_state)


def test_the_training_pass_is_the_models_own(model, data):
    chunk = data.chunks(EARLY_STEPS)[0]
    with torch.no_grad():
        logits, _ = forward(model, chunk)
        own = model(
            input_ids=chunk.ids,
            attention_mask=(chunk.ids != model.config.get_text_config().vocab_size).int(),
            pixel_values=chunk.pixels,
            image_grid_thw=chunk.grid,
            mm_token_type_ids=(chunk.ids == model.config.image_token_id).int(),
        ).logits
    torch.testing.assert_close(logits, own[:, :-1][chunk.answers[:, 1:]])


def test_the_place_reader_reads_places_in_their_order():
    reader = PlaceReader(2)
    tokens = torch.arange(32.0).reshape(1, 16, 2)
    with torch.no_grad():
        reader.out.weight.zero_()
        reader.out.bias.zero_()
        reader.out.weight[0, 0] = 1.0
    first = reader(tokens)[0, :, 0]
    # The first token of the quarters of a 4 x 4 grid: 0, 2, 8 and 10.
    assert first.tolist() == [0.0, 4.0, 16.0, 20.0]


def test_the_loss_falls_on_one_batch(tokenizer, data):
    model = writer_model(tokenizer)
    places = PlaceReader(model.config.get_text_config().hidden_size)
    weights = [*model.parameters(), *places.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=2e-3)
    chunks = data.chunks(0)[:1]
    losses = []
    for _ in range(6):
        loss = writer_loss(model, places, chunks, torch.float32)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.75 * losses[0]


def test_an_interrupted_training_goes_on_as_if_it_had_not_been(tmp_path):
    whole = trained(tmp_path / "whole", 3)
    trained(tmp_path / "parts", 2)
    resumed = trained(tmp_path / "parts", 3)
    with whole.trainer, resumed.trainer:
        for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
            assert torch.equal(a, b)


def test_what_is_saved_is_loaded_strictly_and_answers_in_batches_as_alone(checkpoint):
    stage = stage_of(checkpoint)
    requests = [
        asked(sample_of(query(i, 2, "test", category)), rule)
        for i, (category, rule) in enumerate(TASKS)
    ]
    together = stage(requests)
    assert all(isinstance(outcome, Result) for outcome in together)
    assert together == [stage([request])[0] for request in requests]


def test_the_checkpoint_is_small_and_in_half_precision(checkpoint):
    size = (checkpoint / "model.safetensors").stat().st_size
    assert size < 5_000_000
    assert '"dtype": "float16"' in (checkpoint / "config.json").read_text()


def test_the_stage_answers_as_the_check_does(checkpoint):
    stage = stage_of(checkpoint)
    examples = held_out("SA", 2)
    given = answers(stage._model, stage_processor(stage), examples, "mmie")
    requests = [asked(sample_of(example), "mmie") for example in examples]
    longer = stage_of(checkpoint, max_new_tokens=160)(requests)
    assert [a.given.strip() for a in given] == [r.value.text for r in longer]
    right = replace(given[0], given=given[0].right)
    assert right.is_right
    assert not replace(right, given=right.right + " ").is_right


def stage_processor(stage):
    return stage._prompts._processor


def test_export_writes_the_latest_checkpoint(tmp_path, capsys):
    trained(tmp_path, 1)
    main(["--out", str(tmp_path), "--export"])
    assert "step 1: " in capsys.readouterr().out
    stage_of(tmp_path / "qwen2-vl")


def test_the_sheet_shows_the_right_answer_only_where_another_was_given():
    example = held_out("MSR", 1)[0]
    right = WriterAnswer(example, "There is one star.", "There is one star.")
    wrong = replace(right, given="There are two stars.")
    sheets = [sheet({"MSR@mmie": [answer]}).convert("RGB") for answer in (right, wrong)]
    texts = [np.asarray(page, dtype=int)[:, 150:] for page in sheets]
    reds = [int((text[..., 0] - text[..., 1] > 60).sum()) for text in texts]
    assert reds[0] == 0
    assert reds[1] > 20
