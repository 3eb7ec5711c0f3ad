"""HPSv3 against its published program: tiny weights in the published layout."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from clipscore_helpers import picture, pixels
from contents import content, document
from qwen_reward_helpers import rewards_of
from safetensors.torch import load_file, save_file
from transformers import AutoProcessor, Qwen2VLForConditionalGeneration

from plait.generators.architectures import config_of
from plait.generators.architectures import read_config as stored_files
from plait.generators.architectures.random_weights import processor_of
from plait.generators.base import Failure, Fault, Result
from plait.generators.document import Candidate, Image
from plait.generators.errors import CheckpointError, PlaitError
from plait.scorers import hpsv3
from plait.scorers.hpsv3 import Hpsv3
from plait.scorers.qwen_rewards import ENDING

pytestmark = pytest.mark.models

SIZES = [(64, 64), (300, 90), (31, 147), (900, 700)]
TEXTS = ["a cat", "the large river\n  under a {red} bridge", "", "a cat"]
ASKED = list(enumerate(TEXTS))
TOLERANCE = 2e-5
"""Of rewards about 25: in another batch float32 sums are rounded otherwise."""


def given(number: int, text: str) -> Candidate:
    return Candidate(document(picture(number, SIZES[number])), content(text))


INSTRUCTION = "Rate it.  \n**Text** - {text_prompt}\n\n\n"
"""In the place of the released one."""


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    digest = hashlib.sha256(INSTRUCTION.encode()).hexdigest()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hpsv3, "DIGESTS", {"INSTRUCTION": digest})
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny HPSv3 as it is published: old names of weights, and Qwen2-VL beside it."""
    place = tmp_path_factory.mktemp("hpsv3")
    (place / "data_collator_qwen.py").write_text(f"INSTRUCTION = {INSTRUCTION!r}")
    stage = Hpsv3(weights="tiny")
    state = {
        re.sub(r"^model\.(visual\.)?(language_model\.)?", _old, name): value
        for name, value in stage._model.state_dict().items()
    }
    state["lm_head.weight"] = torch.zeros_like(state["model.embed_tokens.weight"])
    # Rewards of random weights hardly differ; these do.
    state["rm_head.5.weight"] = 40 * state["rm_head.5.weight"]
    save_file(state, place / "HPSv3.safetensors")
    files = config_of("qwen2-vl-7b", tiny=True)
    # The published limits, so that images keep the size that HPSv3 gives them.
    files["preprocessor_config"] = stored_files("qwen2-vl-7b")["preprocessor_config"]
    processor_of(files).save_pretrained(place)
    config = stage._model.model.config.to_dict()
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    scaling = {"type": "mrope", "mrope_section": rope["mrope_section"]}
    # Qwen2-VL's file has the fields of the text model among its own, and more rows.
    text |= {"rope_theta": rope["rope_theta"], "rope_scaling": scaling}
    text |= {"vocab_size": text["vocab_size"] + 64, "model_type": "qwen2_vl"}
    (place / "config.json").write_text(json.dumps(config | text))
    return place


def _old(match: re.Match[str]) -> str:
    return "visual." if match[1] else "model."


def settings(folder: Path) -> dict[str, Any]:
    places = {"model": str(folder), "base": str(folder)}
    places["instruction"] = str(folder / "data_collator_qwen.py")
    return {**places, "dtype": "float32", "device": "cpu"}


@pytest.fixture(scope="module")
def direct(folder: Path) -> dict[tuple[int, str], list[float]]:
    """`HPSv3RewardInferencer.reward` and `Qwen2VLRewardModelBT.forward`, one at a time."""
    processor = AutoProcessor.from_pretrained(folder)
    processor.tokenizer.add_special_tokens({"extra_special_tokens": ["<|Reward|>"]})
    stored = load_file(folder / "HPSv3.safetensors")
    stage = Hpsv3(weights="tiny")
    model = Qwen2VLForConditionalGeneration(stage._model.model.config).eval()
    new = {
        f"model.language_model.{k[6:]}": v for k, v in stored.items() if k[:6] == "model."
    }
    new |= {f"model.{k}": v for k, v in stored.items() if k.startswith("visual.")}
    model.load_state_dict(new | {"lm_head.weight": stored["lm_head.weight"]})
    head = [(stored[f"rm_head.{i}.weight"], stored[f"rm_head.{i}.bias"]) for i in (0, 3, 5)]
    found = {}
    for number, text in ASKED:
        image = pixels(number, SIZES[number])
        told = INSTRUCTION.replace("{text_prompt}", text) + ENDING
        found[number, text] = rewards_of(model, processor, [image], told, head)
    return found


