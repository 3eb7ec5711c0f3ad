"""Prompts encoded ahead: the images of plain calls, and how often encoders are called."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from diffusion_helpers import REQUESTS, shared, stage, tiny_pipeline

from plait.generators.diffusion import encodings
from plait.generators.diffusion.calls import Call
from plait.generators.diffusion.encodings import FAMILIES, encoder_of
from plait.pipelines.presets import TextToImageSettings

pytestmark = pytest.mark.models
ROUNDING = 1e-5
"""Of images between 0 and 1: rows of a batch are summed in another order."""
GUIDED = {"negative_prompt": "fog", "arguments": {"true_cfg_scale": 3.0}}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("openjourney", {"negative_prompt": "fog"}),
    ("sdxl", {}),
    ("sdxl", {"negative_prompt": "fog"}),
    ("sdxl-turbo", {}),
    ("sd3", {}),
    ("flux", {"max_sequence_length": 16}),
    ("flux", GUIDED),
    ("flux2-klein", {}),
    ("flux2-dev", {}),
    ("qwen-image", {}),
    ("z-image", {}),
    ("z-image", {"guidance": 0.5}),
    ("z-image-turbo", {}),
    ("pixart-sigma", {}),
    ("sana", {}),
]


@pytest.mark.parametrize(("name", "changes"), CASES)
def test_images_are_those_of_the_prompts_themselves(name, changes):
    """Encoded at once, and again from memory beside others, in another order."""
    drawer = (stage(name, **changes) if changes else shared(name)).drawer
    assert drawer.encoder is not None
    requests = [REQUESTS[0], REQUESTS[4]]

    def draw(encoded: bool) -> np.ndarray:
        each: dict[str, Any] = {"prompt": [r.prompt for r in requests]}
        each["generator"] = [torch.Generator().manual_seed(r.seed) for r in requests]
        further: dict[str, Any] = {}
        if encoded:
            further = drawer.encoder.conditions(each)
        elif drawer.negative_prompt is not None:
            further = {"negative_prompt": [drawer.negative_prompt] * len(requests)}
        return drawer.pipeline(**{**each, **further, **drawer.arguments}).images

    np.testing.assert_allclose(draw(True), draw(False), rtol=0, atol=ROUNDING)
    requests = [REQUESTS[1], REQUESTS[4]]
    np.testing.assert_allclose(draw(True), draw(False), rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("name", ["sd3", "qwen-image", "z-image"])
def test_a_prompt_is_encoded_beside_a_longer_one_as_alone(name):
    """On a GPU they are encoded together; Qwen-Image fills the shorter one up."""
    encoder = shared(name).drawer.encoder
    texts = ["rain", "two cats, a dog"]
    for text, together in zip(texts, encoder._encode(texts), strict=True):
        (alone,) = encoder._encode([text])
        assert together.keys() == alone.keys()
        for part, value in alone.items():
            torch.testing.assert_close(together[part], value, rtol=1e-5, atol=1e-5)


def test_all_families_are_tried():
    tried = {type(shared(name).drawer.pipeline).__name__ for name, _ in CASES}
    assert tried == FAMILIES.keys()


def count_calls(pipeline: Any) -> Counter[str]:
    """Prompts that each text encoder is given from now on."""
    counts: Counter[str] = Counter()
    for name, module in pipeline.components.items():
        if name.startswith("text_encoder"):
            module.register_forward_pre_hook(
                lambda _, given, named, name=name: counts.update(
                    {name: len(given[0] if given else named["input_ids"])}
                ),
                with_kwargs=True,
            )
    return counts


@pytest.mark.parametrize("name", ["sd3", "qwen-image"])
def test_each_distinct_prompt_is_encoded_once(name):
    """In a batch and across batches; with the negative one, which is encoded once."""
    drawing = stage(name)
    counts = count_calls(drawing.drawer.pipeline)
    drawing(REQUESTS)
    encoders = [n for n in drawing.drawer.pipeline.components if n.startswith("text_enc")]
    # SD3 is asked for what its negative prompt means, beside an empty prompt.
    extra = 2 if name == "sd3" else 1
    distinct = len({r.prompt for r in REQUESTS})
    assert counts == dict.fromkeys(encoders, distinct + extra)
    drawing([*REQUESTS[3:], *REQUESTS[:1]])
    assert counts == dict.fromkeys(encoders, distinct + extra)


def test_a_batch_with_encodings_of_its_own_has_the_negative_one_encoded_once():
    """As GILL's, of which the mapper gives what stands for the prompt."""
    drawer = stage("openjourney").drawer
    counts = count_calls(drawer.pipeline)
    own = torch.zeros(2, *drawer.encoder._encode(["rain"])[0]["prompt_embeds"].shape)
    each = {"prompt_embeds": own, "generator": [torch.Generator()] * 2}
    counts.clear()
    given = [drawer.encoder.conditions(each) for _ in range(2)]
    assert counts == {"text_encoder": 2}, "an empty prompt, and the negative one"
    expected, _ = drawer.pipeline.encode_prompt([""], torch.device("cpu"), 1, False)
    for one in given:
        assert one["prompt"] is None
        assert "prompt_embeds" not in one
        states = one["negative_prompt_embeds"]
        torch.testing.assert_close(states, expected.expand(2, -1, -1))
    assert drawer.encoder.conditions({**each, "negative_prompt_embeds": own}) == {}
    assert drawer.encoder.conditions({**each, "prompt_embeds": own[:, :3]}) == {}


def test_only_so_many_encodings_are_kept(monkeypatch):
    drawing = stage("sdxl-turbo")
    row = drawing.drawer.encoder._encode(["rain"])[0]
    size = encodings._bytes_of(row)
    assert all(value._base is None for value in row.values()), "no view of a batch"
    monkeypatch.setattr(encodings, "REMEMBERED_BYTES", 2 * size)
    drawing = stage("sdxl-turbo")
    counts = count_calls(drawing.drawer.pipeline)
    first, second, third = REQUESTS[:3]
    for requests, encoded in (([first, second], 2), ([first, third], 3), ([second], 4)):
        drawing(requests)
        assert set(counts.values()) == {encoded}


@pytest.mark.parametrize(
    ("architecture", "arguments"),
    [
        ("glm-image", {}),
        ("cosmos3", {}),
        ("instruct-pix2pix", {}),
        ("qwen-image-edit", {}),
        ("emu2", {}),
        ("sdxl", {"prompt_2": "rain"}),
        ("sdxl", {"cross_attention_kwargs": {"scale": 0.5}}),
    ],
)
def test_other_pipelines_encode_in_every_call(architecture, arguments):
    settings = TextToImageSettings(
        model="a/b", architecture=architecture, arguments=arguments
    )
    pipeline = tiny_pipeline(architecture)
    assert encoder_of(pipeline, Call(pipeline, settings), settings) is None
