"""Settings, templates, keys, and what a plan tells before anything is loaded."""

import emu2_helpers as helpers
import pytest

from generators.content import display_text
from generators.document import Request, Text, Turn
from generators.emu2.condition import Emu2Condition
from generators.emu2.draft import Emu2Draft
from generators.emu2.prompts import chat_parts
from generators.emu2.settings import (
    Emu2ConditionSettings,
    Emu2DraftSettings,
    Emu2RenderSettings,
)
from generators.errors import UsageError
from generators.natives import native

models = pytest.mark.models


def prompt(request: Request, **changes) -> str:
    return display_text(chat_parts(request, Emu2DraftSettings(**changes)))


DIALOGUE = Request(
    (
        Turn("user", (Text("Hi"), helpers.picture(1))),
        Turn("assistant", (Text("Yes."),)),
        Turn("user", (Text("Why?"),)),
    )
)
SYSTEM = (
    "You are a helpful assistant, dedicated to delivering comprehensive and "
    "meticulous responses."
)


def test_templates():
    """Written down from emu/chat.py and the Hub's modeling_emu.py."""
    one = helpers.asked("Hi", helpers.picture(1), "there")
    assert prompt(one) == f"{SYSTEM} [USER]: Hi<image>there [ASSISTANT]:"
    assert prompt(one, template="hf") == "[USER]: Hi<image>there[ASSISTANT]:"
    assert prompt(DIALOGUE) == (
        f"{SYSTEM} [USER]: Hi<image> [ASSISTANT]: Yes.</s>[USER]: Why? [ASSISTANT]:"
    )
    assert prompt(one, system_message="Be brief.").startswith("Be brief. [USER]: Hi")
    assert prompt(one, system_message="").startswith(" [USER]: Hi")
    instructed = Request((Turn("system", (Text("Draw."),)), *one.turns))
    assert prompt(instructed).startswith(f"{SYSTEM} Draw. [USER]: Hi")
    assert prompt(instructed, template="hf").startswith("Draw.[USER]: Hi")


def test_documents_so_far():
    so_far = Turn("assistant", (Text("One."), helpers.picture(2), Text("Two.")))
    request = Request((Turn("user", (Text("Tell."),)), so_far))
    usual = prompt(request, system_message="")
    assert usual == " [USER]: Tell. One. Two. [ASSISTANT]:"
    pictures = prompt(request, system_message="", feed_images=True)
    assert pictures == " [USER]: Tell. One. <image> Two. [ASSISTANT]:"
    own = prompt(request, system_message="", continuation="answer")
    assert own == " [USER]: Tell. [ASSISTANT]: One. Two."
    assert prompt(DIALOGUE) == prompt(DIALOGUE, continuation="answer")


def test_what_enters_the_keys():
    chat = set(Emu2DraftSettings().keyed("pretrained"))
    assert chat == {
        *("context", "quantization", "template", "system_message", "strip_text", "dtype"),
        *("continuation", "feed_images", "num_beams", "max_new_tokens", "min_new_tokens"),
        *("length_penalty", "repetition_penalty"),
    }
    gen = set(Emu2ConditionSettings().keyed("pretrained"))
    assert gen == {"context", "quantization", "strip_text", "dtype"}
    drawn = Emu2RenderSettings().keyed("pretrained")
    assert drawn["original_size"] == [1024, 1024]
    assert (drawn["steps"], drawn["guidance"], drawn["height"]) == (50, 3.0, 1024)
    system = native("emu2", "tiny", {})
    assert [stage.seeded for stage in system.stages] == [False, False, True]


def test_upstreams_defaults():
    own = Emu2DraftSettings()
    assert (own.num_beams, own.length_penalty, own.repetition_penalty) == (
        5,
        -1,
        1,
    )
    assert (own.max_new_tokens, own.min_new_tokens) == (64, 0)


def test_plan_shows_the_memory_of_each_stage():
    """Before anything is loaded, and with it the GPUs of a replica."""
    system = native("emu2", "dummy", {}, gpu_gib=80.0)
    chat, gen, unet = (stage.placement for stage in system.stages)
    # 73.8 GB of weights and a twentieth; 4 x 5 and 8 contexts of 2048 at 1.6 MB each.
    assert chat.gpu_memory_gib == pytest.approx(72.2 + 20 * 3.05, abs=0.2)
    assert gen.gpu_memory_gib == pytest.approx(72.2 + 8 * 3.05, abs=0.2)
    assert 5 < unet.gpu_memory_gib < 40
    # One record has to fit; batches whose caches do not are halved.
    assert (chat.num_gpus, gen.num_gpus, unet.num_gpus) == (2, 1, 1)
    assert native("emu2", "dummy", {}, gpu_gib=40.0).draft.placement.num_gpus == 3
    four_bits = native("emu2", "dummy", {"quantization": "int4"}, gpu_gib=48.0)
    assert [s.placement.num_gpus for s in four_bits.stages] == [1, 1, 1]
    one = Emu2DraftSettings(batch_size=1, num_beams=1).memory_estimate_gib("dummy")
    assert one == pytest.approx(75.3, abs=0.1)
    small = {
        kind: Emu2DraftSettings(quantization=kind, batch_size=1, num_beams=1)
        for kind in ("int8", "int4")
    }
    found = {k: s.memory_estimate_gib("dummy") for k, s in small.items()}
    assert found["int8"] == pytest.approx((73.8 - 32.1) / 1.0737 * 1.05 + 3.05, abs=0.2)
    assert found["int4"] == pytest.approx((73.8 - 46.15) / 1.0737 * 1.05 + 3.05, abs=0.2)
    tiny = native("emu2", "tiny", {})
    assert {s.placement.num_gpus for s in tiny.stages} == {0}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"draft": {"num_beam": 2}}, "did you mean 'num_beams'"),
        ({"quantization": "int5"}, "quantization"),
        ({"render": {"negative_prompt": "blurry"}}, "omit negative_prompt"),
        ({"render": {"prompt_prefix": "x"}}, "omit prompt_prefix"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
    ],
)
def test_wrong_settings_are_refused(overrides, message):
    with pytest.raises(UsageError, match=message):
        native("emu2", "tiny", overrides)


@models
def test_context_beyond_the_model_is_refused():
    for make in (Emu2Draft, Emu2Condition):
        with pytest.raises(ValueError, match="context 5000 exceeds the model's 2048"):
            make(weights="tiny", device="cpu", context=5000)
