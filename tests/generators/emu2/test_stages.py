"""Emu2's stages: conditioning, limits of answers, the safety checker, what is refused."""

import emu2_helpers as upstream
import pytest
import torch
from natives import asked, edit, published, tiny
from picture_helpers import smooth
from safetensors.torch import load_file

from plait.generators.base import Failure, Fault, Result, Skip
from plait.generators.decoding.payloads import pack, unpack
from plait.generators.diffusion.builds import tiny_modules
from plait.generators.diffusion.designs import DESIGNS
from plait.generators.document import Image, ImageRequest, Text
from plait.generators.emu2.condition import Emu2Condition
from plait.generators.emu2.network import Emu2
from plait.generators.errors import CheckpointError

pytestmark = pytest.mark.models

ONE, TWO = smooth(1), smooth(2)


def test_usage_and_notes():
    made = tiny("emu2", "condition")([ImageRequest("a bird", context=(ONE,))])[0]
    assert made.notes == {"prompt": "<image>a bird", "mode": "generation"}
    assert (made.usage["input_images"], made.usage["output_tokens"]) == (1, 16)
    # <s>, an image of 16 vectors and two marks, "a bird" in two pieces, and a mark.
    assert made.usage["input_tokens"] == 1 + 18 + 2 + 1


def test_conditioning_takes_what_the_limit_says():
    """The new image's mark and all vectors but the last stand in the context too."""
    stage = tiny("emu2", "condition", context=30)
    # <s>, the words, the mark, and 15 vectors.
    for words, kind in ((13, Result), (14, Skip)):
        assert isinstance(stage([ImageRequest("a " * words)])[0], kind)


def test_conditions_do_not_depend_on_their_neighbours_and_bad_ones_fail_alone():
    stage = tiny("emu2", "condition")
    good = [ImageRequest("a bird"), ImageRequest("the boat", context=(ONE, TWO))]
    bad = [
        ImageRequest(),
        ImageRequest("x", context=(Image.of(b"no picture"),)),
        ImageRequest(" "),
    ]
    *failed, first, second = stage([*bad, *good])
    assert all(isinstance(o, Failure) for o in failed)
    for outcome, request in ((first, good[0]), (second, good[1])):
        alone = unpack(stage([request])[0].value, "vectors", "unconditional")
        together = unpack(outcome.value, "vectors", "unconditional")
        for a, b in zip(alone, together, strict=True):
            assert (a - b).abs().max() < 1e-4
    assert stage([]) == []


def test_autoencoding_is_for_one_image_without_a_prompt():
    """An empty prompt asks for generation."""
    stage = tiny("emu2", "condition")
    requests = [
        ImageRequest(context=(ONE,)),
        ImageRequest(context=(TWO,)),
        ImageRequest("", context=(ONE,)),
        ImageRequest("a bird"),
        ImageRequest(context=(ONE, TWO)),
        ImageRequest(context=(Text("a bird"),)),
    ]
    made = stage(requests)
    modes = [o.notes["mode"] for o in made]
    assert modes == ["autoencoding"] * 2 + ["generation"] * 4


def test_unconditional_vectors_are_computed_once(monkeypatch):
    calls, usual = [], Emu2.regress

    def counting(self, prompts):
        calls.append(len(prompts))
        return usual(self, prompts)

    monkeypatch.setattr(Emu2, "regress", counting)
    stage = Emu2Condition(weights="tiny", device="cpu")
    for _ in range(2):
        stage([ImageRequest("a bird"), ImageRequest("a cup"), ImageRequest("a table")])
    assert calls == [3, 1, 3]


