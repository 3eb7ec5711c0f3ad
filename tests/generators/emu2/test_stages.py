"""The stages of Emu2 end to end, as the engine calls them."""

import emu2_helpers as helpers
import emu2_references as references
import pytest
import torch

from cluster.records import Item, decode, encode, rows_of
from generators.base import Failure, Kind, Result, Skip
from generators.document import Image, ImageRequest, Request, Text, Turn
from generators.emu2.condition import Emu2Condition
from generators.emu2.draft import Emu2Draft
from generators.emu2.reading import unpack_vectors
from generators.emu2.render import Emu2Render
from generators.natives import native
from generators.system import Repetition, answer

models = pytest.mark.models


@pytest.fixture(scope="module")
def draft():
    return Emu2Draft(weights="tiny", device="cpu")


@pytest.fixture(scope="module")
def condition():
    return Emu2Condition(weights="tiny", device="cpu")


@pytest.fixture(scope="module")
def render():
    return Emu2Render(weights="tiny", device="cpu", height=64, width=64, steps=2)


@models
@pytest.mark.parametrize("rounds", [1, 3])
def test_question_to_document(draft, condition, render, rounds):
    """The whole walk of the system, pictures in place and different from each other."""
    from trial import as_asked, sample

    system = native("emu2", "tiny", {"rounds": rounds})
    stages = {Kind.DRAFT: draft, Kind.CONDITION: condition, Kind.RENDER: render}
    walk, outcomes, seen = answer(system, sample(0), Repetition(as_asked)), None, []
    try:
        jobs = next(walk)
        while True:
            seen += [job.spec.kind for job in jobs]
            outcomes = [stages[job.spec.kind]([job.input])[0] for job in jobs]
            jobs = walk.send([_encoded(o) for o in outcomes])
    except StopIteration as stopped:
        document = stopped.value.value
    kinds = [type(s) for s in document.segments]
    assert kinds == [Text, Image] * rounds
    assert seen == [Kind.DRAFT, Kind.CONDITION, Kind.RENDER] * rounds
    assert len({image.digest for image in document.images}) == rounds
    if rounds > 1:
        texts = [s.text for s in document.segments if isinstance(s, Text)]
        assert len(set(texts)) > 1, "later rounds read the document so far"


def _encoded(outcome):
    drawn = isinstance(outcome, Result) and hasattr(outcome.value, "encoded")
    return Result(outcome.value.encoded()) if drawn else outcome


@models
def test_usage_and_notes(draft, condition):
    asked = [helpers.asked("A red house", helpers.picture(1)), helpers.asked("river")]
    for outcome, images in zip(draft(asked), (1, 0), strict=True):
        assert outcome.usage["input_images"] == images
        assert outcome.usage["images"] == 0
        assert outcome.usage["output_tokens"] >= len(outcome.value.text.split())
        assert outcome.notes["stop"] in ("end of sequence", "token limit")
        assert (outcome.notes["stop"] == "token limit") == (
            outcome.usage["output_tokens"] == 64
        )
        assert "[USER]: " in outcome.notes["prompt"]
        assert ("<image>" in outcome.notes["prompt"]) == bool(images)
    made = condition([ImageRequest("a bird", context=(helpers.picture(1),))])[0]
    assert made.notes == {"prompt": "<image>a bird", "mode": "generation"}
    assert made.usage["input_images"] == 1
    assert made.usage["output_tokens"] == 16
    # <s>, a picture of 16 vectors and two marks, "a bird" in two pieces, and a mark.
    assert made.usage["input_tokens"] == 1 + 18 + 2 + 1


@models
def test_pictures_beyond_the_context_are_skipped_with_the_limit():
    stage = Emu2Draft(weights="tiny", device="cpu", context=256, max_new_tokens=20)
    question = Text("a house")
    counts = []
    for count in (7, 10):
        images = tuple(helpers.picture(i) for i in range(count))
        counts.append(stage([Request((Turn("user", (*images, question)),))])[0])
    fits, skipped = counts
    assert isinstance(fits, Result)
    assert fits.usage["input_images"] == 7
    assert isinstance(skipped, Skip)
    words = fits.usage["input_tokens"] - 7 * 18
    assert 9 * 18 + words + 20 <= 256 < 10 * 18 + words + 20
    assert skipped.reason == (
        f"the prompt takes {180 + words} tokens (10 pictures of 18 and {words} of text) "
        "and the answer up to 20; the context holds 256, so beside this text at most 9 "
        "pictures fit"
    )
    nine = tuple(helpers.picture(i) for i in range(9))
    assert isinstance(stage([Request((Turn("user", (*nine, question)),))])[0], Result)


