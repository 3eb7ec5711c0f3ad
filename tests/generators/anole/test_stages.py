"""The two stages end to end, as the engine calls them."""

import io
import subprocess
import sys

import numpy as np
import pytest
from paths import CHECKOUT
from PIL import Image as Pillow
from safetensors.numpy import save

from cluster.records import Item, decode, encode, rows_of
from generators.anole.codec import pack_codes, unpack_codes
from generators.anole.draft import AnoleDraft
from generators.anole.render import AnoleRender
from generators.anole.settings import AnoleDraftSettings, AnoleRenderSettings
from generators.base import Failure, Fault, Kind, Result, Skip
from generators.document import Image, ImageRequest, Payload, Request, Text, Turn
from generators.errors import UsageError
from generators.natives import NATIVE, native
from generators.pictures import decode as pixels_of
from generators.settings import SMALL_BATCH

models = pytest.mark.models


@pytest.fixture(scope="module")
def draft():
    return AnoleDraft(weights="tiny", device="cpu", context=600)


@pytest.fixture(scope="module")
def render():
    return AnoleRender(weights="tiny", device="cpu")


def picture(seed: int = 0) -> Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (70, 90, 3)).astype(np.uint8)
    file = io.BytesIO()
    Pillow.fromarray(pixels).save(file, "PNG")
    return Image.of(file.getvalue())


def request(*content: Text | Image, seed: int | None = 1) -> Request:
    return Request((Turn("user", content),), seed)


@models
def test_question_to_document(draft, render):
    inputs = [request(Text(f"A story of {i} birds."), picture(i), seed=i) for i in range(6)]
    drafted = draft(inputs)
    assert all(isinstance(o, Result) for o in drafted)
    drawings = [r for o in drafted for r in o.value.requests]
    assert len(drawings) >= 3
    assert all(r.prompt is None and r.seed is None and not r.context for r in drawings)
    pictures = render(drawings)
    for image_request, outcome in zip(drawings, pictures, strict=True):
        assert outcome.value.pixels.shape == (64, 64, 3)
        assert outcome.value.pixels.std() > 20, "a flat picture shows nothing"
        assert pixels_of(outcome.value.encoded()).size == (64, 64)
        assert unpack_codes(image_request.payload).shape == (8, 8)
    assert len({d.value.pixels.tobytes() for d in pictures}) == len(pictures)


@models
def test_text_is_clean_and_usage_counts(draft):
    for seed, outcome in enumerate(
        draft([request(Text("A red house"), seed=s) for s in range(8)])
    ):
        segments = outcome.value.segments
        texts = [s.text for s in segments if isinstance(s, Text)]
        assert all(t.strip() and "<" not in t and "IMG" not in t for t in texts), seed
        usage = outcome.usage
        assert usage["images"] == len(outcome.value.requests)
        assert usage["image_tokens"] == 64 * usage["images"]
        assert usage["input_images"] == 0
        assert outcome.notes["prompt"] == "A red house"
        assert outcome.notes["stop"] in ("end of sequence", "context full")
        words = usage["output_tokens"] - 66 * usage["images"]
        assert words >= len(" ".join(texts).split()) - 1


@models
def test_prompt_has_no_template(draft):
    """`<s>`, then each segment: text as raw ids, a picture between its marks."""
    language = draft.language
    v = language.vocabulary
    ids = draft.prompt(request(Text("A red"), picture(), Text(" house"))).ids
    text = [
        language.tokenizer.encode(t, add_special_tokens=False).ids
        for t in ("A red", " house")
    ]
    assert ids[0] == v.bos
    assert list(ids[1 : 1 + len(text[0])]) == text[0]
    rest = list(ids[1 + len(text[0]) :])
    assert rest[0] == v.begin_image
    assert set(rest[1:65]) <= set(v.image)
    assert rest[65] == v.end_image
    assert rest[66:] == text[1]