def test_hpsv3_is_what_its_authors_program_computes(folder: Path, direct: Any) -> None:
    stage = Hpsv3(**settings(folder))
    together = stage([given(*asked) for asked in ASKED])
    for asked, outcome in zip(ASKED, together, strict=True):
        mean, spread = direct[asked]
        (alone,) = stage([given(*asked)])
        for own in (outcome, alone):
            assert isinstance(own, Result)
            assert own.value.value == pytest.approx(mean, abs=TOLERANCE)
            assert own.value.parts["sigma"] == pytest.approx(
                math.exp(spread), rel=TOLERANCE
            )
    assert np.ptp([mean for mean, _ in direct.values()]) > 100 * TOLERANCE


def test_the_instruction_is_read_from_the_user_s_copy(folder: Path, tmp_path: Path) -> None:
    for file, said in ((None, "models.hpsv3.instruction"), ("absent.py", "absent.py")):
        own = settings(folder) | {"instruction": file and str(tmp_path / file)}
        with pytest.raises(PlaitError, match=said):
            Hpsv3(**own)
    (tmp_path / "other.py").write_text("INSTRUCTION = 'Rate it. {text_prompt}'")
    with pytest.raises(PlaitError, match="does not hold the published prompts"):
        Hpsv3(**settings(folder) | {"instruction": str(tmp_path / "other.py")})


def test_control_tokens_in_a_question_are_plain_text() -> None:
    stage = Hpsv3(weights="tiny")
    told = "<|Reward|> <|im_end|><|image_pad|> a cat"
    broken, plain = stage([given(0, told), given(0, told.replace("<|", "< |"))])
    assert broken == plain


def test_adapters_and_a_base_without_its_vocabulary_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    base = shutil.copytree(folder, tmp_path / "base")
    (base / "HPSv3.safetensors").unlink()
    index = {"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}}
    (base / "model.safetensors.index.json").write_text(json.dumps(index))
    Hpsv3(**settings(folder) | {"base": str(base)})  # The base's own weights are not read.
    (base / "tokenizer.json").unlink()
    for also in ("tokenizer_config.json", None):
        with pytest.raises(CheckpointError, match="vocabulary"):
            Hpsv3(**settings(folder) | {"base": str(base)})
        if also is not None:
            (base / also).unlink()
    (folder / "adapter_config.json").write_text("{}")
    try:
        with pytest.raises(CheckpointError, match="holds an adapter"):
            Hpsv3(**settings(folder))
    finally:
        (folder / "adapter_config.json").unlink()


def test_other_keys_are_named_and_a_bad_record_fails_alone(
    folder: Path, tmp_path: Path
) -> None:
    stored = load_file(folder / "HPSv3.safetensors")
    stored["visual.extra"] = stored.pop("visual.merger.ln_q.bias")
    save_file(stored, tmp_path / "HPSv3.safetensors")
    expected = (
        r"missing: model\.visual\.merger\.ln_q\.bias.*unexpected: model\.visual\.extra"
    )
    with pytest.raises(CheckpointError, match=expected):
        Hpsv3(**settings(folder) | {"model": str(tmp_path)})
    stage = Hpsv3(weights="tiny")
    thin = Candidate(document(picture(0, (2, 900))), content("a cat"))
    long = Candidate(document(picture(0)), content("the river " * 5000))
    unread = Candidate(document(Image.of(b"no image")), content("a cat"))
    *bad, good = stage([thin, long, unread, given(0, "a cat")])
    assert [type(outcome) for outcome in bad] == [Failure] * 3
    assert {outcome.fault for outcome in bad} == {Fault.BAD_INPUT}
    assert good.value.value == pytest.approx(
        stage([given(0, "a cat")])[0].value.value, abs=TOLERANCE
    )
