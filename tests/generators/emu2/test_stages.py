"""Emu2's stages as the engine calls them: rounds, conditioning, limits of answers."""

import pytest
import torch
from natives import asked, tiny
from picture_helpers import smooth
from trial import as_asked, sample

from generators.base import Failure, Kind, Result, Skip
from generators.decoding.payloads import unpack
from generators.document import Image, ImageRequest, Text
from generators.emu2.condition import Emu2Condition
from generators.emu2.network import Emu2
from generators.natives import native
from generators.system import Repetition, answer

pytestmark = pytest.mark.models

ONE, TWO = smooth(1), smooth(2)


def test_a_walk_of_three_rounds():
    """Text and image in turn; later rounds read the document so far."""
    system = native("emu2", "tiny", {"rounds": 3})
    stages = {kind: tiny("emu2", kind.value) for kind in Kind if kind.value in STAGES}
    walk, seen = answer(system, sample(0), Repetition(as_asked)), []
    try:
        jobs = next(walk)
        while True:
            seen += [job.spec.kind for job in jobs]
            outcomes = [stages[job.spec.kind]([job.input])[0] for job in jobs]
            jobs = walk.send([encoded(o) for o in outcomes])
    except StopIteration as stopped:
        document = stopped.value.value
    assert [type(s) for s in document.segments] == [Text, Image] * 3
    assert seen == [Kind.DRAFT, Kind.CONDITION, Kind.RENDER] * 3
    assert len({image.digest for image in document.images}) == 3
    assert len({s.text for s in document.segments if isinstance(s, Text)}) > 1


STAGES = ("draft", "condition", "render")


def encoded(outcome):
    drawn = isinstance(outcome, Result) and hasattr(outcome.value, "encoded")
    return Result(outcome.value.encoded()) if drawn else outcome


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


def test_autoencoding_is_what_the_encoder_sees():
    """Exactly one image and no prompt; an empty prompt asks for generation."""
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
    vectors, free = zip(
        *(unpack(o.value, "vectors", "unconditional") for o in made), strict=True
    )
    seen = stage.model.read([ONE], 0, stage.context).pixels
    assert torch.allclose(vectors[0], stage.model.image_vectors(seen)[0], atol=1e-5)
    black = stage.model.image_vectors([torch.zeros(3, 64, 64)])[0]
    assert all(torch.equal(f, black) for f in free[:2])
    nothing = stage.model.embeddings([stage.model.read([], 15, 2048, True)])
    unprompted = stage.model.regress(nothing)[0]
    assert all((f - unprompted).abs().max() < 1e-4 for f in free[2:])
    assert not torch.equal(vectors[0], vectors[2])
    assert (vectors[3] - vectors[5]).abs().max() < 1e-5


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
