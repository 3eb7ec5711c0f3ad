"""GILL's two stages and the system of both, with tiny weights."""

from dataclasses import replace

import gill_helpers as helpers
import pytest

from generators.base import Failure, Result, Skip
from generators.document import Image, ImageRequest, Request, Text, Turn
from generators.errors import UsageError
from generators.gill.render import GillRender
from generators.gill.settings import GillDraftSettings, GillRenderSettings, gill

pytestmark = pytest.mark.models


def drafted(*requests: Request, **settings) -> list:
    return helpers.tiny(**settings)(list(requests))


def test_answers_interleave():
    outcomes = drafted(*helpers.QUESTIONS)
    kinds = [[type(s) for s in o.value.segments] for o in outcomes]
    assert [Text, ImageRequest, Text, ImageRequest] in [k[:4] for k in kinds]
    assert sum(o.usage["images"] for o in outcomes) >= 6


def test_notes_and_usage():
    (outcome,) = drafted(helpers.QUESTIONS[3])
    assert outcome.notes["prompt"] == ("Q: how do I bake a cake<image>with eggs<image>\nA:")
    assert outcome.notes["stop"] in ("end of line", "image limit reached")
    assert outcome.notes["written"].count("<image>") == outcome.usage["images"] > 0
    assert outcome.usage["input_images"] == 2
    tokens = helpers.tiny().language.tokens
    texts = ("Q: how do I bake a cake", "with eggs", "\nA:")
    length = 1 + sum(len(tokens.encode(text)) for text in texts) + 2 * 4
    assert outcome.usage["input_tokens"] == length


def test_outcomes_of_bad_requests():
    unreadable = Image.of(b"no picture")
    outcomes = drafted(
        Request(()),
        helpers.question(" \n"),
        helpers.question("look", unreadable),
        helpers.question("the river"),
    )
    assert [o.reason for o in outcomes[:2]] == [
        "the request holds neither text nor pictures"
    ] * 2
    assert isinstance(outcomes[2], Failure)
    assert "no known picture format" in outcomes[2].reason
    helpers.assert_same(outcomes[3], drafted(helpers.question("the river"))[0])


def test_a_very_long_question_is_skipped_with_the_numbers():
    long = helpers.question("the boat, " * 2_000, helpers.picture())
    outcomes = drafted(long, helpers.question("the river"))
    assert isinstance(outcomes[0], Skip)
    assert "pictures of 4); the context holds 2048, the answer included" in (
        outcomes[0].reason
    )
    assert isinstance(outcomes[1], Result)


def test_a_prompt_that_just_fits_is_answered():
    tokens, context = helpers.tiny().language.tokens, helpers.tiny().language.context
    spare = context - 1 - len(tokens.encode("Q: \nA:"))
    for letters, kind in ((spare - 1, Result), (spare, Skip)):
        (outcome,) = drafted(helpers.question("\x01" * letters))
        assert isinstance(outcome, kind)


def test_ten_pictures_are_read():
    pictures = [helpers.picture(i) for i in range(10)]
    (outcome,) = drafted(helpers.question(*pictures, "Which is best?"))
    assert outcome.usage["input_images"] == 10
    others = [helpers.picture(i) for i in (*range(9), 11)]
    first, second = (
        helpers.embed(helpers.tiny(), helpers.question(*p, "Which is best?"))
        for p in (pictures, others)
    )
    changed = (first - second).abs().amax(dim=1) > 1e-3
    assert changed.nonzero().flatten().tolist() == [36, 37, 38, 39]


def test_a_picture_among_others_is_embedded_as_alone():
    stage = helpers.tiny()
    request = helpers.QUESTIONS[2]
    prompts = [stage.prompt(r) for r in helpers.QUESTIONS]
    together = stage.embed(prompts)[2]
    assert (together - helpers.embed(stage, request)).abs().max() < 1e-5


def test_every_turn_is_read():
    turns = (
        Turn("system", (Text("Be kind. "),)),
        Turn("user", (Text("Hi"),)),
        Turn("assistant", (Text(" Yes."), helpers.picture())),
        Turn("user", (Text("Why?"),)),
    )
    (pictures,) = drafted(Request(turns))
    assert pictures.notes["prompt"] == "Be kind. Q: Hi\nA: Yes.<image>\nQ: Why?\nA:"
    (named,) = drafted(Request(turns), history_images="vokens")
    names = "".join(f"[IMG{i}]" for i in range(8))
    assert named.notes["prompt"] == f"Be kind. Q: Hi\nA: Yes. {names}\nQ: Why?\nA:"
    assert named.usage["input_images"] == 0


