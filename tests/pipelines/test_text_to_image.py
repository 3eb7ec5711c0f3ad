"""The drawing stage: what it draws, and that neighbours in a batch do not matter."""

from __future__ import annotations

import functools
import inspect
import json
import shutil
from dataclasses import replace
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from diffusion_helpers import (
    CPU,
    INPUT_PIXELS,
    REQUESTS,
    Spy,
    arguments,
    from_folder,
    furthest,
    pixels,
    shared,
    stage,
    tiny_pipeline,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from picture_helpers import smooth
from PIL import Image as Pillow
from safetensors.numpy import save
from vlm_helpers import checkpoint, loaded

from plait.generators.base import Failure, Fault, Result, Skip
from plait.generators.catalogue import Named, by_name
from plait.generators.diffusion.calls import IN_BATCHES
from plait.generators.diffusion.designs import DESIGNS, PUBLISHED
from plait.generators.diffusion.inputs import SEEING
from plait.generators.document import Image, ImageRequest, Payload, Text
from plait.generators.errors import CheckpointError, UsageError
from plait.generators.images import decode, encode
from plait.pipelines.presets import t2i
from plait.pipelines.text_to_image import TextToImage

pytestmark = pytest.mark.models


def photo(seed: int) -> Image:
    """An image of a few large patches, as an edit is made of."""
    patches = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return encode(Pillow.fromarray(patches).resize((64, 64)))


EDITS = [replace(r, context=(photo(i % 3),)) for i, r in enumerate(REQUESTS)]
"""The requests above with an image each; the first and the fourth have the same."""
QWEN_EDITORS = ("qwen-image-edit", "qwen-image-edit-2511")
EDITORS = ("flux2-klein", "flux2-dev", *QWEN_EDITORS, "instruct-pix2pix")


def own_images(pipeline: Any, name: str, requests: list[ImageRequest]) -> np.ndarray:
    """Images as a user of diffusers draws them, one by one."""
    options = arguments(name)
    extra = {"guidance_scale": options["guidance"]}
    if name.startswith("qwen-image"):
        negative = options["negative_prompt"]
        extra = {"true_cfg_scale": options["guidance"], "negative_prompt": negative}
    if name == "cosmos3-nano":
        extra["num_frames"] = 1
    if name != "instruct-pix2pix":
        extra |= {"height": options["height"], "width": options["width"]}
    if options["max_sequence_length"]:
        extra["max_sequence_length"] = options["max_sequence_length"]
    pipeline.set_progress_bar_config(disable=True)
    drawings = [
        pipeline(
            prompt=r.prompt,
            num_inference_steps=options["steps"],
            generator=torch.Generator().manual_seed(r.seed),
            **extra,
            **({"image": decode(r.context[0])} if r.context else {}),
        )
        for r in requests
    ]
    images = [(getattr(d, "images", None) or d.video)[0] for d in drawings]
    return np.stack([np.asarray(image) for image in images]).astype(np.int16)


@pytest.mark.parametrize(
    ("name", "requests"),
    [
        *((n, REQUESTS) for n in by_name(Named.T2I) if n != EDITORS[-1]),
        *((n, EDITS) for n in EDITORS),
    ],
)
def test_batch_equals_pipeline_called_one_by_one(name, requests, tmp_path, monkeypatch):
    """Against diffusers' own loading and drawing of the same checkpoint on disk."""
    monkeypatch.setattr(INPUT_PIXELS, 64 * 64)
    design = DESIGNS[PUBLISHED[t2i(name).model]]
    tiny_pipeline(PUBLISHED[t2i(name).model]).save_pretrained(tmp_path)
    plain = name in QWEN_EDITORS and requests is REQUESTS
    kind = "QwenImagePipeline" if plain else design.pipeline
    theirs = getattr(diffusers, kind).from_pretrained(tmp_path)
    requests = [requests[0], requests[1], requests[3]]
    expected = own_images(theirs, name, requests)
    drawing = from_folder(tmp_path, name)
    assert furthest(pixels(drawing(requests)), expected) <= 1
    assert furthest(pixels(drawing(requests[1:2])), expected[1:2]) == 0
    assert furthest(expected[0], expected[2]) > 20, "the seed must matter"
    assert expected[0].std() > 10, "a tiny image must not be flat"


@pytest.mark.parametrize("name", EDITORS)
def test_images_matter_are_noted_and_stand_beside_requests_without_any(name, monkeypatch):
    monkeypatch.setattr(INPUT_PIXELS, 64 * 64)
    first, second, none = EDITS[0], replace(EDITS[0], context=(photo(9),)), REQUESTS[0]
    drawn = shared(name)([first, none, second])
    assert furthest(pixels(drawn[:1]), pixels(drawn[2:])) > 0
    assert drawn[0].notes["input_images"] == [first.context[0].digest]
    if name == "instruct-pix2pix":
        assert drawn[1] == shared(name)([none])[0]
        assert isinstance(drawn[1], Skip)
    else:
        assert "input_images" not in drawn[1].notes
        assert furthest(pixels(drawn[1:2]), pixels(shared(name)([none]))) == 0
        twin = drawn[1].notes.get("pipeline")
        assert twin == ("QwenImagePipeline" if name in QWEN_EDITORS else None)


def test_images_are_given_in_batches_only_where_each_prompt_has_its_own(monkeypatch):
    calls = {}
    for name in ("flux2-klein", "instruct-pix2pix"):
        drawing = stage(name)
        drawing.drawer.pipeline = spy = Spy(drawing.drawer.pipeline)
        drawing(EDITS[:3])
        calls[name] = spy.calls
    klein, pix2pix = calls["flux2-klein"], calls["instruct-pix2pix"]
    assert [call["prompt_embeds"].shape[0] for call in klein] == [1, 1, 1]
    assert [len(call["image"]) for call in klein] == [1, 1, 1]
    assert [(len(c["prompt"]), len(c["image"])) for c in pix2pix] == [(3, 3)]


def test_images_that_cannot_be_seen_fail_alone():
    odd = replace(EDITS[0], context=(Image.of(b"no image"),))
    many = replace(EDITS[0], context=(photo(1), photo(2)))
    good, *bad = shared("instruct-pix2pix")([EDITS[0], odd, many])
    assert isinstance(good.value.pixels, np.ndarray)
    (blind,) = shared("sdxl-turbo")(EDITS[:1])
    assert [f.fault for f in (*bad, blind)] == [Fault.BAD_INPUT] * 3
    assert "qwen-image-edit" in blind.reason


def test_images_are_brought_to_the_size_that_is_drawn():
    wide = encode(decode(photo(1)).resize((96, 32)))
    drawn = shared("instruct-pix2pix")([replace(EDITS[0], context=(wide,))])
    assert pixels(drawn).shape == (1, 64, 64, 3)


@pytest.mark.parametrize(("name", "how"), SEEING.items())
def test_images_go_under_the_names_that_diffusers_gives_them(name, how):
    kind = getattr(diffusers, name)
    assert how.argument in inspect.signature(kind.__call__).parameters
    sources = ["x", "y"][: how.most]
    given = how.conditions([("a cat", sources)])
    told = "<img><|image_1|></img><img><|image_2|></img>" * (name == "OmniGenPipeline")
    seen = sources if how.most != 1 else "x"
    assert given == {"prompt": [f"{told}a cat"], how.argument: [seen]}
    if how.plain is not None:
        twin = inspect.signature(getattr(diffusers, how.plain)).parameters
        assert set(twin) <= set(inspect.signature(kind).parameters)
    # Whether its seeds hold in batches does not matter where it draws one at a time.
    assert how.in_batches <= (name in IN_BATCHES)


@functools.cache
def drawn_alone(name: str) -> np.ndarray:
    return np.concatenate([pixels(shared(name)([r])) for r in REQUESTS])


@settings(max_examples=6, deadline=None)
@given(st.permutations(range(5)), st.integers(1, 4))
def test_neighbours_order_and_batch_size_do_not_matter(order, size):
    alone = drawn_alone("sdxl-turbo")
    for i in range(0, len(order), size):
        part = order[i : i + size]
        drawings = pixels(shared("sdxl-turbo")([REQUESTS[j] for j in part]))
        for j, image in zip(part, drawings, strict=True):
            assert furthest(image, alone[j]) <= 1


def starting_noise(name: str, seed: int) -> torch.Tensor:
    """The latents the pipeline starts from, before its scheduler scales them."""
    drawing, latents = stage(name, steps=1), []
    pipeline = drawing.drawer.pipeline
    prepare = pipeline.prepare_latents

    def keeping(*given, **named):
        prepared = prepare(*given, **named)
        latents.append(prepared[0] if isinstance(prepared, tuple) else prepared)
        return prepared

    pipeline.prepare_latents = keeping
    drawing([ImageRequest(prompt="rain", seed=3), ImageRequest(prompt="sun", seed=seed)])
    return latents[0][1:] / getattr(pipeline.scheduler, "init_noise_sigma", 1.0)


class Guardrail:
    """Blocks a prompt with a knife, and the image after a prompt with a wall."""

    def to(self, device):
        return self

    def check_text_safety(self, prompt):
        self.prompt = prompt
        return "knife" not in prompt

    def check_video_safety(self, frames):
        return None if "wall" in self.prompt else frames


def test_one_checkpoint_reads_and_draws_and_its_checker_is_asked(tmp_path, monkeypatch):
    """Cosmos3: transformers reads the weights that are part of diffusers' transformer.

    Where the checker is not installed, it is left out only if that is asked for.
    """
    folder = shutil.copytree(checkpoint("cosmos3"), tmp_path / "cosmos3")
    index = json.loads((folder / "model_index.json").read_text())
    checking = json.dumps(index | {"enable_safety_checker": True})
    (folder / "model_index.json").write_text(checking)
    with pytest.raises(CheckpointError, match='safety_checker = "off"'):
        from_folder(folder, "cosmos3-nano")
    drawing = from_folder(folder, "cosmos3-nano", safety_checker="off")
    expected = pixels(drawing(REQUESTS[:1]))
    reader = loaded(folder)._model.model.language_model.layers[0].self_attn
    weights = drawing.drawer.pipeline.transformer.state_dict()
    assert torch.equal(reader.q_proj.weight, weights["layers.0.self_attn.to_q.weight"])
    module = "diffusers.pipelines.cosmos.pipeline_cosmos3_omni.CosmosSafetyChecker"
    monkeypatch.setattr(module, Guardrail)
    checked = from_folder(folder, "cosmos3-nano")
    asked = [ImageRequest(w, seed=11) for w in ("a knife", "a bare wall", "a red house")]
    bloody, blocked, drawn = checked(asked)
    assert {bloody.fault, blocked.fault} == {Fault.UNSAFE}
    assert bloody.notes["prompt"] == "a knife"
    assert furthest(pixels([drawn]), expected) <= 1, "the checker's frames are 8-bit"


def test_glm_image_draws_from_images_as_its_pipeline_does(tmp_path):
    """From one, from two and from none, in one batch, whatever a prompt quotes.

    diffusers 0.42.1 joins what transformers 5.23.0 wants apart, so that its pipeline alone
    fails with any image: it is mended here.
    """
    tiny_pipeline("glm-image").save_pretrained(tmp_path)
    theirs = diffusers.GlmImagePipeline.from_pretrained(tmp_path)
    theirs.set_progress_bar_config(disable=True)
    reader = theirs.vision_language_encoder
    apart, sources = reader.get_image_tokens, [smooth(1, 64, 64), smooth(2, 64, 64)]
    requests, expected = [], []
    longer = "a sign that says 'OPEN' and 'SHUT'"
    for prompt, count in (("a 'sun'", 1), ("a 'sun'", 2), ("a 'sun'", 0), (longer, 0)):
        reader.get_image_tokens = lambda joined, *a, n=count: apart(joined.chunk(n), *a)
        seen = sources[:count]
        generator = torch.Generator().manual_seed(count)
        sides = {"height": 64, "width": 64, "num_inference_steps": 2}
        given = [decode(image) for image in seen] or None
        drawn = theirs(prompt, image=given, generator=generator, **sides)
        expected.append(np.asarray(drawn.images[0]).astype(np.int16))
        requests.append(ImageRequest(prompt, seed=count, context=tuple(seen)))
    drawing = from_folder(tmp_path, "glm-image")
    assert furthest(pixels(drawing(requests)), np.stack(expected)) <= 1
    assert furthest(pixels(drawing(requests[:1])), expected[0]) == 0
    other = replace(requests[0], context=(sources[1],))
    assert furthest(pixels(drawing([other])), expected[0]) > 20, "the image must matter"
    text = replace(requests[0], context=(Text("a sun"),))
    assert drawing.prior([text])[0].fault is Fault.BAD_INPUT


CODES = Payload.of(save({"prior_token_ids": np.zeros(9, np.int64)}))


def test_what_a_second_stage_cannot_draw_fails_alone():
    """No codes, codes of another size, and no prompt beside them."""
    both, good = shared("glm-image"), REQUESTS[0]
    (begun,) = both.prior([good])
    whole = replace(good, payload=begun.value)
    bad = [good, replace(good, payload=CODES), replace(whole, prompt=None)]
    *failed, drawn = both.render([*bad, whole])
    assert [outcome.fault for outcome in failed] == [Fault.BAD_INPUT] * 3
    assert isinstance(drawn, Result)


@pytest.mark.parametrize("token", [3, 64, 65])
def test_codes_that_are_no_whole_image_fail(token, monkeypatch):
    """An image's start is no code, and its end may come too early."""
    chosen = lambda *_: lambda logits, rows: torch.full_like(rows, token)  # noqa: E731
    monkeypatch.setattr("plait.pipelines.glm_image._Sampling", chosen)
    (outcome,) = shared("glm-image").prior(REQUESTS[:1])
    assert isinstance(outcome, Result if token == 3 else Failure)
    assert outcome.usage["output_tokens"] == (1 if token == 65 else 260)


def test_models_with_latents_of_one_shape_start_from_the_same_noise():
    expected = torch.randn((1, 4, 8, 8), generator=torch.Generator().manual_seed(77))
    for name in ("openjourney", "sdxl", "sdxl-turbo"):
        torch.testing.assert_close(starting_noise(name, 77), expected)
    wide = torch.randn((1, 16, 8, 8), generator=torch.Generator().manual_seed(77))
    torch.testing.assert_close(starting_noise("sd3", 77), wide)
    packed = diffusers.FluxPipeline._pack_latents(wide, 1, 16, 8, 8)
    torch.testing.assert_close(starting_noise("flux", 77), packed)


def test_a_request_that_cannot_be_drawn_fails_alone_and_others_say_how_they_were():
    wrong = {
        ImageRequest(seed=1): "None",
        ImageRequest(" \n", seed=1): "empty",
        ImageRequest("a cat"): "seed",
        ImageRequest("a cat", payload=Payload.of(b"x"), seed=1): "more",
        ImageRequest("a cat", context=(Text("x"),), seed=1): "more",
    }
    first, *bad, last = shared("sdxl-turbo")([REQUESTS[0], *wrong, REQUESTS[4]])
    assert {failure.fault for failure in bad} == {Fault.BAD_INPUT}
    assert all(w in f.reason for f, w in zip(bad, wrong.values(), strict=True))
    alone = pixels(shared("sdxl-turbo")([REQUESTS[0], REQUESTS[4]]))
    assert furthest(pixels([first, last]), alone) <= 1
    assert first.value.pixels.shape == (64, 64, 3)
    assert first.value.pixels.dtype == np.uint8
    assert first.usage == {"images": 1, "steps": 1}
    tokens = {"kept": 9, "dropped": 0, "cut": "", "limit": 77}
    assert first.notes == {
        "prompt": "a red house",
        "seed": 11,
        "size": [64, 64],
        "text_encoders": {"text_encoder": tokens, "text_encoder_2": tokens},
    }


def test_prefix_and_negative_prompt_reach_the_whole_batch():
    plain = pixels(shared("openjourney")(REQUESTS[:2]))
    drawing = stage("openjourney", prompt_prefix="mdj ", negative_prompt="fog")
    drawing.drawer.pipeline = spy = Spy(drawing.drawer.pipeline)
    outcomes = drawing(REQUESTS[:2])
    (call,) = spy.calls
    told, _ = spy.pipeline.encode_prompt(
        [f"mdj {r.prompt}" for r in REQUESTS[:2]], CPU, 1, False
    )
    led_away, _ = spy.pipeline.encode_prompt(["fog", "fog"], CPU, 1, False)
    torch.testing.assert_close(call["prompt_embeds"], told)
    torch.testing.assert_close(call["negative_prompt_embeds"], led_away)
    assert outcomes[0].notes["prompt"] == f"mdj {REQUESTS[0].prompt}"
    assert furthest(pixels(outcomes), plain) > 1


def test_images_are_never_watermarked(monkeypatch):
    """diffusers does so of its own accord where another package is installed."""

    class Mark:
        def apply_watermark(self, pictures):
            return pictures * 0

    module = "diffusers.pipelines.stable_diffusion_xl.pipeline_stable_diffusion_xl"
    monkeypatch.setattr(f"{module}.is_invisible_watermark_available", lambda: True)
    monkeypatch.setattr(f"{module}.StableDiffusionXLWatermarker", Mark, raising=False)
    assert tiny_pipeline("sdxl").watermark is not None
    assert pixels(stage("sdxl")(REQUESTS[:1])).std() > 10


def test_a_blocked_image_is_a_failure_and_its_neighbours_are_not():
    drawing = stage("openjourney")
    before, pipeline = pixels(drawing(REQUESTS)), drawing.drawer.pipeline
    # The checker blacks out what it blocks.
    pipeline.run_safety_checker = lambda images, *_: (
        images * torch.tensor([1, 1, 0, 1, 1])[:, None, None, None],
        [False, False, True, False, False],
    )
    after = drawing(REQUESTS)
    blocked = after.pop(2)
    assert blocked.fault is Fault.UNSAFE
    assert blocked.notes["prompt"] == REQUESTS[2].prompt
    assert furthest(pixels(after), np.delete(before, 2, axis=0)) <= 1
    unchecked = stage("openjourney", safety_checker="off")
    assert unchecked.drawer.pipeline.safety_checker is None
    assert furthest(pixels(unchecked(REQUESTS)), before) <= 1


@pytest.mark.parametrize(("value", "word"), [(float("nan"), "float32"), (-9.0, "black")])
def test_values_that_are_no_image_fail_alone(value, word):
    drawing = stage("sdxl")
    before = pixels(drawing(REQUESTS[:3]))
    decode_all = drawing.drawer.pipeline.vae.decode

    def spoilt(latents, **named):
        images = decode_all(latents, **named)[0]
        images[1] = value
        return (images,)

    drawing.drawer.pipeline.vae.decode = spoilt
    first, bad, last = drawing(REQUESTS[:3])
    assert (bad.fault, word in bad.reason) == (Fault.ERROR, True)
    assert furthest(pixels([first, last]), before[[0, 2]]) <= 1


@pytest.fixture
def compiled(monkeypatch):
    """Stages believe that they are compiled; the real compiler takes half a minute."""
    monkeypatch.setattr(
        "plait.generators.diffusion.drawer.compile_denoiser", lambda _: None
    )
    return lambda name, size: stage(name, compile=True, batch_size=size)


def test_compiled_batches_have_one_size_and_lose_their_padding(compiled):
    drawing = compiled("openjourney", 3)
    drawing.drawer.pipeline = spy = Spy(drawing.drawer.pipeline)
    drawings = drawing(REQUESTS)
    assert spy.sizes == [3, 3]
    assert furthest(pixels(drawings), pixels(shared("openjourney")(REQUESTS))) <= 1
    drawing.drawer.pipeline = spy.pipeline
    spy.pipeline.safety_checker.concept_embeds_weights.data.fill_(-1.0)
    assert [o.fault for o in drawing(REQUESTS[:2])] == [Fault.UNSAFE] * 2
    plain = stage("sdxl-turbo", batch_size=3)
    plain.drawer.pipeline = spy = Spy(plain.drawer.pipeline)
    plain(REQUESTS)
    assert spy.sizes == [5], "only those of a compiled model are padded"


def test_compiled_batch_shrinks_when_memory_runs_out(compiled):
    drawing = compiled("sdxl-turbo", 8)
    drawing.drawer.pipeline = spy = Spy(drawing.drawer.pipeline, memory=3)
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError):
            drawing(REQUESTS[:2])
    assert len(drawing(REQUESTS)) == 5
    assert spy.sizes == [8, 4, 2, 2, 2]