@models
def test_conditioning_takes_what_the_limit_says():
    """The new picture's mark and all vectors but the last stand in the context too."""
    stage = Emu2Condition(weights="tiny", device="cpu", context=30)
    # <s>, the words, the mark, and 15 vectors.
    for words, kind in ((13, Result), (14, Skip)):
        assert isinstance(stage([ImageRequest("a " * words)])[0], kind)


@models
def test_bad_requests_to_condition_fail_alone(condition):
    requests = [
        ImageRequest(),
        ImageRequest("a bird"),
        ImageRequest("x", context=(Image.of(b"no picture"),)),
        ImageRequest(" "),
    ]
    outcomes = condition(requests)
    assert isinstance(outcomes.pop(1), Result)
    assert all(isinstance(o, Failure) for o in outcomes)
    assert condition([]) == []


@models
def test_autoencoding_is_what_the_encoder_sees(condition):
    """Exactly one picture and no prompt; an empty prompt asks for generation."""
    one, two = helpers.picture(1), helpers.picture(2)
    requests = [
        ImageRequest(context=(one,)),
        ImageRequest("", context=(one,)),
        ImageRequest("a bird"),
        ImageRequest(context=(two,)),
        ImageRequest(context=(one, two)),
        ImageRequest(context=(Text("a bird"),)),
    ]
    made = condition(requests)
    modes = [o.notes["mode"] for o in made]
    assert modes == [
        "autoencoding",
        "generation",
        "generation",
        "autoencoding",
        "generation",
        "generation",
    ]
    vectors = [unpack_vectors(o.value) for o in made]
    state = helpers.native_state(helpers.gen())
    vision = helpers.gen().vision
    black = references.seen_exactly(state, vision, torch.zeros(3, 64, 64))
    for i in (0, 3):
        assert (vectors[i][1].double() - black).abs().max() < 1e-4
    assert not torch.equal(vectors[0][0], vectors[1][0])
    assert (vectors[2][0] - vectors[5][0]).abs().max() < 1e-5
    for i in (1, 2, 4, 5):
        assert torch.equal(vectors[i][1], vectors[1][1])


@models
def test_unconditional_vectors_are_those_of_no_text(condition):
    from generators.emu2.reading import Emu2Prompt, embeddings

    model = condition.model
    ids = (model.tokens["<s>"], model.tokens["[IMG]"])
    (states,) = embeddings(model, [Emu2Prompt(ids, ())])
    naive = references.uncached_vectors(model.network, states, 16)
    free = unpack_vectors(condition([ImageRequest("a bird")])[0].value)[1]
    assert (free - naive).abs().max() < 1e-4


@models
def test_unconditional_vectors_are_computed_once(monkeypatch):
    from generators.emu2 import condition as module

    calls = []
    usual = module.regress

    def counting(model, prompts):
        calls.append(len(prompts))
        return usual(model, prompts)

    monkeypatch.setattr(module, "regress", counting)
    stage = Emu2Condition(weights="tiny", device="cpu")
    for _ in range(2):
        stage([ImageRequest("a bird"), ImageRequest("a cup"), ImageRequest("a table")])
    assert calls == [3, 1, 3]


@models
def test_vectors_survive_the_store(condition):
    requests = [ImageRequest("a bird"), ImageRequest("x", context=(helpers.picture(1),))]
    outcomes = condition(requests)
    items = [Item(str(i), "x", r) for i, r in enumerate(requests)]
    table = encode(Kind.CONDITION, items, outcomes, 0.1)
    for i, row in rows_of(Kind.CONDITION, table, "part.parquet").items():
        assert decode(Kind.CONDITION, row).value == outcomes[int(i)].value