def test_one_bos_or_one_for_each_text():
    bos = helpers.tiny().language.tokens.bos
    request = helpers.question(helpers.picture(), "look", helpers.picture(1), "there")
    for every, opening in ((False, [True, False]), (True, [True, True])):
        prompt = helpers.tiny(always_add_bos=every).prompt(request)
        ids = [part for part in prompt.parts if isinstance(part, list)]
        assert [part[0] == bos for part in ids] == opening


def test_sampling_needs_a_seed():
    (outcome,) = drafted(helpers.question("one", seed=None), temperature=0.7)
    assert outcome == Failure("the request has no seed, but tokens are sampled")
    (greedy,) = drafted(helpers.question("one", seed=None))
    assert isinstance(greedy, Result)
    assert not GillDraftSettings().spec("gill-draft", "tiny").seeded
    assert GillDraftSettings(temperature=0.7).spec("gill-draft", "tiny").seeded


def text_after_images(outcome) -> bool:
    return isinstance(outcome.value.segments[-1], Text) and bool(outcome.value.requests)


def test_text_after_the_last_image_is_dropped_by_default():
    requests = helpers.QUESTIONS
    assert not any(map(text_after_images, drafted(*requests)))
    trailing = drafted(*requests, trailing_text=True)
    assert any(map(text_after_images, trailing))


def test_texts_are_cut_after_their_first_sentence_unless_kept_whole():
    requests = [helpers.question("one", seed=s) for s in range(6)]
    sampled = {"temperature": 1.0, "newline": "never"}
    cut = drafted(*requests, **sampled)
    whole = drafted(*requests, **sampled, truncate_caption=False)
    longer = 0
    for a, b in zip(cut, whole, strict=True):
        pairs = zip(a.value.segments, b.value.segments, strict=True)
        texts = [(x.text, y.text) for x, y in pairs if isinstance(x, Text)]
        assert all(y.startswith(x) for x, y in texts)
        longer += sum(x != y for x, y in texts)
    assert longer


def test_pictures_may_be_cropped_instead_of_squashed():
    request = helpers.question(helpers.picture(1, width=90, height=30))
    squashed, cropped = (
        helpers.tiny(resize=resize).prompt(request).pixels[0]
        for resize in ("squash", "crop")
    )
    assert squashed.shape == cropped.shape == (3, 28, 28)
    assert (squashed - cropped).abs().max() > 0.1


def test_drafts_are_drawn():
    requests = [r for o in drafted(*helpers.QUESTIONS) for r in o.value.requests][:3]
    spec = GillRenderSettings(device="cpu").spec("gill-render", "tiny")
    outcomes = GillRender(**spec.settings, **spec.options)(
        [replace(r, seed=i) for i, r in enumerate(requests)]
    )
    assert [o.value.pixels.shape for o in outcomes] == [(64, 64, 3)] * 3
    assert all(o.value.pixels.std() > 5 for o in outcomes)


def test_the_system():
    system = gill("tiny", {"max_num_rets": 2, "render": {"guidance": 3.0}}, 80.0)
    assert (system.name, system.max_images) == ("gill", 2)
    assert [s.name for s in system.stages] == ["gill-draft", "gill-render"]
    assert system.render.settings["guidance"] == 3.0
    assert system.draft.settings["max_num_rets"] == 2
    with pytest.raises(UsageError, match="max_num_retz"):
        gill("tiny", {"max_num_retz": 2}, 80.0)


def test_defaults_are_visible_in_the_key():
    keyed = GillDraftSettings().keyed("pretrained")
    assert (keyed["num_words"], keyed["max_num_rets"]) == (64, 4)
    assert not {"model", "language", "vision", "device"} & set(keyed)
    rendering = GillRenderSettings().keyed("pretrained")
    assert (rendering["steps"], rendering["guidance"]) == (50, 7.5)
    assert (rendering["height"], rendering["width"]) == (512, 512)


def test_memory_is_planned_before_anything_is_loaded():
    """Upstream asks for 22 GB for the whole model, at one record."""
    one = GillDraftSettings(batch_size=1).memory_estimate_gib("pretrained")
    eight = GillDraftSettings(batch_size=8).memory_estimate_gib("pretrained")
    assert 14 < one < 18
    assert eight - one == pytest.approx(7.0)
    assert GillDraftSettings().memory_estimate_gib("tiny") == 0
