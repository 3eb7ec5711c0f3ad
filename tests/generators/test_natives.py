"""What every native model does alike, with tiny weights."""

from __future__ import annotations

import functools
import subprocess
import sys

import numpy as np
import pytest
import torch
from natives import NATIVES, asked, drawings, good_payload, same_draft, tiny, turn
from paths import CHECKOUT
from picture_helpers import smooth
from safetensors.torch import load

from plait.generators.base import Failure, Fault, Result, Skip
from plait.generators.decoding.drafting import NativePrompt
from plait.generators.decoding.payloads import pack
from plait.generators.document import Image, ImageRequest, Payload, Request, Text
from plait.generators.errors import CheckpointError, UsageError
from plait.generators.images import decode as decoded
from plait.generators.natives import native

pytestmark = pytest.mark.models
each = pytest.mark.parametrize("name", NATIVES)

QUESTIONS = [
    asked("What is a red house?", seed=3),
    asked("the river and the boat"),
    asked(smooth(1), "Describe a garden", seed=4),
    asked("how do I bake a cake", smooth(2), "with eggs", smooth(3), seed=5),
    asked(smooth(4), seed=7),
]
"""Of several lengths, with images before, within and instead of text."""


def settings(name: str) -> dict:
    """Settings under which tokens are drawn, where they ever are."""
    return {**(NATIVES[name].sampled or NATIVES[name].greedy)}


@functools.cache
def answers(name):
    """To all questions, as one batch."""
    return tuple(tiny(name, **settings(name))(QUESTIONS))


@each
def test_questions_become_documents(name):
    outcomes = answers(name)
    assert all(isinstance(o, Result) for o in outcomes)
    assert len({o.value.text for o in outcomes}) > 1
    for question, outcome in zip(QUESTIONS, outcomes, strict=True):
        assert outcome.usage["input_images"] == len(question.images)
        assert outcome.usage["images"] == len(outcome.value.requests)
        assert outcome.usage["output_tokens"] > 0
        texts = [s.text for s in outcome.value.segments if isinstance(s, Text)]
        assert all(t.strip() and "IMG" not in t and "#" not in t for t in texts)
        shown = outcome.notes["prompt"]
        assert all(s.text in shown for s in question.turns[0].content if s in texts)
        assert shown.count("<image>") + shown.count("<ImageHere>") == len(question.images)
    requests = drawings(name, outcomes)
    assert len(requests) >= 2
    for request in requests:
        tensors = load(request.payload.read())
        found = {k: (tuple(v.shape), v.dtype) for k, v in tensors.items()}
        assert found == NATIVES[name].layout
    drawn = tiny(name, "render")(requests)
    assert {o.value.pixels.shape for o in drawn} == {(64, 64, 3)}
    assert all(o.value.pixels.std() > 5 for o in drawn), "a flat picture shows nothing"
    assert len({o.value.pixels.tobytes() for o in drawn}) == len(drawn)
    assert decoded(drawn[0].value.encoded()).size == (64, 64)


@each
def test_neighbours_and_order_change_nothing(name):
    stage = tiny(name, **settings(name))
    backwards = stage(QUESTIONS[::-1])[::-1]
    for i, (a, b) in enumerate(zip(answers(name), backwards, strict=True)):
        assert same_draft(a.value, b.value)
        assert (a.usage, a.notes) == (b.usage, b.notes)
        if i == 2:
            assert same_draft(a.value, stage([QUESTIONS[i]])[0].value)


@each
def test_drawings_do_not_depend_on_their_neighbours(name):
    requests = [ImageRequest(payload=good_payload(name, i), seed=i) for i in range(3)]
    together = [o.value.pixels.astype(int) for o in tiny(name, "render")(requests)]
    alone = [tiny(name, "render")([r])[0].value.pixels.astype(int) for r in requests]
    assert all(np.abs(a - b).max() <= 1 for a, b in zip(together, alone, strict=True))
    assert np.abs(together[0] - together[1]).max() > 10


