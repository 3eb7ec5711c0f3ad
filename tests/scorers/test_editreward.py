"""EditReward against its published program: tiny weights in the published layout."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from clipscore_helpers import picture, pixels
from contents import content, document
from qwen_reward_helpers import rewards_of
from safetensors.torch import load_file, save_file
from scorer_helpers import made
from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration
from trial import sample

from plait.cluster.walks import drive
from plait.generators.architectures import config_of
from plait.generators.architectures import read_config as stored_files
from plait.generators.architectures.random_weights import processor_of
from plait.generators.base import Failure, Fault, NotApplicable, Result, Unscored
from plait.generators.document import Candidate, Document, Image, Score, Text, Turn
from plait.generators.errors import CheckpointError, PlaitError
from plait.scorers import editreward
from plait.scorers.editreward import EditReward
from plait.scorers.qwen_rewards import ENDING

pytestmark = pytest.mark.models

SIZES = [(64, 64), (300, 90), (31, 147), (90, 70)]
"""Of the originals; those of the edits are the same the other way round."""
TEXTS = ["a cat", "the large river\n  under a {red} bridge", "make it", "a cat"]
ASKED = list(enumerate(TEXTS))
TOLERANCE = 2e-5
"""Of rewards about 25: in another batch float32 sums are rounded otherwise."""
INSTRUCTIONS = {
    "INSTRUCTION_EDIT_FOLLOWING": "\nFollow.  \n**Text** - {text_prompt}\n",
    "INSTRUCTION_EDIT_QUALITY": "\nLook.\nText - {text_prompt}\n",
}
"""In the place of the released ones."""
HEADS = tuple(zip(("head_0", "head_1"), INSTRUCTIONS.values(), strict=True))


def given(number: int, text: str) -> Candidate:
    edited = picture(number + 10, SIZES[::-1][number])
    original = picture(number, SIZES[number])
    return Candidate(document(edited), (original, Text(text)))


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    digests = {
        name: hashlib.sha256(text.encode()).hexdigest()
        for name, text in INSTRUCTIONS.items()
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(editreward, "DIGESTS", digests)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny EditReward as it is published, and Qwen2.5-VL beside it."""
    place = tmp_path_factory.mktemp("editreward")
    lines = (f"{name} = {text!r}" for name, text in INSTRUCTIONS.items())
    (place / "prompts.py").write_text("\n".join(lines))
    stage = EditReward(weights="tiny")
    state = dict(stage._model.state_dict())
    state["lm_head.weight"] = torch.zeros_like(
        state["model.language_model.embed_tokens.weight"]
    )
    # Rewards of random weights hardly differ; these do.
    for head, _ in HEADS:
        state[f"rm_heads.{head}.5.weight"] = 40 * state[f"rm_heads.{head}.5.weight"]
    save_file(state, place / "model.safetensors")
    files = config_of("qwen2.5-vl-7b-instruct", tiny=True)
    # The published limits, so that images keep the size that EditReward gives them.
    limits = stored_files("qwen2.5-vl-7b-instruct")["preprocessor_config"]
    processor_of(files | {"preprocessor_config": limits}).save_pretrained(place)
    config = stage._model.model.config.to_dict()
    # The published base has more rows than its tokenizer has tokens.
    config["text_config"]["vocab_size"] += 64
    (place / "config.json").write_text(json.dumps(config))
    return place


def settings(folder: Path) -> dict[str, Any]:
    places = {"model": str(folder), "base": str(folder)}
    places["instruction"] = str(folder / "prompts.py")
    return {**places, "dtype": "float32", "device": "cpu"}


@pytest.fixture(scope="module")
def direct(folder: Path) -> dict[tuple[int, str], list[list[float]]]:
    """`EditRewardInferencer.reward` and its model's forward, one at a time, by head."""
    processor = AutoProcessor.from_pretrained(folder)
    processor.tokenizer.add_special_tokens({"extra_special_tokens": ["<|Reward|>"]})
    stored = load_file(folder / "model.safetensors")
    config = EditReward(weights="tiny")._model.model.config
    model = Qwen2_5_VLForConditionalGeneration(config).eval()
    body = {name: t for name, t in stored.items() if not name.startswith("rm_heads.")}
    model.load_state_dict(body)
    found = {}
    for number, text in ASKED:
        pair = [pixels(number, SIZES[number]), pixels(number + 10, SIZES[::-1][number])]
        found[number, text] = []
        for name, instruction in HEADS:
            layers = [f"rm_heads.{name}.{i}" for i in (0, 3, 5)]
            head = [(stored[f"{at}.weight"], stored[f"{at}.bias"]) for at in layers]
            told = instruction.format(text_prompt=text) + ENDING
            rewards = rewards_of(model, processor, pair, told, head)
            found[number, text].append(rewards)
    return found


