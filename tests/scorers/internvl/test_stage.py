"""The judge as a stage: batches, budgets, outcomes and notes."""

from __future__ import annotations

import hashlib

import pytest
from contents import turn_of
from internvl_helpers import picture, request, save

from plait.generators.base import Failure, Fault, Kind, Result, Skip
from plait.generators.document import Image, Request
from plait.scorers.internvl.settings import MmieScoreSettings
from plait.scorers.internvl.stage import MmieScore

pytestmark = pytest.mark.models

models = pytest.mark.models
RED, WIDE = picture(1, 40, 30), picture(2, 90, 20)


@pytest.fixture(scope="module")
def stage(tmp_path_factory) -> MmieScore:
    """A published toy, which attends further back than the tiny one."""
    folder = save(tmp_path_factory.mktemp("stage"))
    overrides = {
        "model": str(folder),
        "device": "cpu",
        "dtype": "float32",
        "system": "judge",
    }
    return MmieScore(**overrides, max_new_tokens=40)


def mixed() -> list[Request]:
    return [
        request("score the picture ", RED),
        request("a"),
        request("the story shows each step " * 14, WIDE),
        request(WIDE, RED, " which one follows the text"),
        request("question answer feedback score " * 3),
        request("does ", RED, " match ", RED),
    ]


def texts(outcomes) -> list[str]:
    return [outcome.value.text for outcome in outcomes]


@models
def test_replies_depend_neither_on_the_batch_nor_on_its_order(stage):
    asked_for = mixed()
    together = stage(asked_for)
    assert texts(together) == [texts(stage([r]))[0] for r in asked_for]
    assert texts(together) == texts(stage(asked_for[::-1]))[::-1]
    lengths = {o.usage["output_tokens"] for o in together}
    assert len(lengths) > 1, "some end before others"
    assert len(set(texts(together))) == len(asked_for)


@models
@pytest.mark.parametrize("words", [15, 30])
def test_a_shared_beginning_is_read_once_and_changes_no_reply(stage, words, monkeypatch):
    """Below and above the change of frequencies; one request is alike to the last token."""
    rubric = "score the picture and the story by each step " * words
    asked_for = [
        request(rubric, RED, " the text follows"),
        request(rubric, RED, " the text follows"),
        request(rubric, RED, " it is vivid but the story is not complete"),
        request(rubric, WIDE, " the text follows"),
        request("a"),
    ]
    read = []
    forward = stage.judge.decoder.forward
    monkeypatch.setattr(
        stage.judge.decoder,
        "forward",
        lambda **inputs: (
            read.append(inputs["inputs_embeds"].shape[:2]) or forward(**inputs)
        ),
    )
    together = stage(asked_for)
    positions = sum(rows * columns for rows, columns in read if columns > 1)
    tokens = [o.usage["input_tokens"] for o in together]
    assert positions < 0.7 * sum(tokens)
    assert (tokens[0] > 220) is (words == 30)
    assert texts(together) == [texts(stage([r]))[0] for r in asked_for]


@models
def test_notes_and_usage(stage):
    outcome = stage([request("Image-0: ", RED, "\nscore")])[0]
    assert isinstance(outcome, Result)
    notes = dict(outcome.notes)
    assert notes.pop("finish") in ("stop", "length")
    assert notes == {
        "prompt": "<|system|>\njudge<|end|><|user|>\nImage-0: <image>\nscore<|end|>"
        "<|assistant|>\n",
        "input_tokens": outcome.usage["input_tokens"],
        "context": 4096,
        "over_context": False,
        "image_sizes": [[40, 30]],
        "tiles": [13],
        "max_tiles": 12,
    }
    assert outcome.usage["input_images"] == 1


@models
def test_what_cannot_be_answered_stands_alone(stage):
    good = request("score ", RED)
    outcomes = stage(
        [
            request(),
            good,
            request(" ", "\n"),
            request(Image.of(b"no picture"), "score"),
            request("a very long question " * 1000),
            Request((turn_of("judge", role="system"),)),
        ]
    )
    assert outcomes[1].value == stage([good])[0].value
    assert [type(o) for o in outcomes] == [Failure, Result, Failure, Failure, Skip, Failure]
    assert all(o.fault is Fault.BAD_INPUT for o in outcomes if isinstance(o, Failure))
    assert "neither text nor images" in outcomes[0].reason
    assert "no known image format" in outcomes[3].reason
    assert "0 images in 0 tiles of 4" in outcomes[4].reason
    assert "the model holds 880" in outcomes[4].reason
    assert stage([]) == []


def mmie_score(weights, settings):
    return MmieScoreSettings(**settings).spec("mmie-score", weights)


def test_what_enters_the_key():
    usual = mmie_score("dummy", {})
    assert {"system", "max_tiles", "context", "fit_context", "dtype"} <= set(usual.settings)
    assert not {"tiles_at_once", "device", "model"} & set(usual.settings)
    assert mmie_score("dummy", {"tiles_at_once": 4}).digest == usual.digest
    assert mmie_score("dummy", {"fit_context": False}).digest != usual.digest
    assert usual.settings["max_new_tokens"] == 1024
    assert mmie_score("tiny", {}).settings["max_new_tokens"] == 96
    assert mmie_score("tiny", {"max_new_tokens": 7}).settings["max_new_tokens"] == 7
    assert not usual.seeded
    assert usual.kind is Kind.DRAFT
    assert usual.placement.num_gpus == 1
    # 4.15 billion weights of two bytes and a fifth more, 8 contexts of 1.5 GiB.
    assert usual.placement.gpu_memory_gib == pytest.approx(9.3 + 12, abs=0.1)
    assert mmie_score("tiny", {}).placement.num_gpus == 0


def test_the_system_message_is_the_templates():
    """SHA-256 of `phi3-chat`'s message in internvl/conversation.py."""
    system = MmieScoreSettings().system
    result = hashlib.sha256(system.encode()).hexdigest()
    assert result == "da22fdde9f422876a0b725a4ecec9f15005bfaad700d33c87fe6f29b0bd09447"
