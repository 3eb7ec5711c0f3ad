"""Texts written by streams, against the library's `generate` and passes without cache."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from endpoint_helpers import says
from PIL import Image as Pillow
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from vlm_helpers import BLUE, GREEN, RED, picture, save_tiny

from generators.base import Result
from generators.decoding.streams import Streams
from generators.mini.table import SHIPPED
from generators.pictures import encode
from pipelines.vlm import random_weights
from pipelines.vlm.decoding import Sampling, complete
from pipelines.vlm.prompts import ChatPrompt
from pipelines.vlm.stage import VisionLanguageModel
from pipelines.vlm.streaming import TokenChooser, is_streamable

pytestmark = pytest.mark.models

SHARED = "here is a question about a picture of the sea and the mountain " * 6
REQUESTS = [
    says(SHARED, RED, GREEN, "what do they show?"),
    says("plain water"),
    says(SHARED, RED, "and ", BLUE, " and ", RED, "?"),
    says(BLUE, "tell me a story"),
    says(SHARED, "what do they show?"),
    says(RED),
]
ONE_PICTURE = [says(SHARED, r, "what?") for r in (RED, GREEN, BLUE, RED)] + REQUESTS[4:]
ASKED = {"qwen2": REQUESTS, "qwen2.5": REQUESTS, "mini": REQUESTS, "llava": ONE_PICTURE}


def save_qwen25(folder):
    """A toy Qwen2.5-VL with the tokenizer of the toy Qwen2-VL."""
    model, processor = random_weights.tiny("Qwen/Qwen2-VL-7B-Instruct")
    sizes = {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2}
    config = Qwen2_5_VLConfig(
        text_config=model.config.text_config.to_dict() | {"model_type": "qwen2_5_vl_text"},
        vision_config=sizes | {"out_hidden_size": 64, "fullatt_block_indexes": [1]},
        image_token_id=model.config.image_token_id,
        video_token_id=model.config.video_token_id,
        vision_start_token_id=model.config.vision_start_token_id,
        vision_end_token_id=model.config.vision_end_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        own = Qwen2_5_VLForConditionalGeneration(config)
    own.generation_config = model.generation_config
    own.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    base = tmp_path_factory.mktemp("checkpoints")
    return {
        "qwen2": save_tiny(base / "qwen2", "qwen2-vl-72b"),
        "qwen2.5": save_qwen25(base / "qwen2.5"),
        "llava": save_tiny(base / "llava", "llava-34b"),
        "mini": SHIPPED / "qwen2-vl",
    }


def loaded(folder, **settings) -> VisionLanguageModel:
    options = {"dtype": "float32", "device": "cpu", "max_new_tokens": 16, **settings}
    return VisionLanguageModel(model=str(folder), **options)


def by_generate(stage, requests) -> list[tuple[str, str, int]]:
    """Text, finish and length of each answer, one at a time and by the library."""
    s, answers = stage.settings, []
    for request in requests:
        prompt = stage._prompts(request)
        assert isinstance(prompt, ChatPrompt)
        (own,) = complete(
            stage._model,
            stage._prompts.encoded([prompt]),
            [stage._longest(prompt)],
            Sampling(s.temperature, s.top_p, s.top_k, s.repetition_penalty),
            [request.seed or 0],
        )
        text = stage._tokenizer.decode(own.ids, skip_special_tokens=True)
        answers.append((text.strip(), own.finish, own.num_tokens))
    return answers


def summaries(results) -> list[tuple[str, str, int]]:
    return [(r.value.text, r.notes["finish"], r.usage["output_tokens"]) for r in results]


@pytest.mark.parametrize("name", ASKED)
def test_streams_write_what_generate_writes(folders, name):
    stage = loaded(folders[name], max_new_tokens=40)
    assert stage._streamed is not None
    expected = by_generate(stage, ASKED[name])
    assert len({text for text, *_ in expected}) >= 3
    assert summaries(stage(ASKED[name])) == expected
    again = ASKED[name][::-1]
    assert summaries(stage(again)) == expected[::-1], "with pictures that are remembered"


@pytest.mark.parametrize("name", ["qwen2", "llava"])
@pytest.mark.parametrize(
    "drawing",
    [
        {"temperature": 1.0, "top_p": 0.9, "top_k": 40},
        {"temperature": 0.7, "repetition_penalty": 1.3},
        {"repetition_penalty": 1.5},
    ],
)
def test_draws_and_penalties_are_those_of_generate(folders, name, drawing):
    stage = loaded(folders[name], rows=3, **drawing)
    seeded = [replace(r, seed=7 * i) for i, r in enumerate(ASKED[name])]
    assert summaries(stage(seeded)) == by_generate(stage, seeded)


@pytest.mark.parametrize("name", ASKED)
def test_logits_are_those_of_a_pass_without_cache(folders, name, monkeypatch):
    """At every token of every answer, over prompt and answer anew: at most 2e-4 apart."""
    stage = loaded(folders[name], rows=3)
    steps: list[tuple[list[int], torch.Tensor]] = []
    usual = TokenChooser._chosen

    def noted(self, scores, records):
        steps.append((list(records), scores.clone()))
        return usual(self, scores, records)

    monkeypatch.setattr(TokenChooser, "_chosen", noted)
    results = stage(ASKED[name])
    for record, request in enumerate(ASKED[name]):
        own = torch.stack(
            [scores[rows.index(record)] for rows, scores in steps if record in rows]
        )
        text = stage._prompts(request).text
        inputs = stage._prompts.encoded([stage._prompts(request)])
        start = inputs["input_ids"].shape[1]
        written = own.argmax(-1)
        assert len(written) == results[record].usage["output_tokens"], text
        expected = whole_pass(stage._model, inputs, written[:-1])[start - 1 :]
        assert (own - expected).abs().max() < 2e-4 * expected.abs().max().clamp(min=1)


@torch.inference_mode()
def whole_pass(model, inputs, written) -> torch.Tensor:
    """Logits (positions, vocabulary) of a prompt and what was written after it."""
    model.model.rope_deltas = None
    more = {"input_ids": written, "mm_token_type_ids": torch.zeros_like(written)}
    tokens = {
        name: torch.cat([inputs[name], values[None].to(inputs[name])], dim=1)
        for name, values in more.items()
        if name in inputs
    }
    rest = {n: v for n, v in inputs.items() if n not in (*more, "attention_mask")}
    return model(**tokens, **rest, use_cache=False).logits[0].float()


@pytest.mark.parametrize("name", ["qwen2", "llava"])
def test_an_answer_that_ends_makes_room_for_the_next(folders, name, monkeypatch):
    limits = zip(ASKED[name], (9, 1, 5, 2, 7, 3), strict=True)
    asked = [replace(request, max_tokens=limit) for request, limit in limits]
    expected = loaded(folders[name])(asked)
    open_at_once: list[int] = []
    usual = Streams.step
    monkeypatch.setattr(
        Streams, "step", lambda self: open_at_once.append(len(self)) or usual(self)
    )
    assert loaded(folders[name], rows=2)(asked) == expected
    assert open_at_once == [2] * 12 + [1] * 3, "9 and 3 tokens beside 1, 5, 2 and 7"


def test_beginnings_are_read_once_and_nothing_is_padded_on_the_left(folders, monkeypatch):
    stage = loaded(folders["qwen2"], max_new_tokens=1)
    asked = [says(SHARED, RED, f"{i} of many") for i in range(8)]
    lengths = [r.usage["input_tokens"] for r in stage(asked)]
    read: list[int] = []
    usual = Streams._forward
    monkeypatch.setattr(
        Streams,
        "_forward",
        lambda self, embeddings, *rest: (
            read.append(embeddings.shape[0] * embeddings.shape[1])
            or usual(self, embeddings, *rest)
        ),
    )
    stage(asked)
    assert sum(read) < max(lengths) + 8 * 16


def counted(stage, monkeypatch) -> list[int]:
    """How many pictures the vision model reads, call by call."""
    calls: list[int] = []
    usual = stage._model.model.get_image_features

    def noted(pixel_values, image_grid_thw=None, image_sizes=None, **options):
        sizes = {"image_grid_thw": image_grid_thw, "image_sizes": image_sizes}
        given = {name: value for name, value in sizes.items() if value is not None}
        calls.append(len(next(iter(given.values()))))
        return usual(pixel_values, **given, **options)

    monkeypatch.setattr(stage._model.model, "get_image_features", noted)
    return calls


@pytest.mark.parametrize("name", ["qwen2", "llava"])
def test_a_picture_is_read_once_in_a_run(folders, name, monkeypatch):
    stage = loaded(folders[name])
    calls = counted(stage, monkeypatch)
    first = stage([says(RED, "a"), says("b"), says(BLUE, "c"), says(RED, "d")])
    assert calls == [2]
    second = stage([says(GREEN, "a"), says(RED, "d"), says(BLUE, "c")])
    assert calls == [2, 1]
    assert second[1:] == [first[3], first[2]]
    assert loaded(folders[name])([says(GREEN, "a")]) == second[:1]


def test_pictures_of_one_colour_are_told_apart_by_their_shape(folders):
    """Their patches are all alike, upright and across."""
    stage = loaded(folders["qwen2"])
    shapes = [(112, 28), (28, 112), (56, 56)]
    black = [encode(Pillow.new("RGB", size)) for size in shapes]
    asked = [says(SHARED, shape, " what shape is this?") for shape in black]
    assert summaries(stage(asked)) == by_generate(stage, asked)


def test_a_batch_that_runs_out_of_memory_leaves_the_stage_as_it_was(folders, monkeypatch):
    stage = loaded(folders["qwen2"])
    expected = stage(REQUESTS)
    with monkeypatch.context() as patch:
        patch.setattr(Streams, "step", out_of_memory)
        with pytest.raises(torch.OutOfMemoryError):
            stage(REQUESTS)
    assert stage(REQUESTS[:3]) + stage(REQUESTS[3:]) == expected


def out_of_memory(self):
    raise torch.OutOfMemoryError("out of memory")


def test_answers_end_at_the_models_token_and_count_it(folders):
    stage = loaded(folders["qwen2"])
    (long,) = stage([REQUESTS[0]])
    words = stage._tokenizer(f" {long.value.text}")["input_ids"]
    stage._model.generation_config.eos_token_id = [words[7], words[3]]
    assert summaries(stage(REQUESTS)) == by_generate(stage, REQUESTS)
    (short,) = stage([REQUESTS[0]])
    assert short.usage["output_tokens"] <= 4
    assert short.notes["finish"] == "stop"


@pytest.mark.parametrize(
    "change",
    [
        {"layer_types": ["full_attention", "sliding_attention"]},
        {"sliding_window": 8},
        {"model_type": "bloom"},
        {"_attn_implementation": "eager"},
        {"whole": "internvl"},
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
        {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "factor": 2.0}},
    ],
)
def test_models_that_streams_would_read_otherwise_keep_generate(folders, change):
    config = loaded(folders["qwen2"])._model.config
    assert is_streamable(config)
    config.model_type = change.get("whole", config.model_type)
    for name, value in change.items():
        setattr(config.get_text_config(), name, value)
    assert not is_streamable(config)


def test_pictures_of_many_sizes_are_read_as_alone(folders):
    sizes = [(20, 20), (31, 200), (200, 31), (57, 56), (113, 229), (640, 480)]
    for name in ("qwen2", "llava"):
        stage = loaded(folders[name])
        asked = [says(picture(*size, i), "what?") for i, size in enumerate(sizes)]
        results = stage(asked)
        assert all(isinstance(r, Result) for r in results)
        assert summaries(results) == by_generate(stage, asked)