@models
def test_turns_are_set_apart(draft):
    content = (Text("Answer."),), (Text("What is it?"),), (Text(" A bird"), picture())
    turns = [
        Turn(r, c) for r, c in zip(("system", "user", "assistant"), content, strict=True)
    ]
    prompt = draft.prompt(Request(tuple(turns), 1))
    assert prompt.shown == "Answer.\nWhat is it?\n A bird<image>"
    assert prompt.images == 1


@models
def test_too_many_pictures_are_skipped_with_the_limit(draft):
    nine = draft([request(*(picture(i) for i in range(9)), Text("What now?"))])[0]
    assert isinstance(nine, Skip)
    assert "9 pictures of 66" in nine.reason
    assert "context holds 600" in nine.reason
    assert "at most 9 pictures" in nine.reason
    ten = draft([request(*(picture(i) for i in range(10)))])[0]
    assert isinstance(ten, Skip)
    assert "takes 661 tokens" in ten.reason


@models
def test_the_limit_named_is_true(draft):
    fits = draft([request(*(picture(i) for i in range(9)))])[0]
    assert isinstance(fits, Result)
    assert fits.usage["input_tokens"] == 1 + 9 * 66


@models
def test_a_prompt_needs_room_for_one_token(draft):
    filler = Text("." * (600 - 2 - 8 * 66))
    eight = [picture(i) for i in range(8)]
    assert isinstance(draft([request(*eight, filler)])[0], Result)
    assert isinstance(draft([request(*eight, filler, Text("."))])[0], Skip)


@models
def test_blank_text_between_pictures_is_left_out(draft):
    language = draft.language
    v = language.vocabulary
    blank, word = (language.tokenizer.encode(t).ids for t in (" \n", " boat"))
    code = [v.begin_image, *v.image[:64], v.end_image]
    segments = draft._segments([*blank, *code, *blank, *code, *word])
    assert [type(s) for s in segments] == [ImageRequest, ImageRequest, Text]
    assert segments[2] == Text(" boat")


@models
def test_a_long_question_is_skipped(draft):
    outcome = draft([request(Text("why " * 5000))])[0]
    assert isinstance(outcome, Skip)
    assert "0 pictures of 66" in outcome.reason


@models
def test_bad_input_fails_alone(draft):
    outcomes = draft(
        [
            request(Text(""), Text(" \n")),
            request(Text("A bird"), seed=3),
            request(Image.of(b"no picture")),
            request(Text("A bird"), seed=None),
            request(),
        ]
    )
    good = outcomes.pop(1)
    assert good.value == draft([request(Text("A bird"), seed=3)])[0].value
    assert all(isinstance(o, Failure) and o.fault is Fault.BAD_INPUT for o in outcomes)
    reasons = [o.reason for o in outcomes]
    assert "neither text nor pictures" in reasons[0]
    assert "no known picture format" in reasons[1]
    assert "has no seed" in reasons[2]
    assert draft([]) == []


@models
def test_greedy_needs_no_seed():
    settings = AnoleDraftSettings(text_greedy=True, image_greedy=True)
    assert not settings.is_seeded()
    assert AnoleDraftSettings(text_greedy=True).is_seeded()
    stage = AnoleDraft(
        weights="tiny", device="cpu", context=120, text_greedy=True, image_greedy=True
    )
    assert isinstance(stage([request(Text("A bird"), seed=None)])[0], Result)


@models
def test_context_beyond_the_model_is_refused():
    with pytest.raises(ValueError, match="context 5000 exceeds the model's 4096 tokens"):
        AnoleDraft(weights="tiny", device="cpu", context=5000)


