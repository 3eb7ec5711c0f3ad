"""Janus beside `generate` of transformers' own class, on the same tiny weights."""

from __future__ import annotations

import janus_helpers as helpers
import numpy as np
import pytest
import torch
from natives import EXACT, asked, turn
from picture_helpers import smooth
from safetensors.torch import load

from plait.generators.document import ImageRequest, Request, Text
from plait.generators.images import decode
from plait.generators.janus.condition import JanusCondition
from plait.generators.janus.draft import JanusDraft

pytestmark = pytest.mark.models

PROMPTS = ("a small boat on the river", "the old house", "a bird. And then a tree?")
LONG = {"max_new_tokens": 24}


@pytest.fixture(scope="module")
def condition(stage):
    return stage("janus-pro-1b", "condition", image_greedy=True)


def conversation(request: Request) -> list[dict]:
    def part(segment) -> dict:
        is_text = isinstance(segment, Text)
        return {"type": "text", "text": segment.text} if is_text else {"type": "image"}

    return [{"role": t.role, "content": [*map(part, t.content)]} for t in request.turns]


def image_inputs(prompts) -> dict:
    processor = helpers.processor()
    texts = [
        processor.apply_chat_template(
            conversation(asked(prompt)), tokenize=False, add_generation_prompt=True
        )
        for prompt in prompts
    ]
    made = processor(texts, generation_mode="image", padding=True, return_tensors="pt")
    return {**made, "generation_mode": "image", "guidance_scale": 5}


def codes(outcomes) -> torch.Tensor:
    return torch.stack([load(o.value.read())["codes"].flatten() for o in outcomes])


REQUESTS = [
    asked("the old house"),
    asked(" What is it? ", "And how? ", smooth(1), "Why?"),
    asked(smooth(2, width=90), smooth(3), " is "),
    Request(
        (
            *(turn("system", "Be kind."), turn("user", "Hi", smooth(4))),
            *(turn("assistant", "A boat."), turn("user", "Where?")),
        ),
        1,
    ),
]


def test_texts_are_those_of_generate(stage):
    drafting, processor = stage("janus-pro-1b", **LONG), helpers.processor()
    outcomes = drafting(REQUESTS)
    for request, outcome in zip(REQUESTS, outcomes, strict=True):
        text = processor.apply_chat_template(
            conversation(request), tokenize=False, add_generation_prompt=True
        )
        images = [decode(image) for image in request.images] or None
        inputs = processor(text, images, return_tensors="pt")
        ids = helpers.model().generate(**inputs, do_sample=False, **LONG)[0]
        written = processor.decode(
            ids[inputs["input_ids"].shape[1] :], skip_special_tokens=True
        )
        assert outcome.value.text == written.strip()
        assert outcome.usage["input_tokens"] == inputs["input_ids"].shape[1]
    assert len({o.value.text for o in outcomes}) == len(outcomes)


def test_a_head_may_be_tied_to_the_embeddings(tmp_path):
    folder = helpers.checkpoint(tmp_path, tied=True)
    drafting = JanusDraft(model=str(folder), **EXACT, **LONG)
    assert torch.equal(drafting.table, drafting.janus.model.lm_head.weight)
    assert drafting(REQUESTS[:1])[0].value.text.strip()


@pytest.mark.parametrize("guidance", [5.0, 1.0])
def test_codes_are_those_of_generate(guidance, saved):
    settings = {**saved("janus-pro-1b", "condition"), **EXACT, "image_greedy": True}
    ours = JanusCondition(**settings, guidance=guidance)
    made = codes(ours([ImageRequest(prompt) for prompt in PROMPTS]))
    assert len({tuple(row.tolist()) for row in made}) == len(PROMPTS)
    inputs = {**image_inputs(PROMPTS), "guidance_scale": 5}
    theirs = helpers.model().generate(**inputs, do_sample=False)
    assert torch.equal(made.long(), theirs) == (guidance == 5.0)


def test_sampled_codes_have_the_distribution_of_generate(stage):
    """Of the first two codes, by a test of homogeneity of two samples."""
    from scipy.stats import chi2_contingency

    count, top_k = 150, 3
    ours = stage("janus-pro-1b", "condition", image_top_k=top_k)
    made = codes(ours([ImageRequest(PROMPTS[0], seed=seed) for seed in range(count)]))
    torch.manual_seed(0)
    theirs = helpers.model().generate(
        **image_inputs(PROMPTS[:1]),
        do_sample=True,
        top_k=top_k,
        num_return_sequences=count,
    )
    pairs = [[tuple(row) for row in rows[:, :2].tolist()] for rows in (made, theirs)]
    kinds = sorted({*pairs[0], *pairs[1]})
    table = np.array([[own.count(kind) for kind in kinds] for own in pairs])
    assert len(kinds) >= 4
    assert chi2_contingency(table).pvalue > 0.01


def test_pixels_are_those_of_the_class(stage, condition):
    outcomes = condition([ImageRequest(prompt) for prompt in PROMPTS])
    drawn = stage("janus-pro-1b", "render")(
        [ImageRequest(payload=o.value) for o in outcomes]
    )
    with torch.inference_mode():
        values = helpers.model().decode_image_tokens(codes(outcomes).long())
    theirs = helpers.processor().postprocess(
        list(values.permute(0, 3, 1, 2)), return_tensors="PIL.Image.Image"
    )["pixel_values"]
    for ours, image in zip(drawn, theirs, strict=True):
        difference = np.abs(ours.value.pixels.astype(int) - np.asarray(image).astype(int))
        assert difference.max() <= 1
        assert ours.value.pixels.std() > 5


def test_later_rounds_read_the_answer_so_far(stage):
    turns = (turn("user", "Tell a story."), turn("assistant", "A boat.", smooth(5)))
    after, within, blind = (
        stage("janus-pro-1b", **LONG, **own).prompt(Request(turns))
        for own in ({}, {"continuation": "answer"}, {"feed_images": False})
    )
    assert after.shown.endswith("Tell a story. A boat.\n<image>\n\n<|Assistant|>:")
    assert within.shown.endswith("story.\n\n<|Assistant|>: A boat.\n<image>")
    assert (after.images, within.images, blind.images) == (1, 1, 0)


def test_logits_that_are_no_numbers_fail_alone(saved):
    ours = JanusCondition(**saved("janus-pro-1b", "condition"), **EXACT, image_greedy=True)
    usual = ours([ImageRequest(PROMPTS[1])])
    broken = ours.janus.encode(" boat")[0]
    ours.table[broken] = torch.nan
    failed, sound = ours([ImageRequest(PROMPTS[0]), ImageRequest(PROMPTS[1])])
    assert "finite" in failed.reason or "numbers" in failed.reason
    assert torch.equal(codes([sound]), codes(usual))