def test_scheduler_by_name():
    other = stage("sdxl", scheduler="DDIMScheduler")
    assert isinstance(other.drawer.pipeline.scheduler, diffusers.DDIMScheduler)
    assert other.drawer.pipeline.scheduler.config.beta_end == 0.012
    usual = shared("sdxl")
    assert furthest(pixels(other(REQUESTS[:2])), pixels(usual(REQUESTS[:2]))) > 1


def test_scheduler_that_mixes_pictures_of_a_batch_is_refused(tmp_path):
    pipeline = tiny_pipeline("flux")
    pipeline.scheduler.register_to_config(stochastic_sampling=True)
    pipeline.save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="batch"):
        from_folder(tmp_path, "flux")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"offload": "model"}, "offload"),
        ({"device_map": "balanced"}, "device_map"),
        ({"scheduler": "Eulr"}, r"'Eulr'.*EulerDiscreteScheduler"),
        ({"input_images": 1}, r"StableDiffusionXLPipeline.*qwen-image-edit"),
    ],
)
def test_settings_a_pipeline_cannot_honour_are_refused(changes, words):
    with pytest.raises(UsageError, match=words):
        stage("sdxl", **changes)


def test_pipeline_defaults_where_nothing_is_set(tmp_path):
    """`diffusers:ORG/NAME`: no setting of ours, so the pipeline's own 20 steps."""
    tiny_pipeline("pixart-sigma").save_pretrained(tmp_path)
    drawing = TextToImage(model=str(tmp_path), dtype="float32")
    drawings = drawing([REQUESTS[0]])[0]
    assert drawings.usage == {"images": 1, "steps": 20}
    assert drawings.notes["size"] == [256, 256]


def test_sliced_decoding_draws_the_same():
    sliced = stage("sdxl-turbo", vae_slicing=True)
    assert sliced.drawer.pipeline.vae.use_slicing
    assert furthest(pixels(sliced(REQUESTS)), drawn_alone("sdxl-turbo")) <= 1