@models
def test_renderer_refuses_what_it_cannot_draw(render):
    good = ImageRequest(payload=pack_codes(np.zeros((8, 8), np.int32)))
    outcomes = render(
        [
            ImageRequest(prompt="a bird"),
            good,
            ImageRequest(payload=pack_codes(np.zeros((4, 4), np.int32))),
            ImageRequest(payload=pack_codes(np.full((8, 8), 128, np.int32))),
            ImageRequest(payload=Payload.of(b"garbage")),
            ImageRequest(payload=Payload.of(save({"other": np.zeros(3)}))),
        ]
    )
    assert isinstance(outcomes[1], Result)
    reasons = [o.reason for o in outcomes if isinstance(o, Failure)]
    assert len(reasons) == 5
    assert "no payload" in reasons[0]
    assert "(4, 4) codes, not (8, 8)" in reasons[1]
    assert "code 128 is not in the codebook of 128" in reasons[2]
    assert "no tensor 'codes'" in reasons[3]
    assert "no tensor 'codes'" in reasons[4]


@models
def test_drafts_survive_the_store(draft):
    inputs = [request(Text("A bird"), seed=s) for s in range(4)]
    outcomes = draft(inputs)
    items = [Item(str(i), "x", r) for i, r in enumerate(inputs)]
    table = encode(Kind.DRAFT, items, outcomes, 0.1)
    for i, row in rows_of(Kind.DRAFT, table, "part.parquet").items():
        read = decode(Kind.DRAFT, row).value
        assert read == outcomes[int(i)].value


def test_system_shares_settings_between_its_stages():
    overrides = {
        "model": "some/other-anole",
        "render": {"batch_size": 2},
        "text_top_p": 0.5,
    }
    system = native("anole", "tiny", overrides)
    assert system.name == "anole"
    assert system.draft.identity == system.render.identity == "some/other-anole"
    assert system.draft.settings["text_top_p"] == 0.5
    assert system.render.placement.batch_size == 2
    assert system.draft.placement.batch_size == SMALL_BATCH
    assert system.draft.seeded
    assert not system.render.seeded
    assert system.max_images == 3
    assert system.draft.digest != system.render.digest


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"text_topp": 0.5},
            "unknown key in models.anole 'text_topp'; did you mean 'text_top_p'",
        ),
        ({"draft": {"guidance": 1.0}}, r"unknown key in models\.anole\.draft 'guidance'"),
        ({"text_top_p": 1.5}, r"text_top_p in models\.anole\.draft"),
        ({"dtype": "int4"}, "dtype"),
        ({"draft": 3}, "models.anole.draft must hold settings, not 3"),
    ],
)
def test_wrong_settings_are_refused(overrides, message):
    with pytest.raises(UsageError, match=message):
        native("anole", "tiny", overrides)


def test_unknown_native_model():
    with pytest.raises(UsageError, match="did you mean 'anole'"):
        native("anloe", "tiny", {})


def test_what_enters_the_key():
    usual = AnoleDraftSettings()
    keyed = usual.keyed("pretrained")
    assert {"text_top_p", "guidance_image", "max_images", "context", "dtype"} <= set(keyed)
    assert not {"device", "batch_size", "model", "revision"} & set(keyed)
    assert AnoleRenderSettings().keyed("pretrained") == {"dtype": "float32"}


def test_one_gpu_per_replica_and_memory_before_loading():
    spec = AnoleDraftSettings().spec("a", "dummy", gpu_gib=24.0)
    assert spec.placement.num_gpus == 1
    # 7.08 billion weights of two bytes and a fifth more, 24 streams of 2 GiB.
    assert spec.placement.gpu_memory_gib == pytest.approx(15.8 + 48, abs=0.1)
    single = AnoleDraftSettings(batch_size=1).spec("a", "dummy").placement
    assert single.gpu_memory_gib == pytest.approx(21.8, abs=0.1)
    assert AnoleDraftSettings().spec("a", "tiny").placement.num_gpus == 0
    assert AnoleRenderSettings().spec("a", "dummy").placement.num_gpus == 1


def test_planning_loads_no_model_code():
    code = (
        "import sys; from generators.natives import native; "
        "native('anole', 'tiny', {}); "
        "heavy = {'torch', 'transformers', 'diffusers', 'tokenizers', 'numpy'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    root = CHECKOUT
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True
    )
    assert run.stdout.strip() == "[]", run.stderr
    assert set(NATIVE) >= {"anole"}