def test_answers_have_their_least_and_most_tokens():
    contents = [("A red house",), ("x",), ("river",), ("Tell me about birds. " * 10,)]
    contents += [(ONE, "What is it?"), (TWO, smooth(3), "then")]
    questions = [asked(*content) for content in contents]
    short = tiny("emu2", max_new_tokens=30)(questions)
    longer = tiny("emu2", max_new_tokens=30, min_new_tokens=9)(questions)
    assert min(o.usage["output_tokens"] for o in short) < 9
    assert all(9 < o.usage["output_tokens"] <= 30 for o in longer)
    assert "end of sequence" in {o.notes["stop"] for o in longer}
    for outcome in tiny("emu2", max_new_tokens=3)(questions):
        stop, tokens = outcome.notes["stop"], outcome.usage["output_tokens"]
        assert (stop == "token limit") == (tokens == 3)


# Drawing: what is blocked, what is refused ------------------------------------------------

NATIVE_FILE = "Emu2-Gen_pytorch_model.bf16.safetensors"


@pytest.fixture(scope="module")
def checker():
    return tiny_modules(DESIGNS["sd15"])["safety_checker"]


def render(folder, **settings):
    return published("emu2", "render", {"model": str(folder)}, **settings)


def test_the_safety_checker_of_a_checkpoint(checker, tmp_path):
    """Its thresholds decide: below every cosine it blocks all, above all nothing."""
    pair = torch.randn(2, 4, upstream.GEN_VISION.width, generator=torch.manual_seed(0))
    vectors = pack(vectors=pair[0], unconditional=pair[1])
    request = ImageRequest(payload=vectors, seed=1)
    names = ("concept_embeds_weights", "special_care_embeds_weights")
    for name in names:
        getattr(checker, name).data.fill_(-2.0)
    checked = render(folder := upstream.hub_gen(tmp_path, safety_checker=checker))
    assert checked([request])[0].fault is Fault.UNSAFE
    for name in names:
        getattr(checked.drawer.pipeline.safety_checker, name).data.fill_(2.0)
    unchecked = render(folder, safety_checker="off")
    assert all(isinstance(stage([request])[0], Result) for stage in (checked, unchecked))


@pytest.mark.parametrize("older", [True, False])
def test_the_safety_checker_of_a_native_file_is_loaded_strictly(older, checker, tmp_path):
    """Under the names of transformers 4.31, as published, and under today's."""
    folder = upstream.native_gen(tmp_path / "gen", safety_checker=checker)
    tower = "safety_checker.vision_model."

    def newer(tensors) -> None:
        for name in [n for n in tensors if n.startswith(f"{tower}vision_model.")]:
            tensors[name.replace(f"{tower}vision_model.", tower)] = tensors.pop(name)

    if not older:
        edit(folder, NATIVE_FILE, newer)
    loaded = render(folder).drawer.pipeline.safety_checker.state_dict()
    expected = checker.state_dict()
    assert loaded.keys() == expected.keys()
    assert all(torch.equal(loaded[n], t) for n, t in expected.items())
    lost = next(n for n in load_file(folder / NATIVE_FILE) if "pre_layrnorm.bias" in n)
    edit(folder, NATIVE_FILE, lambda t: t.update({f"{tower}stray": t.pop(lost)}))
    with pytest.raises(CheckpointError) as raised:
        render(folder)
    assert f"1 missing: {lost}" in str(raised.value)
    assert f"1 unexpected: {tower}stray" in str(raised.value)


def test_a_misfitting_unet_is_named(copied):
    places, folder = copied("emu2", "render", "model")
    with pytest.raises(CheckpointError, match="the variant"):
        published("emu2", "render", places, variant="fp16")
    edit(folder / "unet", "*.safetensors", lambda t: t.update(stray=t.pop("conv_in.bias")))
    with pytest.raises(CheckpointError) as raised:
        published("emu2", "render", places)
    assert "unet: missing conv_in.bias" in str(raised.value)
    assert "unet: unexpected stray" in str(raised.value)
    for file in (folder / "unet").iterdir():
        file.unlink()
    (folder / "unet").rmdir()
    with pytest.raises(CheckpointError, match="unet"):
        published("emu2", "render", places)