@each
def test_the_seed_decides_where_tokens_are_drawn(name):
    seeds = [asked("one", seed=s) for s in (1, 2, 3, 1)]
    sampled = NATIVES[name].sampled
    if sampled is not None:
        *different, again = tiny(name, **sampled)(seeds)
        assert same_draft(again.value, different[0].value)
        assert any(not same_draft(o.value, again.value) for o in different[1:])
        (unseeded,) = tiny(name, **sampled)([asked("one", seed=None)])
        assert isinstance(unseeded, Failure)
        assert "seed" in unseeded.reason
    greedy = tiny(name, **NATIVES[name].greedy)
    first, *others = greedy([*seeds[:2], asked("one", seed=None)])
    assert all(same_draft(o.value, first.value) for o in others)
    made = {
        k: native(name, "tiny", v or {}).draft.seeded
        for k, v in {"sampled": sampled, "greedy": NATIVES[name].greedy}.items()
    }
    assert made == {"sampled": sampled is not None, "greedy": False}


@each
def test_bad_requests_fail_alone(name):
    good = QUESTIONS[0]
    bad = [asked("", " \n"), asked("look", Image.of(b"no picture")), Request((), 1)]
    *outcomes, answered = tiny(name, **settings(name))([*bad, good])
    assert all(isinstance(o, Failure) and o.fault is Fault.BAD_INPUT for o in outcomes)
    assert same_draft(answered.value, answers(name)[0].value)
    assert tiny(name, **settings(name))([]) == []


@each
def test_prompts_that_leave_no_room_are_skipped_with_the_limit(name):
    stage = tiny(name, **NATIVES[name].context)
    room = stage.settings.max_new_tokens if name == "emu2" else 1
    one, two = (stage.prompt(asked(*[smooth()] * n)) for n in (1, 2))
    fits = 1 + (stage.context - room - one.length) // (two.length - one.length)
    prompt = stage.prompt(asked(*[smooth()] * fits))
    assert isinstance(prompt, NativePrompt)
    assert len(stage.embed([prompt])[0] if name != "emu2" else prompt.ids) == prompt.length
    skip = stage.prompt(asked(*[smooth()] * (fits + 1)))
    assert isinstance(skip, Skip)
    assert f"({fits + 1} images of" in skip.reason
    assert f"context holds {stage.context}," in skip.reason
    assert f"at most {fits} images" in skip.reason
    # One token more than fits.
    spare = stage.context - room - stage.prompt(asked("!")).length
    fitting, longer = (stage.prompt(asked("!" * (1 + n))) for n in (spare, spare + 1))
    assert isinstance(fitting, NativePrompt)
    assert isinstance(longer, Skip)


@each
def test_every_turn_is_read(name):
    said = ("Be kind.", "Hi", "Yes.", "Why?")
    turns = [turn("system", said[0]), turn("user", said[1])]
    turns += [turn("assistant", said[2], smooth()), turn("user", said[3])]
    prompt = tiny(name).prompt(Request(tuple(turns), 1))
    places = [prompt.shown.index(text) for text in said]
    assert places == sorted(places)


@each
def test_the_renderer_refuses_what_it_cannot_draw(name):
    packed, layout = NATIVES[name].pack, NATIVES[name].layout
    (rows, width), dtype = next(iter(layout.values()))
    if dtype == torch.int32:
        bad = pack(codes=torch.full((rows, width), 128, dtype=dtype))
    else:
        bad = packed(torch.full((rows, width), torch.nan))
    requests = [
        ImageRequest(prompt="a bird", seed=1),
        ImageRequest(payload=packed(torch.zeros(rows, width - 1)), seed=1),
        ImageRequest(payload=bad, seed=1),
        ImageRequest(payload=Payload.of(b"garbage"), seed=1),
        ImageRequest(payload=pack(other=torch.zeros(3)), seed=1),
    ]
    if native(name, "tiny", {}).roles["render"].seeded:
        requests.append(ImageRequest(payload=good_payload(name)))
    good = ImageRequest(payload=good_payload(name), seed=1)
    *outcomes, drawn = tiny(name, "render")([*requests, good])
    assert [type(o) for o in outcomes] == [Failure] * len(requests)
    assert isinstance(drawn, Result)
    assert tiny(name, "render")([]) == []


@pytest.mark.parametrize(
    ("name", "stage"),
    [(n, s) for n in NATIVES if n != "gill" for s in NATIVES[n].stages if s != "render"],
)
def test_a_context_beyond_the_models_is_refused(name, stage):
    with pytest.raises(CheckpointError, match="context 9999 exceeds"):
        NATIVES[name].stages[stage](weights="tiny", device="cpu", context=9999)


