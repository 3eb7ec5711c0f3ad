"""Probabilities of answers, against transformers alone, one question at a time."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from vlm_helpers import BLUE, FAMILIES, GREEN, RED, GenerateStage, library, loaded, shared

from plait.generators.base import Failure, Fault, Result
from plait.generators.document import Image, LogprobsRequest, Text
from plait.generators.errors import UsageError
from plait.generators.images import decode
from plait.pipelines.systems import Models, answers_spec, lvlm_spec
from plait.pipelines.vlm.answers import AnswerProbabilities

pytestmark = pytest.mark.models

ANSWERS = ("Yes", " the", "the sea", "the sea and a boat", " seven")
QUESTIONS = ("Is it red?", "How many " + "small boats and " * 20 + "stones are there?")
TOLERANCE = 1e-4
"""Of log-probabilities about -10: in another batch float32 sums are rounded otherwise."""


def asks(
    image: Image, question: str, answers: tuple[str, ...] = ANSWERS
) -> LogprobsRequest:
    return LogprobsRequest((image,), (Text(question),), answers)


ASKED = [asks(RED, QUESTIONS[0]), asks(GREEN, QUESTIONS[1]), asks(BLUE, QUESTIONS[0])]


def logprobs_of(outcome: Any) -> dict[str, list[float]]:
    assert isinstance(outcome, Result), outcome
    answers = outcome.value.answers
    return {answer: [*own.logprobs] for answer, own in answers.items()}


def by_the_library(name: str, request: LogprobsRequest) -> dict[str, list[float]]:
    """One forward pass over the prompt and the answer, without padding or cache."""
    model, processor = library(name)
    (image,), (question,) = request.shown, request.question
    content = [
        {"type": "image", "image": decode(image)},
        {"type": "text", "text": question.text},
    ]
    how = {"tokenize": True, "return_dict": True, "return_tensors": "pt"}
    prompt = processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, **how
    )
    start, found = prompt["input_ids"].shape[1], {}
    for answer in request.answers:
        ids = torch.tensor(processor.tokenizer.encode(answer, add_special_tokens=False))
        behind = {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "mm_token_type_ids": torch.zeros_like(ids),
        }
        more = {
            name: torch.cat([prompt[name], values[None]], dim=1)
            for name, values in behind.items()
            if name in prompt
        }
        with torch.inference_mode():
            logits = model(**{**prompt, **more}).logits[0, start - 1 : -1].float()
        found[answer] = logits.log_softmax(-1).gather(1, ids[:, None])[:, 0].tolist()
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_a_batch_and_a_question_alone_are_as_the_library_says(name: str) -> None:
    stage = loaded(name, AnswerProbabilities)
    together = stage(ASKED)
    lengths = set()
    for request, outcome in zip(ASKED, together, strict=True):
        expected = by_the_library(name, request)
        (alone,) = stage([request])
        for own in (logprobs_of(outcome), logprobs_of(alone)):
            assert own.keys() == expected.keys()
            for answer, values in expected.items():
                assert own[answer] == pytest.approx(values, abs=TOLERANCE)
        first = expected[ANSWERS[0]]
        mean = math.exp(sum(first) / len(first))
        assert outcome.value.value == pytest.approx(mean, rel=TOLERANCE)
        lengths.add(outcome.usage["input_tokens"])
    assert len(lengths) > 1, "prompts are padded, or of different lengths"
    if name in ("qwen2", "llava"):
        stage._write = loaded(name, GenerateStage)._write
        for one, other in zip(together, stage(ASKED), strict=True):
            for answer, values in logprobs_of(one).items():
                assert logprobs_of(other)[answer] == pytest.approx(values, abs=TOLERANCE)


def test_probabilities_of_all_tokens_sum_to_one() -> None:
    stage = shared("qwen2", AnswerProbabilities)
    tokenizer = stage._tokenizer
    vocabulary = tokenizer.get_vocab().values()
    texts = {tokenizer.decode([i]): [i] for i in vocabulary}
    encoded = {text: tokenizer.encode(text, add_special_tokens=False) for text in texts}
    whole = tuple(text for text, ids in texts.items() if encoded[text] == ids)
    (outcome,) = stage([asks(RED, "What is it?", whole)])
    total = sum(math.exp(value) for (value,) in logprobs_of(outcome).values())
    assert 0.5 < total <= 1 + TOLERANCE, f"{len(whole)} of {len(vocabulary)} tokens"


def test_answers_that_begin_alike_share_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, rows = loaded("qwen2", AnswerProbabilities), list[int]()
    usual = stage._write
    monkeypatch.setattr(
        stage, "_write", lambda batch: rows.append(len(batch.limits)) or usual(batch)
    )
    # By the tokens " the", " seven", Y-e-s, Y-e-t, Y-e-s-. and N-o.
    for answers in ((" the", " seven"), (" the", "Yes", "Yet", "Yes."), ("Yes", "No")):
        stage([asks(RED, "Is it?", answers)])
    assert rows == [1, 1, 2]


def test_what_cannot_be_asked_fails_alone() -> None:
    stage = loaded("qwen2", AnswerProbabilities, max_input_tokens=200)
    good = asks(RED, "Is it red?")
    bad = [
        asks(RED, "  "),
        asks(RED, "Is it red?", ()),
        asks(RED, "Is it red?", ("Yes", "")),
        asks(Image.of(b"no image"), "Is it red?"),
        asks(RED, "word " * 300),
    ]
    outcomes = stage([bad[0], good, *bad[1:]])
    assert [type(o) for o in outcomes] == [Failure, Result, *[Failure] * 4]
    assert outcomes[1] == stage([good])[0]


def test_logits_that_are_no_numbers_are_a_failure() -> None:
    stage = loaded("qwen2", AnswerProbabilities)
    with torch.no_grad():
        stage._model.lm_head.weight[3] = torch.nan
    (outcome,) = stage([asks(RED, "Is it red?")])
    assert isinstance(outcome, Failure)
    assert outcome.fault is Fault.ERROR


def test_the_stage_of_a_model_is_named_by_what_is_read_alone() -> None:
    """How the model writes, as a system of the run, changes no record."""
    name = "qwen2-vl-7b"

    def spec(**settings: Any) -> Any:
        return answers_spec(name, Models(weights="tiny", overrides={name: settings}))

    usual = spec()
    assert spec(temperature=1.0, max_new_tokens=3, batch_size=4).digest == usual.digest
    assert spec(max_pixels=10_000).digest != usual.digest
    assert not spec(temperature=1.0).seeded
    assert usual.digest != lvlm_spec(name, Models(weights="tiny")).digest
    for other in ("anole", "gpt-4o", "openai:m"):
        with pytest.raises(UsageError, match="runs itself"):
            answers_spec(other, Models(weights="tiny"))
    engine = Models(weights="tiny", overrides={name: {"engine": "vllm"}})
    with pytest.raises(UsageError, match="engine"):
        answers_spec(name, engine)
