"""Images by a class's own `generate`, beside the class itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import emu3_helpers
import janus_helpers
import numpy as np
import pytest
import torch
import vlm_helpers
from natives import asked
from picture_helpers import smooth

from plait.generators.base import Failure, Result
from plait.generators.document import ImageRequest
from plait.generators.errors import CheckpointError, UsageError
from plait.pipelines.systems import Models, resolve
from plait.pipelines.vlm.images import Emu3Layout, GeneratedImages
from plait.pipelines.vlm.stage import VisionLanguageModel

pytestmark = pytest.mark.models

EXACT = {"device": "cpu", "dtype": "float32"}
PROMPTS = ["a small boat on the river", "an old house"]


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> dict[str, str]:
    helpers = {"emu3": emu3_helpers, "janus": janus_helpers}
    folder = tmp_path_factory.mktemp("declared")
    return {name: str(h.checkpoint(folder / name)) for name, h in helpers.items()}


def drawing(place: str, **settings: Any) -> GeneratedImages:
    small = {"image_area": emu3_helpers.AREA}
    return GeneratedImages(model=place, **EXACT, **small | settings)


def requests(*seeds: int, prompt: str = PROMPTS[0]) -> list[ImageRequest]:
    return [ImageRequest(prompt, seed=seed) for seed in seeds]


def by_the_class(prompt: str, negative: str, **choice: Any) -> torch.Tensor:
    """Tokens as transformers' documentation writes them, with two passes a step."""
    processor, model = emu3_helpers.processor(), emu3_helpers.model()
    words = processor.tokenizer

    def read(text: str) -> Any:
        return processor(
            text=[text],
            return_for_image_generation=True,
            image_area=emu3_helpers.AREA,
            return_tensors="pt",
        )

    inputs, free = read(prompt), read(negative)
    height, width = map(int, inputs.pop("image_sizes")[0])
    layout = Emu3Layout.of(model, words, height, width)
    begin = inputs["input_ids"].shape[1]

    def allowed(_: int, ids: torch.Tensor) -> list[int]:
        fixed = layout.only_token_at(len(ids) - begin)
        return layout.codes.tolist() if fixed is None else [fixed]

    written = model.generate(
        **inputs,
        max_new_tokens=layout.length,
        prefix_allowed_tokens_fn=allowed,
        negative_prompt_ids=free["input_ids"],
        negative_prompt_attention_mask=free["attention_mask"],
        **choice,
    )
    return written[:, begin:]


def test_emu3_writes_the_tokens_of_generate_for_all_prompts_at_once(
    places, monkeypatch
) -> None:
    stage, written = drawing(places["emu3"], greedy=True, negative_prompt="bad"), []
    model, suffix = stage.drawer.model, stage.drawer.suffix
    decode = model.decode_image_tokens
    monkeypatch.setattr(
        model, "decode_image_tokens", lambda **a: written.append(a) or decode(**a)
    )
    outcomes = stage([ImageRequest(prompt, seed=1) for prompt in PROMPTS])
    tokens = written[0]["image_tokens"]
    for prompt, ours, outcome in zip(PROMPTS, tokens, outcomes, strict=True):
        how = {"guidance_scale": 3.0, "do_sample": False}
        assert torch.equal(ours, by_the_class(prompt + suffix, "bad", **how)[0])
        assert outcome.value.pixels.shape == (48, 48, 3)
        assert outcome.notes["prompt"] == prompt + suffix
    assert not torch.equal(*tokens)
    pixels = emu3_helpers.model().decode_image_tokens(
        image_tokens=tokens, height=6, width=6
    )
    expected = emu3_helpers.processor().postprocess(pixels)["pixel_values"]
    for image, outcome in zip(expected, outcomes, strict=True):
        difference = np.asarray(image).astype(int) - outcome.value.pixels
        assert np.abs(difference).max() <= 1
    unguided = drawing(places["emu3"], greedy=True, guidance=1)
    assert np.any(unguided(requests(1))[0].value.pixels != outcomes[0].value.pixels)


def test_a_sampled_image_depends_on_its_seed_alone(places) -> None:
    for name, count in (("emu3", 3), ("janus", 2)):
        stage = drawing(places[name])
        state = torch.get_rng_state()
        together = [o.value.pixels for o in stage(requests(*range(count), 0))]
        assert torch.equal(torch.get_rng_state(), state)
        alone = stage(requests(0))[0].value.pixels
        assert np.array_equal(together[0], together[-1])
        assert np.abs(together[0].astype(int) - alone).max() <= 1
        assert np.any(together[0] != together[1])


def test_janus_is_drawn_by_its_own_generate(places) -> None:
    stage = drawing(places["janus"], greedy=True)
    (outcome,) = stage(requests(1))
    processor, model = janus_helpers.processor(), janus_helpers.model()
    message = {"role": "user", "content": [{"type": "text", "text": PROMPTS[0]}]}
    text = processor.apply_chat_template(
        [message], tokenize=False, add_generation_prompt=True
    )
    inputs = processor(text, generation_mode="image", return_tensors="pt")
    codes = model.generate(
        **inputs, generation_mode="image", guidance_scale=5, do_sample=False
    )
    values = model.decode_image_tokens(codes)[0]
    expected = ((values.detach().clamp(-1, 1) + 1) / 2 * 255).numpy()
    assert np.abs(outcome.value.pixels - expected).max() <= 1
    assert outcome.notes["by"] == "JanusForConditionalGeneration.generate"
    bad = stage([ImageRequest(" ", seed=1), ImageRequest("a cat")])
    assert all(isinstance(o, Failure) for o in bad)


@pytest.mark.parametrize("name", ["emu3", "janus"])
def test_the_class_also_reads_images_and_writes(name, places) -> None:
    """By streams or `generate`; the ids of the class itself, greedily."""
    stage = VisionLanguageModel(model=places[name], max_new_tokens=8, **EXACT)
    request = asked("the old ", smooth(1), "house")
    (outcome,) = stage([request])
    assert isinstance(outcome, Result)
    helpers = {"emu3": emu3_helpers, "janus": janus_helpers}[name]
    inputs = stage._prompts.encode([stage._prompts(request)])
    written = helpers.model().generate(**inputs, max_new_tokens=8, do_sample=False)
    text = helpers.processor().tokenizer.decode(
        written[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True
    )
    assert outcome.value.text == text.strip()


def test_a_class_without_images_is_refused_with_what_it_declares(tmp_path: Path) -> None:
    folder = vlm_helpers.save_tiny(tmp_path)
    with pytest.raises(CheckpointError, match=r"declares text .* no image"):
        drawing(str(folder))


def test_a_declared_model_is_a_system_of_rounds(places) -> None:
    chat = {"draft": {"model": places["janus"]}, "rounds": 2}
    name = f"native:{places['emu3']}"
    models = Models(weights="pretrained", overrides={name: chat})
    system, alone = (resolve(n, models) for n in (name, f"{name}@t2i"))
    assert [s.stage for s in system.stages] == ["vision-language-model", "generated-images"]
    assert [s.options["model"] for s in system.stages] == [places["janus"], places["emu3"]]
    assert (system.rounds, alone.stages) == (2, system.stages[1:])
    with pytest.raises(UsageError, match="--weights pretrained"):
        resolve(name, Models(weights="tiny"))
