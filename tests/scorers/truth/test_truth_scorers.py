"""The scorers of truth on answers of the miniature world."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PIL import Image as Pillow
from scorer_helpers import first, scored, truth_of

from plait.generators.base import Failure, NotApplicable, Result, Unscored
from plait.generators.document import Document, Image, Query, Text
from plait.generators.images import encode


def value(name: str, sample: Query, document: Document) -> float:
    outcome = scored(name, sample, document)
    assert isinstance(outcome, Result), outcome
    return outcome.value.value


def test_another_scenes_picture_fails_the_match_and_not_the_text() -> None:
    sample, other = first("SA"), first("SA", 1)
    text, picture = truth_of(sample).segments[0], truth_of(other).images[0]
    document = Document((text, picture))
    assert value("truth:text", sample, document) == 100
    match = value("truth:match", sample, document)
    assert match == value("truth:image", sample, document) < 100
    assert match < value("truth:answer", sample, document) < 100
    assert value("truth:match", sample, truth_of(other)) == 100
    assert value("truth:answer", sample, truth_of(other)) < 100


def test_pictures_in_the_wrong_order_are_noticed() -> None:
    sample = first("PBL")
    one, picture, two, other = truth_of(sample).segments
    exchanged = Document((one, other, two, picture))
    for name in ("truth:image", "truth:match", "truth:answer"):
        assert value(name, sample, exchanged) < 100, name
    assert value("truth:text", sample, exchanged) == 100


def test_what_is_missing_is_missed_and_details_are_kept() -> None:
    sample = first("SA")
    text, picture = truth_of(sample).segments
    assert 0 < value("truth:answer", sample, Document((text,))) < 100
    outcome = scored("truth:image", sample, Document((picture,)))
    assert isinstance(outcome, Result)
    parts = outcome.value.parts
    assert (parts["precision"], parts["recall"], parts["each"]) == (1, 1, [100])
    assert isinstance(text, Text)
    assert parts["shown"] == [text.text.removeprefix("Now there is ").removesuffix(".")]


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("truth:text", "text", "unreadable text: the sentence"),
        ("truth:answer", "text", "unreadable text"),
        ("truth:match", "text", "unreadable text beside image 1"),
        ("truth:match", "silence", "the text beside image 1 describes no scene"),
        ("truth:image", "picture", "unreadable image 1: the image has no plain"),
        ("truth:match", "picture", "unreadable image 1"),
        ("truth:answer", "picture", "unreadable image 1"),
        ("truth:image", "no picture", "holds no image"),
        ("truth:text", "no text", "holds no text"),
        ("truth:answer", "nothing", "is empty"),
    ],
)
def test_what_cannot_be_read_is_unscored(name: str, change: str, reason: str) -> None:
    sample = first("SA")
    text, picture = truth_of(sample).segments
    gradient = encode(Pillow.linear_gradient("L").convert("RGB"))
    documents = {
        "text": Document((Text("There is a red at the top left."), picture)),
        "silence": Document((Text("Look!"), picture)),
        "picture": Document((text, gradient)),
        "no picture": Document((text,)),
        "no text": Document((picture,)),
        "nothing": Document(),
    }
    outcome = scored(name, sample, documents[change])
    assert isinstance(outcome, Unscored), outcome
    assert reason in outcome.reason


def test_a_broken_picture_is_a_failure_and_other_worlds_do_not_apply() -> None:
    sample = first("SA")
    broken = Document((Text("Now there is a star."), Image.of(b"no picture")))
    assert isinstance(scored("truth:image", sample, broken), Failure)
    bare = replace(sample, reference=None)
    assert isinstance(scored("truth:answer", bare, truth_of(sample)), NotApplicable)
    other = replace(sample, reference=Document((Text("A cat sits on a mat."),)))
    outcome = scored("truth:answer", other, truth_of(sample))
    assert isinstance(outcome, NotApplicable)
    assert "not of the miniature world" in outcome.reason
    assert value("truth:match", bare, truth_of(sample)) == 100