@each
def test_dummy_weights_write_the_same_again(name, monkeypatch):
    """The code path of full size, at a size a CPU can hold."""
    from plait.generators import architectures

    tiny_sizes = dict(architectures.config_of(name, tiny=True))
    tiny_sizes["vocabulary"] = {"emu2": 32_000, "minigpt5": 500}.get(name, 900)
    module = NATIVES[name].stages["draft"].__module__.replace(".draft", ".models")
    monkeypatch.setattr(f"{module}.config_of", lambda *_, **__: tiny_sizes)
    if name in ("anole", "minigpt5"):
        monkeypatch.setattr(
            f"plait.generators.{name}.models._SHARES", {"dummy": (0.08, 0.03)}
        )
    shared = {"weights": "dummy", "device": "cpu", "dtype": "bfloat16"}
    short = NATIVES[name].settings.get("draft", {})
    first, again = (
        NATIVES[name].stages["draft"](**shared, **short, **settings(name)) for _ in range(2)
    )
    outcomes = first(QUESTIONS[:3])
    assert first.dtype == torch.bfloat16
    assert sum(o.usage["output_tokens"] for o in outcomes) >= 10
    assert [o.value for o in again(QUESTIONS[:3])] == [o.value for o in outcomes]
    conditioned = "condition" in NATIVES[name].stages
    assert conditioned or any(o.usage["images"] for o in outcomes)


@each
def test_stages_share_settings_and_may_have_their_own(name):
    overrides = {"dtype": "float32", "render": {"batch_size": 2}}
    system = native(name, "tiny", overrides)
    assert system.name == name
    assert all(s.settings["dtype"] == "float32" for s in system.stages)
    assert system.roles["render"].placement.batch_size == 2
    assert len({s.digest for s in system.stages}) == len(system.stages)
    assert {s.placement.num_gpus for s in system.stages} == {0}
    keyed = {key for s in system.stages for key in s.settings}
    named = {"model", "revision", "language", "vision", "projection", "diffusion"}
    assert not {"device", "batch_size", *named} & keyed


# Gigabytes of the drafting stages at one record, on GPUs of 80: weights with working
# memory, and the caches of full contexts.
MEMORY = {
    "anole": 15.8 + 3 * 2,
    "gill": 15.7 + 1,
    "minigpt5": 17.5 + 1,
    "emu2": 72.2 + 15.2,
    "janus-pro-1b": 4.4 + 0.9,
    "bagel-7b-mot": 18.0 + 0.4,
}


@each
def test_memory_is_planned_before_anything_is_loaded(name):
    specs = native(name, "dummy", {"draft": {"batch_size": 1}}, gpu_gib=80.0).stages
    assert specs[0].placement.gpu_memory_gib == pytest.approx(MEMORY[name], abs=0.2)
    assert specs[0].placement.num_gpus == (2 if name == "emu2" else 1)
    assert all(s.placement.num_gpus >= 1 for s in specs)
    assert all(s.placement.gpu_memory_gib > 0 for s in specs)


@each
@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"dtypee": "float32"}, "'dtype'"),
        ({"draft": {"guidances": 1.0}}, "models.{name}.draft"),
        ({"dtype": "int4"}, "dtype in models.{name}"),
        ({"draft": 3}, "models.{name}.draft"),
        ({"render": {"max_sequence_length": 77}}, "max_sequence_length"),
        ({"render": {"prompt_prefix": "x"}}, "prompt_prefix"),
    ],
)
def test_wrong_settings_are_refused(name, overrides, field):
    with pytest.raises(UsageError) as raised:
        native(name, "tiny", overrides)
    assert field.format(name=name) in str(raised.value)


def test_an_unknown_native_model_is_refused():
    with pytest.raises(UsageError, match="'anole'"):
        native("anloe", "tiny", {})


@pytest.mark.processes
def test_planning_loads_no_model_code():
    code = (
        "import sys; from plait.generators.natives import native; "
        "from plait.generators.catalogue import Named, by_name; "
        "[native(name, 'tiny', {}) for name in by_name(Named.NATIVE)]; "
        "heavy = {'torch', 'transformers', 'diffusers', 'tokenizers', 'sentencepiece', "
        "'numpy'}; print(sorted(heavy & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr
