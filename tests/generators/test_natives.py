"""What every native model does alike, with tiny weights."""

from __future__ import annotations

import functools
import subprocess
import sys

import numpy as np
import pytest
import torch
from emu2_helpers import picture
from natives import NATIVES, asked, drawings, good_payload, same_draft, tiny
from paths import CHECKOUT
from safetensors.numpy import load, save

from cluster.records import Item, decode, encode, rows_of
from generators.base import Failure, Fault, Kind, Result, Skip
from generators.document import Image, ImageRequest, Payload, Request, Text, Turn
from generators.errors import CheckpointError, UsageError
from generators.natives import native
from generators.pictures import decode as decoded

models = pytest.mark.models
each = pytest.mark.parametrize("name", NATIVES)

QUESTIONS = [
    asked("What is a red house?", seed=3),
    asked("the river and the boat"),
    asked(picture(1), "Describe a garden", seed=4),
    asked("how do I bake a cake", picture(2), "with eggs", picture(3), seed=5),
    asked("one", seed=6),
    asked(picture(4), seed=7),
]
"""Of several lengths, with pictures before, within and instead of text."""


@functools.cache
def answers(name):
    """To all questions, as one batch."""
    return tuple(tiny(name)(QUESTIONS))


@models
@each
def test_questions_become_documents(name):
    outcomes = answers(name)
    assert all(isinstance(o, Result) for o in outcomes)
    assert len({o.value.text for o in outcomes}) > 1
    for question, outcome in zip(QUESTIONS, outcomes, strict=True):
        images = [s for t in question.turns for s in t.content if isinstance(s, Image)]
        assert outcome.usage["input_images"] == len(images)
        assert outcome.usage["images"] == len(outcome.value.requests)
        assert outcome.usage["output_tokens"] > 0
        texts = [s.text for s in outcome.value.segments if isinstance(s, Text)]
        assert all(t.strip() and "IMG" not in t for t in texts)
    requests = drawings(name, outcomes)
    assert len(requests) >= 3
    drawn = tiny(name, "render")(requests)
    assert {o.value.pixels.shape for o in drawn} == {(64, 64, 3)}
    assert all(o.value.pixels.std() > 5 for o in drawn), "a flat picture shows nothing"
    assert len({o.value.pixels.tobytes() for o in drawn}) == len(drawn)
    assert decoded(drawn[0].value.encoded()).size == (64, 64)


@models
@each
@pytest.mark.parametrize("sampled", [False, True])
def test_neighbours_and_order_change_nothing(name, sampled):
    settings = NATIVES[name].sampled if sampled else NATIVES[name].greedy
    if settings is None:
        pytest.skip("no token is drawn")
    stage = tiny(name, **settings)
    together = stage(QUESTIONS)
    backwards = stage(QUESTIONS[::-1])[::-1]
    for question, a, b in zip(QUESTIONS, together, backwards, strict=True):
        (alone,) = stage([question])
        assert same_draft(a.value, alone.value)
        assert same_draft(b.value, alone.value)
        assert (a.usage, a.notes) == (alone.usage, alone.notes)


@models
@each
def test_drawings_do_not_depend_on_their_neighbours(name):
    requests = [ImageRequest(payload=good_payload(name, i), seed=i) for i in range(3)]
    together = [o.value.pixels.astype(int) for o in tiny(name, "render")(requests)]
    alone = [tiny(name, "render")([r])[0].value.pixels.astype(int) for r in requests]
    assert all(np.abs(a - b).max() <= 1 for a, b in zip(together, alone, strict=True))
    assert np.abs(together[0] - together[1]).max() > 10


@models
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
    first, *others = greedy([*seeds, asked("one", seed=None)])
    assert all(same_draft(o.value, first.value) for o in others)
    made = {
        k: native(name, "tiny", v or {}).draft.seeded
        for k, v in {"sampled": sampled, "greedy": NATIVES[name].greedy}.items()
    }
    assert made == {"sampled": sampled is not None, "greedy": False}


@models
@each
def test_bad_requests_fail_alone(name):
    good = asked("A bird", seed=3)
    bad = [
        asked("", " \n"),
        asked("look", Image.of(b"no picture")),
        Request((), 1),
    ]
    *outcomes, answered = tiny(name)([*bad, good])
    assert all(isinstance(o, Failure) and o.fault is Fault.BAD_INPUT for o in outcomes)
    assert same_draft(answered.value, tiny(name)([good])[0].value)
    assert tiny(name)([]) == []


