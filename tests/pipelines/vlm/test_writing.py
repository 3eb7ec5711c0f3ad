"""What models write: by streams and by `generate`, against the library on its own."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from endpoint_helpers import says
from PIL import Image as Pillow
from transformers import (
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from vlm_helpers import (
    BLUE,
    FAMILIES,
    GREEN,
    RED,
    GenerateStage,
    library,
    loaded,
    picture,
    shared,
)

from plait.generators.base import Result
from plait.generators.content import join_texts
from plait.generators.decoding.streams import Streams
from plait.generators.document import Text
from plait.generators.images import decode, encode
from plait.pipelines.chat.settings import ChatSettings
from plait.pipelines.vlm.decoding import TokenChooser, is_streamable
from plait.pipelines.vlm.stage import VisionLanguageModel

pytestmark = pytest.mark.models

SHARED = "here is a question about a picture of the sea and the mountain " * 6
ONE_IMAGE = [
    *(says(SHARED, image, "what?") for image in (RED, GREEN, BLUE, RED)),
    says("plain water"),
    says(BLUE, "tell me a story"),
    says(SHARED, "what do they show?"),
]
SEVERAL = [
    says(SHARED, RED, GREEN, "what do they show?"),
    *ONE_IMAGE[3:],
    says(SHARED, RED, "and ", BLUE, " and ", RED, "?"),
]
ASKED = {name: ONE_IMAGE if name == "llava" else SEVERAL for name in FAMILIES}
GENERATED = ("internvl", "cosmos3", "qwen3", "gemma3")
STREAMED = tuple(name for name in FAMILIES if name not in GENERATED)


def summaries(results) -> list[tuple[str, str, int]]:
    assert all(isinstance(r, Result) for r in results), results
    return [(r.value.text, r.notes["finish"], r.usage["output_tokens"]) for r in results]


@pytest.mark.parametrize(
    ("name", "penalty"),
    [
        *((name, 1.0) for name in FAMILIES),
        *((n, 1.5) for n in ("qwen2", "llava", "internvl")),
    ],
)
def test_a_batch_answers_as_the_library_does_each_request_alone(name, penalty):
    """`apply_chat_template` and `generate` for one conversation, as a model card has it."""
    model, processor = library(name)
    options = {"system": "Be brief.", "repetition_penalty": penalty, "rows": 3}
    stages = [loaded(name, **options)]
    if penalty > 1 and name in STREAMED:
        stages.append(loaded(name, GenerateStage, **options))
    outcomes = [stage(ASKED[name]) for stage in stages]
    assert len({text for text, *_ in summaries(outcomes[0])}) >= 3
    for i, request in enumerate(ASKED[name]):
        # Neighbouring texts are one, of which Gemma's template cuts both ends.
        content = [
            {"type": "text", "text": s.text}
            if isinstance(s, Text)
            else {"type": "image", "image": decode(s)}
            for s in join_texts(request.turns[0].content)
        ]
        system = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
        talk = [system, {"role": "user", "content": content}]
        how = {"tokenize": True, "return_dict": True, "return_tensors": "pt"}
        inputs = processor.apply_chat_template(talk, add_generation_prompt=True, **how)
        more = {"repetition_penalty": penalty} if penalty > 1 else {}
        ids = model.generate(**inputs, max_new_tokens=16, do_sample=False, **more)
        start = inputs["input_ids"].shape[1]
        text = processor.tokenizer.decode(ids[0, start:], skip_special_tokens=True)
        for results in outcomes:
            assert results[i].value.text == text.strip()
            assert results[i].usage["input_tokens"] == start
            assert results[i].usage["output_tokens"] == len(ids[0]) - start
            assert results[i].notes["prompt"] == processor.apply_chat_template(
                talk, add_generation_prompt=True, tokenize=False
            )


NUCLEUS = {"temperature": 1.0, "top_p": 0.9, "top_k": 40}
PENALISED = {"temperature": 0.7, "repetition_penalty": 1.3}


@pytest.mark.parametrize(
    ("name", "drawing"),
    [("qwen2", PENALISED), ("llava", NUCLEUS), ("internvl", NUCLEUS)],
)
def test_drawn_text_follows_the_records_seed_alone(name, drawing):
    """Whoever is in the batch, in whatever order, by streams and by `generate`."""
    stage = loaded(name, rows=3, **drawing)
    asked = [replace(r, seed=7 * i) for i, r in enumerate(ASKED[name])]
    asked += [replace(asked[0], seed=s) for s in (100, 101)]
    together = summaries(stage(asked))
    torch.manual_seed(1)
    assert summaries(stage(asked[::-1])) == together[::-1]
    assert summaries(loaded(name, GenerateStage, **drawing)(asked[:4])) == together[:4]
    assert len({together[0], *together[-2:]}) == 3


@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"repetition_penalty": 0.6},
        {"temperature": 1.3, "top_p": 0.8, "top_k": 6, "repetition_penalty": 1.4},
        {"temperature": 0.7, "top_p": 0.6},
    ],
    ids=str,
)
def test_tokens_are_chosen_as_the_library_does_for_each_record_alone(sampling):
    """Records of all ages come in any order; a token is drawn in float64 by the formula."""
    random = np.random.default_rng(2)
    torch.manual_seed(2)
    seeds, settings = (5, 6, 5, 9), ChatSettings(model="m", **sampling)
    texts = [torch.from_numpy(random.integers(0, 20, n)) for n in (1, 4, 9, 3)]
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    choose = TokenChooser(settings, texts.copy(), seeds)
    for _ in range(30):
        records = random.permutation(4)[: random.integers(1, 5)].tolist()
        logits = 3 * torch.randn(len(records), 20)
        chosen = choose(logits, torch.tensor(records)).tolist()
        for row, record, token in zip(logits, records, chosen, strict=True):
            scores = by_the_library(row[None], texts[record][None], settings)
            assert token == drawn_alone(scores[0], settings, generators[record])
            texts[record] = torch.cat([texts[record], torch.tensor([token])])


def by_the_library(scores, ids, s):
    if s.repetition_penalty != 1:
        scores = RepetitionPenaltyLogitsProcessor(s.repetition_penalty)(ids, scores)
    if s.temperature:
        scores = TemperatureLogitsWarper(s.temperature)(ids, scores)
    if s.top_k:
        scores = TopKLogitsWarper(s.top_k)(ids, scores)
    return TopPLogitsWarper(s.top_p)(ids, scores) if s.top_p < 1 else scores


def drawn_alone(scores, s, generator) -> int:
    if not s.temperature:
        return int(scores.argmax())
    sums = np.cumsum(scores.double().softmax(-1).numpy())
    number = torch.rand((), generator=generator, dtype=torch.float64).item()
    return int(np.searchsorted(sums, number * sums[-1], side="right"))


def test_an_answer_that_ends_makes_room_for_the_next(monkeypatch):
    limits = zip(SEVERAL, (9, 1, 5, 2, 7, 3), strict=True)
    asked = [replace(request, max_tokens=limit) for request, limit in limits]
    expected = shared("qwen2", GenerateStage)(asked)
    at_once, usual = [], Streams.step
    monkeypatch.setattr(
        Streams, "step", lambda self: at_once.append(len(self)) or usual(self)
    )
    assert loaded("qwen2", rows=2)(asked) == expected
    assert at_once == [2] * 12 + [1] * 3, "9 and 3 tokens beside 1, 5, 2 and 7"


def test_an_image_is_read_once_in_a_run(monkeypatch):
    stage, calls = loaded("qwen2"), []
    usual = stage._model.model.get_image_features

    def noted(pixel_values, **about):
        calls.append(len(next(v for n, v in about.items() if n.startswith("image"))))
        return usual(pixel_values, **about)

    monkeypatch.setattr(stage._model.model, "get_image_features", noted)
    first = stage([says(RED, "a"), says("b"), says(BLUE, "c"), says(RED, "d")])
    second = stage([says(GREEN, "a"), says(RED, "d"), says(BLUE, "c")])
    assert calls == [2, 1]
    assert second[1:] == [first[3], first[2]]
    assert shared("qwen2")([says(GREEN, "a")]) == second[:1]


@pytest.mark.parametrize("name", ["qwen2", "llava"])
def test_images_of_many_sizes_are_read_as_alone(name):
    """Those of one colour are told apart by their shape alone."""
    black = [Pillow.new("RGB", size) for size in ((112, 28), (28, 112), (56, 56))]
    sizes = [(20, 20), (31, 200), (57, 56), (640, 480)]
    images = [*map(encode, black), *(picture(*s, i) for i, s in enumerate(sizes))]
    asked = [says(SHARED, image, "what?") for image in images]
    results = summaries(loaded(name, max_new_tokens=6)(asked))
    own = loaded(name, GenerateStage, max_new_tokens=6)
    assert results == [summaries(own([request]))[0] for request in asked]


def test_a_batch_that_runs_out_of_memory_leaves_the_stage_as_it_was(monkeypatch):
    def out_of_memory(self):
        raise torch.OutOfMemoryError("out of memory")

    stage = loaded("qwen2")
    expected = stage(SEVERAL)
    with monkeypatch.context() as patch:
        patch.setattr(Streams, "step", out_of_memory)
        with pytest.raises(torch.OutOfMemoryError):
            stage(SEVERAL)
    assert stage(SEVERAL[:3]) + stage(SEVERAL[3:]) == expected


@pytest.mark.parametrize("kind", [VisionLanguageModel, GenerateStage])
def test_answers_end_at_the_models_token_and_count_it(kind):
    stage = loaded("qwen2", kind)
    long = stage(SEVERAL)
    words = stage._tokenizer(f" {long[0].value.text}")["input_ids"]
    stage._model.generation_config.eos_token_id = [words[7], words[3]]
    for before, after in zip(long, stage(SEVERAL), strict=True):
        own = stage._tokenizer(f" {before.value.text}")["input_ids"]
        ends = [i for i, token in enumerate(own) if token in (words[7], words[3])]
        count = ends[0] + 1 if ends else 16
        assert after.usage["output_tokens"] == count
        assert after.notes["finish"] == ("stop" if ends else "length")
        assert before.value.text.startswith(after.value.text)


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
def test_models_that_streams_would_read_otherwise_keep_generate(change):
    config = copy.deepcopy(library("qwen2")[0].config)
    assert is_streamable(config)
    config.model_type = change.get("whole", config.model_type)
    for name, value in change.items():
        setattr(config.get_text_config(), name, value)
    assert not is_streamable(config)