def test_editreward_is_what_its_authors_program_computes(folder: Path, direct: Any) -> None:
    stage = EditReward(**settings(folder))
    together = stage([given(*asked) for asked in ASKED])
    for asked, outcome in zip(ASKED, together, strict=True):
        (following, first), (quality, second) = direct[asked]
        (alone,) = stage([given(*asked)])
        for own in (outcome, alone):
            assert isinstance(own, Result)
            assert own.value.value == pytest.approx(
                (following + quality) / 2, abs=TOLERANCE
            )
            assert own.value.parts["following"] == pytest.approx(following, abs=TOLERANCE)
            assert own.value.parts["quality"] == pytest.approx(quality, abs=TOLERANCE)
            spread = math.exp((first + second) / 2)
            assert own.value.parts["sigma"] == pytest.approx(spread, rel=TOLERANCE)
    assert np.ptp([heads[0][0] for heads in direct.values()]) > 100 * TOLERANCE
    assert direct[ASKED[0]][0] != direct[ASKED[0]][1]


def test_the_order_of_original_and_edit_counts(folder: Path) -> None:
    one, two = picture(0), picture(1)
    stage = EditReward(**settings(folder))
    pairs = [
        Candidate(document(b), (a, Text("a cat"))) for a, b in ((one, two), (two, one))
    ]
    there, back = stage(pairs)
    assert abs(there.value.value - back.value.value) > 100 * TOLERANCE


def test_the_instructions_are_read_from_the_user_s_copy(
    folder: Path, tmp_path: Path
) -> None:
    for file, said in ((None, "models.editreward.instruction"), ("absent.py", "absent.py")):
        own = settings(folder) | {"instruction": file and str(tmp_path / file)}
        with pytest.raises(PlaitError, match=said):
            EditReward(**own)
    (tmp_path / "other.py").write_text("INSTRUCTION_EDIT_FOLLOWING = 'Rate {text_prompt}'")
    with pytest.raises(PlaitError, match="does not hold the published prompts"):
        EditReward(**settings(folder) | {"instruction": str(tmp_path / "other.py")})


def test_other_keys_are_named_and_a_bad_record_fails_alone(
    folder: Path, tmp_path: Path
) -> None:
    stored = load_file(folder / "model.safetensors")
    stored["rm_heads.head_1.6.bias"] = stored.pop("rm_heads.head_1.5.bias")
    save_file(stored, tmp_path / "model.safetensors")
    expected = r"missing: rm_heads\.head_1\.5\.bias.*unexpected: rm_heads\.head_1\.6\.bias"
    with pytest.raises(CheckpointError, match=expected):
        EditReward(**settings(folder) | {"model": str(tmp_path)})
    stage = EditReward(weights="tiny")
    unread = Candidate(document(Image.of(b"no image")), given(0, "a cat").question)
    long = Candidate(document(picture(0)), (picture(1), *content("the river " * 20000)))
    *bad, good = stage([unread, long, given(0, "a cat")])
    assert {type(outcome) for outcome in bad} == {Failure}
    assert {outcome.fault for outcome in bad} == {Fault.BAD_INPUT}
    assert isinstance(good, Result)


def test_an_edit_of_one_image_is_scored_and_other_queries_do_not_apply() -> None:
    scorer = made("editreward")
    original, edited = picture(0), picture(1)
    turn = Turn("user", (original, Text("Make it blue.")))
    query = replace(sample(0), turns=(turn,))
    asked: list[Candidate] = []

    def score(jobs: Any) -> list[Any]:
        asked.extend(job.input for job in jobs)
        return [Result(Score(1.5)) for _ in jobs]

    outcome = drive(scorer.judge(query, document(edited)), score)
    assert isinstance(outcome, Result)
    assert (asked[0].question, asked[0].document) == (
        (original, Text("Make it blue.")),
        document(edited),
    )
    for turns in ((Turn("user", (Text("Draw."),)),), (Turn("user", (original,)),)):
        other = replace(query, turns=turns)
        assert isinstance(
            drive(scorer.judge(other, document(edited)), score), NotApplicable
        )
    two = Document((edited, edited))
    assert isinstance(drive(scorer.judge(query, two), score), Unscored)
    assert len(asked) == 1