@models
@each
def test_long_prompts_are_skipped_with_the_limit(name):
    context = str(NATIVES[name].context)
    long, many, fits = tiny(name)(
        [asked("why " * 5000), asked(*[picture(0)] * 520), asked(*[picture(0)] * 8)]
    )
    assert isinstance(long, Skip)
    assert "0 pictures" in long.reason
    assert isinstance(many, Skip)
    assert "520 pictures" in many.reason
    assert context in long.reason
    assert context in many.reason
    assert isinstance(fits, Result)


@models
@each
def test_every_turn_is_read(name):
    turns = (
        Turn("system", (Text("Be kind."),)),
        Turn("user", (Text("Hi"),)),
        Turn("assistant", (Text("Yes."), picture())),
        Turn("user", (Text("Why?"),)),
    )
    (outcome,) = tiny(name)([Request(turns, 1)])
    prompt = outcome.notes["prompt"]
    places = [prompt.index(text) for text in ("Be kind.", "Hi", "Yes.", "Why?")]
    assert places == sorted(places)


@models
@each
def test_payloads_have_their_layout(name):
    requests = drawings(name, answers(name))
    for request in requests:
        tensors = load(request.payload.read())
        found = {k: (v.shape, str(v.dtype)) for k, v in tensors.items()}
        assert found == NATIVES[name].layout


@models
@each
def test_the_renderer_refuses_what_it_cannot_draw(name):
    pack, layout = NATIVES[name].pack, NATIVES[name].layout
    (rows, width), dtype = next(iter(layout.values()))
    if dtype == "int32":
        bad = Payload.of(save({"codes": np.full((rows, width), 128, np.int32)}))
    else:
        bad = pack(torch.full((rows, width), torch.nan))
    requests = [
        ImageRequest(prompt="a bird", seed=1),
        ImageRequest(payload=pack(torch.zeros(rows, width - 1)), seed=1),
        ImageRequest(payload=bad, seed=1),
        ImageRequest(payload=Payload.of(b"garbage"), seed=1),
        ImageRequest(payload=Payload.of(save({"other": np.zeros(3)})), seed=1),
    ]
    good = ImageRequest(payload=good_payload(name), seed=1)
    *outcomes, drawn = tiny(name, "render")([*requests, good])
    assert [type(o) for o in outcomes] == [Failure] * len(requests)
    assert isinstance(drawn, Result)
    assert tiny(name, "render")([]) == []


@models
@each
def test_drafts_survive_the_store(name):
    outcomes = answers(name)
    items = [Item(str(i), "x", r) for i, r in enumerate(QUESTIONS)]
    table = encode(Kind.DRAFT, items, outcomes, 0.1)
    for i, row in rows_of(Kind.DRAFT, table, "part.parquet").items():
        assert decode(Kind.DRAFT, row).value == outcomes[int(i)].value


@models
@each
def test_a_context_beyond_the_models_is_refused(name):
    if name == "gill":
        pytest.skip("its context is the model's")
    with pytest.raises((ValueError, CheckpointError), match="9999"):
        NATIVES[name].stages["draft"](weights="tiny", device="cpu", context=9999)


@each
def test_stages_share_settings_and_may_have_their_own(name):
    overrides = {"dtype": "float32", "render": {"batch_size": 2}}
    system = native(name, "tiny", overrides)
    assert system.name == name
    assert all(s.settings["dtype"] == "float32" for s in system.stages)
    assert system.render.placement.batch_size == 2
    assert len({s.digest for s in system.stages}) == len(system.stages)
    assert {s.placement.num_gpus for s in system.stages} == {0}
    assert all(s.placement.num_gpus >= 1 for s in native(name, "dummy", {}).stages)


@each
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"dtypee": "float32"},
            "key in models.{name} 'dtypee'; did you mean 'dtype'",
        ),
        ({"draft": {"guidances": 1.0}}, "unknown key in models.{name}.draft 'guidances'"),
        ({"dtype": "int4"}, "dtype in models.{name}"),
        ({"draft": 3}, "models.{name}.draft must hold settings, not 3"),
    ],
)
def test_wrong_settings_are_refused(name, overrides, message):
    with pytest.raises(UsageError) as raised:
        native(name, "tiny", overrides)
    assert message.format(name=name) in str(raised.value)


def test_an_unknown_native_model_is_refused():
    with pytest.raises(UsageError, match="did you mean 'anole'"):
        native("anloe", "tiny", {})


def test_planning_loads_no_model_code():
    code = (
        "import sys; from generators.natives import NATIVE, native; "
        "[native(name, 'tiny', {}) for name in NATIVE]; "
        "heavy = {'torch', 'transformers', 'diffusers', 'tokenizers', 'sentencepiece', "
        "'numpy'}; print(sorted(heavy & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr
